// run.c: carat run: one prompt, one answer.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "carat.h"
#include "commands.h"
#include "media.h"
#include "options.h"

static const char help[] =
    "usage: carat run MODEL [-p PROMPT] [OPTIONS]\n\n"
    "Answers one prompt. The answer goes to stdout as it comes, everything else to stderr. Without -p the prompt is read from "
    "stdin.\n"
    "MODEL is a GGUF file, a URL, or a name of the local Ollama store such as gemma4:e2b.\n\n"
    "  -p, --prompt TEXT     the prompt; with --image and --audio the parts are put together in the order given\n"
    "  --system TEXT         system prompt\n"
    "  --image FILE, --audio FILE\n"
    "                        show the model a picture, let it hear a sound; may be repeated\n"
    "  --image-tokens N      budget of soft tokens for each image: 70, 140, 280 (default), 560 or 1120\n"
    "  --raw                 no chat template: the model continues the text; markers in it are recognised\n"
    "  --tokens 2,9,4        the prompt as token ids, exactly (implies --raw)\n"
    "  --think               let the model think before it answers; the thought is shown on stderr\n"
    "  -n, --max-tokens N    at most N tokens (default: until the context is full)\n"
    "  --ignore-eos          do not stop at end tokens\n"
    "  --stop TEXT           stop before this text; may be repeated\n"
    "  -c, --context N       positions in the cache (default 4096)\n"
    "  --batch N             rows of a prefill chunk (default 512)\n"
    "  --kv-f32              keys and values in 32 bits\n"
    "  --json                one JSON object at the end instead of the text: text, tokens, finish_reason, timings\n"
    "  --stats               print timings on stderr\n";

enum { MAX_PARTS = 64, MAX_STOPS = 16 };

struct part {
    enum { PART_TEXT, PART_IMAGE, PART_AUDIO } kind;
    const char *value; // text or path
    size_t n_value;
};

struct run {
    const char *model_name;
    struct carat_model_options model_options;
    struct carat_session_options session_options;
    struct carat_generate_options generate;
    struct part parts[MAX_PARTS];
    int n_parts;
    const char *stops[MAX_STOPS];
    int n_stops;
    const char *system;
    const char *token_text;
    int32_t image_tokens;
    bool raw, think, json, stats;

    struct carat_model *model;
    struct carat_session *session;
    struct carat_media media[MAX_PARTS];
    int n_media;
    struct json_writer piped; // the prompt from stdin
    struct json_writer text;
    struct json_writer reasoning;
    struct json_writer calls;
};

static void add_part(struct run *run, int kind, const char *value)
{
    if (run->n_parts == MAX_PARTS)
        usage_error("run", "more than %d parts of a prompt", MAX_PARTS);
    run->parts[run->n_parts++] = (struct part){.kind = kind, .value = value, .n_value = strlen(value)};
}

static bool prompt_option(struct arguments *arguments, const char *option, struct run *run)
{
    if (strcmp(option, "-p") == 0 || strcmp(option, "--prompt") == 0)
        add_part(run, PART_TEXT, option_text(arguments, option));
    else if (strcmp(option, "--image") == 0)
        add_part(run, PART_IMAGE, option_text(arguments, option));
    else if (strcmp(option, "--audio") == 0)
        add_part(run, PART_AUDIO, option_text(arguments, option));
    else if (strcmp(option, "--image-tokens") == 0)
        run->image_tokens = (int32_t)option_int(arguments, option, 1, 1120);
    else if (strcmp(option, "--system") == 0)
        run->system = option_text(arguments, option);
    else if (strcmp(option, "--tokens") == 0)
        run->token_text = option_text(arguments, option);
    else if (strcmp(option, "--raw") == 0)
        run->raw = true;
    else if (strcmp(option, "--think") == 0)
        run->think = true;
    else
        return false;
    return true;
}

static bool generation_option(struct arguments *arguments, const char *option, struct run *run)
{
    if (strcmp(option, "-n") == 0 || strcmp(option, "--max-tokens") == 0)
        run->generate.max_tokens = (int32_t)option_int(arguments, option, 1, INT32_MAX);
    else if (strcmp(option, "--ignore-eos") == 0)
        run->generate.ignore_eos = true;
    else if (strcmp(option, "--stop") == 0 && run->n_stops == MAX_STOPS)
        usage_error("run", "more than %d stop texts", MAX_STOPS);
    else if (strcmp(option, "--stop") == 0)
        run->stops[run->n_stops++] = option_text(arguments, option);
    else if (strcmp(option, "-c") == 0 || strcmp(option, "--context") == 0)
        run->session_options.context_length = (int32_t)option_int(arguments, option, 1, 1 << 24);
    else if (strcmp(option, "--batch") == 0)
        run->session_options.batch = (int32_t)option_int(arguments, option, 1, 1 << 16);
    else if (strcmp(option, "--kv-f32") == 0)
        run->session_options.kv_f32 = true;
    else if (strcmp(option, "--json") == 0)
        run->json = true;
    else if (strcmp(option, "--stats") == 0)
        run->stats = true;
    else
        return false;
    return true;
}

