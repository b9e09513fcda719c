// gguf.c: an open GGUF file of one or several parts: opening, metadata by key, tensors by name.

#include "gguf/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/number.h"
#include "gguf/parse.h"

struct gguf_file {
    struct gguf_part *parts; // n_parts
    uint32_t n_parts;
    const struct gguf_tensor **tensors; // of all parts, in file order
    uint32_t n_tensors;
    struct name_table names; // of tensors
};

static const char *tensor_name(const void *items, uint32_t index)
{
    return ((const struct gguf_tensor *const *)items)[index]->name;
}

static bool index_tensors(struct gguf_file *file, struct carat_error *err)
{
    uint64_t n_tensors = 0;
    for (uint32_t p = 0; p < file->n_parts; p++)
        n_tensors += file->parts[p].n_tensors;
    if (n_tensors > GGUF_MAX_TENSORS)
        return fail(err, CARAT_BAD_FILE, "%llu tensors in all parts, at most %d are allowed", (unsigned long long)n_tensors,
            GGUF_MAX_TENSORS);
    file->tensors = (const struct gguf_tensor **)calloc(n_tensors + 1, sizeof *file->tensors);
    if (file->tensors == NULL)
        return fail(
            err, CARAT_NO_MEMORY, "no memory for a table of %llu tensors; close other programs", (unsigned long long)n_tensors);
    for (uint32_t p = 0; p < file->n_parts; p++) {
        for (uint32_t i = 0; i < file->parts[p].n_tensors; i++)
            file->tensors[file->n_tensors++] = &file->parts[p].tensors[i];
    }
    uint32_t twice;
    if (name_table_build(&file->names, (const void *)file->tensors, file->n_tensors, tensor_name, &twice))
        return true;
    if (twice == file->n_tensors)
        return fail(err, CARAT_NO_MEMORY, "no memory for a table of %u tensors; close other programs", file->n_tensors);
    return fail(err, CARAT_BAD_FILE, "tensor '%s' appears twice; the file is damaged", file->tensors[twice]->name);
}

// Checks the split.* keys of part `index` against the parts that were given.
static bool check_split(const struct gguf_file *file, uint32_t index, struct carat_error *err)
{
    const struct gguf_part *part = &file->parts[index];
    const struct gguf_value *count_value = gguf_part_find(part, "split.count");
    const struct gguf_value *no_value = gguf_part_find(part, "split.no");
    uint64_t count = 1, no = 0;
    if ((count_value != NULL && !gguf_value_u64(count_value, 0, &count)) ||
        (no_value != NULL && !gguf_value_u64(no_value, 0, &no)))
        return fail(err, CARAT_BAD_FILE, "the keys 'split.count' and 'split.no' must be numbers; the file is damaged");
    if (count <= 1 && file->n_parts == 1)
        return true;
    if (no != index && file->n_parts == 1)
        return fail(err, CARAT_BAD_ARGUMENT, "this is part %llu of %llu of a split model; open part 1",
            (unsigned long long)no + 1, (unsigned long long)count);
    if (count != file->n_parts)
        return fail(err, CARAT_BAD_FILE,
            "the model is split into %llu parts but %u were opened; keep the names of the parts "
            "(NAME-00001-of-%05llu.gguf) and put them side by side",
            (unsigned long long)count, file->n_parts, (unsigned long long)count);
    if (no != index)
        return fail(err, CARAT_BAD_FILE, "the file is part %llu but stands in the place of part %u; restore the files' names",
            (unsigned long long)no + 1, index + 1);
    const struct gguf_value *total_value = gguf_part_find(part, "split.tensors.count");
    uint64_t total = 0;
    if (total_value == NULL || !gguf_value_u64(total_value, 0, &total))
        return fail(err, CARAT_BAD_FILE, "a split file without a usable key 'split.tensors.count'; the file is damaged");
    if (index == file->n_parts - 1 && total != file->n_tensors)
        return fail(err, CARAT_BAD_FILE, "the parts hold %u tensors but 'split.tensors.count' is %llu; download all parts again",
            file->n_tensors, (unsigned long long)total);
    return true;
}

bool gguf_open(struct gguf_source *const *parts, uint32_t n_parts, struct gguf_file **out, struct carat_error *err)
{
    *out = NULL;
    if (n_parts == 0 || n_parts > GGUF_MAX_PARTS)
        return fail(err, CARAT_BAD_ARGUMENT, "a model of %u files; 1 to %d are allowed", n_parts, GGUF_MAX_PARTS);
    struct gguf_file *file = calloc(1, sizeof *file);
    if (file != NULL)
        file->parts = calloc(n_parts, sizeof *file->parts);
    if (file == NULL || file->parts == NULL) {
        free(file);
        return fail(err, CARAT_NO_MEMORY, "no memory to open %s", parts[0]->name);
    }
    file->n_parts = n_parts;
    bool ok = true;
    for (uint32_t p = 0; ok && p < n_parts; p++)
        ok = gguf_part_read(&file->parts[p], parts[p], p, err);
    ok = ok && (index_tensors(file, err) || fail_in(err, "%s", parts[0]->name));
    for (uint32_t p = 0; ok && p < n_parts; p++)
        ok = check_split(file, p, err) || fail_in(err, "%s", parts[p]->name);
    if (!ok) {
        for (uint32_t p = 0; p < n_parts; p++)
            file->parts[p].source = NULL; // stay the caller's
        gguf_close(file);
        return false;
    }
    *out = file;
    return true;
}

