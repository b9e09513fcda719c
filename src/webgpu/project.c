// project.c: products with weights. Few rows of activations go through `matvec`, which can settle and norm the stream by itself;
// many go through `matmul` on a normed copy.

#include <stdio.h>
#include <string.h>

#include "webgpu/internal.h"

// --- matvec -------------------------------------------------------------------------------------------------------------------

enum {
    VEC_FUSED = 1 << 0,
    VEC_TERM = 1 << 1,
    VEC_TERM_NORM = 1 << 2,
    VEC_SCALE = 1 << 3,
    VEC_NORM = 1 << 4,
    VEC_GATED = 1 << 5,
    VEC_ODD = 1 << 6,
    VEC_BIAS = 1 << 7,
    VEC_CLIP = 1 << 8,
    VEC_CAP = 1 << 9,
    VEC_PER_LAYER = 1 << 10,
    VEC_SILU = 1 << 11,
    VEC_QUICK = 1 << 12,
    VEC_COMBINE = 1 << 13,
    MOST_PRELOADED = 12, // units that an invocation keeps in registers
    MOST_GROUPS = 256,   // workgroups of one product: enough for the largest devices, few enough to make their inputs only once
};

struct matvec_params {
    uint32_t w[3][4];
    uint32_t n_rows[4];
    uint32_t n_in, n_units, x_cols, out_cols, out_first;
    uint32_t term_norm_at, norm_at, scale_at, bias_at, other_cols, other_first;
    float eps, cap, in_min, in_max, out_min, out_max;
    uint32_t n_pieces, head_vectors, groups_x, n_tiles, term_splits;
};

struct matvec {
    uint32_t flags;
    int n_parts;
    const struct layout *layouts[3];
    uint32_t n_units;
    uint32_t lanes_log2, rows, group; // shape of a workgroup
    uint32_t n_splits;                // workgroups that share the columns
    uint32_t chunk;                   // units staged at a time
    bool preload;
};

// Units of 32 elements that fit workgroup memory next to the sums.
static uint32_t most_staged_units(const struct webgpu *gpu)
{
    return gpu_limits(gpu->gpu)->max_workgroup_bytes >= 32768 ? 192 : 64;
}

// n_rows: of all parts together.
static void choose_shape(const struct webgpu *gpu, struct matvec *m, uint32_t n_rows)
{
    bool fused = m->flags & VEC_FUSED, gated = m->flags & VEC_GATED;
    uint32_t most = most_staged_units(gpu), units = m->n_units / m->n_splits;
    m->group = units <= 16 ? 64 : 256;
    m->rows = m->n_splits > 1 ? 2 : 1;
    m->lanes_log2 = units <= 8 ? 3 : units <= 48 ? (n_rows <= 512 ? 5 : 4) : units <= 64 || units % 64 != 0 ? 5 : 6;
    uint32_t lanes = 1u << m->lanes_log2;
    m->preload = divide_up(units, lanes) * m->rows * (gated ? 2 : 1) <= MOST_PRELOADED;
    if (m->preload)
        m->chunk = units < most || fused ? units : most;
    else
        m->chunk = fused ? divide_up(units, lanes) << m->lanes_log2 : most;
}

// Into how many stretches of columns a long product is split, so that each workgroup needs only a part of a long input.
static uint32_t splits_of(uint32_t n_units)
{
    static const uint32_t candidates[] = {3, 4, 5, 6, 2};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        uint32_t n = candidates[i], units = n_units / n;
        if (n_units % n == 0 && units % 32 == 0 && units >= 64 && units <= 192)
            return n;
    }
    return 1;
}

static uint32_t rows_of_group(const struct matvec *m)
{
    return (m->group >> m->lanes_log2) * m->rows;
}

