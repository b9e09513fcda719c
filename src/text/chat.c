// chat.c: building a conversation from texts or from JSON messages.

#include "text/chat.h"

#include <string.h>

struct chat_document {
    struct chat_document *next;
    struct json_document *json;
};

static bool out_of_memory(struct carat_error *err)
{
    fail(err, CARAT_NO_MEMORY, "not enough memory for the conversation");
    return false;
}

static struct chat_message *message_new(struct chat *chat, struct carat_error *err)
{
    if (chat->n_messages == chat->capacity) {
        size_t capacity = chat->capacity * 2 + 8;
        struct chat_message *messages = arena_take_array(&chat->arena, capacity, sizeof *messages);
        if (messages == NULL) {
            out_of_memory(err);
            return NULL;
        }
        if (chat->n_messages != 0)
            memcpy(messages, chat->messages, chat->n_messages * sizeof *messages);
        chat->messages = messages;
        chat->capacity = capacity;
    }
    return &chat->messages[chat->n_messages];
}

bool chat_add(struct chat *chat, const char *role, struct text_view content, struct carat_error *err)
{
    struct chat_message *message = message_new(chat, err);
    if (message == NULL)
        return false;
    struct chat_part *part = arena_take(&chat->arena, sizeof *part);
    char *role_copy = arena_copy_text(&chat->arena, role, strlen(role));
    char *text = arena_copy_text(&chat->arena, content.data, content.n_bytes);
    if (part == NULL || role_copy == NULL || text == NULL)
        return out_of_memory(err);
    *part = (struct chat_part){.kind = CHAT_PART_TEXT, .text = {text, content.n_bytes}};
    *message = (struct chat_message){.role = text_of(role_copy), .content = CHAT_CONTENT_TEXT, .parts = part, .n_parts = 1};
    chat->n_messages++;
    return true;
}

// --- from JSON ---

// A text member; the absent view when it is absent or null. Other kinds are refused by name.
static bool read_text(
    const struct json_value *object, const char *key, size_t index, struct text_view *out, struct carat_error *err)
{
    const struct json_value *value = json_get(object, key);
    *out = (struct text_view){0};
    if (value == NULL || value->type == JSON_NULL)
        return true;
    if (value->type != JSON_STRING)
        return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu]: '%s' must be a text", index, key);
    *out = (struct text_view){value->text, value->n_text};
    return true;
}

static enum chat_part_kind part_kind(const struct json_value *type)
{
    if (json_text_is(type, "text"))
        return CHAT_PART_TEXT;
    if (json_text_is(type, "image") || json_text_is(type, "image_url"))
        return CHAT_PART_IMAGE;
    if (json_text_is(type, "audio") || json_text_is(type, "input_audio"))
        return CHAT_PART_AUDIO;
    return json_text_is(type, "video") ? CHAT_PART_VIDEO : CHAT_PART_OTHER;
}

static bool read_content(
    struct chat *chat, const struct json_value *json, size_t index, struct chat_message *message, struct carat_error *err)
{
    const struct json_value *content = json_get(json, "content");
    if (content == NULL || content->type == JSON_NULL)
        return true;
    if (content->type != JSON_STRING && content->type != JSON_ARRAY) {
        message->content = CHAT_CONTENT_VALUE;
        message->value = content;
        return true;
    }
    message->n_parts = content->type == JSON_STRING ? 1 : content->n_children;
    message->content = content->type == JSON_STRING ? CHAT_CONTENT_TEXT : CHAT_CONTENT_PARTS;
    struct chat_part *parts = arena_take_array(&chat->arena, message->n_parts, sizeof *parts);
    if (parts == NULL)
        return out_of_memory(err);
    message->parts = parts;
    if (content->type == JSON_STRING) {
        parts[0] = (struct chat_part){.kind = CHAT_PART_TEXT, .text = {content->text, content->n_text}};
        return true;
    }
    for (size_t i = 0; i < message->n_parts; i++) {
        const struct json_value *part = &content->children[i];
        if (part->type != JSON_OBJECT)
            return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu]: content[%zu] must be an object with a type", index, i);
        parts[i].kind = part_kind(json_get(part, "type"));
        parts[i].json = part;
        // Only the text of texts matters, but the template reads it from every part of a leading system message.
        if ((parts[i].kind == CHAT_PART_TEXT || json_is(json_get(part, "text"), JSON_STRING)) &&
            !read_text(part, "text", index, &parts[i].text, err))
            return false;
    }
    return true;
}

