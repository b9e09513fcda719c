// tower.c: the towers' operations on WebGPU.
//
// Products go through the text model's kernel for many rows, however few there are.

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "webgpu/products.h"
#include "webgpu/webgpu_tower.h"

// Keys of the pipeline table, beside those of enum kernel.
enum tower_kernel {
    TOWER_NORM = 40,
    TOWER_LAYER_NORM,
    TOWER_POSITIONS,
    TOWER_PREPARE,
    TOWER_ATTEND,
    TOWER_POOL,
    TOWER_SUBSAMPLE,
    TOWER_HEAR,
    TOWER_LIGHT_CONV,
};

enum { MAX_HEAD = 256 };

static struct webgpu *gpu_of(struct tower_ops *tower)
{
    return webgpu_of(tower->ops);
}

static void refuse(struct webgpu *gpu, const char *what)
{
    struct carat_error err = {0};
    fail(&err, CARAT_UNSUPPORTED, "the GPU's kernels of the towers do not take %s: use the backend cpu", what);
    webgpu_failed(gpu, &err);
}

// --- norms --------------------------------------------------------------------------------------------------------------------

static bool same_place(struct tensor a, struct tensor b)
{
    return a.buffer == b.buffer && a.offset == b.offset;
}

static void tower_norm(struct tower_ops *tower, struct tensor x, const struct residual *residual, const struct weight *norm,
    float eps, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    bool has_term = residual != NULL && residual->term.buffer != NULL, norms = out.buffer != NULL;
    bool apart = norms && !same_place(x, out);
    bool term_norm = has_term && weight_exists(residual->norm), scale = has_term && weight_exists(residual->scale);
    uint32_t flags = (uint32_t)(has_term | term_norm << 1 | scale << 2 | norms << 3 | apart << 4 | weight_exists(norm) << 5);
    char definitions[128];
    snprintf(definitions, sizeof definitions, "TERM=%d TERM_NORM=%d SCALE=%d NORMS=%d OUT=%d WEIGHT=%d", has_term, term_norm,
        scale, norms, apart, weight_exists(norm));
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_NORM | (uint64_t)flags << 8, "tower_norm", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_cols, term_norm_at, norm_at, scale_at;
        float factor, eps;
    } p = {(uint32_t)x.n_cols, term_norm ? webgpu_vector_at(residual->norm) : 0, webgpu_vector_at(norm),
        scale ? webgpu_vector_at(residual->scale) : 0, has_term ? residual->factor : 0, eps};
    struct gpu_binding bindings[4] = {webgpu_tensor(x)};
    int n = 1;
    if (has_term)
        bindings[n++] = webgpu_tensor(residual->term);
    if (apart)
        bindings[n++] = webgpu_tensor(out);
    bindings[n++] = webgpu_vectors(gpu);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)x.n_rows, 1, 1);
}

static void tower_layer_norm(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *bias,
    float eps, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    bool apart = !same_place(in, out), has_bias = weight_exists(bias);
    char definitions[32];
    snprintf(definitions, sizeof definitions, "OUT=%d BIAS=%d", apart, has_bias);
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, TOWER_LAYER_NORM | (uint64_t)(apart | has_bias << 1) << 8, "tower_layer_norm", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_cols, weight_at, bias_at;
        float eps;
    } p = {(uint32_t)in.n_cols, webgpu_vector_at(weight), webgpu_vector_at(bias), eps};
    struct gpu_binding bindings[3] = {webgpu_tensor(in)};
    int n = 1;
    if (apart)
        bindings[n++] = webgpu_tensor(out);
    bindings[n++] = webgpu_vectors(gpu);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)in.n_rows, 1, 1);
}

// --- products -----------------------------------------------------------------------------------------------------------------

static void multiply(
    struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how, struct tensor out)
{
    const struct device_weight *w = device_of(linear);
    webgpu_join_all(gpu);
    for (int i = 0; i < w->n_parts; i++)
        plain_matmul(gpu, in, linear, how, &w->parts[i], out);
}

static void tower_project(struct tower_ops *tower, struct tensor in, const struct linear *linear, bool silu, struct tensor out)
{
    struct product how = {.flags = silu ? PRODUCT_ACTIVATES : 0, .activation = ACTIVATION_SILU};
    multiply(gpu_of(tower), in, linear, &how, out);
}

