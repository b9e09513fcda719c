// text_fixtures.h: reading the golden files of the text tests.

#ifndef CARAT_TESTS_TEXT_FIXTURES_H
#define CARAT_TESTS_TEXT_FIXTURES_H

#include "base/json.h" // before cmocka.h, which has a macro called fail
#include "gguf/gguf.h"
#include "text/chat.h"
#include "text/decoder.h"
#include "text/reply.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static inline char *fixture_read(const char *name, size_t *n_bytes)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", CARAT_FIXTURES, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *bytes = malloc((size_t)size + 1);
    *n_bytes = fread(bytes, 1, (size_t)size, file);
    bytes[*n_bytes] = '\0';
    fclose(file);
    return bytes;
}

typedef void fixture_line(const struct json_value *line, void *context);

// Calls `each` for every line of a JSON-lines file; returns their number.
static inline int fixture_each(const char *name, fixture_line *each, void *context)
{
    size_t n_bytes;
    char *text = fixture_read(name, &n_bytes);
    int n = 0;
    for (char *line = text; line < text + n_bytes;) {
        char *end = memchr(line, '\n', (size_t)(text + n_bytes - line));
        if (end == NULL)
            end = text + n_bytes;
        if (end > line) {
            struct carat_error err = {0};
            struct json_document *document = json_parse(line, (size_t)(end - line), &err);
            if (document == NULL)
                fail_msg("%s line %d: %s", name, n + 1, err.message);
            each(json_root(document), context);
            json_free(document);
            n++;
        }
        line = end + 1;
    }
    free(text);
    return n;
}

static inline struct tokenizer *fixture_tokenizer(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", CARAT_FIXTURES, name);
    struct carat_error err = {0};
    struct gguf_file *file;
    struct tokenizer *tok;
    if (!gguf_open_path(path, &file, &err))
        fail_msg("%s", err.message);
    if (!tokenizer_from_gguf(file, &tok, &err))
        fail_msg("%s", err.message);
    gguf_close(file);
    return tok;
}

// A list of ids from a JSON array.
static inline struct token_list fixture_ids(const struct json_value *array)
{
    struct token_list list = {0};
    for (size_t i = 0; i < array->n_children; i++)
        token_list_push(&list, (int32_t)array->children[i].number, NULL);
    return list;
}

static inline void assert_ids_equal(const struct token_list *got, const struct token_list *want, const char *what)
{
    bool same = got->n == want->n;
    for (size_t i = 0; same && i < want->n; i++)
        same = got->ids[i] == want->ids[i];
    if (same)
        return;
    fprintf(stderr, "got: ");
    for (size_t i = 0; i < got->n && i < 40; i++)
        fprintf(stderr, " %d", (int)got->ids[i]);
    fprintf(stderr, "\nwant:");
    for (size_t i = 0; i < want->n && i < 40; i++)
        fprintf(stderr, " %d", (int)want->ids[i]);
    fail_msg("different ids for %.200s", what);
}

#endif
