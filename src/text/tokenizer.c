// tokenizer.c: building a tokenizer's tables and looking things up in them.

#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer_tables.h"
#include "text/utf8.h"

static const char *const marker_texts[TOK_N_MARKERS] = {
    [TOK_PAD] = "<pad>",
    [TOK_EOS] = "<eos>",
    [TOK_BOS] = "<bos>",
    [TOK_UNK] = "<unk>",
    [TOK_MASK] = "<mask>",
    [TOK_TOOL_BEGIN] = "<|tool>",
    [TOK_TOOL_END] = "<tool|>",
    [TOK_TOOL_CALL_BEGIN] = "<|tool_call>",
    [TOK_TOOL_CALL_END] = "<tool_call|>",
    [TOK_TOOL_RESPONSE_BEGIN] = "<|tool_response>",
    [TOK_TOOL_RESPONSE_END] = "<tool_response|>",
    [TOK_QUOTE] = "<|\"|>",
    [TOK_THINK] = "<|think|>",
    [TOK_CHANNEL_BEGIN] = "<|channel>",
    [TOK_CHANNEL_END] = "<channel|>",
    [TOK_TURN_BEGIN] = "<|turn>",
    [TOK_TURN_END] = "<turn|>",
    [TOK_IMAGE_BEGIN] = "<|image>",
    [TOK_IMAGE] = "<|image|>",
    [TOK_IMAGE_END] = "<image|>",
    [TOK_AUDIO_BEGIN] = "<|audio>",
    [TOK_AUDIO] = "<|audio|>",
    [TOK_AUDIO_END] = "<audio|>",
    [TOK_VIDEO] = "<|video|>",
};

static bool out_of_memory(struct carat_error *err)
{
    fail(err, CARAT_NO_MEMORY, "not enough memory for the tokenizer's tables");
    return false;
}

// Zeroed memory that is counted in n_memory_bytes.
static void *table_new(struct tokenizer *tok, size_t count, size_t size)
{
    tok->n_memory_bytes += count * size;
    return calloc(count != 0 ? count : 1, size);
}

// --- hash tables ---

static uint64_t hash_text(struct text_view text)
{
    uint64_t hash = text.n_bytes;
    size_t i = 0;
    for (; i + 8 <= text.n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, text.data + i, 8);
        hash = tokenizer_mix(hash ^ word);
    }
    uint64_t word = 0;
    if (i < text.n_bytes)
        memcpy(&word, text.data + i, text.n_bytes - i);
    return tokenizer_mix(tokenizer_mix(hash ^ word));
}

static bool slot_table_new(struct tokenizer *tok, struct slot_table *table, size_t n_entries)
{
    uint32_t n_slots = 16;
    while (n_slots < n_entries * 3 / 2)
        n_slots *= 2;
    table->mask = n_slots - 1;
    table->index_bits = 1;
    while (((size_t)1 << table->index_bits) <= n_entries)
        table->index_bits++;
    table->slots = table_new(tok, n_slots, sizeof *table->slots);
    return table->slots != NULL;
}

static void slot_table_add(struct slot_table *table, uint64_t hash, uint32_t index)
{
    uint32_t i = (uint32_t)(hash >> 32) & table->mask;
    while (table->slots[i] != 0)
        i = (i + 1) & table->mask;
    table->slots[i] = ((uint32_t)hash >> table->index_bits << table->index_bits) | (index + 1);
}

static struct text_view entry_text(const struct tokenizer *tok, int32_t id)
{
    return (struct text_view){tok->texts + tok->offsets[id], tok->offsets[id + 1] - tok->offsets[id]};
}

static int32_t find_hashed(const struct tokenizer *tok, struct text_view text, uint64_t hash)
{
    const struct slot_table *table = &tok->by_text;
    uint32_t tag = (uint32_t)hash >> table->index_bits << table->index_bits;
    uint32_t index_mask = ((uint32_t)1 << table->index_bits) - 1;
    for (uint32_t i = (uint32_t)(hash >> 32) & table->mask; table->slots[i] != 0; i = (i + 1) & table->mask) {
        uint32_t slot = table->slots[i];
        if ((slot & ~index_mask) != tag)
            continue;
        int32_t id = (int32_t)(slot & index_mask) - 1;
        if (text_equal(entry_text(tok, id), text))
            return id;
    }
    return -1;
}

int32_t tokenizer_find(const struct tokenizer *tok, struct text_view text)
{
    return find_hashed(tok, text, hash_text(text));
}

