// gguf_quants_test.c: the block formats against formulas written here a second time, straight from their definition.
//
// The definition says for every element which bits make it up. reference_value() below follows it one element at a time, with a
// bit reader and doubles, and shares no code or table with the library.

#include "gguf/gguf.h" // before cmocka.h, which has a macro called fail
#include "gguf/mix.h"
#include "gguf/quants.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_RANDOM_BLOCKS = 200, MAX_BLOCK_BYTES = 1024, MAX_BLOCK_ELEMS = 256 };

static uint32_t random_state = 1;

static uint32_t next_random(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float next_uniform(void)
{
    return (float)next_random() / (1 << 24) - 0.5f;
}

// Sum of twelve uniform numbers: near enough to normal, standard deviation 1.
static float next_normal(void)
{
    float sum = 0;
    for (int i = 0; i < 12; i++)
        sum += next_uniform();
    return sum;
}

// --- the second formulas

static int bits(const uint8_t *bytes, int first, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++)
        value |= (bytes[(first + i) / 8] >> (first + i) % 8 & 1) << i;
    return value;
}

static double half(const uint8_t *b)
{
    int all = b[0] | b[1] << 8, exponent = all >> 10 & 31, mantissa = all & 1023;
    double magnitude = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    return all >> 15 ? -magnitude : magnitude;
}

static int signed_byte(uint8_t byte)
{
    return byte < 128 ? byte : byte - 256;
}

