// cpu_tower.c: the towers' operations on processors: products, norms, pooling. Attention and convolutions are in tower_mix.c.
//
// A product is cut into panels of outputs; a thread packs a panel once and multiplies it with all rows (or a part of them where
// there are more threads than panels). Weights stay in the file's type; a panel is f32.

#include "cpu/cpu_tower.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/tower_internal.h"

enum { TILE_ROWS_OF_MODEL = 1280 }; // half of the largest picture of the usual budget; tens of milliseconds a step

// --- threads ---

struct running {
    struct cpu_tower *tower;
    tower_work *work;
    const void *job;
    size_t n_items, thread_bytes;
    unsigned char *rooms;
    _Atomic size_t next;
};

static void run_items(void *context, int index, int n_threads)
{
    struct running *running = context;
    (void)n_threads;
    unsigned char *room = running->rooms != NULL ? running->rooms + (size_t)index * running->thread_bytes : NULL;
    for (size_t item; (item = cpu_next(&running->next)) < running->n_items;)
        running->work(running->job, item, room);
}

void cpu_tower_run(
    struct cpu_tower *tower, tower_work *work, const void *job, size_t n_items, unsigned char *rooms, size_t thread_bytes)
{
    struct running running = {
        .tower = tower, .work = work, .job = job, .n_items = n_items, .thread_bytes = thread_bytes, .rooms = rooms};
    threads_run(tower->cpu->threads, run_items, &running);
}

// --- products ---

void cpu_tower_pack(const struct cpu_tower *tower, const struct weight *weight, int32_t first, float *rows, float *panel)
{
    size_t stride = cpu_padded(weight->n_in);
    int32_t n = weight->n_out - first < tower->kernels->panel ? weight->n_out - first : tower->kernels->panel;
    for (int32_t r = 0; r < n; r++)
        tower->cpu->kernels->dequantize(weight->type, (const uint8_t *)weight->host + (uint64_t)(first + r) * weight->row_bytes,
            weight->n_in, rows + (size_t)r * stride);
    tower->kernels->pack(rows, stride, n, weight->n_in, panel);
}

struct multiplying {
    const struct cpu_tower *tower;
    const struct linear *linear, *up; // up: NULL, or the second factor of a gated product
    const float *in, *up_in;          // clamped
    size_t in_stride;
    int32_t n_rows, n_chunks, chunk_rows;
    const float *bias; // padded to whole panels; NULL: none
    bool silu;
    enum activation activation;
    float *out;
    size_t out_stride;
};

static struct tower_finish finish_of(const struct linear *linear, const float *bias)
{
    return (struct tower_finish){.bias = bias, .clamps = linear->clipped, .low = linear->out_min, .high = linear->out_max};
}

// One panel of outputs times one chunk of rows.
static void multiply_item(const void *context, size_t item, void *room)
{
    const struct multiplying *job = context;
    int panel = job->tower->kernels->panel;
    int32_t first = (int32_t)(item / (size_t)job->n_chunks) * panel, chunk = (int32_t)(item % (size_t)job->n_chunks);
    int32_t first_row = chunk * job->chunk_rows, n_in = job->linear->weight.n_in, n_left = job->linear->weight.n_out - first;
    size_t panel_floats = cpu_padded(n_in) * TOWER_MAX_PANEL;
    float *packed = room, *up_packed = packed + panel_floats, *rows = up_packed + (job->up != NULL ? panel_floats : 0);
    cpu_tower_pack(job->tower, &job->linear->weight, first, rows, packed);
    if (job->up != NULL)
        cpu_tower_pack(job->tower, &job->up->weight, first, rows, up_packed);
    struct tower_product product = {
        .n_in = n_in,
        .n_rows = job->n_rows - first_row < job->chunk_rows ? job->n_rows - first_row : job->chunk_rows,
        .n_outputs = n_left < panel ? n_left : panel,
        .panel = packed,
        .rows = job->in + (size_t)first_row * job->in_stride,
        .row_stride = job->in_stride,
        .finish = finish_of(job->linear, job->bias != NULL ? job->bias + first : NULL),
        .silu = job->silu,
        .activation = job->activation,
        .out = job->out + (size_t)first_row * job->out_stride + first,
        .out_stride = job->out_stride,
    };
    if (job->up != NULL) {
        product.up_panel = up_packed;
        product.up_rows = job->up_in + (size_t)first_row * job->in_stride;
        product.up_stride = job->in_stride;
        product.up_finish = finish_of(job->up, NULL);
    }
    job->tower->kernels->multiply(&product);
}

