// writer.c: the GGUF writer. Metadata and tensor infos are collected in memory, since their counts stand first; data is passed
// on.

#include "gguf/writer.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "gguf/parse.h"
#include "gguf/writer_internal.h"

struct buffer {
    uint8_t *bytes;
    size_t n_bytes, capacity;
};

struct gguf_writer {
    gguf_sink *sink;
    void *context;
    struct gguf_writer_target *target; // NULL: the sink is the caller's
    struct buffer entries, infos;      // as they will stand in the file
    uint64_t n_entries, n_tensors;
    uint64_t *sizes;      // bytes of each tensor
    uint64_t next_offset; // of the next tensor to declare, from the start of the data
    uint64_t current;     // tensor whose data comes next
    uint64_t n_current;   // bytes of it that are written
    uint32_t alignment;
    bool header_written;
    struct carat_error error;
};

static bool is_ok(const struct gguf_writer *w)
{
    return w->error.code == CARAT_OK;
}

static bool append(struct gguf_writer *w, struct buffer *buffer, const void *bytes, size_t n_bytes)
{
    if (!is_ok(w))
        return false;
    if (n_bytes > buffer->capacity - buffer->n_bytes) {
        size_t capacity = buffer->capacity < 4096 ? 4096 : buffer->capacity * 2;
        if (n_bytes > GGUF_MAX_HEADER_BYTES || buffer->n_bytes + n_bytes > GGUF_MAX_HEADER_BYTES)
            return fail(&w->error, CARAT_BAD_ARGUMENT, "the header would be longer than %d bytes", GGUF_MAX_HEADER_BYTES);
        if (capacity < buffer->n_bytes + n_bytes)
            capacity = buffer->n_bytes + n_bytes;
        uint8_t *grown = realloc(buffer->bytes, capacity);
        if (grown == NULL)
            return fail(&w->error, CARAT_NO_MEMORY, "no memory for a header of %zu bytes", capacity);
        buffer->bytes = grown;
        buffer->capacity = capacity;
    }
    if (n_bytes != 0)
        memcpy(buffer->bytes + buffer->n_bytes, bytes, n_bytes);
    buffer->n_bytes += n_bytes;
    return true;
}

static bool append_u32(struct gguf_writer *w, struct buffer *buffer, uint32_t value)
{
    uint8_t bytes[4] = {(uint8_t)value, (uint8_t)(value >> 8), (uint8_t)(value >> 16), (uint8_t)(value >> 24)};
    return append(w, buffer, bytes, sizeof bytes);
}

static bool append_u64(struct gguf_writer *w, struct buffer *buffer, uint64_t value)
{
    return append_u32(w, buffer, (uint32_t)value) && append_u32(w, buffer, (uint32_t)(value >> 32));
}

static bool append_text(struct gguf_writer *w, struct buffer *buffer, const char *bytes, size_t n_bytes)
{
    return append_u64(w, buffer, n_bytes) && append(w, buffer, bytes, n_bytes);
}

// Key and type of the next entry.
static bool begin_entry(struct gguf_writer *w, const char *key, uint32_t type)
{
    if (is_ok(w) && w->header_written)
        fail(&w->error, CARAT_BAD_ARGUMENT, "key '%s' comes after the tensors' data", key);
    if (is_ok(w) && key[0] == '\0')
        fail(&w->error, CARAT_BAD_ARGUMENT, "an empty key");
    if (!append_text(w, &w->entries, key, strlen(key)) || !append_u32(w, &w->entries, type))
        return false;
    w->n_entries++;
    return true;
}

struct gguf_writer *gguf_writer_new_sink(gguf_sink *sink, void *context, uint32_t alignment, struct carat_error *err)
{
    uint32_t used = alignment == 0 ? GGUF_DEFAULT_ALIGNMENT : alignment;
    if ((used & (used - 1)) != 0) {
        fail(err, CARAT_BAD_ARGUMENT, "an alignment of %u; it must be a power of two", alignment);
        return NULL;
    }
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to write a file");
        return NULL;
    }
    w->sink = sink;
    w->context = context;
    w->alignment = used;
    if (used != GGUF_DEFAULT_ALIGNMENT)
        gguf_write_u32(w, "general.alignment", used);
    return w;
}

void gguf_writer_set_target(struct gguf_writer *w, struct gguf_writer_target *target)
{
    w->target = target;
}

bool gguf_write_scalar(struct gguf_writer *w, const char *key, enum gguf_value_type type, const void *value)
{
    if (is_ok(w) && gguf_value_bytes(type) == 0)
        return fail(&w->error, CARAT_BAD_ARGUMENT, "key '%s': %s is no scalar", key, gguf_value_type_name(type));
    return begin_entry(w, key, type) && append(w, &w->entries, value, gguf_value_bytes(type));
}