static int iq4_value(int code)
{
    static const int values[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return values[code];
}

// An FP4 number (sign, two bits of exponent, one of mantissa).
static double fp4(int code)
{
    int exponent = code >> 1 & 3, mantissa = code & 1;
    double magnitude = exponent == 0 ? 0.5 * mantissa : ldexp(1 + 0.5 * mantissa, exponent - 1);
    return code & 8 ? -magnitude : magnitude;
}

static double e4m3(int code)
{
    int exponent = code >> 3 & 15, mantissa = code & 7;
    if (code == 0x7f)
        return 0;
    return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
}

// Nibble of element e in a run of `half_run` bytes, whose low nibbles are the first half of the elements.
static int nibble(const uint8_t *qs, int e, int half_run)
{
    return e < half_run ? qs[e] & 15 : qs[e - half_run] >> 4;
}

// The 6-bit scale (or minimum) j of Q4_K and Q5_K, as bit positions in the twelve bytes.
static int six_bits(const uint8_t *b, int j, bool minimum)
{
    if (j < 4)
        return bits(b, 8 * (j + (minimum ? 4 : 0)), 6);
    return bits(b, 8 * (j + 4) + (minimum ? 4 : 0), 4) + 16 * bits(b, 8 * (j + (minimum ? 0 : -4)) + 6, 2);
}

static double reference_k(enum gguf_type type, const uint8_t *b, int e)
{
    int n = e / 128, j = e % 128 / 32, l = e % 32, sub = e / 32;
    switch (type) {
    case GGUF_TYPE_Q2_K: {
        int scale = b[8 * n + 2 * j + l / 16], q = bits(b + 16 + 32 * n + l, 2 * j, 2);
        return half(b + 80) * (scale % 16) * q - half(b + 82) * (scale / 16);
    }
    case GGUF_TYPE_Q3_K: {
        int i = 8 * n + 2 * j + l / 16;
        int low = i < 8 ? b[96 + i] % 16 : b[96 + i - 8] / 16, high = bits(b + 104 + i % 4, 2 * (i / 4), 2);
        int q = bits(b + 32 + 32 * n + l, 2 * j, 2) - 4 + 4 * bits(b + l, 4 * n + j, 1);
        return half(b + 108) * (low + 16 * high - 32) * q;
    }
    case GGUF_TYPE_Q4_K:
        return half(b) * six_bits(b + 4, sub, false) * bits(b + 16 + 32 * (sub / 2) + l, 4 * (sub % 2), 4) -
               half(b + 2) * six_bits(b + 4, sub, true);
    case GGUF_TYPE_Q5_K:
        return half(b) * six_bits(b + 4, sub, false) *
                   (bits(b + 48 + 32 * (sub / 2) + l, 4 * (sub % 2), 4) + 16 * bits(b + 16 + l, sub, 1)) -
               half(b + 2) * six_bits(b + 4, sub, true);
    case GGUF_TYPE_Q6_K: {
        int low = bits(b + 64 * n + l + 32 * (j % 2), 4 * (j / 2), 4), high = bits(b + 128 + 32 * n + l, 2 * j, 2);
        return half(b + 208) * signed_byte(b[192 + 8 * n + 2 * j + l / 16]) * (low + 16 * high - 32);
    }
    default: { // IQ4_XS
        int scale = bits(b + 4, 4 * sub, 4) + 16 * bits(b + 2, 2 * sub, 2);
        return half(b) * (scale - 32) * iq4_value(nibble(b + 8 + 16 * sub, l, 16));
    }
    }
}

static double reference_value(enum gguf_type type, const uint8_t *b, int e)
{
    switch (type) {
    case GGUF_TYPE_Q4_0:
        return (nibble(b + 2, e, 16) - 8) * half(b);
    case GGUF_TYPE_Q4_1:
        return nibble(b + 4, e, 16) * half(b) + half(b + 2);
    case GGUF_TYPE_Q5_0:
        return (nibble(b + 6, e, 16) + 16 * bits(b + 2, e, 1) - 16) * half(b);
    case GGUF_TYPE_Q5_1:
        return (nibble(b + 8, e, 16) + 16 * bits(b + 4, e, 1)) * half(b) + half(b + 2);
    case GGUF_TYPE_Q8_0:
        return signed_byte(b[2 + e]) * half(b);
    case GGUF_TYPE_IQ4_NL:
        return iq4_value(nibble(b + 2, e, 16)) * half(b);
    case GGUF_TYPE_MXFP4:
        return fp4(nibble(b + 1, e, 16)) * ldexp(1, b[0] - 127);
    case GGUF_TYPE_NVFP4:
        return fp4(nibble(b + 4 + 8 * (e / 16), e % 16, 8)) * e4m3(b[e / 16]);
    default:
        return reference_k(type, b, e);
    }
}

// Where 16-bit numbers stand in a block.
static int half_places(enum gguf_type type, int places[2])
{
    switch (type) {
    case GGUF_TYPE_MXFP4:
    case GGUF_TYPE_NVFP4:
        return 0;
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        places[0] = 0, places[1] = 2;
        return 2;
    case GGUF_TYPE_Q2_K:
        places[0] = 80, places[1] = 82;
        return 2;
    case GGUF_TYPE_Q3_K:
        places[0] = 108;
        return 1;
    case GGUF_TYPE_Q6_K:
        places[0] = 208;
        return 1;
    default:
        places[0] = 0;
        return 1;
    }
}

static void put_half(uint8_t *at, float value)
{
    gguf_quantize(GGUF_TYPE_F16, &value, at, 1);
}

static const enum gguf_type block_types[] = {GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0,
    GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q6_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS,
    GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4};
enum { N_BLOCK_TYPES = sizeof block_types / sizeof block_types[0] };

// The library forms values in f32: at most three roundings of terms no larger than the two products, so 2^-22 of their size.
static void assert_block(enum gguf_type type, const uint8_t *block)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    uint8_t *exact = malloc(info->block_bytes); // so that a sanitizer sees a read beyond the block
    float values[MAX_BLOCK_ELEMS];
    memcpy(exact, block, info->block_bytes);
    assert_true(gguf_dequantize(type, exact, values, info->block_elems));
    for (int e = 0; e < info->block_elems; e++) {
        double wanted = reference_value(type, block, e);
        int places[2], n = half_places(type, places);
        double size = fabs(wanted) + (n == 2 ? 64 * fabs(half(block + places[1])) : 0);
        if (!(fabs(values[e] - wanted) <= ldexp(size, -22)))
            fail_msg("%s element %d is %.9g, not %.9g", info->name, e, (double)values[e], wanted);
    }
    free(exact);
}

