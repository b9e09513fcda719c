// eval.c: carat eval: accuracy per skill on held-out items (tools/demo-model/README.md describes their format).

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "carat.h"
#include "commands.h"
#include "eval_score.h"
#include "media.h"
#include "options.h"

static const char help[] = "usage: carat eval MODEL --suite FOLDER [OPTIONS]\n\n"
                           "Answers held-out items greedily and prints the share of right answers for each skill.\n\n"
                           "  --suite PATH          a folder of .jsonl files, or one such file\n"
                           "  --skill NAME          only this skill; may be repeated\n"
                           "  --limit N             at most N items of each file\n"
                           "  --expected FILE       compare the tokens with those of another implementation (lines of id, ids)\n"
                           "  --failures            show each wrong answer\n"
                           "  -o FILE               write a line of JSON for each item: id, ids, reply, pass\n"
                           "  --max-tokens N        at most N tokens an answer (default 120)\n";

enum { MAX_SKILLS = 64, MAX_ITEM_MEDIA = 16, MAX_FILES = 256 };

struct skill {
    char name[48];
    int n_items, n_passed;
    int n_compared, n_equal; // with --expected
};

struct eval {
    const char *model_name;
    struct carat_model_options model_options;
    const char *suite;
    const char *only[MAX_SKILLS];
    int n_only;
    long limit;
    long max_tokens;
    bool show_failures;
    const char *expected_path;
    struct json_document **expected; // [n_expected], one a line
    size_t n_expected;
    FILE *output;
    struct carat_model *model;
    struct carat_session *session;
    struct skill skills[MAX_SKILLS];
    int n_skills;
};

// --- one item ------------------------------------------------------------------------------------------------------------------

struct item {
    const struct json_value *json;
    const char *folder; // of the suite: media paths are relative to it
    struct carat_media media[MAX_ITEM_MEDIA];
    int n_media;
    struct eval_reply reply;
    int32_t *ids;
    int32_t n_ids;
};

// Copies a message, loading media and replacing their paths by indices.
static bool write_value(
    struct json_writer *out, const struct json_value *value, struct item *item, int32_t budget, struct carat_error *err)
{
    const char *path = NULL;
    bool is_image =
        value->type == JSON_OBJECT && json_text_is(json_get(value, "type"), "image") && json_get_text(value, "image", &path);
    bool is_audio =
        value->type == JSON_OBJECT && json_text_is(json_get(value, "type"), "audio") && json_get_text(value, "audio", &path);
    if (is_image || is_audio) {
        char full[1024];
        if (item->n_media == MAX_ITEM_MEDIA)
            return fail(err, CARAT_BAD_FILE, "an item has more than %d images and sounds", MAX_ITEM_MEDIA);
        snprintf(full, sizeof full, "%s/%s", item->folder, path);
        if (!media_load(full, is_image, budget, &item->media[item->n_media], err))
            return false;
        json_write_format(out, "{\"type\":\"%s\",\"media\":%d}", is_image ? "image" : "audio", item->n_media++);
        return true;
    }
    if (value->type != JSON_OBJECT && value->type != JSON_ARRAY) {
        json_write_value(out, value);
        return true;
    }
    json_write_literal(out, value->type == JSON_OBJECT ? "{" : "[");
    for (size_t i = 0; i < value->n_children; i++) {
        const struct json_value *child = &value->children[i];
        json_write_literal(out, i > 0 ? "," : "");
        if (child->key != NULL) {
            json_write_string(out, child->key, child->n_key);
            json_write_literal(out, ":");
        }
        if (!write_value(out, child, item, budget, err))
            return false;
    }
    json_write_literal(out, value->type == JSON_OBJECT ? "}" : "]");
    return true;
}

static bool begin_item(struct eval *eval, struct item *item, struct carat_error *err)
{
    struct json_writer request = {0};
    const struct json_value *messages = json_get(item->json, "messages");
    const struct json_value *tools = json_get(item->json, "tools");
    bool think = false;
    int64_t budget = 0;
    json_get_bool(item->json, "enable_thinking", &think);
    json_get_i64(item->json, "max_soft_tokens", &budget);
    json_write_format(
        &request, "{\"temperature\":0,\"max_tokens\":%ld,\"reasoning\":%s,", eval->max_tokens, think ? "true" : "false");
    if (tools != NULL) {
        json_write_literal(&request, "\"tools\":");
        json_write_value(&request, tools);
        json_write_literal(&request, ",");
    }
    json_write_literal(&request, "\"messages\":");
    bool ok = messages != NULL || fail(err, CARAT_BAD_FILE, "an item has no messages");
    ok = ok && messages != NULL && write_value(&request, messages, item, (int32_t)budget, err);
    json_write_literal(&request, "}");
    ok = ok && (!request.failed || fail(err, CARAT_NO_MEMORY, "no memory for an item"));
    // Every item is answered from nothing, as the expected replies were.
    carat_session_truncate(eval->session, 0);
    ok = ok && carat_chat_begin(eval->session, request.bytes, item->media, item->n_media, err);
    json_writer_free(&request);
    return ok;
}

