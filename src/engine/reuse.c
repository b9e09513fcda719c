// reuse.c: keeping the ids that a reply was generated with.

#include "engine/reuse.h"

#include <stdlib.h>
#include <string.h>

#include "text/decoder.h"

// First marker at or after `at`; n when there is none.
static size_t next_marker(const struct tokenizer *tok, const int32_t *ids, size_t n, size_t at)
{
    while (at < n && tokenizer_kind(tok, ids[at]) != TOKEN_IS_MARKER)
        at++;
    return at;
}

// One past the last marker before `at`.
static size_t stretch_start(const struct tokenizer *tok, const int32_t *ids, size_t at)
{
    while (at > 0 && tokenizer_kind(tok, ids[at - 1]) != TOKEN_IS_MARKER)
        at--;
    return at;
}

static bool same_text(
    const struct tokenizer *tok, const int32_t *a, size_t n_a, const int32_t *b, size_t n_b, bool *same, struct carat_error *err)
{
    struct text_buffer text_a = {0};
    struct text_buffer text_b = {0};
    decoder_decode(tok, a, n_a, true, &text_a);
    decoder_decode(tok, b, n_b, true, &text_b);
    bool failed = text_a.failed || text_b.failed;
    *same = text_equal(text_whole(&text_a), text_whole(&text_b));
    text_free(&text_a);
    text_free(&text_b);
    return !failed || fail(err, CARAT_NO_MEMORY, "no memory to compare a reply of %zu tokens with its history", n_a);
}

// Puts n ids in the place of list[start, end).
static bool replace(struct token_list *list, size_t start, size_t end, const int32_t *ids, size_t n, struct carat_error *err)
{
    size_t n_after = list->n - end;
    for (size_t grown = end - start; grown < n; grown++) {
        if (!token_list_push(list, 0, err)) {
            list->n = end + n_after; // the pushed zeros go again
            return false;
        }
    }
    memmove(list->ids + start + n, list->ids + end, n_after * sizeof *list->ids);
    memcpy(list->ids + start, ids, n * sizeof *ids);
    list->n = start + n + n_after;
    return true;
}

bool reuse_align(
    const struct tokenizer *tok, const int32_t *cached, size_t n_cached, struct token_list *prompt, struct carat_error *err)
{
    size_t at = 0;
    for (;;) {
        while (at < n_cached && at < prompt->n && cached[at] == prompt->ids[at])
            at++;
        if (at == n_cached || at == prompt->n)
            return true;
        size_t start = stretch_start(tok, cached, at);
        size_t cached_end = next_marker(tok, cached, n_cached, at);
        size_t prompt_end = next_marker(tok, prompt->ids, prompt->n, at);
        if (cached_end == at && prompt_end == at)
            return true; // two different markers
        bool same;
        if (!same_text(tok, cached + start, cached_end - start, prompt->ids + start, prompt_end - start, &same, err))
            return false;
        if (!same)
            return true;
        if (!replace(prompt, start, prompt_end, cached + start, cached_end - start, err))
            return false;
        at = cached_end;
    }
}
