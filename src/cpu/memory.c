// memory.c: buffers, reading back, the bytes of weights and the room that operations work in. Everything happens at once.

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "cpu/cpu_internal.h"

enum { ALIGNMENT = 64, VECTOR_ALIGNMENT = 4 };

struct buffer *cpu_buffer_new(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
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

void cpu_buffer_free(struct ops *ops, struct buffer *buffer)
{
    (void)ops;
    if (buffer != NULL)
        free(buffer->memory);
    free(buffer);
}

void cpu_write(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    (void)ops;
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    memcpy(buffer->bytes + offset, source, (size_t)n_bytes);
}

void cpu_copy(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
    uint64_t n_bytes)
{
    (void)ops;
    assert(source_offset <= source->n_bytes && n_bytes <= source->n_bytes - source_offset);
    assert(target_offset <= target->n_bytes && n_bytes <= target->n_bytes - target_offset);
    memcpy(target->bytes + target_offset, source->bytes + source_offset, (size_t)n_bytes);
}

// Moves the noted failure into *err; false when there was one.
static bool report_failure(struct cpu *cpu, struct carat_error *err)
{
    if (cpu->failure.code == CARAT_OK)
        return true;
    if (err != NULL)
        *err = cpu->failure;
    cpu->failure.code = CARAT_OK;
    return false;
}

int32_t cpu_read_start(
    struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err)
{
    assert(offset <= buffer->n_bytes && n_bytes <= buffer->n_bytes - offset);
    if (!report_failure((struct cpu *)ops, err))
        return -1;
    memcpy(target, buffer->bytes + offset, (size_t)n_bytes);
    return 0;
}

enum ops_state cpu_poll(struct ops *ops, int32_t ticket, struct carat_error *err)
{
    (void)ticket;
    return report_failure((struct cpu *)ops, err) ? OPS_DONE : OPS_FAILED;
}

void cpu_wait(struct ops *ops, int32_t ticket)
{
    (void)ops, (void)ticket;
}

void cpu_submit(struct ops *ops)
{
    (void)ops;
}

// A weight with memory of its own keeps that in `device`; a mapped one has `device` NULL.
bool cpu_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err)
{
    (void)ops;
    const struct gguf_type_info *info = gguf_type_info(weight->type);
    if (info == NULL || !info->supported)
        return fail(err, CARAT_UNSUPPORTED, "tensor '%s' has type %s, which carat does not compute with", weight->name,
            gguf_type_name(weight->type));
    weight->device = NULL;
    weight->host = mapped;
    weight->home = WEIGHT_HOST;
    if (mapped != NULL)
        return true;
    if (may_stay_on_disk) {
        weight->home = WEIGHT_DISK;
        return true;
    }
    size_t n_bytes = 0;
    if (weight->n_bytes <= SIZE_MAX - ALIGNMENT)
        n_bytes = ((size_t)weight->n_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    weight->device = n_bytes != 0 ? aligned_alloc(ALIGNMENT, n_bytes) : NULL;
    weight->host = weight->device;
    if (weight->device == NULL) {
        weight->home = WEIGHT_UNPLACED;
        return fail(
            err, CARAT_NO_MEMORY, "no memory for tensor '%s' (%llu bytes)", weight->name, (unsigned long long)weight->n_bytes);
    }
    return true;
}

bool cpu_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err)
{
    (void)ops;
    if (weight->device == NULL || offset > weight->n_bytes || n_bytes > weight->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "%llu bytes at %llu do not fit the room of tensor '%s'", (unsigned long long)n_bytes,
            (unsigned long long)offset, weight->name);
    memcpy((unsigned char *)weight->device + offset, bytes, (size_t)n_bytes);
    return true;
}

void cpu_weight_free(struct ops *ops, struct weight *weight)
{
    (void)ops;
    free(weight->device);
    weight->device = NULL;
    weight->host = NULL;
    weight->home = WEIGHT_UNPLACED;
}

bool cpu_weights_ready(struct ops *ops, struct carat_error *err)
{
    (void)ops, (void)err;
    return true;
}

void *cpu_take(struct layout_cursor *cursor, size_t count, size_t size)
{
    size_t n_bytes, end;
    // An impossible size becomes one that no room has, which cpu_room then refuses.
    if (__builtin_mul_overflow(count, size, &n_bytes) || __builtin_add_overflow(n_bytes, cursor->n_used, &end) ||
        end > SIZE_MAX / 2) {
        cursor->n_used = SIZE_MAX / 2;
        return NULL;
    }
    void *result = cursor->bytes != NULL ? cursor->bytes + cursor->n_used : NULL;
    cursor->n_used = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return result;
}

unsigned char *cpu_room(struct cpu *cpu, size_t n_bytes)
{
    if (cpu->room.bytes != NULL && cpu->room.n_bytes >= n_bytes)
        return cpu->room.bytes;
    free(cpu->room.bytes);
    cpu->room.n_bytes = 0;
    cpu->room.bytes = n_bytes < SIZE_MAX / 2 ? aligned_alloc(ALIGNMENT, (n_bytes / ALIGNMENT + 1) * ALIGNMENT) : NULL;
    if (cpu->room.bytes == NULL)
        fail(&cpu->failure, CARAT_NO_MEMORY, "no memory for an operation of the CPU backend (%zu bytes)", n_bytes);
    else
        cpu->room.n_bytes = n_bytes;
    return cpu->room.bytes;
}

float *cpu_floats(struct tensor tensor)
{
    size_t n_bytes = (size_t)tensor.n_rows * (size_t)tensor.n_cols * sizeof(float);
    assert(tensor.offset <= tensor.buffer->n_bytes && n_bytes <= tensor.buffer->n_bytes - tensor.offset);
    (void)n_bytes;
    return (float *)(void *)(tensor.buffer->bytes + tensor.offset);
}

int32_t *cpu_ints(struct tensor tensor)
{
    return (int32_t *)(void *)cpu_floats(tensor);
}

const float *cpu_vector(const struct cpu *cpu, const struct weight *weight, float *room)
{
    if (!weight_exists(weight))
        return NULL;
    assert(weight->home == WEIGHT_HOST);
    if (weight->type == GGUF_TYPE_F32 && (uintptr_t)weight->host % VECTOR_ALIGNMENT == 0)
        return weight->host;
    cpu->kernels->dequantize(weight->type, weight->host, weight->n_in, room);
    return room;
}
