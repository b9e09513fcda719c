// options.c: reading command lines.

#include "options.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/threads.h"
#include "engine/model.h"

struct arguments arguments_begin(int argc, char **argv)
{
    return (struct arguments){.argc = argc, .argv = argv, .next = 1};
}

bool arguments_next(struct arguments *arguments, const char **option, const char **positional)
{
    if (arguments->value != NULL)
        usage_error(arguments->argv[0], "'%s' takes no value", arguments->argv[arguments->next - 1]);
    *option = NULL;
    *positional = NULL;
    if (arguments->next >= arguments->argc)
        return false;
    char *argument = arguments->argv[arguments->next++];
    if (arguments->only_positional || argument[0] != '-' || argument[1] == 0) {
        *positional = argument;
        return true;
    }
    if (strcmp(argument, "--") == 0) {
        arguments->only_positional = true;
        return arguments_next(arguments, option, positional);
    }
    char *equals = strncmp(argument, "--", 2) == 0 ? strchr(argument, '=') : NULL;
    if (equals != NULL) {
        *equals = 0;
        arguments->value = equals + 1;
    }
    *option = argument;
    return true;
}

void usage_error(const char *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "carat %s: ", command);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n'carat %s --help' explains the options.\n", command);
    va_end(args);
    exit(2);
}

const char *option_text(struct arguments *arguments, const char *option)
{
    const char *value = arguments->value;
    arguments->value = NULL;
    if (value == NULL && arguments->next < arguments->argc)
        value = arguments->argv[arguments->next++];
    if (value == NULL)
        usage_error(arguments->argv[0], "'%s' needs a value", option);
    return value;
}

long option_int(struct arguments *arguments, const char *option, long low, long high)
{
    const char *text = option_text(arguments, option);
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (*text == 0 || *end != 0 || errno != 0 || value < low || value > high)
        usage_error(arguments->argv[0], "'%s' must be a whole number from %ld to %ld, not '%s'", option, low, high, text);
    return value;
}

double option_number(struct arguments *arguments, const char *option, double low, double high)
{
    const char *text = option_text(arguments, option);
    char *end;
    double value = strtod(text, &end);
    if (*text == 0 || *end != 0 || !(value >= low && value <= high))
        usage_error(arguments->argv[0], "'%s' must be a number from %g to %g, not '%s'", option, low, high, text);
    return value;
}

