// reply.h: reading what the model writes: content, thinking and tool calls.
//
// A reply is fed token by token (only marker tokens act; the same characters spelled by ordinary tokens are text) or as text
// decoded with specials. Events come as soon as they are certain; what could still turn out to be something else (the start of a
// marker, white space before one, half a character) is held back. How the stream was cut does not change the joined result.

#ifndef CARAT_TEXT_REPLY_H
#define CARAT_TEXT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/json.h"
#include "text/buffer.h"
#include "text/tokenizer.h"

enum { REPLY_MAX_NESTING = 64, REPLY_MAX_CALL_BYTES = 16 << 20 };

enum reply_event_kind {
    REPLY_CONTENT,   // more of the answer
    REPLY_REASONING, // more of the thinking
    REPLY_TOOL_CALL, // one whole call
};

// Valid only during the callback.
struct reply_event {
    enum reply_event_kind kind;
    struct text_view text;      // REPLY_CONTENT, REPLY_REASONING: never empty
    struct text_view name;      // REPLY_TOOL_CALL
    struct text_view arguments; // REPLY_TOOL_CALL: a JSON object, keys in the model's order
    int index;                  // REPLY_TOOL_CALL: 0 for the first
};

typedef void reply_sink(void *context, const struct reply_event *event);

struct reply_options {
    bool thinking;                  // false: thoughts are read but not reported
    bool in_thought;                // the prompt ended inside an open thought (chat_prompt.in_thought)
    const struct json_value *tools; // the list the prompt was rendered with: repairs use its parameter types. NULL: none
};

struct reply;

// tok may be NULL when only text will be fed. tok, the tools and the sink's context must outlive the reply.
struct reply *reply_new(
    const struct tokenizer *tok, const struct reply_options *options, reply_sink *sink, void *context, struct carat_error *err);
void reply_free(struct reply *reply);

// One token. End tokens (<eos>, <turn|>, <|tool_response>) may be fed and give nothing. Fails only with CARAT_NO_MEMORY.
bool reply_feed(struct reply *reply, int32_t id, struct carat_error *err);

// More text, decoded with specials, cut anywhere. Do not mix with reply_feed.
bool reply_feed_text(struct reply *reply, const char *text, size_t n_bytes, struct carat_error *err);

// The reply has ended: reports what is held back and an unfinished call.
bool reply_finish(struct reply *reply, struct carat_error *err);

int reply_call_count(const struct reply *reply);  // calls reported; more than 0: finish reason "tool_calls"
bool reply_in_thought(const struct reply *reply); // now inside a thought (a grammar waits until this is false)
bool reply_in_call(const struct reply *reply);    // now inside a tool call

// The arguments of a call, e.g. `{a:<|"|>x<|"|>,b:1}`, as a JSON object. schema: the "parameters" object of the tool, or NULL.
// Malformed text is repaired where its meaning is clear; else CARAT_BAD_ARGUMENT.
bool reply_arguments_to_json(
    struct text_view arguments, const struct json_value *schema, struct text_buffer *out, struct carat_error *err);

#endif
