// tokenizer_gguf.c: a tokenizer from a model file's metadata (tokenizer.ggml.*).

#include <stdlib.h>

#include "gguf/gguf.h"
#include "text/tokenizer.h"

// Arrays read from the file, in the tokenizer's form.
struct tables {
    struct text_view *tokens;
    int32_t *types;
    struct text_view *merges;
    int32_t *ends;
    int32_t *suppressed;
};

static bool out_of_memory(struct carat_error *err)
{
    fail(err, CARAT_NO_MEMORY, "not enough memory to read the vocabulary");
    return false;
}

static bool read_texts(const struct gguf_file *file, const char *key, struct text_view **out, size_t *n, struct carat_error *err)
{
    const struct gguf_value *value;
    if (!gguf_array(file, key, GGUF_VALUE_TEXT, &value, err))
        return false;
    if (value->count > SIZE_MAX / sizeof **out || (*out = malloc((size_t)value->count * sizeof **out + 1)) == NULL)
        return out_of_memory(err);
    *n = (size_t)value->count;
    for (size_t i = 0; i < *n; i++) {
        struct gguf_text text;
        if (!gguf_value_text(value, i, &text))
            return fail(err, CARAT_BAD_FILE, "%s: element %zu is no text", key, i);
        (*out)[i] = (struct text_view){text.bytes, text.n_bytes};
    }
    return true;
}

// Integers; an absent key gives none. room: elements to leave free at the end.
static bool read_ids(
    const struct gguf_file *file, const char *key, size_t room, int32_t **out, size_t *n, struct carat_error *err)
{
    const struct gguf_value *value = gguf_find(file, key);
    size_t count = 0;
    if (value != NULL) {
        if (!gguf_array(file, key, GGUF_VALUE_I64, &value, err))
            return false;
        count = value->count < SIZE_MAX / 8 - room ? (size_t)value->count : SIZE_MAX / 8 - room;
    }
    *out = malloc((count + room + 1) * sizeof **out);
    if (*out == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < count; i++) {
        int64_t id;
        if (!gguf_value_i64(value, i, &id) || id < INT32_MIN || id > INT32_MAX)
            return fail(err, CARAT_BAD_FILE, "%s: element %zu is no token id", key, i);
        (*out)[i] = (int32_t)id;
    }
    *n = count;
    return true;
}

// One id; -1 when the key is absent (also when the file itself says "none" by the largest number).
static bool read_id(const struct gguf_file *file, const char *key, int32_t *id, struct carat_error *err)
{
    uint32_t value;
    if (!gguf_u32_or(file, key, UINT32_MAX, &value, err))
        return false;
    if (value != UINT32_MAX && value > INT32_MAX)
        return fail(err, CARAT_BAD_FILE, "%s: %u is no token id", key, (unsigned)value);
    *id = value == UINT32_MAX ? -1 : (int32_t)value;
    return true;
}

static bool read_source(
    const struct gguf_file *file, struct tables *tables, struct tokenizer_source *source, struct carat_error *err)
{
    size_t n_types = 0;
    int32_t eos = -1;
    int32_t eot = -1;
    if (!read_texts(file, "tokenizer.ggml.tokens", &tables->tokens, &source->n_tokens, err) ||
        !read_ids(file, "tokenizer.ggml.token_type", 0, &tables->types, &n_types, err) ||
        !read_texts(file, "tokenizer.ggml.merges", &tables->merges, &source->n_merges, err) ||
        !read_id(file, "tokenizer.ggml.bos_token_id", &source->bos, err) ||
        !read_id(file, "tokenizer.ggml.eos_token_id", &eos, err) || !read_id(file, "tokenizer.ggml.eot_token_id", &eot, err) ||
        !read_ids(file, "tokenizer.ggml.eos_token_ids", 2, &tables->ends, &source->n_ends, err) ||
        !read_ids(file, "tokenizer.ggml.suppress_tokens", 0, &tables->suppressed, &source->n_suppressed, err))
        return false;
    if (gguf_find(file, "tokenizer.ggml.token_type") == NULL)
        return fail(
            err, CARAT_BAD_FILE, "the key tokenizer.ggml.token_type is missing, so control tokens cannot be told from text");
    if (n_types != source->n_tokens)
        return fail(err, CARAT_BAD_FILE, "tokenizer.ggml.token_type has %zu elements, tokenizer.ggml.tokens %zu", n_types,
            source->n_tokens);
    tables->ends[source->n_ends++] = eos;
    tables->ends[source->n_ends++] = eot;
    source->tokens = tables->tokens;
    source->types = tables->types;
    source->merges = tables->merges;
    source->ends = tables->ends;
    source->suppressed = tables->suppressed;
    return true;
}

bool tokenizer_from_gguf(const struct gguf_file *file, struct tokenizer **tokenizer, struct carat_error *err)
{
    struct tables tables = {0};
    struct tokenizer_source source = {0};
    *tokenizer = read_source(file, &tables, &source, err) ? tokenizer_new(&source, err) : NULL;
    free(tables.tokens);
    free(tables.types);
    free(tables.merges);
    free(tables.ends);
    free(tables.suppressed);
    return *tokenizer != NULL;
}
