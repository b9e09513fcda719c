// layout.h: how the rows of a weight lie in GPU memory.
//
// A row is read in units of 32 weights and in words of 16 bytes. Blocks whose size is a multiple of 16 bytes (Q4_K, Q5_K) stay as
// the file has them; other formats are split into up to four planes inside each row (quants, high bits, scales, ...), each plane
// starting at a 16-byte word and padded with zeros. The bytes stay the same, so nothing grows but by that padding.

#ifndef CARAT_WEBGPU_LAYOUT_H
#define CARAT_WEBGPU_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/types.h"

enum { LAYOUT_MAX_COLUMNS = 1 << 24 };
enum { LAYOUT_PLANES = 4, LAYOUT_ORDER_NONE = 0, LAYOUT_ORDER_NIBBLES = 1, LAYOUT_ORDER_SCALES = 2 };

struct layout_plane {
    uint8_t offset; // of its bytes in a block of the file
    uint8_t bytes;  // in a block; 0: no such plane
    uint8_t order;  // LAYOUT_ORDER_...
};

struct layout_type {
    enum gguf_type type;
    const char *snippet; // template that decodes it: "w_q4_k"
    struct layout_plane planes[LAYOUT_PLANES];
    bool as_file;  // blocks as in the file
    bool integers; // the snippet also multiplies with integers (integers.wgsl)
};

struct layout {
    const struct layout_type *type;
    uint32_t index;    // of the type in the table, from 1 on; for keys
    uint32_t n_units;  // of a row
    uint32_t n_blocks; // of a row in the file
    uint32_t block_bytes;
    uint32_t row_vectors;           // 16-byte words of a row
    uint32_t starts[LAYOUT_PLANES]; // of the planes in a row, in 16-byte words
    bool direct;                    // the file's rows are exactly this: no rearranging
};

// False when the type has no kernels or n_in is no whole number of blocks.
bool layout_of(enum gguf_type type, int32_t n_in, struct layout *out);

#endif