static void print_help(void)
{
    printf("%s\nSampling:\n%s\nModel:\n%s%s", help, sampling_options_help, model_options_help, adapter_options_help);
}

static bool parse(struct run *run, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option;
    const char *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL) {
            if (run->model_name != NULL)
                usage_error("run", "unexpected argument '%s' (is -p missing?)", positional);
            run->model_name = positional;
        } else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            print_help();
            return false;
        } else if (!prompt_option(&arguments, option, run) && !generation_option(&arguments, option, run) &&
                   !sampling_option(&arguments, option, &run->generate.sampling) && !adapter_option(&arguments, option) &&
                   !model_option(&arguments, option, &run->model_options)) {
            usage_error("run", "there is no option '%s'", option);
        }
    }
    if (run->model_name == NULL)
        usage_error("run", "which model?");
    const char *of_chats = run->n_stops > 0 ? "--stop" : run->system != NULL ? "--system" : run->think ? "--think" : NULL;
    if (of_chats != NULL && (run->raw || run->token_text != NULL))
        usage_error("run", "%s works with the chat template only, not with --raw or --tokens", of_chats);
    for (int i = 0; i < run->n_parts; i++)
        if (run->parts[i].kind == PART_TEXT && run->token_text != NULL)
            usage_error("run", "--tokens and -p both give the prompt: leave one of them out");
    return true;
}

static bool read_stdin(struct json_writer *input, struct carat_error *err)
{
    char chunk[65536];
    size_t n;
    while ((n = fread(chunk, 1, sizeof chunk, stdin)) > 0)
        json_write_raw(input, chunk, n);
    if (interrupted)
        return fail(err, CARAT_CANCELLED, "interrupted");
    if (ferror(stdin))
        return fail(err, CARAT_IO, "standard input could not be read: give the prompt with -p");
    if (input->failed)
        return fail(err, CARAT_NO_MEMORY, "no memory for the prompt on standard input");
    while (input->n_bytes > 0 && input->bytes[input->n_bytes - 1] == '\n')
        input->n_bytes--;
    return input->n_bytes > 0 || fail(err, CARAT_BAD_ARGUMENT, "there is no prompt: give -p TEXT or a text on stdin");
}

static bool load_parts(struct run *run, struct carat_error *err)
{
    bool has_text = run->token_text != NULL;
    for (int i = 0; i < run->n_parts; i++) {
        struct part *part = &run->parts[i];
        has_text |= part->kind == PART_TEXT;
        if (part->kind == PART_TEXT)
            continue;
        if (!media_load(part->value, part->kind == PART_IMAGE, run->image_tokens, &run->media[run->n_media], err))
            return false;
        run->n_media++;
    }
    if (has_text || (run->n_parts > 0 && isatty(STDIN_FILENO)))
        return true;
    if (isatty(STDIN_FILENO))
        fputs("Type the prompt, then Ctrl-D.\n", stderr);
    if (!read_stdin(&run->piped, err))
        return false;
    add_part(run, PART_TEXT, "");
    run->parts[run->n_parts - 1].value = run->piped.bytes;
    run->parts[run->n_parts - 1].n_value = run->piped.n_bytes; // may hold zero bytes
    return true;
}

// The prompt as ids, for --raw and --tokens. Media are not possible there: the caller checked.
static bool begin_raw(struct run *run, struct carat_error *err)
{
    int32_t *ids;
    int32_t n_ids;
    bool ok;
    if (run->token_text != NULL) {
        ok = parse_ids(run->token_text, &ids, &n_ids, err);
    } else {
        struct json_writer text = {0};
        for (int i = 0; i < run->n_parts; i++) {
            const struct part *part = &run->parts[i];
            if (part->kind == PART_TEXT)
                json_write_raw(&text, part->value, part->n_value);
            else
                json_write_literal(&text, part->kind == PART_IMAGE ? "<|image|>" : "<|audio|>");
        }
        ok = !text.failed || fail(err, CARAT_NO_MEMORY, "no memory for the prompt");
        ok = ok && carat_tokenize(run->model, text.bytes, text.n_bytes, true, true, &ids, &n_ids, err);
        json_writer_free(&text);
    }
    if (!ok)
        return false;
    ok = carat_generate_begin(run->session, ids, n_ids, run->media, run->n_media, &run->generate, err);
    free(ids);
    return ok;
}

