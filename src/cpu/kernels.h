// kernels.h: the inner loops of the CPU backend, one table per instruction set.
//
// Each kernels_<isa>.c compiles the same bodies (body_*.h) with the vector primitives of its instruction set (simd_*.h) and
// exports one table. cpu_detect.c picks the best table that the machine can run.
//
// Numbers. With 8-bit activations a row x is stored as x[i] = d[i / 32] * q[i] with |q| <= 127, and a block of weights as
// w[i] = s * (u[i] - zero) - m with small unsigned (or signed) u. So
//     sum w x = sum over groups  s d (sum u q - zero sum q) - m d sum q,
// where the sums of u q are exact in integers and those of q are computed once per row. With f32 activations (exact mode, and
// always for F32, F16 and BF16 weights) weights become f32 in registers or in a buffer of a few rows.

#ifndef CARAT_CPU_KERNELS_H
#define CARAT_CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "ops/ops.h"

enum {
    CPU_NARROW_ROWS = 4,    // up to this many activation rows go through the matrix-vector kernels
    CPU_KEY_BLOCK = 64,     // attention forms its softmax over this many keys at a time
    CPU_QUERY_TILE = 8,     // query rows of one key head that attention handles together
    CPU_F32_ROWS = 4,       // weight rows expanded together by product_f32
    CPU_PANEL_ROWS = 32,    // largest panel of product_wide; the rows given to it start at a multiple of this
    CPU_PANEL_DEPTH = 2048, // columns of a panel
};

// Rows of activations, prepared for products. Only the parts that a product needs are filled.
struct activations {
    int32_t n_rows, n_in;
    int32_t f32_stride; // n_in rounded up to 16, the rest is zero
    float *f32;         // [n_rows, f32_stride]
    int8_t *q;          // [n_rows, n_in]
    float *d;           // [n_rows, n_in / 32]
    float *d16;         // [n_rows, n_in / 16], d of each 16
    float *dsum32;      // [n_rows, n_in / 32], d * sum of q over 32
    float *dsum16;      // [n_rows, n_in / 16], d * sum of q over 16
    int32_t *sum16;     // [n_rows, n_in / 16], sum of q over 16
};

// out[c * out_stride + r] = row r of the weight times row first_col + c of x, for n_rows rows of the weight.
struct product {
    enum gguf_type type;
    const uint8_t *rows; // the first row
    uint64_t row_bytes;
    int32_t n_rows;
    const struct activations *x;
    int32_t first_col, n_cols;
    float *out;
    size_t out_stride;
    void *scratch; // of this thread, product_scratch_bytes()
};

typedef void product_kernel(const struct product *product);

// One block of attention: n_queries (<= CPU_QUERY_TILE) queries of one key head against the keys at positions first + skip to
// first + n_keys - 1. `first` is a multiple of CPU_KEY_BLOCK, so that a key's place in the block, and with it the order of sums,
// depends on its position alone.
struct attend_block {
    int32_t head_dim, n_queries, first, skip,
        n_keys;                         // n_keys <= CPU_KEY_BLOCK; entries of keys and values before skip are not set
    const float *query[CPU_QUERY_TILE]; // [head_dim]
    int32_t low[CPU_QUERY_TILE], high[CPU_QUERY_TILE]; // positions a query sees
    const void *keys[CPU_KEY_BLOCK];                   // [head_dim], 16 bit, or f32 when is_f32
    const void *values[CPU_KEY_BLOCK];
    bool is_f32;
};

// Softmax so far of the queries of a tile: out = sum / total.
struct attend_state {
    float largest[CPU_QUERY_TILE]; // -infinity: nothing seen yet
    float total[CPU_QUERY_TILE];
    float *sum; // [CPU_QUERY_TILE, head_dim]
};

struct cpu_kernels {
    const char *name; // "AVX-512 VNNI"

    // 8-bit activations; NULL for F32, F16, BF16. narrow: n_cols <= CPU_NARROW_ROWS.
    product_kernel *narrow[GGUF_TYPE_LIMIT];
    product_kernel *wide[GGUF_TYPE_LIMIT];
    // f32 activations, every type. The result of a row and a column does not depend on what else is computed with it.
    product_kernel *product_f32;

    // out[0..n) = the values of a row, rounded up with zeros to a multiple of 16.
    void (*dequantize)(enum gguf_type type, const void *row, int32_t n, float *out);
    // Fills row `row` of the 8-bit parts of x from its f32 row.
    void (*quantize)(struct activations *x, int32_t row);

    // out = x / sqrt(mean(x^2) + eps) * weight; weight NULL: 1. out may be x.
    void (*rms)(const float *x, const float *weight, float eps, int32_t n, float *out);
    // out = (x + addend) * scale; out may be x or addend.
    void (*add_scale)(const float *x, const float *addend, float scale, int32_t n, float *out);
    // out = activation(gate) * factor; out may be gate.
    void (*gate)(enum activation activation, const float *gate, const float *factor, int32_t n, float *out);
    // x = cap * tanh(x / cap)
    void (*softcap)(float *x, float cap, int32_t n);
    void (*rotate)(float *head, const float *rope, int32_t n); // pairs (i, i + n/2); rope: n/2 cosines, n/2 sines
    float (*dot)(const float *a, const float *b, int32_t n);
    // Softmax of one block of keys: *block = its state, from scratch.
    void (*attend)(const struct attend_block *block, struct attend_state *state);
    // into = both
    void (*merge)(struct attend_state *into, const struct attend_state *from, int32_t n_queries, int32_t head_dim);
    void (*to_f16)(const float *in, int32_t n, uint16_t *out);  // to nearest even
    float (*largest)(const float *x, int32_t n);                // NaN if there is one
    float (*sum_exp)(const float *x, float largest, int32_t n); // sum of exp(x - largest)
};

// Bytes of scratch that a product over n_in columns needs.
size_t product_scratch_bytes(int32_t n_in);

enum { CPU_MAX_KERNELS = 4 };

// Stores the tables that this build has and this machine can run, best first, the portable one last; returns their number.
int cpu_kernels_available(const struct cpu_kernels *tables[CPU_MAX_KERNELS]);

#endif
