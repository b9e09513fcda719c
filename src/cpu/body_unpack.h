// body_unpack.h: GGUF blocks to bytes, scales and minima (quantised block layouts).
//
// A stretch of up to 256 weights becomes  w = s * (u - zero) - m  with one byte u per weight and one s and m per group of 32
// or 16. The 8-bit types are signed bytes, biased by SIGNED_BIAS where the dot product wants unsigned ones.

#ifndef CARAT_CPU_BODY_UNPACK_H
#define CARAT_CPU_BODY_UNPACK_H

#ifdef __F16C__
#include <immintrin.h>
#endif
#include <string.h>

#include "base/number.h"
#include "gguf/types.h"

struct unpacked {
    _Alignas(64) uint8_t u[256];
    float s[16]; // per group
    float m[16]; // per group; only of types that have minima
};

// What the products have to know about a type; always a compile-time constant.
struct layout {
    enum gguf_type type;
    int block_elems, block_bytes;
    bool by_16;   // groups of 16 instead of 32
    bool has_min; // m is set
    bool is_signed;
    int zero;
};

#define K_BLOCK(TYPE, BYTES, BY_16, HAS_MIN, ZERO) ((struct layout){GGUF_TYPE_##TYPE, 256, BYTES, BY_16, HAS_MIN, false, ZERO})
#define SMALL_BLOCK(TYPE, BYTES, HAS_MIN, ZERO) ((struct layout){GGUF_TYPE_##TYPE, 32, BYTES, false, HAS_MIN, false, ZERO})
#define SIGNED_BLOCK(TYPE, ELEMS, BYTES) ((struct layout){GGUF_TYPE_##TYPE, ELEMS, BYTES, false, false, true, SIGNED_BIAS})

// F(name, type, layout) for every quantised type.
#define FOR_EACH_QUANTISED_TYPE(F)                                                                                               \
    F(q4_0, GGUF_TYPE_Q4_0, SMALL_BLOCK(Q4_0, 18, false, 8))                                                                     \
    F(q4_1, GGUF_TYPE_Q4_1, SMALL_BLOCK(Q4_1, 20, true, 0))                                                                      \
    F(q5_0, GGUF_TYPE_Q5_0, SMALL_BLOCK(Q5_0, 22, false, 16))                                                                    \
    F(q5_1, GGUF_TYPE_Q5_1, SMALL_BLOCK(Q5_1, 24, true, 0))                                                                      \
    F(q8_0, GGUF_TYPE_Q8_0, SIGNED_BLOCK(Q8_0, 32, 34))                                                                          \
    F(q2_k, GGUF_TYPE_Q2_K, K_BLOCK(Q2_K, 84, true, true, 0))                                                                    \
    F(q3_k, GGUF_TYPE_Q3_K, K_BLOCK(Q3_K, 110, true, false, 4))                                                                  \
    F(q4_k, GGUF_TYPE_Q4_K, K_BLOCK(Q4_K, 144, false, true, 0))                                                                  \
    F(q5_k, GGUF_TYPE_Q5_K, K_BLOCK(Q5_K, 176, false, true, 0))                                                                  \
    F(q6_k, GGUF_TYPE_Q6_K, K_BLOCK(Q6_K, 210, true, false, 32))                                                                 \
    F(iq4_nl, GGUF_TYPE_IQ4_NL, SIGNED_BLOCK(IQ4_NL, 32, 18))                                                                    \
    F(iq4_xs, GGUF_TYPE_IQ4_XS, SIGNED_BLOCK(IQ4_XS, 256, 136))                                                                  \
    F(mxfp4, GGUF_TYPE_MXFP4, SMALL_BLOCK(MXFP4, 17, false, 12))                                                                 \
    F(nvfp4, GGUF_TYPE_NVFP4, ((struct layout){GGUF_TYPE_NVFP4, 64, 36, true, false, false, 12}))

static const uint8_t iq4_values[16] = {
#define IQ4(X) (uint8_t)((X) + SIGNED_BIAS)
    IQ4(-127), IQ4(-104), IQ4(-83), IQ4(-65), IQ4(-49), IQ4(-35), IQ4(-22), IQ4(-10), IQ4(1), IQ4(13), IQ4(25), IQ4(38), IQ4(53),
    IQ4(69), IQ4(89), IQ4(113)};