// --- entries ---

static bool copy_texts(struct tokenizer *tok, const struct tokenizer_source *source, struct carat_error *err)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < source->n_tokens; i++)
        n_bytes += source->tokens[i].n_bytes;
    if (n_bytes > UINT32_MAX) {
        fail(err, CARAT_BAD_FILE, "the tokens' texts take %llu bytes, more than any vocabulary needs",
            (unsigned long long)n_bytes);
        return false;
    }
    tok->texts = table_new(tok, (size_t)n_bytes, 1);
    tok->offsets = table_new(tok, source->n_tokens + 1, sizeof *tok->offsets);
    if (tok->texts == NULL || tok->offsets == NULL)
        return out_of_memory(err);
    uint32_t at = 0;
    for (size_t i = 0; i < source->n_tokens; i++) {
        if (source->tokens[i].n_bytes != 0)
            memcpy(tok->texts + at, source->tokens[i].data, source->tokens[i].n_bytes);
        at += (uint32_t)source->tokens[i].n_bytes;
        tok->offsets[i + 1] = at;
    }
    return true;
}

static bool index_texts(struct tokenizer *tok, struct carat_error *err)
{
    if (!slot_table_new(tok, &tok->by_text, (size_t)tok->n_tokens))
        return out_of_memory(err);
    for (int32_t id = 0; id < tok->n_tokens; id++) {
        struct text_view text = entry_text(tok, id);
        uint64_t hash = hash_text(text);
        if (find_hashed(tok, text, hash) < 0) // of equal texts the first counts
            slot_table_add(&tok->by_text, hash, (uint32_t)id);
    }
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// The value of "<0xHH>", or -1. Files disagree about the type of byte tokens, so only the text tells.
static int byte_of_text(struct text_view text)
{
    if (text.n_bytes != 6 || memcmp(text.data, "<0x", 3) != 0 || text.data[5] != '>')
        return -1;
    int high = hex_digit(text.data[3]);
    int low = hex_digit(text.data[4]);
    return high < 0 || low < 0 ? -1 : high << 4 | low;
}

static bool is_end_text(struct text_view text)
{
    return text_is(text, marker_texts[TOK_EOS]) || text_is(text, marker_texts[TOK_TURN_END]) ||
           text_is(text, marker_texts[TOK_TOOL_RESPONSE_BEGIN]);
}

static enum token_kind kind_of(struct text_view text, int32_t type)
{
    if (byte_of_text(text) >= 0)
        return TOKEN_IS_BYTE;
    if (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED)
        return TOKEN_IS_MARKER;
    if (is_end_text(text)) // published files type <eos> as normal
        return TOKEN_IS_MARKER;
    return type == TOKEN_UNKNOWN ? TOKEN_IS_UNKNOWN : type == TOKEN_UNUSED ? TOKEN_IS_UNUSED : TOKEN_IS_TEXT;
}

static bool classify(struct tokenizer *tok, const struct tokenizer_source *source, struct carat_error *err)
{
    tok->attributes = table_new(tok, source->n_tokens, 1);
    if (tok->attributes == NULL)
        return out_of_memory(err);
    memset(tok->bytes, -1, sizeof tok->bytes);
    for (int32_t id = 0; id < tok->n_tokens; id++) {
        int32_t type = source->types != NULL ? source->types[id] : TOKEN_NORMAL;
        if (type < 0 || type > TOKEN_BYTE)
            return fail(err, CARAT_BAD_FILE, "token %d has the unknown type %d", (int)id, (int)type);
        struct text_view text = entry_text(tok, id);
        enum token_kind kind = kind_of(text, type);
        tok->attributes[id] = (uint8_t)kind;
        int byte = byte_of_text(text);
        if (byte >= 0 && tok->bytes[byte] < 0)
            tok->bytes[byte] = id;
    }
    for (int c = 0; c < 128; c++) {
        char ascii = (char)c;
        tok->ascii[c] = tokenizer_find(tok, (struct text_view){&ascii, 1});
    }
    tok->ascii[' '] = tokenizer_find(tok, text_of("\xe2\x96\x81"));
    return true;
}

// --- merges ---

// Merges are read in batches, so that the many cache misses of looking their parts up overlap: this is most of the loading time.
enum { BATCH = 32, PARTS = 3 };

struct lookup {
    struct text_view text;
    uint64_t hash;
    int32_t id; // the result
};

static void find_batch(const struct tokenizer *tok, struct lookup *lookups, size_t n)
{
    const struct slot_table *table = &tok->by_text;
    uint32_t index_mask = ((uint32_t)1 << table->index_bits) - 1;
    for (size_t i = 0; i < n; i++) {
        lookups[i].hash = hash_text(lookups[i].text);
        __builtin_prefetch(&table->slots[(uint32_t)(lookups[i].hash >> 32) & table->mask]);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t slot = table->slots[(uint32_t)(lookups[i].hash >> 32) & table->mask];
        lookups[i].id = (int32_t)(slot & index_mask) - 1; // a guess, right nearly always
        if (slot != 0)
            __builtin_prefetch(&tok->offsets[lookups[i].id]);
    }
    for (size_t i = 0; i < n; i++)
        if (lookups[i].id >= 0)
            __builtin_prefetch(tok->texts + tok->offsets[lookups[i].id]);
    for (size_t i = 0; i < n; i++)
        lookups[i].id = find_hashed(tok, lookups[i].text, lookups[i].hash);
}

// Cuts "left right" at the first space that is not the first byte. The joined text goes to `joined`, for the caller to find
// there.
static bool split_merge(
    size_t rank, struct text_view text, struct lookup *parts, struct text_buffer *joined, struct carat_error *err)
{
    const char *space = text.n_bytes > 1 ? memchr(text.data + 1, ' ', text.n_bytes - 1) : NULL;
    if (space == NULL || space == text.data + text.n_bytes - 1) {
        fail(err, CARAT_BAD_FILE, "merge %zu is not two texts with a space between", rank);
        return false;
    }
    parts[0].text = (struct text_view){text.data, (size_t)(space - text.data)};
    parts[1].text = (struct text_view){space + 1, text.n_bytes - parts[0].text.n_bytes - 1};
    parts[2].text.n_bytes = text.n_bytes - 1;
    text_append_view(joined, parts[0].text);
    text_append_view(joined, parts[1].text);
    return true;
}

static void add_merge(struct tokenizer *tok, uint32_t rank, const struct lookup *parts)
{
    struct merge *merge = &tok->merges[rank];
    *merge = (struct merge){parts[0].id, parts[1].id, parts[2].id};
    bool usable = merge->left >= 0 && merge->right >= 0 && merge->result >= 0;
    if (!usable || tokenizer_rank(tok, merge->left, merge->right) != TOKENIZER_NO_RANK) {
        merge->left = -1; // it can never apply, or an earlier one does
        return;
    }
    slot_table_add(&tok->by_pair, tokenizer_hash_pair(merge->left, merge->right), rank);
    size_t length;
    uint32_t last = utf8_decode_last(parts[0].text.data, parts[0].text.n_bytes, &length);
    uint32_t first = utf8_decode(parts[1].text.data, parts[1].text.n_bytes, &length);
    uint32_t joint = tokenizer_joint(last, first);
    tok->joints[joint >> 3] |= (uint8_t)(1 << (joint & 7));
}

static bool add_batch(struct tokenizer *tok, const struct tokenizer_source *source, size_t start, size_t n,
    struct text_buffer *joined, struct carat_error *err)
{
    struct lookup lookups[BATCH * PARTS];
    text_clear(joined);
    for (size_t i = 0; i < n; i++)
        if (!split_merge(start + i, source->merges[start + i], &lookups[i * PARTS], joined, err))
            return false;
    if (joined->failed)
        return out_of_memory(err);
    for (size_t i = 0, at = 0; i < n; i++) {
        struct lookup *whole = &lookups[i * PARTS + 2];
        whole->text.data = joined->data + at;
        at += whole->text.n_bytes;
    }
    find_batch(tok, lookups, n * PARTS);
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = tokenizer_hash_pair(lookups[i * PARTS].id, lookups[i * PARTS + 1].id);
        __builtin_prefetch(&tok->by_pair.slots[(uint32_t)(hash >> 32) & tok->by_pair.mask], 1);
    }
    for (size_t i = 0; i < n; i++)
        add_merge(tok, (uint32_t)(start + i), &lookups[i * PARTS]);
    return true;
}

