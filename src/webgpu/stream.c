// stream.c: embeddings, the residual stream and its norms, per-layer inputs.

#include <math.h>
#include <stdio.h>

#include "webgpu/products.h"

// --- embeddings ---------------------------------------------------------------------------------------------------------------

void webgpu_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    const struct device_weight *w = table->device;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, KERNEL_EMBED | (uint64_t)w->layout.index << 8);
    if (kernel == NULL) {
        char definitions[64];
        snprintf(definitions, sizeof definitions, "TYPE0=%s", w->layout.type->snippet);
        kernel = webgpu_kernel(gpu, KERNEL_EMBED | (uint64_t)w->layout.index << 8, "embed", definitions);
    }
    if (kernel == NULL)
        return;
    for (int i = 0; i < w->n_parts; i++) {
        const struct weight_part *part = &w->parts[i];
        struct {
            uint32_t w0[4], n_cols, n_units, first_row, n_rows;
            float scale;
        } p = {
            {w->layout.row_vectors, w->layout.starts[1], w->layout.starts[2], w->layout.starts[3]},
            (uint32_t)out.n_cols,
            w->layout.n_units,
            part->first_row,
            part->n_rows,
            scale,
        };
        struct gpu_binding bindings[] = {webgpu_tensor(ids->device), webgpu_tensor(out), bind_part(part)};
        bindings[0].n_bytes = (uint64_t)out.n_rows * 4;
        gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(w->layout.n_units, 64), (uint32_t)out.n_rows, 1);
    }
}

void webgpu_copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    bool within = src.buffer == dst.buffer && src.offset == dst.offset;
    struct gpu_pipeline *kernel =
        within ? webgpu_kernel(gpu, KERNEL_COPY_WITHIN, "copy_within", "") : webgpu_kernel(gpu, KERNEL_COPY, "copy_rows", "");
    if (kernel == NULL || n_rows <= 0)
        return;
    struct {
        uint32_t src, dst, n, grid_x;
    } p = {(uint32_t)(first_src * src.n_cols), (uint32_t)(first_dst * dst.n_cols), (uint32_t)(n_rows * src.n_cols), 0};
    uint32_t x, y;
    p.grid_x = webgpu_grid(gpu, p.n, &x, &y);
    struct gpu_binding bindings[] = {webgpu_tensor(src), webgpu_tensor(dst)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, x, y, 1);
}

// --- the stream ---------------------------------------------------------------------------------------------------------------

enum { SETTLE_TERM = 1, SETTLE_TERM_NORM = 2, SETTLE_SCALE = 4, SETTLE_OUT = 8, SETTLE_NORM = 16 };

static void dispatch_settle(
    struct webgpu *gpu, const struct stream *stream, uint32_t flags, const struct weight *norm, struct tensor out)
{
    bool sums = takes_sums(gpu, stream);
    uint32_t n_cols = (uint32_t)stream->x.n_cols, width = n_cols <= 512 ? 64 : 256, n_own = divide_up(n_cols, width);
    uint64_t key =
        KERNEL_SETTLE | (uint64_t)flags << 8 | (uint64_t)sums << 16 | (uint64_t)(width == 64) << 17 | (uint64_t)n_own << 18;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel == NULL) {
        char definitions[96];
        snprintf(definitions, sizeof definitions, "WG=%u OWN=%u TERM=%d SUMS=%d TERM_NORM=%d SCALE=%d OUT=%d NORM=%d", width,
            n_own, !!(flags & SETTLE_TERM), sums, !!(flags & SETTLE_TERM_NORM), !!(flags & SETTLE_SCALE), !!(flags & SETTLE_OUT),
            !!(flags & SETTLE_NORM));
        kernel = webgpu_kernel(gpu, key, "settle", definitions);
    }
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_cols, term_norm_at, norm_at, scale_at;
        float eps;
        uint32_t n_rows, n_sums;
    } p = {n_cols, webgpu_vector_at(stream->term_norm), webgpu_vector_at(norm), webgpu_vector_at(stream->scale), stream->eps,
        (uint32_t)stream->x.n_rows, gpu->sums.n_splits};
    struct gpu_binding bindings[4] = {webgpu_tensor(stream->x)};
    int n = 1;
    if (flags & SETTLE_TERM)
        bindings[n++] = sums ? webgpu_sums(gpu, gpu->sums.n_splits, stream->term) : webgpu_tensor(stream->term);
    if (sums)
        gpu->sums.out.buffer = NULL;
    if (flags & SETTLE_OUT)
        bindings[n++] = webgpu_tensor(out);
    bindings[n++] = webgpu_vectors(gpu);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)stream->x.n_rows, 1, 1);
}

