// ref_memory.c: buffers, reading back, and the bytes of weights. All of it is ordinary memory; everything happens at once.

#include "ref/ref_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

struct buffer *ref_buffer_new(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
{
    (void)ops;
    uint64_t rounded = (n_bytes + 255) & ~(uint64_t)255;
    struct buffer *buffer = malloc(sizeof *buffer);
    // Room is never empty, so that NULL always means failure.
    void *bytes =
        buffer != NULL && rounded >= n_bytes && rounded <= SIZE_MAX ? calloc(1, rounded != 0 ? (size_t)rounded : 1) : NULL;
    if (bytes == NULL) {
        free(buffer);
        fail(err, CARAT_NO_MEMORY, "no memory for a buffer of %llu bytes", (unsigned long long)n_bytes);
        return NULL;
    }
    *buffer = (struct buffer){.bytes = bytes, .n_bytes = rounded};
    return buffer;
}

void ref_buffer_free(struct ops *ops, struct buffer *buffer)
{
    (void)ops;
    if (buffer != NULL)
        free(buffer->bytes);
    free(buffer);
}

void ref_write(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    (void)ops;
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    memcpy(buffer->bytes + offset, source, (size_t)n_bytes);
}

void ref_copy(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
    uint64_t n_bytes)
{
    (void)ops;
    assert(source_offset <= source->n_bytes && n_bytes <= source->n_bytes - source_offset);
    assert(target_offset <= target->n_bytes && n_bytes <= target->n_bytes - target_offset);
    memcpy(target->bytes + target_offset, source->bytes + source_offset, (size_t)n_bytes);
}

// Moves the noted failure into *err; false when there was one.
static bool report_failure(struct ref *ref, struct carat_error *err)
{
    if (ref->failure.code == CARAT_OK)
        return true;
    if (err != NULL)
        *err = ref->failure;
    ref->failure.code = CARAT_OK;
    return false;
}

int32_t ref_read_start(
    struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err)
{
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    if (!report_failure((struct ref *)ops, err))
        return -1;
    memcpy(target, buffer->bytes + offset, (size_t)n_bytes);
    return 0;
}

enum ops_state ref_poll(struct ops *ops, int32_t ticket, struct carat_error *err)
{
    (void)ticket;
    return report_failure((struct ref *)ops, err) ? OPS_DONE : OPS_FAILED;
}

void ref_wait(struct ops *ops, int32_t ticket)
{
    (void)ops, (void)ticket;
}

void ref_submit(struct ops *ops)
{
    (void)ops;
}

// A weight with memory of its own keeps that in `device`; a mapped one has `device` NULL.
bool ref_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err)
{
    (void)ops, (void)may_stay_on_disk;
    weight->device = NULL;
    if (mapped == NULL) {
        weight->device = weight->n_bytes <= SIZE_MAX ? malloc((size_t)weight->n_bytes) : NULL;
        if (weight->device == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory for tensor '%s' (%llu bytes)", weight->name,
                (unsigned long long)weight->n_bytes);
    }
    weight->host = mapped != NULL ? mapped : weight->device;
    weight->home = WEIGHT_HOST;
    return true;
}

bool ref_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err)
{
    (void)ops;
    if (weight->device == NULL || offset > weight->n_bytes || n_bytes > weight->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "%llu bytes at %llu do not fit the room of tensor '%s'", (unsigned long long)n_bytes,
            (unsigned long long)offset, weight->name);
    memcpy((unsigned char *)weight->device + offset, bytes, (size_t)n_bytes);
    return true;
}

void ref_weight_free(struct ops *ops, struct weight *weight)
{
    (void)ops;
    free(weight->device);
    weight->device = NULL;
    weight->host = NULL;
    weight->home = WEIGHT_UNPLACED;
}

bool ref_weights_ready(struct ops *ops, struct carat_error *err)
{
    (void)ops, (void)err;
    return true;
}

void *ref_take(struct ref *ref, size_t count, size_t size)
{
    size_t n_bytes;
    void *room = __builtin_mul_overflow(count, size, &n_bytes) ? NULL : malloc(n_bytes != 0 ? n_bytes : 1);
    if (room == NULL)
        fail(&ref->failure, CARAT_NO_MEMORY, "no memory for an operation of the reference backend (%zu elements of %zu bytes)",
            count, size);
    return room;
}

struct matrix ref_matrix(struct tensor tensor)
{
    size_t n_bytes = (size_t)tensor.n_rows * (size_t)tensor.n_cols * sizeof(float);
    assert(tensor.offset <= tensor.buffer->n_bytes && n_bytes <= tensor.buffer->n_bytes - tensor.offset);
    (void)n_bytes;
    return (struct matrix){
        .data = (float *)(tensor.buffer->bytes + tensor.offset),
        .n_rows = tensor.n_rows,
        .n_cols = tensor.n_cols,
        .stride = (size_t)tensor.n_cols,
    };
}

struct matrix ref_columns(struct matrix matrix, int32_t first, int32_t n_cols)
{
    assert(first >= 0 && n_cols >= 0 && first + n_cols <= matrix.n_cols);
    return (struct matrix){.data = matrix.data + first, .n_rows = matrix.n_rows, .n_cols = n_cols, .stride = matrix.stride};
}

int32_t *ref_ints(struct tensor tensor)
{
    return (int32_t *)(tensor.buffer->bytes + tensor.offset);
}
