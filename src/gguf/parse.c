// parse.c: reads and checks the header of one GGUF file.
//
// Nothing in the file is trusted: a length is compared with the bytes that remain before anything is allocated or read, lists
// grow as their elements are really found, and the header as a whole is bounded. Where the source is not mapped the bytes are
// kept in one growing buffer, at most twice as long as the header.

#include "gguf/parse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { FIRST_READ_BYTES = 64 * 1024, MIN_ENTRY_BYTES = 8 + 1 + 4 + 1, MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };
enum { MAX_KEY_BYTES = 64 * 1024 - 1 };

struct reader {
    struct gguf_part *part;
    uint64_t at;       // next byte
    uint64_t n_loaded; // bytes of the header that can be addressed
    uint64_t *starts;  // where the value of entry i begins, while the buffer still moves
    uint32_t entry_capacity;
    uint32_t tensor_capacity;
    char where[160]; // what is being read, for messages
    struct carat_error *err;
};

static const char *header_bytes(const struct gguf_part *part)
{
    return part->source->mapped != NULL ? part->source->mapped : (const char *)part->owned_header;
}

static bool fail_memory(struct reader *r)
{
    return fail(r->err, CARAT_NO_MEMORY, "no memory for %s; close other programs", r->where);
}

// Makes bytes [at, at + n) addressable.
static bool need(struct reader *r, uint64_t n)
{
    struct gguf_source *source = r->part->source;
    if (n > source->n_bytes - r->at)
        return fail(r->err, CARAT_BAD_FILE, "the file ends inside %s: it is truncated or damaged; download it again", r->where);
    uint64_t end = r->at + n;
    if (end > GGUF_MAX_HEADER_BYTES)
        return fail(r->err, CARAT_BAD_FILE, "%s lies beyond the first %d MiB, which no model's header needs; the file is damaged",
            r->where, GGUF_MAX_HEADER_BYTES >> 20);
    if (end <= r->n_loaded)
        return true;
    uint64_t wanted = r->n_loaded == 0 ? FIRST_READ_BYTES : r->n_loaded * 2;
    wanted = wanted < end ? end : wanted;
    wanted = wanted > source->n_bytes ? source->n_bytes : wanted;
    uint8_t *grown = realloc(r->part->owned_header, (size_t)wanted);
    if (grown == NULL)
        return fail_memory(r);
    r->part->owned_header = grown;
    if (!gguf_source_read(source, r->n_loaded, grown + r->n_loaded, (size_t)(wanted - r->n_loaded), r->err))
        return false;
    r->n_loaded = wanted;
    return true;
}

static const char *here(const struct reader *r)
{
    return header_bytes(r->part) + r->at;
}

static bool read_u32(struct reader *r, uint32_t *value)
{
    if (!need(r, 4))
        return false;
    *value = load_u32(here(r));
    r->at += 4;
    return true;
}

static bool read_u64(struct reader *r, uint64_t *value)
{
    if (!need(r, 8))
        return false;
    *value = load_u64(here(r));
    r->at += 8;
    return true;
}

// A text: u64 length and bytes. The bytes become addressable at *start.
static bool skip_text(struct reader *r, uint64_t *start, uint64_t *n_bytes)
{
    if (!read_u64(r, n_bytes) || !need(r, *n_bytes))
        return false;
    *start = r->at;
    r->at += *n_bytes;
    return true;
}

// A name of 1 to max_bytes bytes without control characters (which would act on a terminal), copied.
static bool read_name(struct reader *r, uint64_t max_bytes, const char **name)
{
    uint64_t start, n_bytes;
    if (!read_u64(r, &n_bytes))
        return false;
    if (n_bytes == 0)
        return fail(r->err, CARAT_BAD_FILE, "%s has an empty name; the file is damaged", r->where);
    if (n_bytes > max_bytes && n_bytes <= r->part->source->n_bytes)
        return fail(r->err, CARAT_BAD_FILE, "%s has a name of %llu bytes, at most %llu are allowed", r->where,
            (unsigned long long)n_bytes, (unsigned long long)max_bytes);
    r->at -= 8;
    if (!skip_text(r, &start, &n_bytes))
        return false;
    const char *bytes = header_bytes(r->part) + start;
    for (uint64_t i = 0; i < n_bytes; i++) {
        if ((unsigned char)bytes[i] < 0x20 || bytes[i] == 0x7f)
            return fail(r->err, CARAT_BAD_FILE, "%s has a byte %d in its name; the file is damaged", r->where, bytes[i]);
    }
    *name = arena_copy_text(&r->part->arena, bytes, (size_t)n_bytes);
    return *name != NULL || fail_memory(r);
}

