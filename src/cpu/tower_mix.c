// tower_mix.c: the towers' operations that mix rows on processors: attention over patches and over sound, convolutions.

#include <math.h>
#include <string.h>

#include "cpu/tower_internal.h"

// --- attention over patches ---

struct preparing {
    const struct cpu_tower *tower;
    const struct image_attention *attention;
    float *q, *k, *v;
    size_t n; // floats of a row
    const float *q_norm, *k_norm, *rope;
    int32_t first;
};

static void prepare_item(const void *context, size_t item, void *room)
{
    const struct preparing *job = context;
    const struct image_attention *a = job->attention;
    const struct cpu_kernels *kernels = job->tower->cpu->kernels;
    int32_t patch = job->first + (int32_t)item, half = a->head_dim / 2;
    const float *turns[2] = {
        job->rope + (size_t)(patch % a->n_columns) * (size_t)half, job->rope + (size_t)(patch / a->n_columns) * (size_t)half};
    (void)room;
    for (int32_t h = 0; h < a->n_heads; h++) {
        size_t at = item * job->n + (size_t)(h * a->head_dim);
        kernels->rms(job->q + at, job->q_norm, a->eps, a->head_dim, job->q + at);
        kernels->rms(job->k + at, job->k_norm, a->eps, a->head_dim, job->k + at);
        kernels->rms(job->v + at, NULL, a->eps, a->head_dim, job->v + at);
        for (int axis = 0; axis < 2; axis++) {
            kernels->rotate(job->q + at + axis * half, turns[axis], half);
            kernels->rotate(job->k + at + axis * half, turns[axis], half);
        }
    }
}

void cpu_tower_image_prepare(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, int32_t first)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    struct preparing job = {tower, attention, cpu_floats(q), cpu_floats(k), cpu_floats(v), (size_t)q.n_cols,
        attention->q_norm->host, attention->k_norm->host, cpu_floats(attention->rope), first};
    cpu_tower_run(tower, prepare_item, &job, (size_t)q.n_rows, NULL, 0);
}

struct attending {
    const struct cpu_tower *tower;
    const float *q, *k, *v;
    float *out;
    size_t n; // floats of a row
    int32_t head_dim, n_queries, n_keys, n_blocks;
};

// One block of queries of one head. Blocks of a head follow each other, so that its keys and values stay near.
static void attend_item(const void *context, size_t item, void *room)
{
    const struct attending *job = context;
    int panel = job->tower->kernels->panel;
    int32_t head = (int32_t)(item / (size_t)job->n_blocks), first = (int32_t)(item % (size_t)job->n_blocks) * panel;
    size_t at = (size_t)head * (size_t)job->head_dim, from = (size_t)first * job->n + at;
    struct tower_attend block = {
        .head_dim = job->head_dim,
        .n_queries = job->n_queries - first < panel ? job->n_queries - first : panel,
        .n_keys = job->n_keys,
        .q = job->q + from,
        .k = job->k + at,
        .v = job->v + at,
        .q_stride = job->n,
        .kv_stride = job->n,
        .out = job->out + from,
        .out_stride = job->n,
        .scratch = room,
    };
    job->tower->kernels->attend(&block);
}

void cpu_tower_image_attend(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    int panel = tower->kernels->panel;
    size_t thread_bytes = cpu_tower_aligned(tower_attend_floats(attention->head_dim) * sizeof(float));
    unsigned char *rooms = cpu_room(tower->cpu, (size_t)tower->cpu->n_threads * thread_bytes);
    if (rooms == NULL)
        return;
    struct attending job = {tower, cpu_floats(q), cpu_floats(k), cpu_floats(v), cpu_floats(out), (size_t)q.n_cols,
        attention->head_dim, q.n_rows, k.n_rows, (q.n_rows + panel - 1) / panel};
    cpu_tower_run(tower, attend_item, &job, (size_t)attention->n_heads * (size_t)job.n_blocks, rooms, thread_bytes);
}

// --- sound ---

struct subsampling {
    const struct cpu_tower *tower;
    const float *in, *panels, *norm;
    float *out;
    int32_t n_times, n_frequencies, n_channels; // of the input
    int32_t n_out_frequencies, n_out;           // n_out: channels
    float eps;
};