static void define_matvec(const struct webgpu *gpu, const struct matvec *m, char *text, size_t size)
{
    uint32_t f = m->flags, lanes = 1u << m->lanes_log2, sg = gpu->subgroup_size;
    bool gated = f & VEC_GATED, fused = f & VEC_FUSED;
    uint32_t totals = m->rows * (gated ? 2 : 1), steps = divide_up(m->chunk, lanes), units = m->n_units / m->n_splits;
    uint32_t staged = (m->preload ? steps * lanes : m->chunk) * 8;
    uint32_t stretch = sg == 0 ? 1 : lanes < sg ? lanes : sg, shuffles = 0;
    while (1u << shuffles < stretch)
        shuffles++;
    size_t n = 0;
    for (int k = 0; k < m->n_parts; k++)
        n += (size_t)snprintf(text + n, size - n, "TYPE%d=%s ", k, m->layouts[k]->type->snippet);
    n += (size_t)snprintf(text + n, size - n,
        "PARTS=%d RUNS=%d MANY_PARTS=%d FUSED=%d TERM=%d TERM_NORM=%d SCALE=%d SETTLES=%d NORM=%d VECTORS=%d GATED=%d ODD=%d "
        "BIAS=%d CLIP=%d CAP=%d PER_LAYER=%d SILU=%d QUICK=%d COMBINE=%d ",
        m->n_parts, gated ? 1 : m->n_parts, m->n_parts > 1, fused, !!(f & VEC_TERM), !!(f & VEC_TERM_NORM), !!(f & VEC_SCALE),
        !!(f & VEC_TERM), !!(f & VEC_NORM), !!(f & (VEC_TERM_NORM | VEC_SCALE | VEC_NORM | VEC_BIAS)), gated, !!(f & VEC_ODD),
        !!(f & VEC_BIAS), !!(f & VEC_CLIP), !!(f & VEC_CAP), !!(f & VEC_PER_LAYER), !!(f & VEC_SILU), !!(f & VEC_QUICK),
        !!(f & VEC_COMBINE));
    snprintf(text + n, size - n,
        "WG=%u LANES=%u R=%u TOTALS=%u SPLIT=%d SPLIT_UNITS=%u CHUNK=%u CHUNKS=%u MANY_CHUNKS=%d STEPS=%u STAGED=%u OWN=%u "
        "XS_VECTORS=%u "
        "PRELOAD=%d SHUFFLES=%u STRETCH=%u CROSS=%d SUMS=%u",
        m->group, lanes, m->rows, totals, m->n_splits > 1, units, m->chunk, divide_up(units, m->chunk),
        !fused && (!m->preload || units > m->chunk), steps, staged, divide_up(staged, m->group), staged * 17 / 16 + 1, m->preload,
        shuffles, stretch, stretch < lanes, m->group / stretch * totals);
}

static struct gpu_pipeline *matvec_kernel(struct webgpu *gpu, const struct matvec *m)
{
    uint64_t key = KERNEL_MATVEC | (uint64_t)m->layouts[0]->index << 6;
    key |= (uint64_t)(m->n_parts > 1 ? m->layouts[1]->index : 0) << 11 | (uint64_t)(m->n_parts > 2 ? m->layouts[2]->index : 0)
                                                                             << 16;
    key |= (uint64_t)m->flags << 21 | (uint64_t)m->lanes_log2 << 36 | (uint64_t)m->rows << 39 | (uint64_t)(m->group / 64) << 43;
    key |= (uint64_t)(m->preload || m->flags & VEC_FUSED ? m->n_units : 0) << 47 | (uint64_t)m->preload << 63;
    key |= (uint64_t)(m->n_splits > 1) << 35;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[640];
    define_matvec(gpu, m, definitions, sizeof definitions);
    return webgpu_kernel(gpu, key, "matvec", definitions);
}

// One workgroup a tile, or fewer that take several in turn. Parts of different types cannot take turns.
static void dispatch_matvec(struct webgpu *gpu, struct gpu_pipeline *kernel, const struct gpu_binding *bindings,
    const struct matvec *m, struct matvec_params *p, uint32_t n_tiles, uint32_t n_batch)
{
    bool in_turn = m->n_parts == 1 || m->flags & VEC_GATED;
    p->n_tiles = n_tiles;
    p->groups_x = in_turn && n_tiles > MOST_GROUPS ? divide_up(n_tiles, divide_up(n_tiles, MOST_GROUPS)) : n_tiles;
    gpu_dispatch(gpu->gpu, kernel, bindings, p, sizeof *p, p->groups_x, n_batch * m->n_splits, 1);
}

static void set_weight(uint32_t w[4], const struct layout *layout)
{
    w[0] = layout->row_vectors;
    for (int k = 1; k < LAYOUT_PLANES; k++)
        w[k] = layout->starts[k];
}

static uint32_t activation_flags(enum activation activation)
{
    return activation == ACTIVATION_SILU ? VEC_SILU : activation == ACTIVATION_GELU_QUICK ? VEC_QUICK : 0;
}

