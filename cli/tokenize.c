// tokenize.c: carat tokenize and carat detokenize.

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "options.h"
#include "stdin_text.h"
#include "text/decoder.h"

static const char tokenize_help[] = "usage: carat tokenize MODEL [--special] [--bos] [--jsonl] < TEXT\n"
                                    "\n"
                                    "Prints the token ids of the text on standard input, separated by spaces.\n"
                                    "MODEL is a GGUF file, a URL, or a model of the local Ollama store such as gemma4:e2b.\n"
                                    "\n"
                                    "  --special   recognise special tokens such as <|turn> in the text\n"
                                    "  --bos       put <bos> in front\n"
                                    "  --jsonl     read lines of {\"text\":\"...\"} and write lines of {\"ids\":[...]}\n";

static const char detokenize_help[] =
    "usage: carat detokenize MODEL [--special] [--jsonl] < IDS\n"
    "\n"
    "Prints the text of the token ids on standard input: numbers separated by spaces, commas or line ends, or\n"
    "one JSON list per line, which gives one text per line.\n"
    "MODEL is a GGUF file, a URL, or a model of the local Ollama store such as gemma4:e2b.\n"
    "\n"
    "  --special   show special tokens such as <|turn> as their text\n"
    "  --jsonl     read lines of {\"ids\":[...]} and write lines of {\"text\":\"...\"}\n";

struct job {
    const struct tokenizer *tok;
    bool special;
    bool bos;
    bool jsonl;
};

// Reads the options. Returns -1 to go on, else the exit code.
static int read_options(int argc, char **argv, const char *help, bool may_bos, struct job *job, const char **model)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (option == NULL && *model != NULL)
            usage_error(argv[0], "one MODEL is enough, '%s' is too much", positional);
        else if (option == NULL)
            *model = positional;
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)
            return fputs(help, stdout) >= 0 ? 0 : 1;
        else if (strcmp(option, "--special") == 0)
            job->special = true;
        else if (strcmp(option, "--jsonl") == 0)
            job->jsonl = true;
        else if (may_bos && strcmp(option, "--bos") == 0)
            job->bos = true;
        else
            usage_error(argv[0], "there is no option '%s'", option);
    }
    if (*model == NULL)
        usage_error(argv[0], "MODEL is missing");
    return -1;
}

// Opens the model, runs `work` on standard input and reports what went wrong.
static int run_job(
    const char *command, const char *model, struct job *job, bool (*work)(struct job *, struct text_view, struct carat_error *))
{
    struct carat_error err = {0};
    struct text_buffer input = {0};
    struct tokenizer *tok = open_tokenizer(model, &err);
    job->tok = tok;
    bool ok = tok != NULL && read_stdin(&input, &err) && work(job, text_whole(&input), &err);
    if (ok && (fflush(stdout) != 0 || ferror(stdout)))
        ok = fail(&err, CARAT_IO, "standard output could not be written");
    text_free(&input);
    tokenizer_free(tok);
    return ok ? 0 : report_failure(command, &err);
}

// --- tokenize ---

static bool print_ids(const struct job *job, struct text_view text, const char *before, const char *between, const char *after,
    struct carat_error *err)
{
    struct token_list ids = {0};
    unsigned flags = (job->special ? TOK_PARSE_SPECIAL : 0) | (job->bos ? TOK_ADD_BOS : 0);
    bool ok = tokenizer_encode(job->tok, text.data, text.n_bytes, flags, &ids, err);
    if (ok) {
        fputs(before, stdout);
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%d", i == 0 ? "" : between, (int)ids.ids[i]);
        fputs(after, stdout);
    }
    token_list_free(&ids);
    return ok;
}

static bool tokenize_line(void *context, const struct json_value *value, struct carat_error *err)
{
    const struct json_value *text = json_get(value, "text");
    if (!json_is(text, JSON_STRING))
        return fail(err, CARAT_BAD_ARGUMENT, "expected an object with a string \"text\"");
    return print_ids(context, (struct text_view){text->text, text->n_text}, "{\"ids\":[", ",", "]}\n", err);
}

