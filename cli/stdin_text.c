// stdin_text.c: see stdin_text.h.

#include "stdin_text.h"

#include <stdio.h>
#include <string.h>

bool read_stdin(struct text_buffer *text, struct carat_error *err)
{
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, stdin)) > 0;)
        text_append(text, block, n);
    if (ferror(stdin))
        return fail(err, CARAT_IO, "standard input could not be read");
    return !text->failed || fail(err, CARAT_NO_MEMORY, "standard input is too large for the memory");
}

bool each_json_line(struct text_view text, json_line *each, void *context, struct carat_error *err)
{
    size_t number = 0;
    for (size_t at = 0; at < text.n_bytes;) {
        const char *line = text.data + at;
        const char *end = memchr(line, '\n', text.n_bytes - at);
        size_t n = end != NULL ? (size_t)(end - line) : text.n_bytes - at;
        at += n + 1;
        number++;
        if (strspn(line, " \t\r") >= n)
            continue;
        struct json_document *document = json_parse(line, n, err);
        bool ok = document != NULL && each(context, json_root(document), err);
        json_free(document);
        if (!ok)
            return fail_in(err, "line %zu of the input", number);
    }
    return true;
}

int report_failure(const char *command, const struct carat_error *err)
{
    fflush(stdout);
    fprintf(stderr, "carat %s: %s\n", command, err->message);
    return 1;
}

struct tokenizer *open_tokenizer(const char *name, struct carat_error *err)
{
    struct gguf_file *file;
    struct tokenizer *tok = NULL;
    if (!gguf_open_path(name, &file, err))
        return NULL;
    if (!tokenizer_from_gguf(file, &tok, err))
        fail_in(err, "%s", name);
    gguf_close(file);
    return tok;
}
