// matmul.c: products with many rows of activations (matmul.wgsl).

#include <stdio.h>

#include "webgpu/products.h"

enum {
    MATMUL_GROUPS = 384,    // workgroups that keep a large device busy: fewer share out their columns
    MATMUL_LEAST_UNITS = 4, // columns worth a workgroup of their own, in units
    MATMUL_MOST_SPLITS = 8,
};

// What a workgroup makes: tm * lm rows of activations by tn * ln rows of the weight, by lm * ln invocations. The wide tile brings
// a weight half as often.
struct tile {
    uint32_t tm, tn, lm, ln;
};

static const struct tile wide = {8, 8, 16, 8}, narrow = {8, 8, 8, 16};

struct matmul_params {
    uint32_t w0[4];
    uint32_t n_rows, n_batch, n_in, n_units, x_cols, out_cols, out_first, bias_at, other_cols, other_first;
    float cap, in_min, in_max, out_min, out_max;
    uint32_t split_units;
};

// A product on its way: how it is cut, and what follows the sums.
struct matmul {
    struct matmul_params p;
    uint32_t epilogue; // PRODUCT_...
    enum activation activation;
    const struct tile *tile;
    uint32_t n_splits;
    struct gpu_binding per_layer, out, sums;
};

static const char *activation_definition(enum activation activation)
{
    return activation == ACTIVATION_SILU ? "SILU=1" : activation == ACTIVATION_GELU_QUICK ? "QUICK=1" : "";
}

// The definitions of what follows the sums, for the kernel that finishes them.
static void write_epilogue(char *to, size_t capacity, const struct matmul *m)
{
    uint32_t e = m->epilogue;
    snprintf(to, capacity, "BIAS=%d CAP=%d PER_LAYER=%d ACTIVATES=%d GATES=%d %s", !!(e & PRODUCT_BIAS), !!(e & PRODUCT_CAP),
        !!(e & PRODUCT_PER_LAYER), !!(e & PRODUCT_ACTIVATES), !!(e & PRODUCT_GATES), activation_definition(m->activation));
}

static struct gpu_pipeline *matmul_kernel(struct webgpu *gpu, const struct matmul *m, const struct layout *layout)
{
    bool splits = m->n_splits > 1, odd = m->p.x_cols % 4 != 0, ragged = layout->n_units * 32 != m->p.n_in;
    uint64_t key = KERNEL_MATMUL | (uint64_t)layout->index << 8 | (uint64_t)m->epilogue << 16 | (uint64_t)m->activation << 24 |
                   (uint64_t)odd << 28 | (uint64_t)ragged << 29 | (uint64_t)splits << 30 | (uint64_t)(m->tile == &narrow) << 31;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    const struct tile *t = m->tile;
    enum gguf_type type = layout->type->type;
    bool turns = t->lm == 2 * t->tn, bf16 = type == GGUF_TYPE_BF16; // twice as many invocations as rows of the weight
    char definitions[320], epilogue[128] = "";
    if (!splits)
        write_epilogue(epilogue, sizeof epilogue, m);
    snprintf(definitions, sizeof definitions,
        "TYPE0=%s HALVES=%d BF16=%d ODD=%d RAGGED=%d CLIP=%d SPLIT=%d TM=%u TN=%u LM=%u LN=%u XV=%u WORDS=%u TURNS=%d %s",
        layout->type->snippet, bf16 || type == GGUF_TYPE_F16, bf16, odd, ragged, !!(m->epilogue & PRODUCT_CLIP), splits, t->tm,
        t->tn, t->lm, t->ln, t->tm * 4 / t->ln, 2 * t->tn / t->lm, turns, epilogue);
    return webgpu_kernel(gpu, key, "matmul", definitions);
}

