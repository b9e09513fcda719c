// number.h: 16-bit floats, checked arithmetic, little-endian loads and stores.

#ifndef CARAT_BASE_NUMBER_H
#define CARAT_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// IEEE half to float, exact, denormals and infinities included.
static inline float f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = (half >> 10) & 31u;
    uint32_t mantissa = half & 0x3ffu;
    if (exponent == 31)
        return f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent != 0)
        return f32_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float magnitude = (float)mantissa * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

// Float to IEEE half, rounding to nearest even; too large becomes infinity, NaN stays NaN.
static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return sign | 0x7e00u;
    if (magnitude >= 0x477ff000u)
        return sign | 0x7c00u;
    if (magnitude < 0x38800000u) { // a denormal half: let the float adder round at 2^-24
        float shifted = f32_from_bits(magnitude) + 0.5f;
        return (uint16_t)(sign | (f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

static inline float f32_from_bf16(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

// Float to bfloat16, rounding to nearest even; NaN stays NaN.
static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

// *sum = a + b; false on overflow.
static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

// *product = a * b; false on overflow.
static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

static inline uint16_t load_u16(const void *bytes)
{
    const uint8_t *b = bytes;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t load_u32(const void *bytes)
{
    const uint8_t *b = bytes;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t load_u64(const void *bytes)
{
    return (uint64_t)load_u32(bytes) | (uint64_t)load_u32((const uint8_t *)bytes + 4) << 32;
}

// Stores give the place after what they wrote.
static inline uint8_t *store_u16(uint8_t *at, uint16_t value)
{
    at[0] = (uint8_t)value;
    at[1] = (uint8_t)(value >> 8);
    return at + 2;
}

static inline uint8_t *store_u32(uint8_t *at, uint32_t value)
{
    return store_u16(store_u16(at, (uint16_t)value), (uint16_t)(value >> 16));
}

static inline uint8_t *store_u64(uint8_t *at, uint64_t value)
{
    return store_u32(store_u32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

#endif