static void write_member(struct json_writer *out, const char *name, double value)
{
    json_write_format(out, ",\"%s\":", name);
    json_write_number(out, value);
}

static void write_message(struct json_writer *out, const struct run *run)
{
    json_write_literal(out, "{\"messages\":[");
    if (run->system != NULL) {
        json_write_literal(out, "{\"role\":\"system\",\"content\":");
        json_write_string(out, run->system, strlen(run->system));
        json_write_literal(out, "},");
    }
    json_write_literal(out, "{\"role\":\"user\",\"content\":[");
    int medium = 0;
    for (int i = 0; i < run->n_parts; i++) {
        const struct part *part = &run->parts[i];
        json_write_literal(out, i > 0 ? "," : "");
        if (part->kind == PART_TEXT) {
            json_write_literal(out, "{\"type\":\"text\",\"text\":");
            json_write_string(out, part->value, part->n_value);
            json_write_literal(out, "}");
        } else {
            json_write_format(out, "{\"type\":\"%s\",\"media\":%d}", part->kind == PART_IMAGE ? "image" : "audio", medium++);
        }
    }
    json_write_literal(out, "]}]");
}

static bool begin_chat(struct run *run, struct carat_error *err)
{
    struct json_writer out = {0};
    const struct carat_sampling *s = &run->generate.sampling;
    write_message(&out, run);
    write_member(&out, "temperature", s->temperature);
    write_member(&out, "top_k", s->top_k);
    write_member(&out, "top_p", s->top_p);
    write_member(&out, "min_p", s->min_p);
    write_member(&out, "repetition_penalty", s->repetition_penalty);
    write_member(&out, "presence_penalty", s->presence_penalty);
    write_member(&out, "frequency_penalty", s->frequency_penalty);
    write_member(&out, "penalty_window", s->penalty_window);
    json_write_format(&out, ",\"seed\":%lld", (long long)s->seed);
    if (run->generate.max_tokens > 0)
        write_member(&out, "max_tokens", run->generate.max_tokens);
    json_write_format(&out, ",\"reasoning\":%s,\"ignore_eos\":%s,\"logit_bias\":{", run->think ? "true" : "false",
        run->generate.ignore_eos ? "true" : "false");
    for (int32_t i = 0; i < s->n_biases; i++)
        json_write_format(&out, "%s\"%d\":%.9g", i > 0 ? "," : "", s->biases[i].id, (double)s->biases[i].bias);
    json_write_literal(&out, "},\"stop\":[");
    for (int i = 0; i < run->n_stops; i++) {
        json_write_literal(&out, i > 0 ? "," : "");
        json_write_string(&out, run->stops[i], strlen(run->stops[i]));
    }
    json_write_literal(&out, "]}");
    bool ok = !out.failed || fail(err, CARAT_NO_MEMORY, "no memory for the prompt");
    ok = ok && carat_chat_begin(run->session, out.bytes, run->media, run->n_media, err);
    json_writer_free(&out);
    return ok;
}

static void show_event(struct run *run, const struct carat_event *event)
{
    if (event->kind == CARAT_EVENT_ENCODING)
        return;
    if (event->kind == CARAT_EVENT_PROGRESS) {
        show_progress(NULL, "reading the prompt", (uint64_t)event->n_done, (uint64_t)event->n_total);
        return;
    }
    hide_progress();
    if (event->kind == CARAT_EVENT_REASONING) {
        json_write_raw(&run->reasoning, event->text, event->n_text);
        if (!run->json)
            fprintf(stderr, isatty(STDERR_FILENO) ? "\033[2m%.*s\033[0m" : "%.*s", (int)event->n_text, event->text);
    } else if (event->kind == CARAT_EVENT_TOOL_CALL) {
        json_write_format(&run->calls, "%s{\"name\":", run->calls.n_bytes > 0 ? "," : "");
        json_write_string(&run->calls, event->tool_name, strlen(event->tool_name));
        json_write_literal(&run->calls, ",\"arguments\":");
        json_write_raw(&run->calls, event->text, event->n_text);
        json_write_literal(&run->calls, "}");
    } else if (event->kind != CARAT_EVENT_FINISH) {
        json_write_raw(&run->text, event->text, event->n_text);
        if (!run->json) {
            fwrite(event->text, 1, event->n_text, stdout);
            fflush(stdout);
        }
    }
}

static const char *finish_name(enum carat_finish finish)
{
    static const char *const names[] = {"none", "stop", "length", "tool_calls", "cancelled"};
    return names[finish];
}

static double rate(int32_t n, double ms)
{
    return ms > 0 ? n * 1e3 / ms : 0;
}

