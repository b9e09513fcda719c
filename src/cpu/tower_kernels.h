// tower_kernels.h: the inner loops of the towers' operations, one table per instruction set like kernels.h.
//
// A panel holds PANEL = 2 vectors of outputs as [n_in][PANEL] floats, so that a register tile is 2 vectors of outputs times
// several rows of activations, whose elements are broadcast from where they lie. A product goes through a panel in stretches that
// stay in the first cache while a block of rows, which stays in the second, is multiplied. Attention uses the same tile with
// queries in the lanes: scores come out as [key][PANEL queries], the softmax runs down the lanes, and neither keys nor values are
// rearranged.

#ifndef CARAT_CPU_TOWER_KERNELS_H
#define CARAT_CPU_TOWER_KERNELS_H

#include "ops/ops.h"

enum {
    TOWER_MAX_PANEL = 32,
    TOWER_KEY_BLOCK = 192,
    TOWER_DEPTH = 256,   // elements of a stretch
    TOWER_MAX_ROWS = 96, // rows of a block
};

// How a product ends. Values are clamped to low .. high after the bias.
struct tower_finish {
    const float *bias; // of the panel's outputs, padded to TOWER_MAX_PANEL; NULL: none
    bool clamps;
    float low, high;
};

// out[r, o] for n_outputs (<= panel) outputs of a panel and n_rows <= TOWER_MAX_ROWS rows of activations.
struct tower_product {
    int32_t n_in, n_rows, n_outputs;
    const float *panel, *up_panel; // up_panel not NULL: activation(gate) * up
    const float *rows, *up_rows;   // rows of activations; up_rows may be rows
    size_t row_stride;
    struct tower_finish finish, up_finish;
    bool silu;
    enum activation activation;
    float *out;
    size_t out_stride;
};

// n_queries (<= panel) rows of one head against all keys.
struct tower_attend {
    int32_t head_dim, n_queries, n_keys;
    const float *q, *k, *v;
    size_t q_stride, kv_stride;
    float *out;
    size_t out_stride;
    float *scratch; // tower_attend_floats(head_dim)
};

struct tower_kernels {
    int panel; // outputs of a panel
    // panel[i][o] = rows[o][i] for n_rows (<= panel) rows of n_in; missing rows are zero.
    void (*pack)(const float *rows, size_t row_stride, int32_t n_rows, int32_t n_in, float *panel);
    void (*multiply)(const struct tower_product *product);
    void (*attend)(const struct tower_attend *attend);
    void (*clamp)(const float *x, float low, float high, int64_t n, float *out);
    void (*glu)(const float *x, const float *gate, int32_t n, float *out); // x * sigmoid(gate)
    void (*silu)(float *x, int32_t n);
    // (x - mean) / sqrt(variance + eps) * weight + bias; bias NULL: none; relu: negative results become 0. out may be x.
    void (*layer_norm)(const float *x, const float *weight, const float *bias, float eps, bool relu, int32_t n, float *out);
};

static inline size_t tower_attend_floats(int32_t head_dim)
{
    return ((size_t)head_dim * 2 + TOWER_KEY_BLOCK) * TOWER_MAX_PANEL;
}

extern const struct tower_kernels tower_kernels_portable;
#if defined(__x86_64__)
extern const struct tower_kernels tower_kernels_avx2, tower_kernels_avx512;
#endif

#endif