static void tower_gated(struct tower_ops *tower, struct tensor in, const struct linear *gate, const struct linear *up,
    enum activation activation, struct tensor out)
{
    multiply(gpu_of(tower), in, gate, &(struct product){0}, out);
    multiply(gpu_of(tower), in, up, &(struct product){.flags = PRODUCT_GATES, .activation = activation}, out);
}

// --- pictures -----------------------------------------------------------------------------------------------------------------

static void tower_add_positions(
    struct tower_ops *tower, struct tensor x, const struct weight *table, int32_t first, int32_t n_columns)
{
    struct webgpu *gpu = gpu_of(tower);
    const struct device_weight *w = table->device;
    char definitions[64];
    snprintf(definitions, sizeof definitions, "TYPE0=%s", w->layout.type->snippet);
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, TOWER_POSITIONS | (uint64_t)w->layout.index << 8, "tower_positions", definitions);
    for (int i = 0; kernel != NULL && i < w->n_parts; i++) {
        struct {
            uint32_t w0[4], n_cols, n_units, first_row, n_rows, first, n_columns, n_positions;
        } p = {{0}, (uint32_t)x.n_cols, w->layout.n_units, w->parts[i].first_row, w->parts[i].n_rows, (uint32_t)first,
            (uint32_t)n_columns, (uint32_t)table->n_out};
        set_weight(p.w0, &w->layout);
        struct gpu_binding bindings[] = {webgpu_tensor(x), bind_part(&w->parts[i])};
        gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(w->layout.n_units, 64), (uint32_t)x.n_rows, 1);
    }
}

static void tower_image_prepare(
    struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v, const struct image_attention *a, int32_t first)
{
    struct webgpu *gpu = gpu_of(tower);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_PREPARE, "tower_prepare", "");
    if (kernel == NULL)
        return;
    if (a->head_dim > MAX_HEAD) {
        refuse(gpu, "heads wider than 256");
        return;
    }
    struct {
        uint32_t n_cols, head_dim, q_norm_at, k_norm_at, first, n_columns;
        float eps;
    } p = {(uint32_t)q.n_cols, (uint32_t)a->head_dim, webgpu_vector_at(a->q_norm), webgpu_vector_at(a->k_norm), (uint32_t)first,
        (uint32_t)a->n_columns, a->eps};
    struct gpu_binding bindings[] = {
        webgpu_tensor(q), webgpu_tensor(k), webgpu_tensor(v), webgpu_tensor(a->rope), webgpu_vectors(gpu)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)q.n_rows, (uint32_t)a->n_heads, 1);
}

static void tower_image_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *a, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    if (a->head_dim % 4 != 0 || a->head_dim > 512) {
        refuse(gpu, "heads of this width");
        return;
    }
    struct attend_tile t;
    webgpu_attend_tile((uint32_t)a->head_dim, &t);
    char definitions[192];
    snprintf(definitions, sizeof definitions, "TOWER=1 %s", t.definitions);
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, TOWER_ATTEND | (uint64_t)(uint32_t)a->head_dim << 8, "attend_many", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_queries, n_keys, row_vectors;
    } p = {(uint32_t)q.n_rows, (uint32_t)k.n_rows, (uint32_t)q.n_cols / 4};
    struct gpu_binding bindings[] = {webgpu_tensor(q), webgpu_tensor(k), webgpu_tensor(v), webgpu_tensor(out)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(p.n_queries, t.n_queries), (uint32_t)a->n_heads, 1);
}

static void tower_image_pool(struct tower_ops *tower, struct tensor x, int32_t n_columns, int32_t size, float scale,
    const struct weight *std_bias, const struct weight *std_scale, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    bool standardises = weight_exists(std_bias) && weight_exists(std_scale);
    struct gpu_pipeline *kernel = webgpu_kernel(
        gpu, TOWER_POOL | (uint64_t)standardises << 8, "tower_pool", standardises ? "STANDARDISES=1" : "STANDARDISES=0");
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_cols, n_cells, n_columns, size;
        float scale;
        uint32_t bias_at, scale_at, grid_x;
    } p = {(uint32_t)out.n_cols, (uint32_t)out.n_rows, (uint32_t)n_columns, (uint32_t)size, scale, webgpu_vector_at(std_bias),
        webgpu_vector_at(std_scale), 0};
    uint32_t grid_x, grid_y;
    p.grid_x = webgpu_grid(gpu, (uint64_t)p.n_cols * p.n_cells, &grid_x, &grid_y);
    struct gpu_binding bindings[] = {webgpu_tensor(x), webgpu_tensor(out), webgpu_vectors(gpu)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, grid_x, grid_y, 1);
}

