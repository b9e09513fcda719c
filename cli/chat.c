// chat.c: carat chat: a conversation in the terminal.

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef CARAT_HAVE_EDITLINE
#include <editline/readline.h>
#endif

#include "base/json.h"
#include "carat.h"
#include "commands.h"
#include "media.h"
#include "options.h"

static const char help[] = "usage: carat chat MODEL [OPTIONS]\n\n"
                           "A conversation in the terminal. Ctrl-C stops an answer, Ctrl-D ends. /help lists the commands.\n\n"
                           "  --system TEXT         system prompt\n"
                           "  --think               let the model think before it answers\n"
                           "  -n, --max-tokens N    at most N tokens an answer\n"
                           "  -c, --context N       positions in the cache (default 4096)\n"
                           "  --image-tokens N      budget of soft tokens for each image: 70, 140, 280, 560 or 1120\n";

static const char commands_help[] = "/system TEXT   set the system prompt (without text: remove it) and start anew\n"
                                    "/think         turn thinking on or off\n"
                                    "/image FILE    show a picture with the next message\n"
                                    "/audio FILE    let a sound be heard with the next message\n"
                                    "/temp T        set the temperature (0: always the likeliest token)\n"
                                    "/again         answer the last message once more\n"
                                    "/clear         start anew\n"
                                    "/stats         show speed and context use after each answer, or stop that\n"
                                    "/exit          leave (or Ctrl-D)\n"
                                    "A line that ends with \\ goes on in the next line.\n";

enum { MAX_MEDIA = 64 };

struct turn {
    struct json_writer user;  // the user's content as a JSON list of parts
    struct json_writer reply; // the answer's text
};

struct talk {
    struct carat_session *session;
    struct carat_sampling sampling;
    int32_t max_tokens;
    int32_t image_tokens;
    char *system;
    bool think, stats;
    struct turn *turns; // [n_turns]; the last one's reply may be missing
    int n_turns;
    struct carat_media media[MAX_MEDIA];
    int n_media;
    struct json_writer parts; // media for the next message, as JSON parts each followed by a comma
};

// Around what is not the answer; empty when stdout is no terminal.
static const char *dim = "", *undim = "";

// --- the conversation ----------------------------------------------------------------------------------------------------------

static void turn_free(struct turn *turn)
{
    json_writer_free(&turn->user);
    json_writer_free(&turn->reply);
}

static void clear(struct talk *talk)
{
    for (int i = 0; i < talk->n_turns; i++)
        turn_free(&talk->turns[i]);
    talk->n_turns = 0;
    for (int i = 0; i < talk->n_media; i++)
        media_unload(&talk->media[i]);
    talk->n_media = 0;
    json_writer_free(&talk->parts);
    talk->parts = (struct json_writer){0};
}

static bool add_turn(struct talk *talk, const char *text)
{
    struct turn *turns = realloc(talk->turns, (size_t)(talk->n_turns + 1) * sizeof *turns);
    if (turns == NULL)
        return false;
    talk->turns = turns;
    struct turn *turn = &turns[talk->n_turns++];
    *turn = (struct turn){0};
    json_write_literal(&turn->user, "[");
    if (talk->parts.n_bytes > 0)
        json_write_raw(&turn->user, talk->parts.bytes, talk->parts.n_bytes);
    json_write_literal(&turn->user, "{\"type\":\"text\",\"text\":");
    json_write_string(&turn->user, text, strlen(text));
    json_write_literal(&turn->user, "}]");
    json_writer_free(&talk->parts);
    talk->parts = (struct json_writer){0};
    return !turn->user.failed;
}