struct clamping {
    const struct cpu_tower *tower;
    const float *in;
    float low, high, *out;
    size_t n_row;
};

static void clamp_item(const void *context, size_t item, void *room)
{
    const struct clamping *job = context;
    (void)room;
    job->tower->kernels->clamp(
        job->in + item * job->n_row, job->low, job->high, (int64_t)job->n_row, job->out + item * job->n_row);
}

// The input of a linear: the tensor itself, or a clamped copy in `copy`.
static const float *clamped(struct cpu_tower *tower, struct tensor in, const struct linear *linear, float *copy)
{
    if (!linear->clipped)
        return cpu_floats(in);
    struct clamping job = {tower, cpu_floats(in), linear->in_min, linear->in_max, copy, (size_t)in.n_cols};
    cpu_tower_run(tower, clamp_item, &job, (size_t)in.n_rows, NULL, 0);
    return copy;
}

// Cuts the rows so that every thread finds several items.
static void cut_rows(struct multiplying *job, int32_t n_panels)
{
    enum { ITEMS_PER_THREAD = 4, LEAST_ROWS = 96 };
    int32_t wanted = (job->tower->cpu->n_threads * ITEMS_PER_THREAD + n_panels - 1) / n_panels;
    int32_t most = (job->n_rows + LEAST_ROWS - 1) / LEAST_ROWS;
    int32_t n = job->tower->cpu->n_threads == 1 || wanted < 1 ? 1 : wanted < most ? wanted : most;
    job->chunk_rows = (job->n_rows + n - 1) / n;
    job->n_chunks = (job->n_rows + job->chunk_rows - 1) / job->chunk_rows;
}

static void multiply(struct cpu_tower *tower, struct tensor in, struct multiplying *job, struct tensor out)
{
    const struct weight *weight = &job->linear->weight;
    int panel = tower->kernels->panel;
    int32_t n_panels = (weight->n_out + panel - 1) / panel;
    assert(weight->home == WEIGHT_HOST && in.n_cols == weight->n_in && out.n_cols == weight->n_out && in.n_rows == out.n_rows);
    size_t n_in = (size_t)in.n_rows * (size_t)in.n_cols, row = cpu_padded(weight->n_in), n_packed = job->up != NULL ? 3 : 2;
    size_t thread_bytes = cpu_tower_aligned(n_packed * row * TOWER_MAX_PANEL * sizeof(float));
    struct layout_cursor cursor = {0};
    float *copies[2] = {NULL, NULL}, *bias = NULL;
    unsigned char *rooms = NULL;
    for (int pass = 0; pass < 2; pass++) { // the first only measures
        copies[0] = cpu_take(&cursor, job->linear->clipped ? n_in : 0, sizeof(float));
        copies[1] = cpu_take(&cursor, job->up != NULL && job->up->clipped ? n_in : 0, sizeof(float));
        bias = cpu_take(&cursor, (size_t)n_panels * TOWER_MAX_PANEL + 16, sizeof(float));
        rooms = cpu_take(&cursor, (size_t)tower->cpu->n_threads, thread_bytes);
        if (pass == 0 && (cursor = (struct layout_cursor){cpu_room(tower->cpu, cursor.n_used), 0}).bytes == NULL)
            return;
    }
    job->tower = tower;
    job->in = clamped(tower, in, job->linear, copies[0]);
    job->up_in = job->up != NULL ? clamped(tower, in, job->up, copies[1]) : NULL;
    job->in_stride = (size_t)in.n_cols;
    job->n_rows = in.n_rows;
    job->out = cpu_floats(out);
    job->out_stride = (size_t)out.n_cols;
    if (weight_exists(&job->linear->bias)) {
        memset(bias, 0, (size_t)n_panels * TOWER_MAX_PANEL * sizeof(float));
        tower->cpu->kernels->dequantize(job->linear->bias.type, job->linear->bias.host, weight->n_out, bias);
        job->bias = bias;
    }
    cut_rows(job, n_panels);
    cpu_tower_run(tower, multiply_item, job, (size_t)n_panels * (size_t)job->n_chunks, rooms, thread_bytes);
}

