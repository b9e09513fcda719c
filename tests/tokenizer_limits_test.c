// tokenizer_limits_test.c: long texts, large vocabularies and wrong ones; the programs that tokenize.

#include "tokenizer_rig.h"

#include <time.h>

static double seconds(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

// --- bounds ---

static void long_lines_take_time_in_proportion(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    static const char *const units[] = {
        "a", "ab", "the quick brown fox ", "\xe4\xb8\xad\xe6\x96\x87", "<|turn", " ", "\n", "\xff", "=-"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        double times[2];
        for (int big = 0; big < 2; big++) {
            size_t n_bytes = big ? 1000000 : 100000;
            char *text = malloc(n_bytes);
            for (size_t i = 0; i < n_bytes; i++)
                text[i] = units[u][i % strlen(units[u])];
            struct token_list ids = {0};
            double start = seconds();
            assert_true(tokenizer_encode(tok, text, n_bytes, TOK_PARSE_SPECIAL, &ids, NULL));
            times[big] = seconds() - start;
            struct text_buffer back = {0};
            decoder_decode(tok, ids.ids, ids.n, true, &back);
            assert_true(back.n_bytes >= n_bytes);
            text_free(&back);
            token_list_free(&ids);
            free(text);
        }
        print_message("  %-24.24s 100 kB %.4f s, 1 MB %.4f s\n", units[u][0] == '\n' ? "newline" : units[u], times[0], times[1]);
        assert_true(times[1] < 30); // quadratic work on 1 MB would take hours; the bound allows for sanitizers and a busy machine
    }
}

static void the_full_vocabulary_loads_fast_and_small(void **state)
{
    (void)state;
    double best = 1e9;
    for (int i = 0; i < 3; i++) {
        struct gguf_file *file;
        struct tokenizer *tok;
        assert_true(gguf_open_path(CARAT_FIXTURES "/tokenizer/full.gguf", &file, NULL));
        double start = seconds();
        assert_true(tokenizer_from_gguf(file, &tok, NULL));
        double time = seconds() - start;
        best = time < best ? time : best;
        tokenizer_free(tok);
        gguf_close(file);
    }
    print_message("  full vocabulary: %.0f ms, %.1f MB\n", best * 1e3, (double)tokenizer_memory(toks[FULL]) / 1e6);
    assert_true(best < 5);
    assert_true(tokenizer_memory(toks[FULL]) < 20e6);
}

// --- files that are wrong ---

static struct tokenizer *build(
    const char *const *tokens, size_t n_tokens, const int32_t *types, const char *merge, int32_t end, struct carat_error *err)
{
    struct text_view views[16], merges[1] = {text_of(merge)};
    for (size_t i = 0; i < n_tokens; i++)
        views[i] = text_of(tokens[i]);
    struct tokenizer_source source = {.tokens = views,
        .types = types,
        .n_tokens = n_tokens,
        .merges = merges,
        .n_merges = merge != NULL ? 1 : 0,
        .bos = -1,
        .ends = &end,
        .n_ends = 1};
    return tokenizer_new(&source, err);
}

static void a_wrong_vocabulary_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<bos>", "<eos>", "a", "b", "ab"};
    static const int32_t types[] = {TOKEN_CONTROL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL, TOKEN_NORMAL};
    static const int32_t bad_types[] = {TOKEN_CONTROL, TOKEN_NORMAL, 17, TOKEN_NORMAL, TOKEN_NORMAL};
    struct carat_error err = {0};
    struct tokenizer *tok = build(tokens, 5, types, "a b", 1, &err);
    assert_non_null(tok);
    expect_ids(tok, "abab", TOK_ADD_BOS, "0 4 4");
    tokenizer_free(tok);
    static const struct {
        size_t n_tokens;
        const int32_t *types;
        const char *merge;
        int32_t end;
        const char *message;
    } wrong[] = {
        {5, types, "ab", 1, "merge 0"},
        {5, types, "ab ", 1, "merge 0"},
        {5, bad_types, "a b", 1, "token 2"},
        {5, types, "a b", 5, "end token 5"},
        {5, NULL, "a b", 1, "<bos>"},
        {0, types, "a b", 1, "0 tokens"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        err = (struct carat_error){0};
        assert_null(build(tokens, wrong[i].n_tokens, wrong[i].types, wrong[i].merge, wrong[i].end, &err));
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_non_null(strstr(err.message, wrong[i].message));
    }
}

static void markers_may_be_user_defined_runs_and_the_longest_wins(void **state)
{
    (void)state;
    static const char *const tokens[] = {"<bos>", "<eos>", "\n", "\n\n", "\n\n\n", "a", "<|tool_call>"};
    static const int32_t types[] = {3, 1, 1, 4, 4, 1, 4};
    struct tokenizer *tok = build(tokens, 7, types, NULL, -1, NULL);
    assert_non_null(tok);
    expect_ids(tok, "a\n\n\n\n\n\na\na\n\n<|tool_call>\n", TOK_PARSE_SPECIAL, "5 4 4 5 2 5 3 6 2");
    expect_ids(tok, "\n\n\n\n", TOK_PARSE_SPECIAL, "4 2");
    tokenizer_free(tok);
}

// --- the program ---

static void run_program(const char *input, const char *arguments, int want_exit, const char *want)
{
    char command[2048], output[4096];
    snprintf(command, sizeof command, "printf '%s' | %s %s 2>/dev/null", input, CARAT_PROGRAM, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    assert_int_equal(status >> 8, want_exit);
    if (want != NULL)
        assert_string_equal(output, want);
}

static void the_program_tokenizes_and_detokenizes(void **state)
{
    (void)state;
    const char *full = CARAT_FIXTURES "/tokenizer/full.gguf";
    char arguments[1024];
    snprintf(arguments, sizeof arguments, "tokenize %s", full);
    run_program("hello world", arguments, 0, "23391 1902\n");
    run_program("<|turn>\\0", arguments, 0, NULL);
    snprintf(arguments, sizeof arguments, "tokenize %s --special", full);
    run_program("<|turn>hello", arguments, 0, "105 23391\n");
    snprintf(arguments, sizeof arguments, "tokenize --jsonl %s", full);
    run_program("{\"text\":\"hello\"}\\n\\n{\"text\":\"\"}\\n", arguments, 0, "{\"ids\":[23391]}\n{\"ids\":[]}\n");
    run_program("{\"txt\":1}\\n", arguments, 1, NULL);
    snprintf(arguments, sizeof arguments, "detokenize %s", full);
    run_program("105, 23391 1902", arguments, 0, "hello world");
    run_program("[105,23391]\\n[1902]\\n", arguments, 0, "hello\n world\n");
    run_program("12x", arguments, 1, NULL);
    run_program("999999999", arguments, 1, NULL);
    snprintf(arguments, sizeof arguments, "detokenize --special %s", full);
    run_program("105 23391 1902", arguments, 0, "<|turn>hello world");
    snprintf(arguments, sizeof arguments, "detokenize --jsonl %s", full);
    run_program("{\"ids\":[105,23391]}", arguments, 0, "{\"text\":\"hello\"}\n");
    run_program("", "tokenize", 2, NULL);
    run_program("", "detokenize a b c", 2, NULL);
    run_program("", "tokenize --bogus x", 2, NULL);
    run_program("", "tokenize --help", 0, NULL);
    run_program("", "detokenize --help", 0, NULL);
    run_program("", "tokenize /nowhere.gguf", 1, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_lines_take_time_in_proportion),
        cmocka_unit_test(the_full_vocabulary_loads_fast_and_small),
        cmocka_unit_test(a_wrong_vocabulary_is_refused_by_name),
        cmocka_unit_test(markers_may_be_user_defined_runs_and_the_longest_wins),
        cmocka_unit_test(the_program_tokenizes_and_detokenizes),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
