// product.c: the operations that are products with weights, with all that is fused around them.
//
// One job: (1) rows of input are settled, normed, clamped and quantised; (2) adapters form A x; (3) rows of the weights are
// multiplied and finished (bias, adapters, activation). With up to CPU_NARROW_ROWS rows every thread prepares all of them for
// itself, which is cheaper than a barrier; more rows are shared out.

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

enum { MAX_PARTS = 4 };

bool cpu_uses_f32(const struct cpu *cpu, const struct weight *weight)
{
    return cpu->exact || cpu->kernels->narrow[weight->type] == NULL;
}

size_t product_scratch_bytes(int32_t n_in)
{
    size_t panel = (size_t)CPU_PANEL_ROWS * CPU_PANEL_DEPTH + 2 * sizeof(float) * CPU_PANEL_ROWS * (CPU_PANEL_DEPTH / 16);
    size_t rows = CPU_F32_ROWS * cpu_padded(n_in) * sizeof(float);
    return panel > rows ? panel : rows;
}

void cpu_take_activations(struct layout_cursor *cursor, int32_t n_rows, int32_t n_in, struct activations *x)
{
    size_t n = (size_t)n_rows, groups = (size_t)n_in / 32;
    x->n_rows = n_rows;
    x->n_in = n_in;
    x->f32_stride = (int32_t)cpu_padded(n_in);
    x->f32 = cpu_take(cursor, n * cpu_padded(n_in), sizeof *x->f32);
    x->q = cpu_take(cursor, n * (size_t)n_in, sizeof *x->q);
    x->d = cpu_take(cursor, n * groups, sizeof *x->d);
    x->d16 = cpu_take(cursor, n * groups * 2, sizeof *x->d16);
    x->dsum32 = cpu_take(cursor, n * groups, sizeof *x->dsum32);
    x->dsum16 = cpu_take(cursor, n * groups * 2, sizeof *x->dsum16);
    x->sum16 = cpu_take(cursor, n * groups * 2, sizeof *x->sum16);
}

void cpu_product_rows(const struct cpu *cpu, const struct product_rows *job)
{
    const struct weight *weight = job->weight;
    uint64_t row = (uint64_t)job->slice * (uint64_t)weight->n_out + (uint64_t)job->first_row;
    struct product product = {
        .type = weight->type,
        .rows = (const uint8_t *)weight->host + row * weight->row_bytes,
        .row_bytes = weight->row_bytes,
        .n_rows = job->n_rows,
        .x = job->x,
        .first_col = job->first_col,
        .n_cols = job->n_cols,
        .out = job->out,
        .out_stride = job->out_stride,
        .scratch = job->scratch,
    };
    if (cpu_uses_f32(cpu, weight))
        cpu->kernels->product_f32(&product);
    else if (job->n_cols <= CPU_NARROW_ROWS)
        cpu->kernels->narrow[weight->type](&product);
    else
        cpu->kernels->wide[weight->type](&product);
}

int32_t cpu_chunk_rows(const struct cpu *cpu, const struct weight *weight, int32_t n_rows, int32_t n_cols)
{
    enum { CHUNK_BYTES = 96 * 1024, SMALLEST = 8, PER_THREAD = 6 };
    if (n_cols > CPU_NARROW_ROWS)
        return CPU_PANEL_ROWS;
    int64_t rows = CHUNK_BYTES / (int64_t)weight->row_bytes + 1;
    int64_t share = n_rows / (cpu->n_threads * PER_THREAD);
    rows = rows < share ? rows : share;
    return (int32_t)(rows < SMALLEST ? SMALLEST : (rows + SMALLEST - 1) / SMALLEST * SMALLEST);
}

// What happens to a chunk of rows once the products are there.
enum finish { FINISH_NOTHING, FINISH_GATE, FINISH_PER_LAYER, FINISH_SOFTCAP };

struct part {
    const struct linear *linear;
    const struct linear *up; // of FINISH_GATE
    float *out;              // column 0 of the part; NULL: the job's kept room
    int32_t chunk_rows, n_chunks;
};

struct job {
    struct cpu *cpu;
    int32_t n, n_in;
    bool narrow;

    // input
    const float *x; // [n, n_in]
    const float *term, *term_norm, *norm;
    float *settled; // where the settled rows go; may be x when rows are shared out
    float scale, eps;
    bool settles, needs_q;
    const struct linear *clamps; // whose bounds hold for the input, or NULL

