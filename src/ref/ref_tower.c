// ref_tower.c: the towers' operations in plain scalar C: row-wise work, products, pooling. Attention and convolutions are in
// ref_tower_mix.c.

#include "ref/ref_tower.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "ref/ref_tower_internal.h"

// A vector as f32, freed by the caller; NULL when it does not exist or memory is short.
float *ref_vector(struct ref *ref, const struct weight *weight)
{
    if (!weight_exists(weight))
        return NULL;
    float *values = ref_take(ref, (size_t)weight->n_in, sizeof *values);
    if (values != NULL)
        ref_weight_row(weight, 0, 0, values);
    return values;
}

static void tower_norm(struct tower_ops *tower, struct tensor x, const struct residual *residual, const struct weight *norm,
    float eps, struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix rows = ref_matrix(x);
    if (residual != NULL && residual->term.buffer != NULL) {
        struct matrix term = ref_matrix(residual->term);
        float *term_norm = ref_vector(ref, residual->norm), *sum = ref_take(ref, (size_t)rows.n_cols, sizeof *sum), scale = 1;
        if (weight_exists(residual->scale))
            ref_weight_row(residual->scale, 0, 0, &scale);
        for (int32_t i = 0; sum != NULL && i < rows.n_rows; i++) {
            float *row = ref_row(rows, i), *addend = ref_row(term, i);
            if (term_norm != NULL)
                ref_rms(addend, term_norm, eps, rows.n_cols, sum);
            for (int32_t c = 0; c < rows.n_cols; c++)
                row[c] = (row[c] + residual->factor * (term_norm != NULL ? sum[c] : addend[c])) * scale;
        }
        free(sum);
        free(term_norm);
    }
    if (out.buffer == NULL)
        return;
    float *weight = ref_vector(ref, norm);
    for (int32_t i = 0; i < rows.n_rows; i++)
        ref_rms(ref_row(rows, i), weight, eps, rows.n_cols, ref_row(ref_matrix(out), i));
    free(weight);
}

static void tower_project(struct tower_ops *tower, struct tensor in, const struct linear *linear, bool silu, struct tensor out)
{
    struct matrix result = ref_matrix(out);
    if (!ref_multiply((struct ref *)tower->ops, linear, ref_matrix(in), result) || !silu)
        return;
    for (int64_t i = 0; i < (int64_t)result.n_rows * result.n_cols; i++)
        result.data[i] = (float)ref_activate(ACTIVATION_SILU, result.data[i]);
}

static void tower_gated(struct tower_ops *tower, struct tensor in, const struct linear *gate, const struct linear *up,
    enum activation activation, struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix gated = ref_matrix(out), raised = gated;
    size_t n = (size_t)gated.n_rows * (size_t)gated.n_cols;
    raised.data = ref_take(ref, n, sizeof(float));
    if (raised.data != NULL && ref_multiply(ref, gate, ref_matrix(in), gated) && ref_multiply(ref, up, ref_matrix(in), raised)) {
        for (size_t i = 0; i < n; i++)
            gated.data[i] = (float)(ref_activate(activation, gated.data[i]) * raised.data[i]);
    }
    free(raised.data);
}

void ref_layer_norm(const float *x, const float *weight, const float *bias, float eps, int32_t n, float *out)
{
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < n; i++)
        mean += x[i];
    mean /= n;
    for (int32_t i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean);
    double factor = 1 / sqrt(variance / n + eps);
    for (int32_t i = 0; i < n; i++)
        out[i] = (float)((x[i] - mean) * factor * weight[i] + (bias != NULL ? bias[i] : 0));
}

static void tower_layer_norm(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *bias,
    float eps, struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix rows = ref_matrix(in), result = ref_matrix(out);
    float *w = ref_vector(ref, weight), *b = ref_vector(ref, bias);
    for (int32_t i = 0; w != NULL && i < rows.n_rows; i++)
        ref_layer_norm(ref_row(rows, i), w, b, eps, rows.n_cols, ref_row(result, i));
    free(b);
    free(w);
}

static void tower_add_positions(
    struct tower_ops *tower, struct tensor x, const struct weight *table, int32_t first, int32_t n_columns)
{
    struct matrix rows = ref_matrix(x);
    float *entry = ref_take((struct ref *)tower->ops, (size_t)rows.n_cols, sizeof *entry);
    for (int32_t i = 0; entry != NULL && i < rows.n_rows; i++) {
        int32_t at[2] = {(first + i) % n_columns, (first + i) / n_columns};
        for (int axis = 0; axis < 2; axis++) {
            ref_weight_row(table, axis, at[axis], entry);
            for (int32_t c = 0; c < rows.n_cols; c++)
                ref_row(rows, i)[c] += entry[c];
        }
    }
    free(entry);
}

static void tower_image_pool(struct tower_ops *tower, struct tensor x, int32_t n_columns, int32_t size, float scale,
    const struct weight *std_bias, const struct weight *std_scale, struct tensor out)
{
    struct ref *ref = (struct ref *)tower->ops;
    struct matrix patches = ref_matrix(x), cells = ref_matrix(out);
    float *bias = ref_vector(ref, std_bias), *factor = ref_vector(ref, std_scale);
    int32_t cells_across = n_columns / size;
    for (int32_t i = 0; i < cells.n_rows; i++) {
        int32_t first = i / cells_across * size * n_columns + i % cells_across * size;
        for (int32_t c = 0; c < cells.n_cols; c++) {
            double sum = 0;
            for (int32_t p = 0; p < size * size; p++)
                sum += ref_row(patches, first + p / size * n_columns + p % size)[c];
            double mean = sum / (size * size) * scale;
            ref_row(cells, i)[c] = (float)(bias != NULL && factor != NULL ? (mean - bias[c]) * factor[c] : mean);
        }
    }
    free(factor);
    free(bias);
}

static void tower_free(struct tower_ops *tower)
{
    free(tower);
}

struct tower_ops *ref_tower_ops_new(struct ops *ops, struct carat_error *err)
{
    struct tower_ops *tower = calloc(1, sizeof *tower);
    if (tower == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the towers' operations");
        return NULL;
    }
    *tower = (struct tower_ops){
        .ops = ops,
        .tile_rows = 256,
        .norm = tower_norm,
        .project = tower_project,
        .gated = tower_gated,
        .layer_norm = tower_layer_norm,
        .add_positions = tower_add_positions,
        .image_prepare = ref_image_prepare,
        .image_attend = ref_image_attend,
        .image_pool = tower_image_pool,
        .subsample = ref_subsample,
        .audio_attend = ref_audio_attend,
        .light_conv = ref_light_conv,
        .free = tower_free,
    };
    return tower;
}
