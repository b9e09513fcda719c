// dequantize.c: blocks of every supported type to f32.
//
// Values are formed in the order of operations that the formats define, so the bits are the usual ones: K quants as
// (d * scale) * q - (dmin * minimum), the 32-element types as q * d (+ m).

#include <string.h>

#include "base/number.h"
#include "gguf/quants.h"
#include "gguf/tables.h"

static float half_at(const uint8_t *bytes)
{
    return f32_from_f16(load_u16(bytes));
}

static void dequantize_q4_0(const uint8_t *b, float *out)
{
    float d = half_at(b);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)((b[2 + j] & 15) - 8) * d;
        out[j + 16] = (float)((b[2 + j] >> 4) - 8) * d;
    }
}

static void dequantize_q4_1(const uint8_t *b, float *out)
{
    float d = half_at(b), m = half_at(b + 2);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)(b[4 + j] & 15) * d + m;
        out[j + 16] = (float)(b[4 + j] >> 4) * d + m;
    }
}

// The 5-bit value of element j (0..31) from 16 bytes of nibbles and 32 high bits.
static int five_bits(const uint8_t *qs, uint32_t high, int j)
{
    int low = j < 16 ? qs[j] & 15 : qs[j - 16] >> 4;
    return low | (int)((high >> j & 1) << 4);
}

static void dequantize_q5_0(const uint8_t *b, float *out)
{
    float d = half_at(b);
    uint32_t high = load_u32(b + 2);
    for (int j = 0; j < 32; j++)
        out[j] = (float)(five_bits(b + 6, high, j) - 16) * d;
}

static void dequantize_q5_1(const uint8_t *b, float *out)
{
    float d = half_at(b), m = half_at(b + 2);
    uint32_t high = load_u32(b + 4);
    for (int j = 0; j < 32; j++)
        out[j] = (float)five_bits(b + 8, high, j) * d + m;
}

static void dequantize_q8_0(const uint8_t *b, float *out)
{
    float d = half_at(b);
    for (int j = 0; j < 32; j++)
        out[j] = (float)(int8_t)b[2 + j] * d;
}

static void dequantize_iq4_nl(const uint8_t *b, float *out)
{
    float d = half_at(b);
    for (int j = 0; j < 16; j++) {
        out[j] = (float)gguf_iq4_values[b[2 + j] & 15] * d;
        out[j + 16] = (float)gguf_iq4_values[b[2 + j] >> 4] * d;
    }
}

static void dequantize_mxfp4(const uint8_t *b, float *out)
{
    float s = f32_from_bits(b[0] < 2 ? 0x00200000u << b[0] : (uint32_t)(b[0] - 1) << 23); // 2^(e - 128)
    for (int j = 0; j < 16; j++) {
        out[j] = (float)gguf_fp4_doubled[b[1 + j] & 15] * s;
        out[j + 16] = (float)gguf_fp4_doubled[b[1 + j] >> 4] * s;
    }
}

// Half the value of an unsigned E4M3 number; 0x7f, which would be NaN, is 0.
static float half_of_e4m3(uint8_t x)
{
    int exponent = x >> 3 & 15, mantissa = x & 7;
    if (x == 0 || x == 0x7f)
        return 0;
    float value = exponent == 0 ? (float)mantissa * 0x1p-9f
                                : (1 + (float)mantissa / 8) * f32_from_bits((uint32_t)(exponent - 7 + 127) << 23);
    return value * 0.5f;
}

static void dequantize_nvfp4(const uint8_t *b, float *out)
{
    for (int s = 0; s < 4; s++) {
        float d = half_of_e4m3(b[s]);
        const uint8_t *qs = b + 4 + 8 * s;
        for (int j = 0; j < 8; j++) {
            out[16 * s + j] = (float)gguf_fp4_doubled[qs[j] & 15] * d;
            out[16 * s + 8 + j] = (float)gguf_fp4_doubled[qs[j] >> 4] * d;
        }
    }
}

static void dequantize_q2_k(const uint8_t *b, float *out)
{
    const uint8_t *scales = b, *qs = b + 16;
    float d = half_at(b + 80), dmin = half_at(b + 82);
    for (int i = 0; i < 256; i++) { // i = 128 n + 32 j + l
        int n = i >> 7, j = i >> 5 & 3, l = i & 31;
        uint8_t scale = scales[8 * n + 2 * j + (l >> 4)];
        int q = qs[32 * n + l] >> 2 * j & 3;
        out[i] = d * (float)(scale & 15) * (float)q - dmin * (float)(scale >> 4);
    }
}

static void dequantize_q3_k(const uint8_t *b, float *out)
{
    const uint8_t *hmask = b, *qs = b + 32, *packed = b + 96;
    float d = half_at(b + 108);
    int scales[16];
    for (int i = 0; i < 16; i++) {
        int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
        scales[i] = (low | (packed[8 + (i & 3)] >> 2 * (i >> 2) & 3) << 4) - 32;
    }
    for (int i = 0; i < 256; i++) { // i = 128 n + 32 j + l
        int n = i >> 7, j = i >> 5 & 3, l = i & 31;
        int q = (qs[32 * n + l] >> 2 * j & 3) - (hmask[l] >> (4 * n + j) & 1 ? 0 : 4);
        out[i] = d * (float)scales[8 * n + 2 * j + (l >> 4)] * (float)q;
    }
}

