// attend_relaxed.h: attention in WebAssembly with relaxed SIMD: 16-bit keys and values become floats once for all queries.
//
// There is no instruction for halves, and V8 makes the constants of their conversion anew in each turn of a loop, so that in
// body_attend.h the conversion takes most of the time.

#ifndef CARAT_CPU_ATTEND_RELAXED_H
#define CARAT_CPU_ATTEND_RELAXED_H

#include <wasm_simd128.h>

#include "cpu/body_attend.h"
#include "cpu/relaxed_constants.h"

enum { EXPANDED_DIM = 512, EXPANDED_PIECE = 16 };

struct half_constants {
    v128_t mask, factor; // of the half's bits in a float's places, see vf_from_halves
    v128_t largest;      // so far, of all bits without signs
};

INLINE void expand_halves(const uint16_t *from, int32_t n, float *to, struct half_constants *constants)
{
    const v128_t no_sign = wasm_i16x8_const_splat(0x7fff);
    for (int32_t i = 0; i < n; i += 8) {
        v128_t halves = wasm_v128_load(from + i);
        constants->largest = wasm_u16x8_max(constants->largest, wasm_v128_and(halves, no_sign));
        v128_t low = wasm_i32x4_shl(wasm_i32x4_load16x4(from + i), 13),
               high = wasm_i32x4_shl(wasm_i32x4_load16x4(from + i + 4), 13);
        wasm_v128_store(to + i, wasm_f32x4_mul(wasm_v128_and(low, constants->mask), constants->factor));
        wasm_v128_store(to + i + 4, wasm_f32x4_mul(wasm_v128_and(high, constants->mask), constants->factor));
    }
}

INLINE bool any_special(const struct half_constants *constants)
{
    return wasm_v128_any_true(wasm_u16x8_gt(constants->largest, wasm_i16x8_const_splat(0x7bff)));
}

INLINE void scores_of_expanded(
    const struct attend_block *b, int first, int n_q, const float (*keys)[EXPANDED_DIM], float (*scores)[CPU_KEY_BLOCK], int key)
{
    vf sums[SCORE_ROWS][2];
    const float *query[SCORE_ROWS];
    for (int q = 0; q < n_q; q++) {
        sums[q][0] = sums[q][1] = vf_set1(0);
        query[q] = b->query[first + q];
    }
    for (int32_t i = 0; i < b->head_dim; i += LANES) {
        vf k0 = vf_load(keys[0] + i), k1 = vf_load(keys[1] + i);
        for (int q = 0; q < n_q; q++) {
            vf x = vf_load(query[q] + i);
            sums[q][0] = vf_fma(x, k0, sums[q][0]);
            sums[q][1] = vf_fma(x, k1, sums[q][1]);
        }
    }
    for (int q = 0; q < n_q; q++) {
        scores[first + q][key] = vf_sum(sums[q][0]);
        if (key + 1 < b->n_keys)
            scores[first + q][key + 1] = vf_sum(sums[q][1]);
    }
}

// sum[q][0 .. 7] = weights[q][k] * value k, for n_q queries (a constant <= SCORE_ROWS), elements i .. i + 7.
INLINE void values_of_expanded(const struct attend_block *b, int first, int n_q, const float (*values)[EXPANDED_PIECE], int at,
    const float (*weights)[CPU_KEY_BLOCK], int32_t i, struct attend_state *state)
{
    vf sums[SCORE_ROWS][2];
    for (int q = 0; q < n_q; q++)
        sums[q][0] = sums[q][1] = vf_set1(0);
    for (int k = b->skip; k < b->n_keys; k++) {
        vf v0 = vf_load(values[k] + at), v1 = vf_load(values[k] + at + LANES);
        for (int q = 0; q < n_q; q++) {
            vf weight = (vf)wasm_v128_load32_splat(&weights[first + q][k]);
            sums[q][0] = vf_fma(weight, v0, sums[q][0]);
            sums[q][1] = vf_fma(weight, v1, sums[q][1]);
        }
    }
    for (int q = 0; q < n_q; q++) {
        float *out = state->sum + (size_t)(first + q) * (size_t)b->head_dim + i;
        vf_store(out, sums[q][0]);
        vf_store(out + LANES, sums[q][1]);
    }
}

static void attend_relaxed(const struct attend_block *b, struct attend_state *state)
{
    if (b->is_f32 || b->head_dim > EXPANDED_DIM || b->head_dim % EXPANDED_PIECE != 0) {
        attend(b, state);
        return;
    }
    float scores[CPU_QUERY_TILE][CPU_KEY_BLOCK];
    float keys[2][EXPANDED_DIM], values[CPU_KEY_BLOCK][EXPANDED_PIECE];
    struct half_constants constants = {
        .mask = register_constant(0x8fffe000u), .factor = register_constant(0x77800000u), .largest = wasm_i16x8_const_splat(0)};
    for (int k = b->skip; k < b->n_keys; k += 2) {
        expand_halves(b->keys[k], b->head_dim, keys[0], &constants);
        if (k + 1 < b->n_keys)
            expand_halves(b->keys[k + 1], b->head_dim, keys[1], &constants);
        int q = 0;
        for (; q + SCORE_ROWS <= b->n_queries; q += SCORE_ROWS)
            scores_of_expanded(b, q, SCORE_ROWS, keys, scores, k);
        for (; q < b->n_queries; q++)
            scores_of_expanded(b, q, 1, keys, scores, k);
    }
    for (int q = 0; q < b->n_queries; q++)
        soften(b, q, scores[q], state);
    for (int32_t i = 0; i < b->head_dim; i += EXPANDED_PIECE) {
        for (int k = b->skip; k < b->n_keys; k++)
            expand_halves((const uint16_t *)b->values[k] + i, EXPANDED_PIECE, values[k], &constants);
        for (int at = 0; at < EXPANDED_PIECE; at += 2 * LANES) {
            int q = 0;
            for (; q + SCORE_ROWS <= b->n_queries; q += SCORE_ROWS)
                values_of_expanded(b, q, SCORE_ROWS, values, at, scores, i + at, state);
            for (; q < b->n_queries; q++)
                values_of_expanded(b, q, 1, values, at, scores, i + at, state);
        }
    }
    if (any_special(&constants))
        attend(b, state); // infinities and NaN were taken for large numbers
}

#endif