static bool add_merges(struct tokenizer *tok, const struct tokenizer_source *source, struct carat_error *err)
{
    tok->n_merges = (uint32_t)source->n_merges;
    tok->merges = table_new(tok, source->n_merges, sizeof *tok->merges);
    tok->joints = table_new(tok, (1 << TOKENIZER_JOINT_BITS) / 8, 1);
    if (tok->merges == NULL || tok->joints == NULL || !slot_table_new(tok, &tok->by_pair, source->n_merges))
        return out_of_memory(err);
    struct text_buffer joined = {0};
    bool ok = true;
    for (size_t start = 0; ok && start < source->n_merges; start += BATCH) {
        size_t n = source->n_merges - start < BATCH ? source->n_merges - start : BATCH;
        ok = add_batch(tok, source, start, n, &joined, err);
    }
    text_free(&joined);
    return ok;
}

// --- markers ---

static uint32_t marker_child(const struct tokenizer *tok, uint32_t node, uint8_t byte)
{
    uint32_t child = tok->markers[node].child;
    while (child != 0 && tok->markers[child].byte != byte)
        child = tok->markers[child].next;
    return child;
}

static bool add_markers(struct tokenizer *tok, struct carat_error *err)
{
    size_t n_nodes = 1 + 256;
    for (int32_t id = 0; id < tok->n_tokens; id++)
        if (tokenizer_kind(tok, id) == TOKEN_IS_MARKER)
            n_nodes += entry_text(tok, id).n_bytes;
    if (n_nodes > UINT32_MAX)
        return fail(err, CARAT_BAD_FILE, "the control tokens' texts are too long");
    tok->markers = table_new(tok, n_nodes, sizeof *tok->markers);
    if (tok->markers == NULL)
        return out_of_memory(err);
    uint32_t n_used = 1 + 256;
    for (uint32_t node = 0; node < n_nodes; node++)
        tok->markers[node].id = -1;
    for (int32_t id = 0; id < tok->n_tokens; id++) {
        struct text_view text = entry_text(tok, id);
        if (tokenizer_kind(tok, id) != TOKEN_IS_MARKER || text.n_bytes == 0)
            continue;
        uint32_t node = 1u + (uint8_t)text.data[0];
        for (size_t i = 1; i < text.n_bytes; i++) {
            uint32_t child = marker_child(tok, node, (uint8_t)text.data[i]);
            if (child == 0) {
                child = n_used++;
                tok->markers[child].byte = (uint8_t)text.data[i];
                tok->markers[child].next = tok->markers[node].child;
                tok->markers[node].child = child;
            }
            node = child;
        }
        if (tok->markers[node].id < 0)
            tok->markers[node].id = id;
    }
    for (int marker = 0; marker < TOK_N_MARKERS; marker++) {
        int32_t id = tokenizer_find(tok, text_of(marker_texts[marker]));
        bool acts = id >= 0 && (tokenizer_kind(tok, id) == TOKEN_IS_MARKER || marker == TOK_UNK);
        tok->known[marker] = acts ? id : -1;
    }
    return true;
}

