// body_attend.h: softmax over a block of keys, for queries that share a key head.

#ifndef CARAT_CPU_BODY_ATTEND_H
#define CARAT_CPU_BODY_ATTEND_H

#include <math.h>
#include <string.h>

#include "cpu/body_math.h"
#include "cpu/body_rows.h"

INLINE vf load_kv(const void *row, int32_t i, int32_t n, bool is_f32)
{
    if (n - i >= LANES)
        return is_f32 ? vf_load((const float *)row + i) : vf_load_f16((const uint16_t *)row + i);
    float part[LANES] = {0};
    for (int32_t j = 0; j < n - i; j++)
        part[j] = is_f32 ? ((const float *)row)[i + j] : f32_from_f16(((const uint16_t *)row)[i + j]);
    return vf_load(part);
}

// KEYS_AHEAD: how far ahead of the key that is read the next ones are asked for, in 16-bit elements.
enum { SCORE_KEYS = 2, VALUE_VECTORS = 2, KEYS_AHEAD = 4096, ELEMENTS_OF_LINE = 32 };

// Asks for a line of two values, which are walked column by column after the keys, and of keys to come: no processor foresees
// where rows of either go on. An address beyond the cache does no harm.
INLINE void ask_ahead(const struct attend_block *b, int key, int second, int32_t i)
{
    const int pair[SCORE_KEYS] = {key, second};
    for (int k = 0; k < SCORE_KEYS; k++) {
        __builtin_prefetch((const uint16_t *)b->values[pair[k]] + i, 0, 2);
        __builtin_prefetch((const void *)((uintptr_t)b->keys[pair[k]] + 2 * (uintptr_t)(i + KEYS_AHEAD)));
    }
}

// scores[q][k] for n_q queries (a constant <= SCORE_ROWS) and two keys.
INLINE void score_pair(
    const struct attend_block *b, int first_query, int n_q, int key, float (*scores)[CPU_KEY_BLOCK], bool is_f32)
{
    vf sums[SCORE_ROWS][SCORE_KEYS];
    int second = key + 1 < b->n_keys ? key + 1 : key; // an odd last key is computed twice
    const void *keys[SCORE_KEYS] = {b->keys[key], b->keys[second]};
    for (int q = 0; q < n_q; q++)
        sums[q][0] = sums[q][1] = vf_set1(0);
    for (int32_t i = 0; i < b->head_dim; i += LANES) {
        if (!is_f32 && i % ELEMENTS_OF_LINE == 0)
            ask_ahead(b, key, second, i);
        vf k0 = load_kv(keys[0], i, b->head_dim, is_f32), k1 = load_kv(keys[1], i, b->head_dim, is_f32);
        for (int q = 0; q < n_q; q++) {
            vf x = load_at(b->query[first_query + q], i, b->head_dim);
            sums[q][0] = vf_fma(x, k0, sums[q][0]);
            sums[q][1] = vf_fma(x, k1, sums[q][1]);
        }
    }
    for (int q = 0; q < n_q; q++) {
        scores[first_query + q][key] = vf_sum(sums[q][0]);
        scores[first_query + q][second] = vf_sum(sums[q][1]);
    }
}

// sum[q] += weights[q][k] * value k, for n_q queries (a constant <= SCORE_ROWS) and VALUE_VECTORS vectors from element i on.
INLINE void add_values(const struct attend_block *b, int first_query, int n_q, float (*weights)[CPU_KEY_BLOCK], int32_t i,
    int n_vectors, bool is_f32, struct attend_state *state)
{
    vf sums[SCORE_ROWS][VALUE_VECTORS];
    for (int q = 0; q < n_q; q++) {
        for (int v = 0; v < n_vectors; v++)
            sums[q][v] = vf_set1(0);
    }
    for (int k = b->skip; k < b->n_keys; k++) {
        vf values[VALUE_VECTORS];
        for (int v = 0; v < n_vectors; v++)
            values[v] = load_kv(b->values[k], i + v * LANES, b->head_dim, is_f32);
        for (int q = 0; q < n_q; q++) {
            vf weight = vf_set1(weights[first_query + q][k]);
            for (int v = 0; v < n_vectors; v++)
                sums[q][v] = vf_fma(weight, values[v], sums[q][v]);
        }
    }
    for (int q = 0; q < n_q; q++) {
        float *out = state->sum + (size_t)(first_query + q) * (size_t)b->head_dim;
        for (int v = 0; v < n_vectors; v++)
            store_at(out, sums[q][v], i + v * LANES, b->head_dim);
    }
}