// The 3 x 3 surroundings of every frequency at output time t, as rows [9 * n_channels] in the order of the weight.
static void gather_places(const struct subsampling *job, int32_t t, float *rows)
{
    size_t n_row = (size_t)job->n_channels * 9;
    memset(rows, 0, (size_t)job->n_out_frequencies * n_row * sizeof(float));
    for (int32_t f = 0; f < job->n_out_frequencies; f++) {
        for (int32_t tap = 0; tap < 9; tap++) {
            int32_t time = 2 * t - 1 + tap / 3, frequency = 2 * f - 1 + tap % 3;
            if (time < 0 || time >= job->n_times || frequency < 0 || frequency >= job->n_frequencies)
                continue;
            const float *from =
                job->in + ((size_t)time * (size_t)job->n_frequencies + (size_t)frequency) * (size_t)job->n_channels;
            float *to = rows + (size_t)f * n_row + tap;
            for (int32_t c = 0; c < job->n_channels; c++)
                to[(size_t)c * 9] = from[c];
        }
    }
}

static void subsample_item(const void *context, size_t item, void *room)
{
    const struct subsampling *job = context;
    const struct tower_kernels *kernels = job->tower->kernels;
    int32_t n_in = 9 * job->n_channels;
    float *rows = room, *out = job->out + item * (size_t)job->n_out_frequencies * (size_t)job->n_out;
    gather_places(job, (int32_t)item, rows);
    for (int32_t first = 0; first < job->n_out; first += kernels->panel) {
        struct tower_product product = {
            .n_in = n_in,
            .n_rows = job->n_out_frequencies,
            .n_outputs = job->n_out - first < kernels->panel ? job->n_out - first : kernels->panel,
            .panel = job->panels + (size_t)first * (size_t)n_in,
            .rows = rows,
            .row_stride = (size_t)n_in,
            .out = out + first,
            .out_stride = (size_t)job->n_out,
        };
        kernels->multiply(&product);
    }
    for (int32_t f = 0; f < job->n_out_frequencies; f++)
        kernels->layer_norm(out + f * job->n_out, job->norm, NULL, job->eps, true, job->n_out, out + f * job->n_out);
}

void cpu_tower_subsample(struct tower_ops *ops, struct tensor in, int32_t n_channels, const struct weight *weight,
    const struct weight *norm, float eps, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    int panel = tower->kernels->panel;
    struct subsampling job = {.tower = tower,
        .in = cpu_floats(in),
        .norm = norm->host,
        .out = cpu_floats(out),
        .n_times = in.n_rows,
        .n_frequencies = in.n_cols / n_channels,
        .n_channels = n_channels,
        .n_out_frequencies = out.n_cols / weight->n_out,
        .n_out = weight->n_out,
        .eps = eps};
    size_t n_panels = (size_t)(weight->n_out + panel - 1) / (size_t)panel, n_in = (size_t)weight->n_in;
    size_t thread_bytes = cpu_tower_aligned((size_t)job.n_out_frequencies * n_in * sizeof(float));
    float *panels = NULL, *rows = NULL;
    unsigned char *rooms = NULL;
    struct layout_cursor cursor = {0};
    for (int pass = 0; pass < 2; pass++) {
        panels = cpu_take(&cursor, n_panels * n_in * (size_t)panel, sizeof(float));
        rows = cpu_take(&cursor, cpu_padded(weight->n_in) * (size_t)panel, sizeof(float));
        rooms = cpu_take(&cursor, (size_t)tower->cpu->n_threads, thread_bytes);
        if (pass == 0 && (cursor = (struct layout_cursor){cpu_room(tower->cpu, cursor.n_used), 0}).bytes == NULL)
            return;
    }
    for (size_t p = 0; p < n_panels; p++)
        cpu_tower_pack(tower, weight, (int32_t)p * panel, rows, panels + p * n_in * (size_t)panel);
    job.panels = panels;
    cpu_tower_run(tower, subsample_item, &job, (size_t)out.n_rows, rooms, thread_bytes);
}

enum { MAX_SPAN = 64 };

struct hearing {
    const struct cpu_tower *tower;
    const struct audio_attention *attention;
    const float *q, *k, *v, *distances, *dim_scale;
    float *out;
    size_t n; // floats of a row
};