static void random_blocks_dequantise_as_the_definition_says(void **state)
{
    (void)state;
    for (int t = 0; t < N_BLOCK_TYPES; t++) {
        for (int i = 0; i < N_RANDOM_BLOCKS; i++) {
            uint8_t block[MAX_BLOCK_BYTES];
            int places[2], n = half_places(block_types[t], places);
            for (int k = 0; k < MAX_BLOCK_BYTES; k++)
                block[k] = (uint8_t)next_random();
            for (int k = 0; k < n; k++) // finite ones, denormal ones in every fourth block
                put_half(block + places[k], next_uniform() * (i % 4 == 0 ? 1e-5f : 4));
            if (block_types[t] == GGUF_TYPE_MXFP4)
                block[0] = (uint8_t)(i < 4 ? i : 64 + i % 128); // the denormal scales too
            assert_block(block_types[t], block);
        }
    }
}

// One bit at a time: shows a nibble, a high bit or a scale in the wrong place even where random blocks might hide it.
static void blocks_of_a_single_bit_dequantise_as_the_definition_says(void **state)
{
    (void)state;
    for (int t = 0; t < N_BLOCK_TYPES; t++) {
        const struct gguf_type_info *info = gguf_type_info(block_types[t]);
        int places[2], n = half_places(block_types[t], places);
        for (int bit = 0; bit < 8 * info->block_bytes; bit++) {
            uint8_t block[MAX_BLOCK_BYTES] = {0};
            block[bit / 8] = (uint8_t)(1 << bit % 8);
            for (int k = 0; k < n; k++)
                put_half(block + places[k], k == 0 ? 1 : 0.125f);
            if (block_types[t] == GGUF_TYPE_MXFP4)
                block[0] |= 100;
            assert_block(block_types[t], block);
            for (int s = 0; s < 2 && (block_types[t] == GGUF_TYPE_Q4_K || block_types[t] == GGUF_TYPE_Q5_K); s++) {
                memset(block + 4, s == 0 ? 0xff : 0x55, 12); // with scales other than 0
                assert_block(block_types[t], block);
            }
        }
    }
}

static void halves_of_every_pattern_convert_exactly(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint8_t b[2] = {(uint8_t)i, (uint8_t)(i >> 8)}, back[2];
        float value;
        assert_true(gguf_dequantize(GGUF_TYPE_F16, b, &value, 1));
        if ((i >> 10 & 31) == 31) {
            assert_true((i & 1023) != 0 ? isnan(value) : isinf(value) && (value < 0) == (i >> 15 != 0));
        } else {
            assert_true((double)value == half(b) && (signbit(value) != 0) == (i >> 15 != 0));
            gguf_quantize(GGUF_TYPE_F16, &value, back, 1);
            assert_memory_equal(b, back, 2);
        }
        assert_true(gguf_dequantize(GGUF_TYPE_BF16, b, &value, 1));
        uint32_t wide = i << 16;
        assert_memory_equal(&value, &wide, 4);
        if (!isnan(value)) {
            gguf_quantize(GGUF_TYPE_BF16, &value, back, 1);
            assert_memory_equal(b, back, 2);
        }
    }
}

