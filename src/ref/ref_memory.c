// ref_memory.c: where weights lie, room for operations, and tensors as rows.

#include "ref/ref_internal.h"

#include <assert.h>
#include <stdlib.h>

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

void *ref_take(struct ref *ref, size_t count, size_t size)
{
    size_t n_bytes;
    void *room = __builtin_mul_overflow(count, size, &n_bytes) ? NULL : malloc(n_bytes != 0 ? n_bytes : 1);
    if (room == NULL)
        fail(&ref->host.failure, CARAT_NO_MEMORY,
            "no memory for an operation of the reference backend (%zu elements of %zu bytes)", count, size);
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
