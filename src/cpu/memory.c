// memory.c: where weights lie, and the room that operations work in.

#include <assert.h>
#include <stdlib.h>

#include "cpu/cpu_internal.h"

enum { ALIGNMENT = 64, VECTOR_ALIGNMENT = 4 };

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
        fail(&cpu->host.failure, CARAT_NO_MEMORY, "no memory for an operation of the CPU backend (%zu bytes)", n_bytes);
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
