// transcribe.c: carat transcribe: what is said in a sound file, window by window.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "media.h"
#include "media/mel.h"
#include "media/sound.h"
#include "options.h"

static const char help[] =
    "usage: carat transcribe MODEL FILE [OPTIONS]\n\n"
    "Writes down what is said in a sound file. A long file is heard in windows of at most 30 s; each window ends at the "
    "quietest\n"
    "place of its last tenth, so that words stay whole. Every window's text follows its time: [mm:ss.s - mm:ss.s].\n\n"
    "  --window S            longest window in seconds (default 30, at least 1, at most 30)\n"
    "  --language NAME       say which language is spoken (\"German\")\n"
    "  --translate NAME      also translate into this language\n"
    "  -p, --prompt TEXT     another instruction than the usual one\n"
    "  --no-times            only the text\n"
    "  --json                one JSON object a window: start, end, text\n"
    "  -n, --max-tokens N    of one window (default 1024)\n"
    "  --temp T              temperature (default 0: always the likeliest token)\n"
    "  --context N           positions (default 4096)\n";

struct transcribe {
    const char *model_name, *file_name, *language, *translation, *prompt;
    double window_s, temperature;
    bool no_times, json;
    int32_t max_tokens;
    struct carat_model_options model_options;
    struct carat_session_options session_options;
    struct carat_media media; // the whole sound
    struct carat_model *model;
    struct carat_session *session;
    struct json_writer text; // of the window under way
};

static bool take_option(struct arguments *arguments, const char *option, struct transcribe *t)
{
    if (strcmp(option, "--window") == 0)
        t->window_s = option_number(arguments, option, 1, 30);
    else if (strcmp(option, "--language") == 0)
        t->language = option_text(arguments, option);
    else if (strcmp(option, "--translate") == 0)
        t->translation = option_text(arguments, option);
    else if (strcmp(option, "-p") == 0 || strcmp(option, "--prompt") == 0)
        t->prompt = option_text(arguments, option);
    else if (strcmp(option, "--no-times") == 0)
        t->no_times = true;
    else if (strcmp(option, "--json") == 0)
        t->json = true;
    else if (strcmp(option, "-n") == 0 || strcmp(option, "--max-tokens") == 0)
        t->max_tokens = (int32_t)option_int(arguments, option, 1, 1 << 20);
    else if (strcmp(option, "--temp") == 0)
        t->temperature = option_number(arguments, option, 0, 10);
    else if (strcmp(option, "--context") == 0)
        t->session_options.context_length = (int32_t)option_int(arguments, option, 16, 1 << 24);
    else
        return model_option(arguments, option, &t->model_options);
    return true;
}

// False when the help was asked for.
static bool parse(struct transcribe *t, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && t->model_name == NULL)
            t->model_name = positional;
        else if (positional != NULL && t->file_name == NULL)
            t->file_name = positional;
        else if (positional != NULL)
            usage_error("transcribe", "unexpected argument '%s'", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s", help, model_options_help);
            return false;
        } else if (!take_option(&arguments, option, t))
            usage_error("transcribe", "there is no option '%s'", option);
    }
    if (t->model_name == NULL || t->file_name == NULL)
        usage_error("transcribe", "a model and a sound file are needed");
    return true;
}

// Where the window that starts at `start` ends: the middle of the quietest 0.2 s of its last tenth, or the end of the sound.
static int64_t window_end(const struct transcribe *t, int64_t start)
{
    enum { QUIET = SOUND_RATE / 5, STEP = SOUND_RATE / 50 };
    int64_t longest = (int64_t)(t->window_s * SOUND_RATE), limit = start + longest;
    if (t->media.n_samples <= limit)
        return t->media.n_samples;
    double least = INFINITY;
    int64_t end = limit;
    for (int64_t at = limit - longest / 10 - QUIET; at + QUIET <= limit; at += STEP) {
        double energy = 0;
        for (int64_t i = at; i < at + QUIET; i++)
            energy += (double)t->media.samples[i] * t->media.samples[i];
        if (energy < least) {
            least = energy;
            end = at + QUIET / 2;
        }
    }
    return end;
}

static void write_instruction(const struct transcribe *t, struct json_writer *out)
{
    struct json_writer text = {0};
    if (t->prompt != NULL)
        json_write_literal(&text, t->prompt);
    else
        json_write_format(&text,
            "Transcribe the speech in this recording%s%s exactly as it is spoken%s. Write only the transcript, without "
            "line breaks, and numbers as digits.",
            t->language != NULL ? " in " : "", t->language != NULL ? t->language : "",
            t->language != NULL ? "" : ", in its own language");
    if (t->translation != NULL)
        json_write_format(&text, " Then write its translation into %s after a line break.", t->translation);
    json_write_string(out, text.bytes != NULL ? text.bytes : "", text.n_bytes);
    json_writer_free(&text);
}