static const struct device_weight *device_of(const struct linear *linear)
{
    return linear->weight.device;
}

static struct gpu_binding bind_part(const struct weight_part *part)
{
    return (struct gpu_binding){part->buffer, 0, gpu_buffer_bytes(part->buffer)};
}

// --- plain products -----------------------------------------------------------------------------------------------------------

static uint32_t epilogue_flags(const struct linear *linear, const struct product *how)
{
    uint32_t flags = how->flags & (PRODUCT_CAP | PRODUCT_PER_LAYER);
    return flags | (weight_exists(&linear->bias) ? PRODUCT_BIAS : 0) | (linear->clipped ? PRODUCT_CLIP : 0);
}

// joins: `in` is still in pieces.
static void plain_matvec(struct webgpu *gpu, struct tensor in, bool joins, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out)
{
    const struct layout *layout = &device_of(linear)->layout;
    uint32_t e = epilogue_flags(linear, how);
    struct matvec m = {.n_parts = 1, .layouts = {layout}, .n_units = layout->n_units, .n_splits = 1};
    m.flags = (in.n_cols % 4 != 0 ? VEC_ODD : 0) | (e & PRODUCT_BIAS ? VEC_BIAS : 0) | (e & PRODUCT_CLIP ? VEC_CLIP : 0) |
              (e & PRODUCT_CAP ? VEC_CAP : 0) | (e & PRODUCT_PER_LAYER ? VEC_PER_LAYER : 0) | (joins ? VEC_COMBINE : 0);
    bool sums = m.flags == 0 && linear->adapters == NULL && in.n_rows == 1 && how->out_first == 0 &&
                device_of(linear)->n_parts == 1 && out.n_cols == (int32_t)part->n_rows;
    m.n_splits = sums ? splits_of(m.n_units) : 1;
    choose_shape(gpu, &m, part->n_rows);
    struct gpu_pipeline *kernel = matvec_kernel(gpu, &m);
    if (kernel == NULL)
        return;
    struct matvec_params p = {
        .n_rows = {part->n_rows},
        .n_in = (uint32_t)in.n_cols,
        .n_units = layout->n_units,
        .x_cols = (uint32_t)in.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .out_first = how->out_first + part->first_row,
        .bias_at = webgpu_vector_at(&linear->bias) + part->first_row,
        .other_cols = (uint32_t)how->per_layer.n_cols,
        .other_first = how->per_layer_first + part->first_row,
        .cap = how->cap,
        .in_min = linear->in_min,
        .in_max = linear->in_max,
        .out_min = linear->out_min,
        .out_max = linear->out_max,
        .n_pieces = gpu->pieces.n_pieces,
        .head_vectors = gpu->pieces.head_dim / 4,
    };
    set_weight(p.w[0], layout);
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {webgpu_tensor(in)};
    int n = 1;
    if (joins)
        webgpu_bind_pieces(gpu, &bindings[0], &bindings[n++]);
    if (e & PRODUCT_BIAS)
        bindings[n++] = webgpu_vectors(gpu);
    if (e & PRODUCT_PER_LAYER)
        bindings[n++] = webgpu_tensor(how->per_layer);
    bindings[n++] =
        m.n_splits > 1 ? webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)m.n_splits * part->n_rows * 4) : webgpu_tensor(out);
    bindings[n++] = bind_part(part);
    if (bindings[n - 2].buffer == NULL)
        return;
    dispatch_matvec(gpu, kernel, bindings, &m, &p, divide_up(part->n_rows, rows_of_group(&m)), (uint32_t)in.n_rows);
    if (m.n_splits > 1) {
        gpu->sums.out = out;
        gpu->sums.n_splits = m.n_splits;
    }
}

// --- matmul -------------------------------------------------------------------------------------------------------------------

enum {
    MATMUL_TILE = 64,
    MATMUL_GROUPS = 768,     // workgroups that keep a large device busy: fewer share out their columns
    MATMUL_LEAST_UNITS = 12, // columns worth a workgroup of their own, in units
    MATMUL_MOST_SPLITS = 8,
};

struct matmul_params {
    uint32_t w0[4];
    uint32_t n_rows, n_batch, n_in, n_units, x_cols, out_cols, out_first, bias_at, other_cols, other_first;
    float cap, in_min, in_max, out_min, out_max;
    uint32_t split_units;
};

