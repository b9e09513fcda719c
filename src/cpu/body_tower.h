// body_tower.h: the bodies of the towers' kernels; included once by each tower_<isa>.c after its simd_*.h.

#ifndef CARAT_CPU_BODY_TOWER_H
#define CARAT_CPU_BODY_TOWER_H

#include <math.h>
#include <string.h>

#include "cpu/body_math.h"
#include "cpu/tower_kernels.h"

// The register tile: 2 vectors times TILE_ROWS rows. VALUE_COLS is the tile of attention over values.
enum { PANEL = 2 * LANES, TILE_ROWS = LANES == 16 ? 12 : LANES == 8 ? 6 : 4, VALUE_COLS = LANES == 16 ? 8 : 4 };

typedef vf tile_sums[TILE_ROWS][2];

// sums[r] += sum over i of row_r[i] * panel[i], for n_rows (a constant <= TILE_ROWS) rows.
INLINE void add_tile(const float *panel, const float *rows, size_t stride, int32_t n_in, int n_rows, tile_sums sums)
{
    for (int32_t i = 0; i < n_in; i++) {
        vf w0 = vf_load(panel + (size_t)i * PANEL), w1 = vf_load(panel + (size_t)i * PANEL + LANES);
#pragma GCC unroll 12
        for (int r = 0; r < n_rows; r++) {
            vf x = vf_set1(rows[(size_t)r * stride + (size_t)i]);
            sums[r][0] = vf_fma(x, w0, sums[r][0]);
            sums[r][1] = vf_fma(x, w1, sums[r][1]);
        }
    }
}

INLINE void clear_tile(int n_rows, tile_sums sums)
{
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++)
        sums[r][0] = sums[r][1] = vf_set1(0);
}

INLINE vf finished(vf x, const struct tower_finish *finish, int at)
{
    if (finish->bias != NULL)
        x = x + vf_load(finish->bias + at);
    return finish->clamps ? vf_max(vf_min(x, vf_set1(finish->high)), vf_set1(finish->low)) : x;
}

INLINE void store_panel(float *out, vf x0, vf x1, int32_t n)
{
    if (n == PANEL) {
        vf_store(out, x0);
        vf_store(out + LANES, x1);
        return;
    }
    float both[PANEL];
    vf_store(both, x0);
    vf_store(both + LANES, x1);
    memcpy(out, both, (size_t)n * sizeof(float));
}

// Sums of a block of rows: [TOWER_MAX_ROWS][PANEL].
typedef float block_sums[TOWER_MAX_ROWS][PANEL];

INLINE void add_rows(
    const float *panel, const float *rows, size_t stride, int32_t n_in, int n_rows, float (*to)[PANEL], bool first)
{
    tile_sums sums;
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++) {
        sums[r][0] = first ? vf_set1(0) : vf_load(to[r]);
        sums[r][1] = first ? vf_set1(0) : vf_load(to[r] + LANES);
    }
    add_tile(panel, rows, stride, n_in, n_rows, sums);
#pragma GCC unroll 12
    for (int r = 0; r < n_rows; r++) {
        vf_store(to[r], sums[r][0]);
        vf_store(to[r] + LANES, sums[r][1]);
    }
}

static void sum_block(const float *panel, const float *rows, size_t stride, int32_t n_in, int32_t n_rows, float (*sums)[PANEL])
{
    for (int32_t from = 0; from < n_in; from += TOWER_DEPTH) {
        int32_t depth = n_in - from < TOWER_DEPTH ? n_in - from : TOWER_DEPTH, r = 0;
        const float *stretch = panel + (size_t)from * PANEL, *x = rows + from;
        for (; r + TILE_ROWS <= n_rows; r += TILE_ROWS)
            add_rows(stretch, x + (size_t)r * stride, stride, depth, TILE_ROWS, sums + r, from == 0);
        for (; r + 4 <= n_rows; r += 4)
            add_rows(stretch, x + (size_t)r * stride, stride, depth, 4, sums + r, from == 0);
        for (; r < n_rows; r++)
            add_rows(stretch, x + (size_t)r * stride, stride, depth, 1, sums + r, from == 0);
    }
}

static void multiply(const struct tower_product *p)
{
    _Alignas(64) block_sums sums, up_sums;
    sum_block(p->panel, p->rows, p->row_stride, p->n_in, p->n_rows, sums);
    if (p->up_panel != NULL)
        sum_block(p->up_panel, p->up_rows, p->row_stride, p->n_in, p->n_rows, up_sums);
    for (int32_t r = 0; r < p->n_rows; r++) {
        vf x[2];
        for (int v = 0; v < 2; v++) {
            x[v] = finished(vf_load(sums[r] + v * LANES), &p->finish, v * LANES);
            x[v] = p->silu ? vf_activate(ACTIVATION_SILU, x[v]) : x[v];
            if (p->up_panel != NULL)
                x[v] = vf_activate(p->activation, x[v]) * finished(vf_load(up_sums[r] + v * LANES), &p->up_finish, v * LANES);
        }
        store_panel(p->out + (size_t)r * p->out_stride, x[0], x[1], p->n_outputs);
    }
}

