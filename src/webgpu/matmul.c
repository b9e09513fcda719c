// matmul.c: products with many rows of activations (matmul.wgsl).

#include <stdio.h>

#include "webgpu/products.h"

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

void plain_matmul(struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how,
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

void add_sums(struct webgpu *gpu, uint32_t n_splits, struct tensor out)
{
    struct matmul_params m = {.n_rows = (uint32_t)out.n_cols, .n_batch = 1, .out_cols = (uint32_t)out.n_cols};
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)n_splits * m.n_rows * 4);
    if (sums.buffer != NULL)
        join_splits(gpu, &m, n_splits, 0, &sums, NULL, out);
}