static struct gpu_pipeline *matmul_kernel(struct webgpu *gpu, const struct layout *layout, uint32_t e, bool odd, bool splits)
{
    uint64_t key =
        KERNEL_MATMUL | (uint64_t)layout->index << 8 | (uint64_t)e << 16 | (uint64_t)odd << 24 | (uint64_t)splits << 25;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[128];
    snprintf(definitions, sizeof definitions, "TYPE0=%s ODD=%d BIAS=%d CLIP=%d CAP=%d PER_LAYER=%d SPLIT=%d",
        layout->type->snippet, odd, !!(e & PRODUCT_BIAS) && !splits, !!(e & PRODUCT_CLIP), !!(e & PRODUCT_CAP),
        !!(e & PRODUCT_PER_LAYER) && !splits, splits);
    return webgpu_kernel(gpu, key, "matmul", definitions);
}

static void join_splits(struct webgpu *gpu, const struct matmul_params *m, uint32_t n_splits, uint32_t e,
    const struct gpu_binding *sums, const struct product *how, struct tensor out)
{
    char definitions[64];
    snprintf(definitions, sizeof definitions, "BIAS=%d CLIP=%d CAP=%d PER_LAYER=%d", !!(e & PRODUCT_BIAS), !!(e & PRODUCT_CLIP),
        !!(e & PRODUCT_CAP), !!(e & PRODUCT_PER_LAYER));
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_JOIN_SPLITS | (uint64_t)e << 8, "join_splits", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_rows, n_batch, n_splits, out_cols, out_first, bias_at, other_cols, other_first;
        float cap, out_min, out_max;
        uint32_t grid_x;
    } p = {m->n_rows, m->n_batch, n_splits, m->out_cols, m->out_first, m->bias_at, m->other_cols, m->other_first, m->cap,
        m->out_min, m->out_max, 0};
    uint32_t x, y;
    p.grid_x = webgpu_grid(gpu, (uint64_t)p.n_rows * p.n_batch, &x, &y);
    struct gpu_binding bindings[4] = {*sums};
    int n = 1;
    if (e & PRODUCT_BIAS)
        bindings[n++] = webgpu_vectors(gpu);
    if (e & PRODUCT_PER_LAYER)
        bindings[n++] = webgpu_tensor(how->per_layer);
    bindings[n++] = webgpu_tensor(out);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, x, y, 1);
}

// How many workgroups share the columns of one tile.
static uint32_t choose_splits(const struct matmul_params *p)
{
    uint32_t tiles = divide_up(p->n_rows, MATMUL_TILE) * divide_up(p->n_batch, MATMUL_TILE);
    uint32_t n = divide_up(MATMUL_GROUPS, tiles), most = p->n_units / MATMUL_LEAST_UNITS;
    n = n < most ? n : most;
    n = n < MATMUL_MOST_SPLITS ? n : MATMUL_MOST_SPLITS;
    return n > 1 ? n : 1;
}

static void plain_matmul(struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out)
{
    const struct layout *layout = &device_of(linear)->layout;
    uint32_t e = epilogue_flags(linear, how);
    struct matmul_params p = {
        .n_rows = part->n_rows,
        .n_batch = (uint32_t)in.n_rows,
        .n_in = (uint32_t)in.n_cols,
        .n_units = layout->n_units,
        .x_cols = (uint32_t)in.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .out_first = how->out_first + part->first_row,
        .bias_at = webgpu_vector_at(&linear->bias) + part->first_row,
        .other_cols = (uint32_t)how->per_layer.n_cols,
        .other_first = how->per_layer_first + part->first_row,
        .cap = how->cap,
        .in_min = linear->in_min,
        .in_max = linear->in_max,
        .out_min = linear->out_min,
        .out_max = linear->out_max,
    };
    uint32_t n_splits = choose_splits(&p);
    p.split_units = divide_up(p.n_units, n_splits);
    n_splits = divide_up(p.n_units, p.split_units);
    set_weight(p.w0, layout);
    struct gpu_pipeline *kernel = matmul_kernel(gpu, layout, e, in.n_cols % 4 != 0, n_splits > 1);
    struct gpu_binding sums = {0};
    if (n_splits > 1)
        sums = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)n_splits * p.n_rows * p.n_batch * 4);
    if (kernel == NULL || (n_splits > 1 && sums.buffer == NULL))
        return;
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {webgpu_tensor(in)};
    int n = 1;
    if (e & PRODUCT_BIAS && n_splits == 1)
        bindings[n++] = webgpu_vectors(gpu);
    if (e & PRODUCT_PER_LAYER && n_splits == 1)
        bindings[n++] = webgpu_tensor(how->per_layer);
    bindings[n++] = n_splits > 1 ? sums : webgpu_tensor(out);
    bindings[n++] = bind_part(part);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(part->n_rows, MATMUL_TILE),
        divide_up((uint32_t)in.n_rows, MATMUL_TILE), n_splits);
    if (n_splits > 1)
        join_splits(gpu, &p, n_splits, e, &sums, how, out);
}