static void take_event(struct item *item, const struct carat_event *event)
{
    if (event->kind == CARAT_EVENT_CONTENT)
        json_write_raw(&item->reply.content, event->text, event->n_text);
    if (event->kind == CARAT_EVENT_REASONING)
        json_write_raw(&item->reply.reasoning, event->text, event->n_text);
    if (event->kind == CARAT_EVENT_TOOL_CALL && item->reply.n_calls++ == 0) {
        json_write_literal(&item->reply.call_name, event->tool_name);
        json_write_raw(&item->reply.call_arguments, event->text, event->n_text);
    }
    if (event->kind == CARAT_EVENT_FINISH) {
        item->n_ids = event->n_ids;
        item->ids = malloc(((size_t)event->n_ids + 1) * sizeof *item->ids);
        if (item->ids != NULL)
            memcpy(item->ids, event->ids, (size_t)event->n_ids * sizeof *item->ids);
    }
}

static bool answer(struct eval *eval, struct item *item, struct carat_error *err)
{
    if (!begin_item(eval, item, err))
        return false;
    for (;;) {
        struct carat_event event;
        enum carat_status status = carat_chat_next(eval->session, &event, err);
        if (status == CARAT_FAILED)
            return false;
        if (status == CARAT_PENDING)
            carat_session_wait(eval->session, 1000);
        if (status != CARAT_EVENT)
            continue;
        take_event(item, &event);
        if (event.kind == CARAT_EVENT_FINISH)
            return item->ids != NULL || fail(err, CARAT_NO_MEMORY, "no memory for a reply");
    }
}

static void item_free(struct item *item)
{
    for (int i = 0; i < item->n_media; i++)
        media_unload(&item->media[i]);
    eval_reply_free(&item->reply);
    free(item->ids);
}

// --- scores --------------------------------------------------------------------------------------------------------------------

static struct skill *skill_of(struct eval *eval, const char *name)
{
    for (int i = 0; i < eval->n_skills; i++) {
        if (strcmp(eval->skills[i].name, name) == 0)
            return &eval->skills[i];
    }
    if (eval->n_skills == MAX_SKILLS)
        return NULL;
    struct skill *skill = &eval->skills[eval->n_skills++];
    snprintf(skill->name, sizeof skill->name, "%s", name);
    return skill;
}

static const struct json_value *expected_ids(const struct eval *eval, const char *id)
{
    for (size_t i = 0; i < eval->n_expected; i++) {
        const struct json_value *line = json_root(eval->expected[i]);
        if (json_text_is(json_get(line, "id"), id))
            return json_get(line, "ids");
    }
    return NULL;
}

static void compare_ids(const struct eval *eval, const char *id, const struct item *item, struct skill *skill)
{
    const struct json_value *ids = expected_ids(eval, id);
    if (ids == NULL)
        return;
    bool equal = (int32_t)ids->n_children == item->n_ids;
    for (int32_t i = 0; equal && i < item->n_ids; i++)
        equal = (int32_t)ids->children[i].number == item->ids[i];
    skill->n_compared++;
    skill->n_equal += equal;
}

static void write_line(const struct eval *eval, const char *id, const struct item *item, bool passed)
{
    struct json_writer out = {0};
    json_write_literal(&out, "{\"id\":");
    json_write_string(&out, id, strlen(id));
    json_write_literal(&out, ",\"ids\":[");
    for (int32_t i = 0; i < item->n_ids; i++)
        json_write_format(&out, "%s%d", i > 0 ? "," : "", item->ids[i]);
    json_write_literal(&out, "],\"reply\":");
    json_write_string(&out, item->reply.content.bytes != NULL ? item->reply.content.bytes : "", item->reply.content.n_bytes);
    json_write_format(&out, ",\"pass\":%s}\n", passed ? "true" : "false");
    fwrite(out.bytes, 1, out.n_bytes, eval->output);
    json_writer_free(&out);
}

