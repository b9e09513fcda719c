// buffer.h: views of bytes, and a byte buffer that grows.
//
// A buffer remembers a failed allocation: after one, appending does nothing and `failed` stays true, so a long rendering is
// checked once at its end.

#ifndef CARAT_TEXT_BUFFER_H
#define CARAT_TEXT_BUFFER_H

#include <stdbool.h>
#include <stddef.h>

struct text_view {
    const char *data; // not terminated; NULL: absent
    size_t n_bytes;
};

// The view of a C string; NULL gives the absent view.
struct text_view text_of(const char *text);
bool text_equal(struct text_view a, struct text_view b);
bool text_is(struct text_view view, const char *text);

// The text without white space at its ends, as Python's strip() does it and so the reference templates.
struct text_view text_trim(struct text_view text);
struct text_view text_trim_start(struct text_view text);
struct text_view text_trim_end(struct text_view text);

// A zero-initialised buffer is ready for use. data is terminated whenever it is not NULL.
struct text_buffer {
    char *data;
    size_t n_bytes;
    size_t capacity;
    bool failed; // an allocation failed; the content is incomplete
};

void text_append(struct text_buffer *buffer, const void *data, size_t n_bytes);
void text_append_view(struct text_buffer *buffer, struct text_view view);
void text_append_string(struct text_buffer *buffer, const char *text);
void text_append_byte(struct text_buffer *buffer, char byte);
// Empties the buffer and keeps its memory.
void text_clear(struct text_buffer *buffer);
void text_free(struct text_buffer *buffer);
static inline struct text_view text_whole(const struct text_buffer *buffer)
{
    return (struct text_view){buffer->data != NULL ? buffer->data : "", buffer->n_bytes};
}

#endif
