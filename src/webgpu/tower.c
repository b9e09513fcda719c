// tower.c: the towers' operations on WebGPU.
//
// Products of F32, F16, BF16 and Q8_0 weights go through tower_matmul, whose tiles are made for thousands of rows; other types,
// and widths that are no multiple of 4, through the text model's kernels.

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "webgpu/internal.h"
#include "webgpu/webgpu_tower.h"

// Keys of the pipeline table, beside those of enum kernel.
enum tower_kernel {
    TOWER_NORM = 40,
    TOWER_LAYER_NORM,
    TOWER_MATMUL,
    TOWER_GATE,
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

static const struct device_weight *device_of(const struct weight *weight)
{
    return weight->device;
}

static struct gpu_binding whole(const struct weight_part *part)
{
    return (struct gpu_binding){part->buffer, 0, gpu_buffer_bytes(part->buffer)};
}

static void set_weight(uint32_t w[4], const struct layout *layout)
{
    w[0] = layout->row_vectors;
    for (int i = 1; i < 4; i++)
        w[i] = layout->starts[i];
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

enum product_end { END_PLAIN, END_ACTIVATES, END_GATES };

static const char *activation_definition(enum activation activation)
{
    return activation == ACTIVATION_SILU ? "SILU=1" : activation == ACTIVATION_GELU_QUICK ? "QUICK=1" : "SILU=0";
}

// The name by which tower_matmul knows a type; NULL: it does not.
static const char *matmul_type(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_F32:
        return "F32";
    case GGUF_TYPE_F16:
        return "F16";
    case GGUF_TYPE_BF16:
        return "BF16";
    case GGUF_TYPE_Q8_0:
        return "Q8_0";
    default:
        return NULL;
    }
}

struct matmul_params {
    uint32_t w0[4];
    uint32_t n_rows, n_batch, n_in, out_cols, out_first, bias_at;
    float in_min, in_max, out_min, out_max;
};

static void matmul_part(struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct weight_part *part,
    enum product_end end, enum activation activation, struct tensor out)
{
    const struct device_weight *w = device_of(&linear->weight);
    bool bias = weight_exists(&linear->bias);
    uint64_t key = TOWER_MATMUL | (uint64_t)linear->weight.type << 8 | (uint64_t)bias << 16 | (uint64_t)linear->clipped << 17 |
                   (uint64_t)end << 18 | (uint64_t)activation << 20;
    char definitions[160];
    snprintf(definitions, sizeof definitions, "%s=1 BIAS=%d CLIP=%d GATES=%d ACTIVATES=%d %s", matmul_type(linear->weight.type),
        bias, linear->clipped, end == END_GATES, end == END_ACTIVATES, activation_definition(activation));
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, key, "tower_matmul", definitions);
    if (kernel == NULL)
        return;
    struct matmul_params p = {
        .n_rows = part->n_rows,
        .n_batch = (uint32_t)in.n_rows,
        .n_in = (uint32_t)in.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .out_first = part->first_row,
        .bias_at = webgpu_vector_at(&linear->bias) + part->first_row,
        .in_min = linear->in_min,
        .in_max = linear->in_max,
        .out_min = linear->out_min,
        .out_max = linear->out_max,
    };
    set_weight(p.w0, &w->layout);
    struct gpu_binding bindings[4] = {webgpu_tensor(in)};
    int n = 1;
    if (bias)
        bindings[n++] = webgpu_vectors(gpu);
    bindings[n++] = webgpu_tensor(out);
    bindings[n++] = whole(part);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(part->n_rows, 128), divide_up((uint32_t)in.n_rows, 64), 1);
}

// x = activation(x), times up where there is one.
static void gate(struct webgpu *gpu, struct tensor x, struct tensor up, enum activation activation)
{
    bool has_up = up.buffer != NULL;
    char definitions[48];
    snprintf(definitions, sizeof definitions, "UP=%d %s", has_up, activation_definition(activation));
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, TOWER_GATE | (uint64_t)has_up << 8 | (uint64_t)activation << 9, "tower_gate", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n, grid_x;
    } p = {(uint32_t)x.n_rows * (uint32_t)x.n_cols, 0};
    uint32_t grid_x, grid_y;
    p.grid_x = webgpu_grid(gpu, p.n, &grid_x, &grid_y);
    struct gpu_binding bindings[2] = {webgpu_tensor(x)};
    if (has_up)
        bindings[1] = webgpu_tensor(up);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, grid_x, grid_y, 1);
}

