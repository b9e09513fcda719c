// ref_internal.h: what the files of the reference backend share.
//
// Activations are stored in f32; sums are formed in f64. Everything works on rows of a matrix in plain memory.

#ifndef CARAT_REF_REF_INTERNAL_H
#define CARAT_REF_REF_INTERNAL_H

#include <stddef.h>

#include "ops/host_memory.h"

struct ref {
    struct host_ops host;
};

// Rows of f32 in memory. Row i starts at data + i * stride.
struct matrix {
    float *data;
    int32_t n_rows;
    int32_t n_cols;
    size_t stride;
};

struct matrix ref_matrix(struct tensor tensor);
struct matrix ref_columns(struct matrix matrix, int32_t first, int32_t n_cols); // a part of every row
int32_t *ref_ints(struct tensor tensor);

static inline float *ref_row(struct matrix matrix, int32_t row)
{
    return matrix.data + (size_t)row * matrix.stride;
}

// Uninitialised room for `count` elements of `size`, freed with free(); NULL is noted as the backend's failure.
void *ref_take(struct ref *ref, size_t count, size_t size);

// Dequantises one row of one slice: weight->n_in values.
void ref_weight_row(const struct weight *weight, int64_t slice, int64_t row, float *out);

double ref_gelu_tanh(double x);
double ref_activate(enum activation activation, double x);

// out = RMS(x, weight) over n values; weight NULL: no multiplication. out may be x.
void ref_rms(const float *x, const float *weight, float eps, int32_t n, float *out);

// out [n, n_out] = linear(in [n, n_in]). False when memory ran out.
bool ref_multiply(struct ref *ref, const struct linear *linear, struct matrix in, struct matrix out);

// Rows = RMS of the rows of `in`; in == out is allowed, norm NULL copies. False when memory ran out.
bool ref_norm_rows(struct ref *ref, struct matrix in, const struct weight *norm, float eps, struct matrix out);

// The k largest logits, descending, ties by lower id. False, with the ids 0, after a NaN or +infinity, which is noted as the
// backend's failure.
bool ref_largest(struct ref *ref, const float *logits, int32_t n_logits, int32_t k, int32_t *ids, float *values);

// memory and weights
bool ref_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err);

// operations, as ops.h describes them
void ref_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out);
void ref_copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows);
void ref_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out);
void ref_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out);
void ref_attend(struct ops *ops, struct tensor qkv, const struct attention *attention, struct tensor out);
void ref_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out);
void ref_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out);
void ref_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out);
void ref_experts(struct ops *ops, struct tensor h, const struct experts *experts, struct tensor out);
void ref_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out);
void ref_settle(struct ops *ops, struct stream *stream);
void ref_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out);
void ref_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits);
void ref_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id);
void ref_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out);
void ref_draw(struct ops *ops, struct tensor logits, int32_t row, const struct draw *draw, struct tensor id);

#endif
