// json_utf8.h: where UTF-8 characters end (inside src/base only).

#ifndef CARAT_BASE_JSON_UTF8_H
#define CARAT_BASE_JSON_UTF8_H

#include <stddef.h>

// Length of the UTF-8 character at s, 0 when the n bytes there begin with none.
static inline size_t utf8_length(const unsigned char *s, size_t n)
{
    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : 0;
    if (length == 0 || length > n)
        return 0;
    for (size_t i = 1; i < length; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    bool overlong = (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
    bool surrogate_or_beyond = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
    return overlong || surrogate_or_beyond ? 0 : length;
}

#endif
