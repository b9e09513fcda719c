// ref_experts.c: the routed branch of a mixture-of-experts layer.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct workspace {
    float *weight;         // [max(d, n_ff)], one row of a weight
    float *input;          // [d]
    float *gated;          // [n_ff]
    double *probabilities; // [n_experts]
    double *sum;           // [d]
};

static double product(const struct weight *weight, int64_t slice, int64_t row, const float *x, float *room)
{
    ref_weight_row(weight, slice, row, room);
    double sum = 0;
    for (int32_t i = 0; i < weight->n_in; i++)
        sum += (double)room[i] * x[i];
    return sum;
}

// Softmax over the router's products with RMS(h) * router_scale / sqrt(d).
static void route(const struct experts *e, const float *h, int32_t d, struct workspace *w)
{
    double largest = -INFINITY, total = 0;
    ref_rms(h, NULL, e->eps, d, w->input);
    ref_weight_row(e->router_scale, 0, 0, w->weight);
    for (int32_t i = 0; i < d; i++)
        w->input[i] = (float)(w->input[i] * (1 / sqrt((double)d)) * w->weight[i]);
    for (int32_t x = 0; x < e->n_experts; x++) {
        w->probabilities[x] = product(e->router, 0, x, w->input, w->weight);
        largest = w->probabilities[x] > largest ? w->probabilities[x] : largest;
    }
    for (int32_t x = 0; x < e->n_experts; x++)
        total += w->probabilities[x] = exp(w->probabilities[x] - largest);
    for (int32_t x = 0; x < e->n_experts; x++)
        w->probabilities[x] /= total;
}

// Keeps the n_used largest probabilities (the lower index among equals), scaled to a sum of 1; the others become 0.
static void choose(const struct experts *e, double *probabilities)
{
    double total = 0;
    for (int32_t n = 0; n < e->n_used; n++) {
        int32_t best = -1;
        for (int32_t x = 0; x < e->n_experts; x++) {
            // The chosen ones are marked by their sign.
            if (!signbit(probabilities[x]) && (best < 0 || probabilities[x] > probabilities[best]))
                best = x;
        }
        if (best < 0)
            break; // only when probabilities are no numbers
        total += probabilities[best];
        probabilities[best] = -probabilities[best];
    }
    for (int32_t x = 0; x < e->n_experts; x++)
        probabilities[x] = signbit(probabilities[x]) ? -probabilities[x] / total : 0;
}

// sum += factor * down(gelu(gate u) * (up u)) of one expert
static void add_expert(const struct experts *e, int32_t x, double factor, int32_t d, struct workspace *w)
{
    bool fused = weight_exists(e->gate_up);
    for (int32_t i = 0; i < e->n_ff; i++) {
        double gate = product(fused ? e->gate_up : e->gate, x, i, w->input, w->weight);
        double up = product(fused ? e->gate_up : e->up, x, fused ? e->n_ff + i : i, w->input, w->weight);
        w->gated[i] = (float)(ref_gelu_tanh(gate) * up);
    }
    for (int32_t o = 0; o < d; o++)
        w->sum[o] += factor * product(e->down, x, o, w->gated, w->weight);
}

static void experts_row(
    const struct experts *e, const float *h, const float *down_scale, int32_t d, struct workspace *w, float *out)
{
    route(e, h, d, w);
    choose(e, w->probabilities);
    ref_weight_row(e->pre_norm, 0, 0, w->weight);
    ref_rms(h, w->weight, e->eps, d, w->input);
    memset(w->sum, 0, (size_t)d * sizeof *w->sum);
    for (int32_t x = 0; x < e->n_experts; x++) {
        if (w->probabilities[x] != 0)
            add_expert(e, x, w->probabilities[x] * (down_scale != NULL ? down_scale[x] : 1), d, w);
    }
    for (int32_t i = 0; i < d; i++)
        out[i] = (float)w->sum[i];
}

void ref_experts(struct ops *ops, struct tensor h, const struct experts *e, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    struct matrix in = ref_matrix(h), result = ref_matrix(out);
    int32_t d = in.n_cols;
    struct workspace w = {
        .weight = ref_take(ref, (size_t)(d > e->n_ff ? d : e->n_ff), sizeof(float)),
        .input = ref_take(ref, (size_t)d, sizeof(float)),
        .gated = ref_take(ref, (size_t)e->n_ff, sizeof(float)),
        .probabilities = ref_take(ref, (size_t)e->n_experts, sizeof(double)),
        .sum = ref_take(ref, (size_t)d, sizeof(double)),
    };
    float *down_scale = ref_take(ref, (size_t)e->n_experts, sizeof *down_scale);
    if (w.weight != NULL && w.input != NULL && w.gated != NULL && w.probabilities != NULL && w.sum != NULL &&
        down_scale != NULL) {
        bool scaled = weight_exists(e->down_scale);
        if (scaled)
            ref_weight_row(e->down_scale, 0, 0, down_scale);
        for (int32_t i = 0; i < in.n_rows; i++)
            experts_row(e, ref_row(in, i), scaled ? down_scale : NULL, d, &w, ref_row(result, i));
    }
    free(down_scale);
    free(w.sum);
    free(w.probabilities);
    free(w.gated);
    free(w.input);
    free(w.weight);
}
