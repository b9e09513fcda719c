// ref_project.c: products with weights, with all that is fused around them.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/quants.h"

void ref_weight_row(const struct weight *weight, int64_t slice, int64_t row, float *out)
{
    assert(weight->home == WEIGHT_HOST && slice < weight->n_slices && row >= 0 && row < weight->n_out);
    const unsigned char *blocks = weight->host;
    uint64_t index = (uint64_t)slice * (uint64_t)weight->n_out + (uint64_t)row;
    bool known = gguf_dequantize(weight->type, blocks + index * weight->row_bytes, out, (size_t)weight->n_in);
    assert(known);
    (void)known;
}

static double dot(const float *a, const float *b, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)a[i] * b[i];
    return sum;
}

static float clamp(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

// out += scale * B (A in)
static bool add_adapter(struct ref *ref, const struct lora_pair *pair, struct matrix in, struct matrix out)
{
    struct matrix a = ref_matrix(pair->a), b = ref_matrix(pair->b);
    assert(a.n_cols == in.n_cols && b.n_rows == out.n_cols && b.n_cols == a.n_rows);
    float *middle = ref_take(ref, (size_t)a.n_rows, sizeof *middle);
    if (middle == NULL)
        return false;
    for (int32_t i = 0; i < in.n_rows; i++) {
        for (int32_t r = 0; r < a.n_rows; r++)
            middle[r] = (float)dot(ref_row(a, r), ref_row(in, i), a.n_cols);
        for (int32_t o = 0; o < b.n_rows; o++)
            ref_row(out, i)[o] += (float)(pair->scale * dot(ref_row(b, o), middle, b.n_cols));
    }
    free(middle);
    return true;
}

bool ref_multiply(struct ref *ref, const struct linear *linear, struct matrix in, struct matrix out)
{
    const struct weight *weight = &linear->weight;
    assert(in.n_cols == weight->n_in && out.n_cols == weight->n_out && in.n_rows == out.n_rows);
    float *row = ref_take(ref, (size_t)weight->n_in, sizeof *row);
    float *clipped = ref_take(ref, (size_t)in.n_rows * (size_t)in.n_cols, sizeof *clipped);
    float *bias = ref_take(ref, (size_t)weight->n_out, sizeof *bias);
    bool done = row != NULL && clipped != NULL && bias != NULL;
    if (done && weight_exists(&linear->bias))
        ref_weight_row(&linear->bias, 0, 0, bias);
    for (int32_t i = 0; done && i < in.n_rows; i++) {
        for (int32_t c = 0; c < in.n_cols; c++) {
            float x = ref_row(in, i)[c];
            clipped[(size_t)i * (size_t)in.n_cols + (size_t)c] = linear->clipped ? clamp(x, linear->in_min, linear->in_max) : x;
        }
    }
    for (int32_t o = 0; done && o < weight->n_out; o++) {
        ref_weight_row(weight, 0, o, row);
        for (int32_t i = 0; i < in.n_rows; i++) {
            double sum = dot(row, clipped + (size_t)i * (size_t)in.n_cols, in.n_cols);
            if (weight_exists(&linear->bias))
                sum += bias[o];
            ref_row(out, i)[o] = linear->clipped ? clamp((float)sum, linear->out_min, linear->out_max) : (float)sum;
        }
    }
    for (const struct lora_pair *pair = linear->adapters; done && pair != NULL; pair = pair->next)
        done = add_adapter(ref, pair, in, out);
    free(bias);
    free(clipped);
    free(row);
    return done;
}

void ref_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out)
{
    ref_multiply((struct ref *)ops, linear, ref_matrix(in), ref_matrix(out));
}

void ref_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    ref_settle(ops, stream);
    struct matrix x = ref_matrix(stream->x);
    struct matrix normed = x;
    normed.data = ref_take(ref, (size_t)x.n_rows * (size_t)x.n_cols, sizeof(float));
    if (normed.data != NULL && ref_norm_rows(ref, x, norm, stream->eps, normed)) {
        int32_t first = 0;
        for (int p = 0; p < n_parts; first += parts[p++]->weight.n_out)
            ref_multiply(ref, parts[p], normed, ref_columns(ref_matrix(out), first, parts[p]->weight.n_out));
        assert(first == out.n_cols);
    }
    free(normed.data);
}