uint32_t gguf_value_bytes(enum gguf_value_type type)
{
    static const uint8_t sizes[GGUF_VALUE_TYPES] = {[GGUF_VALUE_U8] = 1,
        [GGUF_VALUE_I8] = 1,
        [GGUF_VALUE_U16] = 2,
        [GGUF_VALUE_I16] = 2,
        [GGUF_VALUE_U32] = 4,
        [GGUF_VALUE_I32] = 4,
        [GGUF_VALUE_F32] = 4,
        [GGUF_VALUE_BOOL] = 1,
        [GGUF_VALUE_U64] = 8,
        [GGUF_VALUE_I64] = 8,
        [GGUF_VALUE_F64] = 8};
    return (unsigned)type < GGUF_VALUE_TYPES ? sizes[type] : 0;
}

// Walks over an array of texts and notes where each begins, relative to the first.
static bool read_texts(struct reader *r, struct gguf_value *value)
{
    uint64_t first = r->at, capacity = 0, start, n_bytes;
    uint32_t *offsets = NULL;
    for (uint64_t i = 0; i < value->count; i++) {
        if (i == capacity) {
            capacity = capacity == 0 ? 64 : capacity * 2;
            capacity = capacity > value->count ? value->count : capacity;
            uint32_t *grown = realloc(offsets, (size_t)capacity * sizeof *offsets);
            if (grown == NULL) {
                free(offsets);
                return fail_memory(r);
            }
            offsets = grown;
        }
        offsets[i] = (uint32_t)(r->at - first);
        if (!skip_text(r, &start, &n_bytes)) {
            free(offsets);
            return false;
        }
    }
    value->offsets = offsets;
    r->part->n_bytes_held += value->count * sizeof *offsets;
    return true;
}

static bool read_array(struct reader *r, struct gguf_value *value, const char *key, uint64_t *start)
{
    uint32_t type;
    if (!read_u32(r, &type) || !read_u64(r, &value->count))
        return false;
    if (type >= GGUF_VALUE_TYPES || type == GGUF_VALUE_ARRAY)
        return fail(r->err, CARAT_BAD_FILE, "key '%.80s' is an array of %s; only arrays of numbers, bools and texts are allowed",
            key, type == GGUF_VALUE_ARRAY ? "arrays" : "an unknown type");
    value->is_array = true;
    value->type = (enum gguf_value_type)type;
    *start = r->at;
    uint64_t element = type == GGUF_VALUE_TEXT ? 8 : gguf_value_bytes(value->type);
    if (value->count > (r->part->source->n_bytes - r->at) / element)
        return fail(r->err, CARAT_BAD_FILE,
            "key '%.80s' claims %llu elements, more than the file can hold: it is truncated or damaged; "
            "download it again",
            key, (unsigned long long)value->count);
    if (type == GGUF_VALUE_TEXT)
        return read_texts(r, value);
    if (!need(r, value->count * element))
        return false;
    r->at += value->count * element;
    return true;
}

// Checks that bools are 0 or 1 once their bytes are loaded.
static bool check_bools(struct reader *r, const struct gguf_value *value, const char *key, uint64_t start)
{
    const char *bytes = header_bytes(r->part) + start;
    for (uint64_t i = 0; value->type == GGUF_VALUE_BOOL && i < value->count; i++) {
        if ((uint8_t)bytes[i] > 1)
            return fail(r->err, CARAT_BAD_FILE, "key '%.80s' holds a bool with the value %u; the file is damaged", key,
                (uint8_t)bytes[i]);
    }
    return true;
}

static bool read_value(struct reader *r, struct gguf_value *value, const char *key, uint64_t *start)
{
    static const uint32_t zero = 0;
    uint32_t type;
    if (!read_u32(r, &type))
        return false;
    if (type >= GGUF_VALUE_TYPES)
        return fail(r->err, CARAT_BAD_FILE, "key '%.80s' has the unknown value type %u; the file is damaged or newer than carat",
            key, type);
    if (type == GGUF_VALUE_ARRAY)
        return read_array(r, value, key, start) && check_bools(r, value, key, *start);
    value->type = (enum gguf_value_type)type;
    value->count = 1;
    *start = r->at;
    if (type == GGUF_VALUE_TEXT) {
        uint64_t bytes_start, n_bytes;
        value->offsets = &zero;
        return skip_text(r, &bytes_start, &n_bytes);
    }
    if (!need(r, gguf_value_bytes(value->type)))
        return false;
    r->at += gguf_value_bytes(value->type);
    return check_bools(r, value, key, *start);
}

