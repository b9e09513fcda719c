// attend.c: attention of one text layer: query, key and value norms, RoPE, storing keys and values, softmax.
//
// The queries of one key head form tiles of up to CPU_QUERY_TILE rows (positions times heads of the group), so that a key is read
// once for all of them. Softmax is formed over blocks of 64 keys, blocks are merged into spans and spans into the result, at
// fixed positions: a query's result is the same whether it came in a batch or alone, and whether one thread did all spans (many
// tiles) or several did one each (decoding).

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

enum { SPAN_GLOBAL = 256, SPAN_WINDOW = CPU_KEY_BLOCK, HEADS_PER_ITEM = 8 };

struct attend_job {
    struct cpu *cpu;
    const struct attention *a;
    float *qkv, *out;
    const float *rope;
    const float *q_norm, *k_norm;
    const int32_t *last_key; // or NULL
    size_t n_rows, row_cols;
    int32_t group;                  // query heads of one key head
    size_t n_heads_prepared;        // heads of a row that the first phase has to do
    size_t tiles_per_head, n_tiles; // n_tiles: of all key heads
    int32_t span;                   // keys
    bool by_span;                   // one item is one span of a tile instead of a whole tile
    int32_t spans_per_tile;         // most of any tile, when by_span
    struct attend_state *states;    // by_span: [n_tiles, spans_per_tile]
    unsigned char *thread_room;
    size_t thread_bytes;
    _Atomic size_t next_head, next_span, next_tile;
};

static void *kv_row(const struct buffer *buffer, const struct kv_layer *kv, int32_t position, int32_t kv_head, int32_t head_dim)
{
    size_t elem = (size_t)(position % kv->capacity) * (size_t)kv->row_elems + (size_t)kv_head * (size_t)head_dim;
    assert((elem + (size_t)head_dim) * (kv->is_f32 ? 4 : 2) <= buffer->n_bytes);
    return buffer->bytes + elem * (kv->is_f32 ? 4 : 2);
}

static void store_kv(const struct attend_job *job, const struct buffer *buffer, size_t row, int32_t kv_head, const float *values)
{
    const struct attention *a = job->a;
    void *target = kv_row(buffer, a->kv, a->first_position + (int32_t)row, kv_head, a->head_dim);
    if (a->kv->is_f32)
        memcpy(target, values, (size_t)a->head_dim * sizeof *values);
    else
        job->cpu->kernels->to_f16(values, a->head_dim, target);
}

// Norms and rotates one query head in place, or norms, rotates and stores one key head with its values.
static void prepare_head(const struct attend_job *job, size_t row, int32_t head, float *room)
{
    const struct attention *a = job->a;
    const struct cpu_kernels *k = job->cpu->kernels;
    int32_t n = a->head_dim;
    float *x = job->qkv + row * job->row_cols + (size_t)head * (size_t)n;
    const float *rope = job->rope + row * (size_t)n;
    if (head < a->n_heads) {
        k->rms(x, job->q_norm, a->eps, n, x);
        k->rotate(x, rope, n);
        return;
    }
    const float *v = a->v_is_k ? x : x + (size_t)a->n_kv_heads * (size_t)n;
    k->rms(v, NULL, a->eps, n, room);
    store_kv(job, a->kv->v, row, head - a->n_heads, room);
    k->rms(x, job->k_norm, a->eps, n, room);
    k->rotate(room, rope, n);
    store_kv(job, a->kv->k, row, head - a->n_heads, room);
}

struct tile {
    int32_t kv_head, n_queries;
    int32_t low, high; // positions that any of its queries sees
    size_t rows[CPU_QUERY_TILE];
    int32_t heads[CPU_QUERY_TILE];
    struct attend_block block; // queries and their bounds
};

static void tile_make(const struct attend_job *job, size_t index, struct tile *tile)
{
    const struct attention *a = job->a;
    size_t n_queries = job->n_rows * (size_t)job->group, first = index % job->tiles_per_head * CPU_QUERY_TILE;
    tile->kv_head = (int32_t)(index / job->tiles_per_head);
    tile->n_queries = n_queries - first < CPU_QUERY_TILE ? (int32_t)(n_queries - first) : CPU_QUERY_TILE;
    tile->low = INT32_MAX;
    tile->high = 0;
    tile->block.head_dim = a->head_dim;
    tile->block.n_queries = tile->n_queries;
    tile->block.is_f32 = a->kv->is_f32;
    for (int32_t q = 0; q < tile->n_queries; q++) {
        size_t row = (first + (size_t)q) / (size_t)job->group;
        int32_t head = tile->kv_head * job->group + (int32_t)((first + (size_t)q) % (size_t)job->group);
        int32_t position = a->first_position + (int32_t)row;
        int32_t high = job->last_key != NULL ? job->last_key[row] : position;
        int32_t low = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
        assert(high >= position && high - low < a->kv->capacity);
        tile->rows[q] = row;
        tile->heads[q] = head;
        tile->block.query[q] = job->qkv + row * job->row_cols + (size_t)head * (size_t)a->head_dim;
        tile->block.low[q] = low;
        tile->block.high[q] = high;
        tile->low = low < tile->low ? low : tile->low;
        tile->high = high > tile->high ? high : tile->high;
    }
}

