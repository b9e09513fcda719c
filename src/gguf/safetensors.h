// safetensors.h: reading a safetensors file: the table of its tensors and their bytes.
//
// Opening reads and checks the JSON header only: every tensor lies inside the file, has the size its shape and type say and
// overlaps no other.

#ifndef CARAT_GGUF_SAFETENSORS_H
#define CARAT_GGUF_SAFETENSORS_H

#include <stdint.h>

#include "base/error.h"
#include "gguf/source.h"

enum { SAFETENSORS_MAX_DIMS = 8, SAFETENSORS_MAX_HEADER_BYTES = 100 * 1000 * 1000 };

struct safetensors_tensor {
    const char *name;
    const char *dtype; // "F32", "F16", "BF16", ...
    uint32_t n_dims;
    uint64_t shape[SAFETENSORS_MAX_DIMS]; // row-major: the last dimension is fastest; 1 beyond n_dims
    uint64_t offset;                      // in the file; any alignment
    uint64_t n_bytes;
};

struct safetensors_file;

// On success the file owns the source; on failure it stays the caller's.
bool safetensors_open(struct gguf_source *source, struct safetensors_file **out, struct carat_error *err);
void safetensors_close(struct safetensors_file *file); // NULL is allowed

size_t safetensors_count(const struct safetensors_file *file);
const struct safetensors_tensor *safetensors_at(const struct safetensors_file *file, size_t index); // by rising offset
const struct safetensors_tensor *safetensors_find(const struct safetensors_file *file, const char *name);

// A string of the `__metadata__` object, or NULL.
const char *safetensors_metadata(const struct safetensors_file *file, const char *key);

// All n elements of the tensor as f32. F32, F16, BF16 and F64 only.
bool safetensors_read_f32(const struct safetensors_file *file, const struct safetensors_tensor *tensor, float *out, uint64_t n,
    struct carat_error *err);

#endif
