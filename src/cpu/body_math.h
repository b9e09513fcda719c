// body_math.h: exp, tanh and activations on vectors, relative error about 1e-7 (exp: argument reduction and a polynomial of
// degree 6). NaN stays NaN.

#ifndef CARAT_CPU_BODY_MATH_H
#define CARAT_CPU_BODY_MATH_H

#include "ops/ops.h"

// e^x. Below -87.3 the result is 0, above 88.3 it is e^88.3.
INLINE vf vf_exp(vf x)
{
    vf bounded = vf_min(vf_set1(88.3f), vf_max(vf_set1(-87.3f), x)); // in this order NaN is kept
    vi n = vf_round(bounded * vf_set1(1.44269504f));
    vf whole = vi_to_vf(n);
    vf r = vf_fma(whole, vf_set1(-0.693359375f), bounded); // ln 2 in two parts
    r = vf_fma(whole, vf_set1(2.12194440e-4f), r);
    vf p = vf_set1(1.0f / 720);
    p = vf_fma(p, r, vf_set1(1.0f / 120));
    p = vf_fma(p, r, vf_set1(1.0f / 24));
    p = vf_fma(p, r, vf_set1(1.0f / 6));
    p = vf_fma(p, r, vf_set1(0.5f));
    p = vf_fma(p, r * r, r) + vf_set1(1);
    vf value = p * vf_pow2(n);
    return vf_select_less(x, vf_set1(-87.3f), vf_set1(0), value);
}

// tanh: an odd polynomial for |x| < 0.625, otherwise 1 - 2 / (e^2|x| + 1) with the sign of x.
INLINE vf vf_tanh(vf x)
{
    vf magnitude = vf_abs(x), square = x * x;
    vf p = vf_set1(-5.70498872745e-3f);
    p = vf_fma(p, square, vf_set1(2.06390887954e-2f));
    p = vf_fma(p, square, vf_set1(-5.37397155531e-2f));
    p = vf_fma(p, square, vf_set1(1.33314422036e-1f));
    p = vf_fma(p, square, vf_set1(-3.33332819422e-1f));
    vf small = vf_fma(p * square, x, x);
    vf large = vf_set1(1) - vf_set1(2) / (vf_exp(magnitude + magnitude) + vf_set1(1));
    large = vf_select_less(x, vf_set1(0), -large, large);
    return vf_select_less(magnitude, vf_set1(0.625f), small, large);
}

// x / (1 + e^-z), which is how all three activations can be written.
INLINE vf vf_times_sigmoid(vf x, vf z)
{
    return x / (vf_set1(1) + vf_exp(-z));
}

INLINE vf vf_activate(enum activation activation, vf x)
{
    if (activation == ACTIVATION_SILU)
        return vf_times_sigmoid(x, x);
    if (activation == ACTIVATION_GELU_QUICK)
        return vf_times_sigmoid(x, vf_set1(1.702f) * x);
    vf inner = vf_fma(vf_set1(0.044715f) * x * x, x, x);        // x + 0.044715 x^3
    return vf_times_sigmoid(x, vf_set1(1.5957691216f) * inner); // 0.5 (1 + tanh z) = sigmoid(2 z)
}

#endif
