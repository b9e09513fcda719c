// ref_tower_mix.c: the towers' operations that mix rows: attention over patches and over sound, convolutions.

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/ref_tower_internal.h"

// Turns the two halves of a head by the angles of the patch's column and row. rope rows: n/4 cosines, n/4 sines.
static void turn(float *head, int32_t head_dim, const float *by_column, const float *by_row)
{
    int32_t quarter = head_dim / 4;
    for (int half = 0; half < 2; half++) {
        const float *angles = half == 0 ? by_column : by_row;
        float *x = head + half * 2 * quarter;
        for (int32_t i = 0; i < quarter; i++) {
            double a = x[i], b = x[i + quarter], c = angles[i], s = angles[quarter + i];
            x[i] = (float)(a * c - b * s);
            x[i + quarter] = (float)(b * c + a * s);
        }
    }
}

void ref_image_prepare(
    struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v, const struct image_attention *a, int32_t first)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix queries = ref_matrix(q), keys = ref_matrix(k), values = ref_matrix(v), rope = ref_matrix(a->rope);
    float *q_norm = ref_vector(ref, a->q_norm), *k_norm = ref_vector(ref, a->k_norm);
    for (int32_t i = 0; q_norm != NULL && k_norm != NULL && i < queries.n_rows; i++) {
        const float *by_column = ref_row(rope, (first + i) % a->n_columns), *by_row = ref_row(rope, (first + i) / a->n_columns);
        for (int32_t h = 0; h < a->n_heads; h++) {
            float *query = ref_row(queries, i) + h * a->head_dim, *key = ref_row(keys, i) + h * a->head_dim,
                  *value = ref_row(values, i) + h * a->head_dim;
            ref_rms(query, q_norm, a->eps, a->head_dim, query);
            ref_rms(key, k_norm, a->eps, a->head_dim, key);
            ref_rms(value, NULL, a->eps, a->head_dim, value);
            turn(query, a->head_dim, by_column, by_row);
            turn(key, a->head_dim, by_column, by_row);
        }
    }
    free(k_norm);
    free(q_norm);
}

// scores[0..n) become probabilities; returns nothing else. At least one score is finite.
static void softmax(double *scores, int32_t n)
{
    double largest = scores[0], sum = 0;
    for (int32_t i = 1; i < n; i++)
        largest = fmax(largest, scores[i]);
    for (int32_t i = 0; i < n; i++)
        sum += scores[i] = exp(scores[i] - largest);
    for (int32_t i = 0; i < n; i++)
        scores[i] /= sum;
}

static double dot(const float *a, const float *b, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

void ref_image_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v, const struct image_attention *a,
    struct tensor out)
{
    struct matrix queries = ref_matrix(q), keys = ref_matrix(k), values = ref_matrix(v), result = ref_matrix(out);
    double *scores = ref_take((struct ref *)tower->ops, (size_t)keys.n_rows, sizeof *scores);
    for (int32_t i = 0; scores != NULL && i < queries.n_rows; i++) {
        for (int32_t h = 0; h < a->n_heads; h++) {
            int32_t at = h * a->head_dim;
            for (int32_t j = 0; j < keys.n_rows; j++)
                scores[j] = dot(ref_row(queries, i) + at, ref_row(keys, j) + at, a->head_dim);
            softmax(scores, keys.n_rows);
            for (int32_t c = at; c < at + a->head_dim; c++) {
                double sum = 0;
                for (int32_t j = 0; j < keys.n_rows; j++)
                    sum += scores[j] * ref_row(values, j)[c];
                ref_row(result, i)[c] = (float)sum;
            }
        }
    }
    free(scores);
}

// The nine taps of one output place: out[o] = sum over taps and channels.
static void convolve_at(
    struct matrix in, int32_t n_channels, const float *weights, int32_t n_out, int32_t t, int32_t f, float *out)
{
    int32_t n_frequencies = in.n_cols / n_channels;
    for (int32_t o = 0; o < n_out; o++) {
        double sum = 0;
        for (int32_t c = 0; c < n_channels; c++) {
            for (int32_t tap = 0; tap < 9; tap++) {
                int32_t time = 2 * t - 1 + tap / 3, frequency = 2 * f - 1 + tap % 3;
                if (time >= 0 && time < in.n_rows && frequency >= 0 && frequency < n_frequencies)
                    sum += (double)weights[((size_t)o * (size_t)n_channels + (size_t)c) * 9 + (size_t)tap] *
                           ref_row(in, time)[frequency * n_channels + c];
            }
        }
        out[o] = (float)sum;
    }
}