// Copies a list of ids and flags each; `one` is put in front unless it is -1.
static bool add_ids(struct tokenizer *tok, const char *what, const int32_t *ids, size_t n, const int32_t *extra, size_t n_extra,
    uint8_t flag, int32_t **out, size_t *n_out, struct carat_error *err)
{
    *out = table_new(tok, n + n_extra, sizeof **out);
    if (*out == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < n + n_extra; i++) {
        int32_t id = i < n_extra ? extra[i] : ids[i - n_extra];
        if (id == -1)
            continue;
        if (id < 0 || id >= tok->n_tokens)
            return fail(err, CARAT_BAD_FILE, "%s token %d lies outside the vocabulary of %d", what, (int)id, (int)tok->n_tokens);
        if ((tok->attributes[id] & flag) == 0)
            (*out)[(*n_out)++] = id;
        tok->attributes[id] |= flag;
    }
    return true;
}

static bool add_roles(struct tokenizer *tok, const struct tokenizer_source *source, struct carat_error *err)
{
    if (source->bos != -1 && (source->bos < 0 || source->bos >= tok->n_tokens))
        return fail(err, CARAT_BAD_FILE, "the begin-of-text token %d lies outside the vocabulary of %d", (int)source->bos,
            (int)tok->n_tokens);
    if (source->bos != -1)
        tok->known[TOK_BOS] = source->bos;
    if (tok->known[TOK_BOS] < 0)
        return fail(err, CARAT_BAD_FILE, "the vocabulary has no control token <bos>");
    const int32_t always[] = {tok->known[TOK_EOS], tok->known[TOK_TURN_END], tok->known[TOK_TOOL_RESPONSE_BEGIN]};
    if (!add_ids(tok, "the end", source->ends, source->n_ends, always, 3, TOKEN_ENDS, &tok->ends, &tok->n_ends, err))
        return false;
    if (tok->n_ends == 0)
        return fail(err, CARAT_BAD_FILE, "the vocabulary has no token that ends a text (<eos>, <turn|>)");
    return add_ids(tok, "the suppressed", source->suppressed, source->n_suppressed, NULL, 0, TOKEN_SUPPRESSED, &tok->suppressed,
        &tok->n_suppressed, err);
}