static const uint8_t fp4_values[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0}; // twice the value, plus 12

INLINE float load_f16(const uint8_t *p)
{
#if defined(__F16C__)
    return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
#else
    return f32_from_f16(load_u16(p));
#endif
}

INLINE void put(struct unpacked *out, int group32, b32 u)
{
    memcpy(out->u + 32 * group32, &u, sizeof u);
}

INLINE float mxfp4_scale(uint8_t e) // 2^(e - 128)
{
    return f32_from_bits(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

// Half of an unsigned E4M3, whose exponent and mantissa are moved into a float's places (also right for denormals).
INLINE float nvfp4_scale(uint8_t x)
{
    return x == 0x7f ? 0 : f32_from_bits((x & 0x7fu) << 20) * 0x1p119f;
}

// scales[i] = d * (bytes[i] - zero), n a multiple of 8.
INLINE void put_scales(float *scales, const uint8_t *bytes, int n, float d, float zero)
{
    for (int i = 0; i < n; i += LANES)
        vf_store(scales + i, (vf_load_u8(bytes + i) - vf_set1(zero)) * vf_set1(d));
}

// Group g of the 32-element types; `b` is its block.
INLINE void unpack_small_scale(struct layout layout, const uint8_t *b, int g, struct unpacked *out)
{
    out->s[g] = layout.type == GGUF_TYPE_MXFP4 ? mxfp4_scale(b[0]) : load_f16(b);
    if (layout.has_min)
        out->m[g] = -load_f16(b + 2);
}

INLINE void unpack_small(enum gguf_type type, const uint8_t *b, int g, struct unpacked *out)
{
    if (type == GGUF_TYPE_MXFP4)
        put(out, g, b32_lookup(fp4_values, b32_nibbles(b + 1)));
    else if (type == GGUF_TYPE_Q4_0)
        put(out, g, b32_nibbles(b + 2));
    else if (type == GGUF_TYPE_Q4_1)
        put(out, g, b32_nibbles(b + 4));
    else if (type == GGUF_TYPE_Q5_0)
        put(out, g, b32_nibbles(b + 6) | b32_bits(load_u32(b + 2), 16));
    else if (type == GGUF_TYPE_Q5_1)
        put(out, g, b32_nibbles(b + 8) | b32_bits(load_u32(b + 4), 16));
    else if (type == GGUF_TYPE_IQ4_NL)
        put(out, g, b32_lookup(iq4_values, b32_nibbles(b + 2)));
    else
        put(out, g, b32_load(b + 2) ^ (uint8_t)SIGNED_BIAS);
}

typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));

INLINE i32x8 widen_bytes(const void *p)
{
    u8x8 bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, i32x8);
}

// The halves that start eight blocks. They are put together in registers: a vector load of what was just stored in pieces waits.
INLINE void put_halves(float *scales, const uint8_t *b, size_t block_bytes, float sign)
{
    u16x8 halves = {load_u16(b), load_u16(b + block_bytes), load_u16(b + 2 * block_bytes), load_u16(b + 3 * block_bytes),
        load_u16(b + 4 * block_bytes), load_u16(b + 5 * block_bytes), load_u16(b + 6 * block_bytes),
        load_u16(b + 7 * block_bytes)};
    store_halves(scales, halves, sign);
}

// Scales and minima of eight blocks of a 32-element type.
INLINE void unpack_small_scales(struct layout layout, const uint8_t *b, struct unpacked *out)
{
    size_t stride = (size_t)layout.block_bytes;
    if (layout.type == GGUF_TYPE_MXFP4) {
        u8x8 exponents = {
            b[0], b[stride], b[2 * stride], b[3 * stride], b[4 * stride], b[5 * stride], b[6 * stride], b[7 * stride]};
        i32x8 e = __builtin_convertvector(exponents, i32x8), tiny = e < 2;
        i32x8 bits = (tiny & (0x00200000 << (e & 1))) | (~tiny & ((e - 1) << 23)); // as mxfp4_scale
        memcpy(out->s, &bits, sizeof bits);
        return;
    }
    put_halves(out->s, b, stride, 1);
    if (layout.has_min)
        put_halves(out->m, b + 2, stride, -1);
}

