// narrow_avx512.h: products with a few columns, 256 weights at a time in four vectors (AVX-512 with VBMI and VNNI).
//
// Every type is brought into one form: vector j holds weights 64j .. 64j + 63 as unsigned bytes, and scales and minima come as 16
// floats, one per 16 weights (twice the same where a group has 32). A lane of the integer sums belongs to 4 weights, so the
// factors of vector j are the scales 4j .. 4j + 3, each four times. What zero points and minima take away is one multiplication
// with the sums of the activations.

#ifndef CARAT_CPU_NARROW_AVX512_H
#define CARAT_CPU_NARROW_AVX512_H

#include "cpu/body_product.h"

struct stretch512 {
    __m512i u[4];
    __m512 s, m; // per 16 weights; m only of types that have minima
};

INLINE __m512i twice_each(__m128i bytes) // 8 bytes in the low half become 16 ints
{
    return _mm512_cvtepu8_epi32(_mm_unpacklo_epi8(bytes, bytes));
}
INLINE __m512 floats_twice(__m256 x)
{
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(x));
}
INLINE __m512i low_high_32(const uint8_t *p) // the low nibbles of 32 bytes, then the high ones
{
    __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)p));
    const __m512i shifts = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(4), 1);
    return _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi8(15));
}
// For two times 16 bytes: low nibbles, high nibbles, each 16.
INLINE __m512i low_high_16(const uint8_t *a, const uint8_t *b)
{
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)a))),
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)b)), 1);
    const __m512i shifts =
        _mm512_setr_epi64(0, 0, 0x0004000400040004, 0x0004000400040004, 0, 0, 0x0004000400040004, 0x0004000400040004);
    return _mm512_and_si512(_mm512_srlv_epi16(both, shifts), _mm512_set1_epi8(15));
}
// Each byte of the 32 (repeated in both halves) shifted right by `low` or, in the upper half, `high`; negative: left.
INLINE __m512i shift_halves(__m512i both, int low, int high)
{
    const __m256i bytes = _mm256_set1_epi64x(0x3830282018100800);
    __m256i first = _mm256_add_epi8(bytes, _mm256_set1_epi8((char)low)),
            second = _mm256_add_epi8(bytes, _mm256_set1_epi8((char)high));
    __m512i control = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return _mm512_multishift_epi64_epi8(control, both);
}
INLINE __m512i select_bits(__m512i mask, __m512i ones, __m512i zeros) // mask ? ones : zeros, bit by bit
{
    return _mm512_ternarylogic_epi64(mask, ones, zeros, 0xca);
}
INLINE __m512i lookup_64(const uint8_t *table, __m512i index)
{
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const void *)table)), index);
}

// --- scales ---

INLINE void scales_k4_512(const uint8_t *b, struct stretch512 *out)
{
    uint32_t low = load_u32(b + 4), middle = load_u32(b + 8), high = load_u32(b + 12);
    uint64_t scales = (uint64_t)((high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)) << 32 | (low & 0x3f3f3f3fu);
    uint64_t minima = (uint64_t)((high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u)) << 32 | (middle & 0x3f3f3f3fu);
    __m128 factors = _mm_cvtph_ps(_mm_cvtsi32_si128((int)load_u32(b)));
    __m512 d = _mm512_broadcastss_ps(factors), dmin = _mm512_broadcastss_ps(_mm_movehdup_ps(factors));
    out->s = _mm512_mul_ps(d, _mm512_cvtepi32_ps(twice_each(_mm_cvtsi64_si128((long long)scales))));
    out->m = _mm512_mul_ps(dmin, _mm512_cvtepi32_ps(twice_each(_mm_cvtsi64_si128((long long)minima))));
}

// The halves that start eight blocks, as floats, each twice.
INLINE __m512 eight_halves(const uint8_t *b, size_t block_bytes)
{
    uint64_t words[2];
    for (size_t i = 0; i < 2; i++) {
        const uint8_t *p = b + 4 * i * block_bytes;
        words[i] = (uint64_t)load_u16(p) | (uint64_t)load_u16(p + block_bytes) << 16 |
                   (uint64_t)load_u16(p + 2 * block_bytes) << 32 | (uint64_t)load_u16(p + 3 * block_bytes) << 48;
    }
    return floats_twice(_mm256_cvtph_ps(_mm_set_epi64x((long long)words[1], (long long)words[0])));
}