    struct part parts[MAX_PARTS];
    int n_parts;
    size_t out_stride;
    size_t n_kept; // floats of room that outlive the job
    float *kept;
    enum finish finish;
    enum activation activation;
    const float *per_layer; // FINISH_PER_LAYER: [n, per_layer_stride], the layer's columns first
    size_t per_layer_stride;
    float cap; // FINISH_SOFTCAP

    // room
    struct activations shared; // of all rows, when not narrow
    int32_t n_ranks;           // sum over all adapters
    float *ranks;              // [n, n_ranks], A x of every adapter
    unsigned char *thread_room;
    size_t thread_bytes;
    _Atomic size_t next_row, next_rank, next_chunk;
};

// What each thread has for itself.
struct workspace {
    struct activations own; // narrow
    float *row;             // [n_in]
    float *up;              // [n, chunk_rows]
    void *scratch;
};

static struct workspace workspace_at(const struct job *job, struct layout_cursor *cursor)
{
    struct workspace w = {0};
    int32_t largest_chunk = 0;
    for (int p = 0; p < job->n_parts; p++)
        largest_chunk = job->parts[p].chunk_rows > largest_chunk ? job->parts[p].chunk_rows : largest_chunk;
    if (job->narrow)
        cpu_take_activations(cursor, job->n, job->n_in, &w.own);
    w.row = cpu_take(cursor, cpu_padded(job->n_in), sizeof *w.row);
    if (job->finish == FINISH_GATE)
        w.up = cpu_take(cursor, (size_t)job->n * (size_t)largest_chunk, sizeof *w.up);
    w.scratch = cpu_take(cursor, product_scratch_bytes(job->n_in), 1);
    return w;
}

static void prepare_row(const struct job *job, struct activations *to, int32_t i, bool store, float *room)
{
    const struct cpu_kernels *k = job->cpu->kernels;
    int32_t n = job->n_in;
    const float *x = job->x + (size_t)i * (size_t)n;
    float *row = to->f32 + (size_t)i * (size_t)to->f32_stride;
    if (job->settles) {
        const float *term = job->term + (size_t)i * (size_t)n;
        if (job->term_norm != NULL) {
            k->rms(term, job->term_norm, job->eps, n, room);
            term = room;
        }
        k->add_scale(x, term, job->scale, n, row);
        if (store)
            memcpy(job->settled + (size_t)i * (size_t)n, row, (size_t)n * sizeof *row);
        x = row;
    }
    if (job->norm != NULL)
        k->rms(x, job->norm, job->eps, n, row);
    else if (x != row)
        memcpy(row, x, (size_t)n * sizeof *row);
    for (int32_t c = n; c < to->f32_stride; c++)
        row[c] = 0;
    for (int32_t c = 0; job->clamps != NULL && c < n; c++)
        row[c] = row[c] < job->clamps->in_min ? job->clamps->in_min : row[c] > job->clamps->in_max ? job->clamps->in_max : row[c];
    if (job->needs_q)
        k->quantize(to, i);
}

// A x of adapter number `index` counted over all parts, for row i. Adapters see the input before it is clamped; a linear that
// clamps has none (checked in add_part).
static void adapter_ranks(const struct job *job, const struct activations *x, int32_t i)
{
    float *out = job->ranks + (size_t)i * (size_t)job->n_ranks;
    for (int p = 0; p < job->n_parts; p++) {
        const struct linear *both[2] = {job->parts[p].linear, job->parts[p].up};
        for (int b = 0; b < 2; b++) {
            for (const struct lora_pair *pair = both[b] != NULL ? both[b]->adapters : NULL; pair != NULL; pair = pair->next) {
                const float *a = cpu_floats(pair->a);
                for (int32_t r = 0; r < pair->a.n_rows; r++)
                    *out++ = job->cpu->kernels->dot(
                        a + (size_t)r * (size_t)job->n_in, x->f32 + (size_t)i * (size_t)x->f32_stride, job->n_in);
            }
        }
    }
}