typedef float f4 __attribute__((vector_size(16)));

// Four rows of four numbers, turned over.
INLINE void pack_4x4(const float *rows, size_t row_stride, float *panel)
{
    f4 x[4];
    for (int r = 0; r < 4; r++)
        memcpy(&x[r], rows + (size_t)r * row_stride, sizeof x[r]);
    f4 low01 = __builtin_shufflevector(x[0], x[1], 0, 4, 1, 5), high01 = __builtin_shufflevector(x[0], x[1], 2, 6, 3, 7);
    f4 low23 = __builtin_shufflevector(x[2], x[3], 0, 4, 1, 5), high23 = __builtin_shufflevector(x[2], x[3], 2, 6, 3, 7);
    f4 columns[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5), __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
        __builtin_shufflevector(high01, high23, 0, 1, 4, 5), __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
    for (int i = 0; i < 4; i++)
        memcpy(panel + i * PANEL, &columns[i], sizeof columns[i]);
}

static void pack(const float *rows, size_t row_stride, int32_t n_rows, int32_t n_in, float *panel)
{
    int32_t whole_rows = n_rows / 4 * 4, whole_in = n_in / 4 * 4;
    if (n_rows < PANEL)
        memset(panel, 0, (size_t)n_in * PANEL * sizeof(float));
    for (int32_t i = 0; i < whole_in; i += 4) {
        for (int32_t r = 0; r < whole_rows; r += 4)
            pack_4x4(rows + (size_t)r * row_stride + (size_t)i, row_stride, panel + (size_t)i * PANEL + (size_t)r);
    }
    for (int32_t i = 0; i < n_in; i++) {
        for (int32_t r = i < whole_in ? whole_rows : 0; r < n_rows; r++)
            panel[(size_t)i * PANEL + (size_t)r] = rows[(size_t)r * row_stride + (size_t)i];
    }
}

// --- attention ---

// Where a block of queries stands: sums of values so far [head_dim][PANEL], and per query the largest score and the total weight.
struct attend_lanes {
    const float *q; // [head_dim][PANEL]
    float *sums;    // [head_dim][PANEL]
    float *scores;  // [TOWER_KEY_BLOCK][PANEL]
    vf largest[2], total[2];
};

INLINE void score_keys(const struct tower_attend *a, const struct attend_lanes *s, int32_t first, int32_t key, int n, vf top[2])
{
    tile_sums sums;
    clear_tile(n, sums);
    add_tile(s->q, a->k + (size_t)(first + key) * a->kv_stride, a->kv_stride, a->head_dim, n, sums);
#pragma GCC unroll 12
    for (int r = 0; r < n; r++) {
        for (int v = 0; v < 2; v++) {
            vf_store(s->scores + (size_t)(key + r) * PANEL + v * LANES, sums[r][v]);
            top[v] = vf_max(top[v], sums[r][v]);
        }
    }
}

// Turns the scores of n keys into weights; returns by how much the earlier sums shrink.
INLINE void soften(struct attend_lanes *s, int32_t n, const vf top[2], vf shrink[2])
{
    for (int v = 0; v < 2; v++) {
        vf largest = vf_max(s->largest[v], top[v]), total = vf_set1(0);
        shrink[v] = vf_exp(s->largest[v] - largest);
        for (int32_t key = 0; key < n; key++) {
            float *score = s->scores + (size_t)key * PANEL + v * LANES;
            vf weight = vf_exp(vf_load(score) - largest);
            vf_store(score, weight);
            total = total + weight;
        }
        s->largest[v] = largest;
        s->total[v] = vf_fma(s->total[v], shrink[v], total);
    }
}

// sums[d] = sums[d] * shrink + sum over keys of weight * value[d], for n (a constant <= VALUE_COLS) elements from `at` on.
INLINE void add_values(const struct tower_attend *a, const struct attend_lanes *s, int32_t first, int32_t n_keys, int32_t at,
    int n, const vf shrink[2])
{
    vf sums[VALUE_COLS][2];
    float *to = s->sums + (size_t)at * PANEL;
    const float *value = a->v + (size_t)first * a->kv_stride + at;
#pragma GCC unroll 8
    for (int d = 0; d < n; d++) {
        sums[d][0] = vf_load(to + d * PANEL) * shrink[0];
        sums[d][1] = vf_load(to + d * PANEL + LANES) * shrink[1];
    }
    for (int32_t key = 0; key < n_keys; key++, value += a->kv_stride) {
        vf w0 = vf_load(s->scores + (size_t)key * PANEL), w1 = vf_load(s->scores + (size_t)key * PANEL + LANES);
#pragma GCC unroll 8
        for (int d = 0; d < n; d++) {
            vf x = vf_set1(value[d]);
            sums[d][0] = vf_fma(x, w0, sums[d][0]);
            sums[d][1] = vf_fma(x, w1, sums[d][1]);
        }
    }
#pragma GCC unroll 8
    for (int d = 0; d < n; d++) {
        vf_store(to + d * PANEL, sums[d][0]);
        vf_store(to + d * PANEL + LANES, sums[d][1]);
    }
}