void cpu_tower_project(struct tower_ops *ops, struct tensor in, const struct linear *linear, bool silu, struct tensor out)
{
    struct multiplying job = {.linear = linear, .silu = silu};
    multiply((struct cpu_tower *)ops, in, &job, out);
}

void cpu_tower_gated(struct tower_ops *ops, struct tensor in, const struct linear *gate, const struct linear *up,
    enum activation activation, struct tensor out)
{
    struct multiplying job = {.linear = gate, .up = up, .activation = activation};
    multiply((struct cpu_tower *)ops, in, &job, out);
}

// --- rows ---

enum { ROWS_PER_ITEM = 16 };

struct row_job {
    const struct cpu_tower *tower;
    int32_t n_rows, n_cols;
    float *x, *out;
    const float *term, *term_norm, *norm, *bias;
    float factor, scale, eps;
    bool weightless, sums_only;
};

static void norm_row(const struct row_job *job, int32_t i)
{
    const struct cpu_kernels *k = job->tower->cpu->kernels;
    size_t at = (size_t)i * (size_t)job->n_cols;
    float *x = job->x + at;
    if (job->term != NULL) {
        const float *term = job->term + at;
        float factor = job->factor;
        if (job->term_norm != NULL) // the root mean square; the norm's weight comes in below
            factor *= 1 / sqrtf(k->dot(term, term, job->n_cols) / (float)job->n_cols + job->eps);
        for (int32_t c = 0; c < job->n_cols; c++)
            x[c] = (x[c] + term[c] * factor * (job->term_norm != NULL ? job->term_norm[c] : 1)) * job->scale;
    }
    if (!job->sums_only)
        k->rms(x, job->norm, job->eps, job->n_cols, job->out + at);
}

static void norm_item(const void *context, size_t item, void *room)
{
    const struct row_job *job = context;
    (void)room;
    int32_t first = (int32_t)item * ROWS_PER_ITEM;
    for (int32_t i = first; i < job->n_rows && i < first + ROWS_PER_ITEM; i++)
        norm_row(job, i);
}