INLINE void scales_small_512(struct layout layout, const uint8_t *b, struct stretch512 *out)
{
    size_t stride = (size_t)layout.block_bytes;
    if (layout.type == GGUF_TYPE_MXFP4) {
        uint64_t e = 0;
        for (size_t i = 0; i < 8; i++)
            e |= (uint64_t)b[i * stride] << (8 * i);
        __m512i exponent = twice_each(_mm_cvtsi64_si128((long long)e));
        __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(exponent, _mm512_set1_epi32(1)), 23);
        __m512i denormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), exponent);
        __mmask16 tiny = _mm512_cmplt_epi32_mask(exponent, _mm512_set1_epi32(2));
        out->s = _mm512_castsi512_ps(_mm512_mask_blend_epi32(tiny, normal, denormal));
        return;
    }
    out->s = eight_halves(b, stride);
    if (layout.has_min)
        out->m = _mm512_sub_ps(_mm512_setzero_ps(), eight_halves(b + 2, stride));
}

// --- weights ---

INLINE void weights_small_512(struct layout layout, const uint8_t *b, struct stretch512 *out)
{
    size_t stride = (size_t)layout.block_bytes;
    for (size_t j = 0; j < 4; j++) {
        const uint8_t *first = b + 2 * j * stride, *second = first + stride;
        if (layout.type == GGUF_TYPE_Q8_0) {
            __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256((const void *)(first + 2))),
                _mm256_loadu_si256((const void *)(second + 2)), 1);
            out->u[j] = _mm512_xor_si512(both, _mm512_set1_epi8((char)0x80));
            continue;
        }
        __m512i u = low_high_16(first + stride - 16, second + stride - 16); // the nibbles end every block
        if (layout.type == GGUF_TYPE_IQ4_NL)
            u = lookup_64(iq4_values, u);
        else if (layout.type == GGUF_TYPE_MXFP4)
            u = lookup_64(fp4_values, u);
        else if (layout.type == GGUF_TYPE_Q5_0 || layout.type == GGUF_TYPE_Q5_1) {
            uint64_t bits = (uint64_t)load_u32(second + stride - 20) << 32 | load_u32(first + stride - 20);
            u = _mm512_or_si512(u, _mm512_maskz_set1_epi8(bits, 16));
        }
        out->u[j] = u;
    }
}

INLINE void weights_q4_k_512(const uint8_t *b, struct stretch512 *out)
{
    for (int j = 0; j < 4; j++)
        out->u[j] = low_high_32(b + 16 + 32 * j);
}

INLINE void weights_q5_k_512(const uint8_t *b, struct stretch512 *out)
{
    __m512i fifth = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(b + 16)));
    for (int j = 0; j < 4; j++) {
        __m512i top = shift_halves(fifth, 2 * j - 4, 2 * j - 3);
        out->u[j] = select_bits(_mm512_set1_epi8(16), top, low_high_32(b + 48 + 32 * j));
    }
}

INLINE void load_q6_k_512(const uint8_t *b, struct stretch512 *out)
{
    const __m512i nibble = _mm512_set1_epi8(15), top_bits = _mm512_set1_epi8(0x30);
    for (int n = 0; n < 2; n++) {
        __m512i bytes = _mm512_loadu_si512(b + 64 * n);
        __m512i top = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(b + 128 + 32 * n)));
        out->u[2 * n] = select_bits(top_bits, shift_halves(top, -4, -2), _mm512_and_si512(bytes, nibble));
        out->u[2 * n + 1] = select_bits(top_bits, shift_halves(top, 0, 2), _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble));
    }
    __m512i scales = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(b + 192)));
    out->s = _mm512_mul_ps(_mm512_set1_ps(load_f16(b + 208)), _mm512_cvtepi32_ps(scales));
}

INLINE void load_q2_k_512(const uint8_t *b, struct stretch512 *out)
{
    for (int n = 0; n < 2; n++) {
        __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(b + 16 + 32 * n)));
        for (int j = 0; j < 2; j++)
            out->u[2 * n + j] = _mm512_and_si512(shift_halves(both, 4 * j, 4 * j + 2), _mm512_set1_epi8(3));
    }
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)b));
    __m512i scales = _mm512_and_si512(bytes, _mm512_set1_epi32(15)), minima = _mm512_srli_epi32(bytes, 4);
    out->s = _mm512_mul_ps(_mm512_set1_ps(load_f16(b + 80)), _mm512_cvtepi32_ps(scales));
    out->m = _mm512_mul_ps(_mm512_set1_ps(load_f16(b + 82)), _mm512_cvtepi32_ps(minima));
}

