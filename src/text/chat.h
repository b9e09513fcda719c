// chat.h: conversations, and the exact prompt text and ids Gemma 4 expects for them.
//
// A conversation is a list of messages in the shape of OpenAI's chat API. Rendering gives a list of segments that keep apart what
// the template wrote (its markers become control tokens), what people or tools wrote (their bytes never do) and the places of
// images and sounds. chat_encode turns segments into ids without losing that distinction.

#ifndef CARAT_TEXT_CHAT_H
#define CARAT_TEXT_CHAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/json.h"
#include "text/buffer.h"
#include "text/tokenizer.h"

struct chat_document;

enum chat_part_kind { CHAT_PART_TEXT, CHAT_PART_IMAGE, CHAT_PART_AUDIO, CHAT_PART_VIDEO, CHAT_PART_OTHER };

struct chat_part {
    enum chat_part_kind kind;
    struct text_view text;         // CHAT_PART_TEXT; absent when the part has none
    const struct json_value *json; // the part as it came (image_url, input_audio ...), or NULL
};

struct chat_tool_call {
    struct text_view id; // absent when not given
    struct text_view name;
    const struct json_value *arguments; // an object; NULL or null: none. Anything else is refused when rendering
};

struct chat_tool_response { // a response embedded in an assistant message
    struct text_view name;
    const struct json_value *response;
};

enum chat_content_kind {
    CHAT_CONTENT_NONE,  // null or absent
    CHAT_CONTENT_TEXT,  // one part
    CHAT_CONTENT_PARTS, // a list
    CHAT_CONTENT_VALUE, // another JSON value: only tools may answer so
};

struct chat_message {
    struct text_view role; // "user", "assistant" (or "model"), "system", "developer", "tool" ...
    enum chat_content_kind content;
    const struct chat_part *parts; // [n_parts]
    size_t n_parts;
    const struct json_value *value;     // CHAT_CONTENT_VALUE
    struct text_view reasoning;         // thinking of an assistant message
    const struct chat_tool_call *calls; // [n_calls]
    size_t n_calls;
    const struct chat_tool_response *responses; // [n_responses]
    size_t n_responses;
    struct text_view name;         // of a tool message
    struct text_view tool_call_id; // of a tool message
};

// Zero-initialise; free with chat_free. Texts and JSON values it was given are borrowed and must outlive it, unless said
// otherwise.
struct chat {
    struct arena arena;
    struct chat_message *messages; // [n_messages]
    size_t n_messages;
    size_t capacity;
    const struct json_value *tools;  // a list of {"type":"function","function":{...}}, or NULL
    struct chat_document *documents; // arguments that came as JSON text, parsed
};

// Appends a message of one text. The text and the role are copied.
bool chat_add(struct chat *chat, const char *role, struct text_view content, struct carat_error *err);

// Appends the messages of a JSON array as OpenAI's API and the golden templates write them. The document must outlive the chat.
// Arguments of tool calls given as JSON text (OpenAI's form) are refused here unless parse_arguments is set; then they are
// parsed.
bool chat_add_json(struct chat *chat, const struct json_value *messages, bool parse_arguments, struct carat_error *err);

void chat_free(struct chat *chat);

struct chat_options {
    bool large;                 // 12B, 26B, 31B: an empty thought block opens the reply when thinking is off
    bool enable_thinking;       // the model may think before it answers
    bool preserve_thinking;     // keep the thinking of earlier messages that called tools
    bool add_generation_prompt; // open the model's turn
    bool continue_last;         // the last message is an unfinished reply: its turn stays open (instead of a generation prompt)
    bool without_bos;           // leave out the leading <bos>
};

enum chat_segment_kind {
    CHAT_TEMPLATE, // markers in it are control tokens
    CHAT_OUTSIDE,  // text of people, tools and earlier replies: never control tokens
    CHAT_IMAGE,    // a media place; its text is the placeholder
    CHAT_AUDIO,
    CHAT_VIDEO,
};

struct chat_segment {
    enum chat_segment_kind kind;
    size_t start; // in chat_prompt.text
    size_t n_bytes;
    const struct chat_part *part; // media: which
};

// A rendered prompt. Zero-initialise; free with chat_prompt_free. Valid as long as the chat.
struct chat_prompt {
    struct text_buffer text;       // the whole prompt as one string, as the reference templates give it
    struct chat_segment *segments; // [n_segments] in order, covering the text; neighbours differ in kind or are media
    size_t n_segments;
    size_t capacity;
    bool in_thought; // the prompt ends inside an open thought: the reply goes on there
};

// Renders the conversation. Fails with CARAT_BAD_ARGUMENT naming the message that cannot be written (arguments that are no
// object, an object as a tool's content ...).
bool chat_render(
    const struct chat *chat, const struct chat_options *options, struct chat_prompt *prompt, struct carat_error *err);
void chat_prompt_free(struct chat_prompt *prompt);

// Where a media item goes in the ids.
struct chat_place {
    enum chat_segment_kind kind; // CHAT_IMAGE, CHAT_AUDIO or CHAT_VIDEO
    size_t position;             // index in the ids of its placeholder token (<|image|>, <|audio|>, <|video|>)
    const struct chat_part *part;
};

// Appends the prompt's ids to `ids`, one placeholder token per media item, and lists the places (positions count from the start
// of `ids`, *places is allocated, freed by the caller, NULL when there are none). places and n_places may be NULL when the caller
// needs none. Fails with CARAT_UNSUPPORTED when the vocabulary lacks a marker that is needed.
bool chat_encode(const struct tokenizer *tok, const struct chat_prompt *prompt, struct token_list *ids,
    struct chat_place **places, size_t *n_places, struct carat_error *err);

#endif