INLINE void unpack_nvfp4_scales(const uint8_t *b, struct unpacked *out) // of four blocks
{
    typedef uint32_t u32x4 __attribute__((vector_size(16)));
    u32x4 words = {load_u32(b), load_u32(b + 36), load_u32(b + 72), load_u32(b + 108)};
    for (int i = 0; i < 2; i++) {
        i32x8 codes = widen_bytes((const uint8_t *)&words + 8 * i), valid = codes != 0x7f;
        i32x8 bits = (codes & 0x7f & valid) << 20; // as nvfp4_scale
        f32x8 scales = (f32x8)bits * 0x1p119f;
        memcpy(out->s + 8 * i, &scales, sizeof scales);
    }
}

// 64 elements of NVFP4 as groups 2 * pair and 2 * pair + 1 of 32.
INLINE void unpack_nvfp4(const uint8_t *b, int pair, struct unpacked *out)
{
    for (int i = 0; i < 2; i++)
        put(out, 2 * pair + i, b32_lookup(fp4_values, b32_swap_middle(b32_nibbles(b + 4 + 16 * i))));
}

// The eight 6-bit scales and minima of Q4_K and Q5_K.
INLINE void unpack_scales_k4(const uint8_t *b, struct unpacked *out)
{
    float d = load_f16(b), dmin = load_f16(b + 2);
    uint32_t low = load_u32(b + 4), middle = load_u32(b + 8), high = load_u32(b + 12);
    uint32_t words[4] = {low & 0x3f3f3f3fu, (high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u), middle & 0x3f3f3f3fu,
        (high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u)};
    uint8_t bytes[16 + 8]; // AVX-512 takes 16 at a time
    memcpy(bytes, words, sizeof words);
    put_scales(out->s, bytes, 8, d, 0);
    put_scales(out->m, bytes + 8, 8, dmin, 0);
}

INLINE void unpack_q4_k(const uint8_t *b, struct unpacked *out)
{
    unpack_scales_k4(b, out);
    for (int g = 0; g < 4; g++) {
        b32 bytes = b32_load(b + 16 + 32 * g);
        put(out, 2 * g, bytes & 15);
        put(out, 2 * g + 1, bytes >> 4);
    }
}

INLINE void unpack_q5_k(const uint8_t *b, struct unpacked *out)
{
    unpack_scales_k4(b, out);
    b32 fifth = b32_load(b + 16);
    for (int g = 0; g < 4; g++) {
        b32 bytes = b32_load(b + 48 + 32 * g);
        put(out, 2 * g, (bytes & 15) | ((fifth >> (2 * g) & 1) << 4));
        put(out, 2 * g + 1, bytes >> 4 | ((fifth >> (2 * g + 1) & 1) << 4));
    }
}

INLINE void unpack_q6_k(const uint8_t *b, struct unpacked *out)
{
    float d = load_f16(b + 208);
    uint8_t scales[16];
    for (int i = 0; i < 16; i++)
        scales[i] = b[192 + i] ^ 128;
    put_scales(out->s, scales, 16, d, 128);
    for (int n = 0; n < 2; n++) {
        b32 low = b32_load(b + 64 * n), high = b32_load(b + 64 * n + 32), top = b32_load(b + 128 + 32 * n);
        put(out, 4 * n, (low & 15) | ((top & 3) << 4));
        put(out, 4 * n + 1, (high & 15) | ((top & 12) << 2));
        put(out, 4 * n + 2, low >> 4 | (top & 48));
        put(out, 4 * n + 3, high >> 4 | ((top & 192) >> 2));
    }
}

INLINE void unpack_q2_k(const uint8_t *b, struct unpacked *out)
{
    float d = load_f16(b + 80), dmin = load_f16(b + 82);
    uint8_t scales[16], minima[16];
    for (int i = 0; i < 16; i++) {
        scales[i] = b[i] & 15;
        minima[i] = b[i] >> 4;
    }
    put_scales(out->s, scales, 16, d, 0);
    put_scales(out->m, minima, 16, dmin, 0);
    for (int n = 0; n < 2; n++) {
        b32 bytes = b32_load(b + 16 + 32 * n);
        for (int j = 0; j < 4; j++)
            put(out, 4 * n + j, bytes >> (2 * j) & 3);
    }
}