// --- sounds -------------------------------------------------------------------------------------------------------------------

static void tower_subsample(struct tower_ops *tower, struct tensor in, int32_t n_channels, const struct weight *weight,
    const struct weight *norm, float eps, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    const struct device_weight *w = weight->device;
    uint32_t n_out = (uint32_t)weight->n_out, places = divide_up((uint32_t)weight->n_in, 4) * 4;
    if (w->n_parts != 1 || places > 2304) {
        refuse(gpu, "convolutions of this width");
        return;
    }
    char definitions[32];
    snprintf(definitions, sizeof definitions, "PLACES=%u", places);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_SUBSAMPLE | (uint64_t)places << 8, "tower_subsample", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t w0[4], n_times, n_frequencies, n_channels, n_out, n_out_frequencies, norm_at;
        float eps;
    } p = {{0}, (uint32_t)in.n_rows, (uint32_t)(in.n_cols / n_channels), (uint32_t)n_channels, n_out,
        (uint32_t)out.n_cols / n_out, webgpu_vector_at(norm), eps};
    set_weight(p.w0, &w->layout);
    struct gpu_binding bindings[] = {webgpu_tensor(in), webgpu_tensor(out), webgpu_vectors(gpu), bind_part(&w->parts[0])};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, p.n_out_frequencies, (uint32_t)out.n_rows, 1);
}

static void tower_audio_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
    const struct audio_attention *a, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_HEAR, "tower_hear", "");
    if (kernel == NULL)
        return;
    if (a->head_dim > MAX_HEAD) {
        refuse(gpu, "heads wider than 256");
        return;
    }
    struct {
        uint32_t n_cols, head_dim, span, dim_scale_at;
        float q_scale, k_scale, cap;
    } p = {(uint32_t)q.n_cols, (uint32_t)a->head_dim, (uint32_t)a->span, webgpu_vector_at(a->per_dim_scale), a->q_scale,
        a->k_scale, a->cap};
    struct gpu_binding bindings[] = {webgpu_tensor(q), webgpu_tensor(k), webgpu_tensor(v), webgpu_tensor(a->distances),
        webgpu_tensor(out), webgpu_vectors(gpu)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)q.n_rows, (uint32_t)a->n_heads, 1);
}

static void tower_light_conv(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *norm,
    float eps, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    const struct device_weight *w = weight->device;
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_LIGHT_CONV, "tower_light_conv", "");
    if (kernel == NULL)
        return;
    if (w->n_parts != 1) {
        refuse(gpu, "convolutions of this width");
        return;
    }
    struct {
        uint32_t w0[4], n_cols, n_taps, norm_at;
        float eps;
    } p = {{0}, (uint32_t)out.n_cols, (uint32_t)weight->n_in, webgpu_vector_at(norm), eps};
    set_weight(p.w0, &w->layout);
    struct gpu_binding bindings[] = {webgpu_tensor(in), webgpu_tensor(out), webgpu_vectors(gpu), bind_part(&w->parts[0])};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)out.n_rows, 1, 1);
}

static void tower_free(struct tower_ops *tower)
{
    free(tower);
}

struct tower_ops *webgpu_tower_ops_new(struct ops *ops, struct carat_error *err)
{
    struct tower_ops *tower = calloc(1, sizeof *tower);
    if (tower == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the towers' operations");
        return NULL;
    }
    *tower = (struct tower_ops){
        .ops = ops,
        .tile_rows = 4096,
        .norm = tower_norm,
        .project = tower_project,
        .gated = tower_gated,
        .layer_norm = tower_layer_norm,
        .add_positions = tower_add_positions,
        .image_prepare = tower_image_prepare,
        .image_attend = tower_image_attend,
        .image_pool = tower_image_pool,
        .subsample = tower_subsample,
        .audio_attend = tower_audio_attend,
        .light_conv = tower_light_conv,
        .free = tower_free,
    };
    return tower;
}