void gguf_close(struct gguf_file *file)
{
    if (file == NULL)
        return;
    for (uint32_t p = 0; p < file->n_parts; p++) {
        struct gguf_source *source = file->parts[p].source;
        gguf_part_free(&file->parts[p]);
        gguf_source_close(source);
    }
    name_table_free(&file->names);
    free((void *)file->tensors);
    free(file->parts);
    free(file);
}

uint32_t gguf_file_version(const struct gguf_file *file)
{
    return file->parts[0].version;
}

uint32_t gguf_part_count(const struct gguf_file *file)
{
    return file->n_parts;
}

struct gguf_source *gguf_file_source(const struct gguf_file *file, uint32_t part)
{
    return part < file->n_parts ? file->parts[part].source : NULL;
}

uint64_t gguf_header_bytes(const struct gguf_file *file, uint32_t part)
{
    return part < file->n_parts ? file->parts[part].data_start : 0;
}

uint64_t gguf_header_digest(const struct gguf_file *file)
{
    uint64_t hash = HASH_START;
    for (uint32_t p = 0; p < file->n_parts; p++) {
        const struct gguf_part *part = &file->parts[p];
        const void *bytes = part->source->mapped != NULL ? part->source->mapped : part->owned_header;
        hash = hash_bytes(hash, bytes, (size_t)part->n_header_bytes);
    }
    return hash;
}

uint64_t gguf_memory_bytes(const struct gguf_file *file)
{
    uint64_t n_bytes = sizeof *file + file->n_tensors * sizeof *file->tensors + file->names.n_slots * sizeof *file->names.slots;
    for (uint32_t p = 0; p < file->n_parts; p++)
        n_bytes += sizeof file->parts[p] + file->parts[p].n_bytes_held;
    return n_bytes;
}

size_t gguf_entry_count(const struct gguf_file *file)
{
    return file->parts[0].n_entries;
}

const struct gguf_entry *gguf_entry_at(const struct gguf_file *file, size_t index)
{
    return index < file->parts[0].n_entries ? &file->parts[0].entries[index] : NULL;
}

const struct gguf_value *gguf_find(const struct gguf_file *file, const char *key)
{
    return gguf_part_find(&file->parts[0], key);
}

static const char *file_name(const struct gguf_file *file)
{
    return file->parts[0].source->name;
}

static bool fail_missing(const struct gguf_file *file, const char *key, struct carat_error *err)
{
    return fail(err, CARAT_NOT_FOUND, "%s: key '%s' is missing; the file is not the kind of model that was expected",
        file_name(file), key);
}

static bool fail_kind(const struct gguf_file *file, const char *key, const char *wanted, struct carat_error *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    return fail(err, CARAT_BAD_FILE, "%s: key '%s' is %s%s where %s is needed; the file is damaged or was converted wrongly",
        file_name(file), key, value->is_array ? "an array of " : "", gguf_value_type_name(value->type), wanted);
}

static const struct gguf_value *find_scalar(const struct gguf_file *file, const char *key)
{
    const struct gguf_value *value = gguf_find(file, key);
    return value != NULL && !value->is_array ? value : NULL;
}

bool gguf_u64(const struct gguf_file *file, const char *key, uint64_t *out, struct carat_error *err)
{
    if (gguf_find(file, key) == NULL)
        return fail_missing(file, key, err);
    const struct gguf_value *value = find_scalar(file, key);
    return (value != NULL && gguf_value_u64(value, 0, out)) || fail_kind(file, key, "a whole number from 0 on", err);
}

bool gguf_u32(const struct gguf_file *file, const char *key, uint32_t *out, struct carat_error *err)
{
    uint64_t wide = 0;
    if (!gguf_u64(file, key, &wide, err))
        return false;
    if (wide > UINT32_MAX)
        return fail_kind(file, key, "a number below 2^32", err);
    *out = (uint32_t)wide;
    return true;
}

bool gguf_f32(const struct gguf_file *file, const char *key, float *out, struct carat_error *err)
{
    if (gguf_find(file, key) == NULL)
        return fail_missing(file, key, err);
    const struct gguf_value *value = find_scalar(file, key);
    double wide;
    if (value == NULL || !gguf_value_f64(value, 0, &wide) || !isfinite((float)wide))
        return fail_kind(file, key, "a finite number", err);
    *out = (float)wide;
    return true;
}

bool gguf_bool(const struct gguf_file *file, const char *key, bool *out, struct carat_error *err)
{
    if (gguf_find(file, key) == NULL)
        return fail_missing(file, key, err);
    const struct gguf_value *value = find_scalar(file, key);
    return (value != NULL && gguf_value_bool(value, 0, out)) || fail_kind(file, key, "a bool", err);
}

