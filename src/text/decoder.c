// decoder.c: see decoder.h.

#include "text/decoder.h"

#include <string.h>

#include "text/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; // U+FFFD

void decoder_init(struct decoder *decoder, const struct tokenizer *tok, bool with_specials)
{
    decoder->tok = tok;
    decoder->with_specials = with_specials;
    decoder->broken = false;
    decoder->n_held = 0;
}

// The held bytes are whole characters, or become so: the length of the unfinished character at their end.
static size_t unfinished_bytes(const struct decoder *decoder)
{
    for (size_t back = 1; back <= 3 && back <= decoder->n_held; back++) {
        uint8_t byte = decoder->held[decoder->n_held - back];
        uint8_t min, max;
        if ((byte & 0xc0) != 0x80)
            return utf8_lead(byte, &min, &max) > back ? back : 0;
    }
    return 0;
}

// Whether `byte` can follow the held bytes in valid UTF-8.
static bool can_follow(const struct decoder *decoder, uint8_t byte)
{
    uint8_t min, max;
    size_t unfinished = unfinished_bytes(decoder);
    if (unfinished == 0)
        return utf8_lead(byte, &min, &max) != 0;
    utf8_lead(decoder->held[decoder->n_held - unfinished], &min, &max);
    return unfinished == 1 ? byte >= min && byte <= max : (byte & 0xc0) == 0x80;
}

static void release_broken(struct decoder *decoder, struct text_buffer *out)
{
    for (size_t i = 0; i < decoder->n_held; i++)
        text_append_string(out, replacement);
    decoder->n_held = 0;
}

// A very long run: its whole characters are shown before it ended.
static void release_full(struct decoder *decoder, struct text_buffer *out)
{
    size_t unfinished = unfinished_bytes(decoder);
    size_t n = decoder->n_held - unfinished;
    text_append(out, decoder->held, n);
    memmove(decoder->held, decoder->held + n, unfinished);
    decoder->n_held = unfinished;
}

static void feed_byte(struct decoder *decoder, uint8_t byte, struct text_buffer *out)
{
    if (!decoder->broken && !can_follow(decoder, byte)) {
        release_broken(decoder, out);
        decoder->broken = true;
    }
    if (decoder->broken) {
        text_append_string(out, replacement);
        return;
    }
    if (decoder->n_held == DECODER_HOLD_BYTES)
        release_full(decoder, out);
    decoder->held[decoder->n_held++] = byte;
}

// Something else than a byte follows.
static void end_run(struct decoder *decoder, struct text_buffer *out)
{
    if (unfinished_bytes(decoder) != 0)
        release_broken(decoder, out);
    else
        text_append(out, decoder->held, decoder->n_held);
    decoder->n_held = 0;
    decoder->broken = false;
}

static void append_text(struct text_view text, struct text_buffer *out)
{
    size_t start = 0;
    for (size_t i = 0; i + 3 <= text.n_bytes;) {
        if (memcmp(text.data + i, "\xe2\x96\x81", 3) != 0) {
            i++;
            continue;
        }
        text_append(out, text.data + start, i - start);
        text_append_byte(out, ' ');
        i += 3;
        start = i;
    }
    text_append(out, text.data + start, text.n_bytes - start);
}

void decoder_feed(struct decoder *decoder, int32_t id, struct text_buffer *out)
{
    struct text_view text = tokenizer_token_text(decoder->tok, id);
    switch (tokenizer_kind(decoder->tok, id)) {
    case TOKEN_IS_BYTE:
        feed_byte(decoder, (uint8_t)tokenizer_byte(decoder->tok, id), out);
        break;
    case TOKEN_IS_TEXT:
        if (text.n_bytes == 0)
            break;
        end_run(decoder, out);
        append_text(text, out);
        break;
    case TOKEN_IS_MARKER:
    case TOKEN_IS_UNKNOWN:
        if (!decoder->with_specials || text.n_bytes == 0)
            break;
        end_run(decoder, out);
        text_append_view(out, text);
        break;
    case TOKEN_IS_UNUSED:
        break;
    }
}

void decoder_finish(struct decoder *decoder, struct text_buffer *out)
{
    end_run(decoder, out);
}

void decoder_decode(const struct tokenizer *tok, const int32_t *ids, size_t n, bool with_specials, struct text_buffer *out)
{
    struct decoder decoder;
    decoder_init(&decoder, tok, with_specials);
    for (size_t i = 0; i < n; i++)
        decoder_feed(&decoder, ids[i], out);
    decoder_finish(&decoder, out);
}