// Room for one more entry. The arrays double, so memory follows what was really read.
static bool grow_entries(struct reader *r)
{
    if (r->part->n_entries < r->entry_capacity)
        return true;
    uint32_t capacity = r->entry_capacity == 0 ? 64 : r->entry_capacity * 2;
    struct gguf_entry *entries = realloc(r->part->entries, capacity * sizeof *entries);
    if (entries != NULL)
        r->part->entries = entries;
    uint64_t *starts = realloc(r->starts, capacity * sizeof *starts);
    if (starts != NULL)
        r->starts = starts;
    if (entries == NULL || starts == NULL)
        return fail_memory(r);
    r->entry_capacity = capacity;
    return true;
}

static bool read_entry(struct reader *r, uint64_t index)
{
    snprintf(r->where, sizeof r->where, "metadata key %llu", (unsigned long long)index);
    if (!grow_entries(r))
        return false;
    struct gguf_entry *entry = &r->part->entries[r->part->n_entries];
    *entry = (struct gguf_entry){0};
    if (!read_name(r, MAX_KEY_BYTES, &entry->key))
        return false;
    snprintf(r->where, sizeof r->where, "the value of key '%.80s'", entry->key);
    r->part->n_entries++; // from here on gguf_part_free frees its offsets
    return read_value(r, &entry->value, entry->key, &r->starts[index]);
}

static bool grow_tensors(struct reader *r)
{
    if (r->part->n_tensors < r->tensor_capacity)
        return true;
    uint32_t capacity = r->tensor_capacity == 0 ? 256 : r->tensor_capacity * 2;
    struct gguf_tensor *tensors = realloc(r->part->tensors, capacity * sizeof *tensors);
    if (tensors == NULL)
        return fail_memory(r);
    r->part->tensors = tensors;
    r->tensor_capacity = capacity;
    return true;
}

// The number of bytes from dimensions and type, all products checked.
static bool size_tensor(struct reader *r, struct gguf_tensor *tensor, uint32_t type)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    if (info == NULL)
        return fail(r->err, CARAT_UNSUPPORTED,
            "tensor '%s' has type %u, which carat does not know; use a file in another quantisation", tensor->name, type);
    tensor->type = (enum gguf_type)type;
    uint64_t n_elems = 1;
    for (int i = 0; i < GGUF_MAX_DIMS; i++) {
        if (tensor->ne[i] == 0)
            return fail(
                r->err, CARAT_BAD_FILE, "tensor '%s' has no elements in dimension %d; the file is damaged", tensor->name, i);
        if (!mul_u64(n_elems, tensor->ne[i], &n_elems) || n_elems > INT64_MAX)
            return fail(r->err, CARAT_BAD_FILE, "tensor '%s' has more elements than 63 bits can count; the file is damaged",
                tensor->name);
    }
    if (tensor->ne[0] % info->block_elems != 0)
        return fail(r->err, CARAT_BAD_FILE,
            "tensor '%s' has rows of %llu elements, no multiple of the %u of a %s block; the file is damaged", tensor->name,
            (unsigned long long)tensor->ne[0], info->block_elems, info->name);
    if (!gguf_row_bytes(type, n_elems, &tensor->n_bytes) || tensor->n_bytes > INT64_MAX)
        return fail(r->err, CARAT_BAD_FILE, "tensor '%s' is larger than 63 bits can count; the file is damaged", tensor->name);
    return true;
}

static bool read_tensor(struct reader *r, uint64_t index)
{
    uint32_t type;
    snprintf(r->where, sizeof r->where, "tensor info %llu", (unsigned long long)index);
    if (!grow_tensors(r))
        return false;
    struct gguf_tensor *tensor = &r->part->tensors[r->part->n_tensors];
    *tensor = (struct gguf_tensor){.ne = {1, 1, 1, 1}};
    if (!read_name(r, GGUF_MAX_NAME_BYTES - 1, &tensor->name))
        return false;
    snprintf(r->where, sizeof r->where, "the description of tensor '%s'", tensor->name);
    if (!read_u32(r, &tensor->n_dims))
        return false;
    if (tensor->n_dims == 0 || tensor->n_dims > GGUF_MAX_DIMS)
        return fail(r->err, CARAT_BAD_FILE, "tensor '%s' has %u dimensions, 1 to %d are allowed; the file is damaged",
            tensor->name, tensor->n_dims, GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (!read_u64(r, &tensor->ne[i]))
            return false;
    }
    if (!read_u32(r, &type) || !read_u64(r, &tensor->offset))
        return false;
    r->part->n_tensors++;
    return size_tensor(r, tensor, type);
}

