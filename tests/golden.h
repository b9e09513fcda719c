// golden.h: reading golden files and comparing with them. For tests. Brings cmocka along, without its macro `fail`, whose
// name the library uses: include this first.
//
// Goldens are GGUF files of tensors (F32, I32, ...). Everything read is freed by the caller with free().

#ifndef CARAT_TESTS_GOLDEN_H
#define CARAT_TESTS_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka needs the four above
#include <cmocka.h>
#undef fail

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "ops/ops.h"

#ifndef CARAT_FIXTURES
#error "CARAT_FIXTURES must be the folder with the unpacked fixtures"
#endif

#define GOLDEN_HELPER __attribute__((unused)) static

// Ends the running test as failed. (cmocka's fail_msg needs its own macro `fail`.)
#define give_up(...)                                                                                                             \
    do {                                                                                                                         \
        print_error(__VA_ARGS__);                                                                                                \
        print_error("\n");                                                                                                       \
        _fail(__FILE__, __LINE__);                                                                                               \
    } while (0)

// Ends the running test with the message of an error unless the call succeeds.
#define require(call, err)                                                                                                       \
    do {                                                                                                                         \
        if (!(call))                                                                                                             \
            give_up("%s: %s", #call, (err).message);                                                                             \
    } while (0)

// A path below the folder of fixtures, in one of four turning buffers.
GOLDEN_HELPER const char *fixture(const char *folder, const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s/%s", CARAT_FIXTURES, folder, name);
    return path;
}

GOLDEN_HELPER struct gguf_file *golden_open(const char *folder, const char *name)
{
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    require(gguf_open_path(fixture(folder, name), &file, &err), err);
    return file;
}

GOLDEN_HELPER bool golden_has(const struct gguf_file *file, const char *name)
{
    return gguf_find_tensor(file, name) != NULL;
}

// All bytes of a tensor of 4-byte elements; *n becomes their number.
GOLDEN_HELPER void *golden_words(const struct gguf_file *file, const char *name, enum gguf_type type, size_t *n)
{
    struct carat_error err = {0};
    const struct gguf_tensor *tensor = gguf_find_tensor(file, name);
    if (tensor == NULL)
        give_up("golden '%s' is missing", name);
    assert_int_equal(tensor->type, type);
    void *words = malloc((size_t)tensor->n_bytes);
    assert_non_null(words);
    require(gguf_tensor_read(file, tensor, 0, words, (size_t)tensor->n_bytes, &err), err);
    *n = (size_t)tensor->n_bytes / 4;
    return words;
}

GOLDEN_HELPER float *golden_f32(const struct gguf_file *file, const char *name, size_t *n)
{
    return golden_words(file, name, GGUF_TYPE_F32, n);
}

GOLDEN_HELPER int32_t *golden_i32(const struct gguf_file *file, const char *name, size_t *n)
{
    return golden_words(file, name, GGUF_TYPE_I32, n);
}

// The path of a new empty file, to be unlinked and freed by the caller.
GOLDEN_HELPER char *temporary_file(void)
{
    const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
    size_t n = strlen(folder) + sizeof "/carat-XXXXXX";
    char *path = malloc(n);
    assert_non_null(path);
    snprintf(path, n, "%s/carat-XXXXXX", folder);
    int handle = mkstemp(path);
    assert_true(handle >= 0);
    close(handle);
    return path;
}

// How far numbers lie from the golden ones. Zero-initialise; adding several comparisons gives their union.
struct deviation {
    double largest; // absolute; infinite when a number was NaN
    double squares;
    size_t n;
};

GOLDEN_HELPER void deviation_add(struct deviation *deviation, const float *got, const float *golden, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double difference = fabs((double)got[i] - golden[i]);
        if (isnan(difference))
            difference = INFINITY;
        if (difference > deviation->largest)
            deviation->largest = difference;
        deviation->squares += difference * difference;
    }
    deviation->n += n;
}

GOLDEN_HELPER double deviation_rms(const struct deviation *deviation)
{
    return deviation->n != 0 ? sqrt(deviation->squares / (double)deviation->n) : 0;
}

// The values of a tensor, after everything queued before.
GOLDEN_HELPER void read_tensor(struct ops *ops, struct tensor tensor, void *out)
{
    struct carat_error err = {0};
    uint64_t n_bytes = (uint64_t)tensor.n_rows * (uint64_t)tensor.n_cols * 4;
    int32_t ticket = ops->read_start(ops, tensor.buffer, tensor.offset, n_bytes, out, &err);
    require(ticket >= 0, err);
    if (ops->wait != NULL)
        ops->wait(ops, ticket);
    require(ops->poll(ops, ticket, &err) == OPS_DONE, err);
}

#endif
