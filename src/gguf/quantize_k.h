// quantize_k.h: one super-block of 256 values to a K format (inside src/gguf only).

#ifndef CARAT_GGUF_QUANTIZE_K_H
#define CARAT_GGUF_QUANTIZE_K_H

#include <stdint.h>

void gguf_quantize_q4_k(const float *values, uint8_t *block); // 144 bytes
void gguf_quantize_q5_k(const float *values, uint8_t *block); // 176 bytes
void gguf_quantize_q6_k(const float *values, uint8_t *block); // 210 bytes

#endif
