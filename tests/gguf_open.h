// gguf_open.h: opening GGUF files that are in memory, for tests that look at what is read of them. Include it first: cmocka.h
// comes with it, which has a macro called fail.

#ifndef CARAT_TESTS_GGUF_OPEN_H
#define CARAT_TESTS_GGUF_OPEN_H

#include "gguf/gguf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_build.h"

enum { HEADER_PIECE = 64 * 1024 }; // bytes that a header is read by

// Opens the bytes from an allocation of exactly their size, so that a sanitizer sees every read beyond them.
static inline bool open_bytes(const uint8_t *bytes, size_t n, struct gguf_file **file, struct carat_error *err, void **copy)
{
    *copy = malloc(n == 0 ? 1 : n);
    assert_non_null(*copy);
    if (n != 0)
        memcpy(*copy, bytes, n);
    struct gguf_source *source = gguf_source_memory(*copy, n, "test.gguf", NULL);
    assert_non_null(source);
    bool ok = gguf_open(&source, 1, file, err);
    if (!ok)
        gguf_source_close(source);
    return ok;
}

struct reading {
    const uint8_t *bytes; // the rest of the file is zeros
    size_t n;
    uint64_t n_read, n_reads;
};

static inline bool read_counted(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    struct reading *reading = context;
    reading->n_read += n_bytes;
    reading->n_reads++;
    for (size_t i = 0; i < n_bytes; i++)
        ((uint8_t *)dst)[i] = offset + i < reading->n ? reading->bytes[offset + i] : 0;
    return true;
}

#endif