static bool begin_window(struct transcribe *t, const struct carat_media *window, struct carat_error *err)
{
    struct json_writer out = {0};
    json_write_literal(
        &out, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"audio\",\"media\":0},{\"type\":\"text\",\"text\":");
    write_instruction(t, &out);
    json_write_literal(&out, "}]}],\"temperature\":");
    json_write_number(&out, t->temperature);
    json_write_format(&out, ",\"max_tokens\":%d}", (int)t->max_tokens);
    bool ok = !out.failed || fail(err, CARAT_NO_MEMORY, "no memory for the prompt");
    ok = ok && carat_chat_begin(t->session, out.bytes, window, 1, err);
    json_writer_free(&out);
    return ok;
}

// Runs the generation of a window; its text is printed as it comes unless it is to be JSON. False with err, or when interrupted.
static bool listen(struct transcribe *t, bool *cut, struct carat_error *err)
{
    for (;;) {
        struct carat_event event;
        enum carat_status status = carat_chat_next(t->session, &event, err);
        if (status == CARAT_FAILED)
            return false;
        if (interrupted)
            carat_stop(t->session);
        if (status == CARAT_PENDING)
            carat_session_wait(t->session, 100);
        if (status != CARAT_EVENT)
            continue;
        if (event.kind == CARAT_EVENT_ENCODING)
            show_progress(NULL, "listening", (uint64_t)event.n_done, (uint64_t)event.n_total);
        if (event.kind == CARAT_EVENT_CONTENT) {
            hide_progress();
            json_write_raw(&t->text, event.text, event.n_text);
            if (!t->json) {
                fwrite(event.text, 1, event.n_text, stdout);
                fflush(stdout);
            }
        }
        if (event.kind == CARAT_EVENT_FINISH) {
            hide_progress();
            *cut = event.finish == CARAT_FINISH_LENGTH;
            return event.finish != CARAT_FINISH_CANCELLED || fail(err, CARAT_CANCELLED, "interrupted");
        }
    }
}

static void print_time(int64_t sample)
{
    int64_t tenths = sample * 10 / SOUND_RATE;
    printf("%02d:%02d.%d", (int)(tenths / 600), (int)(tenths / 10 % 60), (int)(tenths % 10));
}

static void print_json(const struct transcribe *t, int64_t start, int64_t end)
{
    struct json_writer out = {0};
    json_write_literal(&out, "{\"start\":");
    json_write_number(&out, (double)start / SOUND_RATE);
    json_write_literal(&out, ",\"end\":");
    json_write_number(&out, (double)end / SOUND_RATE);
    json_write_literal(&out, ",\"text\":");
    json_write_string(&out, t->text.bytes != NULL ? t->text.bytes : "", t->text.n_bytes);
    json_write_literal(&out, "}");
    puts(out.bytes);
    fflush(stdout);
    json_writer_free(&out);
}

static bool transcribe_window(struct transcribe *t, int64_t start, int64_t end, struct carat_error *err)
{
    struct carat_media window = {.kind = CARAT_AUDIO, .samples = t->media.samples + start, .n_samples = end - start};
    bool cut = false;
    if (!t->json && !t->no_times) {
        putchar('[');
        print_time(start);
        fputs(" - ", stdout);
        print_time(end);
        fputs("] ", stdout);
        fflush(stdout);
    }
    t->text.n_bytes = 0;
    if (!begin_window(t, &window, err) || !listen(t, &cut, err))
        return false;
    if (t->json)
        print_json(t, start, end);
    else
        putchar('\n');
    if (cut)
        fputs("carat: the text of this window was cut: raise --max-tokens or --context, or shorten --window\n", stderr);
    return true;
}

// Samples that the first token needs. With --compat as many as the other front end wants.
static int64_t least_samples(const struct transcribe *t)
{
    enum carat_compat compat = t->model_options.compat;
    return mel_least_samples(compat == CARAT_COMPAT_OLLAMA      ? MEL_RULE_OLLAMA
                             : compat == CARAT_COMPAT_LLAMA_CPP ? MEL_RULE_LLAMA_CPP
                                                                : MEL_RULE_REFERENCE);
}

static bool run(struct transcribe *t, struct carat_error *err)
{
    if (!media_load(t->file_name, false, 0, &t->media, err) ||
        !carat_session_new(t->model, &t->session_options, &t->session, err))
        return false;
    int64_t least = least_samples(t);
    if (t->media.n_samples < least)
        return fail(err, CARAT_UNSUPPORTED, "'%s' is too short: %.4f s are needed", t->file_name, (double)least / SOUND_RATE);
    for (int64_t start = 0; start < t->media.n_samples;) {
        int64_t end = window_end(t, start);
        // A rest that is too short for a token is silence as far as the model can tell.
        if (end - start >= least && !transcribe_window(t, start, end, err))
            return false;
        start = end;
    }
    return true;
}

int command_transcribe(int argc, char **argv)
{
    struct transcribe t = {.window_s = 30, .max_tokens = 1024};
    struct carat_error err = {0};
    if (!parse(&t, argc, argv))
        return 0;
    t.model = open_model(t.model_name, &t.model_options);
    catch_interrupts(true);
    bool ok = t.model != NULL;
    if (ok && !run(&t, &err)) {
        fprintf(stderr, "\ncarat: %s\n", err.message);
        ok = false;
    }
    carat_session_free(t.session);
    carat_model_free(t.model);
    media_unload(&t.media);
    json_writer_free(&t.text);
    return ok ? 0 : interrupted ? 130 : 1;
}
