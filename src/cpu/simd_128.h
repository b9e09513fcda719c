// simd_128.h: vector primitives for 16-byte vectors: NEON, WebAssembly SIMD, and plain C through the compilers' vector types.
//
// simd_avx2.h and simd_avx512.h define the same names for wider vectors:
//   vf    LANES floats            vi    LANES 32-bit integers
//   b32   32 bytes, the unit in which weights are unpacked, whatever the vector's width
//   vgf   float sums of a dot product over consecutive elements
//   vb    as many bytes as a vector has: four consecutive bytes of LANES rows (panels of product_wide)
//   vacc  integer sums of LANES rows
// SIGNED_BIAS is what is added to signed 8-bit weights where the dot product wants unsigned ones; 0: it takes signed ones.
// TILE_VECTORS x TILE_COLS is the register tile of product_wide, SCORE_ROWS that of attention.

#ifndef CARAT_CPU_SIMD_128_H
#define CARAT_CPU_SIMD_128_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/number.h"

#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__wasm_simd128__)
#include <wasm_simd128.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))

enum { LANES = 4, GROUP_LANES = 4, SIGNED_BIAS = 0, SCORE_ROWS = 4, CHAINS = 1 };
#if defined(__ARM_NEON)
enum { TILE_VECTORS = 2, TILE_COLS = 4 };
#else
enum { TILE_VECTORS = 1, TILE_COLS = 4 };
#endif

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef uint8_t b16 __attribute__((vector_size(16)));
typedef uint8_t b32 __attribute__((vector_size(32)));
typedef b16 vb;
typedef vf vgf;

INLINE vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void vf_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}
INLINE vf vf_load_part(const float *p, int n)
{
    vf x = {0};
    memcpy(&x, p, (size_t)n * sizeof(float));
    return x;
}
INLINE void vf_store_part(float *p, vf x, int n)
{
    memcpy(p, &x, (size_t)n * sizeof(float));
}
INLINE vf vf_set1(float x)
{
    return (vf){x, x, x, x};
}
INLINE vf vf_fma(vf a, vf b, vf c) // a * b + c, in one rounding where that costs nothing
{
#if defined(__ARM_NEON)
    return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#elif defined(__wasm_relaxed_simd__)
    return (vf)wasm_f32x4_relaxed_madd((v128_t)a, (v128_t)b, (v128_t)c);
#else
    return a * b + c;
#endif
}
INLINE vf vf_pick(vi mask, vf x, vf y)
{
    return (vf)(((vi)x & mask) | ((vi)y & ~mask));
}
INLINE vf vf_select_less(vf a, vf b, vf x, vf y)
{
    return vf_pick(a < b, x, y);
} // lanes of x where a < b, else of y
INLINE vf vf_max(vf a, vf b)
{
    return vf_pick(a > b, a, b);
} // b when either is NaN
INLINE vf vf_min(vf a, vf b)
{
    return vf_pick(a < b, a, b);
}
INLINE vf vf_abs(vf a)
{
    return (vf)((vu)a & 0x7fffffffu);
}
INLINE bool vf_any_nan(vf a)
{
    vi is_nan = a != a;
    return (is_nan[0] | is_nan[1] | is_nan[2] | is_nan[3]) != 0;
}
INLINE float vf_sum(vf x)
{
    return (x[0] + x[2]) + (x[1] + x[3]);
}
INLINE float vf_top(vf x)
{
    float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}
