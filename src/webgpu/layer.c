// layer.c: a whole layer of one position in one dispatch (layer.wgsl).
//
// Its workgroups wait for each other, which WebGPU does not promise to work: they must all run at the same time. So it is used
// only where the caller says how many do (webgpu_options).

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webgpu/products.h"

enum {
    Q,
    K,
    V,
    O,
    GATE,
    UP,
    DOWN,
    IN,
    PROJ,
    N_WEIGHTS, // a layer's weights, in the order of the parameters
    MOST_KERNELS = 48,
    MOST_PIECES = 16,     // of a head's keys
    KEYS = 64,            // of a tile
    MOST_CHUNK_STEPS = 4, // units that an invocation multiplies between two stagings of a long input
    MOST_STEPS = 6,       // units of a row that an invocation multiplies, when the input is short
    AHEAD = 2,            // units that are asked for before they are needed
    PATIENCE = 20000,     // looks at a word before a workgroup gives up: some 0.02 s
};

// What a kernel is made for. Compared as bytes.
struct layer_shape {
    const struct layout_type *types[N_WEIGHTS]; // NULL: no such weight
    uint32_t units[N_WEIGHTS], rows[N_WEIGHTS];
    uint32_t head_dim, n_heads, n_kv_heads, stores, v_is_k, activation;
};

struct layer_kernels {
    uint32_t n;
    struct layer_shape shapes[MOST_KERNELS];
    struct gpu_pipeline *kernels[MOST_KERNELS]; // NULL: the layer goes operation by operation
    uint32_t groups, invocations;               // of a dispatch, of a workgroup
    uint32_t half_words;                        // of the exchange
    uint32_t turn;                              // the half that the next layer uses
};

struct layer_params {
    uint32_t at[3][4];
    uint32_t now, next, n_words, position, low, capacity, piece, n_pieces, has_term, term_norm_at, scale_at, attn_norm_at,
        q_norm_at, k_norm_at, post_attention_norm_at, ffn_norm_at, post_ffw_norm_at, per_layer_at;
    float eps;
    uint32_t zero;
};

typedef const struct linear *layer_weights[N_WEIGHTS];

static void list_weights(const struct whole_layer *layer, layer_weights out)
{
    layer_weights all = {layer->qkv[0], layer->n_qkv > 1 ? layer->qkv[1] : NULL, layer->n_qkv > 2 ? layer->qkv[2] : NULL,
        layer->attn_output, layer->gate, layer->up, layer->down, layer->per_layer_gate, layer->per_layer_out};
    memcpy(out, all, sizeof all);
}

static void describe(const struct whole_layer *layer, layer_weights weights, struct layer_shape *s)
{
    const struct attention *a = layer->attention;
    memset(s, 0, sizeof *s);
    for (int k = 0; k < N_WEIGHTS; k++) {
        if (weights[k] == NULL)
            continue;
        s->types[k] = device_of(weights[k])->layout.type;
        s->units[k] = device_of(weights[k])->layout.n_units;
        s->rows[k] = (uint32_t)weights[k]->weight.n_out;
    }
    s->head_dim = (uint32_t)a->head_dim;
    s->n_heads = (uint32_t)a->n_heads;
    s->n_kv_heads = (uint32_t)a->n_kv_heads;
    s->stores = a->writes_kv;
    s->v_is_k = a->v_is_k;
    s->activation = layer->activation;
}

// --- the kernel ---------------------------------------------------------------------------------------------------------------

struct definitions {
    char text[3600];
    size_t n;
};

static void define(struct definitions *d, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    d->n += (size_t)vsnprintf(d->text + d->n, sizeof d->text - d->n, format, arguments);
    va_end(arguments);
}

static uint32_t log2_of(uint32_t power)
{
    uint32_t n = 0;
    while (1u << n < power)
        n++;
    return n;
}

// How the rows of a product are dealt out: `lanes` invocations share a row; `passes` times each workgroup makes a row with each
// of its invocations / lanes groups of lanes. The input is staged in `chunks`, each of `steps` units for every lane.
struct spread {
    uint32_t lanes, groups, passes, chunks, steps;
};

static struct spread spread_rows(const struct layer_kernels *l, uint32_t n_rows, uint32_t n_units, bool in_chunks)
{
    struct spread best = {0};
    uint32_t least = UINT32_MAX;
    for (uint32_t lanes = 8; lanes <= 32; lanes *= 2) {
        struct spread s = {.lanes = lanes, .groups = l->invocations / lanes, .chunks = 1};
        uint32_t steps = divide_up(n_units, lanes);
        s.passes = divide_up(n_rows, s.groups * l->groups);
        if (in_chunks)
            s.chunks = divide_up(steps, MOST_CHUNK_STEPS);
        s.steps = divide_up(steps, s.chunks);
        uint32_t work = s.passes * s.chunks * s.steps;
        if (work <= least && (in_chunks || s.steps <= MOST_STEPS || lanes == 32)) {
            least = work;
            best = s;
        }
    }
    return best;
}

