// tokenizer_rig.h: the three vocabularies of the fixtures, loaded.

#ifndef CARAT_TESTS_TOKENIZER_RIG_H
#define CARAT_TESTS_TOKENIZER_RIG_H

#include "text_fixtures.h"

enum { NANO, SMALL, FULL, N_VOCABULARIES };
static struct tokenizer *toks[N_VOCABULARIES];

static inline void expect_ids(const struct tokenizer *tok, const char *text, unsigned flags, const char *want)
{
    struct token_list got = {0}, list = {0};
    for (char *end; *want != '\0'; want = end + (*end == ' '))
        token_list_push(&list, (int32_t)strtol(want, &end, 10), NULL);
    assert_true(tokenizer_encode(tok, text, strlen(text), flags, &got, NULL));
    assert_ids_equal(&got, &list, text);
    token_list_free(&got);
    token_list_free(&list);
}

static inline int load(void **state)
{
    (void)state;
    toks[NANO] = fixture_tokenizer("models/micro-e2b.F32.gguf");
    toks[SMALL] = fixture_tokenizer("tokenizer/small.gguf");
    toks[FULL] = fixture_tokenizer("tokenizer/full.gguf");
    return 0;
}

static inline int unload(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABULARIES; v++)
        tokenizer_free(toks[v]);
    return 0;
}

#endif
