// chat_render.c: the turns of a conversation as Gemma 4's template of July 2026 writes them.

#include <stdlib.h>

#include "text/chat_writer.h"

// --- segments ---

static bool add_segment(struct chat_prompt *prompt, enum chat_segment_kind kind, const struct chat_part *part)
{
    if (prompt->n_segments == prompt->capacity) {
        size_t capacity = prompt->capacity * 2 + 16;
        struct chat_segment *segments = realloc(prompt->segments, capacity * sizeof *segments);
        if (segments == NULL) {
            prompt->text.failed = true;
            return false;
        }
        prompt->segments = segments;
        prompt->capacity = capacity;
    }
    prompt->segments[prompt->n_segments++] = (struct chat_segment){.kind = kind, .start = prompt->text.n_bytes, .part = part};
    return true;
}

void chat_put(struct chat_prompt *prompt, enum chat_segment_kind kind, struct text_view text)
{
    if (text.n_bytes == 0)
        return;
    if ((prompt->n_segments == 0 || prompt->segments[prompt->n_segments - 1].kind != kind) && !add_segment(prompt, kind, NULL))
        return;
    text_append_view(&prompt->text, text);
    struct chat_segment *segment = &prompt->segments[prompt->n_segments - 1];
    segment->n_bytes = prompt->text.n_bytes - segment->start;
}

void chat_put_media(struct chat_prompt *prompt, const struct chat_part *part)
{
    bool image = part->kind == CHAT_PART_IMAGE;
    bool audio = part->kind == CHAT_PART_AUDIO;
    if (!image && !audio && part->kind != CHAT_PART_VIDEO)
        return;
    if (!add_segment(prompt, image ? CHAT_IMAGE : audio ? CHAT_AUDIO : CHAT_VIDEO, part))
        return;
    text_append_string(&prompt->text, image ? "<|image|>" : audio ? "<|audio|>" : "<|video|>");
    struct chat_segment *segment = &prompt->segments[prompt->n_segments - 1];
    segment->n_bytes = prompt->text.n_bytes - segment->start;
}

void chat_prompt_free(struct chat_prompt *prompt)
{
    text_free(&prompt->text);
    free(prompt->segments);
    *prompt = (struct chat_prompt){0};
}

// --- the state of a rendering ---

enum tool_state { NO_TOOLS, CALLED, ANSWERED };

struct renderer {
    const struct chat *chat;
    const struct chat_options *options;
    struct chat_prompt *prompt;
    size_t first; // of the messages that are turns: 1 when a leading system message was used up
    size_t after_last_user;
    struct text_view previous_role; // of the last message that is no tool's
    enum tool_state state;
    struct carat_error *err;
};

static bool is_tool(const struct chat_message *message)
{
    return text_is(message->role, "tool");
}

static bool is_assistant(const struct chat_message *message)
{
    return text_is(message->role, "assistant");
}

static bool is_model(const struct chat_message *message)
{
    return is_assistant(message) || text_is(message->role, "model");
}

// --- the system turn ---

static bool render_system(struct renderer *r)
{
    const struct chat *chat = r->chat;
    const struct json_value *tools = chat->tools != NULL && chat->tools->type != JSON_NULL ? chat->tools : NULL;
    const struct chat_message *leading = chat->n_messages > 0 ? &chat->messages[0] : NULL;
    if (leading != NULL && !text_is(leading->role, "system") && !text_is(leading->role, "developer"))
        leading = NULL;
    if (tools != NULL && tools->type != JSON_ARRAY)
        return fail(r->err, CARAT_BAD_ARGUMENT, "'tools' must be a list");
    if (!r->options->enable_thinking && (tools == NULL || tools->n_children == 0) && leading == NULL)
        return true;
    chat_template(r->prompt, "<|turn>system\n");
    if (r->options->enable_thinking)
        chat_template(r->prompt, "<|think|>\n");
    if (leading != NULL) {
        r->first = 1;
        if (leading->content == CHAT_CONTENT_VALUE)
            return fail(r->err, CARAT_BAD_ARGUMENT, "messages[0]: content must be a text or a list of parts");
        for (size_t i = 0; i < leading->n_parts; i++) {
            chat_outside(r->prompt, text_trim(leading->parts[i].text));
            if (leading->content == CHAT_CONTENT_PARTS)
                chat_template(r->prompt, " ");
        }
    }
    for (size_t i = 0; tools != NULL && i < tools->n_children; i++)
        if (!chat_put_tool(r->prompt, &tools->children[i], i, r->err))
            return false;
    chat_template(r->prompt, "<turn|>\n");
    return true;
}

// --- calls and responses ---

