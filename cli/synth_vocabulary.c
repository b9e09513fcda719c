// synth_vocabulary.c: a tokenizer for synthetic models: copied from a GGUF file, or made.
//
// The made one has Gemma 4's markers at their places (where the vocabulary is long enough; else at its end), all byte tokens,
// runs of newlines, single characters, and then words: every word is an earlier word and one more letter, and mostly also a
// letter and an earlier word, so that the merges are consistent: left part, right part and whole are always tokens.

#include "synth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_NEWLINES = 107, NEWLINE_RUNS = 31, FIRST_BYTE = 238, FIRST_CHARACTER = 494, TEXT_BYTES = 48, N_LETTERS = 26 };
enum { TYPE_NORMAL = 1, TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4, TYPE_BYTE = 6 };

static const struct {
    const char *text;
    uint32_t id;
    uint8_t type;
} markers[] = {{"<pad>", 0, 3}, {"<eos>", 1, 3}, {"<bos>", 2, 3}, {"<unk>", 3, 3}, {"<mask>", 4, 3}, {"[multimodal]", 5, 1},
    {"<|tool>", 46, 3}, {"<tool|>", 47, 3}, {"<|tool_call>", 48, 4}, {"<tool_call|>", 49, 4}, {"<|tool_response>", 50, 4},
    {"<tool_response|>", 51, 4}, {"<|\"|>", 52, 4}, {"<|think|>", 98, 3}, {"<|channel>", 100, 4}, {"<channel|>", 101, 4},
    {"<|turn>", 105, 3}, {"<turn|>", 106, 3}, {"<|image>", 255999, 3}, {"<|audio>", 256000, 3}, {"<|image|>", 258880, 3},
    {"<|audio|>", 258881, 3}, {"<image|>", 258882, 3}, {"<audio|>", 258883, 3}, {"<|video|>", 258884, 3}};
enum { N_MARKERS = sizeof markers / sizeof markers[0], N_LATE_MARKERS = 7 };

struct vocabulary {
    uint32_t n;
    char (*texts)[TEXT_BYTES]; // [n], terminated; "" = not yet given
    uint8_t *types;            // [n]
    char (*merges)[TEXT_BYTES];
    uint32_t n_merges, merge_capacity;
};

static void give(struct vocabulary *v, uint32_t id, const char *text, uint8_t type)
{
    snprintf(v->texts[id], TEXT_BYTES, "%s", text);
    v->types[id] = type;
}

static void merge(struct vocabulary *v, const char *left, const char *right)
{
    if (v->n_merges < v->merge_capacity)
        snprintf(v->merges[v->n_merges++], TEXT_BYTES, "%.22s %.22s", left, right);
}

static void give_markers(struct vocabulary *v)
{
    for (uint32_t i = 0; i < N_MARKERS; i++) {
        uint32_t id = v->n > markers[N_MARKERS - 1].id ? markers[i].id : i;
        if (v->n <= markers[N_MARKERS - 1].id)
            id = i < N_MARKERS - N_LATE_MARKERS ? markers[i].id : v->n - N_MARKERS + i;
        give(v, id, markers[i].text, markers[i].type);
    }
}

static void give_newlines_and_bytes(struct vocabulary *v)
{
    char text[TEXT_BYTES] = "";
    for (uint32_t i = 0; i < NEWLINE_RUNS; i++) {
        text[i] = '\n';
        give(v, FIRST_NEWLINES + i, text, TYPE_NORMAL);
    }
    for (uint32_t i = NEWLINE_RUNS; i-- > 1;) { // long runs first, as in the real table
        char left[TEXT_BYTES], right[TEXT_BYTES];
        for (uint32_t k = 1; k <= i && i <= 16; k++) {
            memset(left, '\n', i + 1);
            left[i + 1 - k] = '\0';
            memset(right, '\n', k);
            right[k] = '\0';
            merge(v, left, right);
        }
    }
    for (uint32_t i = 0; i < 256; i++) {
        snprintf(text, sizeof text, "<0x%02X>", i);
        give(v, FIRST_BYTE + i, text, TYPE_BYTE);
    }
}

