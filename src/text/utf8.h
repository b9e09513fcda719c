// utf8.h: reading and writing UTF-8 character by character, with everything malformed found (Unicode 15, table 3-7).

#ifndef CARAT_TEXT_UTF8_H
#define CARAT_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A byte that is no UTF-8 is given this plus its value, so that it stays apart from every character.
enum { UTF8_INVALID = 0x110000 };

// How a sequence that starts with a lead byte goes on: its length, and the range of the second byte.
// No overlong forms, no surrogates, nothing above U+10FFFF. Length 0: no lead byte.
static inline size_t utf8_lead(uint8_t lead, uint8_t *second_min, uint8_t *second_max)
{
    *second_min = 0x80;
    *second_max = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    if (lead == 0xe0)
        *second_min = 0xa0;
    else if (lead == 0xed)
        *second_max = 0x9f;
    else if (lead == 0xf0)
        *second_min = 0x90;
    else if (lead == 0xf4)
        *second_max = 0x8f;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// The character at the start of n >= 1 bytes; *length is how many bytes it takes (1 for an invalid byte).
static inline uint32_t utf8_decode(const char *text, size_t n, size_t *length)
{
    const uint8_t *b = (const uint8_t *)text;
    uint8_t min, max;
    *length = 1;
    if (b[0] < 0x80)
        return b[0];
    size_t want = utf8_lead(b[0], &min, &max);
    if (want == 0 || want > n || b[1] < min || b[1] > max)
        return UTF8_INVALID + b[0];
    uint32_t c = (b[0] & (0x7fu >> want)) << 6 | (b[1] & 0x3fu);
    for (size_t i = 2; i < want; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return UTF8_INVALID + b[0];
        c = c << 6 | (b[i] & 0x3fu);
    }
    *length = want;
    return c;
}

// The last character of n >= 1 bytes, in the same terms.
static inline uint32_t utf8_decode_last(const char *text, size_t n, size_t *length)
{
    for (size_t back = 2; back <= 4 && back <= n; back++) {
        uint32_t c = utf8_decode(text + n - back, back, length);
        if (*length == back)
            return c;
        if (((uint8_t)text[n - back] & 0xc0) != 0x80)
            break;
    }
    *length = 1;
    uint8_t last = (uint8_t)text[n - 1];
    return last < 0x80 ? last : UTF8_INVALID + last;
}

// Writes a character, or the byte of UTF8_INVALID + byte; returns the bytes written (at most 4).
static inline size_t utf8_encode(uint32_t c, uint8_t bytes[4])
{
    if (c < 0x80 || c >= UTF8_INVALID) {
        bytes[0] = (uint8_t)(c < 0x80 ? c : c - UTF8_INVALID);
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        bytes[i] = (uint8_t)(0x80 | (c & 0x3f));
    bytes[0] = (uint8_t)((0xf00 >> n & 0xf0) | c);
    return n;
}

// White space as the reference templates strip it (Python's str.strip): not U+200B, not U+FEFF.
static inline bool utf8_is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

#endif
