// chat_writer.h: writing a prompt piece by piece, each marked as the template's or as outside text. For the renderer's files
// only.

#ifndef CARAT_TEXT_CHAT_WRITER_H
#define CARAT_TEXT_CHAT_WRITER_H

#include "text/chat.h"

// Appends text of a kind; neighbours of the same kind become one segment. Failing allocations are found by chat_render at the
// end.
void chat_put(struct chat_prompt *prompt, enum chat_segment_kind kind, struct text_view text);

static inline void chat_template(struct chat_prompt *prompt, const char *text)
{
    chat_put(prompt, CHAT_TEMPLATE, text_of(text));
}

static inline void chat_outside(struct chat_prompt *prompt, struct text_view text)
{
    chat_put(prompt, CHAT_OUTSIDE, text);
}

void chat_put_media(struct chat_prompt *prompt, const struct chat_part *part);

// The members of an object in the template's order: by lower-cased name, of repeated names the last.
struct chat_members {
    const struct json_value **items; // [n], free with chat_members_free
    size_t n;
};
bool chat_members_sorted(const struct json_value *object, struct chat_members *members, struct carat_error *err);
void chat_members_free(struct chat_members *members);

// A JSON value in the model's notation. quoted_keys: as inside declarations; bare as in calls and responses.
bool chat_put_value(struct chat_prompt *prompt, const struct json_value *value, bool quoted_keys, struct carat_error *err);

// k:v,... of an object with bare keys, without the braces.
bool chat_put_members(struct chat_prompt *prompt, const struct json_value *object, struct carat_error *err);

// <|tool> ... <tool|> of tools[index].
bool chat_put_tool(struct chat_prompt *prompt, const struct json_value *tool, size_t index, struct carat_error *err);

#endif
