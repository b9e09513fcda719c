// ref_attend.c: attention of one text layer: query, key and value norms, RoPE, storing keys and values, softmax.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

// Rotates the pairs (i, i + n/2) of one head. rope: n/2 cosines, then n/2 sines.
static void rotate(float *head, const float *rope, int32_t n)
{
    int32_t half = n / 2;
    for (int32_t i = 0; i < half; i++) {
        double a = head[i], b = head[i + half], c = rope[i], s = rope[half + i];
        head[i] = (float)(a * c - b * s);
        head[i + half] = (float)(b * c + a * s);
    }
}

static void store(struct buffer *buffer, bool is_f32, size_t first, const float *values, int32_t n)
{
    assert((first + (size_t)n) * (is_f32 ? 4 : 2) <= buffer->n_bytes);
    if (is_f32) {
        memcpy(buffer->bytes + first * 4, values, (size_t)n * 4);
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        uint16_t half = f16_from_f32(values[i]);
        memcpy(buffer->bytes + (first + (size_t)i) * 2, &half, 2);
    }
}

static void load(const struct buffer *buffer, bool is_f32, size_t first, float *values, int32_t n)
{
    if (is_f32) {
        memcpy(values, buffer->bytes + first * 4, (size_t)n * 4);
        return;
    }
    for (int32_t i = 0; i < n; i++)
        values[i] = f32_from_f16(load_u16(buffer->bytes + (first + (size_t)i) * 2));
}

static size_t slot_of(const struct kv_layer *kv, int32_t position)
{
    return (size_t)(position % kv->capacity) * (size_t)kv->row_elems;
}

// Norms and rotates the keys of one row, norms its values, and stores both.
static void store_row(const struct attention *a, const float *k_norm, float *keys, float *values, int32_t row)
{
    const struct kv_layer *kv = a->kv;
    const float *rope = ref_row(ref_matrix(a->rope), row);
    size_t slot = slot_of(kv, a->first_position + row);
    for (int32_t h = 0; h < a->n_kv_heads; h++) {
        float *k = keys + h * a->head_dim, *v = values + h * a->head_dim;
        size_t first = slot + (size_t)h * (size_t)a->head_dim;
        ref_rms(v, NULL, a->eps, a->head_dim, v);
        store(kv->v, kv->is_f32, first, v, a->head_dim);
        ref_rms(k, k_norm, a->eps, a->head_dim, k);
        rotate(k, rope, a->head_dim);
        store(kv->k, kv->is_f32, first, k, a->head_dim);
    }
}

static bool store_keys_and_values(struct ref *ref, struct matrix qkv, const struct attention *a)
{
    int32_t n_kv = a->n_kv_heads * a->head_dim;
    int32_t first = a->n_heads * a->head_dim;
    assert(qkv.n_cols == first + (a->v_is_k ? 1 : 2) * n_kv && a->kv->row_elems == n_kv);
    float *k_norm = ref_take(ref, (size_t)a->head_dim, sizeof *k_norm);
    float *values = ref_take(ref, (size_t)n_kv, sizeof *values);
    bool done = k_norm != NULL && values != NULL;
    if (done)
        ref_weight_row(a->k_norm, 0, 0, k_norm);
    for (int32_t i = 0; done && i < qkv.n_rows; i++) {
        float *keys = ref_row(qkv, i) + first;
        memcpy(values, a->v_is_k ? keys : keys + n_kv, (size_t)n_kv * sizeof *values);
        store_row(a, k_norm, keys, values, i);
    }
    free(values);
    free(k_norm);
    return done;
}

struct workspace {
    float *q_norm;   // [head_dim]
    float *row;      // [head_dim], a key or a value
    double *weights; // [capacity], scores and then probabilities
    double *sum;     // [head_dim]
};

// out = softmax(query . keys) values, over the positions low .. high.
static void attend_head(
    const struct attention *a, const float *query, int32_t kv_head, int32_t low, int32_t high, struct workspace *w, float *out)
{
    const struct kv_layer *kv = a->kv;
    int32_t n = a->head_dim;
    double largest = -INFINITY, total = 0;
    for (int32_t s = low; s <= high; s++) {
        load(kv->k, kv->is_f32, slot_of(kv, s) + (size_t)kv_head * (size_t)n, w->row, n);
        double score = 0;
        for (int32_t i = 0; i < n; i++)
            score += (double)query[i] * w->row[i];
        w->weights[s - low] = score;
        largest = score > largest ? score : largest;
    }
    memset(w->sum, 0, (size_t)n * sizeof *w->sum);
    for (int32_t s = low; s <= high; s++) {
        double weight = exp(w->weights[s - low] - largest);
        total += weight;
        load(kv->v, kv->is_f32, slot_of(kv, s) + (size_t)kv_head * (size_t)n, w->row, n);
        for (int32_t i = 0; i < n; i++)
            w->sum[i] += weight * w->row[i];
    }
    for (int32_t i = 0; i < n; i++)
        out[i] = (float)(w->sum[i] / total);
}

static void attend_row(const struct attention *a, struct matrix qkv, int32_t row, struct workspace *w, float *out)
{
    int32_t position = a->first_position + row;
    int32_t high = a->last_key.buffer != NULL ? ref_ints(a->last_key)[row] : position;
    int32_t low = a->window > 0 && position >= a->window ? position - a->window + 1 : 0;
    assert(high >= position && high - low < a->kv->capacity);
    for (int32_t h = 0; h < a->n_heads; h++) {
        float *query = ref_row(qkv, row) + h * a->head_dim;
        ref_rms(query, w->q_norm, a->eps, a->head_dim, query);
        rotate(query, ref_row(ref_matrix(a->rope), row), a->head_dim);
        attend_head(a, query, h / (a->n_heads / a->n_kv_heads), low, high, w, out + h * a->head_dim);
    }
}

void ref_attend(struct ops *ops, struct tensor qkv, const struct attention *a, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    struct matrix projected = ref_matrix(qkv);
    if (a->writes_kv && !store_keys_and_values(ref, projected, a))
        return;
    if (a->n_heads == 0)
        return;
    struct workspace w = {
        .q_norm = ref_take(ref, (size_t)a->head_dim, sizeof(float)),
        .row = ref_take(ref, (size_t)a->head_dim, sizeof(float)),
        .weights = ref_take(ref, (size_t)a->kv->capacity, sizeof(double)),
        .sum = ref_take(ref, (size_t)a->head_dim, sizeof(double)),
    };
    if (w.q_norm != NULL && w.row != NULL && w.weights != NULL && w.sum != NULL) {
        ref_weight_row(a->q_norm, 0, 0, w.q_norm);
        for (int32_t i = 0; i < projected.n_rows; i++)
            attend_row(a, projected, i, &w, ref_row(ref_matrix(out), i));
    }
    free(w.sum);
    free(w.weights);
    free(w.row);
    free(w.q_norm);
}