static void report(struct eval *eval, const struct item *item, const char *id, struct skill *skill, bool passed)
{
    skill->n_items++;
    skill->n_passed += passed;
    compare_ids(eval, id, item, skill);
    if (eval->output != NULL)
        write_line(eval, id, item, passed);
    if (!passed && eval->show_failures) {
        const struct json_value *expect = json_get(item->json, "expect");
        fprintf(stderr, "%s: wanted %.*s, got \"%s\"", id, (int)expect->n_source, expect->source,
            item->reply.content.bytes != NULL ? item->reply.content.bytes : "");
        if (item->reply.n_calls > 0)
            fprintf(stderr, " and %d calls, the first %s%s", item->reply.n_calls, item->reply.call_name.bytes,
                item->reply.call_arguments.bytes);
        fputc('\n', stderr);
    }
}

static bool wanted(const struct eval *eval, const char *skill)
{
    for (int i = 0; i < eval->n_only; i++) {
        if (strcmp(eval->only[i], skill) == 0)
            return true;
    }
    return eval->n_only == 0;
}

static bool run_item(struct eval *eval, const char *folder, const struct json_value *json, struct carat_error *err)
{
    const char *id;
    const char *skill_name;
    if (!json_get_text(json, "id", &id) || !json_get_text(json, "skill", &skill_name) || json_get(json, "expect") == NULL)
        return fail(err, CARAT_BAD_FILE, "an item lacks \"id\", \"skill\" or \"expect\"");
    if (!wanted(eval, skill_name))
        return true;
    struct skill *skill = skill_of(eval, skill_name);
    if (skill == NULL)
        return fail(err, CARAT_UNSUPPORTED, "a suite may have at most %d skills", MAX_SKILLS);
    struct item item = {.json = json, .folder = folder};
    bool ok = answer(eval, &item, err);
    bool passed = false;
    ok = ok && eval_score(&item.reply, json_get(json, "expect"), &passed, err);
    if (ok)
        report(eval, &item, id, skill, passed);
    else
        fail_in(err, "item '%s'", id);
    item_free(&item);
    return ok;
}

// --- files ---------------------------------------------------------------------------------------------------------------------

typedef bool each_line(struct eval *eval, struct json_document *document, const char *folder, struct carat_error *err);

// Calls `each` for every line, which takes the document over.
static bool read_lines(
    struct eval *eval, const char *path, long limit, each_line *each, const char *folder, struct carat_error *err)
{
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return fail(err, CARAT_NOT_FOUND, "cannot open '%s': %s", path, strerror(errno));
    char *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    bool ok = true;
    for (long i = 1; ok && (limit == 0 || i <= limit) && (n = getline(&line, &capacity, file)) > 0; i++) {
        struct json_document *document = json_parse(line, (size_t)n, err);
        ok = document != NULL ? each(eval, document, folder, err) : fail_in(err, "'%s', line %ld", path, i);
    }
    free(line);
    fclose(file);
    return ok;
}

static bool take_item(struct eval *eval, struct json_document *document, const char *folder, struct carat_error *err)
{
    bool ok = run_item(eval, folder, json_root(document), err);
    json_free(document);
    return ok;
}

static bool take_expected(struct eval *eval, struct json_document *document, const char *folder, struct carat_error *err)
{
    (void)folder;
    struct json_document **grown =
        (struct json_document **)realloc((void *)eval->expected, (eval->n_expected + 1) * sizeof(struct json_document *));
    if (grown == NULL) {
        json_free(document);
        return fail(err, CARAT_NO_MEMORY, "no memory for the expected replies");
    }
    eval->expected = grown;
    grown[eval->n_expected++] = document;
    return true;
}

static int only_items(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return n > 6 && strcmp(entry->d_name + n - 6, ".jsonl") == 0 && strncmp(entry->d_name, "expected-", 9) != 0;
}

static bool run_suite(struct eval *eval, struct carat_error *err)
{
    struct stat status;
    char path[1024];
    if (stat(eval->suite, &status) != 0)
        return fail(err, CARAT_NOT_FOUND, "there is no suite '%s'", eval->suite);
    if (!S_ISDIR(status.st_mode)) {
        snprintf(path, sizeof path, "%s", eval->suite);
        char *slash = strrchr(path, '/');
        if (slash != NULL)
            *slash = 0;
        return read_lines(eval, eval->suite, eval->limit, take_item, slash != NULL ? path : ".", err);
    }
    struct dirent **entries;
    int n = scandir(eval->suite, &entries, only_items, alphasort);
    bool ok = n > 0 || fail(err, CARAT_NOT_FOUND, "'%s' holds no .jsonl files", eval->suite);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", eval->suite, entries[i]->d_name);
        show_progress(NULL, entries[i]->d_name, (uint64_t)i, (uint64_t)n);
        ok = ok && read_lines(eval, path, eval->limit, take_item, eval->suite, err);
        free(entries[i]);
    }
    if (n >= 0)
        free((void *)entries);
    hide_progress();
    return ok;
}

