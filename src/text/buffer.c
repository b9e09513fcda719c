// buffer.c: see buffer.h.

#include "text/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

struct text_view text_of(const char *text)
{
    return (struct text_view){text, text != NULL ? strlen(text) : 0};
}

bool text_equal(struct text_view a, struct text_view b)
{
    return a.n_bytes == b.n_bytes && (a.n_bytes == 0 || memcmp(a.data, b.data, a.n_bytes) == 0);
}

bool text_is(struct text_view view, const char *text)
{
    return text_equal(view, text_of(text));
}

struct text_view text_trim_start(struct text_view text)
{
    size_t length;
    while (text.n_bytes > 0 && utf8_is_space(utf8_decode(text.data, text.n_bytes, &length))) {
        text.data += length;
        text.n_bytes -= length;
    }
    return text;
}

struct text_view text_trim_end(struct text_view text)
{
    size_t length;
    while (text.n_bytes > 0 && utf8_is_space(utf8_decode_last(text.data, text.n_bytes, &length)))
        text.n_bytes -= length;
    return text;
}

struct text_view text_trim(struct text_view text)
{
    return text_trim_end(text_trim_start(text));
}

static bool make_room(struct text_buffer *buffer, size_t n_bytes)
{
    if (buffer->failed)
        return false;
    if (buffer->capacity - buffer->n_bytes > n_bytes) // one more for the terminator
        return true;
    if (n_bytes > SIZE_MAX / 4 - buffer->n_bytes) {
        buffer->failed = true;
        return false;
    }
    size_t capacity = (buffer->n_bytes + n_bytes) * 3 / 2 + 64;
    char *data = realloc(buffer->data, capacity);
    if (data == NULL) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void text_append(struct text_buffer *buffer, const void *data, size_t n_bytes)
{
    if (!make_room(buffer, n_bytes))
        return;
    if (n_bytes != 0)
        memcpy(buffer->data + buffer->n_bytes, data, n_bytes);
    buffer->n_bytes += n_bytes;
    buffer->data[buffer->n_bytes] = '\0';
}

void text_append_view(struct text_buffer *buffer, struct text_view view)
{
    text_append(buffer, view.data, view.n_bytes);
}

void text_append_string(struct text_buffer *buffer, const char *text)
{
    text_append(buffer, text, strlen(text));
}

void text_append_byte(struct text_buffer *buffer, char byte)
{
    text_append(buffer, &byte, 1);
}

void text_clear(struct text_buffer *buffer)
{
    buffer->n_bytes = 0;
    buffer->failed = false;
    if (buffer->data != NULL)
        buffer->data[0] = '\0';
}

void text_free(struct text_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct text_buffer){0};
}