static void state_clear(struct attend_state *state, int32_t head_dim)
{
    for (int q = 0; q < CPU_QUERY_TILE; q++) {
        state->largest[q] = -INFINITY;
        state->total[q] = 0;
    }
    memset(state->sum, 0, CPU_QUERY_TILE * (size_t)head_dim * sizeof *state->sum);
}

// *state = softmax over the keys of one span, positions `first` to `last`, which may start and end inside a block.
static void attend_span(const struct attend_job *job, struct tile *tile, int32_t first, int32_t last,
    struct attend_state *block_state, struct attend_state *state)
{
    const struct attention *a = job->a;
    const struct cpu_kernels *k = job->cpu->kernels;
    state_clear(state, a->head_dim);
    for (int32_t s = first; s <= last;) {
        int32_t end = (s / CPU_KEY_BLOCK + 1) * CPU_KEY_BLOCK;
        end = end <= last ? end : last + 1;
        int32_t start = s / CPU_KEY_BLOCK * CPU_KEY_BLOCK;
        tile->block.first = start;
        tile->block.skip = s - start;
        tile->block.n_keys = end - start;
        for (int32_t i = s - start; i < end - start; i++) {
            tile->block.keys[i] = kv_row(a->kv->k, a->kv, start + i, tile->kv_head, a->head_dim);
            tile->block.values[i] = kv_row(a->kv->v, a->kv, start + i, tile->kv_head, a->head_dim);
        }
        k->attend(&tile->block, block_state);
        k->merge(state, block_state, tile->n_queries, a->head_dim);
        s = end;
    }
}

static void tile_finish(const struct attend_job *job, const struct tile *tile, const struct attend_state *state)
{
    const struct attention *a = job->a;
    size_t n = (size_t)a->head_dim;
    for (int32_t q = 0; q < tile->n_queries; q++) {
        float *out = job->out + (tile->rows[q] * (size_t)a->n_heads + (size_t)tile->heads[q]) * n;
        float factor = 1 / state->total[q];
        for (size_t i = 0; i < n; i++)
            out[i] = state->sum[(size_t)q * n + i] * factor;
    }
}

struct workspace {
    float *head; // [head_dim]
    struct attend_state block, span, total;
};

static struct workspace workspace_at(const struct attend_job *job, struct layout_cursor *cursor)
{
    struct workspace w;
    size_t n = (size_t)job->a->head_dim;
    w.head = cpu_take(cursor, n, sizeof(float));
    w.block.sum = cpu_take(cursor, CPU_QUERY_TILE * n, sizeof(float));
    w.span.sum = cpu_take(cursor, CPU_QUERY_TILE * n, sizeof(float));
    w.total.sum = cpu_take(cursor, CPU_QUERY_TILE * n, sizeof(float));
    return w;
}

// Span number s of the tile: its first and last key. False when the tile has no such span.
static bool span_bounds(const struct attend_job *job, const struct tile *tile, int32_t s, int32_t *first, int32_t *last)
{
    int32_t start = tile->low / job->span * job->span + s * job->span;
    if (start > tile->high)
        return false;
    *first = start > tile->low ? start : tile->low;
    *last = tile->high - start < job->span ? tile->high : start + job->span - 1;
    return true;
}

static void whole_tiles(struct attend_job *job, struct workspace *w)
{
    const struct attention *a = job->a;
    struct tile tile;
    for (size_t t; (t = cpu_next(&job->next_tile)) < job->n_tiles;) {
        tile_make(job, t, &tile);
        state_clear(&w->total, a->head_dim);
        for (int32_t s = 0, first, last; span_bounds(job, &tile, s, &first, &last); s++) {
            attend_span(job, &tile, first, last, &w->block, &w->span);
            job->cpu->kernels->merge(&w->total, &w->span, tile.n_queries, a->head_dim);
        }
        tile_finish(job, &tile, &w->total);
    }
}

static void single_spans(struct attend_job *job, struct workspace *w)
{
    const struct attention *a = job->a;
    struct tile tile;
    size_t per_tile = (size_t)job->spans_per_tile;
    for (size_t item; (item = cpu_next(&job->next_span)) < job->n_tiles * per_tile;) {
        int32_t first, last;
        tile_make(job, item / per_tile, &tile);
        if (span_bounds(job, &tile, (int32_t)(item % per_tile), &first, &last))
            attend_span(job, &tile, first, last, &w->block, &job->states[item]);
        else
            state_clear(&job->states[item], a->head_dim);
    }
    threads_barrier(job->cpu->threads);
    for (size_t t; (t = cpu_next(&job->next_tile)) < job->n_tiles;) {
        tile_make(job, t, &tile);
        state_clear(&w->total, a->head_dim);
        for (size_t s = 0; s < per_tile; s++)
            job->cpu->kernels->merge(&w->total, &job->states[t * per_tile + s], tile.n_queries, a->head_dim);
        tile_finish(job, &tile, &w->total);
    }
}

