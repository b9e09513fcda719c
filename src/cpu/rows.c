// rows.c: operations on rows without a product: embedding, copies, norms and the residual stream.

#include <assert.h>
#include <string.h>

#include "cpu/cpu_internal.h"

typedef void row_function(const void *context, size_t row, float *room);

struct row_job {
    const void *context;
    row_function *function;
    size_t n_rows;
    unsigned char *rooms;
    size_t room_bytes;
    _Atomic size_t next;
};

static void run_rows(void *context, int index, int n_threads)
{
    (void)n_threads;
    struct row_job *job = context;
    float *room = (float *)(void *)(job->rooms + (size_t)index * job->room_bytes);
    for (size_t row; (row = cpu_next(&job->next)) < job->n_rows;)
        job->function(job->context, row, room);
}

// Calls the function for every row, each thread with n_room floats of its own at `rooms`; a single row stays in this thread.
static void for_each_row(struct cpu *cpu, row_function *function, const void *context, int32_t n_rows, void *rooms, size_t n_room)
{
    struct row_job job = {
        .context = context, .function = function, .n_rows = (size_t)n_rows, .rooms = rooms, .room_bytes = n_room * sizeof(float)};
    if (n_rows == 1)
        run_rows(&job, 0, 1);
    else
        threads_run(cpu->threads, run_rows, &job);
}

struct embedding {
    const struct cpu *cpu;
    const struct weight *table;
    const int32_t *ids;
    float scale;
    float *out;
};

static void embed_row(const void *context, size_t row, float *room)
{
    const struct embedding *e = context;
    size_t n = (size_t)e->table->n_in;
    assert(e->ids[row] >= 0 && e->ids[row] < e->table->n_out);
    const uint8_t *blocks = (const uint8_t *)e->table->host + (uint64_t)e->ids[row] * e->table->row_bytes;
    e->cpu->kernels->dequantize(e->table->type, blocks, e->table->n_in, room);
    float *out = e->out + row * n;
    for (size_t i = 0; i < n; i++)
        out[i] = room[i] * e->scale;
}

void cpu_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out)
{
    struct cpu *cpu = (struct cpu *)ops;
    assert(table->home == WEIGHT_HOST && table->n_in == out.n_cols);
    size_t n_room = cpu_padded(table->n_in);
    unsigned char *rooms = cpu_room(cpu, (size_t)cpu->n_threads * n_room * sizeof(float));
    if (rooms == NULL)
        return;
    struct embedding e = {.cpu = cpu,
        .table = table,
        .ids = ids->host != NULL ? ids->host : cpu_ints(ids->device),
        .scale = scale,
        .out = cpu_floats(out)};
    for_each_row(cpu, embed_row, &e, out.n_rows, rooms, n_room);
}

void cpu_copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows)
{
    (void)ops;
    assert(src.n_cols == dst.n_cols && first_src + n_rows <= src.n_rows && first_dst + n_rows <= dst.n_rows);
    size_t n = (size_t)src.n_cols;
    memcpy(cpu_floats(dst) + (size_t)first_dst * n, cpu_floats(src) + (size_t)first_src * n, (size_t)n_rows * n * sizeof(float));
}

// out = RMS(a, a_norm) + RMS(b, b_norm), or with `settles` (a + RMS(b, b_norm)) * scale; then RMS(out, norm) into normed.
struct addition {
    const struct cpu_kernels *kernels;
    const float *a, *a_norm, *b, *b_norm, *norm;
    bool norms_a, norms_b;
    float scale, eps;
    int32_t n;
    float *out, *normed;
};

static void add_row(const void *context, size_t row, float *room)
{
    const struct addition *add = context;
    const struct cpu_kernels *k = add->kernels;
    int32_t n = add->n;
    size_t at = row * (size_t)n;
    const float *a = add->a + at, *b = add->b != NULL ? add->b + at : NULL;
    if (add->norms_a) {
        k->rms(a, add->a_norm, add->eps, n, room);
        a = room;
    }
    if (add->norms_b) {
        k->rms(b, add->b_norm, add->eps, n, room + cpu_padded(n));
        b = room + cpu_padded(n);
    }
    if (b != NULL) {
        k->add_scale(a, b, add->scale, n, add->out + at);
        a = add->out + at;
    }
    if (add->normed != NULL)
        k->rms(a, add->norm, add->eps, n, add->normed + at);
}

// Runs the addition; vectors are looked up first, in the room.
static bool run_addition(struct cpu *cpu, struct addition *add, const struct weight *a_norm, const struct weight *b_norm,
    const struct weight *norm, int32_t n_rows)
{
    size_t padded = cpu_padded(add->n);
    float *room = (float *)(void *)cpu_room(cpu, (3 + 2 * (size_t)cpu->n_threads) * padded * sizeof(float));
    if (room == NULL)
        return false;
    add->kernels = cpu->kernels;
    add->a_norm = cpu_vector(cpu, a_norm, room);
    add->b_norm = cpu_vector(cpu, b_norm, room + padded);
    add->norm = cpu_vector(cpu, norm, room + 2 * padded);
    add->norms_a = add->a_norm != NULL;
    add->norms_b = add->b_norm != NULL;
    for_each_row(cpu, add_row, add, n_rows, room + 3 * padded, 2 * padded);
    return true;
}

void cpu_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out)
{
    struct addition add = {.a = cpu_floats(a), .b = cpu_floats(b), .scale = 1, .eps = eps, .n = a.n_cols, .out = cpu_floats(out)};
    run_addition((struct cpu *)ops, &add, a_norm, b_norm, NULL, a.n_rows);
}

// Settles the stream and, when `normed` is not NULL, norms its rows into it.
static void settle_and_norm(struct ops *ops, struct stream *stream, const struct weight *norm, float *normed)
{
    struct cpu *cpu = (struct cpu *)ops;
    bool pending = stream->term.buffer != NULL;
    float scale[16];
    struct addition add = {.a = cpu_floats(stream->x),
        .b = pending ? cpu_floats(stream->term) : NULL,
        .scale = pending && weight_exists(stream->scale) ? cpu_vector(cpu, stream->scale, scale)[0] : 1,
        .eps = stream->eps,
        .n = stream->x.n_cols,
        .out = cpu_floats(stream->x),
        .normed = normed};
    if (!run_addition(cpu, &add, NULL, pending ? stream->term_norm : NULL, norm, stream->x.n_rows))
        return;
    stream->term = (struct tensor){0};
    stream->term_norm = NULL;
    stream->scale = NULL;
}

void cpu_settle(struct ops *ops, struct stream *stream)
{
    if (stream->term.buffer != NULL)
        settle_and_norm(ops, stream, NULL, NULL);
}

void cpu_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out)
{
    settle_and_norm(ops, stream, norm, cpu_floats(out));
}