bool gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    return begin_entry(w, key, GGUF_VALUE_U32) && append_u32(w, &w->entries, value);
}

bool gguf_write_u64(struct gguf_writer *w, const char *key, uint64_t value)
{
    return begin_entry(w, key, GGUF_VALUE_U64) && append_u64(w, &w->entries, value);
}

bool gguf_write_i32(struct gguf_writer *w, const char *key, int32_t value)
{
    return begin_entry(w, key, GGUF_VALUE_I32) && append_u32(w, &w->entries, (uint32_t)value);
}

bool gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    return begin_entry(w, key, GGUF_VALUE_F32) && append_u32(w, &w->entries, f32_bits(value));
}

bool gguf_write_f64(struct gguf_writer *w, const char *key, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return begin_entry(w, key, GGUF_VALUE_F64) && append_u64(w, &w->entries, bits);
}

bool gguf_write_bool(struct gguf_writer *w, const char *key, bool value)
{
    uint8_t byte = value;
    return begin_entry(w, key, GGUF_VALUE_BOOL) && append(w, &w->entries, &byte, 1);
}

bool gguf_write_text_n(struct gguf_writer *w, const char *key, const char *bytes, size_t n_bytes)
{
    return begin_entry(w, key, GGUF_VALUE_TEXT) && append_text(w, &w->entries, bytes, n_bytes);
}

bool gguf_write_text(struct gguf_writer *w, const char *key, const char *text)
{
    return gguf_write_text_n(w, key, text, strlen(text));
}

static bool begin_array(struct gguf_writer *w, const char *key, enum gguf_value_type type, uint64_t n)
{
    return begin_entry(w, key, GGUF_VALUE_ARRAY) && append_u32(w, &w->entries, type) && append_u64(w, &w->entries, n);
}

bool gguf_write_array(struct gguf_writer *w, const char *key, enum gguf_value_type type, const void *values, uint64_t n)
{
    if (is_ok(w) && (gguf_value_bytes(type) == 0 || n > GGUF_MAX_HEADER_BYTES))
        return fail(&w->error, CARAT_BAD_ARGUMENT, "key '%s': an array of %llu %s", key, (unsigned long long)n,
            gguf_value_type_name(type));
    return begin_array(w, key, type, n) && append(w, &w->entries, values, (size_t)n * gguf_value_bytes(type));
}

bool gguf_write_texts(struct gguf_writer *w, const char *key, const struct gguf_text *texts, uint64_t n)
{
    if (!begin_array(w, key, GGUF_VALUE_TEXT, n))
        return false;
    for (uint64_t i = 0; i < n; i++) {
        if (!append_text(w, &w->entries, texts[i].bytes, texts[i].n_bytes))
            return false;
    }
    return true;
}

bool gguf_write_value(struct gguf_writer *w, const char *key, const struct gguf_value *value)
{
    if (value->type != GGUF_VALUE_TEXT)
        return value->is_array ? gguf_write_array(w, key, value->type, value->bytes, value->count)
                               : gguf_write_scalar(w, key, value->type, value->bytes);
    struct gguf_text text;
    if (!value->is_array)
        return gguf_value_text(value, 0, &text) && gguf_write_text_n(w, key, text.bytes, text.n_bytes);
    if (!begin_array(w, key, GGUF_VALUE_TEXT, value->count))
        return false;
    for (uint64_t i = 0; i < value->count; i++) {
        if (!gguf_value_text(value, i, &text) || !append_text(w, &w->entries, text.bytes, text.n_bytes))
            return false;
    }
    return true;
}

// Checks a tensor's shape and computes its bytes.
static bool tensor_bytes(
    struct gguf_writer *w, const char *name, enum gguf_type type, uint32_t n_dims, const uint64_t *ne, uint64_t *n_bytes)
{
    size_t n_name = strlen(name);
    if (n_name == 0 || n_name >= GGUF_MAX_NAME_BYTES)
        return fail(&w->error, CARAT_BAD_ARGUMENT, "the tensor name '%.80s' has %zu bytes, 1 to %d are allowed", name, n_name,
            GGUF_MAX_NAME_BYTES - 1);
    if (n_dims == 0 || n_dims > GGUF_MAX_DIMS)
        return fail(&w->error, CARAT_BAD_ARGUMENT, "tensor '%s': %u dimensions", name, n_dims);
    bool ok = gguf_row_bytes(type, ne[0], n_bytes) && ne[0] != 0;
    for (uint32_t i = 1; ok && i < n_dims; i++)
        ok = ne[i] != 0 && mul_u64(*n_bytes, ne[i], n_bytes);
    return ok || fail(&w->error, CARAT_BAD_ARGUMENT, "tensor '%s': its shape does not suit type %s", name, gguf_type_name(type));
}

