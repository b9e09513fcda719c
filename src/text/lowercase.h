// lowercase.h: case-insensitive order of names, as the chat template sorts them.

#ifndef CARAT_TEXT_LOWERCASE_H
#define CARAT_TEXT_LOWERCASE_H

#include <stdint.h>

// The small letter of a capital, any other character unchanged.
uint32_t lowercase(uint32_t c);

#endif
