// experts.c: the routed branch of a mixture-of-experts layer.
//
// Positions choose experts (1); the pairs (position, expert) are sorted by expert, so that the rows of an expert's weights are
// read once for all positions that chose it (2); each expert's gate and up (3) and down (4) products run over its pairs; the
// results are added up per position in the order in which it chose (5).

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

struct expert_job {
    struct cpu *cpu;
    const struct experts *e;
    const float *h;
    float *out;
    size_t n_rows, n_pairs;
    int32_t d;
    const float *router_scale, *pre_norm, *down_scale;

    float *logits;      // [n_rows, n_experts]
    int32_t *chosen;    // [n_rows, n_used]
    float *weights;     // [n_rows, n_used]
    size_t *place;      // [n_rows, n_used], where the pair stands in the sorted order
    size_t *pair_row;   // [n_pairs]
    size_t *first_pair; // [n_experts + 1]
    int32_t *active;    // experts with pairs
    size_t n_active;

    struct activations routed; // [n_rows], the router's input
    struct activations input;  // [n_pairs, d]
    struct activations gated;  // [n_pairs, n_ff]
    float *down;               // [n_pairs, d]
    int32_t router_chunk, gate_chunk, down_chunk;
    unsigned char *thread_room;
    size_t thread_bytes;
    _Atomic size_t next[7]; // one per phase
};

struct workspace {
    float *row; // [max(d, n_ff)]
    float *up;  // [n_rows, gate_chunk]
    void *scratch;
};

static struct workspace workspace_at(const struct expert_job *job, struct layout_cursor *cursor)
{
    int32_t widest = job->d > job->e->n_ff ? job->d : job->e->n_ff;
    struct workspace w;
    w.row = cpu_take(cursor, cpu_padded(widest), sizeof *w.row);
    w.up = cpu_take(cursor, job->n_rows * (size_t)job->gate_chunk, sizeof *w.up);
    w.scratch = cpu_take(cursor, product_scratch_bytes(widest), 1);
    return w;
}

static void prepare_routed(struct expert_job *job, size_t row, float *room)
{
    const struct cpu_kernels *k = job->cpu->kernels;
    float *x = job->routed.f32 + row * (size_t)job->routed.f32_stride;
    k->rms(job->h + row * (size_t)job->d, job->router_scale, job->e->eps, job->d, room);
    float to_unit = 1 / sqrtf((float)job->d);
    for (int32_t i = 0; i < job->routed.f32_stride; i++)
        x[i] = i < job->d ? room[i] * to_unit : 0;
    if (!cpu_uses_f32(job->cpu, job->e->router))
        k->quantize(&job->routed, (int32_t)row);
}

// The n_used experts with the largest logits, the lower index among equals; softmax over them alone is the softmax over all,
// renormalised.
static void choose(struct expert_job *job, size_t row)
{
    const struct experts *e = job->e;
    float *logits = job->logits + row * (size_t)e->n_experts, *weights = job->weights + row * (size_t)e->n_used;
    int32_t *chosen = job->chosen + row * (size_t)e->n_used;
    float total = 0, largest = 0;
    for (int32_t u = 0; u < e->n_used; u++) {
        int32_t best = -1;
        for (int32_t x = 0; x < e->n_experts; x++) {
            bool taken = false;
            for (int32_t t = 0; t < u; t++)
                taken |= chosen[t] == x;
            if (!taken && (best < 0 || logits[x] > logits[best]))
                best = x;
        }
        largest = u == 0 ? logits[best] : largest;
        chosen[u] = best;
        weights[u] = expf(logits[best] - largest);
        total += weights[u];
    }
    for (int32_t u = 0; u < e->n_used; u++)
        weights[u] /= total;
}

// Counting sort of the pairs by expert; positions stay in order.
static void sort_pairs(struct expert_job *job)
{
    size_t n_experts = (size_t)job->e->n_experts;
    memset(job->first_pair, 0, (n_experts + 1) * sizeof *job->first_pair);
    for (size_t p = 0; p < job->n_pairs; p++)
        job->first_pair[job->chosen[p] + 1]++;
    job->n_active = 0;
    for (size_t x = 0; x < n_experts; x++) {
        if (job->first_pair[x + 1] > 0)
            job->active[job->n_active++] = (int32_t)x;
        job->first_pair[x + 1] += job->first_pair[x];
    }
    for (size_t p = 0; p < job->n_pairs; p++) {
        job->place[p] = job->first_pair[job->chosen[p]]++;
        job->pair_row[job->place[p]] = p / (size_t)job->e->n_used;
    }
    for (size_t x = n_experts; x > 0; x--) // the sort moved every start to its end
        job->first_pair[x] = job->first_pair[x - 1];
    job->first_pair[0] = 0;
}