bool parse_ids(const char *text, int32_t **ids, int32_t *n_ids, struct carat_error *err)
{
    size_t capacity = strlen(text) / 2 + 1;
    *n_ids = 0;
    *ids = malloc(capacity * sizeof **ids);
    if (*ids == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for %zu token ids", capacity);
    while (*text != 0) {
        if (strchr(", \t\r\n", *text) != NULL) {
            text++;
            continue;
        }
        char *end;
        errno = 0;
        long id = strtol(text, &end, 10);
        if (end == text || errno != 0 || id < 0 || id > INT32_MAX || (*end != 0 && strchr(", \t\r\n", *end) == NULL)) {
            free(*ids);
            *ids = NULL;
            return fail(err, CARAT_BAD_ARGUMENT, "'%.20s' is no token id: give numbers separated by commas", text);
        }
        (*ids)[(*n_ids)++] = (int32_t)id;
        text = end;
    }
    return true;
}

const char model_options_help[] =
    "  --backend NAME        cpu, webgpu or ref (default: webgpu if there is a GPU, else cpu)\n"
    "  --threads N           threads of the cpu backend, at most 256 (default: one per core)\n"
    "  --exact               32-bit activations: slower and exact\n"
    "  --no-autotune         webgpu: no short trial at the start of what is faster\n"
    "  --compat NAME         compute as ollama or llama.cpp do where they differ from the definition\n"
    "  --mmproj FILE         file with the vision and audio towers\n"
    "  --text-only           leave the towers alone\n"
    "  --table-on-disk       read rows of the per-layer table when they are needed\n";

static enum carat_compat parse_compat(struct arguments *arguments, const char *option)
{
    const char *name = option_text(arguments, option);
    if (strcmp(name, "none") == 0)
        return CARAT_COMPAT_NONE;
    if (strcmp(name, "ollama") == 0)
        return CARAT_COMPAT_OLLAMA;
    if (strcmp(name, "llama.cpp") == 0)
        return CARAT_COMPAT_LLAMA_CPP;
    usage_error(arguments->argv[0], "'%s' must be none, ollama or llama.cpp, not '%s'", option, name);
}

static const char *option_backend(struct arguments *arguments, const char *option)
{
    struct carat_error err;
    const char *name = option_text(arguments, option);
    if (!model_check_backend(name, &err))
        usage_error(arguments->argv[0], "%s", err.message);
    return name;
}

bool model_option(struct arguments *arguments, const char *option, struct carat_model_options *options)
{
    if (strcmp(option, "--backend") == 0)
        options->backend = option_backend(arguments, option);
    else if (strcmp(option, "--threads") == 0 || strcmp(option, "-t") == 0)
        options->n_threads = (int32_t)option_int(arguments, option, 1, THREADS_MAX);
    else if (strcmp(option, "--exact") == 0)
        options->exact = true;
    else if (strcmp(option, "--no-autotune") == 0)
        options->no_autotune = true;
    else if (strcmp(option, "--compat") == 0)
        options->compat = parse_compat(arguments, option);
    else if (strcmp(option, "--mmproj") == 0)
        options->projector = option_text(arguments, option);
    else if (strcmp(option, "--text-only") == 0)
        options->text_only = true;
    else if (strcmp(option, "--table-on-disk") == 0)
        options->per_layer_table_on_disk = true;
    else
        return false;
    return true;
}

const char sampling_options_help[] =
    "  --temp T              temperature (default 1.0; 0: always the likeliest token)\n"
    "  --top-k K             keep the K likeliest tokens (default 64; 0: all)\n"
    "  --top-p P             keep the smallest set with probability P (default 0.95)\n"
    "  --min-p P             keep tokens with at least P times the largest probability (default 0)\n"
    "  --repeat-penalty X    divide the logits of recent tokens (default 1: off)\n"
    "  --presence-penalty X, --frequency-penalty X\n"
    "                        subtract from the logits of recent tokens (default 0)\n"
    "  --penalty-window N    recent tokens looked at (default 64)\n"
    "  --seed N              seed of the random numbers (default: another one each time)\n"
    "  --logit-bias ID=X     add X to the logit of a token; may be repeated\n";

static void add_bias(struct arguments *arguments, const char *option, struct carat_sampling *sampling)
{
    enum { MAX_BIASES = 256 };
    static struct carat_logit_bias biases[MAX_BIASES];
    const char *text = option_text(arguments, option);
    char *end;
    long id = strtol(text, &end, 10);
    const char *number = end > text && *end == '=' ? end + 1 : "";
    double bias = strtod(number, &end);
    if (*number == 0 || *end != 0 || id < 0 || id > INT32_MAX || !(fabs(bias) <= FLT_MAX))
        usage_error(arguments->argv[0], "'%s' needs ID=NUMBER, not '%s'", option, text);
    if (sampling->n_biases == MAX_BIASES)
        usage_error(arguments->argv[0], "more than %d logit biases", MAX_BIASES);
    biases[sampling->n_biases++] = (struct carat_logit_bias){.id = (int32_t)id, .bias = (float)bias};
    sampling->biases = biases;
}

bool sampling_option(struct arguments *arguments, const char *option, struct carat_sampling *sampling)
{
    if (strcmp(option, "--temp") == 0)
        sampling->temperature = (float)option_number(arguments, option, 0, 100);
    else if (strcmp(option, "--top-k") == 0)
        sampling->top_k = (int32_t)option_int(arguments, option, 0, INT32_MAX);
    else if (strcmp(option, "--top-p") == 0)
        sampling->top_p = (float)option_number(arguments, option, 0, 1);
    else if (strcmp(option, "--min-p") == 0)
        sampling->min_p = (float)option_number(arguments, option, 0, 1);
    else if (strcmp(option, "--repeat-penalty") == 0)
        sampling->repetition_penalty = (float)option_number(arguments, option, 0.01, 100);
    else if (strcmp(option, "--presence-penalty") == 0)
        sampling->presence_penalty = (float)option_number(arguments, option, -2, 2);
    else if (strcmp(option, "--frequency-penalty") == 0)
        sampling->frequency_penalty = (float)option_number(arguments, option, -2, 2);
    else if (strcmp(option, "--penalty-window") == 0)
        sampling->penalty_window = (int32_t)option_int(arguments, option, 0, 1 << 20);
    else if (strcmp(option, "--seed") == 0)
        sampling->seed = (uint64_t)option_int(arguments, option, 0, INT64_MAX);
    else if (strcmp(option, "--logit-bias") == 0)
        add_bias(arguments, option, sampling);
    else
        return false;
    return true;
}

// --- adapters

enum { MAX_ADAPTERS = 16 };
static struct {
    const char *path;
    float scale;
} adapters[MAX_ADAPTERS];
static int n_adapters;

const char adapter_options_help[] =
    "  --lora PATH           with this adapter (GGUF, safetensors or PEFT folder); may be repeated\n"
    "  --lora-scale X        strength of the adapter named before (default 1)\n";

bool adapter_option(struct arguments *arguments, const char *option)
{
    if (strcmp(option, "--lora") == 0) {
        const char *path = option_text(arguments, option);
        if (n_adapters == MAX_ADAPTERS)
            usage_error(arguments->argv[0], "more than %d adapters", MAX_ADAPTERS);
        adapters[n_adapters].path = path;
        adapters[n_adapters++].scale = 1;
    } else if (strcmp(option, "--lora-scale") == 0) {
        float scale = (float)option_number(arguments, option, -1000, 1000);
        if (n_adapters == 0)
            usage_error(arguments->argv[0], "'%s' belongs behind the --lora that it is for", option);
        adapters[n_adapters - 1].scale = scale;
    } else {
        return false;
    }
    return true;
}

static bool add_adapters(struct carat_model *model, struct carat_error *err)
{
    for (int i = 0; i < n_adapters; i++) {
        if (!carat_adapter_load(model, adapters[i].path, adapters[i].scale, NULL, err))
            return false;
    }
    return true;
}

// --- Ctrl-C

volatile sig_atomic_t interrupted;
static int interrupt_pipe[2] = {-1, -1}; // a byte for each Ctrl-C, so that poll() wakes up whenever it comes

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    int saved = errno;
    interrupted = 1;
    ssize_t written = write(interrupt_pipe[1], "", 1); // a full pipe has enough to tell
    (void)written;
    errno = saved;
}

