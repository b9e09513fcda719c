// tensor.h: what operations read and write.
//
// Three kinds of data: weights (of the model file, quantised, never changed), tensors (activations, f32 or i32), and the keys and
// values of a sequence (16 bit). All of it lives in memory that belongs to a backend; only that backend looks inside a buffer.

#ifndef CARAT_OPS_TENSOR_H
#define CARAT_OPS_TENSOR_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/types.h"

struct buffer; // memory of a backend

// Row-major [n_rows, n_cols], 4 bytes an element (f32, or i32 where an operation says so), rows packed. A view, never an owner.
struct tensor {
    struct buffer *buffer; // NULL: no tensor
    uint64_t offset;       // bytes from the start of the buffer, a multiple of 256
    int32_t n_rows;
    int32_t n_cols;
};

// Where the bytes of a weight are kept.
enum weight_home {
    WEIGHT_UNPLACED,
    WEIGHT_HOST,   // in memory of this process: `host` points to them
    WEIGHT_DEVICE, // in memory of the backend: `device` is its handle
    WEIGHT_DISK,   // left in the file, rows are read when they are needed (only for tables that are gathered by row)
};

// A matrix, a stack of matrices or a vector of the model file. n_out rows of n_in elements, each row contiguous in GGUF blocks:
// y[o] = sum_i W[o, i] * x[i]. A vector is one row.
struct weight {
    const char *name;    // as in the file; NULL: no weight
    enum gguf_type type; // of the elements
    int32_t n_in;        // ne0
    int32_t n_out;       // ne1; 1 for vectors
    int32_t n_slices;    // ne2, e.g. experts; 1 for matrices
    uint64_t row_bytes;  // bytes of one row
    uint64_t n_bytes;    // of all slices
    uint64_t file_offset;
    uint32_t file_part; // which file of a split model, or of a model with a projector file
    uint32_t group;     // matrices with the same number are used together: a backend may put them side by side; 0: alone
    enum weight_home home;
    const void *host;
    void *device;
};

static inline bool weight_exists(const struct weight *weight)
{
    return weight != NULL && weight->name != NULL;
}

// One low-rank adapter of one weight: y += scale * B (A x).
struct lora_pair {
    struct tensor a; // [rank, n_in]
    struct tensor b; // [n_out, rank]
    float scale;
    struct lora_pair *next; // adapters add up; NULL: the last one
};

// A weight as a layer uses it: y = clamp(W clamp(x, in_min, in_max) + bias, out_min, out_max) + adapters.
// `clipped` is false for all text weights, the bounds are then not looked at.
struct linear {
    struct weight weight;
    struct weight bias; // F32 [n_out], or none
    bool clipped;
    float in_min, in_max, out_min, out_max;
    struct lora_pair *adapters;
};

// Keys and values of one layer that owns them. Position p lives in slot p % capacity, on sliding layers a ring.
struct kv_layer {
    struct buffer *k;  // [capacity, n_kv_heads * head_dim] after norm and RoPE
    struct buffer *v;  // [capacity, n_kv_heads * head_dim] after norm
    int32_t capacity;  // positions; at least window - 1 + the largest batch on sliding layers, the context on global ones
    int32_t row_elems; // n_kv_heads * head_dim
    bool is_f32;       // elements of 4 bytes instead of 2
};

#endif