static uint32_t pending_flags(const struct stream *stream)
{
    if (stream->term.buffer == NULL)
        return 0;
    return SETTLE_TERM | (weight_exists(stream->term_norm) ? SETTLE_TERM_NORM : 0) |
           (weight_exists(stream->scale) ? SETTLE_SCALE : 0);
}

static void mark_settled(struct stream *stream)
{
    stream->term = (struct tensor){0};
    stream->term_norm = NULL;
    stream->scale = NULL;
}

// Vectors must exist as a buffer even for a model without any.
static bool ready(struct webgpu *gpu)
{
    if (gpu->vectors.buffer != NULL)
        return true;
    struct carat_error err = {0};
    gpu->vectors.capacity = 64;
    gpu->vectors.buffer = gpu_buffer_new(gpu->gpu, 256, &err);
    if (gpu->vectors.buffer == NULL)
        webgpu_failed(gpu, &err);
    return gpu->vectors.buffer != NULL;
}

// Joins what is pending, but for sums that are the stream's term: `settle` adds them.
static void join_others(struct webgpu *gpu, const struct stream *stream)
{
    if (takes_sums(gpu, stream))
        webgpu_join_pieces(gpu);
    else
        webgpu_join_all(gpu);
}

void webgpu_settle(struct ops *ops, struct stream *stream)
{
    struct webgpu *gpu = webgpu_of(ops);
    uint32_t flags = pending_flags(stream);
    join_others(gpu, stream);
    if (flags != 0 && ready(gpu))
        dispatch_settle(gpu, stream, flags, NULL, (struct tensor){0});
    mark_settled(stream);
}

void webgpu_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    uint32_t flags = pending_flags(stream) | SETTLE_OUT | (weight_exists(norm) ? SETTLE_NORM : 0);
    join_others(gpu, stream);
    if (ready(gpu))
        dispatch_settle(gpu, stream, flags, norm, out);
    mark_settled(stream);
}

struct tensor webgpu_normed(struct webgpu *gpu, struct stream *stream, const struct weight *norm)
{
    if (!weight_exists(norm)) {
        webgpu_settle(&gpu->ops, stream);
        return stream->x;
    }
    struct tensor m = webgpu_scratch_tensor(gpu, SCRATCH_NORMED, stream->x.n_rows, stream->x.n_cols);
    if (m.buffer != NULL)
        webgpu_norm(&gpu->ops, stream, norm, m);
    return m;
}

void webgpu_rms(struct webgpu *gpu, struct tensor in, const struct weight *norm, float eps, struct tensor out)
{
    struct stream stream = {.x = in, .eps = eps};
    webgpu_norm(&gpu->ops, &stream, norm, out);
}

void webgpu_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    if (!ready(gpu))
        return;
    bool into_a = out.buffer == a.buffer && out.offset == a.offset;
    bool into_b = out.buffer == b.buffer && out.offset == b.offset;
    uint64_t key = KERNEL_ADD_NORMS | (uint64_t)into_a << 8 | (uint64_t)into_b << 9;
    char definitions[64];
    snprintf(definitions, sizeof definitions, "APART=%d INTO_A=%d", !into_a && !into_b, into_a);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, key, "add_norms", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_cols, a_norm_at, b_norm_at;
        float eps;
    } p = {(uint32_t)a.n_cols, webgpu_vector_at(a_norm), webgpu_vector_at(b_norm), eps};
    struct gpu_binding bindings[4] = {webgpu_tensor(a), webgpu_tensor(b)};
    int n = 2;
    if (!into_a && !into_b)
        bindings[n++] = webgpu_tensor(out);
    bindings[n++] = webgpu_vectors(gpu);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)a.n_rows, 1, 1);
}

// --- per-layer inputs ---------------------------------------------------------------------------------------------------------

void webgpu_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    if (!ready(gpu))
        return;
    struct tensor projected = webgpu_scratch_tensor(gpu, SCRATCH_PROJECTED, rows.n_rows, rows.n_cols);
    bool apart = out.buffer != rows.buffer || out.offset != rows.offset;
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, KERNEL_PER_LAYER | (uint64_t)apart << 8, "per_layer", apart ? "APART=1" : "APART=0");
    if (kernel == NULL || projected.buffer == NULL)
        return;
    struct product plain = {0};
    webgpu_product(gpu, x, projection, &plain, projected);
    struct {
        uint32_t width, n_cols, norm_at;
        float to_unit, eps;
    } p = {(uint32_t)(rows.n_cols / n_layers), (uint32_t)rows.n_cols, webgpu_vector_at(norm),
        (float)(1.0 / sqrt((double)x.n_cols)), eps};
    struct gpu_binding bindings[4] = {webgpu_tensor(projected), webgpu_tensor(rows)};
    int n = 2;
    if (apart)
        bindings[n++] = webgpu_tensor(out);
    bindings[n++] = webgpu_vectors(gpu);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)n_layers, (uint32_t)rows.n_rows, 1);
}