// Adds bias and adapters of a linear to a chunk of rows and clamps it. first_rank: where its adapters' ranks begin.
static void finish_linear(const struct job *job, const struct linear *linear, int32_t first_rank, int32_t first_row,
    int32_t n_rows, float *out, size_t stride)
{
    for (int32_t i = 0; weight_exists(&linear->bias) && i < job->n; i++) {
        const float *bias = (const float *)linear->bias.host + first_row;
        job->cpu->kernels->add_scale(out + (size_t)i * stride, bias, 1, n_rows, out + (size_t)i * stride);
    }
    for (int32_t i = 0; linear->clipped && i < job->n; i++) {
        float *row = out + (size_t)i * stride;
        for (int32_t r = 0; r < n_rows; r++)
            row[r] = row[r] < linear->out_min ? linear->out_min : row[r] > linear->out_max ? linear->out_max : row[r];
    }
    for (const struct lora_pair *pair = linear->adapters; pair != NULL; pair = pair->next) {
        int32_t rank = pair->a.n_rows;
        const float *b = cpu_floats(pair->b) + (size_t)first_row * (size_t)rank;
        for (int32_t i = 0; i < job->n; i++) {
            const float *middle = job->ranks + (size_t)i * (size_t)job->n_ranks + first_rank;
            for (int32_t r = 0; r < n_rows; r++)
                out[(size_t)i * stride + (size_t)r] +=
                    pair->scale * job->cpu->kernels->dot(b + (size_t)r * (size_t)rank, middle, rank);
        }
        first_rank += rank;
    }
}

static int32_t ranks_of(const struct linear *linear)
{
    int32_t n = 0;
    for (const struct lora_pair *pair = linear != NULL ? linear->adapters : NULL; pair != NULL; pair = pair->next)
        n += pair->a.n_rows;
    return n;
}

static void multiply(const struct job *job, const struct linear *linear, const struct activations *x, int32_t first_row,
    int32_t n_rows, float *out, size_t stride, void *scratch)
{
    cpu_product_rows(job->cpu, &(struct product_rows){.weight = &linear->weight,
                                   .first_row = first_row,
                                   .n_rows = n_rows,
                                   .x = x,
                                   .n_cols = job->n,
                                   .out = out,
                                   .out_stride = stride,
                                   .scratch = scratch});
}

static void do_chunk(const struct job *job, int p, int32_t chunk, const struct activations *x, struct workspace *w)
{
    const struct cpu_kernels *k = job->cpu->kernels;
    const struct part *part = &job->parts[p];
    int32_t first = chunk * part->chunk_rows, left = part->linear->weight.n_out - first;
    int32_t n_rows = left < part->chunk_rows ? left : part->chunk_rows, first_rank = 0;
    for (int before = 0; before < p; before++)
        first_rank += ranks_of(job->parts[before].linear) + ranks_of(job->parts[before].up);
    float *out = (part->out != NULL ? part->out : job->kept) + first;
    multiply(job, part->linear, x, first, n_rows, out, job->out_stride, w->scratch);
    finish_linear(job, part->linear, first_rank, first, n_rows, out, job->out_stride);
    if (job->finish == FINISH_GATE) {
        multiply(job, part->up, x, first, n_rows, w->up, (size_t)part->chunk_rows, w->scratch);
        finish_linear(job, part->up, first_rank + ranks_of(part->linear), first, n_rows, w->up, (size_t)part->chunk_rows);
    }
    for (int32_t i = 0; i < job->n; i++) {
        float *row = out + (size_t)i * job->out_stride;
        if (job->finish == FINISH_GATE)
            k->gate(job->activation, row, w->up + (size_t)i * (size_t)part->chunk_rows, n_rows, row);
        else if (job->finish == FINISH_PER_LAYER)
            k->gate(ACTIVATION_GELU_TANH, row, job->per_layer + (size_t)i * job->per_layer_stride + first, n_rows, row);
        else if (job->finish == FINISH_SOFTCAP)
            k->softcap(row, job->cap, n_rows);
    }
}

static void run_product(void *context, int index, int n_threads)
{
    (void)n_threads;
    struct job *job = context;
    struct layout_cursor cursor = {.bytes = job->thread_room + (size_t)index * job->thread_bytes};
    struct workspace w = workspace_at(job, &cursor);
    struct activations *x = job->narrow ? &w.own : &job->shared;
    size_t n = (size_t)job->n;
    if (job->narrow) {
        for (int32_t i = 0; i < job->n; i++)
            prepare_row(job, x, i, index == 0, w.row);
    } else {
        for (size_t i; (i = cpu_next(&job->next_row)) < n;)
            prepare_row(job, x, (int32_t)i, true, w.row);
        threads_barrier(job->cpu->threads);
    }
    if (job->n_ranks > 0) {
        for (size_t i; (i = cpu_next(&job->next_rank)) < n;)
            adapter_ranks(job, x, (int32_t)i);
        threads_barrier(job->cpu->threads);
    }
    size_t first = 0, item = cpu_next(&job->next_chunk);
    for (int p = 0; p < job->n_parts; first += (size_t)job->parts[p++].n_chunks) {
        for (; item < first + (size_t)job->parts[p].n_chunks; item = cpu_next(&job->next_chunk))
            do_chunk(job, p, (int32_t)(item - first), x, &w);
    }
}

