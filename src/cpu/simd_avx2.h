// simd_avx2.h: vector primitives with AVX2, FMA and F16C, and with AVX-VNNI where the compiler is told so. The comments stand in
// simd_128.h.

#ifndef CARAT_CPU_SIMD_AVX2_H
#define CARAT_CPU_SIMD_AVX2_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline, unused))

#ifdef __AVXVNNI__
enum { SIGNED_BIAS = 128 };
#else
enum { SIGNED_BIAS = 0 };
#endif
enum { LANES = 8, GROUP_LANES = 8, TILE_VECTORS = 1, TILE_COLS = 6, SCORE_ROWS = 4, CHAINS = 4 };

typedef __m256 vf;
typedef __m256i vi;
typedef uint8_t b32 __attribute__((vector_size(32)));
typedef __m256i vb;
typedef __m256i vacc;
typedef __m256 vgf;

INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
INLINE __m256i first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf vf_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, first_lanes(n));
}
INLINE void vf_store_part(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, first_lanes(n), x);
}
INLINE vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
INLINE vf vf_abs(vf a)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
INLINE vf vf_select_less(vf a, vf b, vf x, vf y)
{
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE bool vf_any_nan(vf a)
{
    return _mm256_movemask_ps(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)) != 0;
}
INLINE float vf_sum(vf x)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
INLINE float vf_top(vf x)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
INLINE vi vf_round(vf x)
{
    return _mm256_cvtps_epi32(x);
}
INLINE vf vi_to_vf(vi x)
{
    return _mm256_cvtepi32_ps(x);
}
INLINE vf vf_pow2(vi n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
INLINE void vi_store_i8(int8_t *p, vi x)
{
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    _mm_storel_epi64((void *)p, _mm_packs_epi16(words, words));
}
INLINE int32_t vi_sum(vi x)
{
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
INLINE vf vf_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)));
}
INLINE vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
INLINE void vf_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((void *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
INLINE vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p)), 16));
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
INLINE b32 b32_join(const uint8_t *low, const uint8_t *high)
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
    // Byte j of each 8 gets the bits' byte j / 8, of which bit j % 8 is looked at.
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i one_each = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i bytes = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), spread), one_each);
    return (b32)_mm256_and_si256(_mm256_cmpeq_epi8(bytes, one_each), _mm256_set1_epi8((char)value));
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

// Adds the products of each four bytes to a lane. Without VNNI, sums of two products must fit 16 bits: unsigned weights are at
// most 7 bits wide, and signed ones lend their sign to the activations.
INLINE __m256i add_dot4(__m256i acc, __m256i w, __m256i x, bool is_signed)
{
#ifdef __AVXVNNI__
    (void)is_signed;
    return _mm256_dpbusd_avx_epi32(acc, w, x);
#else
    __m256i pairs = is_signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)) : _mm256_maddubs_epi16(w, x);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
INLINE vgf vgf_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE float vgf_sum(vgf x)
{
    return vf_sum(x);
}
INLINE __m256 dot_lanes(b32 w, const int8_t *x, bool is_signed)
{
    __m256i sums = add_dot4(_mm256_setzero_si256(), (__m256i)w, _mm256_loadu_si256((const void *)x), is_signed);
    return _mm256_cvtepi32_ps(sums);
}
INLINE vgf vgf_add_dot32(vgf acc, b32 w, const int8_t *x, float s, bool is_signed)
{
    return _mm256_fmadd_ps(dot_lanes(w, x, is_signed), _mm256_set1_ps(s), acc);
}
INLINE vgf vgf_add_dot16x2(vgf acc, b32 w, const int8_t *x, const float *s, bool is_signed)
{
    __m256 scales = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_set1_ps(s[0])), _mm_set1_ps(s[1]), 1);
    return _mm256_fmadd_ps(dot_lanes(w, x, is_signed), scales, acc);
}

INLINE vb vb_load(const uint8_t *p)
{
    return _mm256_loadu_si256((const void *)p);
}
INLINE vb vb_splat4(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}
INLINE vacc vacc_set(int32_t x, bool is_signed)
{
    (void)is_signed;
    return _mm256_set1_epi32(x);
}
INLINE vacc vacc_dot(vacc acc, vb w, vb x, bool is_signed)
{
    return add_dot4(acc, w, x, is_signed);
}
INLINE vf vacc_to_vf(vacc acc, bool is_signed)
{
    (void)is_signed;
    return _mm256_cvtepi32_ps(acc);
}

#endif
