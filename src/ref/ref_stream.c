// ref_stream.c: norms, and the residual stream with its pending term.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void ref_rms(const float *x, const float *weight, float eps, int32_t n, float *out)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    double factor = 1 / sqrt(sum / n + eps);
    for (int32_t i = 0; i < n; i++)
        out[i] = (float)(x[i] * factor * (weight != NULL ? weight[i] : 1));
}

bool ref_norm_rows(struct ref *ref, struct matrix in, const struct weight *norm, float eps, struct matrix out)
{
    if (!weight_exists(norm)) {
        for (int32_t i = 0; i < in.n_rows; i++)
            memmove(ref_row(out, i), ref_row(in, i), (size_t)in.n_cols * sizeof(float));
        return true;
    }
    assert(norm->n_in == in.n_cols);
    float *weight = ref_take(ref, (size_t)in.n_cols, sizeof *weight);
    if (weight == NULL)
        return false;
    ref_weight_row(norm, 0, 0, weight);
    for (int32_t i = 0; i < in.n_rows; i++)
        ref_rms(ref_row(in, i), weight, eps, in.n_cols, ref_row(out, i));
    free(weight);
    return true;
}

// x = (x + RMS(term, term_norm)) * scale
void ref_settle(struct ops *ops, struct stream *stream)
{
    if (stream->term.buffer == NULL)
        return;
    struct ref *ref = (struct ref *)ops;
    struct matrix x = ref_matrix(stream->x), term = ref_matrix(stream->term);
    assert(x.n_rows == term.n_rows && x.n_cols == term.n_cols);
    float scale = 1;
    if (weight_exists(stream->scale))
        ref_weight_row(stream->scale, 0, 0, &scale);
    float *normed = ref_take(ref, (size_t)x.n_rows * (size_t)x.n_cols, sizeof *normed);
    struct matrix addend = {.data = normed, .n_rows = x.n_rows, .n_cols = x.n_cols, .stride = (size_t)x.n_cols};
    if (normed != NULL && ref_norm_rows(ref, term, stream->term_norm, stream->eps, addend)) {
        for (size_t i = 0; i < (size_t)x.n_rows * (size_t)x.n_cols; i++)
            x.data[i] = (x.data[i] + normed[i]) * scale;
    }
    free(normed);
    stream->term = (struct tensor){0};
    stream->term_norm = NULL;
    stream->scale = NULL;
}

void ref_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out)
{
    ref_settle(ops, stream);
    ref_norm_rows((struct ref *)ops, ref_matrix(stream->x), norm, stream->eps, ref_matrix(out));
}

void ref_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    struct matrix left = ref_matrix(a), sum = ref_matrix(out);
    struct matrix right = ref_matrix(b), normed_left = left, normed_right = left;
    size_t n = (size_t)left.n_rows * (size_t)left.n_cols;
    normed_left.data = ref_take(ref, n, sizeof(float));
    normed_right.data = ref_take(ref, n, sizeof(float));
    if (normed_left.data != NULL && normed_right.data != NULL && ref_norm_rows(ref, left, a_norm, eps, normed_left) &&
        ref_norm_rows(ref, right, b_norm, eps, normed_right)) {
        for (size_t i = 0; i < n; i++)
            sum.data[i] = normed_left.data[i] + normed_right.data[i];
    }
    free(normed_right.data);
    free(normed_left.data);
}

void ref_copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows)
{
    (void)ops;
    assert(src.n_cols == dst.n_cols && first_src + n_rows <= src.n_rows && first_dst + n_rows <= dst.n_rows);
    memcpy(ref_row(ref_matrix(dst), first_dst), ref_row(ref_matrix(src), first_src),
        (size_t)n_rows * (size_t)src.n_cols * sizeof(float));
}
