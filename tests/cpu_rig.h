// cpu_rig.h: the CPU backend next to the reference, with random weights and activations. For tests.
//
// Both backends read the same weights; each has its own tensors. A test makes inputs with pair_new, runs an operation on each
// side and compares with pair_deviation.

#ifndef CARAT_TESTS_CPU_RIG_H
#define CARAT_TESTS_CPU_RIG_H

#include "golden.h"

#include "base/number.h"
#include "cpu/cpu_internal.h"
#include "gguf/quants.h"
#include "ref/ref.h"

static const enum gguf_type weight_types[] = {GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1,
    GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0, GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K,
    GGUF_TYPE_Q6_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4};

enum { WEIGHT_TYPES = sizeof weight_types / sizeof weight_types[0] };

static uint64_t random_state = 1;

GOLDEN_HELPER uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33);
}

GOLDEN_HELPER float random_float(void) // -1 .. 1, and now and then ten times that
{
    float value = (float)random_u32() * 0x1p-30f - 1;
    return random_u32() % 64 == 0 ? 10 * value : value;
}

GOLDEN_HELPER float *random_floats(size_t n)
{
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = random_float();
    return values;
}

// Bytes of n blocks: anything, but with scales of ordinary size.
GOLDEN_HELPER void random_blocks(enum gguf_type type, uint8_t *bytes, size_t n_blocks)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    for (size_t b = 0; b < n_blocks; b++, bytes += info->block_bytes) {
        for (int i = 0; i < info->block_bytes; i++)
            bytes[i] = (uint8_t)(random_u32() >> 7);
        uint16_t d = f16_from_f32(random_float() * 0.01f), m = f16_from_f32(random_float() * 0.01f);
        float value = random_float();
        uint16_t half = f16_from_f32(value), brain = bf16_from_f32(value);
        switch (type) {
        case GGUF_TYPE_F32:
            memcpy(bytes, &value, 4);
            break;
        case GGUF_TYPE_F16:
            memcpy(bytes, &half, 2);
            break;
        case GGUF_TYPE_BF16:
            memcpy(bytes, &brain, 2);
            break;
        case GGUF_TYPE_Q2_K:
            memcpy(bytes + 80, &d, 2);
            memcpy(bytes + 82, &m, 2);
            break;
        case GGUF_TYPE_Q3_K:
            memcpy(bytes + 108, &d, 2);
            break;
        case GGUF_TYPE_Q6_K:
            memcpy(bytes + 208, &d, 2);
            break;
        case GGUF_TYPE_MXFP4:
            bytes[0] = (uint8_t)(random_u32() % 200 == 0 ? random_u32() % 3 : 118 + random_u32() % 8);
            break;
        case GGUF_TYPE_NVFP4:
            for (int i = 0; i < 4; i++)
                bytes[i] = (uint8_t)(random_u32() % 0x50);
            break;
        default: // the scale comes first, and in some the minimum second
            memcpy(bytes, &d, 2);
            if (type == GGUF_TYPE_Q4_1 || type == GGUF_TYPE_Q5_1 || type == GGUF_TYPE_Q4_K || type == GGUF_TYPE_Q5_K)
                memcpy(bytes + 2, &m, 2);
            break;
        }
    }
}

// A random weight of n_slices x n_out rows; freed with weight_drop.
GOLDEN_HELPER struct weight weight_new(enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_slices)
{
    struct weight weight = {
        .name = "random", .type = type, .n_in = n_in, .n_out = n_out, .n_slices = n_slices, .home = WEIGHT_HOST};
    assert_true(gguf_row_bytes(type, (uint64_t)n_in, &weight.row_bytes));
    weight.n_bytes = weight.row_bytes * (uint64_t)n_out * (uint64_t)n_slices;
    uint8_t *bytes = malloc(weight.n_bytes); // exactly, so that the sanitizer sees a read beyond the end
    assert_non_null(bytes);
    random_blocks(type, bytes, weight.n_bytes / gguf_type_info(type)->block_bytes);
    weight.host = bytes;
    return weight;
}

GOLDEN_HELPER void weight_drop(struct weight *weight)
{
    free((void *)(uintptr_t)weight->host);
    weight->host = NULL;
}