static bool takes_matmul(struct tensor in, const struct linear *linear)
{
    return in.n_cols % 4 == 0 && matmul_type(linear->weight.type) != NULL;
}

static void multiply(struct webgpu *gpu, struct tensor in, const struct linear *linear, enum product_end end,
    enum activation activation, struct tensor out)
{
    const struct device_weight *w = device_of(&linear->weight);
    for (int i = 0; i < w->n_parts; i++)
        matmul_part(gpu, in, linear, &w->parts[i], end, activation, out);
}

static void tower_project(struct tower_ops *tower, struct tensor in, const struct linear *linear, bool silu, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    if (takes_matmul(in, linear)) {
        multiply(gpu, in, linear, silu ? END_ACTIVATES : END_PLAIN, ACTIVATION_SILU, out);
        return;
    }
    webgpu_product(gpu, in, linear, &(struct product){0}, out);
    if (silu)
        gate(gpu, out, (struct tensor){0}, ACTIVATION_SILU);
}

static void tower_gated(struct tower_ops *tower, struct tensor in, const struct linear *gate_linear, const struct linear *up,
    enum activation activation, struct tensor out)
{
    struct webgpu *gpu = gpu_of(tower);
    tower_project(tower, in, gate_linear, false, out);
    if (takes_matmul(in, up)) {
        multiply(gpu, in, up, END_GATES, activation, out);
        return;
    }
    struct tensor raised = webgpu_scratch_tensor(gpu, SCRATCH_GATED, out.n_rows, out.n_cols);
    if (raised.buffer == NULL)
        return;
    webgpu_product(gpu, in, up, &(struct product){0}, raised);
    gate(gpu, out, raised, activation);
}

// --- pictures -----------------------------------------------------------------------------------------------------------------

static void tower_add_positions(
    struct tower_ops *tower, struct tensor x, const struct weight *table, int32_t first, int32_t n_columns)
{
    struct webgpu *gpu = gpu_of(tower);
    const struct device_weight *w = device_of(table);
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
        struct gpu_binding bindings[] = {webgpu_tensor(x), whole(&w->parts[i])};
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
    enum { ROOM_BYTES = 16384, MAX_VECTORS = 32 }; // workgroup memory that every device has; registers of an invocation
    struct webgpu *gpu = gpu_of(tower);
    uint32_t vectors = (uint32_t)a->head_dim / 4, keys = ROOM_BYTES / (2 * 16 * (vectors > 0 ? vectors : 1)) / 8 * 8;
    if (a->head_dim % 4 != 0 || vectors > MAX_VECTORS) {
        refuse(gpu, "heads of this width");
        return;
    }
    keys = keys > 32 ? 32 : keys;
    char definitions[96];
    snprintf(definitions, sizeof definitions, "VECTORS=%u KEYS=%u KEY_VECTORS=%u", vectors, keys, vectors * keys);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, TOWER_ATTEND | (uint64_t)vectors << 8, "tower_attend", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_queries, n_keys, row_vectors;
    } p = {(uint32_t)q.n_rows, (uint32_t)k.n_rows, (uint32_t)q.n_cols / 4};
    struct gpu_binding bindings[] = {webgpu_tensor(q), webgpu_tensor(k), webgpu_tensor(v), webgpu_tensor(out)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(p.n_queries, 64), (uint32_t)a->n_heads, 1);
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
    const struct device_weight *w = device_of(weight);
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
    struct gpu_binding bindings[] = {webgpu_tensor(in), webgpu_tensor(out), webgpu_vectors(gpu), whole(&w->parts[0])};
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
    const struct device_weight *w = device_of(weight);
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
    struct gpu_binding bindings[] = {webgpu_tensor(in), webgpu_tensor(out), webgpu_vectors(gpu), whole(&w->parts[0])};
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
