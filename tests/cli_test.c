// cli_test.c: carat run and its neighbours, run as programs: exit codes, streams, signals.

#include "base/json.h" // before cmocka.h, which has a macro called fail

#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUTPUT_BYTES = 1 << 20, SECONDS_FOR_A_CHAT = 120 };

#define MODEL CARAT_FIXTURES "/models/tiny-e2b.Q4_K_M.gguf"
#define ON_CPU " --backend cpu --threads 2 "

static char output[OUTPUT_BYTES]; // of the last command

// Runs a shell command in which $C is the program; its exit code. Only stdout is kept.
__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...)
{
    char line[2048], command[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    snprintf(command, sizeof command, "C='%s'; %s", CARAT_PROGRAM, line);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A number of the JSON object that the last command printed.
static int64_t member(const char *outer, const char *name)
{
    struct carat_error err = {0};
    int64_t value = -1;
    struct json_document *document = json_parse(output, strlen(output), &err);
    if (document == NULL)
        fail_msg("%s in: %s", err.message, output);
    json_get_i64(json_get(json_root(document), outer), name, &value);
    json_free(document);
    return value;
}

static void results_that_cannot_be_written_are_a_failure(void **state)
{
    (void)state;
    static const char *const commands[] = {"version", "--help", "run --help", "chat --help", "inspect " MODEL,
        "inspect --json " MODEL, "run " MODEL ON_CPU "-p abc -n 4 --temp 0", "run " MODEL ON_CPU "-p abc -n 4 --json"};
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        assert_int_equal(shell("$C %s > /dev/null 2>&1", commands[i]), 0);
        assert_int_equal(shell("$C %s 2>&1 > /dev/full", commands[i]), 1);
        assert_non_null(strstr(output, "could not be written"));
        assert_int_equal(shell("$C %s 2>&1 >&-", commands[i]), 1);
    }
}

// How often the operation was called, by the first line with its name from `text` on.
static long calls_of(const char *text, const char *operation)
{
    char end[64];
    long n = -1;
    snprintf(end, sizeof end, "  %s\n", operation);
    const char *at = strstr(text, end);
    while (at != NULL && at > text && at[-1] != '\n')
        at--;
    if (at != NULL)
        sscanf(at, "%*f us %ld x", &n);
    return n;
}

static void a_profile_has_every_pass(void **state)
{
    (void)state;
    assert_int_equal(shell("$C bench " MODEL ON_CPU "-p 8 -n 4 -r 1 --profile"), 0);
    const char *prompt = strstr(output, "Profile of 8 positions:\n");
    const char *tokens = strstr(output, "Profile of 4 tokens:\n");
    assert_non_null(prompt);
    assert_non_null(tokens);
    assert_int_equal(calls_of(prompt, "head"), 1); // one pass gives logits for one row
    assert_int_equal(calls_of(prompt, "embed token_embd"), 1);
    assert_int_equal(calls_of(tokens, "head"), 4);
    assert_int_equal(calls_of(tokens, "embed per_layer_token_embd"), 4);
    long n_layers = calls_of(tokens, "norm_gated, gate and up") / 4;
    assert_true(n_layers > 1);
    assert_int_equal(calls_of(tokens, "project ffn_down"), 4 * n_layers);
}

static void a_missing_prompt_is_refused_and_the_model_file_is_never_read_as_one(void **state)
{
    (void)state;
    assert_int_equal(shell("$C run " MODEL ON_CPU "-n 2 2>&1 < /dev/null"), 1);
    assert_non_null(strstr(output, "no prompt"));
    assert_int_equal(shell("$C run " MODEL ON_CPU "-n 2 2>&1 <&-"), 1); // the model would be opened as descriptor 0
    assert_non_null(strstr(output, "no prompt"));
}

static void a_prompt_on_stdin_is_read_to_its_end_zero_bytes_included(void **state)
{
    (void)state;
    assert_int_equal(shell("printf 'ab\\0cd\\n' | $C run " MODEL ON_CPU "--json -n 1 --temp 0"), 0);
    int64_t with_zero = member("usage", "prompt_tokens");
    assert_int_equal(shell("printf 'ab' | $C run " MODEL ON_CPU "--json -n 1 --temp 0"), 0);
    assert_true(with_zero > member("usage", "prompt_tokens"));
}

static void wrong_options_are_usage_errors(void **state)
{
    (void)state;
    static const char *const options[] = {"--logit-bias =5", "--logit-bias 5=", "--logit-bias 5=inf", "--logit-bias 5",
        "--logit-bias x=1", "--seed -1", "--temp nan", "--top-p 2", "-n 0", "--raw --stop x", "--lora-scale 1", "--json=x",
        "-c 0", "more", "--tokens 2,9", "--raw --system x", "--raw --think", "--threads 257", "--threads 0"};
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (shell("$C run " MODEL ON_CPU "-p abc %s 2>/dev/null", options[i]) != 2)
            fail_msg("'%s' was accepted", options[i]);
        assert_string_equal(output, "");
    }
}

