// rope.h: cosines and sines of the rotary position embedding, for any position, computed on the host in f64.
//
// The angle of pair i at position p is p * f_i. With p = 64 a + b, cos and sin of (64 a f_i) are computed and those of (b f_i)
// looked up; the addition theorem joins them. The result depends on p alone, however positions are batched.

#ifndef CARAT_MODEL_ROPE_H
#define CARAT_MODEL_ROPE_H

#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct rope {
    int32_t n_pairs;     // head_dim / 2
    int32_t n_rotating;  // pairs with f_i != 0 come first; the others stay as they are
    double *frequencies; // [n_rotating]
    double *fine;        // [64][n_rotating][2]: cos and sin of b * f_i
};

// f_i = base^(-2i / head_dim) / factors[i]. factors NULL: none, and pairs from n_rotating on do not rotate; otherwise n_rotating
// is found from the factors: pairs whose factor is so large that the angle is nothing at any position. Takes memory from the
// arena.
bool rope_init(struct rope *rope, struct arena *arena, int32_t head_dim, double base, const float *factors, int32_t n_rotating,
    struct carat_error *err);

// out[row] = cos of all pairs, then sin of all pairs, at position first + row. out is [n, 2 * n_pairs].
void rope_fill(const struct rope *rope, int32_t first_position, int32_t n, float *out);

#endif