static void sixteen_bit_floats_round_to_the_nearest_and_on_ties_to_the_even_one(void **state)
{
    (void)state;
    const enum gguf_type types[] = {GGUF_TYPE_F16, GGUF_TYPE_BF16};
    for (int t = 0; t < 2; t++) {
        for (uint32_t i = 0; i < 0x7c00 - 1; i += 7) { // finite, and the next is finite
            uint8_t low[2] = {(uint8_t)i, (uint8_t)(i >> 8)}, high[2] = {(uint8_t)(i + 1), (uint8_t)((i + 1) >> 8)}, got[2];
            float a, c;
            gguf_dequantize(types[t], low, &a, 1);
            gguf_dequantize(types[t], high, &c, 1);
            if (t == 1 && a == 0)
                continue; // the middle between 0 and the smallest BF16 is a denormal f32
            float middle = a + (c - a) / 2;
            const float inputs[] = {middle, nextafterf(middle, 0), nextafterf(middle, INFINITY), -middle};
            for (int k = 0; k < 4; k++) {
                uint32_t wanted = k == 1 ? i : k == 2 ? i + 1 : (i & 1) == 0 ? i : i + 1;
                wanted |= k == 3 ? 0x8000u : 0;
                gguf_quantize(types[t], &inputs[k], got, 1);
                assert_int_equal(got[0] | got[1] << 8, wanted);
            }
        }
        const float not_a_number = NAN;
        uint8_t got[2];
        float back;
        gguf_quantize(types[t], &not_a_number, got, 1);
        gguf_dequantize(types[t], got, &back, 1);
        assert_true(isnan(back));
    }
}

