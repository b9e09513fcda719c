// safetensors.c: the safetensors container: u64 length, JSON table, data.

#include "gguf/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json.h"
#include "base/number.h"
#include "gguf/parse.h"

enum { MAX_TENSORS = 1 << 16, PIECE_BYTES = 64 * 1024 };

struct safetensors_file {
    struct gguf_source *source;
    struct json_document *header; // holds all names
    struct safetensors_tensor *tensors;
    uint32_t n_tensors;
    struct name_table names;
    uint64_t data_start;
};

static uint32_t element_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        uint32_t n_bytes;
    } kinds[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8}, {"U64", 8}, {"I32", 4}, {"U32", 4}, {"I16", 2},
        {"U16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, dtype) == 0)
            return kinds[i].n_bytes;
    }
    return 0;
}

// A non-negative whole number of at most 63 bits. JSON doubles are exact only to 2^53, which no file reaches.
static bool natural(const struct json_value *value, uint64_t *out)
{
    int64_t number;
    if (!json_i64(value, &number) || number < 0)
        return false;
    *out = (uint64_t)number;
    return true;
}

static bool read_shape(
    const struct json_value *member, struct safetensors_tensor *tensor, uint64_t *n_bytes, struct carat_error *err)
{
    const struct json_value *shape = json_get(member, "shape");
    if (!json_is(shape, JSON_ARRAY) || shape->n_children > SAFETENSORS_MAX_DIMS)
        return fail(
            err, CARAT_BAD_FILE, "tensor '%.120s' has no list of at most %d dimensions", tensor->name, SAFETENSORS_MAX_DIMS);
    *n_bytes = element_bytes(tensor->dtype);
    if (*n_bytes == 0)
        return fail(err, CARAT_UNSUPPORTED, "tensor '%.120s' has the unknown type '%.20s'", tensor->name, tensor->dtype);
    tensor->n_dims = (uint32_t)shape->n_children;
    for (uint32_t i = 0; i < SAFETENSORS_MAX_DIMS; i++) {
        tensor->shape[i] = 1;
        if (i >= tensor->n_dims)
            continue;
        if (!natural(&shape->children[i], &tensor->shape[i]) || !mul_u64(*n_bytes, tensor->shape[i], n_bytes))
            return fail(err, CARAT_BAD_FILE, "tensor '%.120s' has an impossible shape", tensor->name);
    }
    return true;
}

static bool read_tensor(struct safetensors_file *file, const struct json_value *member, struct carat_error *err)
{
    struct safetensors_tensor *tensor = &file->tensors[file->n_tensors];
    tensor->name = member->key;
    if (strlen(member->key) != member->n_key || member->n_key == 0)
        return fail(err, CARAT_BAD_FILE, "a tensor's name is empty or holds a zero byte");
    if (!json_get_text(member, "dtype", &tensor->dtype))
        return fail(err, CARAT_BAD_FILE, "tensor '%.120s' has no 'dtype'", tensor->name);
    uint64_t begin, end, n_bytes = 0;
    if (!read_shape(member, tensor, &n_bytes, err))
        return false;
    const struct json_value *offsets = json_get(member, "data_offsets");
    if (!json_is(offsets, JSON_ARRAY) || offsets->n_children != 2 || !natural(&offsets->children[0], &begin) ||
        !natural(&offsets->children[1], &end) || end < begin)
        return fail(err, CARAT_BAD_FILE, "tensor '%.120s' has no valid 'data_offsets'", tensor->name);
    if (end - begin != n_bytes)
        return fail(err, CARAT_BAD_FILE, "tensor '%.120s' has %llu bytes where its shape needs %llu", tensor->name,
            (unsigned long long)(end - begin), (unsigned long long)n_bytes);
    if (end > file->source->n_bytes - file->data_start)
        return fail(err, CARAT_BAD_FILE, "tensor '%.120s' reaches beyond the end of the file: it is truncated; download it again",
            tensor->name);
    tensor->offset = file->data_start + begin;
    tensor->n_bytes = n_bytes;
    file->n_tensors++;
    return true;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct safetensors_tensor *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); // empty tensors first
}

static const char *tensor_name(const void *items, uint32_t index)
{
    return ((const struct safetensors_tensor *)items)[index].name;
}

