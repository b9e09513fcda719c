// types.h: the tensor types of a GGUF file and the size of their blocks.
//
// A row (fixed ne[1..3]) is a whole number of blocks of block_elems elements, block_bytes each.

#ifndef CARAT_GGUF_TYPES_H
#define CARAT_GGUF_TYPES_H

#include <stdbool.h>
#include <stdint.h>

enum gguf_type {
    GGUF_TYPE_F32 = 0,
    GGUF_TYPE_F16 = 1,
    GGUF_TYPE_Q4_0 = 2,
    GGUF_TYPE_Q4_1 = 3,
    GGUF_TYPE_Q5_0 = 6,
    GGUF_TYPE_Q5_1 = 7,
    GGUF_TYPE_Q8_0 = 8,
    GGUF_TYPE_Q8_1 = 9,
    GGUF_TYPE_Q2_K = 10,
    GGUF_TYPE_Q3_K = 11,
    GGUF_TYPE_Q4_K = 12,
    GGUF_TYPE_Q5_K = 13,
    GGUF_TYPE_Q6_K = 14,
    GGUF_TYPE_Q8_K = 15,
    GGUF_TYPE_IQ2_XXS = 16,
    GGUF_TYPE_IQ2_XS = 17,
    GGUF_TYPE_IQ3_XXS = 18,
    GGUF_TYPE_IQ1_S = 19,
    GGUF_TYPE_IQ4_NL = 20,
    GGUF_TYPE_IQ3_S = 21,
    GGUF_TYPE_IQ2_S = 22,
    GGUF_TYPE_IQ4_XS = 23,
    GGUF_TYPE_I8 = 24,
    GGUF_TYPE_I16 = 25,
    GGUF_TYPE_I32 = 26,
    GGUF_TYPE_I64 = 27,
    GGUF_TYPE_F64 = 28,
    GGUF_TYPE_IQ1_M = 29,
    GGUF_TYPE_BF16 = 30,
    GGUF_TYPE_TQ1_0 = 34,
    GGUF_TYPE_TQ2_0 = 35,
    GGUF_TYPE_MXFP4 = 39,
    GGUF_TYPE_NVFP4 = 40,
    GGUF_TYPE_Q1_0 = 41,
    GGUF_TYPE_Q2_0 = 42,
    GGUF_TYPE_LIMIT = 43, // every known id is below
};

struct gguf_type_info {
    const char *name; // "Q4_K"
    uint16_t block_elems;
    uint16_t block_bytes;
    bool supported; // gguf_dequantize knows it, so a weight may have it
};

// NULL for removed and unknown ids.
const struct gguf_type_info *gguf_type_info(uint32_t type);

// "Q4_K", or "unknown" for ids without a meaning. Never NULL.
const char *gguf_type_name(uint32_t type);

// The type called `name` (upper or lower case); false when there is none.
bool gguf_type_from_name(const char *name, enum gguf_type *type);

// Bytes of n_elems consecutive elements. False when the type is unknown, n_elems is no multiple of the block or the size
// overflows.
bool gguf_row_bytes(uint32_t type, uint64_t n_elems, uint64_t *n_bytes);

#endif
