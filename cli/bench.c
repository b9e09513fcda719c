// bench.c: carat bench: tokens per second, in the table that people know from llama-bench.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "bench_profile.h"
#include "bench_warm_up.h"
#include "carat.h"
#include "commands.h"
#include "engine/model.h"
#include "options.h"

static const char help[] =
    "usage: carat bench MODEL [OPTIONS]\n\n"
    "Measures prompt processing (pp) and text generation (tg) with random tokens; prints mean and deviation.\n\n"
    "  -p N[,N...]           prompt lengths (default 512; 0: none)\n"
    "  -n N[,N...]           tokens to generate (default 128; 0: none)\n"
    "  -d N[,N...]           depths: positions already in the cache (default 0)\n"
    "  -r N                  repetitions (default 5)\n"
    "  --batch N             rows of a prefill chunk (default 512)\n"
    "  --kv-f32              keys and values in 32 bits\n"
    "  --temp T              generate with this temperature, top-k 64 and top-p 0.95 (default 0: the likeliest token)\n"
    "  --run-ahead N         tokens under way at once on a GPU, 1 to 8 (default 4)\n"
    "  --no-prefill-skip     run the layers that share keys and values for every prompt position\n"
    "  --profile             after each test the time of every kernel (a GPU with timestamps) or operation\n"
    "  --json                one JSON object a line instead of the table\n"
    "\nEach test first warms up: for 2 s and until two runs in a row differ by less than 3 %, but for 5 s at most; a first run\n"
    "of 2 s is enough. Then it runs as often as -r says. memory: resident weights, keys, values and scratch.\n";

enum {
    MAX_LENGTHS = 16,
    MAX_REPETITIONS = 100,
    PROFILED_TOKENS = 4, // as many as the query set surely has room for
    MAX_PROFILE = 1 << 14,
};

struct lengths {
    int32_t n[MAX_LENGTHS];
    int count;
};

struct bench {
    const char *model_name;
    struct carat_model_options model_options;
    struct carat_session_options session_options;
    struct lengths prompts, generations, depths;
    float temperature;
    int repetitions;
    bool json, profile;
    struct carat_model *model;
    struct carat_model_info info;
    double open_ms;
};

struct result {
    double mean, deviation; // tokens per second
    double median;
    double dispatches; // per generated token
    uint64_t memory;   // resident weights, keys and values of the test's context, scratch
    char profile[MAX_PROFILE];
};

static struct lengths parse_lengths(struct arguments *arguments, const char *option)
{
    struct lengths lengths = {0};
    const char *text = option_text(arguments, option);
    for (const char *at = text;; at++) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 0 || n > 1 << 20 || (*end != 0 && *end != ',') || lengths.count == MAX_LENGTHS)
            usage_error(
                arguments->argv[0], "'%s' needs up to %d lengths separated by commas, not '%s'", option, MAX_LENGTHS, text);
        lengths.n[lengths.count++] = (int32_t)n;
        at = end;
        if (*at == 0)
            return lengths;
    }
}

static bool bench_option(struct arguments *arguments, const char *option, struct bench *bench)
{
    if (strcmp(option, "-p") == 0)
        bench->prompts = parse_lengths(arguments, option);
    else if (strcmp(option, "-n") == 0)
        bench->generations = parse_lengths(arguments, option);
    else if (strcmp(option, "-d") == 0)
        bench->depths = parse_lengths(arguments, option);
    else if (strcmp(option, "-r") == 0)
        bench->repetitions = (int)option_int(arguments, option, 1, MAX_REPETITIONS);
    else if (strcmp(option, "--batch") == 0)
        bench->session_options.batch = (int32_t)option_int(arguments, option, 1, 1 << 16);
    else if (strcmp(option, "--kv-f32") == 0)
        bench->session_options.kv_f32 = true;
    else if (strcmp(option, "--no-prefill-skip") == 0)
        bench->session_options.no_prefill_skip = true;
    else if (strcmp(option, "--temp") == 0)
        bench->temperature = (float)option_number(arguments, option, 0, 1000);
    else if (strcmp(option, "--run-ahead") == 0)
        bench->session_options.run_ahead = (int32_t)option_int(arguments, option, 1, 8);
    else if (strcmp(option, "--json") == 0)
        bench->json = true;
    else if (strcmp(option, "--profile") == 0)
        bench->profile = true;
    else
        return false;
    return true;
}

