// text_dump_test.c: `carat dump` writes what the goldens hold, under the names they use.

#include "text_golden.h"

#include <sys/wait.h>

// Runs the program; its exit code.
static int run_program(const char *format, ...)
{
    char command[2048];
    int n = snprintf(command, sizeof command, "%s ", CARAT_PROGRAM);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    int status = system(command); // NOLINT: the command is made here
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// "2,9,4"
static char *ids_text(const struct gguf_file *golden, const char *name)
{
    size_t n;
    int32_t *ids = golden_i32(golden, name, &n);
    char *text = malloc(12 * n + 1);
    assert_non_null(text);
    int at = 0;
    for (size_t i = 0; i < n; i++)
        at += snprintf(text + at, 13, "%s%d", i > 0 ? "," : "", ids[i]);
    free(ids);
    return text;
}

static double deviation_of(
    const struct gguf_file *dumped, const char *name, const struct gguf_file *golden, const char *golden_name)
{
    size_t n, n_golden;
    float *got = golden_f32(dumped, name, &n), *expected = golden_f32(golden, golden_name, &n_golden);
    struct deviation deviation = {0};
    assert_int_equal(n, n_golden);
    deviation_add(&deviation, got, expected, n);
    free(expected);
    free(got);
    return deviation.largest;
}

static struct gguf_file *open_dump(const char *path)
{
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    require(gguf_open_path(path, &file, &err), err);
    assert_true(gguf_text_is(file, "general.architecture", "golden"));
    return file;
}

static void logits_and_hidden_states_agree_with_the_goldens(void **state)
{
    (void)state;
    static const char *const backends[] = {"--backend ref", "--backend cpu --exact --threads 2 --batch 7"};
    struct gguf_file *golden = golden_open("text", "text-tiny-e2b.Q4_K_M.gguf");
    char *ids = ids_text(golden, "prompt.ids"), *path = temporary_file();
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            run_program("dump logits %s --tokens %s -o %s %s", fixture("models", "tiny-e2b.Q4_K_M.gguf"), ids, path, backends[i]),
            0);
        struct gguf_file *logits = open_dump(path);
        assert_true(deviation_of(logits, "logits", golden, "prompt.logits") < 1e-3);
        gguf_close(logits);
        assert_int_equal(
            run_program("dump hidden %s --tokens=%s -o %s %s", fixture("models", "tiny-e2b.Q4_K_M.gguf"), ids, path, backends[i]),
            0);
        struct gguf_file *hidden = open_dump(path);
        static const char *const names[] = {"embed", "layer.0", "layer.1", "layer.2", "norm", "ple"};
        for (int n = 0; n < 6; n++) {
            char golden_name[32];
            snprintf(golden_name, sizeof golden_name, "prompt.%s", names[n]);
            assert_true(deviation_of(hidden, names[n], golden, golden_name) < 5e-4);
        }
        assert_int_equal(gguf_find_tensor(hidden, "ple")->ne[1], 3);
        gguf_close(hidden);
    }
    unlink(path);
    free(path);
    free(ids);
    gguf_close(golden);
}

static void an_adapter_is_applied(void **state)
{
    (void)state;
    struct gguf_file *golden = golden_open("lora", "lora-micro-e2b.gguf");
    char *ids = ids_text(golden, "prompt.ids"), *path = temporary_file(), *list = temporary_file();
    FILE *file = fopen(list, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", ids);
    fclose(file);
    assert_int_equal(run_program("dump logits %s --tokens-file %s --lora %s -o %s --backend cpu --exact",
                         fixture("models", "micro-e2b.BF16.gguf"), list, fixture("lora", "lora-micro-e2b"), path),
        0);
    struct gguf_file *logits = open_dump(path);
    assert_true(deviation_of(logits, "logits", golden, "prompt.logits") < 1e-3);
    gguf_close(logits);
    unlink(list);
    unlink(path);
    free(list);
    free(path);
    free(ids);
    gguf_close(golden);
}

static void wrong_use_and_failures_have_their_exit_codes(void **state)
{
    (void)state;
    const char *model = fixture("models", "micro-e2b.F32.gguf");
    assert_int_equal(run_program("dump --help > /dev/null"), 0);
    assert_int_equal(run_program("dump 2> /dev/null"), 2);
    assert_int_equal(run_program("dump gradients %s --tokens 2 -o x 2> /dev/null", model), 2);
    assert_int_equal(run_program("dump logits %s -o x 2> /dev/null", model), 2);
    assert_int_equal(run_program("dump logits %s --tokens 2,640 -o x --backend cpu 2> /dev/null", model), 1);
    assert_int_equal(run_program("dump logits %s --tokens '' -o x --backend cpu 2> /dev/null", model), 1);
    assert_int_equal(run_program("dump logits nothing.gguf --tokens 2 -o x 2> /dev/null"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_and_hidden_states_agree_with_the_goldens),
        cmocka_unit_test(an_adapter_is_applied),
        cmocka_unit_test(wrong_use_and_failures_have_their_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