static void write_request(const struct talk *talk, struct json_writer *out)
{
    const struct carat_sampling *s = &talk->sampling;
    json_write_format(out,
        "{\"temperature\":%g,\"top_k\":%d,\"top_p\":%g,\"min_p\":%g,\"repetition_penalty\":%g,\"presence_penalty\":%g,"
        "\"frequency_penalty\":%g,\"penalty_window\":%d,\"seed\":%lld,\"reasoning\":%s,",
        (double)s->temperature, s->top_k, (double)s->top_p, (double)s->min_p, (double)s->repetition_penalty,
        (double)s->presence_penalty, (double)s->frequency_penalty, s->penalty_window, (long long)s->seed,
        talk->think ? "true" : "false");
    if (talk->max_tokens > 0)
        json_write_format(out, "\"max_tokens\":%d,", talk->max_tokens);
    json_write_literal(out, "\"messages\":[");
    if (talk->system != NULL) {
        json_write_literal(out, "{\"role\":\"system\",\"content\":");
        json_write_string(out, talk->system, strlen(talk->system));
        json_write_literal(out, "},");
    }
    for (int i = 0; i < talk->n_turns; i++) {
        const struct turn *turn = &talk->turns[i];
        json_write_format(out, "%s{\"role\":\"user\",\"content\":%s}", i > 0 ? "," : "", turn->user.bytes);
        if (i + 1 < talk->n_turns) {
            json_write_literal(out, ",{\"role\":\"assistant\",\"content\":");
            json_write_string(out, turn->reply.bytes != NULL ? turn->reply.bytes : "", turn->reply.n_bytes);
            json_write_literal(out, "}");
        }
    }
    json_write_literal(out, "]}");
}

static void show_event(struct talk *talk, const struct carat_event *event)
{
    if (event->kind == CARAT_EVENT_ENCODING)
        return;
    if (event->kind == CARAT_EVENT_PROGRESS) {
        show_progress(NULL, "reading", (uint64_t)event->n_done, (uint64_t)event->n_total);
        return;
    }
    hide_progress();
    if (event->kind == CARAT_EVENT_REASONING) {
        printf("%s%.*s%s", dim, (int)event->n_text, event->text, undim);
    } else if (event->kind == CARAT_EVENT_CONTENT) {
        fwrite(event->text, 1, event->n_text, stdout);
        json_write_raw(&talk->turns[talk->n_turns - 1].reply, event->text, event->n_text);
    } else if (event->kind == CARAT_EVENT_TOOL_CALL) {
        printf("[%s %.*s]", event->tool_name, (int)event->n_text, event->text);
    }
    fflush(stdout);
}

static void show_finish(const struct talk *talk, const struct carat_event *event)
{
    const struct carat_usage *usage = &event->usage;
    putchar('\n');
    if (event->finish == CARAT_FINISH_CANCELLED)
        printf("%s[stopped]%s\n", dim, undim);
    if (event->finish == CARAT_FINISH_LENGTH)
        printf("%s[cut: the limit of tokens or the context is reached; /clear starts anew]%s\n", dim, undim);
    if (talk->stats)
        printf("%s[%d + %d tokens, %d of the prompt were in the cache; %.1f tokens/s; context %d of %d]%s\n", dim,
            usage->n_prompt, usage->n_generated, usage->n_prompt_cached,
            usage->generate_ms > 0 ? (usage->n_generated - 1) * 1e3 / usage->generate_ms : 0,
            carat_session_position(talk->session), carat_session_context(talk->session), undim);
    putchar('\n');
}

static bool answer(struct talk *talk, struct carat_error *err)
{
    struct json_writer request = {0};
    write_request(talk, &request);
    bool ok = !request.failed || fail(err, CARAT_NO_MEMORY, "no memory for the conversation");
    ok = ok && carat_chat_begin(talk->session, request.bytes, talk->media, talk->n_media, err);
    json_writer_free(&request);
    forget_interrupts();
    while (ok) {
        struct carat_event event;
        enum carat_status status = carat_chat_next(talk->session, &event, err);
        if (interrupted || ferror(stdout))
            carat_stop(talk->session);
        if (status == CARAT_PENDING)
            carat_session_wait(talk->session, 100);
        if (status == CARAT_EVENT && event.kind == CARAT_EVENT_FINISH) {
            show_finish(talk, &event);
            return true;
        }
        if (status == CARAT_EVENT)
            show_event(talk, &event);
        ok = status != CARAT_FAILED;
    }
    hide_progress();
    return false;
}

// --- commands ------------------------------------------------------------------------------------------------------------------

static void attach(struct talk *talk, const char *path, bool is_image)
{
    struct carat_error err;
    if (*path == 0) {
        puts("Which file?");
    } else if (talk->n_media == MAX_MEDIA) {
        printf("A conversation can hold %d images and sounds; /clear starts anew.\n", MAX_MEDIA);
    } else if (!media_load(path, is_image, talk->image_tokens, &talk->media[talk->n_media], &err)) {
        printf("%s\n", err.message);
    } else {
        json_write_format(&talk->parts, "{\"type\":\"%s\",\"media\":%d},", is_image ? "image" : "audio", talk->n_media++);
        puts("Attached to your next message.");
    }
}