// Adds the sums and finishes them.
static void join_splits(struct webgpu *gpu, const struct matmul *m)
{
    char definitions[160], epilogue[128];
    write_epilogue(epilogue, sizeof epilogue, m);
    snprintf(definitions, sizeof definitions, "CLIP=%d %s", !!(m->epilogue & PRODUCT_CLIP), epilogue);
    struct gpu_pipeline *kernel = webgpu_kernel(
        gpu, KERNEL_JOIN_SPLITS | (uint64_t)m->epilogue << 8 | (uint64_t)m->activation << 16, "join_splits", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_rows, n_batch, n_splits, out_cols, out_first, bias_at, other_cols, other_first;
        float cap, out_min, out_max;
        uint32_t grid_x;
    } p = {m->p.n_rows, m->p.n_batch, m->n_splits, m->p.out_cols, m->p.out_first, m->p.bias_at, m->p.other_cols, m->p.other_first,
        m->p.cap, m->p.out_min, m->p.out_max, 0};
    uint32_t x, y;
    p.grid_x = webgpu_grid(gpu, (uint64_t)p.n_rows * p.n_batch, &x, &y);
    struct gpu_binding bindings[4] = {m->sums};
    int n = 1;
    if (m->epilogue & PRODUCT_BIAS)
        bindings[n++] = webgpu_vectors(gpu);
    if (m->epilogue & PRODUCT_PER_LAYER)
        bindings[n++] = m->per_layer;
    bindings[n++] = m->out;
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, x, y, 1);
}

static uint32_t tile_rows(const struct tile *t)
{
    return t->tm * t->lm;
}

static uint32_t tile_outs(const struct tile *t)
{
    return t->tn * t->ln;
}

// Chooses the tile, and how many workgroups share the columns of one.
static void cut(struct matmul *m)
{
    struct matmul_params *p = &m->p;
    const struct tile *t = p->n_batch <= tile_rows(&narrow) ? &narrow : &wide;
    uint32_t n_tiles = divide_up(p->n_rows, tile_outs(t)) * divide_up(p->n_batch, tile_rows(t));
    uint32_t n = MATMUL_GROUPS / n_tiles, most = p->n_units / MATMUL_LEAST_UNITS;
    n = n < most ? n : most;
    n = n < MATMUL_MOST_SPLITS ? n : MATMUL_MOST_SPLITS;
    p->split_units = divide_up(p->n_units, n > 1 ? n : 1);
    m->n_splits = divide_up(p->n_units, p->split_units);
    m->tile = t;
}

// Dispatches the product itself; false after a failure.
static bool multiply(
    struct webgpu *gpu, struct matmul *m, struct tensor in, const struct layout *layout, struct gpu_binding weight)
{
    bool splits = m->n_splits > 1;
    struct gpu_pipeline *kernel = matmul_kernel(gpu, m, layout);
    if (splits)
        m->sums = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)m->n_splits * m->p.n_rows * m->p.n_batch * 4);
    if (kernel == NULL || (splits && m->sums.buffer == NULL))
        return false;
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {webgpu_tensor(in)};
    int n = 1;
    if (m->epilogue & PRODUCT_BIAS && !splits)
        bindings[n++] = webgpu_vectors(gpu);
    if (m->epilogue & PRODUCT_PER_LAYER && !splits)
        bindings[n++] = m->per_layer;
    bindings[n++] = splits ? m->sums : m->out;
    bindings[n++] = weight;
    const struct tile *t = m->tile;
    gpu_dispatch(gpu->gpu, kernel, bindings, &m->p, sizeof m->p, divide_up(m->p.n_rows, tile_outs(t)),
        divide_up(m->p.n_batch, tile_rows(t)), m->n_splits);
    return true;
}

void plain_matmul(struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out)
{
    const struct layout *layout = &device_of(linear)->layout;
    struct matmul m = {
        .p =
            {
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
            },
        .epilogue = epilogue_flags(linear, how),
        .activation = how->activation,
        .per_layer = webgpu_tensor(how->per_layer),
        .out = webgpu_tensor(out),
    };
    set_weight(m.p.w0, layout);
    cut(&m);
    if (!multiply(gpu, &m, in, layout, bind_part(part)) || m.n_splits == 1)
        return;
    if (how->flags & PRODUCT_MAY_WAIT && m.epilogue == 0 && linear->adapters == NULL && part->n_rows == m.p.out_cols) {
        gpu->sums.out = out;
        gpu->sums.n_splits = m.n_splits;
        return;
    }
    join_splits(gpu, &m);
}

void add_sums(struct webgpu *gpu, uint32_t n_splits, struct tensor out)
{
    struct matmul m = {.n_splits = n_splits, .out = webgpu_tensor(out)};
    m.p.n_rows = m.p.out_cols = (uint32_t)out.n_cols;
    m.p.n_batch = (uint32_t)out.n_rows;
    m.sums = webgpu_sums(gpu, n_splits, out);
    if (m.sums.buffer != NULL)
        join_splits(gpu, &m);
}