static struct gguf_file *open_model(const char *name)
{
    char path[512];
    struct gguf_file *file;
    struct carat_error err = {0};
    snprintf(path, sizeof path, "%s/models/%s.gguf", CARAT_FIXTURES, name);
    if (!gguf_open_path(path, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

static float *values_of(const struct gguf_file *file, const struct gguf_tensor *tensor)
{
    size_t n = (size_t)gguf_tensor_elements(tensor);
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    assert_true(gguf_dequantize(tensor->type, gguf_tensor_mapped(file, tensor), values, n));
    return values;
}

// The fixtures' README: the three files hold the same numbers, all exact in both 16-bit formats.
static void the_f32_f16_and_bf16_files_hold_the_same_numbers(void **state)
{
    (void)state;
    struct gguf_file *files[3] = {open_model("micro-e2b.F32"), open_model("micro-e2b.F16"), open_model("micro-e2b.BF16")};
    for (uint64_t i = 0; i < gguf_tensor_count(files[0]); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(files[0], i);
        float *values = values_of(files[0], t);
        size_t n = (size_t)gguf_tensor_elements(t);
        for (int f = 1; f < 3; f++) {
            const struct gguf_tensor *other = gguf_find_tensor(files[f], t->name);
            assert_non_null(other);
            float *others = values_of(files[f], other);
            assert_memory_equal(values, others, n * sizeof *values);
            if (other->type != GGUF_TYPE_F32) { // and writing them gives the file's bytes
                void *blocks = malloc((size_t)other->n_bytes);
                assert_true(gguf_quantize(other->type, values, blocks, n));
                assert_memory_equal(blocks, gguf_tensor_mapped(files[f], other), (size_t)other->n_bytes);
                free(blocks);
            }
            free(others);
        }
        free(values);
    }
    for (int f = 0; f < 3; f++)
        gguf_close(files[f]);
}

// What llama.cpp quantised in these formats is a fixed point: the extreme of a block fixes its scale exactly.
static void blocks_of_llama_cpp_quantise_to_themselves(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny-e2b.Q8_0", "tiny-quant.Q4_0", "tiny-26b.Q4_K_M"};
    int n_checked = 0;
    for (int f = 0; f < 3; f++) {
        struct gguf_file *file = open_model(names[f]);
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, i);
            if (t->type != GGUF_TYPE_Q8_0 && t->type != GGUF_TYPE_Q4_0 && t->type != GGUF_TYPE_Q5_0)
                continue;
            float *values = values_of(file, t);
            uint8_t *blocks = malloc((size_t)t->n_bytes);
            assert_true(gguf_quantize(t->type, values, blocks, (size_t)gguf_tensor_elements(t)));
            assert_memory_equal(blocks, gguf_tensor_mapped(file, t), (size_t)t->n_bytes);
            n_checked++;
            free(blocks);
            free(values);
        }
        gguf_close(file);
    }
    assert_true(n_checked > 40);
}

static double squared_error(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

// tiny-e2b.Q8_0 stands in for the original weights: its own error (1/254 of a block's largest value) is small beside theirs.
static void k_quants_are_as_near_to_the_weights_as_those_of_llama_cpp(void **state)
{
    (void)state;
    struct gguf_file *original = open_model("tiny-e2b.Q8_0"), *quantised = open_model("tiny-e2b.Q4_K_M");
    double ours[GGUF_TYPE_LIMIT] = {0}, theirs[GGUF_TYPE_LIMIT] = {0};
    for (uint64_t i = 0; i < gguf_tensor_count(quantised); i++) {
        const struct gguf_tensor *q = gguf_tensor_at(quantised, i), *o = gguf_find_tensor(original, q->name);
        if (q->type != GGUF_TYPE_Q4_K && q->type != GGUF_TYPE_Q6_K)
            continue;
        size_t n = (size_t)gguf_tensor_elements(q);
        float *values = values_of(original, o), *their_values = values_of(quantised, q),
              *our_values = malloc(n * sizeof *our_values);
        void *blocks = malloc((size_t)q->n_bytes);
        assert_true(gguf_quantize(q->type, values, blocks, n));
        gguf_dequantize(q->type, blocks, our_values, n);
        ours[q->type] += squared_error(values, our_values, n);
        theirs[q->type] += squared_error(values, their_values, n);
        free(values);
        free(their_values);
        free(our_values);
        free(blocks);
    }
    assert_true(theirs[GGUF_TYPE_Q4_K] > 0 && theirs[GGUF_TYPE_Q6_K] > 0);
    printf("error against llama.cpp's: Q4_K %.3f, Q6_K %.3f\n", sqrt(ours[GGUF_TYPE_Q4_K] / theirs[GGUF_TYPE_Q4_K]),
        sqrt(ours[GGUF_TYPE_Q6_K] / theirs[GGUF_TYPE_Q6_K]));
    assert_true(ours[GGUF_TYPE_Q4_K] <= theirs[GGUF_TYPE_Q4_K]);
    assert_true(ours[GGUF_TYPE_Q6_K] <= theirs[GGUF_TYPE_Q6_K]);
    gguf_close(original);
    gguf_close(quantised);
}

// Root mean square error over standard deviation on normal numbers. A uniform quantiser with 2^b levels over the +-2.3 sigma that
// 32 normal numbers span on average (+-2 sigma for 16) has a step of 4.6 / 2^b and an error of step / sqrt(12); the limits leave
// a tenth for the rounding of scales.
static void quantising_normal_numbers_loses_no_more_than_the_formats_must(void **state)
{
    (void)state;
    static const struct {
        enum gguf_type type;
        double limit;
    } cases[] = {{GGUF_TYPE_Q8_0, 0.0057}, {GGUF_TYPE_Q4_0, 0.095}, {GGUF_TYPE_Q4_1, 0.091}, {GGUF_TYPE_Q5_0, 0.046},
        {GGUF_TYPE_Q5_1, 0.046}, {GGUF_TYPE_Q4_K, 0.088}, {GGUF_TYPE_Q5_K, 0.044}, {GGUF_TYPE_Q6_K, 0.020},
        {GGUF_TYPE_F16, 0.0003}, {GGUF_TYPE_BF16, 0.002}};
    enum { N = 256 * 256 };
    float *values = malloc(N * sizeof *values), *back = malloc(N * sizeof *back);
    uint8_t *blocks = malloc(4 * N);
    for (int i = 0; i < N; i++)
        values[i] = next_normal() * 0.02f;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        assert_true(gguf_can_quantize(cases[c].type));
        assert_true(gguf_quantize(cases[c].type, values, blocks, N));
        assert_true(gguf_dequantize(cases[c].type, blocks, back, N));
        double error = sqrt(squared_error(values, back, N) / N) / 0.02;
        if (error > cases[c].limit)
            fail_msg("%s: error %.5f, allowed %.5f", gguf_type_name(cases[c].type), error, cases[c].limit);
    }
    free(values);
    free(back);
    free(blocks);
}

static void awkward_blocks_stay_finite_and_near(void **state)
{
    (void)state;
    for (int t = 0; t < GGUF_TYPE_LIMIT; t++) {
        if (!gguf_can_quantize((enum gguf_type)t) || t == GGUF_TYPE_F32)
            continue;
        for (int kind = 0; kind < 10; kind++) {
            float values[256], back[256], largest = 0;
            uint8_t blocks[1024];
            for (int i = 0; i < 256; i++) {
                const float kinds[] = {0, 1, -1, i == 77 ? 3.0f : 0, i == 77 ? -3.0f : 0, 1e-30f, next_uniform() * 1e-6f,
                    100 + next_uniform(), -100 + next_uniform(), i < 32 ? 1000 * next_uniform() : next_uniform() * 1e-3f};
                values[i] = kinds[kind];
                largest = fmaxf(largest, fabsf(values[i]));
            }
            assert_true(gguf_quantize((enum gguf_type)t, values, blocks, 256));
            assert_true(gguf_dequantize((enum gguf_type)t, blocks, back, 256));
            for (int i = 0; i < 256; i++) {
                // Q4_0 loses most: its codes go from -8 to 7 eighths of the extreme, so what is as large but of the other
                // sign loses a whole eighth; a little more for the rounding of the scale. Tiny scales are multiples of
                // 2^-24, so up to 128 codes may be off by half of that each.
                float allowed = 0.126f * largest + 128 * 0x1p-25f;
                if (!(fabsf(back[i] - values[i]) <= allowed))
                    fail_msg("%s kind %d: %g became %g", gguf_type_name((uint32_t)t), kind, (double)values[i], (double)back[i]);
            }
        }
    }
}

static void broken_multiples_and_unknown_types_are_refused(void **state)
{
    (void)state;
    float values[256] = {0};
    uint8_t blocks[1024] = {0};
    uint64_t n_bytes;
    assert_false(gguf_dequantize(GGUF_TYPE_Q4_K, blocks, values, 128));
    assert_false(gguf_dequantize(GGUF_TYPE_Q8_0, blocks, values, 33));
    assert_false(gguf_dequantize(GGUF_TYPE_IQ2_XS, blocks, values, 256));
    assert_false(gguf_dequantize((enum gguf_type)4, blocks, values, 256));
    assert_false(gguf_quantize(GGUF_TYPE_Q6_K, values, blocks, 32));
    assert_false(gguf_quantize(GGUF_TYPE_Q2_K, values, blocks, 256));
    assert_false(gguf_row_bytes(GGUF_TYPE_Q4_K, 255, &n_bytes));
    assert_false(gguf_row_bytes(99, 256, &n_bytes));
    assert_false(gguf_row_bytes(GGUF_TYPE_F64, UINT64_MAX / 4, &n_bytes));
    assert_true(gguf_row_bytes(GGUF_TYPE_Q6_K, 512, &n_bytes));
    assert_int_equal(n_bytes, 420);
}

static void read_mix_model(const struct gguf_file *file, struct gguf_mix_model *model)
{
    uint32_t n_heads;
    int32_t kv_heads[64];
    assert_true(gguf_u32(file, "gemma4.block_count", &model->n_layers, NULL));
    assert_true(gguf_u32_or(file, "gemma4.expert_count", 0, &model->n_experts, NULL));
    assert_true(gguf_u32(file, "gemma4.attention.head_count", &n_heads, NULL));
    assert_true(gguf_per_layer(file, "gemma4.attention.head_count_kv", model->n_layers, kv_heads, NULL));
    model->heads_per_kv = n_heads / (uint32_t)kv_heads[0];
    for (uint32_t l = 0; l < model->n_layers; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", l);
        model->has_attn_v[l] = gguf_find_tensor(file, name) != NULL;
    }
}

static void the_mixes_give_the_types_of_llama_cpps_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *mix;
    } files[] = {{"tiny-26b.Q4_K_M", "Q4_K_M"}, {"tiny-31b.Q4_K_M", "Q4_K_M"}, {"tiny-e2b.Q4_K_M", "Q4_K_M"},
        {"tiny-e2b.Q8_0", "Q8_0"}, {"tiny-quant.IQ4_NL", "IQ4_NL"}, {"tiny-quant.IQ4_XS", "IQ4_XS"}, {"tiny-quant.Q2_K", "Q2_K"},
        {"tiny-quant.Q3_K_M", "Q3_K_M"}, {"tiny-quant.Q4_0", "Q4_0"}, {"tiny-quant.Q5_K_M", "Q5_K_M"},
        {"tiny-quant.Q6_K", "Q6_K"}};
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        struct gguf_file *file = open_model(files[f].name);
        struct gguf_mix_model model = {0};
        assert_true(gguf_mix_from_name(files[f].mix, &model.mix));
        read_mix_model(file, &model);
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, i);
            bool was_bf16 = strcmp(t->name, "per_layer_model_proj.weight") == 0; // the files were quantised from BF16
            enum gguf_type type = gguf_mix_type(&model, t->name, t->n_dims, t->ne, was_bf16 ? GGUF_TYPE_BF16 : GGUF_TYPE_F32);
            if (type != t->type)
                fail_msg("%s: %s would be %s, is %s", files[f].name, t->name, gguf_type_name(type), gguf_type_name(t->type));
        }
        gguf_close(file);
    }
}