INLINE vf vi_to_vf(vi x)
{
    return __builtin_convertvector(x, vf);
}
INLINE vi vf_round(vf x) // to nearest even, for |x| < 2^22
{
    const vf magic = vf_set1(12582912.0f);
    return (vi)(x + magic) - (vi)magic;
}
INLINE vf vf_pow2(vi n)
{
    return (vf)((n + 127) << 23);
} // n in -126 .. 127
INLINE void vi_store_i8(int8_t *p, vi x)
{
    for (int i = 0; i < 4; i++)
        p[i] = (int8_t)x[i];
}
INLINE int32_t vi_sum(vi x)
{
    return x[0] + x[1] + x[2] + x[3];
}
INLINE vf vf_load_u8(const uint8_t *p)
{
    typedef uint8_t u8x4 __attribute__((vector_size(4)));
    u8x4 x;
    memcpy(&x, p, sizeof x);
    return vi_to_vf(__builtin_convertvector(x, vi));
}
INLINE vu load_u16x4(const uint16_t *p)
{
    typedef uint16_t u16x4 __attribute__((vector_size(8)));
    u16x4 x;
    memcpy(&x, p, sizeof x);
    return __builtin_convertvector(x, vu);
}
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    for (int i = 0; i < 4; i++)
        p[i] = f16_from_f32(x[i]);
}
INLINE vf vf_load_bf16(const uint16_t *p)
{
    return (vf)(load_u16x4(p) << 16);
}
INLINE vf vf_from_halves(vu halves)
{
    // The half's bits in a float's places, times 2^112: exact for normal and denormal halves. Infinity and NaN are put right.
    vu magnitude = (halves & 0x7fffu) << 13;
    vu special = (vu)(magnitude >= 0x0f800000u) & 0x7f800000u;
    vu value = (vu)((vf)magnitude * vf_set1(0x1p112f)) | special;
    return (vf)(value | (halves & 0x8000u) << 16);
}
INLINE vf vf_load_f16(const uint16_t *p)
{
#if defined(__ARM_NEON)
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
#else
    return vf_from_halves(load_u16x4(p));
#endif
}
typedef uint16_t u16x8 __attribute__((vector_size(16)));
INLINE void store_halves(float *p, u16x8 halves, float sign) // eight floats, times sign
{
    vu low = __builtin_convertvector(__builtin_shufflevector(halves, halves, 0, 1, 2, 3), vu);
    vu high = __builtin_convertvector(__builtin_shufflevector(halves, halves, 4, 5, 6, 7), vu);
    vf_store(p, vf_from_halves(low) * vf_set1(sign));
    vf_store(p + 4, vf_from_halves(high) * vf_set1(sign));
}

INLINE b16 b16_load(const void *p)
{
    b16 x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE b32 b32_load(const void *p)
{
    b32 x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE b32 b32_from(b16 low, b16 high)
{
    return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22,
        23, 24, 25, 26, 27, 28, 29, 30, 31);
}
INLINE b16 b32_half(b32 x, int which)
{
    b16 halves[2];
    memcpy(halves, &x, sizeof x);
    return halves[which];
}
INLINE b32 b32_join(const uint8_t *low, const uint8_t *high)
{
    return b32_from(b16_load(low), b16_load(high));
}
INLINE b32 b32_nibbles(const uint8_t *p) // 16 low nibbles, then the 16 high ones
{
    b16 x = b16_load(p);
    return b32_from(x & 15, x >> 4);
}
INLINE b32 b32_bits(uint32_t bits, uint8_t value) // byte j is value where bit j is set, else 0
{
    const b16 bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    b16 low, high;
    for (int i = 0; i < 8; i++) {
        low[i] = (uint8_t)bits;
        low[i + 8] = (uint8_t)(bits >> 8);
        high[i] = (uint8_t)(bits >> 16);
        high[i + 8] = (uint8_t)(bits >> 24);
    }
    return b32_from((b16)((low & bit) == bit) & value, (b16)((high & bit) == bit) & value);
}
INLINE b16 b16_lookup(const uint8_t *table, b16 index) // index < 16
{
#if defined(__ARM_NEON)
    return (b16)vqtbl1q_u8(vld1q_u8(table), (uint8x16_t)index);
#elif defined(__wasm_simd128__)
    return (b16)wasm_i8x16_swizzle(wasm_v128_load(table), (v128_t)index);
#else
    b16 out;
    for (int i = 0; i < 16; i++)
        out[i] = table[index[i]];
    return out;
#endif
}
INLINE b32 b32_lookup(const uint8_t *table, b32 index)
{
    return b32_from(b16_lookup(table, b32_half(index, 0)), b16_lookup(table, b32_half(index, 1)));
}
INLINE b32 b32_swap_middle(b32 x) // exchanges bytes 8..15 with 16..23
{
    return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23, 8, 9, 10, 11, 12, 13, 14, 15, 24,
        25, 26, 27, 28, 29, 30, 31);
}

// Products of 16 bytes of weights and activations, added up in lanes in any order. Unsigned weights are at most 7 bits wide.
INLINE vi add_dot(vi acc, b16 w, b16 x, bool is_signed)
{
#if defined(__ARM_FEATURE_DOTPROD)
    (void)is_signed;
    return (vi)vdotq_s32((int32x4_t)acc, (int8x16_t)w, (int8x16_t)x);
#elif defined(__ARM_NEON)
    (void)is_signed;
    int16x8_t products = vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x));
    products = vmlal_s8(products, vget_high_s8((int8x16_t)w), vget_high_s8((int8x16_t)x));
    return (vi)vpadalq_s16((int32x4_t)acc, products);
#elif defined(__wasm_simd128__)
#ifdef __wasm_relaxed_simd__
    if (!is_signed)
        return (vi)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)x, (v128_t)w, (v128_t)acc);