// The option's range is the library's, and its help says it.
static void as_many_threads_as_the_help_says_are_taken(void **state)
{
    (void)state;
    assert_int_equal(shell("$C run --help"), 0);
    assert_non_null(strstr(output, "at most 256"));
    assert_int_equal(shell("$C run " MODEL " --backend cpu --threads 256 -p abc -n 1 --temp 0"), 0);
    assert_int_equal(shell("$C quantize --help"), 0);
    assert_non_null(strstr(output, "at most 256"));
    assert_int_equal(shell("$C quantize x y Q8_0 --threads 257 2>/dev/null"), 2);
}

// Starts the program, stops it with the signal as soon as NAME.part is there, and tells how it ended.
static int stop_when_writing(int number, const char *part, const char *const arguments[])
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execv(CARAT_PROGRAM, (char *const *)arguments);
        _exit(127);
    }
    while (access(part, F_OK) != 0 && waitpid(child, &status, WNOHANG) == 0)
        usleep(200);
    if (access(part, F_OK) == 0 && kill(child, number) == 0)
        assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void a_command_that_is_stopped_leaves_no_part_of_a_file(void **state)
{
    (void)state;
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    char folder[] = "/tmp/carat-XXXXXX", file[64], part[72];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/out.gguf", folder);
    snprintf(part, sizeof part, "%s.part", file);
    const char *synth[] = {"carat", "synth", "e2b", file, NULL};
    const char *quantize[] = {"carat", "quantize", CARAT_SOURCE_DIR "/models/carat-demo.gguf", file, "Q4_K_M",
        "--allow-requantize", "--threads", "1", NULL};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        for (int verb = 0; verb < 2; verb++) {
            int status = stop_when_writing(numbers[i], part, verb == 0 ? synth : quantize);
            assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
            assert_int_not_equal(access(part, F_OK), 0);
            assert_int_not_equal(access(file, F_OK), 0);
        }
    }
    assert_int_equal(rmdir(folder), 0);
}

static void a_switch_of_a_conversation_is_a_boolean(void **state)
{
    (void)state;
    static const char *const names[] = {
        "enable_thinking", "preserve_thinking", "add_generation_prompt", "continue_final_message"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(shell("echo '{\"messages\":[],\"%s\":\"yes\"}' | $C template " MODEL " --json 2>&1", names[i]), 1);
        assert_non_null(strstr(output, names[i]));
    }
}

static void a_seed_gives_the_same_tokens_with_any_number_of_threads(void **state)
{
    (void)state;
    static const char *const seeds[] = {"0", "9007199254740993", "9223372036854775807"};
    for (size_t s = 0; s < sizeof seeds / sizeof seeds[0]; s++) {
        char first[4096] = "";
        for (int threads = 1; threads <= 7; threads += 2) {
            int code = shell("$C run " MODEL " --backend cpu --tokens 2,9,4 -n 12 --temp 1.5 --seed %s --threads %d 2>/dev/null",
                seeds[s], threads);
            assert_int_equal(code, 0);
            if (threads == 1)
                snprintf(first, sizeof first, "%s", output);
            assert_string_equal(output, first);
        }
    }
}

// The strength of an adapter is a factor: 0 is the bare model, twice a half is the whole.
static void adapters_are_added_with_their_strength(void **state)
{
    (void)state;
#define ADAPTER " --lora " CARAT_FIXTURES "/lora/lora-tiny-e2b"
    static const char *const equal[][2] = {
        {"", ADAPTER " --lora-scale 0"}, {ADAPTER, ADAPTER " --lora-scale 0.5" ADAPTER " --lora-scale 0.5"}};
    char texts[2][4096];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            assert_int_equal(
                shell("$C run " MODEL ON_CPU "--exact --tokens 2,9,4,30,11 --temp 0 -n 8 %s 2>/dev/null", equal[i][k]), 0);
            if (k == 0)
                snprintf(texts[i], sizeof texts[i], "%s", output);
            assert_string_equal(output, texts[i]);
        }
    }
    assert_string_not_equal(texts[0], texts[1]);
    assert_int_equal(shell("$C run " MODEL ON_CPU "-p abc --lora /absent 2>&1"), 1);
    assert_non_null(strstr(output, "/absent"));
}

