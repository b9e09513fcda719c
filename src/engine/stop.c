// stop.c: stop strings in a stream of text.

#include "engine/stop.h"

#include <string.h>

bool stop_add(struct stop *stop, struct text_view string, struct carat_error *err)
{
    if (string.n_bytes == 0 || string.n_bytes > STOP_MAX_BYTES)
        return fail(err, CARAT_BAD_ARGUMENT, "a stop string must have 1 to %d bytes, not %zu", STOP_MAX_BYTES, string.n_bytes);
    if (stop->n_strings == STOP_MAX_STRINGS)
        return fail(err, CARAT_BAD_ARGUMENT, "more than %d stop strings are not allowed", STOP_MAX_STRINGS);
    struct text_buffer *copy = &stop->strings[stop->n_strings];
    text_append_view(copy, string);
    if (copy->failed)
        return fail(err, CARAT_NO_MEMORY, "no memory for a stop string of %zu bytes", string.n_bytes);
    stop->n_strings++;
    return true;
}

// Where the first stop string begins in the held text; n_bytes when there is none.
static size_t first_match(const struct stop *stop)
{
    size_t first = stop->held.n_bytes;
    for (int i = 0; i < stop->n_strings; i++) {
        const struct text_buffer *string = &stop->strings[i];
        for (size_t at = 0; at < first && at + string->n_bytes <= stop->held.n_bytes; at++) {
            if (memcmp(stop->held.data + at, string->data, string->n_bytes) == 0)
                first = at;
        }
    }
    return first;
}

// Where the longest suffix begins that is a proper prefix of a stop string; n_bytes when there is none.
static size_t open_suffix(const struct stop *stop)
{
    size_t first = stop->held.n_bytes;
    for (int i = 0; i < stop->n_strings; i++) {
        const struct text_buffer *string = &stop->strings[i];
        size_t longest = string->n_bytes - 1 < stop->held.n_bytes ? string->n_bytes - 1 : stop->held.n_bytes;
        for (size_t n = longest; n > stop->held.n_bytes - first; n--) {
            if (memcmp(stop->held.data + stop->held.n_bytes - n, string->data, n) == 0)
                first = stop->held.n_bytes - n;
        }
    }
    return first;
}

bool stop_feed(struct stop *stop, struct text_view text, struct text_buffer *out)
{
    if (stop->found)
        return true;
    if (stop->n_strings == 0) {
        text_append_view(out, text);
        return false;
    }
    text_append_view(&stop->held, text);
    size_t match = first_match(stop);
    stop->found = match < stop->held.n_bytes;
    size_t safe = stop->found ? match : open_suffix(stop);
    text_append(out, stop->held.data, safe);
    if (stop->held.n_bytes > safe)
        memmove(stop->held.data, stop->held.data + safe, stop->held.n_bytes - safe);
    stop->held.n_bytes -= safe;
    return stop->found;
}

void stop_finish(struct stop *stop, struct text_buffer *out)
{
    if (!stop->found)
        text_append_view(out, text_whole(&stop->held));
    text_clear(&stop->held);
}

void stop_free(struct stop *stop)
{
    for (int i = 0; i < stop->n_strings; i++)
        text_free(&stop->strings[i]);
    text_free(&stop->held);
    *stop = (struct stop){0};
}