static bool read_table(struct safetensors_file *file, struct carat_error *err)
{
    const struct json_value *root = json_root(file->header);
    if (!json_is(root, JSON_OBJECT) || root->n_children > MAX_TENSORS)
        return fail(err, CARAT_BAD_FILE, "the header is no object of at most %d tensors", MAX_TENSORS);
    file->tensors = calloc(root->n_children + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a table of %zu tensors", root->n_children);
    for (size_t i = 0; i < root->n_children; i++) {
        if (strcmp(root->children[i].key, "__metadata__") != 0 && !read_tensor(file, &root->children[i], err))
            return false;
    }
    if (file->n_tensors != 0)
        qsort(file->tensors, file->n_tensors, sizeof *file->tensors, compare_offsets);
    for (uint32_t i = 1; i < file->n_tensors; i++) {
        const struct safetensors_tensor *before = &file->tensors[i - 1], *tensor = &file->tensors[i];
        if (tensor->offset < before->offset + before->n_bytes)
            return fail(err, CARAT_BAD_FILE, "tensors '%.80s' and '%.80s' overlap", before->name, tensor->name);
    }
    uint32_t twice;
    if (name_table_build(&file->names, file->tensors, file->n_tensors, tensor_name, &twice))
        return true;
    if (twice == file->n_tensors)
        return fail(err, CARAT_NO_MEMORY, "no memory for a table of %u tensors", file->n_tensors);
    return fail(err, CARAT_BAD_FILE, "tensor '%.120s' appears twice", file->tensors[twice].name);
}

static bool read_header(struct safetensors_file *file, struct carat_error *err)
{
    struct gguf_source *source = file->source;
    uint8_t length[8];
    if (source->n_bytes < sizeof length)
        return fail(err, CARAT_BAD_FILE, "not a safetensors file: it has %llu bytes", (unsigned long long)source->n_bytes);
    if (!gguf_source_read(source, 0, length, sizeof length, err))
        return false;
    uint64_t n_header = load_u64(length);
    if (n_header > source->n_bytes - sizeof length || n_header > SAFETENSORS_MAX_HEADER_BYTES)
        return fail(err, CARAT_BAD_FILE, "not a safetensors file, or truncated: its header would have %llu bytes",
            (unsigned long long)n_header);
    char *text = malloc((size_t)n_header + 1);
    if (text == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a header of %llu bytes", (unsigned long long)n_header);
    bool ok = gguf_source_read(source, sizeof length, text, (size_t)n_header, err);
    if (ok)
        file->header = json_parse(text, (size_t)n_header, err);
    free(text);
    file->data_start = sizeof length + n_header;
    return ok && file->header != NULL && read_table(file, err);
}

bool safetensors_open(struct gguf_source *source, struct safetensors_file **out, struct carat_error *err)
{
    *out = NULL;
    struct safetensors_file *file = calloc(1, sizeof *file);
    if (file == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to open %s", source->name);
    file->source = source;
    if (!read_header(file, err)) {
        file->source = NULL; // stays the caller's
        safetensors_close(file);
        return fail_in(err, "%s", source->name);
    }
    *out = file;
    return true;
}

void safetensors_close(struct safetensors_file *file)
{
    if (file == NULL)
        return;
    gguf_source_close(file->source);
    json_free(file->header);
    name_table_free(&file->names);
    free(file->tensors);
    free(file);
}

size_t safetensors_count(const struct safetensors_file *file)
{
    return file->n_tensors;
}

const struct safetensors_tensor *safetensors_at(const struct safetensors_file *file, size_t index)
{
    return index < file->n_tensors ? &file->tensors[index] : NULL;
}

const struct safetensors_tensor *safetensors_find(const struct safetensors_file *file, const char *name)
{
    uint32_t index = name_table_find(&file->names, file->tensors, tensor_name, name);
    return index != UINT32_MAX ? &file->tensors[index] : NULL;
}

const char *safetensors_metadata(const struct safetensors_file *file, const char *key)
{
    const char *text;
    return json_get_text(json_get(json_root(file->header), "__metadata__"), key, &text) ? text : NULL;
}

static float element_f32(const uint8_t *bytes, const char *dtype)
{
    if (strcmp(dtype, "F32") == 0)
        return f32_from_bits(load_u32(bytes));
    if (strcmp(dtype, "F16") == 0)
        return f32_from_f16(load_u16(bytes));
    if (strcmp(dtype, "BF16") == 0)
        return f32_from_bf16(load_u16(bytes));
    uint64_t bits = load_u64(bytes);
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

bool safetensors_read_f32(
    const struct safetensors_file *file, const struct safetensors_tensor *tensor, float *out, uint64_t n, struct carat_error *err)
{
    static const char *const readable[] = {"F32", "F16", "BF16", "F64"};
    bool known = false;
    for (size_t i = 0; i < sizeof readable / sizeof readable[0]; i++)
        known = known || strcmp(tensor->dtype, readable[i]) == 0;
    if (!known)
        return fail(err, CARAT_UNSUPPORTED, "tensor '%.120s' has type %.20s; only F32, F16, BF16 and F64 can be read",
            tensor->name, tensor->dtype);
    uint32_t size = element_bytes(tensor->dtype);
    if (n != tensor->n_bytes / size)
        return fail(err, CARAT_BAD_ARGUMENT, "tensor '%.120s' has %llu elements, not %llu", tensor->name,
            (unsigned long long)(tensor->n_bytes / size), (unsigned long long)n);
    uint8_t *piece = malloc(PIECE_BYTES);
    if (piece == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to read tensor '%.120s'", tensor->name);
    bool ok = true;
    for (uint64_t at = 0; ok && at < tensor->n_bytes; at += PIECE_BYTES) {
        uint64_t left = tensor->n_bytes - at;
        size_t n_bytes = left < PIECE_BYTES ? (size_t)left : PIECE_BYTES;
        ok = gguf_source_read(file->source, tensor->offset + at, piece, n_bytes, err);
        for (size_t i = 0; ok && i < n_bytes / size; i++)
            out[at / size + i] = element_f32(piece + i * size, tensor->dtype);
    }
    free(piece);
    return ok;
}