static void set_system(struct talk *talk, const char *text)
{
    free(talk->system);
    talk->system = *text != 0 ? strdup(text) : NULL;
    clear(talk);
    puts(talk->system != NULL ? "System prompt set." : "System prompt removed.");
}

static void set_temperature(struct talk *talk, const char *text)
{
    char *end;
    float value = strtof(text, &end);
    if (*text == 0 || *end != 0 || !(value >= 0 && value <= 100))
        puts("The temperature must be a number from 0 to 100.");
    else
        talk->sampling.temperature = value;
}

static void answer_or_complain(struct talk *talk)
{
    struct carat_error err;
    talk->sampling.seed++;
    if (!answer(talk, &err)) {
        printf("%s%s\n\n", err.message, err.code == CARAT_CONTEXT_FULL ? " (/clear starts anew)" : "");
        turn_free(&talk->turns[--talk->n_turns]);
    }
}

static void again(struct talk *talk)
{
    if (talk->n_turns == 0) {
        puts("There is no message to answer yet.");
        return;
    }
    struct turn *turn = &talk->turns[talk->n_turns - 1];
    json_writer_free(&turn->reply);
    turn->reply = (struct json_writer){0};
    answer_or_complain(talk);
}

// False: leave.
static bool obey(struct talk *talk, char *line)
{
    char *argument = line + strcspn(line, " \t");
    if (*argument != 0)
        *argument++ = 0;
    argument += strspn(argument, " \t");
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0 || strcmp(line, "/bye") == 0)
        return false;
    if (strcmp(line, "/system") == 0)
        set_system(talk, argument);
    else if (strcmp(line, "/think") == 0)
        puts((talk->think = !talk->think) ? "Thinking is on." : "Thinking is off.");
    else if (strcmp(line, "/stats") == 0)
        puts((talk->stats = !talk->stats) ? "Statistics are on." : "Statistics are off.");
    else if (strcmp(line, "/image") == 0 || strcmp(line, "/audio") == 0)
        attach(talk, argument, line[1] == 'i');
    else if (strcmp(line, "/temp") == 0)
        set_temperature(talk, argument);
    else if (strcmp(line, "/again") == 0)
        again(talk);
    else if (strcmp(line, "/clear") == 0)
        clear(talk);
    else if (strcmp(line, "/help") == 0 || strcmp(line, "/?") == 0)
        fputs(commands_help, stdout);
    else
        printf("There is no command %s; /help lists them.\n", line);
    return true;
}

// --- reading lines -------------------------------------------------------------------------------------------------------------

// Line editing drops what the locale cannot express; everything here is UTF-8, whatever the environment says.
static void take_utf8(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 && setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        setlocale(LC_CTYPE, "en_US.UTF-8");
}

#ifdef CARAT_HAVE_EDITLINE
// Reads a character for the editor: a code point, or EOF after Ctrl-C. (The editor's own way to read can miss a Ctrl-C that comes
// just before the read.) A byte that is not UTF-8 is taken as a character of its own.
static int read_character(FILE *input)
{
    static const unsigned char continuations[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 3}; // by the first four bits
    unsigned char byte;
    if (!input_is_ready(fileno(input)) || read(fileno(input), &byte, 1) != 1)
        return EOF;
    int n = continuations[byte >> 4];
    int character = n > 0 ? byte & (0x3f >> n) : byte;
    for (int i = 0; i < n; i++) {
        if (!input_is_ready(fileno(input)) || read(fileno(input), &byte, 1) != 1)
            return EOF;
        character = character << 6 | (byte & 0x3f);
    }
    return character;
}
#endif

// One line without its newline, or NULL at the end of the input. Freed by the caller.
static char *read_line(const char *prompt)
{
#ifdef CARAT_HAVE_EDITLINE
    if (isatty(STDIN_FILENO)) {
        char *line = readline(prompt);
        if (line != NULL && *line != 0)
            add_history(line);
        return line;
    }
#endif
    if (isatty(STDIN_FILENO)) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n')
        line[n - 1] = 0;
    return line;
}