static bool render_calls(struct renderer *r, const struct chat_message *message, size_t index)
{
    for (size_t i = 0; i < message->n_calls; i++) {
        const struct json_value *arguments = message->calls[i].arguments;
        chat_template(r->prompt, "<|tool_call>call:");
        chat_outside(r->prompt, message->calls[i].name);
        chat_template(r->prompt, "{");
        if (arguments != NULL && arguments->type != JSON_NULL) {
            if (arguments->type != JSON_OBJECT)
                return fail(r->err, CARAT_BAD_ARGUMENT,
                    "messages[%zu]: the arguments of a call to '%.*s' must be a JSON object, not a text or another value", index,
                    (int)(message->calls[i].name.n_bytes < 100 ? message->calls[i].name.n_bytes : 100),
                    message->calls[i].name.data);
            if (!chat_put_members(r->prompt, arguments, r->err))
                return false;
        }
        chat_template(r->prompt, "}<tool_call|>");
        r->state = CALLED;
    }
    return true;
}

static void open_response(struct renderer *r, struct text_view name)
{
    chat_template(r->prompt, "<|tool_response>response:");
    chat_outside(r->prompt, name.n_bytes != 0 ? name : text_of("unknown"));
    chat_template(r->prompt, "{");
    r->state = ANSWERED;
}

static void close_response(struct renderer *r)
{
    chat_template(r->prompt, "}<tool_response|>");
}

static bool render_embedded_responses(struct renderer *r, const struct chat_message *message)
{
    for (size_t i = 0; i < message->n_responses; i++) {
        const struct json_value *response = message->responses[i].response;
        open_response(r, message->responses[i].name);
        bool object = json_is(response, JSON_OBJECT);
        if (!object)
            chat_template(r->prompt, "value:");
        if (object ? !chat_put_members(r->prompt, response, r->err) : !chat_put_value(r->prompt, response, false, r->err))
            return false;
        close_response(r);
    }
    return true;
}

static struct text_view response_name(const struct chat_message *message, const struct chat_message *response)
{
    struct text_view name = response->name;
    for (size_t i = 0; i < message->n_calls; i++) {
        struct text_view id = message->calls[i].id;
        bool both = (id.data != NULL) == (response->tool_call_id.data != NULL);
        if (both && text_equal(id, response->tool_call_id))
            name = message->calls[i].name;
    }
    return name;
}

static bool render_response(
    struct renderer *r, const struct chat_message *message, const struct chat_message *response, size_t index)
{
    if (response->content == CHAT_CONTENT_VALUE && response->value->type == JSON_OBJECT)
        return fail(
            r->err, CARAT_BAD_ARGUMENT, "messages[%zu]: a tool's content must be a text, pass the object's JSON text", index);
    open_response(r, response_name(message, response));
    chat_template(r->prompt, "value:");
    if (response->content == CHAT_CONTENT_TEXT || response->content == CHAT_CONTENT_PARTS) {
        chat_template(r->prompt, "<|\"|>");
        for (size_t i = 0; i < response->n_parts; i++)
            if (response->parts[i].kind == CHAT_PART_TEXT)
                chat_outside(r->prompt, response->parts[i].text);
        chat_template(r->prompt, "<|\"|>");
    } else if (!chat_put_value(r->prompt, response->value, false, r->err)) {
        return false;
    }
    close_response(r);
    for (size_t i = 0; i < response->n_parts; i++)
        chat_put_media(r->prompt, &response->parts[i]);
    return true;
}

// --- turns ---

// Content of an assistant: its thinking blocks are taken out. keep_end: the end is not trimmed, since the text goes on there.
static void render_without_thinking(struct renderer *r, struct text_view text, bool keep_end)
{
    struct text_buffer kept = {0};
    bool in_thought = false;
    for (size_t i = 0; i < text.n_bytes;) {
        struct text_view rest = {text.data + i, text.n_bytes - i};
        bool closes = rest.n_bytes >= 10 && text_is((struct text_view){rest.data, 10}, "<channel|>");
        bool opens = rest.n_bytes >= 10 && text_is((struct text_view){rest.data, 10}, "<|channel>");
        if (closes || opens) {
            in_thought = opens;
            i += 10;
            continue;
        }
        if (!in_thought)
            text_append_byte(&kept, text.data[i]);
        i++;
    }
    r->prompt->text.failed |= kept.failed;
    chat_outside(r->prompt, keep_end ? text_trim_start(text_whole(&kept)) : text_trim(text_whole(&kept)));
    text_free(&kept);
}

// Returns whether anything but white space was written.
static bool render_content(struct renderer *r, const struct chat_message *message, bool open)
{
    size_t start = r->prompt->text.n_bytes;
    for (size_t i = 0; i < message->n_parts; i++) {
        const struct chat_part *part = &message->parts[i];
        if (part->kind != CHAT_PART_TEXT)
            chat_put_media(r->prompt, part);
        else if (is_model(message))
            render_without_thinking(r, part->text, open && i + 1 == message->n_parts);
        else
            chat_outside(r->prompt, text_trim(part->text));
    }
    struct text_view written = {r->prompt->text.data + start, r->prompt->text.n_bytes - start};
    return text_trim(written).n_bytes > 0;
}