static void define_spread(
    struct definitions *d, const struct webgpu *gpu, const char *name, const struct spread *s, uint32_t n_units, bool integers)
{
    uint32_t chunk = s->steps * s->lanes, row_items = s->chunks * s->steps;
    define(d, "%s_LANES=%u %s_LOG2=%u %s_IS_SMALL=%d %s_GROUPS=%u ", name, s->lanes, name, log2_of(s->lanes), name,
        s->lanes <= gpu->subgroup_size, name, s->groups);
    define(d, "%s_CHUNKS=%u %s_CHUNK=%u %s_STEPS=%u %s_TAKES=%u %s_UNITS=%u ", name, s->chunks, name, chunk, name, s->steps, name,
        divide_up(chunk * 32, gpu->layers->invocations), name, n_units);
    define(d, "%s_ROW_ITEMS=%u %s_ITEMS=%u %s_INT=%d ", name, row_items, name, s->passes * row_items, name, integers);
}

// The snippets of the weights' types; slots[k] = the snippet of weight k. Queries, keys and values of one type share theirs.
static uint32_t define_types(struct definitions *d, const struct layer_shape *s, layer_weights weights, uint32_t slots[N_WEIGHTS])
{
    uint32_t n = 0, n_qkv = 0;
    for (int k = 0; k < N_WEIGHTS; k++) {
        slots[k] = n;
        for (int other = Q; k <= V && other < k; other++)
            if (s->types[other] == s->types[k])
                slots[k] = slots[other];
        if (s->types[k] == NULL || slots[k] < n)
            continue;
        const struct layout *layout = &device_of(weights[k])->layout;
        define(d, "TYPE%u=%s WORDS%u=%u ", n, layout->type->snippet, n, layout->row_vectors);
        for (int plane = 1; plane < LAYOUT_PLANES; plane++)
            define(d, "PLANE%d_%u=%u ", plane, n, layout->starts[plane]);
        n++;
        n_qkv = k <= V ? n : n_qkv;
    }
    define(d, "WEIGHTS=%u QKV_SLOTS=%u SLOT0=%u SLOT1=%u SLOT2=%u O=%u GATE=%u UP=%u DOWN=%u IN=%u PROJ=%u ", n, n_qkv, slots[Q],
        slots[K], slots[V], slots[O], slots[GATE], slots[UP], slots[DOWN], slots[IN], slots[PROJ]);
    return n;
}

// Do all weights from first to last multiply integers?
static bool are_integers(const struct layer_shape *s, int first, int last)
{
    bool all = true;
    for (int k = first; k <= last; k++)
        all = all && (s->types[k] == NULL || s->types[k]->integers);
    return all;
}

static void define_products(struct definitions *d, const struct webgpu *gpu, const struct layer_shape *s)
{
    const struct layer_kernels *l = gpu->layers;
    const struct {
        const char *name;
        int first, last; // weights
        uint32_t n_rows;
        bool in_chunks;
    } products[] = {{"QKV", Q, V, s->rows[Q] + s->rows[K] + s->rows[V], false}, {"O", O, O, s->rows[O], true},
        {"FF", GATE, UP, s->rows[GATE], false}, {"DOWN", DOWN, DOWN, s->rows[DOWN], true}, {"IN", IN, IN, s->rows[IN], false},
        {"PROJ", PROJ, PROJ, s->rows[PROJ], true}};
    uint32_t most_units = 0;
    bool any_integers = false;
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        if (products[i].n_rows == 0)
            continue;
        uint32_t n_units = s->units[products[i].first];
        bool integers = are_integers(s, products[i].first, products[i].last);
        struct spread spread = spread_rows(l, products[i].n_rows, n_units, products[i].in_chunks);
        uint32_t staged = spread.steps * spread.lanes;
        most_units = staged > most_units ? staged : most_units;
        any_integers = any_integers || integers;
        define_spread(d, gpu, products[i].name, &spread, n_units, integers);
    }
    define(d, "XS_VECTORS=%u INTEGER=%d STRIDE=%u AHEAD=%d ", most_units * 8 * 17 / 16 + 1, any_integers,
        integer_stride(most_units), AHEAD);
}

