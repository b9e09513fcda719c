// lookup.c: tensors of the file to weights of the plan.

#include "model/lookup.h"

#include <stdio.h>

bool lookup_begin(
    struct lookup *lookup, const struct gguf_file *file, struct plan *plan, enum plan_class class, struct carat_error *err)
{
    *lookup = (struct lookup){.file = file, .plan = plan, .class = class, .err = err};
    lookup->failed = !plan_add_file(plan, file, &lookup->first_part, err);
    return !lookup->failed;
}

static const struct gguf_tensor *find(const struct lookup *lookup, const char *name)
{
    char full[2 * GGUF_MAX_NAME_BYTES];
    snprintf(full, sizeof full, "%s%s", lookup->prefix, name);
    return gguf_find_tensor(lookup->file, full);
}

const struct gguf_tensor *lookup_tensor(struct lookup *lookup, const char *name, const char *alias)
{
    const struct gguf_tensor *tensor = find(lookup, name);
    return tensor == NULL && alias != NULL ? find(lookup, alias) : tensor;
}

static bool missing(struct lookup *lookup, const char *name)
{
    lookup->failed = true;
    return fail(lookup->err, CARAT_NOT_FOUND, "tensor '%s%s' is missing: the file is incomplete or no Gemma 4 model",
        lookup->prefix, name);
}

static bool check_shape(struct lookup *lookup, const struct gguf_tensor *tensor, const int32_t wanted[3])
{
    bool same = tensor->ne[3] == 1;
    for (int i = 0; i < 3; i++)
        same = same && (wanted[i] != 0 ? tensor->ne[i] == (uint64_t)wanted[i] : tensor->ne[i] >= 1 && tensor->ne[i] <= INT32_MAX);
    if (same)
        return true;
    char sizes[3][16];
    for (int i = 0; i < 3; i++) {
        if (wanted[i] != 0)
            snprintf(sizes[i], sizeof sizes[i], "%d", wanted[i]);
        else
            snprintf(sizes[i], sizeof sizes[i], "any");
    }
    lookup->failed = true;
    return fail(lookup->err, CARAT_BAD_FILE,
        "tensor '%s' has the shape [%llu, %llu, %llu, %llu], but the metadata demand [%s, %s, %s, 1]", tensor->name,
        (unsigned long long)tensor->ne[0], (unsigned long long)tensor->ne[1], (unsigned long long)tensor->ne[2],
        (unsigned long long)tensor->ne[3], sizes[0], sizes[1], sizes[2]);
}

bool lookup_describe(
    struct lookup *lookup, const struct gguf_tensor *tensor, int32_t n_in, int32_t n_out, int32_t n_slices, struct weight *out)
{
    if (lookup->failed || !check_shape(lookup, tensor, (const int32_t[3]){n_in, n_out, n_slices}))
        return false;
    const struct gguf_type_info *info = gguf_type_info(tensor->type);
    uint64_t row_bytes;
    if (info == NULL || !info->supported || !gguf_row_bytes(tensor->type, tensor->ne[0], &row_bytes)) {
        lookup->failed = true;
        return fail(lookup->err, CARAT_UNSUPPORTED,
            "tensor '%s' has the type %s, which is not supported; quantise the model to another type", tensor->name,
            gguf_type_name(tensor->type));
    }
    *out = (struct weight){
        .name = tensor->name,
        .type = tensor->type,
        .n_in = (int32_t)tensor->ne[0],
        .n_out = (int32_t)tensor->ne[1],
        .n_slices = (int32_t)tensor->ne[2],
        .row_bytes = row_bytes,
        .n_bytes = tensor->n_bytes,
        .file_offset = tensor->offset,
        .file_part = lookup->first_part + tensor->part,
        .group = tensor->ne[2] == 1 ? lookup->group : 0,
    };
    return true;
}

static bool enter(struct lookup *lookup, struct weight *weight, void *host_room)
{
    struct plan_item item = {.weight = weight, .class = lookup->class, .host_room = host_room};
    lookup->failed = !plan_add(lookup->plan, &item, lookup->err);
    return !lookup->failed;
}

static bool take(
    struct lookup *lookup, const struct gguf_tensor *tensor, int32_t n_in, int32_t n_out, int32_t n_slices, struct weight *out)
{
    return lookup_describe(lookup, tensor, n_in, n_out, n_slices, out) && enter(lookup, out, NULL);
}

static bool check_vector_type(struct lookup *lookup, const struct gguf_tensor *tensor)
{
    if (tensor->type == GGUF_TYPE_F32)
        return true;
    lookup->failed = true;
    return fail(lookup->err, CARAT_UNSUPPORTED, "tensor '%s' has the type %s; vectors must be F32", tensor->name,
        gguf_type_name(tensor->type));
}

bool lookup_matrix(struct lookup *lookup, const char *name, const char *alias, int32_t n_in, int32_t n_out, struct weight *out)
{
    if (lookup->failed)
        return false;
    const struct gguf_tensor *tensor = lookup_tensor(lookup, name, alias);
    return tensor != NULL ? take(lookup, tensor, n_in, n_out, 1, out) : missing(lookup, name);
}

bool lookup_stack(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, int32_t n_slices, struct weight *out)
{
    if (lookup->failed)
        return false;
    const struct gguf_tensor *tensor = lookup_tensor(lookup, name, NULL);
    return tensor != NULL ? take(lookup, tensor, n_in, n_out, n_slices, out) : missing(lookup, name);
}

bool lookup_optional_vector(struct lookup *lookup, const char *name, const char *alias, int32_t n, struct weight *out)
{
    if (lookup->failed)
        return false;
    const struct gguf_tensor *tensor = lookup_tensor(lookup, name, alias);
    return tensor == NULL || (check_vector_type(lookup, tensor) && take(lookup, tensor, n, 1, 1, out));
}

bool lookup_vector(struct lookup *lookup, const char *name, const char *alias, int32_t n, struct weight *out)
{
    if (lookup->failed)
        return false;
    return lookup_tensor(lookup, name, alias) != NULL ? lookup_optional_vector(lookup, name, alias, n, out)
                                                      : missing(lookup, name);
}

bool lookup_host_vector(struct lookup *lookup, const char *name, int32_t n, float *room, struct weight *weight)
{
    if (lookup->failed)
        return false;
    const struct gguf_tensor *tensor = lookup_tensor(lookup, name, NULL);
    return tensor == NULL ||
           (check_vector_type(lookup, tensor) && lookup_describe(lookup, tensor, n, 1, 1, weight) && enter(lookup, weight, room));
}