// out[:, first_col ..] += scale * B (A in), for every adapter.
static void add_adapters(struct webgpu *gpu, struct tensor in, const struct linear *linear, uint32_t first_col, struct tensor out)
{
    for (const struct lora_pair *pair = linear->adapters; pair != NULL; pair = pair->next) {
        struct gpu_pipeline *first = webgpu_kernel(gpu, KERNEL_LORA, "lora", "FIRST=1");
        struct gpu_pipeline *second = webgpu_kernel(gpu, KERNEL_LORA | 1 << 8, "lora", "FIRST=0");
        struct tensor middle = webgpu_scratch_tensor(gpu, SCRATCH_ADAPTER, in.n_rows, pair->a.n_rows);
        if (first == NULL || second == NULL || middle.buffer == NULL)
            return;
        struct {
            uint32_t n_in, rank, n_out, out_cols, first_col;
            float scale;
        } p = {(uint32_t)in.n_cols, (uint32_t)pair->a.n_rows, (uint32_t)pair->b.n_rows, (uint32_t)out.n_cols, first_col,
            pair->scale};
        struct gpu_binding a[] = {webgpu_tensor(in), webgpu_tensor(pair->a), webgpu_tensor(middle)};
        gpu_dispatch(gpu->gpu, first, a, &p, sizeof p, p.rank, (uint32_t)in.n_rows, 1);
        struct gpu_binding b[] = {webgpu_tensor(middle), webgpu_tensor(pair->b), webgpu_tensor(out)};
        gpu_dispatch(gpu->gpu, second, b, &p, sizeof p, divide_up(p.n_out, 64), (uint32_t)in.n_rows, 1);
    }
}

void webgpu_join_all(struct webgpu *gpu)
{
    webgpu_join_pieces(gpu);
    struct tensor out = gpu->sums.out;
    if (out.buffer == NULL)
        return;
    gpu->sums.out.buffer = NULL;
    struct matmul_params m = {.n_rows = (uint32_t)out.n_cols, .n_batch = 1, .out_cols = (uint32_t)out.n_cols};
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)gpu->sums.n_splits * m.n_rows * 4);
    join_splits(gpu, &m, gpu->sums.n_splits, 0, &sums, NULL, out);
}

void webgpu_product(
    struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how, struct tensor out)
{
    const struct device_weight *w = device_of(linear);
    bool joins = linear->adapters == NULL && w->n_parts == 1 && gpu->sums.out.buffer == NULL && webgpu_takes_pieces(gpu, in);
    if (!joins)
        webgpu_join_all(gpu);
    for (int i = 0; i < w->n_parts; i++) {
        if (in.n_rows <= MATVEC_MAX_ROWS)
            plain_matvec(gpu, in, joins, linear, how, &w->parts[i], out);
        else
            plain_matmul(gpu, in, linear, how, &w->parts[i], out);
    }
    gpu->pieces.out.buffer = NULL;
    add_adapters(gpu, in, linear, how->out_first, out);
}

void webgpu_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out)
{
    struct product plain = {0};
    webgpu_product(webgpu_of(ops), in, linear, &plain, out);
}

// --- products fused with the stream -------------------------------------------------------------------------------------------

// May one dispatch settle, norm and multiply? Each workgroup then keeps the whole row in its memory.
static bool can_fuse(const struct webgpu *gpu, const struct stream *stream, const struct linear *const *parts, int n_parts)
{
    int32_t d = stream->x.n_cols;
    uint64_t bytes = ((uint64_t)d + 64 * 32) * 4 * 17 / 16 + 16 + 256 * 2 * 4 + 256 * 4;
    bool fuses = stream->x.n_rows == 1 && d % 32 == 0 && bytes <= gpu_limits(gpu->gpu)->max_workgroup_bytes && n_parts <= 3 &&
                 (stream->spare.buffer != NULL || stream->term.buffer == NULL);
    for (int k = 0; k < n_parts; k++)
        fuses = fuses && device_of(parts[k])->n_parts == 1 && !weight_exists(&parts[k]->bias) && !parts[k]->clipped &&
                parts[k]->adapters == NULL;
    return fuses;
}