// The input: rows of a tensor, as they are.
static struct job job_for(struct ops *ops, struct tensor x)
{
    return (struct job){
        .cpu = (struct cpu *)ops, .n = x.n_rows, .n_in = x.n_cols, .narrow = x.n_rows <= CPU_NARROW_ROWS, .x = cpu_floats(x)};
}

static void add_part(struct job *job, const struct linear *linear, const struct linear *up, float *out)
{
    const struct weight *weight = &linear->weight;
    assert(job->n_parts < MAX_PARTS && weight->n_in == job->n_in && weight->home == WEIGHT_HOST);
    assert(up == NULL || (up->weight.n_in == job->n_in && up->weight.n_out == weight->n_out));
    assert(!linear->clipped || linear->adapters == NULL);
    struct part *part = &job->parts[job->n_parts++];
    *part = (struct part){.linear = linear, .up = up, .out = out};
    part->chunk_rows = cpu_chunk_rows(job->cpu, weight, weight->n_out, job->n);
    part->n_chunks = (weight->n_out + part->chunk_rows - 1) / part->chunk_rows;
    job->needs_q |= !cpu_uses_f32(job->cpu, weight) || (up != NULL && !cpu_uses_f32(job->cpu, &up->weight));
    job->n_ranks += ranks_of(linear) + ranks_of(up);
    if (linear->clipped)
        job->clamps = linear;
}

// Lays out the room, then runs the job. `stream` and `norm` may be NULL. False: no memory, nothing was done.
static bool run_job(struct job *job, struct stream *stream, const struct weight *norm)
{
    struct cpu *cpu = job->cpu;
    struct layout_cursor cursor = {0};
    float *norms[2] = {0};
    for (int pass = 0; pass < 2; pass++) {
        job->kept = cpu_take(&cursor, job->n_kept, sizeof(float));
        for (int i = 0; i < 2; i++)
            norms[i] = cpu_take(&cursor, cpu_padded(job->n_in), sizeof(float));
        if (!job->narrow)
            cpu_take_activations(&cursor, job->n, job->n_in, &job->shared);
        job->ranks = cpu_take(&cursor, (size_t)job->n * (size_t)job->n_ranks, sizeof(float));
        struct layout_cursor thread = {0};
        workspace_at(job, &thread);
        job->thread_bytes = (thread.n_used + 4095) / 4096 * 4096; // no two threads on one page
        job->thread_room = cpu_take(&cursor, (size_t)cpu->n_threads, job->thread_bytes);
        if (pass == 0) {
            cursor.bytes = cpu_room(cpu, cursor.n_used);
            cursor.n_used = 0;
            if (cursor.bytes == NULL)
                return false;
        }
    }
    job->norm = cpu_vector(cpu, norm, norms[0]);
    if (stream != NULL && stream->term.buffer != NULL) {
        struct tensor target = job->narrow ? stream->spare : stream->x;
        job->settles = true;
        job->term = cpu_floats(stream->term);
        job->term_norm = cpu_vector(cpu, stream->term_norm, norms[1]);
        float scale[16];
        job->scale = weight_exists(stream->scale) ? cpu_vector(cpu, stream->scale, scale)[0] : 1;
        job->settled = cpu_floats(target);
    }
    threads_run(cpu->threads, run_product, job);
    return true;
}

// After a job over a stream: the value is in x, the term is gone.
static void stream_settled(struct stream *stream, const struct job *job)
{
    if (job->settles && job->narrow) {
        struct tensor old = stream->x;
        stream->x = stream->spare;
        stream->spare = old;
    }
    stream->term = (struct tensor){0};
    stream->term_norm = NULL;
    stream->scale = NULL;
}

void cpu_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out)
{
    struct job job = job_for(ops, in);
    job.out_stride = (size_t)out.n_cols;
    add_part(&job, linear, NULL, cpu_floats(out));
    run_job(&job, NULL, NULL);
}

