// fold.h: matrices that are multiplied into each other while a model is loaded, and what is done with them: fold.c (making them),
// layer_end.c (the end of a layer in two dispatches), layer_entry.c (its second one taken along by the next layer).

#ifndef CARAT_WEBGPU_FOLD_H
#define CARAT_WEBGPU_FOLD_H

#include "webgpu/products.h"

enum {
    END_GROUP = 256,    // invocations of a workgroup, in all kernels of a layer's end
    FOLD_COLUMNS = 256, // of a folded matrix, made by a workgroup: whole blocks of every type
};

// --- fold.c ---

// 16-bit integers with a scale for every 64, in the format of w_folded.wgsl.
struct matrix {
    struct gpu_buffer *buffer; // NULL: none
    struct layout layout;
    uint32_t n_in, n_rows;
    uint64_t n_bytes; // 0: none is wanted
};

// Describes a matrix, without room for it. n_in is a multiple of 64.
void matrix_describe(struct matrix *m, int32_t n_in, int32_t n_rows);
bool matrix_make_room(struct webgpu *gpu, struct matrix *m);
void matrix_free(struct webgpu *gpu, struct matrix *m);

static inline struct gpu_binding matrix_bind(const struct matrix *m)
{
    return (struct gpu_binding){m->buffer, 0, m->n_bytes};
}

// n_rows rows of a weight in f32, in scratch that the next call takes again; no buffer after a failure, which is kept.
struct tensor matrix_decode(struct webgpu *gpu, const struct weight *weight, int32_t first_row, int32_t n_rows);

// Rows first_row and on of m = left . diag(norm other_norm) . right. left [any, d] in f32, right [m's columns -> d]; other_norm
// NULL: none.
bool matrix_multiply(struct webgpu *gpu, struct tensor left, const struct weight *norm, const struct weight *other_norm,
    const struct linear *right, const struct matrix *m, uint32_t first_row);

// m = rows of f32.
bool matrix_round(struct webgpu *gpu, struct tensor rows, const struct matrix *m);

// A linear layer that is its matrix and nothing else, in one part.
bool is_plain(const struct linear *linear);

// --- layer_end.c ---

struct folded {
    struct matrix product; // gate . diag(norm) . down: [ff -> P]
    struct matrix gate;    // [d -> P]; none: the gate's own type multiplies integers
    struct matrix next;    // next . diag(next_norm post_norm) . proj: [P -> rows of next]; none: the second step is one by itself
};

// What the first step leaves: three products (down . h, folded . h, gate . x), each as so many sums after another.
struct end_shape {
    uint32_t d, width;
    uint32_t n_sums[3];
};
struct end_shape end_shape_of(const struct layer_end *end, const struct folded *folded);
// As definitions for a kernel of 256 invocations.
size_t define_end(char *text, size_t size, const struct end_shape *shape);
// Dispatches the second step by itself.
void end_inject(struct webgpu *gpu, const struct late_end *late);

// --- layer_entry.c ---

// Describes folded->next if the next layer can take the second step along.
void entry_describe(struct webgpu *gpu, const struct layer_end *end, struct folded *folded);
bool entry_make(struct webgpu *gpu, const struct layer_end *end, struct folded *folded);

#endif
