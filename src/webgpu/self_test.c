// self_test.c: does this device compute what it says? Some adapters advertise features and give rubbish.
//
// A product with a small F16 matrix whose first scale is a denormal half, one with Q4_0, which multiplies integers, argmax, and
// the values that they must have. Where halves or integers come out wrong, kernels that do without them are tried.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "webgpu/internal.h"

enum { TEST_N = 64, TEST_ROWS = 40 };

// What a test has found out about the machine's device holds for backends that are made later.
static bool device_flushes_halves, device_confuses_integers;

bool webgpu_flushes_halves(void)
{
    return device_flushes_halves;
}

bool webgpu_confuses_integers(void)
{
    return device_confuses_integers;
}

enum { HALVES, NIBBLES, N_PRODUCTS, BEST = N_PRODUCTS, N_TICKETS };

struct self_test {
    struct weight weights[N_PRODUCTS];
    struct buffer *x, *y[N_PRODUCTS], *id;
    float results[N_PRODUCTS][TEST_ROWS];
    int32_t best;
    int32_t tickets[N_TICKETS];
    bool tried_exact_half, tried_floats;
};

// Row r holds (r % 7 + 1) in column c when (r + c) % 3 == 0, and 0 elsewhere; with halves row 5 holds the smallest one there.
static float entry(int r, int c)
{
    return (r + c) % 3 != 0 ? 0.0f : (float)(r % 7 + 1);
}

static float input(int c)
{
    return (float)(c % 5 - 1);
}

static float expected(int product, int r)
{
    float sum = 0;
    for (int c = 0; c < TEST_N; c++)
        sum += (product == HALVES && r == 5 && entry(r, c) != 0 ? 0x1p-24f : entry(r, c)) * input(c);
    return sum;
}

static void fill_halves(uint16_t *rows)
{
    for (int r = 0; r < TEST_ROWS; r++)
        for (int c = 0; c < TEST_N; c++)
            rows[r * TEST_N + c] = entry(r, c) != 0 && r == 5 ? 1 : f16_from_f32(entry(r, c));
}

// Blocks of Q4_0: a scale of 1 (f16) and 16 bytes, the low nibbles of elements 0 to 15, then the high ones of 16 to 31, each 8
// too large.
static void fill_nibbles(uint8_t *rows)
{
    for (int i = 0; i < TEST_ROWS * TEST_N; i++) {
        uint8_t *block = rows + i / 32 * 18;
        uint16_t scale = f16_from_f32(1);
        uint8_t nibble = (uint8_t)(8 + entry(i / TEST_N, i % TEST_N));
        memcpy(block, &scale, 2);
        if (i % 32 < 16)
            block[2 + i % 16] = nibble;
        else
            block[2 + i % 16] |= (uint8_t)(nibble << 4);
    }
}

void webgpu_self_test_close(struct webgpu *gpu)
{
    struct self_test *test = gpu->self_test;
    if (test == NULL)
        return;
    for (int i = 0; i < N_PRODUCTS; i++) {
        webgpu_weight_free(&gpu->ops, &test->weights[i]);
        gpu->ops.buffer_free(&gpu->ops, test->y[i]);
    }
    gpu->ops.buffer_free(&gpu->ops, test->x);
    gpu->ops.buffer_free(&gpu->ops, test->id);
    free(test);
    gpu->self_test = NULL;
}

static bool run(struct webgpu *gpu, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct self_test *test = gpu->self_test;
    struct tensor x = {.buffer = test->x, .n_rows = 1, .n_cols = TEST_N}, id = {.buffer = test->id, .n_rows = 1, .n_cols = 1};
    bool started = true;
    for (int i = 0; i < N_PRODUCTS && started; i++) {
        struct tensor y = {.buffer = test->y[i], .n_rows = 1, .n_cols = TEST_ROWS};
        ops->project(ops, x, &(struct linear){.weight = test->weights[i]}, y);
        if (i == HALVES)
            ops->argmax(ops, y, 0, id);
        test->tickets[i] = ops->read_start(ops, test->y[i], 0, sizeof test->results[i], test->results[i], err);
        started = test->tickets[i] >= 0;
    }
    test->tickets[BEST] = started ? ops->read_start(ops, test->id, 0, 4, &test->best, err) : -1;
    return test->tickets[BEST] >= 0;
}

static bool place(
    struct ops *ops, struct weight *weight, enum gguf_type type, const void *rows, uint64_t row_bytes, struct carat_error *err)
{
    *weight = (struct weight){.name = "self-test",
        .type = type,
        .n_in = TEST_N,
        .n_out = TEST_ROWS,
        .n_slices = 1,
        .row_bytes = row_bytes,
        .n_bytes = row_bytes * TEST_ROWS};
    return webgpu_weight_place(ops, weight, NULL, false, err) && webgpu_weight_write(ops, weight, 0, rows, weight->n_bytes, err);
}

