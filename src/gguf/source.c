// source.c: sources on memory and on a caller's function, and what all sources share.

#include "gguf/source.h"

#include <stdlib.h>
#include <string.h>

struct memory_source {
    struct gguf_source source; // first
    char name[];
};

struct callback_source {
    struct gguf_source source; // first
    gguf_read_function *read;
    void *context;
    char name[];
};

static void free_source(struct gguf_source *source)
{
    free(source);
}

static bool read_memory(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    memcpy(dst, (const char *)source->mapped + offset, n_bytes);
    return true;
}

struct gguf_source *gguf_source_memory(const void *bytes, size_t n_bytes, const char *name, struct carat_error *err)
{
    static const char nothing[1];
    size_t n_name = strlen(name) + 1;
    struct memory_source *memory = calloc(1, sizeof *memory + n_name);
    if (memory == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to open %s", name);
        return NULL;
    }
    memcpy(memory->name, name, n_name);
    memory->source = (struct gguf_source){.read = read_memory,
        .close = free_source,
        .n_bytes = n_bytes,
        .mapped = bytes != NULL ? bytes : nothing,
        .name = memory->name};
    return &memory->source;
}

static bool read_callback(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    struct callback_source *callback = (struct callback_source *)source;
    return callback->read(callback->context, offset, dst, n_bytes, err);
}

struct gguf_source *gguf_source_callback(
    gguf_read_function *read, void *context, uint64_t n_bytes, const char *name, struct carat_error *err)
{
    size_t n_name = strlen(name) + 1;
    struct callback_source *callback = calloc(1, sizeof *callback + n_name);
    if (callback == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to open %s", name);
        return NULL;
    }
    memcpy(callback->name, name, n_name);
    callback->read = read;
    callback->context = context;
    callback->source =
        (struct gguf_source){.read = read_callback, .close = free_source, .n_bytes = n_bytes, .name = callback->name};
    return &callback->source;
}

bool gguf_source_read(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    if (offset > source->n_bytes || n_bytes > source->n_bytes - offset)
        return fail(err, CARAT_BAD_FILE, "%s: bytes %llu to %llu were asked for, but it ends at %llu", source->name,
            (unsigned long long)offset, (unsigned long long)offset + n_bytes, (unsigned long long)source->n_bytes);
    if (n_bytes == 0)
        return true;
    return source->read(source, offset, dst, n_bytes, err);
}

void gguf_source_close(struct gguf_source *source)
{
    if (source != NULL)
        source->close(source);
}