// Interrupts a program once it has begun to answer; its exit code.
static int interrupt(const char *options)
{
    char command[2048];
    // The shell prints its id and becomes the program.
    snprintf(command, sizeof command, "echo $$; exec '%s' run %s" ON_CPU "%s 2>/dev/null", CARAT_PROGRAM, MODEL, options);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    int id = 0;
    assert_int_equal(fscanf(pipe, "%d", &id), 1);
    fgetc(pipe); // the newline
    assert_true(fgetc(pipe) != EOF);
    kill(id, SIGINT);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void an_interrupted_answer_ends_with_130(void **state)
{
    (void)state;
    assert_int_equal(interrupt("--tokens 2,9,4 --ignore-eos --temp 0"), 130);
    assert_int_equal(interrupt("--tokens 2,9,4 --ignore-eos --seed 1"), 130);
}

// What a terminal has shown and no one has looked for yet.
static size_t n_shown;

// Reads what a terminal shows until `text` is there, and takes it; false when the program ends before.
static bool shows(int terminal, const char *text)
{
    char *found;
    output[n_shown] = '\0';
    while ((found = strstr(output, text)) == NULL) {
        ssize_t got = n_shown < sizeof output - 1 ? read(terminal, output + n_shown, sizeof output - 1 - n_shown) : 0;
        if (got <= 0)
            return false;
        n_shown += (size_t)got;
        output[n_shown] = '\0';
    }
    found += strlen(text);
    n_shown -= (size_t)(found - output);
    memmove(output, found, n_shown);
    return true;
}

static void type(int terminal, const char *keys)
{
    assert_int_equal(write(terminal, keys, strlen(keys)), (ssize_t)strlen(keys));
}

// Waits for the prompt, and for the editor that libedit starts only after it: a key typed before would meet the terminal's own
// line discipline.
static bool prompts(int terminal)
{
    struct termios mode;
    if (!shows(terminal, "> "))
        return false;
    while (tcgetattr(terminal, &mode) == 0 && (mode.c_lflag & ICANON) != 0)
        usleep(1000);
    return true;
}

// Line editing knows whole characters in every locale; Ctrl-C gives up a line, Ctrl-D ends.
static void a_chat_in_a_terminal_edits_utf8_and_survives_ctrl_c(void **state)
{
    (void)state;
    int terminal;
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);
    assert_true(child >= 0);
    alarm(SECONDS_FOR_A_CHAT); // a program that waits for more than it is given must not hold up the tests
    if (child == 0) {
        unsetenv("LC_ALL");
        unsetenv("LC_CTYPE");
        setenv("LANG", "C", 1);
        setenv("TERM", "xterm", 1);
        execl(CARAT_PROGRAM, CARAT_PROGRAM, "chat", MODEL, "--backend", "cpu", "--threads", "2", "-n", "4", (char *)NULL);
        _exit(127);
    }
    n_shown = 0;
    assert_true(prompts(terminal));
    type(terminal, "/\u00e4\u00f6\u65e5\x7f\x7f\u00fc\r");
    assert_true(shows(terminal, "There is no command /\u00e4\u00fc;"));
    assert_true(prompts(terminal));
    type(terminal, "half a line\x03");
    assert_true(shows(terminal, "/exit leaves"));
    assert_true(prompts(terminal));
    type(terminal, "/again\r");
    assert_true(shows(terminal, "no message to answer"));
    assert_true(prompts(terminal));
    type(terminal, "\x04");
    assert_false(shows(terminal, "what is never there"));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    alarm(0);
    close(terminal);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_that_cannot_be_written_are_a_failure),
        cmocka_unit_test(a_profile_has_every_pass),
        cmocka_unit_test(a_missing_prompt_is_refused_and_the_model_file_is_never_read_as_one),
        cmocka_unit_test(a_prompt_on_stdin_is_read_to_its_end_zero_bytes_included),
        cmocka_unit_test(wrong_options_are_usage_errors),
        cmocka_unit_test(as_many_threads_as_the_help_says_are_taken),
        cmocka_unit_test(a_command_that_is_stopped_leaves_no_part_of_a_file),
        cmocka_unit_test(a_switch_of_a_conversation_is_a_boolean),
        cmocka_unit_test(a_seed_gives_the_same_tokens_with_any_number_of_threads),
        cmocka_unit_test(adapters_are_added_with_their_strength),
        cmocka_unit_test(an_interrupted_answer_ends_with_130),
        cmocka_unit_test(a_chat_in_a_terminal_edits_utf8_and_survives_ctrl_c),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