static struct gpu_pipeline *make_kernel(struct webgpu *gpu, const struct layer_shape *s, layer_weights weights)
{
    const struct layer_kernels *l = gpu->layers;
    struct definitions d = {.n = 0};
    uint32_t slots[N_WEIGHTS], value_groups = l->invocations / (s->head_dim / 2), share = l->invocations / KEYS;
    bool per_layer = s->types[IN] != NULL;
    define_types(&d, s, weights, slots);
    define_products(&d, gpu, s);
    define(&d, "WG=%u GROUPS=%u D=%u D_UNITS=%u OWN=%u ", l->invocations, l->groups, s->rows[O], s->units[Q],
        divide_up(s->rows[O], l->invocations));
    define(&d, "HD=%u HEADS=%u PER_KV=%u KEY_ROWS=%u QKV_ROWS=%u O_INPUTS=%u ", s->head_dim, s->n_heads,
        s->n_heads / s->n_kv_heads, s->rows[K], s->rows[Q] + s->rows[K] + s->rows[V], s->n_heads * s->head_dim);
    define(&d, "STORES=%u VALUES_FROM=%s MOST_PIECES=%d SHARE_LOG2=%u SHARE_IS_SMALL=%d UNROLL=%u ", s->stores,
        s->v_is_k ? "QUERY_ROWS" : "QUERY_ROWS+KEY_ROWS", MOST_PIECES, log2_of(share), share <= gpu->subgroup_size,
        value_groups >= 64 ? 1
        : value_groups > 8 ? 64 / value_groups
                           : 8);
    define(&d, "FF=%u DOWN_TO_TERM=%d PLE=%d WIDTH=%u PATIENCE=%d SILU=%d QUICK=%d", s->rows[GATE], !per_layer, per_layer,
        s->rows[IN], PATIENCE, s->activation == ACTIVATION_SILU, s->activation == ACTIVATION_GELU_QUICK);
    return webgpu_kernel(gpu, KERNEL_LAYER | (uint64_t)l->n << 8, "layer", d.text);
}

static struct gpu_pipeline *find_kernel(struct webgpu *gpu, const struct layer_shape *s, layer_weights weights)
{
    struct layer_kernels *l = gpu->layers;
    for (uint32_t i = 0; i < l->n; i++)
        if (memcmp(&l->shapes[i], s, sizeof *s) == 0)
            return l->kernels[i];
    if (l->n == MOST_KERNELS || l->groups > s->rows[GATE]) // every workgroup has to make something that all wait for
        return NULL;
    l->shapes[l->n] = *s;
    l->kernels[l->n] = make_kernel(gpu, s, weights);
    return l->kernels[l->n++];
}

// --- the operation ------------------------------------------------------------------------------------------------------------

static bool is_wanted(struct webgpu *gpu)
{
    const struct webgpu_options *o = &gpu->options;
    const struct gpu_limits *limits = gpu_limits(gpu->gpu);
    if (o->layer_groups < 1 || limits->max_storage_buffers < 9 || (uint32_t)o->layer_invocations > limits->max_invocations)
        return false;
    if (gpu->layers == NULL)
        gpu->layers = calloc(1, sizeof *gpu->layers);
    if (gpu->layers == NULL)
        return false;
    gpu->layers->groups = (uint32_t)o->layer_groups;
    gpu->layers->invocations = o->layer_invocations > 0 ? (uint32_t)o->layer_invocations : 256;
    return true;
}

// One position, keys and values in 16 bits, all norms, and plain weights side by side in one buffer.
static bool fits(const struct stream *stream, const struct whole_layer *layer, layer_weights weights)
{
    const struct attention *a = layer->attention;
    const struct weight_group *group = device_of(weights[Q])->group;
    int32_t d = a->head_dim;
    bool fits = stream->x.n_rows == 1 && stream->x.n_cols % 32 == 0 && !a->kv->is_f32 && a->last_key.buffer == NULL &&
                (d == 32 || d == 64 || d == 128 || d == 256 || d == 512) && group != NULL && weight_exists(layer->attn_norm) &&
                weight_exists(layer->post_attention_norm) && weight_exists(layer->ffn_norm) && weight_exists(a->q_norm) &&
                (!a->writes_kv || weight_exists(a->k_norm)) &&
                (layer->per_layer_gate == NULL || weight_exists(layer->post_ffw_norm));
    for (int k = 0; k < N_WEIGHTS && fits; k++)
        fits = weights[k] == NULL || (device_of(weights[k])->group == group && !weight_exists(&weights[k]->bias) &&
                                         !weights[k]->clipped && weights[k]->adapters == NULL);
    return fits;
}