double ref_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

double ref_activate(enum activation activation, double x)
{
    switch (activation) {
    case ACTIVATION_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case ACTIVATION_SILU:
        return x / (1 + exp(-x));
    case ACTIVATION_GELU_TANH:
        break;
    }
    return ref_gelu_tanh(x);
}

void ref_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    ref_settle(ops, stream);
    struct matrix x = ref_matrix(stream->x), gated = ref_matrix(out);
    struct matrix normed = x, raised = gated;
    normed.data = ref_take(ref, (size_t)x.n_rows * (size_t)x.n_cols, sizeof(float));
    raised.data = ref_take(ref, (size_t)gated.n_rows * (size_t)gated.n_cols, sizeof(float));
    if (normed.data != NULL && raised.data != NULL && ref_norm_rows(ref, x, norm, stream->eps, normed) &&
        ref_multiply(ref, gate, normed, gated) && ref_multiply(ref, up, normed, raised)) {
        size_t n = (size_t)gated.n_rows * (size_t)gated.n_cols;
        for (size_t i = 0; i < n; i++)
            gated.data[i] = (float)(ref_activate(activation, gated.data[i]) * raised.data[i]);
    }
    free(raised.data);
    free(normed.data);
}

void ref_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    ref_settle(ops, stream);
    struct matrix gated = ref_matrix(out);
    struct matrix inputs = ref_columns(ref_matrix(per_layer), layer * gated.n_cols, gated.n_cols);
    if (!ref_multiply(ref, gate, ref_matrix(stream->x), gated))
        return;
    for (int32_t i = 0; i < gated.n_rows; i++) {
        for (int32_t c = 0; c < gated.n_cols; c++)
            ref_row(gated, i)[c] = (float)(ref_gelu_tanh(ref_row(gated, i)[c]) * ref_row(inputs, i)[c]);
    }
}

void ref_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out)
{
    struct ref *ref = (struct ref *)ops;
    struct matrix table = ref_matrix(rows), result = ref_matrix(out), projected = table;
    int32_t width = table.n_cols / n_layers;
    assert(norm->n_in == width && width * n_layers == table.n_cols);
    double to_unit = 1 / sqrt((double)x.n_cols);
    projected.data = ref_take(ref, (size_t)table.n_rows * (size_t)table.n_cols, sizeof(float));
    float *scale = ref_take(ref, (size_t)width, sizeof *scale);
    if (projected.data != NULL && scale != NULL && ref_multiply(ref, projection, ref_matrix(x), projected)) {
        ref_weight_row(norm, 0, 0, scale);
        for (int32_t i = 0; i < table.n_rows; i++) {
            for (int32_t c = 0; c < table.n_cols; c++)
                ref_row(projected, i)[c] = (float)(ref_row(projected, i)[c] * to_unit);
            for (int32_t l = 0; l < n_layers; l++)
                ref_rms(ref_row(projected, i) + l * width, scale, eps, width, ref_row(projected, i) + l * width);
            for (int32_t c = 0; c < table.n_cols; c++)
                ref_row(result, i)[c] = (float)(((double)ref_row(projected, i)[c] + ref_row(table, i)[c]) * M_SQRT1_2);
        }
    }
    free(scale);
    free(projected.data);
}

void ref_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out)
{
    (void)ops;
    struct matrix rows = ref_matrix(out);
    const int32_t *id = ids->host != NULL ? ids->host : ref_ints(ids->device);
    for (int32_t i = 0; i < rows.n_rows; i++) {
        ref_weight_row(table, 0, id[i], ref_row(rows, i));
        for (int32_t c = 0; c < rows.n_cols; c++)
            ref_row(rows, i)[c] *= scale;
    }
}

void ref_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits)
{
    struct matrix out = ref_matrix(logits);
    if (!ref_multiply((struct ref *)ops, table, ref_matrix(in), out))
        return;
    for (int32_t i = 0; i < out.n_rows; i++) {
        float *row = ref_row(out, i);
        for (int32_t v = 0; cap > 0 && v < out.n_cols; v++)
            row[v] = (float)(cap * tanh((double)row[v] / cap));
        for (int s = 0; s < n_suppressed; s++)
            row[suppressed[s]] = -3.0e38f;
    }
}
