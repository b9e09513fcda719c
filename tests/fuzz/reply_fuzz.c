// reply_fuzz.c: any reply, cut anywhere: the same result, and arguments that are JSON.

#include <stdlib.h>
#include <string.h>

#include "text/reply.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

struct result {
    struct text_buffer texts[2]; // by kind
    struct text_buffer calls;
};

static void collect(void *context, const struct reply_event *event)
{
    struct result *result = context;
    if (event->kind != REPLY_TOOL_CALL) {
        if (event->text.n_bytes == 0)
            abort();
        text_append_view(&result->texts[event->kind == REPLY_REASONING], event->text);
        return;
    }
    struct json_document *document = json_parse(event->arguments.data, event->arguments.n_bytes, NULL);
    if (document == NULL || json_root(document)->type != JSON_OBJECT)
        abort();
    json_free(document);
    text_append_view(&result->calls, event->name);
    text_append_view(&result->calls, event->arguments);
}

static void read_reply(const struct reply_options *options, const char *text, size_t n_bytes, size_t piece, struct result *result)
{
    struct reply *reply = reply_new(NULL, options, collect, result, NULL);
    for (size_t at = 0; at < n_bytes; at += piece)
        if (!reply_feed_text(reply, text + at, n_bytes - at < piece ? n_bytes - at : piece, NULL))
            abort();
    if (!reply_finish(reply, NULL))
        abort();
    reply_free(reply);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const char tools[] =
        "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},\"n\":"
        "{\"type\":\"integer\"},\"l\":{\"items\":{\"type\":\"string\"}},\"o\":{\"properties\":{\"s\":"
        "{\"type\":[\"string\",\"null\"]}}}}}}}]";
    static struct json_document *document;
    if (document == NULL)
        document = json_parse(tools, strlen(tools), NULL);
    if (n_bytes < 2)
        return 0;
    struct reply_options options = {.thinking = true, .in_thought = (data[0] & 1) != 0, .tools = json_root(document)};
    struct result whole = {0}, cut = {0};
    const char *text = (const char *)data + 2;
    read_reply(&options, text, n_bytes - 2, n_bytes, &whole);
    read_reply(&options, text, n_bytes - 2, 1 + data[1] % 16u, &cut);
    if (!text_equal(text_whole(&whole.texts[0]), text_whole(&cut.texts[0])) ||
        !text_equal(text_whole(&whole.texts[1]), text_whole(&cut.texts[1])) ||
        !text_equal(text_whole(&whole.calls), text_whole(&cut.calls)))
        abort();
    for (int i = 0; i < 2; i++) {
        text_free(&whole.texts[i]);
        text_free(&cut.texts[i]);
    }
    text_free(&whole.calls);
    text_free(&cut.calls);
    return 0;
}