static void hear_head(const struct hearing *job, size_t i, int32_t head, float *query)
{
    const struct audio_attention *a = job->attention;
    const struct cpu_kernels *kernels = job->tower->cpu->kernels;
    size_t at = (size_t)head * (size_t)a->head_dim;
    int32_t n = i + 1 < (size_t)a->span ? (int32_t)i + 1 : a->span; // keys i, i - 1, ...
    float scores[MAX_SPAN], *out = job->out + i * job->n + at, total = 0;
    for (int32_t c = 0; c < a->head_dim; c++)
        query[c] = job->q[i * job->n + at + (size_t)c] * a->q_scale * job->dim_scale[c];
    for (int32_t d = 0; d < n; d++)
        scores[d] = kernels->dot(query, job->k + (i - (size_t)d) * job->n + at, a->head_dim) * a->k_scale +
                    kernels->dot(query, job->distances + (size_t)d * job->n + at, a->head_dim);
    kernels->softcap(scores, a->cap, n);
    float largest = kernels->largest(scores, n);
    memset(out, 0, (size_t)a->head_dim * sizeof(float));
    for (int32_t d = 0; d < n; d++) {
        float weight = expf(scores[d] - largest);
        const float *value = job->v + (i - (size_t)d) * job->n + at;
        total += weight;
        for (int32_t c = 0; c < a->head_dim; c++)
            out[c] += weight * value[c];
    }
    for (int32_t c = 0; c < a->head_dim; c++)
        out[c] /= total;
}

static void hear_item(const void *context, size_t item, void *room)
{
    const struct hearing *job = context;
    for (int32_t h = 0; h < job->attention->n_heads; h++)
        hear_head(job, item, h, room);
}

void cpu_tower_audio_attend(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct audio_attention *attention, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    size_t thread_bytes = cpu_tower_aligned((size_t)attention->head_dim * sizeof(float));
    unsigned char *rooms = cpu_room(tower->cpu, (size_t)tower->cpu->n_threads * thread_bytes);
    struct hearing job = {tower, attention, cpu_floats(q), cpu_floats(k), cpu_floats(v), cpu_floats(attention->distances),
        attention->per_dim_scale->host, cpu_floats(out), (size_t)q.n_cols};
    if (rooms != NULL)
        cpu_tower_run(tower, hear_item, &job, (size_t)q.n_rows, rooms, thread_bytes);
}

struct convolving {
    const struct cpu_tower *tower;
    const float *in, *norm;
    const float *taps; // [n_taps][n]
    float *gated;      // [n_rows][n]
    float *out;
    int32_t n, n_taps;
    float eps;
};

static void glu_item(const void *context, size_t item, void *room)
{
    const struct convolving *job = context;
    size_t n = (size_t)job->n;
    (void)room;
    job->tower->kernels->glu(job->in + item * 2 * n, job->in + item * 2 * n + n, job->n, job->gated + item * n);
}

static void convolve_item(const void *context, size_t item, void *room)
{
    const struct convolving *job = context;
    size_t n = (size_t)job->n;
    float *out = job->out + item * n;
    (void)room;
    memset(out, 0, n * sizeof(float));
    for (int32_t j = 0; j < job->n_taps; j++) {
        int64_t step = (int64_t)item - job->n_taps + 1 + j;
        if (step < 0)
            continue;
        const float *taps = job->taps + (size_t)j * n, *gated = job->gated + (size_t)step * n;
        for (size_t c = 0; c < n; c++)
            out[c] += taps[c] * gated[c];
    }
    job->tower->cpu->kernels->rms(out, job->norm, job->eps, job->n, out);
    job->tower->kernels->silu(out, job->n);
}

void cpu_tower_light_conv(
    struct tower_ops *ops, struct tensor in, const struct weight *weight, const struct weight *norm, float eps, struct tensor out)
{
    struct cpu_tower *tower = (struct cpu_tower *)ops;
    size_t n = (size_t)out.n_cols, n_taps = (size_t)weight->n_in, n_rows = (size_t)out.n_rows;
    float *room = (float *)(void *)cpu_room(tower->cpu, (n_rows + n_taps) * n * sizeof(float));
    if (room == NULL)
        return;
    const float *stored = weight->host;
    for (size_t c = 0; c < n; c++) {
        for (size_t j = 0; j < n_taps; j++)
            room[j * n + c] = stored[c * n_taps + j];
    }
    struct convolving job = {
        tower, cpu_floats(in), norm->host, room, room + n_taps * n, cpu_floats(out), out.n_cols, weight->n_in, eps};
    cpu_tower_run(tower, glu_item, &job, n_rows, NULL, 0);
    cpu_tower_run(tower, convolve_item, &job, n_rows, NULL, 0);
}
