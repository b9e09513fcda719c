// project.c: the operations that multiply with weights. Few rows of activations go through matvec.c, which can settle and norm
// the stream by itself; many go through matmul.c on a normed copy.

#include <stdio.h>

#include "webgpu/products.h"

static uint32_t activation_flags(enum activation activation)
{
    return activation == ACTIVATION_SILU ? VEC_SILU : activation == ACTIVATION_GELU_QUICK ? VEC_QUICK : 0;
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
    webgpu_join_end(gpu);
    webgpu_join_pieces(gpu);
    struct tensor out = gpu->sums.out;
    if (out.buffer == NULL)
        return;
    gpu->sums.out.buffer = NULL;
    add_sums(gpu, gpu->sums.n_splits, out);
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
    struct product plain = {.flags = PRODUCT_MAY_WAIT};
    webgpu_product(webgpu_of(ops), in, linear, &plain, out);
}

// --- products fused with the stream -------------------------------------------------------------------------------------------

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

void webgpu_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    if (webgpu_enter_layer(gpu, stream, norm, parts, n_parts, out))
        return;
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
    // One kernel arranges the input for both, as their type wants it.
    bool same = device_of(gate)->layout.index == device_of(up)->layout.index;
    if (same && fuses(gpu, stream, parts, 2)) {
        struct fusion f = {.norm = norm, .parts = parts, .n_parts = 2, .flags = VEC_GATED | activation_flags(activation)};
        fused_matvec(gpu, stream, &f, out);
        return;
    }
    struct tensor m = webgpu_normed(gpu, stream, norm);
    if (out.n_rows > MATVEC_MAX_ROWS && up->adapters == NULL && m.buffer != NULL) {
        webgpu_product(gpu, m, gate, &(struct product){0}, out);
        webgpu_product(gpu, m, up, &(struct product){.flags = PRODUCT_GATES, .activation = activation}, out);
        return;
    }
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
