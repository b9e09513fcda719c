// chat_fuzz.c: any JSON as a conversation: an error, or a prompt whose segments cover it.

#include <stdlib.h>

#include "text/chat.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void render(const struct json_value *request, unsigned bits)
{
    struct chat chat = {.tools = json_get(request, "tools")};
    struct chat_options options = {.large = (bits & 1) != 0,
        .enable_thinking = (bits & 2) != 0,
        .preserve_thinking = (bits & 4) != 0,
        .add_generation_prompt = (bits & 8) != 0,
        .continue_last = (bits & 16) != 0};
    struct chat_prompt prompt = {0};
    if (chat_add_json(&chat, json_get(request, "messages"), (bits & 1) != 0, NULL) &&
        chat_render(&chat, &options, &prompt, NULL)) {
        size_t at = 0;
        for (size_t i = 0; i < prompt.n_segments; i++) {
            if (prompt.segments[i].start != at || prompt.segments[i].n_bytes == 0)
                abort();
            at += prompt.segments[i].n_bytes;
        }
        if (at != prompt.text.n_bytes)
            abort();
    }
    chat_prompt_free(&prompt);
    chat_free(&chat);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct json_document *document = json_parse((const char *)data, n_bytes, NULL);
    if (document == NULL)
        return 0;
    for (unsigned bits = 0; bits < 32; bits++)
        render(json_root(document), bits);
    json_free(document);
    return 0;
}