bool gguf_text(const struct gguf_file *file, const char *key, struct gguf_text *out, struct carat_error *err)
{
    if (gguf_find(file, key) == NULL)
        return fail_missing(file, key, err);
    const struct gguf_value *value = find_scalar(file, key);
    return (value != NULL && gguf_value_text(value, 0, out)) || fail_kind(file, key, "a text", err);
}

bool gguf_u32_or(const struct gguf_file *file, const char *key, uint32_t otherwise, uint32_t *out, struct carat_error *err)
{
    *out = otherwise;
    return gguf_find(file, key) == NULL || gguf_u32(file, key, out, err);
}

bool gguf_f32_or(const struct gguf_file *file, const char *key, float otherwise, float *out, struct carat_error *err)
{
    *out = otherwise;
    return gguf_find(file, key) == NULL || gguf_f32(file, key, out, err);
}

bool gguf_bool_or(const struct gguf_file *file, const char *key, bool otherwise, bool *out, struct carat_error *err)
{
    *out = otherwise;
    return gguf_find(file, key) == NULL || gguf_bool(file, key, out, err);
}

bool gguf_text_is(const struct gguf_file *file, const char *key, const char *text)
{
    struct gguf_text found;
    const struct gguf_value *value = find_scalar(file, key);
    return value != NULL && gguf_value_text(value, 0, &found) && found.n_bytes == strlen(text) &&
           memcmp(found.bytes, text, found.n_bytes) == 0;
}

static bool is_integer(enum gguf_value_type type)
{
    return type <= GGUF_VALUE_I32 || type == GGUF_VALUE_U64 || type == GGUF_VALUE_I64;
}

bool gguf_array(const struct gguf_file *file, const char *key, enum gguf_value_type kind, const struct gguf_value **out,
    struct carat_error *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    if (value == NULL)
        return fail_missing(file, key, err);
    bool ok = kind == GGUF_VALUE_TEXT   ? value->type == GGUF_VALUE_TEXT
              : kind == GGUF_VALUE_BOOL ? value->type == GGUF_VALUE_BOOL
              : kind == GGUF_VALUE_F32  ? value->type == GGUF_VALUE_F32 || value->type == GGUF_VALUE_F64
                                        : is_integer(value->type);
    const char *wanted = kind == GGUF_VALUE_TEXT   ? "an array of texts"
                         : kind == GGUF_VALUE_BOOL ? "an array of bools"
                         : kind == GGUF_VALUE_F32  ? "an array of floats"
                                                   : "an array of integers";
    if (!value->is_array || !ok)
        return fail_kind(file, key, wanted, err);
    *out = value;
    return true;
}

bool gguf_per_layer(const struct gguf_file *file, const char *key, uint32_t n_layers, int32_t *out, struct carat_error *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    if (value == NULL)
        return fail_missing(file, key, err);
    if (value->is_array && value->count != n_layers)
        return fail(err, CARAT_BAD_FILE,
            "%s: key '%s' has %llu elements for %u layers; the file is damaged or was converted wrongly", file_name(file), key,
            (unsigned long long)value->count, n_layers);
    for (uint32_t i = 0; i < n_layers; i++) {
        int64_t wide = 0;
        bool flag = false;
        bool ok = value->type == GGUF_VALUE_BOOL ? gguf_value_bool(value, value->is_array ? i : 0, &flag)
                                                 : gguf_value_i64(value, value->is_array ? i : 0, &wide);
        if (!ok || wide < INT32_MIN || wide > INT32_MAX)
            return fail_kind(file, key, "a whole number for each layer", err);
        out[i] = flag ? 1 : (int32_t)wide;
    }
    return true;
}

uint64_t gguf_tensor_count(const struct gguf_file *file)
{
    return file->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *file, uint64_t index)
{
    return index < file->n_tensors ? file->tensors[index] : NULL;
}

const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name)
{
    uint32_t index = name_table_find(&file->names, (const void *)file->tensors, tensor_name, name);
    return index != UINT32_MAX ? file->tensors[index] : NULL;
}

uint64_t gguf_tensor_elements(const struct gguf_tensor *tensor)
{
    return tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
}

const void *gguf_tensor_mapped(const struct gguf_file *file, const struct gguf_tensor *tensor)
{
    const char *mapped = file->parts[tensor->part].source->mapped;
    return mapped != NULL ? mapped + tensor->offset : NULL;
}

bool gguf_tensor_read(const struct gguf_file *file, const struct gguf_tensor *tensor, uint64_t offset, void *dst, size_t n_bytes,
    struct carat_error *err)
{
    if (offset > tensor->n_bytes || n_bytes > tensor->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "bytes %llu to %llu of tensor '%s' were asked for, but it has %llu",
            (unsigned long long)offset, (unsigned long long)offset + n_bytes, tensor->name, (unsigned long long)tensor->n_bytes);
    struct gguf_source *source = file->parts[tensor->part].source;
    return gguf_source_read(source, tensor->offset + offset, dst, n_bytes, err) || fail_in(err, "tensor '%s'", tensor->name);
}