struct fusion {
    const struct weight *norm;
    const struct linear *const *parts;
    int n_parts;
    uint32_t flags; // VEC_GATED, VEC_PER_LAYER, activation
    struct tensor per_layer;
    uint32_t per_layer_first;
};

static uint32_t fused_flags(const struct stream *stream, const struct fusion *f)
{
    uint32_t flags = f->flags | VEC_FUSED | (weight_exists(f->norm) ? VEC_NORM : 0);
    if (stream->term.buffer == NULL)
        return flags;
    return flags | VEC_TERM | (weight_exists(stream->term_norm) ? VEC_TERM_NORM : 0) |
           (weight_exists(stream->scale) ? VEC_SCALE : 0);
}

static int fused_bindings(struct webgpu *gpu, const struct stream *stream, const struct fusion *f, uint32_t flags,
    struct tensor out, struct gpu_binding *bindings)
{
    int n = 0;
    bindings[n++] = webgpu_tensor(stream->x);
    if (flags & VEC_TERM) {
        bindings[n++] = webgpu_tensor(stream->term);
        bindings[n++] = webgpu_tensor(stream->spare);
    }
    if (flags & (VEC_TERM_NORM | VEC_SCALE | VEC_NORM))
        bindings[n++] = webgpu_vectors(gpu);
    if (flags & VEC_PER_LAYER)
        bindings[n++] = webgpu_tensor(f->per_layer);
    bindings[n++] = webgpu_tensor(out);
    for (int k = 0; k < f->n_parts; k++)
        bindings[n++] = bind_part(&device_of(f->parts[k])->parts[0]);
    return n;
}

// Is the stream's term still in the sums that a split product left?
static bool takes_sums(const struct webgpu *gpu, const struct stream *stream)
{
    const struct tensor *out = &gpu->sums.out;
    return out->buffer != NULL && out->buffer == stream->term.buffer && out->offset == stream->term.offset;
}

// May one dispatch do it all? Then only what it does not take itself is joined before.
static bool fuses(struct webgpu *gpu, const struct stream *stream, const struct linear *const *parts, int n_parts)
{
    bool fuses = can_fuse(gpu, stream, parts, n_parts);
    if (fuses && takes_sums(gpu, stream))
        webgpu_join_pieces(gpu);
    else
        webgpu_join_all(gpu);
    return fuses;
}

static void fused_matvec(struct webgpu *gpu, struct stream *stream, const struct fusion *f, struct tensor out)
{
    uint32_t flags = fused_flags(stream, f);
    struct matvec m = {.flags = flags, .n_parts = f->n_parts, .n_units = (uint32_t)stream->x.n_cols / 32, .n_splits = 1};
    struct matvec_params p = {
        .n_in = (uint32_t)stream->x.n_cols,
        .n_units = m.n_units,
        .x_cols = (uint32_t)stream->x.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .term_norm_at = webgpu_vector_at(stream->term_norm) / 4,
        .norm_at = webgpu_vector_at(f->norm) / 4,
        .scale_at = webgpu_vector_at(stream->scale) / 4,
        .other_cols = (uint32_t)f->per_layer.n_cols,
        .other_first = f->per_layer_first,
        .eps = stream->eps,
        .term_splits = 1,
    };
    uint32_t n_rows = 0;
    for (int k = 0; k < f->n_parts; k++) {
        n_rows += (uint32_t)f->parts[k]->weight.n_out;
        m.layouts[k] = &device_of(f->parts[k])->layout;
        set_weight(p.w[k], m.layouts[k]);
        p.n_rows[k] = (uint32_t)f->parts[k]->weight.n_out;
    }
    choose_shape(gpu, &m, n_rows);
    struct gpu_pipeline *kernel = matvec_kernel(gpu, &m);
    if (kernel == NULL)
        return;
    uint32_t n_groups = 0;
    for (int k = 0; k < (flags & VEC_GATED ? 1 : f->n_parts); k++)
        n_groups += divide_up(p.n_rows[k], rows_of_group(&m));
    struct gpu_binding bindings[GPU_MAX_BINDINGS];
    fused_bindings(gpu, stream, f, flags, out, bindings);
    if (takes_sums(gpu, stream)) {
        p.term_splits = gpu->sums.n_splits;
        bindings[1] = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)p.term_splits * p.n_in * 4);
        gpu->sums.out.buffer = NULL;
    }
    dispatch_matvec(gpu, kernel, bindings, &m, &p, n_groups, 1);
    if (flags & VEC_TERM) {
        struct tensor settled = stream->spare;
        stream->spare = stream->x;
        stream->x = settled;
    }
    stream->term = (struct tensor){0};
    stream->term_norm = stream->scale = NULL;
}

