// tower_weights.c: see tower_weights.h.

#include "model/tower_weights.h"

#include <assert.h>
#include <float.h>
#include <stdio.h>

bool lookup_clip_linear(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, struct clip_linear *out)
{
    static const char *const kinds[4] = {"input_min", "input_max", "output_min", "output_max"};
    char full[GGUF_MAX_NAME_BYTES];
    snprintf(full, sizeof full, "%s.weight", name);
    if (!lookup_matrix(lookup, full, NULL, n_in, n_out, &out->linear.weight))
        return false;
    struct linear *linear = &out->linear;
    float *numbers[4] = {&linear->in_min, &linear->in_max, &linear->out_min, &linear->out_max};
    for (int i = 0; i < 4; i++) {
        *numbers[i] = i % 2 == 0 ? -FLT_MAX : FLT_MAX;
        snprintf(full, sizeof full, "%s.%s", name, kinds[i]);
        if (!lookup_host_vector(lookup, full, 1, numbers[i], &out->bounds[i]))
            return false;
        linear->clipped = linear->clipped || weight_exists(&out->bounds[i]);
    }
    return true;
}

void clip_linear_take_packed(struct clip_linear *linear, const float packed[4])
{
    struct linear *target = &linear->linear;
    float *numbers[4] = {&target->in_min, &target->in_max, &target->out_min, &target->out_max};
    for (int i = 0; i < 4; i++) {
        const float *pair = packed + i / 2 * 2;
        if (weight_exists(&linear->bounds[i]) || (pair[0] == 0 && pair[1] == 0))
            continue;
        *numbers[i] = packed[i];
        target->clipped = true;
    }
}

const struct gguf_tensor *lookup_required(struct lookup *lookup, const char *name)
{
    if (lookup->failed)
        return NULL;
    const struct gguf_tensor *tensor = lookup_tensor(lookup, name, NULL);
    if (tensor == NULL) {
        lookup->failed = true;
        fail(lookup->err, CARAT_NOT_FOUND, "tensor '%s%s' is missing: the file is incomplete or no Gemma 4 tower", lookup->prefix,
            name);
    }
    return tensor;
}

bool lookup_flattened(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, struct weight *out)
{
    const struct gguf_tensor *tensor = lookup_required(lookup, name);
    if (tensor == NULL)
        return false;
    bool plain = tensor->type == GGUF_TYPE_F32 || tensor->type == GGUF_TYPE_F16 || tensor->type == GGUF_TYPE_BF16;
    if (gguf_tensor_elements(tensor) != (uint64_t)n_in * (uint64_t)n_out || tensor->ne[tensor->n_dims - 1] != (uint64_t)n_out ||
        !plain) {
        lookup->failed = true;
        return fail(lookup->err, CARAT_BAD_FILE, "tensor '%s' must have %d rows of %d elements in F32, F16 or BF16", tensor->name,
            (int)n_out, (int)n_in);
    }
    uint64_t element_bytes = tensor->type == GGUF_TYPE_F32 ? 4 : 2;
    *out = (struct weight){
        .name = tensor->name,
        .type = tensor->type,
        .n_in = n_in,
        .n_out = n_out,
        .n_slices = 1,
        .row_bytes = element_bytes * (uint64_t)n_in,
        .n_bytes = tensor->n_bytes,
        .file_offset = tensor->offset,
        .file_part = lookup->first_part + tensor->part,
    };
    lookup->failed = !plan_add(lookup->plan, &(struct plan_item){.weight = out, .class = lookup->class}, lookup->err);
    return !lookup->failed;
}

bool tower_number(const struct gguf_file *file, const char *tower, const char *key, int32_t low, int32_t high, int32_t otherwise,
    int32_t *out, struct carat_error *err)
{
    static const char *const families[2] = {"clip", "gemma4"};
    char full[96];
    uint32_t value = 0;
    for (int i = 0; i < 2; i++) {
        snprintf(full, sizeof full, "%s.%s.%s", families[i], tower, key);
        if (gguf_find(file, full) == NULL)
            continue;
        if (!gguf_u32(file, full, &value, err))
            return false;
        if (value < (uint32_t)low || value > (uint32_t)high)
            return fail(err, CARAT_BAD_FILE, "key '%s' is %u; %d to %d are possible", full, value, (int)low, (int)high);
        *out = (int32_t)value;
        return true;
    }
    *out = otherwise;
    return otherwise != 0 || fail(err, CARAT_NOT_FOUND, "the key 'clip.%s.%s' is missing: the file is incomplete", tower, key);
}

bool tower_check_alignment(const struct gguf_file *file, struct carat_error *err)
{
    uint32_t alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!gguf_u32_or(file, "general.alignment", GGUF_DEFAULT_ALIGNMENT, &alignment, err))
        return false;
    return alignment >= sizeof(float) ||
           fail(err, CARAT_UNSUPPORTED, "the file aligns its tensors to %u bytes; towers need 4", alignment);
}

bool tensor_new(struct ops *ops, int64_t n_rows, int64_t n_cols, struct tensor *out, struct carat_error *err)
{
    *out = (struct tensor){0};
    assert(n_rows >= 1 && n_cols >= 1 && n_rows <= INT32_MAX && n_cols <= INT32_MAX);
    struct buffer *buffer = ops->buffer_new(ops, (uint64_t)n_rows * (uint64_t)n_cols * 4, err);
    if (buffer == NULL)
        return false;
    *out = (struct tensor){.buffer = buffer, .n_rows = (int32_t)n_rows, .n_cols = (int32_t)n_cols};
    return true;
}

void tensor_free(struct ops *ops, struct tensor *tensor)
{
    ops->buffer_free(ops, tensor->buffer);
    *tensor = (struct tensor){0};
}

struct tensor tensor_rows(struct tensor tensor, int32_t first, int32_t n_rows)
{
    assert(first % 64 == 0 && first + n_rows <= tensor.n_rows);
    tensor.offset += (uint64_t)first * (uint64_t)tensor.n_cols * 4;
    tensor.n_rows = n_rows;
    return tensor;
}

struct tensor tensor_as(struct tensor tensor, int32_t n_rows, int32_t n_cols)
{
    assert((int64_t)n_rows * n_cols <= (int64_t)tensor.n_rows * tensor.n_cols);
    tensor.n_rows = n_rows;
    tensor.n_cols = n_cols;
    return tensor;
}