void ref_subsample(struct tower_ops *tower, struct tensor in, int32_t n_channels, const struct weight *weight,
    const struct weight *norm, float eps, struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix source = ref_matrix(in), result = ref_matrix(out);
    int32_t n_out = weight->n_out, n_frequencies = result.n_cols / n_out;
    float *weights = ref_take(ref, (size_t)n_out * (size_t)weight->n_in, sizeof *weights), *scale = ref_vector(ref, norm);
    for (int32_t o = 0; weights != NULL && o < n_out; o++)
        ref_weight_row(weight, 0, o, weights + (size_t)o * (size_t)weight->n_in);
    for (int32_t t = 0; weights != NULL && scale != NULL && t < result.n_rows; t++) {
        for (int32_t f = 0; f < n_frequencies; f++) {
            float *place = ref_row(result, t) + f * n_out;
            convolve_at(source, n_channels, weights, n_out, t, f, place);
            ref_layer_norm(place, scale, NULL, eps, n_out, place);
            for (int32_t o = 0; o < n_out; o++)
                place[o] = place[o] > 0 ? place[o] : 0;
        }
    }
    free(scale);
    free(weights);
}

void ref_audio_attend(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v, const struct audio_attention *a,
    struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix queries = ref_matrix(q), keys = ref_matrix(k), values = ref_matrix(v), result = ref_matrix(out),
                  distances = ref_matrix(a->distances);
    float *dim_scale = ref_vector(ref, a->per_dim_scale), *query = ref_take(ref, (size_t)a->head_dim, sizeof *query);
    double *scores = ref_take(ref, (size_t)a->span, sizeof *scores);
    for (int32_t i = 0; dim_scale != NULL && query != NULL && scores != NULL && i < queries.n_rows; i++) {
        int32_t n = i + 1 < a->span ? i + 1 : a->span; // keys i - n + 1 .. i
        for (int32_t h = 0; h < a->n_heads; h++) {
            int32_t at = h * a->head_dim;
            for (int32_t c = 0; c < a->head_dim; c++)
                query[c] = ref_row(queries, i)[at + c] * a->q_scale * dim_scale[c];
            for (int32_t d = 0; d < n; d++) {
                double score = dot(query, ref_row(keys, i - d) + at, a->head_dim) * a->k_scale +
                               dot(query, ref_row(distances, d) + at, a->head_dim);
                scores[d] = a->cap * tanh(score / a->cap);
            }
            softmax(scores, n);
            for (int32_t c = at; c < at + a->head_dim; c++) {
                double sum = 0;
                for (int32_t d = 0; d < n; d++)
                    sum += scores[d] * ref_row(values, i - d)[c];
                ref_row(result, i)[c] = (float)sum;
            }
        }
    }
    free(scores);
    free(query);
    free(dim_scale);
}

void ref_light_conv(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *norm, float eps,
    struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix source = ref_matrix(in), result = ref_matrix(out);
    int32_t n = result.n_cols, n_taps = weight->n_in;
    float *taps = ref_take(ref, (size_t)n * (size_t)n_taps, sizeof *taps), *scale = ref_vector(ref, norm);
    for (int32_t c = 0; taps != NULL && c < n; c++)
        ref_weight_row(weight, 0, c, taps + (size_t)c * (size_t)n_taps);
    for (int32_t t = 0; taps != NULL && scale != NULL && t < result.n_rows; t++) {
        float *row = ref_row(result, t);
        for (int32_t c = 0; c < n; c++) {
            double sum = 0;
            for (int32_t j = 0; j < n_taps; j++) {
                int32_t step = t - n_taps + 1 + j;
                if (step >= 0)
                    sum += taps[c * n_taps + j] *
                           ((double)ref_row(source, step)[c] / (1 + exp(-(double)ref_row(source, step)[n + c])));
            }
            row[c] = (float)sum;
        }
        ref_rms(row, scale, eps, n, row);
        for (int32_t c = 0; c < n; c++)
            row[c] = (float)ref_activate(ACTIVATION_SILU, row[c]);
    }
    free(scale);
    free(taps);
}