static void prepare_pair(struct expert_job *job, size_t pair, float *room)
{
    const struct cpu_kernels *k = job->cpu->kernels;
    const struct weight *gate = weight_exists(job->e->gate_up) ? job->e->gate_up : job->e->gate;
    float *x = job->input.f32 + pair * (size_t)job->input.f32_stride;
    (void)room;
    k->rms(job->h + job->pair_row[pair] * (size_t)job->d, job->pre_norm, job->e->eps, job->d, x);
    for (int32_t i = job->d; i < job->input.f32_stride; i++)
        x[i] = 0;
    if (!cpu_uses_f32(job->cpu, gate))
        k->quantize(&job->input, (int32_t)pair);
}

static void quantize_gated(struct expert_job *job, size_t pair)
{
    float *x = job->gated.f32 + pair * (size_t)job->gated.f32_stride;
    for (int32_t i = job->e->n_ff; i < job->gated.f32_stride; i++)
        x[i] = 0;
    if (!cpu_uses_f32(job->cpu, job->e->down))
        job->cpu->kernels->quantize(&job->gated, (int32_t)pair);
}

static void multiply(const struct expert_job *job, const struct weight *weight, int32_t expert, int32_t first_row, int32_t n_rows,
    const struct activations *x, float *out, size_t stride, void *scratch)
{
    cpu_product_rows(job->cpu, &(struct product_rows){.weight = weight,
                                   .slice = expert,
                                   .first_row = first_row,
                                   .n_rows = n_rows,
                                   .x = x,
                                   .first_col = (int32_t)job->first_pair[expert],
                                   .n_cols = (int32_t)(job->first_pair[expert + 1] - job->first_pair[expert]),
                                   .out = out,
                                   .out_stride = stride,
                                   .scratch = scratch});
}

// gated[pairs of the expert, a chunk of n_ff] = gelu(gate u) * (up u)
static void gate_chunk(struct expert_job *job, int32_t expert, int32_t chunk, struct workspace *w)
{
    const struct experts *e = job->e;
    bool fused = weight_exists(e->gate_up);
    int32_t first = chunk * job->gate_chunk, left = e->n_ff - first, n_rows = left < job->gate_chunk ? left : job->gate_chunk;
    size_t stride = (size_t)job->gated.f32_stride, pair = job->first_pair[expert], n = job->first_pair[expert + 1] - pair;
    float *out = job->gated.f32 + pair * stride + (size_t)first;
    multiply(job, fused ? e->gate_up : e->gate, expert, first, n_rows, &job->input, out, stride, w->scratch);
    multiply(job, fused ? e->gate_up : e->up, expert, (fused ? e->n_ff : 0) + first, n_rows, &job->input, w->up,
        (size_t)job->gate_chunk, w->scratch);
    for (size_t i = 0; i < n; i++)
        job->cpu->kernels->gate(
            ACTIVATION_GELU_TANH, out + i * stride, w->up + i * (size_t)job->gate_chunk, n_rows, out + i * stride);
}

static void down_chunk(struct expert_job *job, int32_t expert, int32_t chunk, struct workspace *w)
{
    int32_t first = chunk * job->down_chunk, left = job->d - first, n_rows = left < job->down_chunk ? left : job->down_chunk;
    float *out = job->down + job->first_pair[expert] * (size_t)job->d + (size_t)first;
    multiply(job, job->e->down, expert, first, n_rows, &job->gated, out, (size_t)job->d, w->scratch);
}

static void add_up(struct expert_job *job, size_t row)
{
    const struct experts *e = job->e;
    float *out = job->out + row * (size_t)job->d;
    memset(out, 0, (size_t)job->d * sizeof *out);
    for (size_t p = row * (size_t)e->n_used; p < (row + 1) * (size_t)e->n_used; p++) {
        const float *down = job->down + job->place[p] * (size_t)job->d;
        float weight = job->weights[p] * (job->down_scale != NULL ? job->down_scale[job->chosen[p]] : 1);
        for (int32_t i = 0; i < job->d; i++)
            out[i] += weight * down[i];
    }
}

static size_t n_chunks(int32_t n, int32_t chunk)
{
    return (size_t)((n + chunk - 1) / chunk);
}

static void route(struct expert_job *job, int index, struct workspace *w)
{
    const struct experts *e = job->e;
    for (size_t r; (r = cpu_next(&job->next[0])) < job->n_rows;)
        prepare_routed(job, r, w->row);
    threads_barrier(job->cpu->threads);
    for (size_t c; (c = cpu_next(&job->next[1])) < n_chunks(e->n_experts, job->router_chunk);) {
        int32_t first = (int32_t)c * job->router_chunk, left = e->n_experts - first;
        cpu_product_rows(job->cpu, &(struct product_rows){.weight = e->router,
                                       .first_row = first,
                                       .n_rows = left < job->router_chunk ? left : job->router_chunk,
                                       .x = &job->routed,
                                       .n_cols = (int32_t)job->n_rows,
                                       .out = job->logits + first,
                                       .out_stride = (size_t)e->n_experts,
                                       .scratch = w->scratch});
    }
    threads_barrier(job->cpu->threads);
    if (index == 0) {
        for (size_t r = 0; r < job->n_rows; r++)
            choose(job, r);
        sort_pairs(job);
    }
    threads_barrier(job->cpu->threads);
}