// OpenAI's form: the arguments as JSON text.
static bool parse_arguments_text(
    struct chat *chat, const struct json_value *text, size_t index, const struct json_value **arguments, struct carat_error *err)
{
    *arguments = NULL;
    if (text->n_text == 0)
        return true;
    struct chat_document *document = arena_take(&chat->arena, sizeof *document);
    if (document == NULL)
        return out_of_memory(err);
    document->json = json_parse(text->text, text->n_text, err);
    if (document->json == NULL) {
        if (err != NULL && err->code == CARAT_BAD_FILE)
            err->code = CARAT_BAD_ARGUMENT;
        return fail_in(err, "messages[%zu]: arguments of a tool call", index);
    }
    document->next = chat->documents;
    chat->documents = document;
    *arguments = json_root(document->json);
    return true;
}

static bool read_calls(struct chat *chat, const struct json_value *json, size_t index, bool parse_arguments,
    struct chat_message *message, struct carat_error *err)
{
    const struct json_value *list = json_get(json, "tool_calls");
    if (list == NULL || list->type == JSON_NULL)
        return true;
    if (list->type != JSON_ARRAY)
        return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu]: 'tool_calls' must be a list", index);
    struct chat_tool_call *calls = arena_take_array(&chat->arena, list->n_children, sizeof *calls);
    if (calls == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < list->n_children; i++) {
        const struct json_value *function = json_get(&list->children[i], "function");
        if (!json_is(json_get(function, "name"), JSON_STRING))
            return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu]: tool_calls[%zu] has no function name", index, i);
        if (!read_text(&list->children[i], "id", index, &calls[i].id, err) ||
            !read_text(function, "name", index, &calls[i].name, err))
            return false;
        calls[i].arguments = json_get(function, "arguments");
        if (parse_arguments && json_is(calls[i].arguments, JSON_STRING) &&
            !parse_arguments_text(chat, calls[i].arguments, index, &calls[i].arguments, err))
            return false;
    }
    message->calls = calls;
    message->n_calls = list->n_children;
    return true;
}

static bool read_responses(
    struct chat *chat, const struct json_value *json, size_t index, struct chat_message *message, struct carat_error *err)
{
    const struct json_value *list = json_get(json, "tool_responses");
    if (list == NULL || list->type == JSON_NULL)
        return true;
    if (list->type != JSON_ARRAY)
        return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu]: 'tool_responses' must be a list", index);
    struct chat_tool_response *responses = arena_take_array(&chat->arena, list->n_children, sizeof *responses);
    if (responses == NULL)
        return out_of_memory(err);
    for (size_t i = 0; i < list->n_children; i++) {
        if (!read_text(&list->children[i], "name", index, &responses[i].name, err))
            return false;
        responses[i].response = json_get(&list->children[i], "response");
    }
    message->responses = responses;
    message->n_responses = list->n_children;
    return true;
}

static bool add_message(
    struct chat *chat, const struct json_value *json, size_t index, bool parse_arguments, struct carat_error *err)
{
    struct chat_message *message = message_new(chat, err);
    if (message == NULL)
        return false;
    *message = (struct chat_message){0};
    if (!json_is(json_get(json, "role"), JSON_STRING))
        return fail(err, CARAT_BAD_ARGUMENT, "messages[%zu] has no role", index);
    if (!read_text(json, "role", index, &message->role, err) || !read_text(json, "reasoning", index, &message->reasoning, err) ||
        !read_text(json, "name", index, &message->name, err) ||
        !read_text(json, "tool_call_id", index, &message->tool_call_id, err))
        return false;
    if (message->reasoning.n_bytes == 0 && !read_text(json, "reasoning_content", index, &message->reasoning, err))
        return false;
    if (!read_content(chat, json, index, message, err) || !read_calls(chat, json, index, parse_arguments, message, err) ||
        !read_responses(chat, json, index, message, err))
        return false;
    chat->n_messages++;
    return true;
}

bool chat_add_json(struct chat *chat, const struct json_value *messages, bool parse_arguments, struct carat_error *err)
{
    if (!json_is(messages, JSON_ARRAY))
        return fail(err, CARAT_BAD_ARGUMENT, "'messages' must be a list");
    size_t n_before = chat->n_messages;
    for (size_t i = 0; i < messages->n_children; i++) {
        if (!add_message(chat, &messages->children[i], i, parse_arguments, err)) {
            chat->n_messages = n_before;
            return false;
        }
    }
    return true;
}

void chat_free(struct chat *chat)
{
    for (struct chat_document *document = chat->documents; document != NULL; document = document->next)
        json_free(document->json);
    arena_free(&chat->arena);
    *chat = (struct chat){0};
}