static void attend_block(const struct tower_attend *a, struct attend_lanes *s, int32_t first, int32_t n)
{
    vf top[2] = {vf_set1(-3.4e38f), vf_set1(-3.4e38f)}, shrink[2];
    int32_t key = 0, d = 0;
    for (; key + TILE_ROWS <= n; key += TILE_ROWS)
        score_keys(a, s, first, key, TILE_ROWS, top);
    for (; key < n; key++)
        score_keys(a, s, first, key, 1, top);
    soften(s, n, top, shrink);
    for (; d + VALUE_COLS <= a->head_dim; d += VALUE_COLS)
        add_values(a, s, first, n, d, VALUE_COLS, shrink);
    for (; d < a->head_dim; d++)
        add_values(a, s, first, n, d, 1, shrink);
}

static void attend(const struct tower_attend *a)
{
    float *q = a->scratch;
    struct attend_lanes s = {.q = q,
        .sums = q + (size_t)a->head_dim * PANEL,
        .scores = q + 2 * (size_t)a->head_dim * PANEL,
        .largest = {vf_set1(-3.4e38f), vf_set1(-3.4e38f)},
        .total = {vf_set1(0), vf_set1(0)}};
    pack(a->q, a->q_stride, a->n_queries, a->head_dim, q);
    memset(s.sums, 0, (size_t)a->head_dim * PANEL * sizeof(float));
    for (int32_t first = 0; first < a->n_keys; first += TOWER_KEY_BLOCK)
        attend_block(a, &s, first, a->n_keys - first < TOWER_KEY_BLOCK ? a->n_keys - first : TOWER_KEY_BLOCK);
    float total[PANEL];
    vf_store(total, s.total[0]);
    vf_store(total + LANES, s.total[1]);
    for (int32_t i = 0; i < a->n_queries; i++) {
        float factor = 1 / total[i];
        for (int32_t d = 0; d < a->head_dim; d++)
            a->out[(size_t)i * a->out_stride + (size_t)d] = s.sums[(size_t)d * PANEL + (size_t)i] * factor;
    }
}

// --- rows ---

INLINE vf load_upto(const float *x, int32_t n)
{
    return n >= LANES ? vf_load(x) : vf_load_part(x, n);
}

INLINE void store_upto(float *out, vf x, int32_t n)
{
    if (n >= LANES)
        vf_store(out, x);
    else
        vf_store_part(out, x, n);
}

static void clamp(const float *x, float low, float high, int64_t n, float *out)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store(out + i, vf_max(vf_min(vf_load(x + i), vf_set1(high)), vf_set1(low)));
    for (; i < n; i++)
        out[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

static void glu(const float *x, const float *gate, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i += LANES)
        store_upto(out + i, vf_times_sigmoid(load_upto(x + i, n - i), load_upto(gate + i, n - i)), n - i);
}

static void silu(float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += LANES)
        store_upto(x + i, vf_activate(ACTIVATION_SILU, load_upto(x + i, n - i)), n - i);
}

static void layer_norm(const float *x, const float *weight, const float *bias, float eps, bool relu, int32_t n, float *out)
{
    vf sum = vf_set1(0), squares = vf_set1(0);
    for (int32_t i = 0; i < n; i += LANES)
        sum = sum + load_upto(x + i, n - i);
    float mean = vf_sum(sum) / (float)n;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf difference = vf_load(x + i) - vf_set1(mean);
        squares = vf_fma(difference, difference, squares);
    }
    float variance = vf_sum(squares);
    for (; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean);
    float factor = 1 / sqrtf(variance / (float)n + eps);
    for (i = 0; i < n; i += LANES) {
        vf y = (load_upto(x + i, n - i) - vf_set1(mean)) * vf_set1(factor) * load_upto(weight + i, n - i);
        y = bias != NULL ? y + load_upto(bias + i, n - i) : y;
        store_upto(out + i, relu ? vf_max(y, vf_set1(0)) : y, n - i);
    }
}

#define TOWER_KERNELS_OF_THE_BODY                                                                                                \
    {.panel = PANEL,                                                                                                             \
        .pack = pack,                                                                                                            \
        .multiply = multiply,                                                                                                    \
        .attend = attend,                                                                                                        \
        .clamp = clamp,                                                                                                          \
        .glu = glu,                                                                                                              \
        .silu = silu,                                                                                                            \
        .layer_norm = layer_norm}

#endif