// Both halves of the exchange, empty when they are new. layer.wgsl lists what is in them.
static struct gpu_binding exchange_of(struct webgpu *gpu, const struct layer_shape *s)
{
    struct layer_kernels *l = gpu->layers;
    uint32_t query_rows = s->n_heads * s->head_dim;
    uint32_t n = s->rows[Q] + s->rows[K] + s->rows[V] + MOST_PIECES * (query_rows + 2 * s->n_heads) + query_rows +
                 2 * s->rows[O] + s->rows[GATE] + s->rows[IN];
    if (n > l->half_words) {
        l->half_words = n;
        gpu_buffer_free(gpu->gpu, gpu->scratch[SCRATCH_EXCHANGE]);
        gpu->scratch[SCRATCH_EXCHANGE] = NULL;
    }
    return webgpu_scratch(gpu, SCRATCH_EXCHANGE, (uint64_t)l->half_words * 2 * 4);
}

static uint32_t norm_at(const struct weight *norm)
{
    return weight_exists(norm) ? webgpu_vector_at(norm) : UINT32_MAX;
}

static struct layer_params params_of(
    const struct webgpu *gpu, const struct stream *stream, const struct whole_layer *layer, layer_weights weights)
{
    const struct attention *a = layer->attention;
    const struct layer_kernels *l = gpu->layers;
    uint32_t position = (uint32_t)a->first_position;
    struct layer_params p = {
        .now = l->turn * l->half_words,
        .next = (1 - l->turn) * l->half_words,
        .n_words = l->half_words,
        .position = position,
        .low = a->window > 0 && position >= (uint32_t)a->window ? position - (uint32_t)a->window + 1 : 0,
        .capacity = (uint32_t)a->kv->capacity,
        .has_term = stream->term.buffer != NULL,
        .term_norm_at = norm_at(stream->term_norm),
        .scale_at = norm_at(stream->scale),
        .attn_norm_at = norm_at(layer->attn_norm),
        .q_norm_at = norm_at(a->q_norm),
        .k_norm_at = norm_at(a->k_norm),
        .post_attention_norm_at = norm_at(layer->post_attention_norm),
        .ffn_norm_at = norm_at(layer->ffn_norm),
        .post_ffw_norm_at = norm_at(layer->post_ffw_norm),
        .per_layer_at = weights[IN] != NULL ? (uint32_t)(layer->layer * weights[IN]->weight.n_out) : 0,
        .eps = stream->eps,
    };
    for (int k = 0; k < N_WEIGHTS; k++)
        if (weights[k] != NULL)
            p.at[k / 4][k % 4] = (uint32_t)(device_of(weights[k])->parts[0].offset / 16);
    // A workgroup for each piece of each head, as long as there are enough.
    uint32_t n_keys = position + 1 - p.low, most = l->groups / (uint32_t)a->n_heads;
    most = most < 1 ? 1 : most < MOST_PIECES ? most : MOST_PIECES;
    p.piece = divide_up(divide_up(n_keys, KEYS), most) * KEYS;
    p.n_pieces = divide_up(n_keys, p.piece);
    return p;
}

static struct gpu_binding bind_cache(const struct kv_layer *kv, struct buffer *buffer)
{
    return (struct gpu_binding){gpu_buffer_of(buffer), 0, (uint64_t)kv->capacity * (uint64_t)kv->row_elems * 2};
}

bool webgpu_layer(struct ops *ops, struct stream *stream, const struct whole_layer *layer, struct tensor term)
{
    struct webgpu *gpu = webgpu_of(ops);
    layer_weights weights;
    list_weights(layer, weights);
    if (!is_wanted(gpu) || !fits(stream, layer, weights))
        return false;
    struct layer_shape shape;
    describe(layer, weights, &shape);
    struct gpu_pipeline *kernel = find_kernel(gpu, &shape, weights);
    struct gpu_binding exchange = kernel != NULL ? exchange_of(gpu, &shape) : (struct gpu_binding){0};
    if (exchange.buffer == NULL)
        return false;
    webgpu_join_all(gpu);
    struct layer_params p = params_of(gpu, stream, layer, weights);
    const struct kv_layer *kv = layer->attention->kv;
    struct gpu_buffer *together = device_of(weights[Q])->parts[0].buffer;
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {webgpu_tensor(stream->x), webgpu_tensor(term), exchange, webgpu_vectors(gpu),
        webgpu_tensor(layer->attention->rope), bind_cache(kv, kv->k), bind_cache(kv, kv->v),
        {together, 0, gpu_buffer_bytes(together)}};
    if (weights[IN] != NULL)
        bindings[8] = webgpu_tensor(layer->per_layer);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, gpu->layers->groups, 1, 1);
    gpu->layers->turn = 1 - gpu->layers->turn;
    stream->term = (struct tensor){0};
    stream->term_norm = stream->scale = NULL;
    return true;
}

void webgpu_layers_close(struct webgpu *gpu)
{
    free(gpu->layers);
    gpu->layers = NULL;
}
