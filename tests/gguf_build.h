// gguf_build.h: GGUF files made byte by byte, right and wrong ones, without the library's writer.

#ifndef CARAT_TESTS_GGUF_BUILD_H
#define CARAT_TESTS_GGUF_BUILD_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    uint8_t *at;
    size_t n, capacity;
};

static inline void put(struct bytes *b, const void *from, size_t n)
{
    if (b->n + n > b->capacity) {
        b->capacity = 2 * (b->n + n) + 64;
        b->at = realloc(b->at, b->capacity);
        if (b->at == NULL)
            abort();
    }
    if (n != 0)
        memcpy(b->at + b->n, from, n);
    b->n += n;
}

static inline void put_number(struct bytes *b, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        uint8_t byte = (uint8_t)(value >> 8 * i);
        put(b, &byte, 1);
    }
}

static inline void put_text(struct bytes *b, const char *text)
{
    put_number(b, strlen(text), 8);
    put(b, text, strlen(text));
}

static inline void put_head(struct bytes *b, uint32_t version, uint64_t n_tensors, uint64_t n_entries)
{
    put(b, "GGUF", 4);
    put_number(b, version, 4);
    put_number(b, n_tensors, 8);
    put_number(b, n_entries, 8);
}

static inline void put_key(struct bytes *b, const char *key, uint32_t type)
{
    put_text(b, key);
    put_number(b, type, 4);
}

static inline void put_u32_entry(struct bytes *b, const char *key, uint32_t value)
{
    put_key(b, key, 4);
    put_number(b, value, 4);
}

static inline void put_text_entry(struct bytes *b, const char *key, const char *text)
{
    put_key(b, key, 8);
    put_text(b, text);
}

static inline void put_tensor(
    struct bytes *b, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset)
{
    put_text(b, name);
    put_number(b, n_dims, 4);
    for (uint32_t i = 0; i < n_dims; i++)
        put_number(b, ne[i], 8);
    put_number(b, type, 4);
    put_number(b, offset, 8);
}

static inline void put_padding(struct bytes *b, size_t alignment)
{
    while (b->n % alignment != 0)
        put(b, "", 1);
}

static inline void put_zeros(struct bytes *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        put(b, "", 1);
}

#endif