struct tokenizer *tokenizer_new(const struct tokenizer_source *source, struct carat_error *err)
{
    if (source->n_tokens == 0 || source->n_tokens > TOKENIZER_MAX_ENTRIES || source->n_merges > TOKENIZER_MAX_ENTRIES) {
        fail(err, CARAT_BAD_FILE, "a vocabulary of %zu tokens and %zu merges is not possible (1 to %d tokens, up to %d merges)",
            source->n_tokens, source->n_merges, TOKENIZER_MAX_ENTRIES, TOKENIZER_MAX_ENTRIES);
        return NULL;
    }
    struct tokenizer *tok = calloc(1, sizeof *tok);
    if (tok == NULL) {
        out_of_memory(err);
        return NULL;
    }
    tok->n_memory_bytes = sizeof *tok;
    tok->n_tokens = (int32_t)source->n_tokens;
    if (!copy_texts(tok, source, err) || !index_texts(tok, err) || !classify(tok, source, err) || !add_merges(tok, source, err) ||
        !add_markers(tok, err) || !add_roles(tok, source, err)) {
        tokenizer_free(tok);
        return NULL;
    }
    return tok;
}

void tokenizer_free(struct tokenizer *tok)
{
    if (tok == NULL)
        return;
    free(tok->texts);
    free(tok->offsets);
    free(tok->attributes);
    free(tok->by_text.slots);
    free(tok->merges);
    free(tok->by_pair.slots);
    free(tok->joints);
    free(tok->markers);
    free(tok->ends);
    free(tok->suppressed);
    free(tok);
}

// --- questions ---

int32_t tokenizer_vocab_size(const struct tokenizer *tok)
{
    return tok->n_tokens;
}

static bool has(const struct tokenizer *tok, int32_t id)
{
    return id >= 0 && id < tok->n_tokens;
}

struct text_view tokenizer_token_text(const struct tokenizer *tok, int32_t id)
{
    return has(tok, id) ? entry_text(tok, id) : (struct text_view){0};
}

enum token_kind tokenizer_kind(const struct tokenizer *tok, int32_t id)
{
    return has(tok, id) ? (enum token_kind)(tok->attributes[id] & TOKEN_KIND_MASK) : TOKEN_IS_UNUSED;
}

int tokenizer_byte(const struct tokenizer *tok, int32_t id)
{
    return has(tok, id) ? byte_of_text(entry_text(tok, id)) : -1;
}

bool tokenizer_is_end(const struct tokenizer *tok, int32_t id)
{
    return has(tok, id) && (tok->attributes[id] & TOKEN_ENDS) != 0;
}

bool tokenizer_is_suppressed(const struct tokenizer *tok, int32_t id)
{
    return has(tok, id) && (tok->attributes[id] & TOKEN_SUPPRESSED) != 0;
}

const int32_t *tokenizer_ends(const struct tokenizer *tok, size_t *n)
{
    *n = tok->n_ends;
    return tok->ends;
}

const int32_t *tokenizer_suppressed(const struct tokenizer *tok, size_t *n)
{
    *n = tok->n_suppressed;
    return tok->suppressed;
}

int32_t tokenizer_marker(const struct tokenizer *tok, enum tokenizer_marker marker)
{
    return tok->known[marker];
}

enum tokenizer_marker tokenizer_marker_of(const struct tokenizer *tok, int32_t id)
{
    int marker = 0;
    while (marker < TOK_N_MARKERS && (id < 0 || tok->known[marker] != id))
        marker++;
    return (enum tokenizer_marker)marker;
}

const char *tokenizer_marker_text(enum tokenizer_marker marker)
{
    return marker_texts[marker];
}

size_t tokenizer_memory(const struct tokenizer *tok)
{
    return tok->n_memory_bytes;
}