void webgpu_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    if (fuses(gpu, stream, parts, n_parts)) {
        struct fusion f = {.norm = norm, .parts = parts, .n_parts = n_parts};
        fused_matvec(gpu, stream, &f, out);
        return;
    }
    struct tensor m = webgpu_normed(gpu, stream, norm);
    struct product how = {0};
    for (int k = 0; k < n_parts && m.buffer != NULL; k++) {
        webgpu_product(gpu, m, parts[k], &how, out);
        how.out_first += (uint32_t)parts[k]->weight.n_out;
    }
}

void webgpu_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    const struct linear *parts[2] = {gate, up};
    if (fuses(gpu, stream, parts, 2)) {
        struct fusion f = {.norm = norm, .parts = parts, .n_parts = 2, .flags = VEC_GATED | activation_flags(activation)};
        fused_matvec(gpu, stream, &f, out);
        return;
    }
    struct tensor m = webgpu_normed(gpu, stream, norm);
    struct tensor both = webgpu_scratch_tensor(gpu, SCRATCH_GATED, out.n_rows, 2 * out.n_cols);
    uint32_t flags = activation_flags(activation);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_GATED | (uint64_t)flags << 8, "gated",
        flags == VEC_SILU    ? "SILU=1"
        : flags == VEC_QUICK ? "QUICK=1"
                             : "");
    if (m.buffer == NULL || both.buffer == NULL || kernel == NULL)
        return;
    struct product how = {0};
    webgpu_product(gpu, m, gate, &how, both);
    how.out_first = (uint32_t)out.n_cols;
    webgpu_product(gpu, m, up, &how, both);
    struct {
        uint32_t n_cols, n_rows, grid_x;
    } p = {(uint32_t)out.n_cols, (uint32_t)out.n_rows, 0};
    uint32_t x, y;
    p.grid_x = webgpu_grid(gpu, (uint64_t)p.n_cols * p.n_rows, &x, &y);
    struct gpu_binding bindings[] = {webgpu_tensor(both), webgpu_tensor(out)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, x, y, 1);
}

void webgpu_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    uint32_t first = (uint32_t)(layer * out.n_cols);
    if (fuses(gpu, stream, &gate, 1)) {
        struct fusion f = {
            .parts = &gate, .n_parts = 1, .flags = VEC_PER_LAYER, .per_layer = per_layer, .per_layer_first = first};
        fused_matvec(gpu, stream, &f, out);
        return;
    }
    struct tensor m = webgpu_normed(gpu, stream, NULL);
    struct product how = {.flags = PRODUCT_PER_LAYER, .per_layer = per_layer, .per_layer_first = first};
    webgpu_product(gpu, m, gate, &how, out);
}

void webgpu_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits)
{
    struct webgpu *gpu = webgpu_of(ops);
    struct product how = {.flags = cap > 0 ? PRODUCT_CAP : 0, .cap = cap};
    webgpu_product(gpu, in, table, &how, logits);
    enum { IDS = 60 };
    for (int first = 0; first < n_suppressed; first += IDS) {
        struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_SUPPRESS, "suppress", "");
        if (kernel == NULL)
            return;
        struct {
            uint32_t ids[IDS], n_ids, n_cols;
        } p = {.n_ids = (uint32_t)(n_suppressed - first < IDS ? n_suppressed - first : IDS), .n_cols = (uint32_t)logits.n_cols};
        for (uint32_t i = 0; i < p.n_ids; i++)
            p.ids[i] = (uint32_t)suppressed[first + (int)i];
        struct gpu_binding binding = webgpu_tensor(logits);
        gpu_dispatch(gpu->gpu, kernel, &binding, &p, sizeof p, (uint32_t)logits.n_rows, 1, 1);
    }
}