static void parse(struct bench *bench, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option;
    const char *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && bench->model_name == NULL) {
            bench->model_name = positional;
        } else if (positional != NULL) {
            usage_error("bench", "unexpected argument '%s'", positional);
        } else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s", help, model_options_help);
            exit(0);
        } else if (!bench_option(&arguments, option, bench) && !model_option(&arguments, option, &bench->model_options)) {
            usage_error("bench", "there is no option '%s'", option);
        }
    }
    if (bench->model_name == NULL)
        usage_error("bench", "which model?");
    if (bench->profile && bench->json)
        usage_error("bench", "'--profile' goes with the table, not with '--json'");
}

// Ids that a model would never mind: normal tokens spread over the vocabulary, the same in every run.
static void fill_ids(int32_t *ids, int32_t n, int32_t n_vocab)
{
    uint32_t state = 12345;
    for (int32_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        int32_t first = n_vocab > 1024 ? 512 : 0;
        ids[i] = first + (int32_t)(state % (uint32_t)(n_vocab - first));
    }
}

// Runs a prompt and generates; the finish event's usage says how long each part took.
static bool run_once(struct carat_session *session, const int32_t *ids, int32_t n_ids, int32_t n_generate, float temperature,
    struct carat_usage *usage, struct carat_error *err)
{
    struct carat_generate_options options = {.max_tokens = n_generate, .ignore_eos = true, .n_logprobs = -1};
    carat_sampling_default(&options.sampling);
    options.sampling.temperature = temperature;
    if (!carat_generate_begin(session, ids, n_ids, NULL, 0, &options, err))
        return false;
    for (;;) {
        struct carat_event event;
        enum carat_status status = carat_generate_next(session, &event, err);
        if (status == CARAT_FAILED)
            return false;
        if (status == CARAT_PENDING)
            carat_session_wait(session, 100);
        if (status == CARAT_EVENT && event.kind == CARAT_EVENT_FINISH) {
            *usage = event.usage;
            return true;
        }
    }
}