// The layers that get more bits in a Q4_K_M file of real depth, as the format's documentation lists them.
static void more_bits_go_to_the_layers_that_are_documented(void **state)
{
    (void)state;
    static const struct {
        uint32_t n;
        const char *pattern; // 1 = Q6_K
    } cases[] = {{35, "11110010010010010010010010010011111"}, {30, "111001001001001001001001001111"},
        {42, "111110010010010010010010010010010010111111"}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct gguf_mix_model model = {.mix = GGUF_MIX_Q4_K_M, .n_layers = cases[c].n};
        assert_int_equal(strlen(cases[c].pattern), cases[c].n);
        for (uint32_t l = 0; l < cases[c].n; l++) {
            const uint64_t ne[2] = {256, 256};
            char name[64];
            snprintf(name, sizeof name, "blk.%u.ffn_down.weight", l);
            assert_int_equal(
                gguf_mix_type(&model, name, 2, ne, GGUF_TYPE_BF16), cases[c].pattern[l] == '1' ? GGUF_TYPE_Q6_K : GGUF_TYPE_Q4_K);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_blocks_dequantise_as_the_definition_says),
        cmocka_unit_test(blocks_of_a_single_bit_dequantise_as_the_definition_says),
        cmocka_unit_test(halves_of_every_pattern_convert_exactly),
        cmocka_unit_test(sixteen_bit_floats_round_to_the_nearest_and_on_ties_to_the_even_one),
        cmocka_unit_test(the_f32_f16_and_bf16_files_hold_the_same_numbers),
        cmocka_unit_test(blocks_of_llama_cpp_quantise_to_themselves),
        cmocka_unit_test(k_quants_are_as_near_to_the_weights_as_those_of_llama_cpp),
        cmocka_unit_test(quantising_normal_numbers_loses_no_more_than_the_formats_must),
        cmocka_unit_test(awkward_blocks_stay_finite_and_near),
        cmocka_unit_test(broken_multiples_and_unknown_types_are_refused),
        cmocka_unit_test(the_mixes_give_the_types_of_llama_cpps_files),
        cmocka_unit_test(more_bits_go_to_the_layers_that_are_documented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
