// writer.h: writing a GGUF file (version 3) from front to back, for tools and tests.
//
// Order of calls: gguf_writer_new; any number of gguf_write_<metadata>; gguf_declare for every tensor; then gguf_write_data with
// the bytes of the tensors in the order of their declaration, in pieces of any size; gguf_writer_finish. A file appears under its
// name only when finish succeeds: until then it is NAME.part, which gguf_writer_free removes.
//
// Errors stick: after a failure every further call fails with the same message, so checking the last one is enough.

#ifndef CARAT_GGUF_WRITER_H
#define CARAT_GGUF_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "gguf/gguf.h"

struct gguf_writer;

#ifndef __wasm__
// Writes to the file `path`. alignment: a power of two, 0 for the usual 32. Anything but 32 is also stored as general.alignment.
struct gguf_writer *gguf_writer_new(const char *path, uint32_t alignment, struct carat_error *err);
#endif

// Takes the next bytes of the file; false with *err filled ends the writing.
typedef bool gguf_sink(void *context, const void *bytes, size_t n_bytes, struct carat_error *err);

// Writes to the caller's function instead, e.g. into memory.
struct gguf_writer *gguf_writer_new_sink(gguf_sink *sink, void *context, uint32_t alignment, struct carat_error *err);

bool gguf_write_u32(struct gguf_writer *writer, const char *key, uint32_t value);
bool gguf_write_u64(struct gguf_writer *writer, const char *key, uint64_t value);
bool gguf_write_i32(struct gguf_writer *writer, const char *key, int32_t value);
bool gguf_write_f32(struct gguf_writer *writer, const char *key, float value);
bool gguf_write_f64(struct gguf_writer *writer, const char *key, double value);
bool gguf_write_bool(struct gguf_writer *writer, const char *key, bool value);
bool gguf_write_text(struct gguf_writer *writer, const char *key, const char *text);
bool gguf_write_text_n(struct gguf_writer *writer, const char *key, const char *bytes, size_t n_bytes);

// An array of numbers: `values` holds n little-endian elements of `type` (not text, not array).
bool gguf_write_array(struct gguf_writer *writer, const char *key, enum gguf_value_type type, const void *values, uint64_t n);
bool gguf_write_texts(struct gguf_writer *writer, const char *key, const struct gguf_text *texts, uint64_t n);

// A scalar of any type from its little-endian bytes.
bool gguf_write_scalar(struct gguf_writer *writer, const char *key, enum gguf_value_type type, const void *value);

// Any value as a reader gave it.
bool gguf_write_value(struct gguf_writer *writer, const char *key, const struct gguf_value *value);

// ne: n_dims dimensions, fastest first.
bool gguf_declare(struct gguf_writer *writer, const char *name, enum gguf_type type, uint32_t n_dims, const uint64_t *ne);

// The next bytes of the tensors' data. A tensor may be written by several calls, a call must not cross into the next tensor.
bool gguf_write_data(struct gguf_writer *writer, const void *bytes, size_t n_bytes);

// Completes the file; fails when a tensor's data is missing. The writer must still be freed.
bool gguf_writer_finish(struct gguf_writer *writer, struct carat_error *err);

// What went wrong so far, code CARAT_OK when nothing.
const struct carat_error *gguf_writer_error(const struct gguf_writer *writer);

void gguf_writer_free(struct gguf_writer *writer); // NULL is allowed

#endif