INLINE void load_q3_k_512(const uint8_t *b, struct stretch512 *out)
{
    __m512i mask = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)b));
    for (int n = 0; n < 2; n++) {
        __m512i both = _mm512_broadcast_i64x4(_mm256_loadu_si256((const void *)(b + 32 + 32 * n)));
        for (int j = 0; j < 2; j++) {
            __m512i low = _mm512_and_si512(shift_halves(both, 4 * j, 4 * j + 2), _mm512_set1_epi8(3));
            __m512i top = shift_halves(mask, 4 * n + 2 * j - 2, 4 * n + 2 * j - 1);
            out->u[2 * n + j] = select_bits(_mm512_set1_epi8(4), top, low);
        }
    }
    // Sixteen scales: four low bits from bytes 0..7 (low nibbles, then high), two high bits from bytes 8..11.
    uint32_t first = load_u32(b + 96), second = load_u32(b + 100), high = load_u32(b + 104);
    __m128i low4 = _mm_setr_epi32((int)(first & 0x0f0f0f0fu), (int)(second & 0x0f0f0f0fu), (int)(first >> 4 & 0x0f0f0f0fu),
        (int)(second >> 4 & 0x0f0f0f0fu));
    __m128i high2 = _mm_setr_epi32((int)(high << 4 & 0x30303030u), (int)(high << 2 & 0x30303030u), (int)(high & 0x30303030u),
        (int)(high >> 2 & 0x30303030u));
    __m512i scales = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_or_si128(low4, high2)), _mm512_set1_epi32(32));
    out->s = _mm512_mul_ps(_mm512_set1_ps(load_f16(b + 108)), _mm512_cvtepi32_ps(scales));
}

INLINE void load_iq4_xs_512(const uint8_t *b, struct stretch512 *out)
{
    for (int j = 0; j < 4; j++)
        out->u[j] = lookup_64(iq4_values, low_high_16(b + 8 + 32 * j, b + 24 + 32 * j));
    // Nibble g of scales_l and bits 2g, 2g + 1 of scales_h, g = 0..7.
    const __m256i nibbles = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), pairs = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256i low = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(b + 4)), nibbles);
    __m256i high = _mm256_srlv_epi32(_mm256_set1_epi32(load_u16(b + 2)), pairs);
    __m256i scales = _mm256_or_si256(
        _mm256_and_si256(low, _mm256_set1_epi32(15)), _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(3)), 4));
    __m256 values = _mm256_cvtepi32_ps(_mm256_sub_epi32(scales, _mm256_set1_epi32(32)));
    out->s = floats_twice(_mm256_mul_ps(_mm256_set1_ps(load_f16(b)), values));
}

INLINE void load_nvfp4_512(const uint8_t *b, struct stretch512 *out)
{
    const __m512i order = _mm512_setr_epi64(0, 2, 1, 3, 4, 6, 5, 7);
    for (int j = 0; j < 4; j++)
        out->u[j] = _mm512_permutexvar_epi64(order, lookup_64(fp4_values, low_high_16(b + 36 * j + 4, b + 36 * j + 20)));
    // As nvfp4_scale.
    __m128i bytes = _mm_setr_epi32((int)load_u32(b), (int)load_u32(b + 36), (int)load_u32(b + 72), (int)load_u32(b + 108));
    __m512i codes = _mm512_cvtepu8_epi32(bytes);
    __mmask16 valid = _mm512_cmpneq_epi32_mask(codes, _mm512_set1_epi32(0x7f));
    __m512i bits = _mm512_slli_epi32(_mm512_and_si512(codes, _mm512_set1_epi32(0x7f)), 20);
    out->s = _mm512_maskz_mul_ps(valid, _mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p119f));
}

// 256 weights from the block at b on.
INLINE void load_512(struct layout layout, const uint8_t *b, struct stretch512 *out)
{
    switch (layout.type) {
    case GGUF_TYPE_Q4_K:
        scales_k4_512(b, out);
        weights_q4_k_512(b, out);
        break;
    case GGUF_TYPE_Q5_K:
        scales_k4_512(b, out);
        weights_q5_k_512(b, out);
        break;
    case GGUF_TYPE_Q6_K:
        load_q6_k_512(b, out);
        break;
    case GGUF_TYPE_Q2_K:
        load_q2_k_512(b, out);
        break;
    case GGUF_TYPE_Q3_K:
        load_q3_k_512(b, out);
        break;
    case GGUF_TYPE_IQ4_XS:
        load_iq4_xs_512(b, out);
        break;
    case GGUF_TYPE_NVFP4:
        load_nvfp4_512(b, out);
        break;
    default:
        scales_small_512(layout, b, out);
        weights_small_512(layout, b, out);
        break;
    }
}