INLINE void unpack_q3_k(const uint8_t *b, struct unpacked *out)
{
    float d = load_f16(b + 108);
    // Sixteen scales: four low bits from bytes 0..7 (low nibbles, then high), two high bits from bytes 8..11.
    uint32_t first = load_u32(b + 96), second = load_u32(b + 100), high = load_u32(b + 104);
    uint32_t words[4] = {(first & 0x0f0f0f0fu) | (high << 4 & 0x30303030u), (second & 0x0f0f0f0fu) | (high << 2 & 0x30303030u),
        (first >> 4 & 0x0f0f0f0fu) | (high & 0x30303030u), (second >> 4 & 0x0f0f0f0fu) | (high >> 2 & 0x30303030u)};
    uint8_t scales[16];
    memcpy(scales, words, sizeof scales);
    put_scales(out->s, scales, 16, d, 32);
    b32 mask = b32_load(b);
    for (int n = 0; n < 2; n++) {
        b32 bytes = b32_load(b + 32 + 32 * n);
        for (int j = 0; j < 4; j++)
            put(out, 4 * n + j, (bytes >> (2 * j) & 3) | ((mask >> (4 * n + j) & 1) << 2));
    }
}

INLINE void unpack_iq4_xs(const uint8_t *b, struct unpacked *out)
{
    float d = load_f16(b);
    uint32_t high = load_u16(b + 2);
    for (int g = 0; g < 8; g++) {
        uint32_t scale = (b[4 + (g >> 1)] >> (4 * (g & 1)) & 15u) | (high >> (2 * g) & 3u) << 4;
        out->s[g] = d * (float)((int)scale - 32);
        put(out, g, b32_lookup(iq4_values, b32_nibbles(b + 8 + 16 * g)));
    }
}

// n_groups (1 .. 8) groups of 32 from the block at b on. For 256-element types n_groups is 8.
INLINE void unpack(struct layout layout, const uint8_t *b, int n_groups, struct unpacked *out)
{
    switch (layout.type) {
    case GGUF_TYPE_Q2_K:
        unpack_q2_k(b, out);
        break;
    case GGUF_TYPE_Q3_K:
        unpack_q3_k(b, out);
        break;
    case GGUF_TYPE_Q4_K:
        unpack_q4_k(b, out);
        break;
    case GGUF_TYPE_Q5_K:
        unpack_q5_k(b, out);
        break;
    case GGUF_TYPE_Q6_K:
        unpack_q6_k(b, out);
        break;
    case GGUF_TYPE_IQ4_XS:
        unpack_iq4_xs(b, out);
        break;
    case GGUF_TYPE_NVFP4:
        if (n_groups == 8)
            unpack_nvfp4_scales(b, out);
        for (int i = 0; n_groups < 8 && i < 2 * n_groups; i++)
            out->s[i] = nvfp4_scale(b[layout.block_bytes * (i / 4) + i % 4]);
        for (int pair = 0; 2 * pair < n_groups; pair++)
            unpack_nvfp4(b + layout.block_bytes * pair, pair, out);
        break;
    default:
        if (n_groups == 8)
            unpack_small_scales(layout, b, out);
        for (int g = 0; n_groups < 8 && g < n_groups; g++)
            unpack_small_scale(layout, b + layout.block_bytes * g, g, out);
        for (int g = 0; g < n_groups; g++)
            unpack_small(layout.type, b + layout.block_bytes * g, g, out);
        break;
    }
}

// Groups of 32 in the stretch of up to 256 elements at k; a constant for the 256-element types.
INLINE int groups_at(struct layout layout, int32_t k, int32_t n_in)
{
    return layout.block_elems == 256 || n_in - k >= 256 ? 8 : (n_in - k) / 32;
}

INLINE const uint8_t *block_at(struct layout layout, const uint8_t *row, int32_t k)
{
    return row + (size_t)(k / layout.block_elems) * (size_t)layout.block_bytes;
}

#endif