// A message, which may span several lines that end with a backslash. NULL at the end of the input and after Ctrl-C.
static char *read_message(void)
{
    struct json_writer message = {0};
    char *line = read_line("> ");
    if (line == NULL)
        return NULL;
    for (;;) {
        size_t n = strlen(line);
        bool goes_on = n > 0 && line[n - 1] == '\\';
        json_write_raw(&message, line, goes_on ? n - 1 : n);
        free(line);
        if (!goes_on)
            break;
        json_write_literal(&message, "\n");
        line = read_line(". ");
        if (line == NULL && interrupted) {
            json_writer_free(&message);
            return NULL;
        }
        if (line == NULL)
            break;
    }
    json_write_raw(&message, "", 0);
    return message.bytes;
}

static void converse(struct talk *talk)
{
    for (;;) {
        forget_interrupts();
        char *line = read_message();
        if (line == NULL && interrupted && isatty(STDIN_FILENO)) {
            puts("\n(Ctrl-D or /exit leaves.)"); // the line is given up, not the conversation
            continue;
        }
        if (line == NULL)
            break;
        bool go_on = true;
        if (line[0] == '/')
            go_on = obey(talk, line);
        else if (line[strspn(line, " \t")] != 0 && add_turn(talk, line))
            answer_or_complain(talk);
        free(line);
        if (!go_on || ferror(stdout))
            break;
    }
}

// --- the command ---------------------------------------------------------------------------------------------------------------

static const char *parse(struct talk *talk, struct carat_model_options *model_options,
    struct carat_session_options *session_options, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *model_name = NULL;
    const char *option;
    const char *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && model_name == NULL) {
            model_name = positional;
        } else if (positional != NULL) {
            usage_error("chat", "unexpected argument '%s'", positional);
        } else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nSampling:\n%s\nModel:\n%s%s", help, sampling_options_help, model_options_help, adapter_options_help);
            exit(0);
        } else if (strcmp(option, "--system") == 0) {
            free(talk->system);
            talk->system = strdup(option_text(&arguments, option));
        } else if (strcmp(option, "--think") == 0) {
            talk->think = true;
        } else if (strcmp(option, "-n") == 0 || strcmp(option, "--max-tokens") == 0) {
            talk->max_tokens = (int32_t)option_int(&arguments, option, 1, INT32_MAX);
        } else if (strcmp(option, "-c") == 0 || strcmp(option, "--context") == 0) {
            session_options->context_length = (int32_t)option_int(&arguments, option, 1, 1 << 24);
        } else if (strcmp(option, "--image-tokens") == 0) {
            talk->image_tokens = (int32_t)option_int(&arguments, option, 1, 1120);
        } else if (!sampling_option(&arguments, option, &talk->sampling) && !adapter_option(&arguments, option) &&
                   !model_option(&arguments, option, model_options)) {
            usage_error("chat", "there is no option '%s'", option);
        }
    }
    if (model_name == NULL)
        usage_error("chat", "which model?");
    return model_name;
}

int command_chat(int argc, char **argv)
{
    struct talk talk = {0};
    struct carat_model_options model_options = {0};
    struct carat_session_options session_options = {0};
    carat_sampling_default(&talk.sampling);
    talk.sampling.seed = (uint64_t)time(NULL) % 1000000007u;
    const char *name = parse(&talk, &model_options, &session_options, argc, argv);
    struct carat_error err;
    struct carat_model *model = open_model(name, &model_options);
    catch_interrupts(false);
    take_utf8();
#ifdef CARAT_HAVE_EDITLINE
    rl_getc_function = read_character;
#endif
    if (isatty(STDOUT_FILENO)) {
        dim = "\033[2m";
        undim = "\033[0m";
    }
    bool ok = model != NULL;
    if (ok && !carat_session_new(model, &session_options, &talk.session, &err)) {
        fprintf(stderr, "carat: %s\n", err.message);
        ok = false;
    }
    if (ok) {
        struct carat_model_info info;
        carat_model_info(model, &info);
        printf("%s on %s. /help lists the commands.\n\n", info.name, info.device);
        converse(&talk);
    }
    clear(&talk);
    free(talk.turns);
    free(talk.system);
    carat_session_free(talk.session);
    carat_model_free(model);
    return ok ? interrupted ? 130 : 0 : 1;
}
