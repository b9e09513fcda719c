// decoder.h: token ids back to text, one at a time.
//
// Consecutive byte tokens form a run (tokens that give no text do not end it). A run that is valid UTF-8 gives its characters;
// otherwise every byte of it gives one U+FFFD. What is given out is always valid UTF-8 if the vocabulary's texts are, and never
// taken back: the bytes of a run that can still become valid, or be spoilt, are held.

#ifndef CARAT_TEXT_DECODER_H
#define CARAT_TEXT_DECODER_H

#include "text/tokenizer.h"

// Of a longer run the whole characters so far are given out, although a later byte could still spoil it: nothing is held for
// ever.
enum { DECODER_HOLD_BYTES = 4096 };

struct decoder {
    const struct tokenizer *tok;
    bool with_specials; // markers appear as their text
    bool broken;        // the open run is not UTF-8: its bytes give U+FFFD at once
    size_t n_held;
    unsigned char held[DECODER_HOLD_BYTES]; // the open run, a prefix of valid UTF-8
};

// with_specials: markers give their text, else nothing. The tokenizer must outlive the decoder. Nothing to free.
void decoder_init(struct decoder *decoder, const struct tokenizer *tok, bool with_specials);

// Appends the text that has become final through this token. Ids outside the vocabulary give nothing.
void decoder_feed(struct decoder *decoder, int32_t id, struct text_buffer *out);

// The stream has ended: appends what is held. The decoder is ready for another stream.
void decoder_finish(struct decoder *decoder, struct text_buffer *out);

// The text of a whole list.
void decoder_decode(const struct tokenizer *tok, const int32_t *ids, size_t n, bool with_specials, struct text_buffer *out);

#endif
