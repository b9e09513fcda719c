// stop.h: stop strings in a stream of text.
//
// Text is handed on as soon as it cannot be part of a stop string any more; a suffix that could still become one is held back.

#ifndef CARAT_ENGINE_STOP_H
#define CARAT_ENGINE_STOP_H

#include "base/error.h"
#include "text/buffer.h"

enum { STOP_MAX_STRINGS = 16, STOP_MAX_BYTES = 1024 };

struct stop {
    struct text_buffer strings[STOP_MAX_STRINGS]; // copies, none empty
    int n_strings;
    struct text_buffer held; // a suffix of the stream, shorter than the longest string
    bool found;              // a stop string has appeared: nothing more is handed on
};

// Adds a string. Fails with CARAT_BAD_ARGUMENT when it is empty, too long, or one too many.
bool stop_add(struct stop *stop, struct text_view string, struct carat_error *err);

// More of the stream. Appends to `out` what is safe to show; returns true when a stop string has been found (its text and what
// follows are dropped).
bool stop_feed(struct stop *stop, struct text_view text, struct text_buffer *out);

// The stream has ended without a stop string: appends what was held back.
void stop_finish(struct stop *stop, struct text_buffer *out);

void stop_free(struct stop *stop);

#endif
