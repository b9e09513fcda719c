// host_memory.c: buffers, reading back and the bytes of weights in ordinary memory.

#include "ops/host_memory.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

struct buffer *host_buffer_new(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
{
    (void)ops;
    struct buffer *buffer = calloc(1, sizeof *buffer);
    uint64_t rounded = (n_bytes + 255) & ~(uint64_t)255;
    // calloc rather than memset: pages of a long context that are never written are never backed by memory.
    if (buffer != NULL && rounded >= n_bytes && rounded <= SIZE_MAX - 256)
        buffer->memory = calloc(1, (size_t)rounded + ALIGNMENT);
    if (buffer == NULL || buffer->memory == NULL) {
        free(buffer);
        fail(err, CARAT_NO_MEMORY, "no memory for a buffer of %llu bytes", (unsigned long long)n_bytes);
        return NULL;
    }
    uintptr_t start = (uintptr_t)buffer->memory;
    buffer->bytes = (unsigned char *)buffer->memory + (ALIGNMENT - start % ALIGNMENT) % ALIGNMENT;
    buffer->n_bytes = rounded;
    return buffer;
}

void host_buffer_free(struct ops *ops, struct buffer *buffer)
{
    (void)ops;
    if (buffer != NULL)
        free(buffer->memory);
    free(buffer);
}

void host_write(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    (void)ops;
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    memcpy(buffer->bytes + offset, source, (size_t)n_bytes);
}

void host_copy(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
    uint64_t n_bytes)
{
    (void)ops;
    assert(source_offset <= source->n_bytes && n_bytes <= source->n_bytes - source_offset);
    assert(target_offset <= target->n_bytes && n_bytes <= target->n_bytes - target_offset);
    memcpy(target->bytes + target_offset, source->bytes + source_offset, (size_t)n_bytes);
}

// Moves the noted failure into *err; false when there was one.
static bool report_failure(struct host_ops *host, struct carat_error *err)
{
    if (host->failure.code == CARAT_OK)
        return true;
    if (err != NULL)
        *err = host->failure;
    host->failure.code = CARAT_OK;
    return false;
}

int32_t host_read_start(
    struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err)
{
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    if (!report_failure((struct host_ops *)ops, err))
        return -1;
    memcpy(target, buffer->bytes + offset, (size_t)n_bytes);
    return 0;
}

enum ops_state host_poll(struct ops *ops, int32_t ticket, struct carat_error *err)
{
    (void)ticket;
    return report_failure((struct host_ops *)ops, err) ? OPS_DONE : OPS_FAILED;
}

void host_wait(struct ops *ops, int32_t ticket)
{
    (void)ops, (void)ticket;
}

void host_submit(struct ops *ops)
{
    (void)ops;
}

bool host_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err)
{
    (void)ops;
    if (weight->device == NULL || offset > weight->n_bytes || n_bytes > weight->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "%llu bytes at %llu do not fit the room of tensor '%s'", (unsigned long long)n_bytes,
            (unsigned long long)offset, weight->name);
    memcpy((unsigned char *)weight->device + offset, bytes, (size_t)n_bytes);
    return true;
}

void host_weight_free(struct ops *ops, struct weight *weight)
{
    (void)ops;
    free(weight->device);
    weight->device = NULL;
    weight->host = NULL;
    weight->home = WEIGHT_UNPLACED;
}

bool host_weights_ready(struct ops *ops, struct carat_error *err)
{
    (void)ops, (void)err;
    return true;
}
