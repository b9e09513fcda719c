// quants.h: conversion between f32 and the block formats of GGUF (format definition: quantised block layouts).
//
// Blocks may lie at any address. Dequantised K-quant values are (d * scale) * q - (dmin * minimum) in f32, so the bits agree
// with the usual implementations.

#ifndef CARAT_GGUF_QUANTS_H
#define CARAT_GGUF_QUANTS_H

#include <stdbool.h>
#include <stddef.h>

#include "gguf/types.h"

// out[0..n_elems) = the values of the blocks. n_elems is a multiple of the type's block.
// False, touching nothing, when gguf_type_info(type)->supported is false or n_elems is no multiple.
bool gguf_dequantize(enum gguf_type type, const void *blocks, float *out, size_t n_elems);

// The opposite, for F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q5_1 Q4_K Q5_K Q6_K; false for any other type or a broken multiple.
// 32-element blocks round to nearest, the scale taken from the extreme values. K quants search scales and minima for the least
// squared error. Input must be finite; a scale beyond 16 bits is cut to the largest one.
bool gguf_quantize(enum gguf_type type, const float *values, void *blocks, size_t n_elems);

// True when gguf_quantize can write the type.
bool gguf_can_quantize(enum gguf_type type);

#endif