static int compare_numbers(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void summarize(double *rates, int n, struct result *result)
{
    *result = (struct result){0};
    for (int i = 0; i < n; i++)
        result->mean += rates[i] / n;
    for (int i = 0; i < n; i++)
        result->deviation += (rates[i] - result->mean) * (rates[i] - result->mean);
    result->deviation = n > 1 ? sqrt(result->deviation / (n - 1)) : 0;
    qsort(rates, (size_t)n, sizeof *rates, compare_numbers);
    result->median = n % 2 == 1 ? rates[n / 2] : (rates[n / 2 - 1] + rates[n / 2]) / 2;
}

// Where the time goes: of the last n_prompt positions of the ids, or of PROFILED_TOKENS tokens after them.
static bool profile(struct bench *bench, struct carat_session *session, const int32_t *ids, int32_t n_ids, int32_t n_prompt,
    char *text, struct carat_error *err)
{
    struct carat_usage usage;
    carat_session_truncate(session, 0);
    // Afterwards only what is to be timed is not in the cache; the last position always runs again.
    int32_t n_before = n_prompt > 0 ? n_ids - n_prompt : n_ids;
    if (n_before > 0 && !run_once(session, ids, n_before, 1, bench->temperature, &usage, err))
        return false;
    if (!profile_start(bench->model->ops)) {
        snprintf(text, MAX_PROFILE, "No profile: this GPU offers no timestamp queries.\n");
        return true;
    }
    bool ok = run_once(session, ids, n_ids, n_prompt > 0 ? 1 : PROFILED_TOKENS, bench->temperature, &usage, err);
    int n = snprintf(text, MAX_PROFILE, n_prompt > 0 ? "Profile of %d positions:\n" : "Profile of %d tokens:\n",
        n_prompt > 0 ? n_prompt : PROFILED_TOKENS);
    if (!profile_end(bench->model->ops, text + n, (size_t)(MAX_PROFILE - n)))
        snprintf(text + n, (size_t)(MAX_PROFILE - n), "the times could not be read\n");
    return ok;
}

// What one row of the table measures: n_prompt positions are processed at `depth`, or n_generate tokens are generated there.
struct test {
    int32_t depth, n_prompt, n_generate;
    int32_t *ids; // [n_ids]; a generation begins after depth + 1 positions
    int32_t n_ids;
};

// Runs it once from an empty cache. counted_ms: of the part that is measured.
static bool run_test(struct bench *bench, struct carat_session *session, const struct test *test, struct carat_usage *usage,
    double *counted_ms, struct carat_error *err)
{
    carat_session_truncate(session, 0);
    if (test->depth > 0 && test->n_prompt > 0 && !run_once(session, test->ids, test->depth, 1, bench->temperature, usage, err))
        return false;
    int32_t n_generate = test->n_prompt > 0 ? 1 : test->n_generate + 1; // the first token belongs to the prompt
    if (!run_once(session, test->ids, test->n_ids, n_generate, bench->temperature, usage, err))
        return false;
    *counted_ms = test->n_prompt > 0 ? usage->prompt_ms : usage->generate_ms;
    return true;
}

static bool warm_up(struct bench *bench, struct carat_session *session, const struct test *test, struct carat_error *err)
{
    struct warm_up_run runs[WARM_UP_MOST_RUNS];
    for (int n = 0; !is_warm(runs, n); n++) {
        struct carat_usage usage;
        double start = clock_ms();
        if (!run_test(bench, session, test, &usage, &runs[n].counted_ms, err))
            return false;
        runs[n].whole_ms = clock_ms() - start;
    }
    return true;
}

// One row of the table.
static bool measure(
    struct bench *bench, int32_t depth, int32_t n_prompt, int32_t n_generate, struct result *result, struct carat_error *err)
{
    double rates[MAX_REPETITIONS];
    double dispatches = 0;
    struct test test = {depth, n_prompt, n_generate, NULL, depth + (n_prompt > 0 ? n_prompt : 1)};
    int32_t n_context = test.n_ids + n_generate + 8;
    bench->session_options.context_length = n_context < bench->info.context_length ? n_context : bench->info.context_length;
    test.ids = malloc((size_t)test.n_ids * sizeof *test.ids);
    struct carat_session *session = NULL;
    bool ok = test.ids != NULL || fail(err, CARAT_NO_MEMORY, "no memory for %d token ids", test.n_ids);
    ok = ok && carat_session_new(bench->model, &bench->session_options, &session, err);
    if (ok && test.ids != NULL)
        fill_ids(test.ids, test.n_ids, bench->info.n_vocab);
    ok = ok && warm_up(bench, session, &test, err);
    for (int i = 0; ok && i < bench->repetitions; i++) {
        struct carat_usage usage;
        double counted_ms;
        ok = run_test(bench, session, &test, &usage, &counted_ms, err);
        if (!ok)
            continue;
        int32_t n_counted = n_prompt > 0 ? usage.n_prompt - usage.n_prompt_cached : usage.n_generated - 1;
        rates[i] = n_counted * 1e3 / counted_ms;
        if (n_generate > 0)
            dispatches = usage.dispatches_per_token;
    }
    if (ok) {
        summarize(rates, bench->repetitions, result);
        result->dispatches = dispatches;
        result->memory = bench->info.weight_bytes + carat_session_bytes(session);
    }
    if (ok && bench->profile)
        ok = profile(bench, session, test.ids, test.n_ids, n_prompt, result->profile, err);
    carat_session_free(session);
    free(test.ids);
    return ok;
}

// --- the table; web/src/bench.ts prints the same -------------------------------------------------------------------------------

enum { MAX_ADAPTER = 48 }; // characters of the device's name

static int adapter_width(const struct bench *bench)
{
    int n = (int)strlen(bench->info.device);
    return n < 7 ? 7 : n > MAX_ADAPTER ? MAX_ADAPTER : n;
}

// How fast the weights came; nothing where they are used in place.
static void print_load(const struct carat_model_info *info)
{
    if (info->loaded_bytes >= 100000 && info->load_ms > 0)
        printf("%s of weights to %s at %.2f GB/s; ", bytes_text(info->loaded_bytes),
            strcmp(info->backend, "webgpu") == 0 ? "the device" : "memory", (double)info->loaded_bytes / info->load_ms * 1e-6);
}

static void print_header(const struct bench *bench)
{
    static const char dashes[] = "------------------------------------------------";
    int width = adapter_width(bench);
    if (bench->json)
        return;
    printf("opened in %.0f ms; ", bench->open_ms);
    print_load(&bench->info);
    printf("resident weights %s", bytes_text(bench->info.weight_bytes));
    if (bench->info.folded_bytes > 0)
        printf(", of which %s are folded matrices", bytes_text(bench->info.folded_bytes));
    printf("\n\n");
    printf("| %-30s | %9s | %8s | %-7s | %-*s | %14s | %16s | %10s | %9s |\n", "model", "size", "params", "backend", width,
        "adapter", "test", "t/s", "dispatches", "memory");
    printf("| %.30s | %.8s: | %.7s: | %.7s | %.*s | %.13s: | %.15s: | %.9s: | %.8s: |\n", dashes, dashes, dashes, dashes, width,
        dashes, dashes, dashes, dashes, dashes);
}

static void print_json(const struct carat_model_info *info, const char *name, const char *test, const struct result *result)
{
    struct json_writer out = {0};
    json_write_literal(&out, "{\"model\":");
    json_write_string(&out, name, strlen(name));
    json_write_format(&out,
        ",\"size\":%llu,\"params\":%llu,\"backend\":\"%s\",\"adapter\":", (unsigned long long)info->file_bytes,
        (unsigned long long)info->n_parameters, info->backend);
    json_write_string(&out, info->device, strlen(info->device));
    json_write_format(&out,
        ",\"test\":\"%s\",\"tokens_per_second\":%.4f,\"deviation\":%.4f,\"median\":%.4f,\"dispatches_per_token\":%.1f", test,
        result->mean, result->deviation, result->median, result->dispatches);
    json_write_format(&out, ",\"memory\":%llu}", (unsigned long long)result->memory);
    if (!out.failed)
        puts(out.bytes);
    json_writer_free(&out);
}

static void print_row(const struct bench *bench, const char *test, const struct result *result)
{
    const struct carat_model_info *info = &bench->info;
    char name[64];
    char rate[32];
    snprintf(name, sizeof name, "%.20s %s", info->name, info->quantization);
    snprintf(rate, sizeof rate, "%.2f +- %.2f", result->mean, result->deviation);
    if (bench->json) {
        print_json(info, name, test, result);
    } else {
        int width = adapter_width(bench);
        double n_parameters = (double)info->n_parameters;
        bool millions = n_parameters < 1e9;
        printf("| %-30.30s | %9s | %6.2f %c | %-7s | %-*.*s | %14s | %16s | %10.0f | %9s |\n", name, bytes_text(info->file_bytes),
            millions ? n_parameters * 1e-6 : n_parameters * 1e-9, millions ? 'M' : 'B', info->backend, width, width, info->device,
            test, rate, result->dispatches, bytes_text(result->memory));
        fputs(result->profile, stdout);
    }
    fflush(stdout);
}

static bool run_row(struct bench *bench, int32_t depth, int32_t n_prompt, int32_t n_generate, struct carat_error *err)
{
    struct result result;
    char test[48];
    if (n_prompt == 0 && n_generate == 0)
        return true;
    if (!measure(bench, depth, n_prompt, n_generate, &result, err))
        return false;
    int n = snprintf(test, sizeof test, "%s%d", n_prompt > 0 ? "pp" : "tg", n_prompt > 0 ? n_prompt : n_generate);
    if (depth > 0)
        snprintf(test + n, sizeof test - (size_t)n, " @ d%d", depth);
    print_row(bench, test, &result);
    return true;
}

static bool run_table(struct bench *bench, struct carat_error *err)
{
    print_header(bench);
    for (int d = 0; d < bench->depths.count; d++) {
        for (int i = 0; i < bench->prompts.count; i++) {
            if (!run_row(bench, bench->depths.n[d], bench->prompts.n[i], 0, err))
                return false;
        }
        for (int i = 0; i < bench->generations.count; i++) {
            if (!run_row(bench, bench->depths.n[d], 0, bench->generations.n[i], err))
                return false;
        }
    }
    return true;
}

int command_bench(int argc, char **argv)
{
    struct bench bench = {.prompts = {{512}, 1}, .generations = {{128}, 1}, .depths = {{0}, 1}, .repetitions = 5};
    parse(&bench, argc, argv);
    double start = clock_ms();
    bench.model = open_model(bench.model_name, &bench.model_options);
    if (bench.model == NULL)
        return 1;
    bench.open_ms = clock_ms() - start;
    carat_model_info(bench.model, &bench.info);
    struct carat_error err;
    bool ok = run_table(&bench, &err);
    if (!ok)
        fprintf(stderr, "carat: %s\n", err.message);
    carat_model_free(bench.model);
    return ok ? 0 : 1;
}
