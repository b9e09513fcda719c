// products.h: what the files about products with weights share: project.c (the operations), matvec.c (few rows), matmul.c (many).

#ifndef CARAT_WEBGPU_PRODUCTS_H
#define CARAT_WEBGPU_PRODUCTS_H

#include "webgpu/internal.h"

// What a matvec kernel does besides multiplying.
enum {
    VEC_FUSED = 1 << 0,
    VEC_TERM = 1 << 1,
    VEC_TERM_NORM = 1 << 2,
    VEC_SCALE = 1 << 3,
    VEC_NORM = 1 << 4,
    VEC_GATED = 1 << 5,
    VEC_ODD = 1 << 6,
    VEC_BIAS = 1 << 7,
    VEC_CLIP = 1 << 8,
    VEC_CAP = 1 << 9,
    VEC_PER_LAYER = 1 << 10,
    VEC_SILU = 1 << 11,
    VEC_QUICK = 1 << 12,
    VEC_COMBINE = 1 << 13,
};

static inline const struct device_weight *device_of(const struct linear *linear)
{
    return linear->weight.device;
}

// A weight's layout as kernels get it: words of a row, starts of its planes.
static inline void set_weight(uint32_t w[4], const struct layout *layout)
{
    w[0] = layout->row_vectors;
    for (int k = 1; k < LAYOUT_PLANES; k++)
        w[k] = layout->starts[k];
}

// What kernels define of weight k: its type, the words of a row, the starts of its planes. Returns the characters written.
size_t define_weight(char *text, size_t size, int k, const struct layout *layout);

// integers.wgsl: vectors from one run of n_stretches stretches to the next, an odd number.
static inline uint32_t integer_stride(uint32_t n_stretches)
{
    return n_stretches | 1;
}

// The workgroup memory that a kernel needs for that many stretches, with room for sums, reductions and what neighbours exchange.
static inline uint32_t integer_bytes(uint32_t n_stretches)
{
    return integer_stride(n_stretches) * 148 + 1024 * 4;
}

// Into how many parts the columns of a product in integers are split, given in pairs of units: as few as leave every lane a pair,
// or two. Each has an even number of pairs, which Q6_K needs.
uint32_t integer_splits_of(uint32_t n_pairs);

// The epilogues of a product: PRODUCT_... flags.
static inline uint32_t epilogue_flags(const struct linear *linear, const struct product *how)
{
    uint32_t flags = how->flags & (PRODUCT_CAP | PRODUCT_PER_LAYER | PRODUCT_ACTIVATES | PRODUCT_GATES);
    return flags | (weight_exists(&linear->bias) ? PRODUCT_BIAS : 0) | (linear->clipped ? PRODUCT_CLIP : 0);
}

// A product of the settled, normed stream.
struct fusion {
    const struct weight *norm;
    const struct linear *const *parts;
    int n_parts;
    uint32_t flags; // VEC_GATED, VEC_PER_LAYER, activation
    struct tensor per_layer;
    uint32_t per_layer_first;
};

// out = the product of up to MATVEC_MAX_ROWS rows with one part of a weight. joins: `in` is still in pieces of attention. May
// leave the result in sums (webgpu_join_all).
void plain_matvec(struct webgpu *gpu, struct tensor in, bool joins, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out);

// May one dispatch settle the stream, norm it and multiply?
bool can_fuse(const struct webgpu *gpu, const struct stream *stream, const struct linear *const *parts, int n_parts);

// Is the stream's term still in the sums that a split product left? fused_matvec takes it from there.
bool takes_sums(const struct webgpu *gpu, const struct stream *stream);
void fused_matvec(struct webgpu *gpu, struct stream *stream, const struct fusion *f, struct tensor out);

// out = the product of any number of rows with one part of a weight. May leave the result in sums (webgpu_join_all).
void plain_matmul(struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out);

// out = the n_splits sums of a product without epilogues, added.
void add_sums(struct webgpu *gpu, uint32_t n_splits, struct tensor out);

#endif
