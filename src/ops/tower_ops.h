// tower_ops.h: the operations that the vision and audio towers are made of, beyond those of the text model.
//
// A tower runs like one large batch: up to 10080 patches (1120 soft tokens) or 750 steps of sound at once, all visible to each
// other or local, without a cache. So these operations take any number of rows, whatever ops->max_batch says; the model cuts
// row-wise work into tiles of tile_rows, so that scratch stays small and a caller can cancel between tiles.
//
// Memory, weights and reading back are those of the backend (ops.h). Activations are f32. As in ops.h nothing waits, outputs
// never overlap inputs unless an operation says so, and failures are reported by the next read or poll. Weights are matrices of
// any type that the backend supports; vectors and convolution weights are F32.

#ifndef CARAT_OPS_TOWER_OPS_H
#define CARAT_OPS_TOWER_OPS_H

#include "ops/ops.h"

// What is still to be added to a residual stream: x = (x + factor * RMS(term, norm)) * scale.
struct residual {
    struct tensor term;         // [n, d]
    const struct weight *norm;  // [d]; NULL or no weight: the term is added as it is
    float factor;               // 1, or 0.5 in the audio tower's feed-forwards
    const struct weight *scale; // one element; NULL or no weight: 1
};

// Attention of an image layer. Patch p stands in column p % n_columns, row p / n_columns of the grid.
struct image_attention {
    int32_t n_heads, head_dim;
    const struct weight *q_norm, *k_norm; // [head_dim]
    float eps;
    int32_t n_columns;
    // [n_positions, head_dim / 2]: for each position along an axis head_dim / 4 cosines, then as many sines. The first half of a
    // head is turned by the column's, the second by the row's; pairs (i, i + head_dim / 4) within a half.
    struct tensor rope;
};

// Attention of a conformer layer: step i sees steps i - span + 1 .. i.
struct audio_attention {
    int32_t n_heads, head_dim;
    int32_t span;                       // 12
    const struct weight *per_dim_scale; // [head_dim]
    float q_scale, k_scale;             // q = q * q_scale * per_dim_scale, k = k * k_scale
    float cap;                          // score = cap * tanh(score / cap)
    struct tensor distances;            // [span, n_heads * head_dim]: R_n of distance n
};

struct tower_ops {
    struct ops *ops;
    int32_t tile_rows; // rows of row-wise work that are best done at once; a multiple of 64

    // Adds the residual (NULL or no term: none) to x in place, then out = RMS(x, norm); norm NULL: weightless. out none: only the
    // sum. out may be x.
    void (*norm)(struct tower_ops *tower, struct tensor x, const struct residual *residual, const struct weight *norm, float eps,
        struct tensor out);

    // out [n, n_out] = linear(in), then silu of it if asked for. Adapters are not looked at.
    void (*project)(struct tower_ops *tower, struct tensor in, const struct linear *linear, bool silu, struct tensor out);

    // out [n, n_ff] = activation(gate in) * (up in).
    void (*gated)(struct tower_ops *tower, struct tensor in, const struct linear *gate, const struct linear *up,
        enum activation activation, struct tensor out);

    // out = (in - mean) / sqrt(variance + eps) * weight + bias over each row. out may be in.
    void (*layer_norm)(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *bias,
        float eps, struct tensor out);

    // x[i] += table[0][column] + table[1][row] of patch first + i. table: 2 slices of n_positions rows.
    void (*add_positions)(struct tower_ops *tower, struct tensor x, const struct weight *table, int32_t first, int32_t n_columns);

    // In place on rows of patches first, first + 1, ...: q and k are normed per head and turned, v is normed without a weight.
    void (*image_prepare)(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
        const struct image_attention *attention, int32_t first);

    // out[i] = softmax(q[i] k^T) v, over all rows of k and v. q and out: the same rows, a part of the patches.
    void (*image_attend)(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
        const struct image_attention *attention, struct tensor out);

    // Means of size x size squares of the grid times scale, then (mean - std_bias) * std_scale where the two exist (NULL or no
    // weight: not). x [n_rows * n_columns of the grid, d], out [cells, d] row by row.
    void (*image_pool)(struct tower_ops *tower, struct tensor x, int32_t n_columns, int32_t size, float scale,
        const struct weight *std_bias, const struct weight *std_scale, struct tensor out);

    // 3 x 3 convolution with stride 2 and padding 1, layer norm over the channels (weight only), ReLU.
    // in [t, f * n_channels] with the channel innermost; weight rows [9 * n_channels] in the order (channel, time, frequency);
    // out [(t + 1) / 2, (f + 1) / 2 * weight.n_out].
    void (*subsample)(struct tower_ops *tower, struct tensor in, int32_t n_channels, const struct weight *weight,
        const struct weight *norm, float eps, struct tensor out);

    // q, k, v raw projections [n, n_heads * head_dim]; out alike.
    void (*audio_attend)(struct tower_ops *tower, struct tensor q, struct tensor k, struct tensor v,
        const struct audio_attention *attention, struct tensor out);

    // in [n, 2 c]: g = first half * sigmoid(second half); depthwise causal convolution of g with `weight` (c rows of n_taps, the
    // last tap on the step itself); RMS with norm; silu. out [n, c].
    void (*light_conv)(struct tower_ops *tower, struct tensor in, const struct weight *weight, const struct weight *norm,
        float eps, struct tensor out);

    void (*free)(struct tower_ops *tower);
};

#endif
