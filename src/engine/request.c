// request.c: reading a chat request.

#include "engine/request.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool present(const struct json_value *value)
{
    return value != NULL && value->type != JSON_NULL;
}

static bool wrong(struct carat_error *err, const char *name, const char *expected)
{
    return fail(err, CARAT_BAD_ARGUMENT, "'%s' must be %s", name, expected);
}

// How much of what was given goes into a message; whole characters.
static int shown(const struct json_value *value)
{
    int n = value->n_source < 40 ? (int)value->n_source : 40;
    while (n > 0 && n < (int)value->n_source && ((unsigned char)value->source[n] & 0xc0) == 0x80)
        n--;
    return n;
}

static bool read_float(
    const struct json_value *root, const char *name, double low, double high, float *out, struct carat_error *err)
{
    const struct json_value *value = json_get(root, name);
    if (!present(value))
        return true;
    if (value->type != JSON_NUMBER || !(value->number >= low && value->number <= high))
        return fail(err, CARAT_BAD_ARGUMENT, "'%s' must be a number from %g to %g, not %.*s", name, low, high, shown(value),
            value->source);
    *out = (float)value->number;
    return true;
}

static bool read_int(
    const struct json_value *root, const char *name, int64_t low, int64_t high, int64_t *out, struct carat_error *err)
{
    const struct json_value *value = json_get(root, name);
    if (!present(value))
        return true;
    int64_t number;
    if (!json_i64(value, &number) || number < low || number > high)
        return fail(err, CARAT_BAD_ARGUMENT, "'%s' must be a whole number from %lld to %lld, not %.*s", name, (long long)low,
            (long long)high, shown(value), value->source);
    *out = number;
    return true;
}

static bool read_bool(const struct json_value *root, const char *name, bool *out, struct carat_error *err)
{
    const struct json_value *value = json_get(root, name);
    if (!present(value))
        return true;
    if (value->type != JSON_TRUE && value->type != JSON_FALSE)
        return fail(err, CARAT_BAD_ARGUMENT, "'%s' must be true or false, not %.*s", name, shown(value), value->source);
    *out = value->type == JSON_TRUE;
    return true;
}

static bool read_sampling(const struct json_value *root, struct carat_sampling *s, struct carat_error *err)
{
    int64_t top_k = s->top_k;
    int64_t window = s->penalty_window;
    int64_t seed = (int64_t)s->seed;
    if (!read_float(root, "temperature", 0, 100, &s->temperature, err) || !read_float(root, "top_p", 0, 1, &s->top_p, err) ||
        !read_float(root, "min_p", 0, 1, &s->min_p, err) || !read_int(root, "top_k", 0, INT_MAX, &top_k, err) ||
        !read_float(root, "repetition_penalty", 0.01, 100, &s->repetition_penalty, err) ||
        !read_float(root, "presence_penalty", -2, 2, &s->presence_penalty, err) ||
        !read_float(root, "frequency_penalty", -2, 2, &s->frequency_penalty, err) ||
        !read_int(root, "penalty_window", 0, 1 << 20, &window, err) || !read_int(root, "seed", INT64_MIN, INT64_MAX, &seed, err))
        return false;
    s->top_k = (int32_t)top_k;
    s->penalty_window = (int32_t)window;
    s->seed = (uint64_t)seed;
    return true;
}

