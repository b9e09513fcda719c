// source.h: one way to read the bytes of a model, wherever they are.
//
// A source is made by one of the functions below and closed with gguf_source_close. `read` fills dst completely or fails; reading
// beyond n_bytes is an error. Sources on memory and files may be read by several threads at once, the others by one at a time.

#ifndef CARAT_GGUF_SOURCE_H
#define CARAT_GGUF_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct gguf_source {
    bool (*read)(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err);
    void (*close)(struct gguf_source *source); // frees the source itself
    uint64_t n_bytes;                          // size of the whole
    const void *mapped;                        // all n_bytes when they can be addressed: use them in place; else NULL
    const char *name;                          // path or URL, for messages
};

// Bytes of the caller, which stay where they are until the source is closed. name is copied.
struct gguf_source *gguf_source_memory(const void *bytes, size_t n_bytes, const char *name, struct carat_error *err);

typedef bool gguf_read_function(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err);

// Bytes that the caller's function delivers, n_bytes in all.
struct gguf_source *gguf_source_callback(
    gguf_read_function *read, void *context, uint64_t n_bytes, const char *name, struct carat_error *err);

#ifndef __wasm__
// A local file. With map it is mapped where the address space allows it, else read by position; a file larger than the machine's
// memory works either way. A mapped file must not be shortened while it is open.
struct gguf_source *gguf_source_file(const char *path, bool map, struct carat_error *err);

// A file on an http or https server that supports ranges. Reads that follow each other share requests; each answer must be 206
// with exactly the range that was asked for, from an unchanged file. Fails with CARAT_UNSUPPORTED in builds without libcurl.
struct gguf_source *gguf_source_http(const char *url, struct carat_error *err);

// Whatever `name` means: the path of an existing file, an http(s) URL, or a model of the local Ollama store ("gemma4:e2b").
struct gguf_source *gguf_source_open(const char *name, struct carat_error *err);
#endif

// source->read with the bounds checked first.
bool gguf_source_read(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err);

// NULL is allowed.
void gguf_source_close(struct gguf_source *source);

#endif