GOLDEN_HELPER struct linear linear_new(enum gguf_type type, int32_t n_in, int32_t n_out)
{
    return (struct linear){.weight = weight_new(type, n_in, n_out, 1)};
}

GOLDEN_HELPER bool type_fits(enum gguf_type type, int32_t n_in)
{
    return n_in % gguf_type_info(type)->block_elems == 0;
}

// --- the two backends ---

struct backends {
    struct ops *ref, *cpu;
};

GOLDEN_HELPER struct backends backends_new(int n_threads, bool exact, const char *kernels)
{
    struct carat_error err = {0};
    struct backends both = {.ref = ref_ops_new(&err)};
    require(both.ref != NULL, err);
    both.cpu = cpu_ops_new_with(n_threads, exact, kernels, &err);
    require(both.cpu != NULL, err);
    return both;
}

GOLDEN_HELPER void backends_free(struct backends *both)
{
    both->ref->free(both->ref);
    both->cpu->free(both->cpu);
}

// The same rows on both sides.
struct pair {
    struct tensor ref, cpu;
};

GOLDEN_HELPER struct tensor tensor_new(struct ops *ops, int32_t n_rows, int32_t n_cols, const void *values)
{
    struct carat_error err = {0};
    uint64_t n_bytes = (uint64_t)n_rows * (uint64_t)n_cols * 4;
    struct tensor tensor = {.buffer = ops->buffer_new(ops, n_bytes, &err), .n_rows = n_rows, .n_cols = n_cols};
    require(tensor.buffer != NULL, err);
    if (values != NULL)
        ops->write(ops, tensor.buffer, 0, values, n_bytes);
    return tensor;
}

// values NULL: zeros, for outputs.
GOLDEN_HELPER struct pair pair_new(struct backends *both, int32_t n_rows, int32_t n_cols, const void *values)
{
    return (struct pair){
        .ref = tensor_new(both->ref, n_rows, n_cols, values), .cpu = tensor_new(both->cpu, n_rows, n_cols, values)};
}

GOLDEN_HELPER struct pair pair_random(struct backends *both, int32_t n_rows, int32_t n_cols)
{
    float *values = random_floats((size_t)n_rows * (size_t)n_cols);
    struct pair pair = pair_new(both, n_rows, n_cols, values);
    free(values);
    return pair;
}

GOLDEN_HELPER void pair_free(struct backends *both, struct pair *pair)
{
    both->ref->buffer_free(both->ref, pair->ref.buffer);
    both->cpu->buffer_free(both->cpu, pair->cpu.buffer);
}

GOLDEN_HELPER float *values_of(struct ops *ops, struct tensor tensor)
{
    struct carat_error err = {0};
    uint64_t n_bytes = (uint64_t)tensor.n_rows * (uint64_t)tensor.n_cols * 4;
    float *values = malloc(n_bytes);
    assert_non_null(values);
    int32_t ticket = ops->read_start(ops, tensor.buffer, tensor.offset, n_bytes, values, &err);
    require(ticket >= 0, err);
    require(ops->poll(ops, ticket, &err) == OPS_DONE, err);
    return values;
}

// Largest difference, relative to the largest value of the reference. NaN anywhere makes it infinite.
GOLDEN_HELPER double pair_deviation(struct backends *both, const struct pair *pair)
{
    float *wanted = values_of(both->ref, pair->ref), *got = values_of(both->cpu, pair->cpu);
    double largest = 1e-30, deviation = 0;
    for (size_t i = 0; i < (size_t)pair->ref.n_rows * (size_t)pair->ref.n_cols; i++) {
        double difference = fabs((double)got[i] - wanted[i]);
        deviation = difference > deviation || isnan(difference) ? difference : deviation;
        largest = fabs((double)wanted[i]) > largest ? fabs((double)wanted[i]) : largest;
        if (isnan(difference))
            break;
    }
    free(got);
    free(wanted);
    return isnan(deviation) ? INFINITY : deviation / largest;
}

// Calls the test for every instruction set of this machine.
GOLDEN_HELPER void for_every_isa(void (*test)(const char *kernels))
{
    const struct cpu_kernels *tables[CPU_MAX_KERNELS];
    int n = cpu_kernels_available(tables);
    for (int i = 0; i < n; i++)
        test(tables[i]->name);
}

#endif
