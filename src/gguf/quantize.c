// quantize.c: f32 to the 16-bit and the 32-element formats, and the choice among all formats.

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "gguf/quantize_k.h"
#include "gguf/quants.h"

static void store_half(uint8_t *bytes, float value)
{
    store_u16(bytes, f16_from_f32(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

// The value of largest magnitude, with its sign; of equal ones the first.
static float signed_extreme(const float *x)
{
    float extreme = 0, magnitude = 0;
    for (int j = 0; j < 32; j++) {
        if (fabsf(x[j]) > magnitude)
            extreme = x[j], magnitude = fabsf(x[j]);
    }
    return extreme;
}

static void find_range(const float *x, float *least, float *most)
{
    *least = *most = x[0];
    for (int j = 1; j < 32; j++) {
        *least = fminf(*least, x[j]);
        *most = fmaxf(*most, x[j]);
    }
}

static int clamp_code(float value, int most)
{
    return value<0 ? 0 : value>(float) most ? most : (int)value;
}

static void quantize_q8_0(const float *x, uint8_t *b)
{
    float d = fabsf(signed_extreme(x)) / 127;
    float inverse = d != 0 ? 1 / d : 0;
    store_half(b, d);
    for (int j = 0; j < 32; j++)
        b[2 + j] = (uint8_t)(int8_t)roundf(x[j] * inverse);
}

// Codes of n_bits - 1 magnitude bits with an offset: the extreme value gets the most negative code, which has no positive twin.
static float offset_codes(const float *x, int half, int codes[32])
{
    float d = signed_extreme(x) / (float)-half;
    float inverse = d != 0 ? 1 / d : 0;
    for (int j = 0; j < 32; j++)
        codes[j] = clamp_code(x[j] * inverse + ((float)half + 0.5f), 2 * half - 1);
    return d;
}

// Codes 0 .. most between the least and the largest value.
static float range_codes(const float *x, int most, int codes[32], float *least)
{
    float largest;
    find_range(x, least, &largest);
    float d = (largest - *least) / (float)most;
    float inverse = d != 0 ? 1 / d : 0;
    for (int j = 0; j < 32; j++)
        codes[j] = clamp_code((x[j] - *least) * inverse + 0.5f, most);
    return d;
}

static void store_nibbles(const int codes[32], uint8_t *qs)
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + 16] & 15) << 4);
}

static void store_fifth_bits(const int codes[32], uint8_t *qh)
{
    for (int i = 0; i < 4; i++) {
        qh[i] = 0;
        for (int j = 0; j < 8; j++)
            qh[i] |= (uint8_t)((codes[8 * i + j] >> 4) << j);
    }
}

static void quantize_q4_0(const float *x, uint8_t *b)
{
    int codes[32];
    store_half(b, offset_codes(x, 8, codes));
    store_nibbles(codes, b + 2);
}

static void quantize_q5_0(const float *x, uint8_t *b)
{
    int codes[32];
    store_half(b, offset_codes(x, 16, codes));
    store_fifth_bits(codes, b + 2);
    store_nibbles(codes, b + 6);
}

static void quantize_q4_1(const float *x, uint8_t *b)
{
    int codes[32];
    float least;
    store_half(b, range_codes(x, 15, codes, &least));
    store_half(b + 2, least);
    store_nibbles(codes, b + 4);
}

static void quantize_q5_1(const float *x, uint8_t *b)
{
    int codes[32];
    float least;
    store_half(b, range_codes(x, 31, codes, &least));
    store_half(b + 2, least);
    store_fifth_bits(codes, b + 4);
    store_nibbles(codes, b + 8);
}

typedef void quantize_block(const float *values, uint8_t *block);

static quantize_block *const block_functions[GGUF_TYPE_LIMIT] = {
    [GGUF_TYPE_Q8_0] = quantize_q8_0,
    [GGUF_TYPE_Q4_0] = quantize_q4_0,
    [GGUF_TYPE_Q4_1] = quantize_q4_1,
    [GGUF_TYPE_Q5_0] = quantize_q5_0,
    [GGUF_TYPE_Q5_1] = quantize_q5_1,
    [GGUF_TYPE_Q4_K] = gguf_quantize_q4_k,
    [GGUF_TYPE_Q5_K] = gguf_quantize_q5_k,
    [GGUF_TYPE_Q6_K] = gguf_quantize_q6_k,
};

bool gguf_can_quantize(enum gguf_type type)
{
    return type == GGUF_TYPE_F32 || type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16 ||
           ((unsigned)type < GGUF_TYPE_LIMIT && block_functions[type] != NULL);
}

bool gguf_quantize(enum gguf_type type, const float *values, void *blocks, size_t n_elems)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    if (info == NULL || !gguf_can_quantize(type) || n_elems % info->block_elems != 0)
        return false;
    uint8_t *bytes = blocks;
    if (type == GGUF_TYPE_F32) {
        memcpy(blocks, values, n_elems * sizeof *values);
    } else if (type == GGUF_TYPE_F16) {
        for (size_t i = 0; i < n_elems; i++)
            store_u16(bytes + 2 * i, f16_from_f32(values[i]));
    } else if (type == GGUF_TYPE_BF16) {
        for (size_t i = 0; i < n_elems; i++)
            store_u16(bytes + 2 * i, bf16_from_f32(values[i]));
    } else {
        for (size_t i = 0; i < n_elems / info->block_elems; i++)
            block_functions[type](values + i * info->block_elems, bytes + i * info->block_bytes);
    }
    return true;
}
