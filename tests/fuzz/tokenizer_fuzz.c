// tokenizer_fuzz.c: any vocabulary and any text: an error, or ids that do not depend on how the text was handed over.
//
// Input: tokens, one per line, each with its type as a digit in front; a zero byte; merges, one per line; a zero byte; the text.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/decoder.h"

enum { MAX_ENTRIES = 600 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static struct text_view views[MAX_ENTRIES], merges[MAX_ENTRIES];
static int32_t types[MAX_ENTRIES];
static char byte_names[256][8];

// Cuts the next line off `text`.
static struct text_view next_line(struct text_view *text)
{
    const char *end = memchr(text->data, '\n', text->n_bytes);
    size_t n = end != NULL ? (size_t)(end - text->data) : text->n_bytes;
    struct text_view line = {text->data, n};
    n += end != NULL;
    text->data += n;
    text->n_bytes -= n;
    return line;
}

// Cuts off everything up to the next zero byte.
static struct text_view next_part(struct text_view *text)
{
    const char *end = memchr(text->data, '\0', text->n_bytes);
    size_t n = end != NULL ? (size_t)(end - text->data) : text->n_bytes;
    struct text_view part = {text->data, n};
    n += end != NULL;
    text->data += n;
    text->n_bytes -= n;
    return part;
}

static struct tokenizer *build(struct text_view tokens, struct text_view merge_lines)
{
    struct tokenizer_source source = {.tokens = views, .types = types, .merges = merges, .bos = -1};
    static const char *const fixed[] = {
        "<bos>", "<eos>", "<|turn>", "<turn|>", "a", "b", "ab", "aba", "\xe2\x96\x81", "\n", "\n\n"};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++, source.n_tokens++) {
        views[source.n_tokens] = text_of(fixed[i]);
        types[source.n_tokens] = i < 4 ? TOKEN_CONTROL : TOKEN_NORMAL;
    }
    for (int i = 0; i < 256; i++, source.n_tokens++) {
        snprintf(byte_names[i], sizeof byte_names[i], "<0x%02X>", i);
        views[source.n_tokens] = text_of(byte_names[i]);
        types[source.n_tokens] = TOKEN_BYTE;
    }
    while (tokens.n_bytes > 0 && source.n_tokens < MAX_ENTRIES) {
        struct text_view line = next_line(&tokens);
        if (line.n_bytes == 0)
            continue;
        types[source.n_tokens] = line.data[0] - '0';
        views[source.n_tokens++] = (struct text_view){line.data + 1, line.n_bytes - 1};
    }
    merges[source.n_merges++] = text_of("a b");
    merges[source.n_merges++] = text_of("ab a");
    while (merge_lines.n_bytes > 0 && source.n_merges < MAX_ENTRIES)
        merges[source.n_merges++] = next_line(&merge_lines);
    return tokenizer_new(&source, NULL);
}

static void check(const struct tokenizer *tok, struct text_view text, bool parse_special)
{
    struct token_list whole = {0}, joined = {0};
    struct text_buffer back = {0};
    size_t cut = text.n_bytes / 3;
    struct tokenizer_span spans[] = {{{text.data, cut}, parse_special}, {{text.data + cut, text.n_bytes - cut}, parse_special}};
    unsigned flags = TOK_ADD_BOS | (parse_special ? TOK_PARSE_SPECIAL : 0);
    if (!tokenizer_encode(tok, text.data, text.n_bytes, flags, &whole, NULL) ||
        !tokenizer_encode_spans(tok, spans, 2, TOK_ADD_BOS, &joined, NULL))
        abort();
    if (whole.n != joined.n || memcmp(whole.ids, joined.ids, whole.n * sizeof *whole.ids) != 0)
        abort();
    decoder_decode(tok, whole.ids, whole.n, true, &back);
    decoder_decode(tok, whole.ids, whole.n, false, &back);
    text_free(&back);
    token_list_free(&whole);
    token_list_free(&joined);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct text_view input = {(const char *)data, n_bytes};
    if (n_bytes == 0)
        return 0;
    struct text_view tokens = next_part(&input);
    struct text_view merge_lines = next_part(&input);
    struct tokenizer *tok = build(tokens, merge_lines);
    if (tok == NULL)
        return 0;
    check(tok, input, true);
    check(tok, input, false);
    tokenizer_free(tok);
    return 0;
}