static void dequantize_q4_k(const uint8_t *b, float *out)
{
    const uint8_t *qs = b + 16;
    float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        float scale = d * (float)gguf_k4_scale(b + 4, j), minimum = dmin * (float)gguf_k4_minimum(b + 4, j);
        for (int l = 0; l < 32; l++)
            out[32 * j + l] = scale * (float)(qs[32 * (j >> 1) + l] >> 4 * (j & 1) & 15) - minimum;
    }
}

static void dequantize_q5_k(const uint8_t *b, float *out)
{
    const uint8_t *high = b + 16, *qs = b + 48;
    float d = half_at(b), dmin = half_at(b + 2);
    for (int j = 0; j < 8; j++) {
        float scale = d * (float)gguf_k4_scale(b + 4, j), minimum = dmin * (float)gguf_k4_minimum(b + 4, j);
        for (int l = 0; l < 32; l++) {
            int q = (qs[32 * (j >> 1) + l] >> 4 * (j & 1) & 15) + 16 * (high[l] >> j & 1);
            out[32 * j + l] = scale * (float)q - minimum;
        }
    }
}

static void dequantize_q6_k(const uint8_t *b, float *out)
{
    float d = half_at(b + 208);
    for (int i = 0; i < 256; i++) { // i = 128 n + 32 j + l
        int n = i >> 7, j = i >> 5 & 3, l = i & 31;
        const uint8_t *low = b + 64 * n, *high = b + 128 + 32 * n;
        int8_t scale = (int8_t)b[192 + 8 * n + 2 * j + (l >> 4)];
        int q = (low[l + 32 * (j & 1)] >> 4 * (j >> 1) & 15) | (high[l] >> 2 * j & 3) << 4;
        out[i] = d * (float)scale * (float)(q - 32);
    }
}

static void dequantize_iq4_xs(const uint8_t *b, float *out)
{
    float d = half_at(b);
    uint32_t high = load_u16(b + 2);
    for (int ib = 0; ib < 8; ib++) {
        int scale = (b[4 + (ib >> 1)] >> 4 * (ib & 1) & 15) | (int)(high >> 2 * ib & 3) << 4;
        float s = d * (float)(scale - 32);
        const uint8_t *qs = b + 8 + 16 * ib;
        for (int j = 0; j < 16; j++) {
            out[32 * ib + j] = s * (float)gguf_iq4_values[qs[j] & 15];
            out[32 * ib + 16 + j] = s * (float)gguf_iq4_values[qs[j] >> 4];
        }
    }
}

typedef void dequantize_block(const uint8_t *block, float *out);

static dequantize_block *const block_functions[GGUF_TYPE_LIMIT] = {
    [GGUF_TYPE_Q4_0] = dequantize_q4_0,
    [GGUF_TYPE_Q4_1] = dequantize_q4_1,
    [GGUF_TYPE_Q5_0] = dequantize_q5_0,
    [GGUF_TYPE_Q5_1] = dequantize_q5_1,
    [GGUF_TYPE_Q8_0] = dequantize_q8_0,
    [GGUF_TYPE_Q2_K] = dequantize_q2_k,
    [GGUF_TYPE_Q3_K] = dequantize_q3_k,
    [GGUF_TYPE_Q4_K] = dequantize_q4_k,
    [GGUF_TYPE_Q5_K] = dequantize_q5_k,
    [GGUF_TYPE_Q6_K] = dequantize_q6_k,
    [GGUF_TYPE_IQ4_NL] = dequantize_iq4_nl,
    [GGUF_TYPE_IQ4_XS] = dequantize_iq4_xs,
    [GGUF_TYPE_MXFP4] = dequantize_mxfp4,
    [GGUF_TYPE_NVFP4] = dequantize_nvfp4,
};

bool gguf_dequantize(enum gguf_type type, const void *blocks, float *out, size_t n_elems)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    if (info == NULL || !info->supported || n_elems % info->block_elems != 0)
        return false;
    const uint8_t *bytes = blocks;
    if (type == GGUF_TYPE_F32) {
        memcpy(out, blocks, n_elems * sizeof *out);
    } else if (type == GGUF_TYPE_F16) {
        for (size_t i = 0; i < n_elems; i++)
            out[i] = half_at(bytes + 2 * i);
    } else if (type == GGUF_TYPE_BF16) {
        for (size_t i = 0; i < n_elems; i++)
            out[i] = f32_from_bf16(load_u16(bytes + 2 * i));
    } else {
        for (size_t i = 0; i < n_elems / info->block_elems; i++)
            block_functions[type](bytes + i * info->block_bytes, out + i * info->block_elems);
    }
    return true;
}
