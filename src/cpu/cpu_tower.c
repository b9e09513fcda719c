// cpu_tower.c: the towers' operations on processors: products, norms, pooling. Attention and convolutions are in tower_mix.c.
//
// A product packs its weights into panels of f32 first. A thread then takes a block of rows, copies them clamped next to each
// other, and goes through all panels with it (or a part of them where there are more threads than blocks).

#include "cpu/cpu_tower.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/tower_internal.h"

enum { TILE_ROWS_OF_MODEL = 1280 }; // half of the largest picture of the usual budget; tens of milliseconds a step

// --- threads ---

struct running {
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
    struct running running = {.work = work, .job = job, .n_items = n_items, .thread_bytes = thread_bytes, .rooms = rooms};
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
    const float *in;
    float *panels, *up_panels; // [n_panels][n_in][panel]
    int32_t n_rows, n_in, n_panels;
    int32_t block_rows; // rows that a thread handles at once
    int32_t n_parts;    // the panels are cut into
    const float *bias;  // padded to whole panels; NULL: none
    bool silu;
    enum activation activation;
    float *out;
};

static void pack_item(const void *context, size_t item, void *room)
{
    const struct multiplying *job = context;
    bool is_up = item >= (size_t)job->n_panels;
    size_t p = is_up ? item - (size_t)job->n_panels : item;
    int panel = job->tower->kernels->panel;
    cpu_tower_pack(job->tower, is_up ? &job->up->weight : &job->linear->weight, (int32_t)p * panel, room,
        (is_up ? job->up_panels : job->panels) + p * (size_t)job->n_in * (size_t)panel);
}

static struct tower_finish finish_of(const struct linear *linear, const float *bias)
{
    return (struct tower_finish){.bias = bias, .clamps = linear->clipped, .low = linear->out_min, .high = linear->out_max};
}

// The rows as the linear takes them: clamped into `copy`, or where they are.
static const float *clamped(const struct multiplying *job, const struct linear *linear, const float *rows, int32_t n, float *copy)
{
    if (!linear->clipped)
        return rows;
    job->tower->kernels->clamp(rows, linear->in_min, linear->in_max, (int64_t)n * job->n_in, copy);
    return copy;
}

// One block of rows times one part of the panels.
static void multiply_item(const void *context, size_t item, void *room)
{
    const struct multiplying *job = context;
    int panel = job->tower->kernels->panel;
    int32_t first_row = (int32_t)(item / (size_t)job->n_parts) * job->block_rows, part = (int32_t)(item % (size_t)job->n_parts);
    int32_t n_rows = job->n_rows - first_row < job->block_rows ? job->n_rows - first_row : job->block_rows;
    int32_t n_out = job->linear->weight.n_out, from = job->n_panels * part / job->n_parts;
    const float *rows = job->in + (size_t)first_row * (size_t)job->n_in;
    float *copy = room;
    struct tower_product product = {
        .n_in = job->n_in,
        .n_rows = n_rows,
        .rows = clamped(job, job->linear, rows, n_rows, copy),
        .row_stride = (size_t)job->n_in,
        .silu = job->silu,
        .activation = job->activation,
        .out_stride = (size_t)n_out,
    };
    if (job->up != NULL)
        product.up_rows = clamped(job, job->up, rows, n_rows, copy + (size_t)job->block_rows * (size_t)job->n_in);
    for (int32_t p = from; p < job->n_panels * (part + 1) / job->n_parts; p++) {
        size_t at = (size_t)p * (size_t)job->n_in * (size_t)panel;
        int32_t first = p * panel;
        product.n_outputs = n_out - first < panel ? n_out - first : panel;
        product.panel = job->panels + at;
        product.up_panel = job->up != NULL ? job->up_panels + at : NULL;
        product.finish = finish_of(job->linear, job->bias != NULL ? job->bias + first : NULL);
        product.up_finish = job->up != NULL ? finish_of(job->up, NULL) : product.finish;
        product.out = job->out + (size_t)first_row * (size_t)n_out + first;
        job->tower->kernels->multiply(&product);
    }
}

// How many rows stay in the second cache, and into how many parts the panels are cut so that every thread finds several items.
static void cut(struct multiplying *job)
{
    enum { BLOCK_BYTES = 600 * 1024, STEP = 12, ITEMS_PER_THREAD = 4 };
    int32_t fitting = BLOCK_BYTES / (4 * job->n_in) / STEP * STEP;
    job->block_rows = fitting < 2 * STEP ? 2 * STEP : fitting < TOWER_MAX_ROWS ? fitting : TOWER_MAX_ROWS;
    int32_t n_blocks = (job->n_rows + job->block_rows - 1) / job->block_rows;
    int32_t wanted = (job->tower->cpu->n_threads * ITEMS_PER_THREAD + n_blocks - 1) / n_blocks;
    job->n_parts = job->tower->cpu->n_threads == 1 ? 1 : wanted < job->n_panels ? wanted : job->n_panels;
}

static void multiply(struct cpu_tower *tower, struct tensor in, struct multiplying *job, struct tensor out)
{
    const struct weight *weight = &job->linear->weight;
    int panel = tower->kernels->panel;
    assert(weight->home == WEIGHT_HOST && in.n_cols == weight->n_in && out.n_cols == weight->n_out && in.n_rows == out.n_rows);
    job->tower = tower;
    job->in = cpu_floats(in);
    job->out = cpu_floats(out);
    job->n_rows = in.n_rows;
    job->n_in = weight->n_in;
    job->n_panels = (weight->n_out + panel - 1) / panel;
    cut(job);
    size_t n_packed = (size_t)job->n_panels * (size_t)weight->n_in * (size_t)panel, n_up = job->up != NULL;
    size_t copy_floats = (1 + n_up) * (size_t)job->block_rows * (size_t)weight->n_in;
    size_t pack_floats = cpu_padded(weight->n_in) * (size_t)panel;
    size_t thread_bytes = cpu_tower_aligned((copy_floats > pack_floats ? copy_floats : pack_floats) * sizeof(float));
    struct layout_cursor cursor = {0};
    float *bias = NULL;
    unsigned char *rooms = NULL;
    for (int pass = 0; pass < 2; pass++) { // the first only measures
        job->panels = cpu_take(&cursor, n_packed, sizeof(float));
        job->up_panels = cpu_take(&cursor, n_up * n_packed, sizeof(float));
        bias = cpu_take(&cursor, (size_t)job->n_panels * TOWER_MAX_PANEL + 16, sizeof(float));
        rooms = cpu_take(&cursor, (size_t)tower->cpu->n_threads, thread_bytes);
        if (pass == 0 && (cursor = (struct layout_cursor){cpu_room(tower->cpu, cursor.n_used), 0}).bytes == NULL)
            return;
    }
    if (weight_exists(&job->linear->bias)) {
        memset(bias, 0, (size_t)job->n_panels * TOWER_MAX_PANEL * sizeof(float));
        tower->cpu->kernels->dequantize(job->linear->bias.type, job->linear->bias.host, weight->n_out, bias);
        job->bias = bias;
    }
    cpu_tower_run(tower, pack_item, job, (1 + n_up) * (size_t)job->n_panels, rooms, thread_bytes);
    size_t n_blocks = (size_t)(job->n_rows + job->block_rows - 1) / (size_t)job->block_rows;
    cpu_tower_run(tower, multiply_item, job, n_blocks * (size_t)job->n_parts, rooms, thread_bytes);
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
    bool sums_only;
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
