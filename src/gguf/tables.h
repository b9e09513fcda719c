// tables.h: constants and bit layouts that several users of the block formats share.

#ifndef CARAT_GGUF_TABLES_H
#define CARAT_GGUF_TABLES_H

#include <stdint.h>

// IQ4_NL and IQ4_XS: what the sixteen codes stand for.
static const int8_t gguf_iq4_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

// MXFP4 and NVFP4: twice the value of the sixteen FP4 codes.
static const int8_t gguf_fp4_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Q4_K and Q5_K: the 6-bit scale and minimum of sub-block j (0..7) from the 12 packed bytes.
static inline int gguf_k4_scale(const uint8_t *b, int j)
{
    return j < 4 ? b[j] & 63 : (b[j + 4] & 15) | (b[j - 4] >> 6) << 4;
}

static inline int gguf_k4_minimum(const uint8_t *b, int j)
{
    return j < 4 ? b[j + 4] & 63 : b[j + 4] >> 4 | (b[j] >> 6) << 4;
}

#endif