void forget_interrupts(void)
{
    char bytes[64];
    while (read(interrupt_pipe[0], bytes, sizeof bytes) > 0)
        continue;
    interrupted = 0;
}

bool input_is_ready(int descriptor)
{
    struct pollfd waits[] = {{.fd = descriptor, .events = POLLIN}, {.fd = interrupt_pipe[0], .events = POLLIN}};
    int n;
    do
        n = poll(waits, 2, -1);
    while (n < 0 && errno == EINTR && !interrupted);
    return n > 0 && !interrupted;
}

void catch_interrupts(bool once)
{
    if (interrupt_pipe[0] < 0 && pipe(interrupt_pipe) == 0) {
        for (int i = 0; i < 2; i++) {
            fcntl(interrupt_pipe[i], F_SETFL, O_NONBLOCK);
            fcntl(interrupt_pipe[i], F_SETFD, FD_CLOEXEC);
        }
    }
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigaction(SIGINT, &action, NULL);
}

// --- progress

static bool bar_is_shown;

bool show_progress(void *context, const char *what, uint64_t done, uint64_t total)
{
    static double started_ms;
    static double drawn_ms;
    (void)context;
    double now = clock_ms();
    if (done == 0 || started_ms == 0)
        started_ms = now;
    if (!isatty(STDERR_FILENO) || now - started_ms < 1000 || now - drawn_ms < 100 || total == 0)
        return true;
    enum { WIDTH = 30 };
    char bar[WIDTH + 1];
    int filled = (int)((double)done / (double)total * WIDTH);
    for (int i = 0; i < WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[WIDTH] = 0;
    fprintf(stderr, "\r%s [%s] %s of %s", what, bar, bytes_text(done), bytes_text(total));
    bar_is_shown = true;
    drawn_ms = now;
    return true;
}

void hide_progress(void)
{
    if (bar_is_shown)
        fputs("\r\033[K", stderr);
    bar_is_shown = false;
}

struct carat_model *open_model(const char *name, struct carat_model_options *options)
{
    struct carat_model *model = NULL;
    struct carat_error err;
    options->progress = show_progress;
    bool ok = carat_model_open(name, options, &model, &err);
    hide_progress();
    if (ok && !add_adapters(model, &err)) {
        carat_model_free(model);
        model = NULL;
        ok = false;
    }
    if (!ok)
        fprintf(stderr, "carat: %s\n", err.message);
    return model;
}

bool check_output(const char *output, const char *input, struct carat_error *err)
{
    struct stat first, second;
    bool same = input != NULL && stat(output, &first) == 0 && stat(input, &second) == 0 && first.st_dev == second.st_dev &&
                first.st_ino == second.st_ino;
    return !same ||
           fail(err, CARAT_BAD_ARGUMENT, "%s cannot be replaced by what is read from it; name another file to write", output);
}

const char *bytes_text(uint64_t n_bytes)
{
    static char texts[4][24];
    static int next;
    char *text = texts[next++ % 4];
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    double value = (double)n_bytes;
    int unit = 0;
    for (; value >= 999.5 && unit < 4; unit++)
        value /= 1000;
    snprintf(text, sizeof texts[0],
        unit == 0       ? "%.0f %s"
        : value < 9.995 ? "%.2f %s"
        : value < 99.95 ? "%.1f %s"
                        : "%.0f %s",
        value, units[unit]);
    return text;
}