static void print_table(const struct eval *eval, double seconds)
{
    struct skill all = {.name = "all"};
    printf("%-16s %6s %9s%s\n", "skill", "items", "right", eval->n_expected > 0 ? "  same tokens" : "");
    for (int i = 0; i <= eval->n_skills; i++) {
        const struct skill *skill = i < eval->n_skills ? &eval->skills[i] : &all;
        printf(
            "%-16s %6d %8.1f%%", skill->name, skill->n_items, skill->n_items > 0 ? 100.0 * skill->n_passed / skill->n_items : 0);
        if (skill->n_compared > 0)
            printf(" %11.1f%%", 100.0 * skill->n_equal / skill->n_compared);
        putchar('\n');
        all.n_items += skill->n_items;
        all.n_passed += skill->n_passed;
        all.n_compared += skill->n_compared;
        all.n_equal += skill->n_equal;
    }
    fprintf(stderr, "%.1f s\n", seconds);
}

// --- the command ---------------------------------------------------------------------------------------------------------------

static void parse(struct eval *eval, const char **output_path, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option;
    const char *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && eval->model_name == NULL) {
            eval->model_name = positional;
        } else if (positional != NULL) {
            usage_error("eval", "unexpected argument '%s'", positional);
        } else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s%s", help, model_options_help, adapter_options_help);
            exit(0);
        } else if (strcmp(option, "--suite") == 0) {
            eval->suite = option_text(&arguments, option);
        } else if (strcmp(option, "--skill") == 0 && eval->n_only < MAX_SKILLS) {
            eval->only[eval->n_only++] = option_text(&arguments, option);
        } else if (strcmp(option, "--limit") == 0) {
            eval->limit = option_int(&arguments, option, 1, 1 << 30);
        } else if (strcmp(option, "--max-tokens") == 0) {
            eval->max_tokens = option_int(&arguments, option, 1, 1 << 20);
        } else if (strcmp(option, "--expected") == 0) {
            eval->expected_path = option_text(&arguments, option);
        } else if (strcmp(option, "--failures") == 0) {
            eval->show_failures = true;
        } else if (strcmp(option, "-o") == 0) {
            *output_path = option_text(&arguments, option);
        } else if (!adapter_option(&arguments, option) && !model_option(&arguments, option, &eval->model_options)) {
            usage_error("eval", "there is no option '%s'", option);
        }
    }
    if (eval->model_name == NULL || eval->suite == NULL)
        usage_error("eval", eval->model_name == NULL ? "which model?" : "which suite? Give --suite FOLDER");
}

static bool run(struct eval *eval, const char *output_path, struct carat_error *err)
{
    if (eval->expected_path != NULL && !read_lines(eval, eval->expected_path, 0, take_expected, NULL, err))
        return false;
    if (output_path != NULL && (eval->output = fopen(output_path, "w")) == NULL)
        return fail(err, CARAT_IO, "cannot write '%s': %s", output_path, strerror(errno));
    double start = clock_ms();
    bool ok = carat_session_new(eval->model, NULL, &eval->session, err) && run_suite(eval, err);
    if (eval->output != NULL && fclose(eval->output) != 0 && ok)
        ok = fail(err, CARAT_IO, "cannot write '%s': %s", output_path, strerror(errno));
    if (ok)
        print_table(eval, (clock_ms() - start) * 1e-3);
    return ok;
}

int command_eval(int argc, char **argv)
{
    struct eval eval = {.max_tokens = 120};
    const char *output_path = NULL;
    parse(&eval, &output_path, argc, argv);
    struct carat_error err = {0};
    eval.model = open_model(eval.model_name, &eval.model_options);
    bool ok = eval.model != NULL;
    if (ok && !run(&eval, output_path, &err)) {
        fprintf(stderr, "carat: %s\n", err.message);
        ok = false;
    }
    carat_session_free(eval.session);
    carat_model_free(eval.model);
    for (size_t i = 0; i < eval.n_expected; i++)
        json_free(eval.expected[i]);
    free((void *)eval.expected);
    return ok ? 0 : 1;
}
