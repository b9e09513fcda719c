// experts.c: the routed branch of a mixture-of-experts layer.

#include <math.h>
#include <stdio.h>

#include "webgpu/products.h"

struct expert_params {
    uint32_t w0[4], w1[4];
    uint32_t n_in, n_units, n_out, n_used, first_expert, n_experts, rows, adds;
};

// What one product with the chosen experts reads and writes.
struct expert_product {
    const struct weight *first, *second; // second: NULL when there is one weight only
    bool is_down;
    uint32_t n_in, n_out; // of one expert's result
    struct gpu_binding in, out;
};

static struct gpu_pipeline *expert_kernel(struct webgpu *gpu, const struct expert_product *e)
{
    const struct device_weight *a = e->first->device, *b = e->second != NULL ? e->second->device : NULL;
    uint64_t key = KERNEL_EXPERTS | (uint64_t)e->is_down << 8 | (uint64_t)a->layout.index << 16;
    key |= (uint64_t)(b != NULL ? b->layout.index : 0) << 24;
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[96];
    snprintf(definitions, sizeof definitions, "DOWN=%d TWO=%d PARTS=%d TYPE0=%s TYPE1=%s", e->is_down, b != NULL,
        b != NULL ? 2 : 1, a->layout.type->snippet, b != NULL ? b->layout.type->snippet : "-");
    return webgpu_kernel(gpu, key, "experts", definitions);
}

// Do the parts of both weights hold the same experts? A dispatch sees one part of each.
static bool are_cut_alike(const struct device_weight *a, const struct device_weight *b)
{
    bool alike = a->n_parts == b->n_parts;
    for (int i = 0; alike && i < a->n_parts; i++)
        alike = a->parts[i].first_row == b->parts[i].first_row && a->parts[i].n_rows == b->parts[i].n_rows;
    return alike;
}

static void expert_products(struct webgpu *gpu, const struct experts *experts, const struct expert_product *e,
    const struct gpu_binding *chosen, const struct gpu_binding *shares, uint32_t n_batch)
{
    const struct device_weight *a = e->first->device, *b = e->second != NULL ? e->second->device : NULL;
    if (b != NULL && !are_cut_alike(a, b)) {
        struct carat_error err = {0};
        fail(&err, CARAT_UNSUPPORTED,
            "the experts' gate '%s' and up '%s' are too large for one binding each and differ in type; use the CPU",
            e->first->name, e->second->name);
        webgpu_failed(gpu, &err);
        return;
    }
    struct gpu_pipeline *kernel = expert_kernel(gpu, e);
    for (int i = 0; kernel != NULL && i < a->n_parts; i++) {
        uint32_t rows = (uint32_t)e->first->n_out;
        struct expert_params p = {
            .n_in = e->n_in,
            .n_units = a->layout.n_units,
            .n_out = e->n_out,
            .n_used = (uint32_t)experts->n_used,
            .first_expert = a->parts[i].first_row / rows,
            .n_experts = a->parts[i].n_rows / rows,
            .rows = rows,
            .adds = i > 0,
        };
        set_weight(p.w0, &a->layout);
        struct gpu_binding bindings[6] = {e->in, *chosen, *shares, e->out, bind_part(&a->parts[i])};
        if (b != NULL) {
            set_weight(p.w1, &b->layout);
            bindings[5] = bind_part(&b->parts[i]);
        }
        gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(e->n_out, 8), n_batch, e->is_down ? 1 : p.n_used);
    }
}

static bool route(
    struct webgpu *gpu, struct tensor h, const struct experts *e, struct gpu_binding *chosen, struct gpu_binding *shares)
{
    struct tensor input = webgpu_scratch_tensor(gpu, SCRATCH_NORMED, h.n_rows, h.n_cols);
    struct tensor products = webgpu_scratch_tensor(gpu, SCRATCH_PROJECTED, h.n_rows, e->n_experts);
    uint64_t n_chosen = (uint64_t)h.n_rows * (uint64_t)e->n_used;
    *chosen = webgpu_scratch(gpu, SCRATCH_CHOSEN, n_chosen * 4);
    *shares = webgpu_scratch(gpu, SCRATCH_SHARES, n_chosen * 4);
    bool scales = weight_exists(e->down_scale);
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, KERNEL_ROUTE | (uint64_t)scales << 8, "route", scales ? "SCALES=1" : "SCALES=0");
    if (input.buffer == NULL || products.buffer == NULL || chosen->buffer == NULL || shares->buffer == NULL || kernel == NULL)
        return false;
    webgpu_rms(gpu, h, e->router_scale, e->eps, input);
    struct linear router = {.weight = *e->router};
    struct product plain = {0};
    webgpu_product(gpu, input, &router, &plain, products);
    struct {
        uint32_t n_experts, n_used, scale_at;
        float to_unit;
    } p = {(uint32_t)e->n_experts, (uint32_t)e->n_used, webgpu_vector_at(e->down_scale), (float)(1.0 / sqrt((double)h.n_cols))};
    struct gpu_binding bindings[] = {webgpu_tensor(products), *chosen, *shares, webgpu_vectors(gpu)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)h.n_rows, 1, 1);
    return true;
}

void webgpu_experts(struct ops *ops, struct tensor h, const struct experts *e, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    if (e->n_experts > 256) {
        struct carat_error err = {0};
        fail(&err, CARAT_UNSUPPORTED, "the GPU routes among at most 256 experts, the model has %d; use the CPU", e->n_experts);
        webgpu_failed(gpu, &err);
        return;
    }
    struct gpu_binding chosen, shares;
    if (!route(gpu, h, e, &chosen, &shares))
        return;
    struct tensor input = webgpu_scratch_tensor(gpu, SCRATCH_NORMED, h.n_rows, h.n_cols);
    struct tensor gated = webgpu_scratch_tensor(gpu, SCRATCH_EXPERTS, h.n_rows * e->n_used, e->n_ff);
    if (gated.buffer == NULL)
        return;
    webgpu_rms(gpu, h, e->pre_norm, e->eps, input);
    bool joined = weight_exists(e->gate_up);
    struct expert_product up = {
        .first = joined ? e->gate_up : e->gate,
        .second = joined ? NULL : e->up,
        .n_in = (uint32_t)h.n_cols,
        .n_out = (uint32_t)e->n_ff,
        .in = webgpu_tensor(input),
        .out = webgpu_tensor(gated),
    };
    expert_products(gpu, e, &up, &chosen, &shares, (uint32_t)h.n_rows);
    struct expert_product down = {
        .first = e->down,
        .is_down = true,
        .n_in = (uint32_t)e->n_ff,
        .n_out = (uint32_t)h.n_cols,
        .in = webgpu_tensor(gated),
        .out = webgpu_tensor(out),
    };
    expert_products(gpu, e, &down, &chosen, &shares, (uint32_t)h.n_rows);
}
