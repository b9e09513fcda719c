// body_rows.h: what happens to a row of activations between products.

#ifndef CARAT_CPU_BODY_ROWS_H
#define CARAT_CPU_BODY_ROWS_H

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "cpu/body_math.h"
#include "cpu/kernels.h"

INLINE int lanes_at(int32_t i, int32_t n)
{
    return n - i < LANES ? n - i : LANES;
}
INLINE vf load_at(const float *p, int32_t i, int32_t n)
{
    return n - i < LANES ? vf_load_part(p + i, n - i) : vf_load(p + i);
}
INLINE void store_at(float *p, vf x, int32_t i, int32_t n)
{
    if (n - i < LANES)
        vf_store_part(p + i, x, n - i);
    else
        vf_store(p + i, x);
}

static float dot(const float *a, const float *b, int32_t n)
{
    vf sums[4] = {vf_set1(0), vf_set1(0), vf_set1(0), vf_set1(0)};
    int32_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (int j = 0; j < 4; j++)
            sums[j] = vf_fma(vf_load(a + i + j * LANES), vf_load(b + i + j * LANES), sums[j]);
    }
    for (; i < n; i += LANES)
        sums[0] = vf_fma(load_at(a, i, n), load_at(b, i, n), sums[0]);
    return vf_sum((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

static void rms(const float *x, const float *weight, float eps, int32_t n, float *out)
{
    vf factor = vf_set1(1 / sqrtf(dot(x, x, n) / (float)n + eps));
    for (int32_t i = 0; i < n; i += LANES) {
        vf value = load_at(x, i, n) * factor;
        if (weight != NULL)
            value = value * load_at(weight, i, n);
        store_at(out, value, i, n);
    }
}

static void add_scale(const float *x, const float *addend, float scale, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i += LANES)
        store_at(out, (load_at(x, i, n) + load_at(addend, i, n)) * vf_set1(scale), i, n);
}

INLINE void gate_with(enum activation activation, const float *gate, const float *factor, int32_t n, float *out)
{
    for (int32_t i = 0; i < n; i += LANES)
        store_at(out, vf_activate(activation, load_at(gate, i, n)) * load_at(factor, i, n), i, n);
}

static void gate(enum activation activation, const float *gated, const float *factor, int32_t n, float *out)
{
    if (activation == ACTIVATION_GELU_TANH)
        gate_with(ACTIVATION_GELU_TANH, gated, factor, n, out);
    else if (activation == ACTIVATION_SILU)
        gate_with(ACTIVATION_SILU, gated, factor, n, out);
    else
        gate_with(ACTIVATION_GELU_QUICK, gated, factor, n, out);
}

static void softcap(float *x, float cap, int32_t n)
{
    vf factor = vf_set1(cap), inverse = vf_set1(1 / cap);
    for (int32_t i = 0; i < n; i += LANES)
        store_at(x, factor * vf_tanh(load_at(x, i, n) * inverse), i, n);
}

static void rotate(float *head, const float *rope, int32_t n)
{
    int32_t half = n / 2;
    for (int32_t i = 0; i < half; i += LANES) {
        vf a = load_at(head, i, half), b = load_at(head + half, i, half);
        vf c = load_at(rope, i, half), s = load_at(rope + half, i, half);
        store_at(head, a * c - b * s, i, half);
        store_at(head + half, b * c + a * s, i, half);
    }
}

static float largest(const float *x, int32_t n)
{
    vf best = vf_set1(-INFINITY);
    vf nan = vf_set1(0); // x - x summed: not a number as soon as one x is none
    for (int32_t i = 0; i < n; i += LANES) {
        vf value = load_at(x, i, n);
        if (n - i < LANES) {
            for (int32_t j = i; j < n; j++)
                best = vf_max(best, vf_set1(x[j]));
        } else {
            best = vf_max(best, value);
        }
        nan = nan + value * vf_set1(0);
    }
    return vf_any_nan(nan) ? NAN : vf_top(best);
}

static float sum_exp(const float *x, float top, int32_t n)
{
    vf sum = vf_set1(0), shift = vf_set1(top);
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum = sum + vf_exp(vf_load(x + i) - shift);
    float total = vf_sum(sum);
    for (; i < n; i++) {
        float one[LANES];
        vf_store(one, vf_exp(vf_set1(x[i] - top)));
        total += one[0];
    }
    return total;
}

static void to_f16(const float *in, int32_t n, uint16_t *out)
{
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        vf_store_f16(out + i, vf_load(in + i));
    for (; i < n; i++)
        out[i] = f16_from_f32(in[i]);
}

// One group of 32 values with the scale (largest magnitude) / 127. A group with a NaN or an infinity gets the scale NaN, so that
// whatever is computed from it is no number either.
INLINE float quantize_group(const float *in, int8_t *q, int32_t sums[2])
{
    vf values[32 / LANES], top = vf_set1(0), nan = vf_set1(0);
    for (int j = 0; j < 32 / LANES; j++) {
        values[j] = vf_load(in + LANES * j);
        top = vf_max(top, vf_abs(values[j]));
        nan = nan + values[j] * vf_set1(0);
    }
    sums[0] = sums[1] = 0;
    if (vf_any_nan(nan)) {
        memset(q, 0, 32);
        return NAN;
    }
    float magnitude = vf_top(top), inverse = magnitude > 1e-30f ? 127 / magnitude : 0;
    for (int j = 0; j < 32 / LANES; j++) {
        vi rounded = vf_round(values[j] * vf_set1(inverse));
        vi_store_i8(q + LANES * j, rounded);
        sums[LANES * j / 16] += vi_sum(rounded);
    }
    return magnitude / 127;
}

static void quantize(struct activations *x, int32_t row)
{
    size_t n_in = (size_t)x->n_in, n_groups = n_in / 32, first = (size_t)row * n_groups;
    const float *in = x->f32 + (size_t)row * (size_t)x->f32_stride;
    int8_t *q = x->q + (size_t)row * n_in;
    for (size_t g = 0; g < n_groups; g++) {
        int32_t sums[2];
        float d = quantize_group(in + 32 * g, q + 32 * g, sums);
        x->d[first + g] = d;
        x->dsum32[first + g] = d * (float)(sums[0] + sums[1]);
        for (size_t h = 0; h < 2; h++) {
            x->d16[2 * (first + g) + h] = d;
            x->sum16[2 * (first + g) + h] = sums[h];
            x->dsum16[2 * (first + g) + h] = d * (float)sums[h];
        }
    }
}

#endif
