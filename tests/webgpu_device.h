// webgpu_device.h: the GPU backend and the reference side by side, for the tests of the GPU.

#ifndef CARAT_TESTS_WEBGPU_DEVICE_H
#define CARAT_TESTS_WEBGPU_DEVICE_H

#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <setjmp.h>

#include "base/number.h"
#include "gguf/quants.h"
#include "ops/ops.h"
#include "ref/ref.h"
#include "webgpu/webgpu_ops.h"
#include "webgpu_driver.h"

#include <cmocka.h> // last: it has a macro called fail

// The GPU backend, or a failed test that says how to get one.
static inline struct ops *open_gpu(const struct webgpu_options *options)
{
    use_software_driver();
    struct carat_error err = {0};
    struct ops *ops = webgpu_ops_new(options, &err);
    if (ops == NULL)
        fail_msg("%s. The tests run on SwiftShader: apt-get install chromium", err.message);
    return ops;
}

// The same with what phones and browsers grant: no more than WebGPU's defaults, 16 KiB of workgroup memory, bindings of 128 MiB,
// no subgroups.
static inline struct ops *open_limited_gpu(const struct webgpu_options *options)
{
    setenv("CARAT_GPU_LIMITS", "default", 1);
    struct ops *ops = open_gpu(options);
    unsetenv("CARAT_GPU_LIMITS");
    return ops;
}

// --- numbers ---

static uint64_t random_state = 1;

static inline uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static inline float random_float(void) // in [-1, 1)
{
    return (float)((int32_t)random_u32() * 0x1p-31);
}

// --- a weight on both backends ---

struct twin_weight {
    struct weight gpu, ref;
    uint8_t *bytes;
};

// Where a type keeps its 16-bit scales inside a block; random bytes there could be NaN.
static inline void sane_scales(enum gguf_type type, uint8_t *block)
{
    static const struct {
        enum gguf_type type;
        int at[2];
    } halves[] = {{GGUF_TYPE_Q4_0, {0, -1}}, {GGUF_TYPE_Q4_1, {0, 2}}, {GGUF_TYPE_Q5_0, {0, -1}}, {GGUF_TYPE_Q5_1, {0, 2}},
        {GGUF_TYPE_Q8_0, {0, -1}}, {GGUF_TYPE_Q2_K, {80, 82}}, {GGUF_TYPE_Q3_K, {108, -1}}, {GGUF_TYPE_Q4_K, {0, 2}},
        {GGUF_TYPE_Q5_K, {0, 2}}, {GGUF_TYPE_Q6_K, {208, -1}}, {GGUF_TYPE_IQ4_NL, {0, -1}}, {GGUF_TYPE_IQ4_XS, {0, -1}}};
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++) {
        for (int k = 0; halves[i].type == type && k < 2; k++) {
            // Every fourth scale is a denormal half, as real files have them.
            uint16_t half = f16_from_f32(random_u32() % 4 == 0 ? random_float() * 3e-5f : random_float() * 0.02f);
            if (halves[i].at[k] >= 0)
                memcpy(block + halves[i].at[k], &half, 2);
        }
    }
    if (type == GGUF_TYPE_MXFP4)
        block[0] = (uint8_t)(118 + block[0] % 8);
    for (int k = 0; type == GGUF_TYPE_NVFP4 && k < 4; k++)
        block[k] = (uint8_t)(block[k] % 72);
}

static inline void random_blocks(enum gguf_type type, uint8_t *bytes, uint64_t n_elems)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    for (uint64_t b = 0; b < n_elems / info->block_elems; b++) {
        uint8_t *block = bytes + b * info->block_bytes;
        if (info->block_elems == 1) {
            float value = random_float();
            uint32_t bits = type == GGUF_TYPE_F32   ? f32_bits(value)
                            : type == GGUF_TYPE_F16 ? f16_from_f32(value)
                                                    : bf16_from_f32(value);
            memcpy(block, &bits, info->block_bytes);
            continue;
        }
        for (int i = 0; i < info->block_bytes; i++)
            block[i] = (uint8_t)random_u32();
        sane_scales(type, block);
    }
}

// Random weights, written to the GPU in pieces of odd lengths; F32 between -magnitude and magnitude, Q8_0 with so much smaller
// scales.
// The reference's side alone.
static inline struct twin_weight random_weight(
    enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_slices, float magnitude)
{
    struct twin_weight w = {
        .ref = {.name = "w", .type = type, .n_in = n_in, .n_out = n_out, .n_slices = n_slices, .home = WEIGHT_HOST}};
    assert_true(gguf_row_bytes(type, (uint64_t)n_in, &w.ref.row_bytes));
    w.ref.n_bytes = w.ref.row_bytes * (uint64_t)n_out * (uint64_t)n_slices;
    w.bytes = malloc(w.ref.n_bytes);
    random_blocks(type, w.bytes, (uint64_t)n_in * (uint64_t)n_out * (uint64_t)n_slices);
    for (uint64_t i = 0; type == GGUF_TYPE_F32 && i < w.ref.n_bytes / 4; i++)
        ((float *)(void *)w.bytes)[i] *= magnitude;
    for (uint64_t at = 0; type == GGUF_TYPE_Q8_0 && at < w.ref.n_bytes; at += 34) {
        uint16_t half;
        memcpy(&half, w.bytes + at, 2);
        half = f16_from_f32(f32_from_f16(half) * magnitude);
        memcpy(w.bytes + at, &half, 2);
    }
    w.ref.host = w.bytes;
    w.gpu = w.ref;
    w.gpu.home = WEIGHT_UNPLACED;
    w.gpu.host = NULL;
    return w;
}