// --- the product ---

INLINE void narrow_cols_512(struct layout layout, const struct product *p, int n_cols)
{
    const struct activations *x = p->x;
    const int n_sums = n_cols == 1 ? 4 : 2; // chains of additions, so that none waits for the one before
    const int32_t whole = x->n_in / 256 * 256;
    __m512i places[4];
    for (int j = 0; j < 4; j++)
        places[j] = _mm512_add_epi32(_mm512_set1_epi32(4 * j), _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3));
    for (int32_t r = 0; r < p->n_rows; r++) {
        const uint8_t *row = p->rows + (size_t)r * p->row_bytes;
        __m512 sums[CPU_NARROW_ROWS][4], taken[CPU_NARROW_ROWS];
        for (int c = 0; c < n_cols; c++) {
            taken[c] = _mm512_setzero_ps();
            for (int j = 0; j < n_sums; j++)
                sums[c][j] = _mm512_setzero_ps();
        }
        for (int32_t k = 0; k < whole; k += 256) {
            struct stretch512 w;
            const uint8_t *b = block_at(layout, row, k);
            for (int i = 0; i < 256 / layout.block_elems * layout.block_bytes; i += 64)
                _mm_prefetch((const char *)b + PREFETCH_BYTES + i, _MM_HINT_T0);
            load_512(layout, b, &w);
            for (int c = 0; c < n_cols; c++) {
                size_t at = (size_t)(p->first_col + c) * (size_t)x->n_in + (size_t)k;
                __m512 scales = _mm512_mul_ps(w.s, _mm512_loadu_ps(x->d16 + at / 16));
                taken[c] = _mm512_fmadd_ps(layout.has_min ? w.m : w.s, _mm512_loadu_ps(x->dsum16 + at / 16), taken[c]);
                for (int j = 0; j < 4; j++) {
                    __m512i dots = _mm512_dpbusd_epi32(_mm512_setzero_si512(), w.u[j], _mm512_loadu_si512(x->q + at + 64 * j));
                    sums[c][j % n_sums] =
                        _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots), _mm512_permutexvar_ps(places[j], scales), sums[c][j % n_sums]);
                }
            }
        }
        for (int c = 0; c < n_cols; c++) {
            const float weight = layout.has_min ? 1 : (float)layout.zero;
            __m512 sum = _mm512_add_ps(sums[c][0], sums[c][1]);
            if (n_sums == 4)
                sum = _mm512_add_ps(sum, _mm512_add_ps(sums[c][2], sums[c][3]));
            float result = _mm512_reduce_add_ps(_mm512_fnmadd_ps(taken[c], _mm512_set1_ps(weight), sum));
            if (whole < x->n_in) {
                struct unpacked rest;
                struct narrow_sum more = narrow_sum_zero();
                int n = groups_at(layout, whole, x->n_in);
                unpack(layout, block_at(layout, row, whole), n, &rest);
                add_stretch(layout, &rest, n, x, (size_t)(p->first_col + c), (size_t)whole / 32, 1, &more);
                result += narrow_total(layout, &more);
            }
            p->out[(size_t)c * p->out_stride + (size_t)r] = result;
        }
    }
}

INLINE void narrow_512(struct layout layout, const struct product *p)
{
    struct product part = *p;
    while (part.n_cols > 0) {
        int n_cols = part.n_cols >= 4 ? 4 : part.n_cols >= 2 ? 2 : 1;
        if (n_cols == 4)
            narrow_cols_512(layout, &part, 4);
        else if (n_cols == 2)
            narrow_cols_512(layout, &part, 2);
        else
            narrow_cols_512(layout, &part, 1);
        part.first_col += n_cols;
        part.n_cols -= n_cols;
        part.out += (size_t)n_cols * part.out_stride;
    }
}

#define DEFINE_NARROW_512(NAME, TYPE, LAYOUT)                                                                                    \
    static void narrow_512_##NAME(const struct product *p)                                                                       \
    {                                                                                                                            \
        narrow_512(LAYOUT, p);                                                                                                   \
    }
FOR_EACH_QUANTISED_TYPE(DEFINE_NARROW_512)
#undef DEFINE_NARROW_512
#define NARROW_512_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = narrow_512_##NAME,

#endif