bool webgpu_self_test_start(struct ops *ops, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_self_test_close(gpu);
    struct self_test *test = gpu->self_test = calloc(1, sizeof *test);
    if (test == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to test the GPU");
    for (int i = 0; i < N_TICKETS; i++)
        test->tickets[i] = -1;
    uint16_t halves[TEST_ROWS * TEST_N];
    uint8_t nibbles[TEST_ROWS * TEST_N / 32 * 18];
    fill_halves(halves);
    fill_nibbles(nibbles);
    float x[TEST_N];
    for (int c = 0; c < TEST_N; c++)
        x[c] = input(c);
    test->x = ops->buffer_new(ops, sizeof x, err);
    test->id = ops->buffer_new(ops, 4, err);
    bool made = test->x != NULL && test->id != NULL;
    for (int i = 0; i < N_PRODUCTS && made; i++)
        made = (test->y[i] = ops->buffer_new(ops, sizeof test->results[i], err)) != NULL;
    made = made && place(ops, &test->weights[HALVES], GGUF_TYPE_F16, halves, TEST_N * 2, err) &&
           place(ops, &test->weights[NIBBLES], GGUF_TYPE_Q4_0, nibbles, TEST_N / 32 * 18, err);
    if (made)
        ops->write(ops, test->x, 0, x, sizeof x);
    if (made && run(gpu, err))
        return true;
    webgpu_self_test_close(gpu);
    return false;
}

// Does a row of a product have the value that it must have? Inputs may have been rounded to 16 bits with a scale for all.
static bool is_right(const struct self_test *test, int product, int r)
{
    float tolerance = product == NIBBLES ? 0.01f : r == 5 ? 0.0f : 1e-4f;
    return fabsf(test->results[product][r] - expected(product, r)) <= tolerance;
}

// What is wrong with the results: half numbers, products of integers, anything else.
static void judge(const struct self_test *test, bool *halves, bool *integers, bool *others)
{
    int best = 0;
    *halves = *integers = *others = false;
    for (int r = 0; r < TEST_ROWS; r++) {
        *(r == 5 ? halves : others) |= !is_right(test, HALVES, r);
        *integers |= !is_right(test, NIBBLES, r);
        best = expected(HALVES, r) > expected(HALVES, best) ? r : best;
    }
    *others |= test->best != best;
}

enum ops_state webgpu_self_test_poll(struct ops *ops, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    struct self_test *test = gpu->self_test;
    if (test == NULL)
        return webgpu_trial_poll(gpu, err);
    for (int i = 0; i < N_TICKETS; i++) {
        enum ops_state state = test->tickets[i] >= 0 ? ops->poll(ops, test->tickets[i], err) : OPS_DONE;
        if (state == OPS_PENDING)
            return state;
        test->tickets[i] = -1;
        if (state == OPS_FAILED) {
            webgpu_self_test_close(gpu);
            return state;
        }
    }
    bool halves, integers, others, again = false;
    judge(test, &halves, &integers, &others);
    if (!others && halves && !test->tried_exact_half)
        again = test->tried_exact_half = gpu->exact_half = device_flushes_halves = true;
    if (!others && integers && !test->tried_floats)
        again = test->tried_floats = gpu->multiplies_floats = device_confuses_integers = true;
    if (again) {
        webgpu_forget_kernels(gpu);
        if (run(gpu, err))
            return OPS_PENDING;
    }
    bool right = !halves && !integers && !others;
    if (!right)
        fail(err, CARAT_NO_DEVICE, "the GPU '%s' computes wrong results in a test of known values; use the CPU", ops->device);
    webgpu_self_test_close(gpu);
    return right ? webgpu_trial_poll(gpu, err) : OPS_FAILED;
}

#ifndef __wasm__
bool webgpu_self_test(struct ops *ops, struct carat_error *err)
{
    if (!webgpu_self_test_start(ops, err))
        return false;
    enum ops_state state;
    while ((state = webgpu_self_test_poll(ops, err)) == OPS_PENDING) {
        const struct self_test *test = webgpu_of(ops)->self_test;
        int32_t ticket = webgpu_trial_ticket(webgpu_of(ops));
        for (int i = 0; test != NULL && i < N_TICKETS && ticket < 0; i++)
            ticket = test->tickets[i];
        ops->wait(ops, ticket);
    }
    return state == OPS_DONE;
}
#endif