// The next id without a text, from `id` on; n when there is none.
static uint32_t next_free(const struct vocabulary *v, uint32_t id)
{
    while (id < v->n && v->texts[id][0] != '\0')
        id++;
    return id;
}

static bool give_words(struct vocabulary *v)
{
    char text[TEXT_BYTES];
    uint32_t id = next_free(v, FIRST_CHARACTER);
    uint32_t *order = malloc(v->n * sizeof *order); // words so far, shortest first
    if (order == NULL)
        return false;
    uint32_t n_words = 0;
    give(v, id, "\xe2\x96\x81", TYPE_NORMAL);
    order[n_words++] = id;
    for (int letter = 'a'; letter <= 'z'; letter++) {
        id = next_free(v, id);
        snprintf(text, sizeof text, "%c", letter);
        give(v, id, text, TYPE_NORMAL);
        order[n_words++] = id;
    }
    for (int c = '!'; c <= '~'; c++) {
        id = next_free(v, id);
        snprintf(text, sizeof text, "%c", c);
        if (c < 'a' || c > 'z')
            give(v, id, text, TYPE_NORMAL);
    }
    for (uint32_t w = 0; w < n_words; w++) {
        for (int letter = 'a'; letter <= 'z' && (id = next_free(v, id)) < v->n; letter++) {
            const char *left = v->texts[order[w]], right[2] = {(char)letter, '\0'};
            snprintf(text, sizeof text, "%.40s%c", left, letter);
            give(v, id, text, TYPE_NORMAL);
            order[n_words++] = id;
            merge(v, left, right);
            bool is_spaced = (unsigned char)left[0] == 0xe2;
            char first[4] = {left[0], is_spaced ? left[1] : '\0', is_spaced ? left[2] : '\0', '\0'};
            if (text[strlen(first)] != '\0' && strcmp(first, left) != 0)
                merge(v, first, text + strlen(first)); // the rest of the word came earlier: it is shorter
        }
    }
    free(order);
    return true;
}

static bool make(struct vocabulary *v)
{
    char text[TEXT_BYTES];
    give_markers(v);
    give_newlines_and_bytes(v);
    uint32_t n_unused = 0;
    for (uint32_t id = next_free(v, 0); id < FIRST_CHARACTER; id = next_free(v, id)) {
        snprintf(text, sizeof text, "<unused%u>", n_unused++);
        give(v, id, text, TYPE_NORMAL);
    }
    return give_words(v);
}

static void write_text_array(
    struct gguf_writer *w, const char *key, char (*texts)[TEXT_BYTES], uint32_t n, struct gguf_text *room)
{
    for (uint32_t i = 0; i < n; i++)
        room[i] = (struct gguf_text){texts[i], strlen(texts[i])};
    gguf_write_texts(w, key, room, n);
}

static void write_token_keys(const struct synth *synth, struct gguf_writer *w)
{
    static const uint8_t eos_ids[] = {1, 0, 0, 0, 106, 0, 0, 0, 50, 0, 0, 0};
    gguf_write_u32(w, "tokenizer.ggml.bos_token_id", 2);
    gguf_write_u32(w, "tokenizer.ggml.eos_token_id", synth->ollama ? 1 : 106);
    gguf_write_u32(w, "tokenizer.ggml.unknown_token_id", 3);
    gguf_write_u32(w, "tokenizer.ggml.padding_token_id", 0);
    gguf_write_u32(w, "tokenizer.ggml.mask_token_id", 4);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", !synth->ollama);
    gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", false);
    if (synth->ollama)
        gguf_write_array(w, "tokenizer.ggml.eos_token_ids", GGUF_VALUE_I32, eos_ids, 3);
}