static bool check_magic(struct reader *r)
{
    struct gguf_part *part = r->part;
    snprintf(r->where, sizeof r->where, "the first bytes");
    if (!need(r, 4))
        return false;
    const char *magic = here(r);
    if (memcmp(magic, "GGUF", 4) != 0) {
        bool pointer = memcmp(magic, "vers", 4) == 0;
        return fail(r->err, CARAT_BAD_FILE,
            pointer ? "not a GGUF file but seemingly the pointer of a large-file store; download the file itself"
                    : "not a GGUF file: it does not begin with 'GGUF'; name a .gguf model file");
    }
    r->at += 4;
    if (!read_u32(r, &part->version))
        return false;
    if ((part->version & 0xffff) == 0 && part->version != 0)
        return fail(
            r->err, CARAT_UNSUPPORTED, "a big-endian GGUF file; carat reads little-endian files, convert it or download one");
    if (part->version != 2 && part->version != 3)
        return fail(
            r->err, CARAT_UNSUPPORTED, "GGUF version %u; carat reads versions 2 and 3, download a current file", part->version);
    return true;
}

// A count of things of at least min_bytes each, compared with the bytes that are left.
static bool check_count(struct reader *r, const char *what, uint64_t count, uint64_t min_bytes, uint64_t max)
{
    uint64_t left = r->part->source->n_bytes - r->at;
    if (count > left / min_bytes)
        return fail(r->err, CARAT_BAD_FILE,
            "the header claims %llu %s, more than the file can hold: it is truncated or damaged; download "
            "it again",
            (unsigned long long)count, what);
    if (count > max)
        return fail(r->err, CARAT_BAD_FILE, "the header claims %llu %s, at most %llu are allowed", (unsigned long long)count,
            what, (unsigned long long)max);
    return true;
}

static const char *entry_name(const void *items, uint32_t index)
{
    return ((const struct gguf_entry *)items)[index].key;
}

static bool index_keys(struct reader *r)
{
    struct gguf_part *part = r->part;
    uint32_t twice;
    snprintf(r->where, sizeof r->where, "the table of keys");
    if (name_table_build(&part->keys, part->entries, part->n_entries, entry_name, &twice))
        return true;
    if (twice == part->n_entries)
        return fail_memory(r);
    return fail(r->err, CARAT_BAD_FILE, "key '%.80s' appears twice; the file is damaged", part->entries[twice].key);
}

const struct gguf_value *gguf_part_find(const struct gguf_part *part, const char *key)
{
    uint32_t index = name_table_find(&part->keys, part->entries, entry_name, key);
    return index != UINT32_MAX ? &part->entries[index].value : NULL;
}

static bool read_alignment(struct reader *r)
{
    struct gguf_part *part = r->part;
    part->alignment = GGUF_DEFAULT_ALIGNMENT;
    const struct gguf_value *value = gguf_part_find(part, "general.alignment");
    if (value == NULL)
        return true;
    if (value->is_array || value->type != GGUF_VALUE_U32)
        return fail(r->err, CARAT_BAD_FILE, "key 'general.alignment' must be a u32; the file is damaged");
    part->alignment = load_u32(value->bytes);
    if (part->alignment == 0 || (part->alignment & (part->alignment - 1)) != 0)
        return fail(r->err, CARAT_BAD_FILE, "key 'general.alignment' is %u, it must be a power of two; the file is damaged",
            part->alignment);
    return true;
}