static size_t row_items(int32_t n_rows)
{
    return ((size_t)n_rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM;
}

static const float *vector_of(const struct weight *weight)
{
    assert(!weight_exists(weight) || (weight->type == GGUF_TYPE_F32 && weight->home == WEIGHT_HOST));
    return weight_exists(weight) ? weight->host : NULL;
}

static void tower_norm(struct tower_ops *ops, struct tensor x, const struct residual *residual, const struct weight *norm,
    float eps, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    struct row_job job = {.tower = tower,
        .n_rows = x.n_rows,
        .n_cols = x.n_cols,
        .x = cpu_floats(x),
        .norm = vector_of(norm),
        .eps = eps,
        .sums_only = out.buffer == NULL,
        .scale = 1};
    if (out.buffer != NULL)
        job.out = cpu_floats(out);
    if (residual != NULL && residual->term.buffer != NULL) {
        job.term = cpu_floats(residual->term);
        job.term_norm = vector_of(residual->norm);
        job.factor = residual->factor;
        job.scale = weight_exists(residual->scale) ? *vector_of(residual->scale) : 1;
    }
    cpu_tower_run(tower, norm_item, &job, row_items(x.n_rows), NULL, 0);
}

static void layer_norm_item(const void *context, size_t item, void *room)
{
    const struct row_job *job = context;
    (void)room;
    int32_t first = (int32_t)item * ROWS_PER_ITEM;
    for (int32_t i = first; i < job->n_rows && i < first + ROWS_PER_ITEM; i++) {
        size_t at = (size_t)i * (size_t)job->n_cols;
        job->tower->kernels->layer_norm(job->x + at, job->norm, job->bias, job->eps, false, job->n_cols, job->out + at);
    }
}

static void tower_layer_norm(
    struct tower_ops *ops, struct tensor in, const struct weight *weight, const struct weight *bias, float eps, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    struct row_job job = {.tower = tower,
        .n_rows = in.n_rows,
        .n_cols = in.n_cols,
        .x = cpu_floats(in),
        .out = cpu_floats(out),
        .norm = vector_of(weight),
        .bias = vector_of(bias),
        .eps = eps};
    cpu_tower_run(tower, layer_norm_item, &job, row_items(in.n_rows), NULL, 0);
}

static void tower_add_positions(
    struct tower_ops *ops, struct tensor x, const struct weight *table, int32_t first, int32_t n_columns)
{
    struct cpu *cpu = ((struct cpu_tower *)ops)->cpu;
    float *rows = cpu_floats(x), *entry = (float *)(void *)cpu_room(cpu, cpu_padded(x.n_cols) * sizeof(float));
    for (int32_t i = 0; entry != NULL && i < x.n_rows; i++) {
        int32_t at[2] = {(first + i) % n_columns, (first + i) / n_columns};
        for (int axis = 0; axis < 2; axis++) {
            uint64_t row = (uint64_t)axis * (uint64_t)table->n_out + (uint64_t)at[axis];
            cpu->kernels->dequantize(table->type, (const uint8_t *)table->host + row * table->row_bytes, x.n_cols, entry);
            for (int32_t c = 0; c < x.n_cols; c++)
                rows[(size_t)i * (size_t)x.n_cols + (size_t)c] += entry[c];
        }
    }
}

static void tower_image_pool(struct tower_ops *ops, struct tensor x, int32_t n_columns, int32_t size, float scale,
    const struct weight *std_bias, const struct weight *std_scale, struct tensor out)
{
    (void)ops;
    const float *patches = cpu_floats(x), *bias = vector_of(std_bias), *factor = vector_of(std_scale);
    size_t n = (size_t)out.n_cols;
    int32_t across = n_columns / size;
    for (int32_t i = 0; i < out.n_rows; i++) {
        float *cell = cpu_floats(out) + (size_t)i * n;
        memset(cell, 0, n * sizeof(float));
        for (int32_t p = 0; p < size * size; p++) {
            int32_t patch = (i / across * size + p / size) * n_columns + i % across * size + p % size;
            for (size_t c = 0; c < n; c++)
                cell[c] += patches[(size_t)patch * n + c];
        }
        for (size_t c = 0; c < n; c++)
            cell[c] = cell[c] / (float)(size * size) * scale;
        for (size_t c = 0; bias != NULL && factor != NULL && c < n; c++)
            cell[c] = (cell[c] - bias[c]) * factor[c];
    }
}

static void tower_free(struct tower_ops *ops)
{
    free(ops);
}

static const struct tower_kernels *kernels_for(const struct cpu *cpu)
{
#if defined(__x86_64__)
    if (strncmp(cpu->kernels->name, "AVX-512", 7) == 0)
        return &tower_kernels_avx512;
    if (strncmp(cpu->kernels->name, "AVX", 3) == 0)
        return &tower_kernels_avx2;
#endif
    (void)cpu;
    return &tower_kernels_portable;
}

struct tower_ops *cpu_tower_ops_new(struct ops *ops, struct carat_error *err)
{
    struct cpu_tower *tower = calloc(1, sizeof *tower);
    if (tower == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the towers' operations");
        return NULL;
    }
    tower->cpu = (struct cpu *)ops;
    tower->kernels = kernels_for(tower->cpu);
    tower->ops = (struct tower_ops){
        .ops = ops,
        .tile_rows = TILE_ROWS_OF_MODEL,
        .norm = tower_norm,
        .project = cpu_tower_project,
        .gated = cpu_tower_gated,
        .layer_norm = tower_layer_norm,
        .add_positions = tower_add_positions,
        .image_prepare = cpu_tower_image_prepare,
        .image_attend = cpu_tower_image_attend,
        .image_pool = tower_image_pool,
        .subsample = cpu_tower_subsample,
        .audio_attend = cpu_tower_audio_attend,
        .light_conv = cpu_tower_light_conv,
        .free = tower_free,
    };
    return &tower->ops;
}