static bool print_json(const struct run *run, const struct carat_event *finish, struct carat_error *err)
{
    const struct carat_usage *usage = &finish->usage;
    struct json_writer out = {0};
    json_write_literal(&out, "{\"text\":");
    json_write_string(&out, run->text.bytes != NULL ? run->text.bytes : "", run->text.n_bytes);
    if (run->reasoning.n_bytes > 0) {
        json_write_literal(&out, ",\"reasoning\":");
        json_write_string(&out, run->reasoning.bytes, run->reasoning.n_bytes);
    }
    if (run->calls.n_bytes > 0)
        json_write_format(&out, ",\"tool_calls\":[%s]", run->calls.bytes);
    json_write_literal(&out, ",\"tokens\":[");
    for (int32_t i = 0; i < finish->n_ids; i++)
        json_write_format(&out, "%s%d", i > 0 ? "," : "", finish->ids[i]);
    json_write_format(&out, "],\"finish_reason\":\"%s\"", finish_name(finish->finish));
    json_write_format(&out, ",\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}", usage->n_prompt, usage->n_generated);
    json_write_literal(&out, ",\"timings\":{\"prompt_ms\":");
    json_write_number(&out, usage->prompt_ms);
    write_member(&out, "prompt_per_second", rate(usage->n_prompt - usage->n_prompt_cached, usage->prompt_ms));
    write_member(&out, "generate_ms", usage->generate_ms);
    write_member(&out, "generate_per_second", rate(usage->n_generated - 1, usage->generate_ms));
    write_member(&out, "encode_ms", usage->encode_ms);
    json_write_literal(&out, "}}\n");
    bool ok = !out.failed && !run->text.failed && !run->reasoning.failed && !run->calls.failed;
    if (ok)
        fwrite(out.bytes, 1, out.n_bytes, stdout);
    json_writer_free(&out);
    return ok || fail(err, CARAT_NO_MEMORY, "no memory for the answer as JSON");
}

static bool print_end(const struct run *run, const struct carat_event *finish, struct carat_error *err)
{
    const struct carat_usage *usage = &finish->usage;
    if (run->json)
        return print_json(run, finish, err);
    if (run->calls.n_bytes > 0)
        printf("%s", run->calls.bytes);
    if (run->text.n_bytes > 0 || run->calls.n_bytes > 0)
        putchar('\n');
    if (finish->finish == CARAT_FINISH_LENGTH)
        fputs("[the answer was cut: the token limit or the context is reached]\n", stderr);
    if (run->stats)
        fprintf(stderr, "[prompt %d tokens, %.1f/s; answer %d tokens, %.1f/s%s]\n", usage->n_prompt,
            rate(usage->n_prompt - usage->n_prompt_cached, usage->prompt_ms), usage->n_generated,
            rate(usage->n_generated - 1, usage->generate_ms), finish->finish == CARAT_FINISH_CANCELLED ? ", interrupted" : "");
    return true;
}

static bool generate(struct run *run, struct carat_error *err)
{
    bool raw = run->raw || run->token_text != NULL;
    if (!(raw ? begin_raw(run, err) : begin_chat(run, err)))
        return false;
    for (;;) {
        struct carat_event event;
        enum carat_status status =
            raw ? carat_generate_next(run->session, &event, err) : carat_chat_next(run->session, &event, err);
        if (status == CARAT_FAILED) {
            hide_progress();
            return false;
        }
        if (interrupted || ferror(stdout))
            carat_stop(run->session);
        if (status == CARAT_PENDING)
            carat_session_wait(run->session, 100);
        if (status != CARAT_EVENT)
            continue;
        show_event(run, &event);
        if (event.kind == CARAT_EVENT_FINISH)
            return print_end(run, &event, err);
    }
}

static bool run_prompt(struct run *run, struct carat_error *err)
{
    return load_parts(run, err) && carat_session_new(run->model, &run->session_options, &run->session, err) && generate(run, err);
}

int command_run(int argc, char **argv)
{
    struct run run = {0};
    carat_sampling_default(&run.generate.sampling);
    run.generate.n_logprobs = -1;
    run.generate.sampling.seed = (uint64_t)time(NULL) * 2654435761u % 1000000007u;
    if (!parse(&run, argc, argv))
        return 0;
    struct carat_error err = {0};
    run.model = open_model(run.model_name, &run.model_options);
    catch_interrupts(true);
    bool ok = run.model != NULL;
    if (ok && !run_prompt(&run, &err)) {
        ok = interrupted;
        if (!ok)
            fprintf(stderr, "carat: %s\n", err.message);
    }
    carat_session_free(run.session);
    carat_model_free(run.model);
    for (int i = 0; i < run.n_media; i++)
        media_unload(&run.media[i]);
    json_writer_free(&run.text);
    json_writer_free(&run.reasoning);
    json_writer_free(&run.calls);
    json_writer_free(&run.piped);
    return ok ? interrupted ? 130 : 0 : 1;
}