static void run_experts(void *context, int index, int n_threads)
{
    (void)n_threads;
    struct expert_job *job = context;
    const struct experts *e = job->e;
    struct threads *threads = job->cpu->threads;
    struct layout_cursor cursor = {.bytes = job->thread_room + (size_t)index * job->thread_bytes};
    struct workspace w = workspace_at(job, &cursor);
    route(job, index, &w);
    for (size_t p; (p = cpu_next(&job->next[2])) < job->n_pairs;)
        prepare_pair(job, p, w.row);
    threads_barrier(threads);
    size_t per_expert = n_chunks(e->n_ff, job->gate_chunk);
    for (size_t i; (i = cpu_next(&job->next[3])) < job->n_active * per_expert;)
        gate_chunk(job, job->active[i / per_expert], (int32_t)(i % per_expert), &w);
    threads_barrier(threads);
    for (size_t p; (p = cpu_next(&job->next[4])) < job->n_pairs;)
        quantize_gated(job, p);
    threads_barrier(threads);
    per_expert = n_chunks(job->d, job->down_chunk);
    for (size_t i; (i = cpu_next(&job->next[5])) < job->n_active * per_expert;)
        down_chunk(job, job->active[i / per_expert], (int32_t)(i % per_expert), &w);
    threads_barrier(threads);
    for (size_t r; (r = cpu_next(&job->next[6])) < job->n_rows;)
        add_up(job, r);
}

static void take_room(struct expert_job *job, struct layout_cursor *cursor, float *vectors[3])
{
    const struct experts *e = job->e;
    size_t n_experts = (size_t)e->n_experts;
    vectors[0] = cpu_take(cursor, cpu_padded(job->d), sizeof(float));
    vectors[1] = cpu_take(cursor, cpu_padded(job->d), sizeof(float));
    vectors[2] = cpu_take(cursor, cpu_padded(e->n_experts), sizeof(float));
    job->logits = cpu_take(cursor, job->n_rows * n_experts, sizeof *job->logits);
    job->chosen = cpu_take(cursor, job->n_pairs, sizeof *job->chosen);
    job->weights = cpu_take(cursor, job->n_pairs, sizeof *job->weights);
    job->place = cpu_take(cursor, job->n_pairs, sizeof *job->place);
    job->pair_row = cpu_take(cursor, job->n_pairs, sizeof *job->pair_row);
    job->first_pair = cpu_take(cursor, n_experts + 1, sizeof *job->first_pair);
    job->active = cpu_take(cursor, n_experts, sizeof *job->active);
    cpu_take_activations(cursor, (int32_t)job->n_rows, job->d, &job->routed);
    cpu_take_activations(cursor, (int32_t)job->n_pairs, job->d, &job->input);
    cpu_take_activations(cursor, (int32_t)job->n_pairs, e->n_ff, &job->gated);
    job->down = cpu_take(cursor, job->n_pairs * (size_t)job->d, sizeof *job->down);
    struct layout_cursor thread = {0};
    workspace_at(job, &thread);
    job->thread_bytes = (thread.n_used + 4095) / 4096 * 4096;
    job->thread_room = cpu_take(cursor, (size_t)job->cpu->n_threads, job->thread_bytes);
}

void cpu_experts(struct ops *ops, struct tensor h, const struct experts *e, struct tensor out)
{
    struct cpu *cpu = (struct cpu *)ops;
    assert(e->n_used >= 1 && e->n_used <= e->n_experts && e->router->n_out == e->n_experts && out.n_cols == h.n_cols);
    const struct weight *gate = weight_exists(e->gate_up) ? e->gate_up : e->gate;
    struct expert_job job = {.cpu = cpu,
        .e = e,
        .h = cpu_floats(h),
        .out = cpu_floats(out),
        .n_rows = (size_t)h.n_rows,
        .n_pairs = (size_t)h.n_rows * (size_t)e->n_used,
        .d = h.n_cols};
    job.router_chunk = cpu_chunk_rows(cpu, e->router, e->n_experts, h.n_rows);
    job.gate_chunk = cpu_chunk_rows(cpu, gate, e->n_ff * e->n_used, h.n_rows);
    job.down_chunk = cpu_chunk_rows(cpu, e->down, job.d * e->n_used, h.n_rows);
    struct layout_cursor cursor = {0};
    float *vectors[3];
    take_room(&job, &cursor, vectors);
    cursor = (struct layout_cursor){.bytes = cpu_room(cpu, cursor.n_used)};
    if (cursor.bytes == NULL)
        return;
    take_room(&job, &cursor, vectors);
    job.router_scale = cpu_vector(cpu, e->router_scale, vectors[0]);
    job.pre_norm = cpu_vector(cpu, e->pre_norm, vectors[1]);
    job.down_scale = cpu_vector(cpu, e->down_scale, vectors[2]);
    threads_run(cpu->threads, run_experts, &job);
}