void cpu_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    // Bounds on the input differ from part to part, so parts that clamp come one by one.
    bool one_by_one = false;
    for (int p = 0; p < n_parts; p++)
        one_by_one |= parts[p]->clipped;
    float *columns = cpu_floats(out);
    for (int p = 0; p < n_parts;) {
        struct job job = job_for(ops, stream->x);
        job.eps = stream->eps;
        job.out_stride = (size_t)out.n_cols;
        do {
            add_part(&job, parts[p], NULL, columns);
            columns += parts[p]->weight.n_out;
        } while (++p < n_parts && !one_by_one && job.n_parts < MAX_PARTS);
        if (run_job(&job, stream, norm))
            stream_settled(stream, &job);
    }
}

void cpu_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out)
{
    struct job job = job_for(ops, stream->x);
    job.eps = stream->eps;
    job.out_stride = (size_t)out.n_cols;
    job.finish = FINISH_GATE;
    job.activation = activation;
    add_part(&job, gate, up, cpu_floats(out));
    if (run_job(&job, stream, norm))
        stream_settled(stream, &job);
}

void cpu_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct job job = job_for(ops, stream->x);
    job.eps = stream->eps;
    job.out_stride = (size_t)out.n_cols;
    job.finish = FINISH_PER_LAYER;
    job.per_layer = cpu_floats(per_layer) + (size_t)layer * (size_t)out.n_cols;
    job.per_layer_stride = (size_t)per_layer.n_cols;
    add_part(&job, gate, NULL, cpu_floats(out));
    if (run_job(&job, stream, NULL))
        stream_settled(stream, &job);
}

void cpu_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits)
{
    struct job job = job_for(ops, in);
    job.out_stride = (size_t)logits.n_cols;
    job.finish = cap > 0 ? FINISH_SOFTCAP : FINISH_NOTHING;
    job.cap = cap;
    float *out = cpu_floats(logits);
    add_part(&job, table, NULL, out);
    if (!run_job(&job, NULL, NULL))
        return;
    for (int32_t i = 0; i < logits.n_rows; i++) {
        for (int s = 0; s < n_suppressed; s++)
            out[(size_t)i * job.out_stride + (size_t)suppressed[s]] = -3.0e38f;
    }
}

struct combine {
    struct cpu *cpu;
    float *projected; // [n, n_layers * width]
    const float *rows, *norm;
    float *out;
    int32_t n_layers, width;
    float to_unit, eps;
    size_t n_items;
    _Atomic size_t next;
};

// out = (RMS(projected / sqrt(d), norm) + rows) / sqrt(2), one layer of one row at a time.
static void run_combine(void *context, int index, int n_threads)
{
    (void)index, (void)n_threads;
    struct combine *job = context;
    const struct cpu_kernels *k = job->cpu->kernels;
    for (size_t item; (item = cpu_next(&job->next)) < job->n_items;) {
        for (size_t l = item * (size_t)job->n_layers; l < (item + 1) * (size_t)job->n_layers; l++) {
            size_t at = l * (size_t)job->width;
            float *layer = job->projected + at;
            for (int32_t c = 0; c < job->width; c++)
                layer[c] *= job->to_unit;
            k->rms(layer, job->norm, job->eps, job->width, layer);
            k->add_scale(layer, job->rows + at, (float)M_SQRT1_2, job->width, job->out + at);
        }
    }
}

void cpu_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out)
{
    struct job job = job_for(ops, x);
    int32_t width = rows.n_cols / n_layers;
    assert(norm->n_in == width && width * n_layers == rows.n_cols);
    size_t n_floats = (size_t)rows.n_rows * (size_t)rows.n_cols;
    job.n_kept = n_floats + cpu_padded(width);
    job.out_stride = (size_t)rows.n_cols;
    add_part(&job, projection, NULL, NULL);
    if (!run_job(&job, NULL, NULL))
        return;
    struct combine combine = {.cpu = job.cpu,
        .projected = job.kept,
        .rows = cpu_floats(rows),
        .norm = cpu_vector(job.cpu, norm, job.kept + n_floats),
        .out = cpu_floats(out),
        .n_layers = n_layers,
        .width = width,
        .to_unit = 1 / sqrtf((float)x.n_cols),
        .eps = eps,
        .n_items = (size_t)rows.n_rows};
    threads_run(job.cpu->threads, run_combine, &combine);
}