static bool write_vocabulary(
    const struct synth *synth, const struct vocabulary *v, struct gguf_writer *w, struct carat_error *err)
{
    uint32_t most = v->n > v->n_merges ? v->n : v->n_merges;
    struct gguf_text *room = malloc(most * sizeof *room);
    uint8_t *numbers = malloc((size_t)4 * v->n);
    if (room == NULL || numbers == NULL) {
        free(room);
        free(numbers);
        return fail(err, CARAT_NO_MEMORY, "no memory for a vocabulary of %u tokens", v->n);
    }
    gguf_write_text(w, "tokenizer.ggml.model", synth->ollama ? "llama" : "gemma4");
    if (synth->ollama)
        gguf_write_text(w, "tokenizer.ggml.pre", "gemma4");
    write_text_array(w, "tokenizer.ggml.tokens", v->texts, v->n, room);
    for (uint32_t i = 0; i < v->n; i++) {
        numbers[4 * i] = synth->ollama && v->types[i] == TYPE_BYTE ? TYPE_NORMAL : v->types[i];
        numbers[4 * i + 1] = numbers[4 * i + 2] = numbers[4 * i + 3] = 0;
    }
    gguf_write_array(w, "tokenizer.ggml.token_type", GGUF_VALUE_I32, numbers, v->n);
    for (uint32_t i = 0; i < v->n; i++)
        memcpy(numbers + (size_t)4 * i, "\x00\x00\x7a\xc4", 4); // -1000
    gguf_write_array(w, "tokenizer.ggml.scores", GGUF_VALUE_F32, numbers, v->n);
    write_text_array(w, "tokenizer.ggml.merges", v->merges, v->n_merges, room);
    write_token_keys(synth, w);
    free(room);
    free(numbers);
    return true;
}

static bool make_vocabulary(const struct synth *synth, struct gguf_writer *w, struct carat_error *err)
{
    struct vocabulary v = {.n = synth->n_vocab, .merge_capacity = 2 * synth->n_vocab + 1024};
    v.texts = calloc(v.n, sizeof *v.texts);
    v.types = calloc(v.n, 1);
    v.merges = calloc(v.merge_capacity, sizeof *v.merges);
    bool ok = v.texts != NULL && v.types != NULL && v.merges != NULL;
    ok = ok && make(&v);
    if (!ok)
        fail(err, CARAT_NO_MEMORY, "no memory for a vocabulary of %u tokens", v.n);
    ok = ok && write_vocabulary(synth, &v, w, err);
    free(v.texts);
    free(v.types);
    free(v.merges);
    return ok;
}

// Copies all tokenizer.* keys of another file.
static bool copy_vocabulary(const struct synth *synth, struct gguf_writer *w, struct carat_error *err)
{
    struct gguf_file *file;
    if (!gguf_open_path(synth->vocabulary_from, &file, err))
        return false;
    const struct gguf_value *tokens;
    bool ok = gguf_array(file, "tokenizer.ggml.tokens", GGUF_VALUE_TEXT, &tokens, err);
    if (ok && tokens->count != synth->n_vocab)
        ok = fail(err, CARAT_BAD_ARGUMENT, "%s has %llu tokens, not %u; give --vocab %llu", synth->vocabulary_from,
            (unsigned long long)tokens->count, synth->n_vocab, (unsigned long long)tokens->count);
    for (size_t i = 0; ok && i < gguf_entry_count(file); i++) {
        const struct gguf_entry *entry = gguf_entry_at(file, i);
        bool replaced =
            synth->ollama && (strcmp(entry->key, "tokenizer.ggml.model") == 0 || strcmp(entry->key, "tokenizer.ggml.pre") == 0 ||
                                 strcmp(entry->key, "tokenizer.ggml.add_bos_token") == 0);
        if (strncmp(entry->key, "tokenizer.", 10) == 0 && !replaced)
            gguf_write_value(w, entry->key, &entry->value);
    }
    if (ok && synth->ollama) {
        gguf_write_text(w, "tokenizer.ggml.model", "llama");
        gguf_write_text(w, "tokenizer.ggml.pre", "gemma4");
        gguf_write_bool(w, "tokenizer.ggml.add_bos_token", false);
    }
    gguf_close(file);
    return ok;
}

bool synth_write_vocabulary(const struct synth *synth, struct gguf_writer *w, struct carat_error *err)
{
    return synth->vocabulary_from != NULL ? copy_vocabulary(synth, w, err) : make_vocabulary(synth, w, err);
}