static inline void place_weight(struct ops *gpu, struct twin_weight *w)
{
    struct carat_error err = {0};
    if (!gpu->weight_place(gpu, &w->gpu, NULL, false, &err))
        fail_msg("%s", err.message);
}

static inline void write_weight(struct ops *gpu, struct twin_weight *w)
{
    struct carat_error err = {0};
    uint64_t piece = 4 * (1 + random_u32() % 5000);
    for (uint64_t at = 0; at < w->ref.n_bytes; at += piece) {
        uint64_t n = w->ref.n_bytes - at < piece ? w->ref.n_bytes - at : piece;
        if (!gpu->weight_write(gpu, &w->gpu, at, w->bytes + at, n, &err))
            fail_msg("%s", err.message);
    }
}

static inline struct twin_weight make_scaled_weight(
    struct ops *gpu, enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_slices, float magnitude)
{
    struct twin_weight w = random_weight(type, n_in, n_out, n_slices, magnitude);
    place_weight(gpu, &w);
    write_weight(gpu, &w);
    return w;
}

static inline struct twin_weight make_weight(struct ops *gpu, enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_slices)
{
    return make_scaled_weight(gpu, type, n_in, n_out, n_slices, 1);
}

static inline struct twin_weight make_vector(struct ops *gpu, int32_t n)
{
    return make_weight(gpu, GGUF_TYPE_F32, n, 1, 1);
}

static inline void free_weight(struct ops *gpu, struct twin_weight *w)
{
    if (w->bytes != NULL)
        gpu->weight_free(gpu, &w->gpu);
    free(w->bytes);
}

// --- a tensor on both backends ---

struct twin {
    struct tensor gpu, ref;
};

static inline struct tensor make_tensor(struct ops *ops, int32_t n_rows, int32_t n_cols, const void *values)
{
    struct carat_error err = {0};
    struct tensor t = {.n_rows = n_rows, .n_cols = n_cols};
    uint64_t n_bytes = (uint64_t)n_rows * (uint64_t)n_cols * 4;
    t.buffer = ops->buffer_new(ops, n_bytes, &err);
    if (t.buffer == NULL)
        fail_msg("%s", err.message);
    if (values != NULL)
        ops->write(ops, t.buffer, 0, values, n_bytes);
    return t;
}

static inline struct twin make_twin_of(struct ops *gpu, struct ops *ref, int32_t n_rows, int32_t n_cols, const void *values)
{
    return (struct twin){make_tensor(gpu, n_rows, n_cols, values), make_tensor(ref, n_rows, n_cols, values)};
}

// Random values in [-scale, scale); scale 0: zeros.
static inline struct twin make_twin(struct ops *gpu, struct ops *ref, int32_t n_rows, int32_t n_cols, float scale)
{
    size_t n = (size_t)n_rows * (size_t)n_cols;
    float *values = malloc(n * sizeof *values);
    for (size_t i = 0; i < n; i++)
        values[i] = random_float() * scale;
    struct twin t = make_twin_of(gpu, ref, n_rows, n_cols, values);
    free(values);
    return t;
}

static inline void free_twin(struct ops *gpu, struct ops *ref, struct twin *t)
{
    gpu->buffer_free(gpu, t->gpu.buffer);
    ref->buffer_free(ref, t->ref.buffer);
}

static inline void read_bytes(struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target)
{
    struct carat_error err = {0};
    int32_t ticket = ops->read_start(ops, buffer, offset, n_bytes, target, &err);
    if (ticket < 0)
        fail_msg("%s", err.message);
    ops->wait(ops, ticket);
    if (ops->poll(ops, ticket, &err) != OPS_DONE)
        fail_msg("%s", err.message);
}

static inline void read_tensor(struct ops *ops, struct tensor t, void *target)
{
    read_bytes(ops, t.buffer, t.offset, (uint64_t)t.n_rows * (uint64_t)t.n_cols * 4, target);
}

// The largest difference, relative to the largest magnitude of the reference.
static inline double difference(struct ops *gpu, struct ops *ref, const struct twin *t)
{
    size_t n = (size_t)t->ref.n_rows * (size_t)t->ref.n_cols;
    float *a = malloc(n * sizeof *a), *b = malloc(n * sizeof *b);
    read_tensor(gpu, t->gpu, a);
    read_tensor(ref, t->ref, b);
    double worst = 0, largest = 1e-30;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        worst = d > worst || isnan(d) ? d : worst;
        largest = fabs((double)b[i]) > largest ? fabs((double)b[i]) : largest;
    }
    free(a);
    free(b);
    return worst / largest;
}

// f32 sums of thousands of products in another order differ by a few 1e-6 of the largest result. Inputs rounded to 16 bits are
// wrong by up to 1.5e-5 of the largest of 64, which is 2 to 10 standard deviations (a normed stream times its norm has the
// longest tail): sums of random products then differ by up to 4e-5 to 1.5e-4 of the largest sum (four standard deviations of the
// error).
enum { CLOSE_AS_F32 = 20, CLOSE_AS_16_BITS = 200 };
static int closeness = CLOSE_AS_F32; // in millionths

#define assert_close(gpu, ref, t, what, ...)                                                                                     \
    do {                                                                                                                         \
        double difference_ = difference(gpu, ref, t);                                                                            \
        if (!(difference_ <= 1e-6 * closeness))                                                                                  \
            fail_msg("relative difference %.3g: " what, difference_, __VA_ARGS__);                                               \
    } while (0)

#endif
