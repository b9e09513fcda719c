// eval_score.c: is a reply what an item expects?

#include "eval_score.h"

#include <ctype.h>
#include <string.h>

void eval_reply_free(struct eval_reply *reply)
{
    json_writer_free(&reply->content);
    json_writer_free(&reply->reasoning);
    json_writer_free(&reply->call_name);
    json_writer_free(&reply->call_arguments);
}

static bool same_members(const struct json_value *a, const struct json_value *b)
{
    for (size_t i = 0; i < a->n_children; i++) {
        const struct json_value *other = json_get(b, a->children[i].key);
        if (other == NULL || !json_equal(&a->children[i], other))
            return false;
    }
    return true;
}

bool json_equal(const struct json_value *a, const struct json_value *b)
{
    if (a->type != b->type || a->n_children != b->n_children)
        return false;
    if (a->type == JSON_NUMBER)
        return a->number == b->number;
    if (a->type == JSON_STRING)
        return a->n_text == b->n_text && memcmp(a->text, b->text, a->n_text) == 0;
    if (a->type == JSON_OBJECT)
        return same_members(a, b);
    for (size_t i = 0; i < a->n_children; i++) {
        if (!json_equal(&a->children[i], &b->children[i]))
            return false;
    }
    return true;
}

struct span {
    const char *bytes;
    size_t n;
};

static struct span trimmed(const char *bytes, size_t n)
{
    while (n > 0 && isspace((unsigned char)bytes[n - 1]))
        n--;
    while (n > 0 && isspace((unsigned char)*bytes)) {
        bytes++;
        n--;
    }
    return (struct span){bytes, n};
}

static struct span content_of(const struct eval_reply *reply)
{
    return trimmed(reply->content.bytes != NULL ? reply->content.bytes : "", reply->content.n_bytes);
}

static bool contains(struct span text, const struct json_value *wanted)
{
    for (size_t at = 0; at + wanted->n_text <= text.n; at++) {
        if (memcmp(text.bytes + at, wanted->text, wanted->n_text) == 0)
            return true;
    }
    return false;
}

static bool is_json(struct span text, const struct json_value *wanted)
{
    struct json_document *document = json_parse(text.bytes, text.n, NULL);
    bool equal = document != NULL && json_equal(json_root(document), wanted);
    json_free(document);
    return equal;
}

static bool is_call(const struct eval_reply *reply, const struct json_value *wanted)
{
    const struct json_value *arguments = json_get(wanted, "arguments");
    if (reply->n_calls != 1 || arguments == NULL || !json_text_is(json_get(wanted, "name"), reply->call_name.bytes))
        return false;
    return is_json((struct span){reply->call_arguments.bytes, reply->call_arguments.n_bytes}, arguments);
}

bool eval_score(const struct eval_reply *reply, const struct json_value *expect, bool *passed, struct carat_error *err)
{
    const struct json_value *exact = json_get(expect, "exact");
    const struct json_value *part = json_get(expect, "contains");
    const struct json_value *json = json_get(expect, "json");
    const struct json_value *call = json_get(expect, "tool_call");
    struct span content = content_of(reply);
    if (json_is(exact, JSON_STRING)) {
        struct span wanted = trimmed(exact->text, exact->n_text);
        *passed = reply->n_calls == 0 && content.n == wanted.n && memcmp(content.bytes, wanted.bytes, wanted.n) == 0;
    } else if (json_is(part, JSON_STRING)) {
        *passed = reply->n_calls == 0 && contains(content, part);
    } else if (json != NULL) {
        *passed = reply->n_calls == 0 && is_json(content, json);
    } else if (json_is(call, JSON_OBJECT)) {
        *passed = is_call(reply, call);
    } else {
        return fail(err, CARAT_BAD_FILE, "\"expect\" has none of exact, contains, json and tool_call");
    }
    return true;
}