bool gguf_declare(struct gguf_writer *w, const char *name, enum gguf_type type, uint32_t n_dims, const uint64_t *ne)
{
    uint64_t n_bytes = 0;
    if (is_ok(w) && w->header_written)
        return fail(&w->error, CARAT_BAD_ARGUMENT, "tensor '%s' is declared after data was written", name);
    if (!is_ok(w) || !tensor_bytes(w, name, type, n_dims, ne, &n_bytes))
        return false;
    if ((w->n_tensors & (w->n_tensors - 1)) == 0) { // the list doubles
        uint64_t *grown = realloc(w->sizes, (w->n_tensors == 0 ? 1 : 2 * w->n_tensors) * sizeof *grown);
        if (grown == NULL)
            return fail(&w->error, CARAT_NO_MEMORY, "no memory for tensor '%s'", name);
        w->sizes = grown;
    }
    w->sizes[w->n_tensors++] = n_bytes;
    append_text(w, &w->infos, name, strlen(name));
    append_u32(w, &w->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        append_u64(w, &w->infos, ne[i]);
    append_u32(w, &w->infos, type);
    append_u64(w, &w->infos, w->next_offset);
    uint64_t mask = w->alignment - 1;
    if (n_bytes > INT64_MAX - mask || !add_u64(w->next_offset, (n_bytes + mask) & ~mask, &w->next_offset))
        return fail(&w->error, CARAT_BAD_ARGUMENT, "tensor '%s' makes the file larger than 63 bits can count", name);
    return is_ok(w);
}

static bool put(struct gguf_writer *w, const void *bytes, size_t n_bytes)
{
    if (!is_ok(w) || n_bytes == 0)
        return is_ok(w);
    if (!w->sink(w->context, bytes, n_bytes, &w->error) && w->error.code == CARAT_OK)
        fail(&w->error, CARAT_IO, "the file could not be written");
    return is_ok(w);
}

// Zeros up to the next multiple of the alignment after `at`.
static bool put_padding(struct gguf_writer *w, uint64_t at)
{
    static const uint8_t zeros[4096];
    uint64_t n = (w->alignment - at % w->alignment) % w->alignment;
    for (; n > sizeof zeros; n -= sizeof zeros) {
        if (!put(w, zeros, sizeof zeros))
            return false;
    }
    return put(w, zeros, (size_t)n);
}

static bool put_header(struct gguf_writer *w)
{
    struct buffer start = {0};
    append(w, &start, "GGUF", 4);
    append_u32(w, &start, 3);
    append_u64(w, &start, w->n_tensors);
    append_u64(w, &start, w->n_entries);
    uint64_t n_bytes = start.n_bytes + w->entries.n_bytes + w->infos.n_bytes;
    put(w, start.bytes, start.n_bytes);
    put(w, w->entries.bytes, w->entries.n_bytes);
    put(w, w->infos.bytes, w->infos.n_bytes);
    put_padding(w, n_bytes);
    free(start.bytes);
    w->header_written = true;
    return is_ok(w);
}

bool gguf_write_data(struct gguf_writer *w, const void *bytes, size_t n_bytes)
{
    if (!is_ok(w) || (!w->header_written && !put_header(w)))
        return false;
    if (n_bytes == 0)
        return true;
    if (w->current == w->n_tensors || n_bytes > w->sizes[w->current] - w->n_current)
        return fail(&w->error, CARAT_BAD_ARGUMENT, "more data than tensor %llu of %llu has", (unsigned long long)w->current,
            (unsigned long long)w->n_tensors);
    if (!put(w, bytes, n_bytes))
        return false;
    w->n_current += n_bytes;
    if (w->n_current < w->sizes[w->current])
        return true;
    w->n_current = 0;
    return put_padding(w, w->sizes[w->current++]);
}

bool gguf_writer_finish(struct gguf_writer *w, struct carat_error *err)
{
    if (is_ok(w) && !w->header_written)
        put_header(w);
    if (is_ok(w) && w->current != w->n_tensors)
        fail(&w->error, CARAT_BAD_ARGUMENT, "the data of tensor %llu of %llu is missing or incomplete",
            (unsigned long long)w->current, (unsigned long long)w->n_tensors);
    if (is_ok(w) && w->target != NULL)
        w->target->commit(w->target, &w->error);
    return is_ok(w) || fail(err, w->error.code, "%s", w->error.message);
}

const struct carat_error *gguf_writer_error(const struct gguf_writer *w)
{
    return &w->error;
}

void gguf_writer_free(struct gguf_writer *w)
{
    if (w == NULL)
        return;
    if (w->target != NULL)
        w->target->close(w->target);
    free(w->entries.bytes);
    free(w->infos.bytes);
    free(w->sizes);
    free(w);
}