INLINE void add_all_values(const struct attend_block *b, int first_query, int n_q, float (*weights)[CPU_KEY_BLOCK], bool is_f32,
    struct attend_state *state)
{
    int32_t i = 0;
    for (; i + VALUE_VECTORS * LANES <= b->head_dim; i += VALUE_VECTORS * LANES)
        add_values(b, first_query, n_q, weights, i, VALUE_VECTORS, is_f32, state);
    for (; i < b->head_dim; i += LANES)
        add_values(b, first_query, n_q, weights, i, 1, is_f32, state);
}

// Scores of one query become exp(score - largest), 0 where the query may not look.
INLINE void soften(const struct attend_block *b, int q, float *scores, struct attend_state *state)
{
    float top = -INFINITY;
    for (int k = 0; k < b->skip; k++)
        scores[k] = -INFINITY;
    for (int k = b->skip; k < b->n_keys; k++) {
        bool seen = b->first + k >= b->low[q] && b->first + k <= b->high[q];
        if (!seen)
            scores[k] = -INFINITY;
        else if (!(scores[k] <= top))
            top = scores[k]; // NaN comes through and stays in the sum
    }
    float total = 0;
    for (int k = b->n_keys; k < CPU_KEY_BLOCK; k++)
        scores[k] = -INFINITY;
    if (top == -INFINITY) {
        memset(scores, 0, CPU_KEY_BLOCK * sizeof *scores);
    } else {
        vf sum = vf_set1(0);
        for (int k = 0; k < CPU_KEY_BLOCK; k += LANES) {
            vf weight = vf_exp(vf_load(scores + k) - vf_set1(top));
            vf_store(scores + k, weight);
            sum = sum + weight;
        }
        total = vf_sum(sum);
    }
    state->largest[q] = top;
    state->total[q] = total;
}

INLINE void attend_queries(
    const struct attend_block *b, int first, int n_q, bool is_f32, struct attend_state *state, float (*scores)[CPU_KEY_BLOCK])
{
    for (int k = b->skip; k < b->n_keys; k += SCORE_KEYS)
        score_pair(b, first, n_q, k, scores, is_f32);
    for (int q = first; q < first + n_q; q++)
        soften(b, q, scores[q], state);
    add_all_values(b, first, n_q, scores, is_f32, state);
}

INLINE void attend_as(const struct attend_block *b, struct attend_state *state, bool is_f32)
{
    _Alignas(64) float scores[CPU_QUERY_TILE][CPU_KEY_BLOCK];
    int q = 0;
    for (; q + SCORE_ROWS <= b->n_queries; q += SCORE_ROWS)
        attend_queries(b, q, SCORE_ROWS, is_f32, state, scores);
    for (; q + 2 <= b->n_queries; q += 2)
        attend_queries(b, q, 2, is_f32, state, scores);
    for (; q < b->n_queries; q++)
        attend_queries(b, q, 1, is_f32, state, scores);
}

static void attend(const struct attend_block *b, struct attend_state *state)
{
    if (b->is_f32)
        attend_as(b, state, true);
    else
        attend_as(b, state, false);
}

static void merge(struct attend_state *into, const struct attend_state *from, int32_t n_queries, int32_t head_dim)
{
    for (int32_t q = 0; q < n_queries; q++) {
        if (from->largest[q] == -INFINITY)
            continue;
        float top = into->largest[q] > from->largest[q] ? into->largest[q] : from->largest[q];
        float old = into->largest[q] == -INFINITY ? 0 : expf(into->largest[q] - top), new = expf(from->largest[q] - top);
        float *sum = into->sum + (size_t)q * (size_t)head_dim;
        const float *addend = from->sum + (size_t)q * (size_t)head_dim;
        into->largest[q] = top;
        into->total[q] = into->total[q] * old + from->total[q] * new;
        for (int32_t i = 0; i < head_dim; i += LANES) {
            vf mine = vf_set1(0);
            if (old != 0)
                mine = load_at(sum, i, head_dim) * vf_set1(old);
            store_at(sum, vf_fma(load_at(addend, i, head_dim), vf_set1(new), mine), i, head_dim);
        }
    }
}

#endif