static int compare_offsets(const void *a, const void *b)
{
    const struct gguf_tensor *x = *(const struct gguf_tensor *const *)a, *y = *(const struct gguf_tensor *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool check_overlaps(struct reader *r)
{
    struct gguf_part *part = r->part;
    if (part->n_tensors < 2)
        return true;
    const struct gguf_tensor **order = (const struct gguf_tensor **)malloc(part->n_tensors * sizeof(struct gguf_tensor *));
    if (order == NULL)
        return fail_memory(r);
    for (uint32_t i = 0; i < part->n_tensors; i++)
        order[i] = &part->tensors[i];
    qsort((void *)order, part->n_tensors, sizeof(struct gguf_tensor *), compare_offsets);
    bool ok = true;
    for (uint32_t i = 1; ok && i < part->n_tensors; i++) {
        if (order[i]->offset < order[i - 1]->offset + order[i - 1]->n_bytes)
            ok = fail(
                r->err, CARAT_BAD_FILE, "tensors '%s' and '%s' overlap; the file is damaged", order[i - 1]->name, order[i]->name);
    }
    free((void *)order);
    return ok;
}

// Makes the tensors' offsets absolute and checks that each lies in the file, aligned and alone.
static bool place_tensors(struct reader *r)
{
    struct gguf_part *part = r->part;
    uint64_t mask = part->alignment - 1;
    part->n_header_bytes = r->at;
    part->data_start = (r->at + mask) & ~mask;
    for (uint32_t i = 0; i < part->n_tensors; i++) {
        struct gguf_tensor *tensor = &part->tensors[i];
        uint64_t end;
        if ((tensor->offset & mask) != 0)
            return fail(r->err, CARAT_BAD_FILE,
                "tensor '%s' starts at offset %llu, no multiple of the alignment %u; the file is damaged", tensor->name,
                (unsigned long long)tensor->offset, part->alignment);
        if (!add_u64(part->data_start, tensor->offset, &tensor->offset) || !add_u64(tensor->offset, tensor->n_bytes, &end) ||
            end > part->source->n_bytes)
            return fail(r->err, CARAT_BAD_FILE,
                "tensor '%s' (%llu bytes) reaches beyond the end of the file: it is truncated or damaged; "
                "download it again",
                tensor->name, (unsigned long long)tensor->n_bytes);
    }
    return check_overlaps(r);
}

static bool read_header(struct reader *r, uint32_t index)
{
    struct gguf_part *part = r->part;
    uint64_t n_tensors, n_entries;
    if (!check_magic(r) || !read_u64(r, &n_tensors) || !read_u64(r, &n_entries))
        return false;
    if (!check_count(r, "metadata keys", n_entries, MIN_ENTRY_BYTES, GGUF_MAX_ENTRIES) ||
        !check_count(r, "tensors", n_tensors, MIN_TENSOR_BYTES, GGUF_MAX_TENSORS))
        return false;
    for (uint64_t i = 0; i < n_entries; i++) {
        if (!read_entry(r, i))
            return false;
    }
    if (!index_keys(r))
        return false;
    for (uint64_t i = 0; i < n_tensors; i++) {
        if (!read_tensor(r, i))
            return false;
        part->tensors[i].part = index;
    }
    for (uint32_t i = 0; i < part->n_entries; i++) // now the buffer stays where it is
        part->entries[i].value.bytes = (const uint8_t *)header_bytes(part) + r->starts[i];
    return read_alignment(r) && place_tensors(r);
}

bool gguf_part_read(struct gguf_part *part, struct gguf_source *source, uint32_t index, struct carat_error *err)
{
    *part = (struct gguf_part){.source = source};
    struct reader r = {.part = part, .err = err};
    if (source->mapped != NULL)
        r.n_loaded = source->n_bytes;
    bool ok = read_header(&r, index);
    free(r.starts);
    if (!ok) {
        gguf_part_free(part);
        return fail_in(err, "%s", source->name);
    }
    if (part->owned_header != NULL) { // give back what was read ahead
        uint8_t *shrunk = realloc(part->owned_header, (size_t)part->n_header_bytes);
        if (shrunk != NULL && shrunk != part->owned_header) {
            for (uint32_t i = 0; i < part->n_entries; i++)
                part->entries[i].value.bytes = shrunk + (part->entries[i].value.bytes - part->owned_header);
            part->owned_header = shrunk;
        }
        part->n_bytes_held += part->n_header_bytes;
    }
    part->n_bytes_held += part->arena.n_bytes_taken + r.entry_capacity * sizeof *part->entries +
                          r.tensor_capacity * sizeof *part->tensors + part->keys.n_slots * sizeof *part->keys.slots;
    return true;
}

void gguf_part_free(struct gguf_part *part)
{
    for (uint32_t i = 0; i < part->n_entries; i++) {
        if (part->entries[i].value.is_array && part->entries[i].value.type == GGUF_VALUE_TEXT)
            free((uint32_t *)(uintptr_t)part->entries[i].value.offsets);
    }
    free(part->entries);
    free(part->tensors);
    free(part->owned_header);
    name_table_free(&part->keys);
    arena_free(&part->arena);
    *part = (struct gguf_part){0};
}