static bool tokenize(struct job *job, struct text_view input, struct carat_error *err)
{
    return job->jsonl ? each_json_line(input, tokenize_line, job, err) : print_ids(job, input, "", " ", "\n", err);
}

int command_tokenize(int argc, char **argv)
{
    struct job job = {0};
    const char *model = NULL;
    int done = read_options(argc, argv, tokenize_help, true, &job, &model);
    return done >= 0 ? done : run_job(argv[0], model, &job, tokenize);
}

// --- detokenize ---

static bool check_id(const struct job *job, int64_t id, struct carat_error *err)
{
    return (id >= 0 && id < tokenizer_vocab_size(job->tok)) ||
           fail(err, CARAT_BAD_ARGUMENT, "%lld is no token id, the vocabulary has %d tokens", (long long)id,
               (int)tokenizer_vocab_size(job->tok));
}

static bool detokenize_line(void *context, const struct json_value *value, struct carat_error *err)
{
    const struct job *job = context;
    const struct json_value *list = job->jsonl ? json_get(value, "ids") : value;
    if (!json_is(list, JSON_ARRAY))
        return fail(err, CARAT_BAD_ARGUMENT, job->jsonl ? "expected an object with a list \"ids\"" : "expected a list of ids");
    struct decoder decoder;
    struct text_buffer text = {0};
    decoder_init(&decoder, job->tok, job->special);
    bool ok = true;
    for (size_t i = 0; ok && i < list->n_children; i++) {
        int64_t id;
        ok = json_i64(&list->children[i], &id) ? check_id(job, id, err)
                                               : fail(err, CARAT_BAD_ARGUMENT, "element %zu of the list is no token id", i);
        if (ok)
            decoder_feed(&decoder, (int32_t)id, &text);
    }
    decoder_finish(&decoder, &text);
    struct json_writer json = {0};
    if (ok && job->jsonl)
        json_write_string(&json, text_whole(&text).data, text.n_bytes);
    if (ok && (text.failed || json.failed))
        ok = fail(err, CARAT_NO_MEMORY, "not enough memory for the text");
    if (ok && job->jsonl) {
        printf("{\"text\":%s}\n", json.bytes);
    } else if (ok) {
        fwrite(text_whole(&text).data, 1, text.n_bytes, stdout);
        putchar('\n');
    }
    json_writer_free(&json);
    text_free(&text);
    return ok;
}

static bool is_separator(char c)
{
    return c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool detokenize_numbers(const struct job *job, struct text_view input, struct carat_error *err)
{
    struct decoder decoder;
    struct text_buffer text = {0};
    decoder_init(&decoder, job->tok, job->special);
    bool ok = true;
    for (size_t at = 0; ok && at < input.n_bytes;) {
        size_t start = at;
        int64_t id = 0;
        while (at < input.n_bytes && isdigit((unsigned char)input.data[at]) && id < INT32_MAX)
            id = id * 10 + (input.data[at++] - '0');
        if (at < input.n_bytes && !is_separator(input.data[at]))
            ok = fail(err, CARAT_BAD_ARGUMENT, "byte %zu of the input is neither part of a token id nor a separator", at);
        else if (at == start)
            at++;
        else if ((ok = check_id(job, id, err)))
            decoder_feed(&decoder, (int32_t)id, &text);
    }
    decoder_finish(&decoder, &text);
    if (ok && text.failed)
        ok = fail(err, CARAT_NO_MEMORY, "not enough memory for the text");
    if (ok)
        fwrite(text_whole(&text).data, 1, text.n_bytes, stdout);
    text_free(&text);
    return ok;
}

static bool detokenize(struct job *job, struct text_view input, struct carat_error *err)
{
    size_t start = strspn(input.data, " \t\r\n");
    bool lists = start < input.n_bytes && input.data[start] == '[';
    return job->jsonl || lists ? each_json_line(input, detokenize_line, job, err) : detokenize_numbers(job, input, err);
}

int command_detokenize(int argc, char **argv)
{
    struct job job = {0};
    const char *model = NULL;
    int done = read_options(argc, argv, detokenize_help, false, &job, &model);
    return done >= 0 ? done : run_job(argv[0], model, &job, detokenize);
}