static void render_thinking(struct renderer *r, const struct chat_message *message, size_t index, bool open)
{
    bool kept = index >= r->after_last_user || (r->options->preserve_thinking && message->n_calls > 0);
    if (message->reasoning.n_bytes == 0 || !(kept || open))
        return;
    chat_template(r->prompt, "<|channel>thought\n");
    chat_outside(r->prompt, message->reasoning);
    if (open && message->n_parts == 0 && message->n_calls == 0)
        r->prompt->in_thought = true; // the reply was cut off while it thought
    else
        chat_template(r->prompt, "\n<channel|>");
}

static bool render_answers(struct renderer *r, const struct chat_message *message, size_t index)
{
    if (message->n_responses > 0)
        return render_embedded_responses(r, message);
    for (size_t i = index + 1; message->n_calls > 0 && i < r->chat->n_messages && is_tool(&r->chat->messages[i]); i++)
        if (!render_response(r, message, &r->chat->messages[i], i))
            return false;
    return true;
}

static void end_turn(struct renderer *r, const struct chat_message *message, size_t index, bool has_content)
{
    size_t next = index + 1;
    while (next < r->chat->n_messages && is_tool(&r->chat->messages[next]))
        next++;
    bool has_next = next < r->chat->n_messages;
    bool answered = r->state == ANSWERED;
    if (r->state == CALLED)
        chat_template(r->prompt, "<|tool_response>");
    else if (is_model(message) && has_next && is_assistant(&r->chat->messages[next]))
        ; // the turn goes on in the next message
    else if (!answered || has_content || has_next)
        chat_template(r->prompt, "<turn|>\n");
}

static bool render_message(struct renderer *r, const struct chat_message *message, size_t index)
{
    bool open = r->options->continue_last && index + 1 == r->chat->n_messages;
    if (message->content == CHAT_CONTENT_VALUE)
        return fail(r->err, CARAT_BAD_ARGUMENT, "messages[%zu]: content must be a text, a list of parts or null", index);
    r->state = NO_TOOLS;
    if (!is_model(message) || !text_is(r->previous_role, "assistant")) {
        chat_template(r->prompt, "<|turn>");
        chat_outside(r->prompt, is_model(message) ? text_of("model") : message->role);
        chat_template(r->prompt, "\n");
        // The model saw this when it began the reply that is to go on.
        if (open && r->options->large && !r->options->enable_thinking && message->reasoning.n_bytes == 0)
            chat_template(r->prompt, "<|channel>thought\n<channel|>");
    }
    render_thinking(r, message, index, open);
    if (!render_calls(r, message, index) || !render_answers(r, message, index))
        return false;
    bool has_content = render_content(r, message, open);
    if (!open)
        end_turn(r, message, index, has_content);
    r->previous_role = message->role;
    return true;
}

static void render_generation_prompt(struct renderer *r)
{
    if (r->state == NO_TOOLS) {
        chat_template(r->prompt, "<|turn>model\n");
        if (r->options->large && !r->options->enable_thinking)
            chat_template(r->prompt, "<|channel>thought\n<channel|>");
    } else if (r->state == ANSWERED && r->options->enable_thinking) {
        chat_template(r->prompt, "<|channel>thought\n");
        r->prompt->in_thought = true;
    }
}

static bool render(struct renderer *r)
{
    const struct chat *chat = r->chat;
    if (r->options->continue_last && (chat->n_messages == 0 || !is_model(&chat->messages[chat->n_messages - 1])))
        return fail(r->err, CARAT_BAD_ARGUMENT, "only a conversation whose last message is the assistant's can be continued");
    if (!r->options->without_bos)
        chat_template(r->prompt, "<bos>");
    if (!render_system(r))
        return false;
    r->after_last_user = r->first;
    for (size_t i = r->first; i < chat->n_messages; i++)
        if (text_is(chat->messages[i].role, "user"))
            r->after_last_user = i + 1;
    for (size_t i = r->first; i < chat->n_messages; i++)
        if (!is_tool(&chat->messages[i]) && !render_message(r, &chat->messages[i], i))
            return false;
    if (r->options->add_generation_prompt && !r->options->continue_last)
        render_generation_prompt(r);
    return true;
}

bool chat_render(const struct chat *chat, const struct chat_options *options, struct chat_prompt *prompt, struct carat_error *err)
{
    chat_prompt_free(prompt);
    struct renderer renderer = {.chat = chat, .options = options, .prompt = prompt, .err = err};
    bool ok = render(&renderer);
    if (ok && prompt->text.failed)
        ok = fail(err, CARAT_NO_MEMORY, "not enough memory for the prompt");
    if (!ok)
        chat_prompt_free(prompt);
    return ok;
}