#endif
    (void)is_signed;
    v128_t products =
        wasm_i16x8_add(wasm_i16x8_extmul_low_i8x16((v128_t)w, (v128_t)x), wasm_i16x8_extmul_high_i8x16((v128_t)w, (v128_t)x));
    return acc + (vi)wasm_i32x4_extadd_pairwise_i16x8(products);
#else
    (void)is_signed;
    const int8_t *a = (const int8_t *)&w, *b = (const int8_t *)&x;
    for (int i = 0; i < 4; i++)
        acc[i] += a[4 * i] * b[4 * i] + a[4 * i + 1] * b[4 * i + 1] + a[4 * i + 2] * b[4 * i + 2] + a[4 * i + 3] * b[4 * i + 3];
    return acc;
#endif
}
INLINE vgf vgf_zero(void)
{
    return vf_set1(0);
}
INLINE float vgf_sum(vgf x)
{
    return vf_sum(x);
}
INLINE vgf vgf_add_dot32(vgf acc, b32 w, const int8_t *x, float s, bool is_signed)
{
    vi sums = add_dot((vi){0}, b32_half(w, 0), b16_load(x), is_signed);
    sums = add_dot(sums, b32_half(w, 1), b16_load(x + 16), is_signed);
    return vf_fma(vi_to_vf(sums), vf_set1(s), acc);
}
INLINE vgf vgf_add_dot16x2(vgf acc, b32 w, const int8_t *x, const float *s, bool is_signed) // scale s[0], then s[1]
{
    acc = vf_fma(vi_to_vf(add_dot((vi){0}, b32_half(w, 0), b16_load(x), is_signed)), vf_set1(s[0]), acc);
    return vf_fma(vi_to_vf(add_dot((vi){0}, b32_half(w, 1), b16_load(x + 16), is_signed)), vf_set1(s[1]), acc);
}

INLINE vb vb_load(const uint8_t *p)
{
    return b16_load(p);
}
INLINE vb vb_splat4(const int8_t *p) // the same four bytes in every lane
{
    int32_t four;
    memcpy(&four, p, 4);
    return (vb)(vi){four, four, four, four};
}

// Here each lane must hold its own row. Where only sums of pairs are offered, two of them per row are kept until the end.
#if defined(__wasm_simd128__)
typedef struct {
    vi low, high;
} vacc;
#ifdef __wasm_relaxed_simd__
enum { ROW_PER_LANE = 1 }; // for unsigned weights
#else
enum { ROW_PER_LANE = 0 };
#endif
INLINE vacc vacc_set(int32_t x, bool is_signed)
{
    if (ROW_PER_LANE && !is_signed)
        return (vacc){.low = {x, x, x, x}};
    return (vacc){.low = {x, 0, x, 0}, .high = {x, 0, x, 0}};
}
INLINE vacc vacc_dot(vacc acc, vb w, vb x, bool is_signed)
{
#ifdef __wasm_relaxed_simd__
    if (!is_signed) {
        acc.low = (vi)wasm_i32x4_relaxed_dot_i8x16_i7x16_add((v128_t)x, (v128_t)w, (v128_t)acc.low);
        return acc;
    }
#endif
    (void)is_signed;
    acc.low += (vi)wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extmul_low_i8x16((v128_t)w, (v128_t)x));
    acc.high += (vi)wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extmul_high_i8x16((v128_t)w, (v128_t)x));
    return acc;
}
INLINE vf vacc_to_vf(vacc acc, bool is_signed)
{
    if (ROW_PER_LANE && !is_signed)
        return vi_to_vf(acc.low);
    vi even = __builtin_shufflevector(acc.low, acc.high, 0, 2, 4, 6),
       odd = __builtin_shufflevector(acc.low, acc.high, 1, 3, 5, 7);
    return vi_to_vf(even + odd);
}
#else
typedef vi vacc;
INLINE vacc vacc_set(int32_t x, bool is_signed)
{
    (void)is_signed;
    return (vi){x, x, x, x};
}
INLINE vacc vacc_dot(vacc acc, vb w, vb x, bool is_signed)
{
#if defined(__ARM_NEON) && !defined(__ARM_FEATURE_DOTPROD)
    (void)is_signed;
    int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8((int8x16_t)w), vget_low_s8((int8x16_t)x)));
    int32x4_t high = vpaddlq_s16(vmull_s8(vget_high_s8((int8x16_t)w), vget_high_s8((int8x16_t)x)));
    return acc + (vi)vpaddq_s32(low, high);
#else
    return add_dot(acc, w, x, is_signed);
#endif
}
INLINE vf vacc_to_vf(vacc acc, bool is_signed)
{
    (void)is_signed;
    return vi_to_vf(acc);
}
#endif

#endif