static bool read_biases(const struct json_value *root, struct request *request, struct carat_error *err)
{
    const struct json_value *list = json_get(root, "logit_bias");
    if (!present(list))
        return true;
    if (list->type != JSON_OBJECT)
        return wrong(err, "logit_bias", "an object from token ids to numbers");
    request->biases = calloc(list->n_children + 1, sizeof *request->biases);
    if (request->biases == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for %zu logit biases", list->n_children);
    for (size_t i = 0; i < list->n_children; i++) {
        const struct json_value *member = &list->children[i];
        char *end;
        errno = 0;
        long id = strtol(member->key, &end, 10);
        if (*member->key == 0 || *end != 0 || errno != 0 || id < 0 || id > INT_MAX || member->type != JSON_NUMBER ||
            !isfinite(member->number))
            return wrong(err, "logit_bias", "an object from token ids to numbers");
        // OpenAI's scale: -100 forbids, 100 forces.
        float bias = member->number <= -100 ? -INFINITY : (float)member->number;
        request->biases[i] = (struct carat_logit_bias){.id = (int32_t)id, .bias = bias};
    }
    request->generate.sampling.biases = request->biases;
    request->generate.sampling.n_biases = (int32_t)list->n_children;
    return true;
}

static bool read_stops(const struct json_value *root, struct request *request, struct carat_error *err)
{
    const struct json_value *stop = json_get(root, "stop");
    if (!present(stop))
        return true;
    if (stop->type == JSON_STRING)
        return stop_add(&request->stop, (struct text_view){stop->text, stop->n_text}, err);
    if (stop->type != JSON_ARRAY)
        return wrong(err, "stop", "a string or a list of strings");
    for (size_t i = 0; i < stop->n_children; i++) {
        const struct json_value *string = &stop->children[i];
        if (string->type != JSON_STRING)
            return wrong(err, "stop", "a string or a list of strings");
        if (!stop_add(&request->stop, (struct text_view){string->text, string->n_text}, err))
            return false;
    }
    return true;
}

static bool read_limits(const struct json_value *root, struct request *request, struct carat_error *err)
{
    int64_t max_tokens = 0;
    int64_t n_choices = 1;
    int64_t top_logprobs = 0;
    bool logprobs = false;
    if (!read_int(root, "max_tokens", 1, INT_MAX, &max_tokens, err) ||
        !read_int(root, "max_completion_tokens", 1, INT_MAX, &max_tokens, err) ||
        !read_int(root, "n", 1, INT_MAX, &n_choices, err) || !read_bool(root, "logprobs", &logprobs, err) ||
        !read_int(root, "top_logprobs", 0, 20, &top_logprobs, err) ||
        !read_bool(root, "ignore_eos", &request->generate.ignore_eos, err))
        return false;
    if (n_choices != 1)
        return fail(err, CARAT_UNSUPPORTED, "'n' is %lld, but carat gives one answer for a request", (long long)n_choices);
    request->generate.max_tokens = (int32_t)max_tokens;
    request->generate.n_logprobs = logprobs ? (int32_t)top_logprobs : -1;
    return true;
}

static bool read_thinking(const struct json_value *root, struct request *request, struct carat_error *err)
{
    const struct json_value *template = json_get(root, "chat_template_kwargs");
    const char *effort;
    if (json_get_text(root, "reasoning_effort", &effort))
        request->think = strcmp(effort, "none") != 0;
    return read_bool(template, "enable_thinking", &request->think, err) && read_bool(root, "reasoning", &request->think, err) &&
           read_bool(root, "enable_thinking", &request->think, err) &&
           read_bool(root, "preserve_thinking", &request->preserve_thinking, err) &&
           read_bool(root, "continue_final_message", &request->continue_last, err);
}

static bool read_tools(const struct json_value *root, struct request *request, struct carat_error *err)
{
    const struct json_value *tools = json_get(root, "tools");
    const struct json_value *choice = json_get(root, "tool_choice");
    if (present(tools) && tools->type != JSON_ARRAY)
        return wrong(err, "tools", "a list of functions");
    request->chat.tools = present(tools) ? tools : NULL;
    if (!present(choice) || json_text_is(choice, "auto"))
        return true;
    if (!json_text_is(choice, "none"))
        return fail(err, CARAT_UNSUPPORTED, "'tool_choice' can be \"auto\" or \"none\": carat cannot force a call");
    request->chat.tools = NULL;
    return true;
}

static bool read_format(const struct json_value *root, struct carat_error *err)
{
    const struct json_value *format = json_get(root, "response_format");
    if (!present(format) || json_text_is(json_get(format, "type"), "text"))
        return true;
    return fail(
        err, CARAT_UNSUPPORTED, "'response_format' can only be {\"type\":\"text\"}: carat does not constrain the output yet");
}

static bool read_members(const struct json_value *root, struct request *request, struct carat_error *err)
{
    const struct json_value *messages = json_get(root, "messages");
    if (messages == NULL || messages->type != JSON_ARRAY || messages->n_children == 0)
        return wrong(err, "messages", "a list with at least one message");
    return read_sampling(root, &request->generate.sampling, err) && read_biases(root, request, err) &&
           read_stops(root, request, err) && read_limits(root, request, err) && read_thinking(root, request, err) &&
           read_tools(root, request, err) && read_format(root, err) && chat_add_json(&request->chat, messages, true, err);
}

bool request_parse(const char *text, const struct carat_sampling *defaults, struct request *request, struct carat_error *err)
{
    *request = (struct request){.generate = {.sampling = *defaults, .n_logprobs = -1}};
    request->document = json_parse(text, strlen(text), err);
    if (request->document == NULL)
        return fail_in(err, "the request");
    const struct json_value *root = json_root(request->document);
    bool ok = root->type == JSON_OBJECT ? read_members(root, request, err)
                                        : fail(err, CARAT_BAD_ARGUMENT, "the request must be a JSON object");
    if (!ok)
        request_free(request);
    return ok;
}

void request_free(struct request *request)
{
    chat_free(&request->chat);
    json_free(request->document);
    free(request->biases);
    stop_free(&request->stop);
    *request = (struct request){0};
}
