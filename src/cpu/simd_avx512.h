// simd_avx512.h: vector primitives with AVX-512 (F, BW, DQ, VL, VNNI). The comments stand in simd_128.h.

#ifndef CARAT_CPU_SIMD_AVX512_H
#define CARAT_CPU_SIMD_AVX512_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

enum { LANES = 16, GROUP_LANES = 8, SIGNED_BIAS = 128, TILE_VECTORS = 2, TILE_COLS = 6, SCORE_ROWS = 8, CHAINS = 1 };

typedef __m512 vf;
typedef __m512i vi;
typedef uint8_t b32 __attribute__((vector_size(32)));
typedef __m512i vb;
typedef __m512i vacc;
typedef __m256 vgf;

INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
INLINE __mmask16 first_lanes(int n)
{
    return (__mmask16)((1u << n) - 1);
}
INLINE vf vf_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
INLINE void vf_store_part(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, first_lanes(n), x);
}
INLINE vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vf vf_abs(vf a)
{
    return _mm512_abs_ps(a);
}
INLINE vf vf_select_less(vf a, vf b, vf x, vf y)
{
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
INLINE bool vf_any_nan(vf a)
{
    return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q) != 0;
}
INLINE float vf_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
INLINE float vf_top(vf x)
{
    return _mm512_reduce_max_ps(x);
}
INLINE vi vf_round(vf x)
{
    return _mm512_cvtps_epi32(x);
}
INLINE vf vi_to_vf(vi x)
{
    return _mm512_cvtepi32_ps(x);
}
INLINE vf vf_pow2(vi n)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
INLINE void vi_store_i8(int8_t *p, vi x)
{
    _mm_storeu_si128((void *)p, _mm512_cvtepi32_epi8(x));
}
INLINE int32_t vi_sum(vi x)
{
    return _mm512_reduce_add_epi32(x);
}
INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
}
INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p)), 16));
}

typedef uint16_t u16x8 __attribute__((vector_size(16)));
INLINE void store_halves(float *p, u16x8 halves, float sign)
{
    _mm256_storeu_ps(p, _mm256_mul_ps(_mm256_cvtph_ps((__m128i)halves), _mm256_set1_ps(sign)));
}

INLINE b32 b32_load(const void *p)
{
    return (b32)_mm256_loadu_si256(p);
}
INLINE b32 b32_join(const uint8_t *low, const uint8_t *high) // 16 bytes each
{
    return (b32)_mm256_inserti128_si256(
        _mm256_castsi128_si256(_mm_loadu_si128((const void *)low)), _mm_loadu_si128((const void *)high), 1);
}
INLINE b32 b32_nibbles(const uint8_t *p)
{
    __m128i bytes = _mm_loadu_si128((const void *)p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(bytes), _mm_srli_epi16(bytes, 4), 1);
    return (b32)_mm256_and_si256(both, _mm256_set1_epi8(15));
}
INLINE b32 b32_bits(uint32_t bits, uint8_t value)
{
    return (b32)_mm256_maskz_set1_epi8(bits, (char)value);
}
INLINE b32 b32_lookup(const uint8_t *table, b32 index)
{
    __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)table));
    return (b32)_mm256_shuffle_epi8(both, (__m256i)index);
}
INLINE b32 b32_swap_middle(b32 x)
{
    return (b32)_mm256_permute4x64_epi64((__m256i)x, 0xd8);
}

INLINE __m256i dot_lanes(b32 w, const int8_t *x)
{
    return _mm256_dpbusd_epi32(_mm256_setzero_si256(), (__m256i)w, _mm256_loadu_si256((const void *)x));
}
INLINE vgf vgf_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE float vgf_sum(vgf x)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
INLINE vgf vgf_add_dot32(vgf acc, b32 w, const int8_t *x, float s, bool is_signed)
{
    (void)is_signed;
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_lanes(w, x)), _mm256_set1_ps(s), acc);
}
INLINE vgf vgf_add_dot16x2(vgf acc, b32 w, const int8_t *x, const float *s, bool is_signed)
{
    (void)is_signed;
    __m256 scales = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_set1_ps(s[0])), _mm_set1_ps(s[1]), 1);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot_lanes(w, x)), scales, acc);
}

INLINE vb vb_load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}
INLINE vb vb_splat4(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
INLINE vacc vacc_set(int32_t x, bool is_signed)
{
    (void)is_signed;
    return _mm512_set1_epi32(x);
}
INLINE vacc vacc_dot(vacc acc, vb w, vb x, bool is_signed)
{
    (void)is_signed;
    return _mm512_dpbusd_epi32(acc, w, x);
}
INLINE vf vacc_to_vf(vacc acc, bool is_signed)
{
    (void)is_signed;
    return _mm512_cvtepi32_ps(acc);
}

#endif