static void run_attend(void *context, int index, int n_threads)
{
    (void)n_threads;
    struct attend_job *job = context;
    struct layout_cursor cursor = {.bytes = job->thread_room + (size_t)index * job->thread_bytes};
    struct workspace w = workspace_at(job, &cursor);
    size_t n_heads = job->n_rows * job->n_heads_prepared;
    size_t step = job->n_rows == 1 ? 1 : HEADS_PER_ITEM;
    for (size_t item; (item = cpu_next(&job->next_head) * step) < n_heads;) {
        for (size_t h = item; h < item + step && h < n_heads; h++)
            prepare_head(job, h / job->n_heads_prepared, (int32_t)(h % job->n_heads_prepared), w.head);
    }
    threads_barrier(job->cpu->threads);
    if (job->by_span)
        single_spans(job, &w);
    else
        whole_tiles(job, &w);
}

// The most spans that a tile can have: keys lie between its lowest and its highest visible position.
static int32_t most_spans(const struct attend_job *job)
{
    int32_t most = 0;
    struct tile tile;
    for (size_t t = 0; t < job->n_tiles; t++) {
        tile_make(job, t, &tile);
        int32_t n = tile.high / job->span - tile.low / job->span + 1;
        most = n > most ? n : most;
    }
    return most;
}

static bool attend_layout(struct attend_job *job)
{
    const struct attention *a = job->a;
    struct cpu *cpu = job->cpu;
    struct layout_cursor cursor = {0};
    size_t n = (size_t)a->head_dim, n_states = job->by_span ? job->n_tiles * (size_t)job->spans_per_tile : 0;
    float *norms[2], *sums = NULL;
    for (int pass = 0; pass < 2; pass++) {
        norms[0] = cpu_take(&cursor, cpu_padded(a->head_dim), sizeof(float));
        norms[1] = cpu_take(&cursor, cpu_padded(a->head_dim), sizeof(float));
        job->states = cpu_take(&cursor, n_states, sizeof *job->states);
        sums = cpu_take(&cursor, n_states * CPU_QUERY_TILE * n, sizeof *sums);
        struct layout_cursor thread = {0};
        workspace_at(job, &thread);
        job->thread_bytes = (thread.n_used + 4095) / 4096 * 4096;
        job->thread_room = cpu_take(&cursor, (size_t)cpu->n_threads, job->thread_bytes);
        if (pass == 0) {
            cursor.bytes = cpu_room(cpu, cursor.n_used);
            cursor.n_used = 0;
            if (cursor.bytes == NULL)
                return false;
        }
    }
    for (size_t s = 0; s < n_states; s++)
        job->states[s].sum = sums + s * CPU_QUERY_TILE * n;
    job->q_norm = cpu_vector(cpu, a->q_norm, norms[0]);
    job->k_norm = a->writes_kv ? cpu_vector(cpu, a->k_norm, norms[1]) : NULL;
    return true;
}

void cpu_attend(struct ops *ops, struct tensor qkv, const struct attention *a, struct tensor out)
{
    struct cpu *cpu = (struct cpu *)ops;
    int32_t n_kv = a->writes_kv ? a->n_kv_heads : 0;
    assert(qkv.n_cols == (a->n_heads + (a->v_is_k ? 1 : 2) * n_kv) * a->head_dim);
    assert(a->kv->row_elems == a->n_kv_heads * a->head_dim && (a->n_heads == 0 || out.n_cols == a->n_heads * a->head_dim));
    struct attend_job job = {.cpu = cpu,
        .a = a,
        .qkv = cpu_floats(qkv),
        .out = a->n_heads > 0 ? cpu_floats(out) : NULL,
        .rope = cpu_floats(a->rope),
        .last_key = a->last_key.buffer != NULL ? cpu_ints(a->last_key) : NULL,
        .n_rows = (size_t)qkv.n_rows,
        .row_cols = (size_t)qkv.n_cols,
        .group = a->n_heads / a->n_kv_heads,
        .n_heads_prepared = (size_t)(a->n_heads + n_kv),
        .span = a->window > 0 ? SPAN_WINDOW : SPAN_GLOBAL};
    job.tiles_per_head = (job.n_rows * (size_t)job.group + CPU_QUERY_TILE - 1) / CPU_QUERY_TILE;
    job.n_tiles = job.tiles_per_head * (size_t)a->n_kv_heads;
    job.by_span = cpu->n_threads > 1 && job.n_tiles < 4 * (size_t)cpu->n_threads;
    if (job.by_span)
        job.spans_per_tile = most_spans(&job);
    if (attend_layout(&job))
        threads_run(cpu->threads, run_attend, &job);
}
