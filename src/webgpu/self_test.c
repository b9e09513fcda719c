// self_test.c: does this device compute what it says? Some adapters advertise features and give rubbish.
//
// A product with a small F16 matrix whose first scale is a denormal half, argmax, and the values the two must have.

#include <math.h>
#include <stdlib.h>

#include "base/number.h"
#include "webgpu/internal.h"

enum { TEST_N = 64, TEST_ROWS = 40 };

// What a test has found out about the machine's device holds for backends that are made later.
static bool device_flushes_halves;

bool webgpu_flushes_halves(void)
{
    return device_flushes_halves;
}

struct self_test {
    struct weight weight;
    struct buffer *x, *y, *id;
    float results[TEST_ROWS];
    int32_t best;
    int32_t tickets[2];
    bool tried_exact_half;
};

// Row r holds (r % 7 + 1) in column c when (r + c) % 3 == 0; row 5 holds the smallest half there.
static void fill_weight(uint16_t *rows)
{
    for (int r = 0; r < TEST_ROWS; r++)
        for (int c = 0; c < TEST_N; c++)
            rows[r * TEST_N + c] = (r + c) % 3 != 0 ? 0 : r == 5 ? 1 : f16_from_f32((float)(r % 7 + 1));
}

static float expected(int r)
{
    float sum = 0;
    for (int c = 0; c < TEST_N; c++)
        sum += (r + c) % 3 != 0 ? 0 : (r == 5 ? 0x1p-24f : (float)(r % 7 + 1)) * (float)(c % 5 - 1);
    return sum;
}

void webgpu_self_test_close(struct webgpu *gpu)
{
    struct self_test *test = gpu->self_test;
    if (test == NULL)
        return;
    webgpu_weight_free(&gpu->ops, &test->weight);
    gpu->ops.buffer_free(&gpu->ops, test->x);
    gpu->ops.buffer_free(&gpu->ops, test->y);
    gpu->ops.buffer_free(&gpu->ops, test->id);
    free(test);
    gpu->self_test = NULL;
}

static bool run(struct webgpu *gpu, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct self_test *test = gpu->self_test;
    struct tensor x = {.buffer = test->x, .n_rows = 1, .n_cols = TEST_N},
                  y = {.buffer = test->y, .n_rows = 1, .n_cols = TEST_ROWS};
    struct tensor id = {.buffer = test->id, .n_rows = 1, .n_cols = 1};
    struct linear linear = {.weight = test->weight};
    ops->project(ops, x, &linear, y);
    ops->argmax(ops, y, 0, id);
    test->tickets[0] = ops->read_start(ops, test->y, 0, sizeof test->results, test->results, err);
    test->tickets[1] = test->tickets[0] >= 0 ? ops->read_start(ops, test->id, 0, 4, &test->best, err) : -1;
    return test->tickets[1] >= 0;
}

bool webgpu_self_test_start(struct ops *ops, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_self_test_close(gpu);
    struct self_test *test = gpu->self_test = calloc(1, sizeof *test);
    if (test == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to test the GPU");
    test->weight = (struct weight){.name = "self-test",
        .type = GGUF_TYPE_F16,
        .n_in = TEST_N,
        .n_out = TEST_ROWS,
        .n_slices = 1,
        .row_bytes = TEST_N * 2,
        .n_bytes = TEST_N * 2 * TEST_ROWS};
    uint16_t rows[TEST_ROWS * TEST_N];
    fill_weight(rows);
    float x[TEST_N];
    for (int c = 0; c < TEST_N; c++)
        x[c] = (float)(c % 5 - 1);
    test->x = ops->buffer_new(ops, sizeof x, err);
    test->y = ops->buffer_new(ops, sizeof test->results, err);
    test->id = ops->buffer_new(ops, 4, err);
    bool made = test->x != NULL && test->y != NULL && test->id != NULL &&
                webgpu_weight_place(ops, &test->weight, NULL, false, err) &&
                webgpu_weight_write(ops, &test->weight, 0, rows, sizeof rows, err);
    if (made)
        ops->write(ops, test->x, 0, x, sizeof x);
    if (made && run(gpu, err))
        return true;
    webgpu_self_test_close(gpu);
    return false;
}

enum ops_state webgpu_self_test_poll(struct ops *ops, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    struct self_test *test = gpu->self_test;
    if (test == NULL) {
        fail(err, CARAT_BAD_ARGUMENT, "no test of the GPU is under way");
        return OPS_FAILED;
    }
    for (int i = 0; i < 2; i++) {
        enum ops_state state = test->tickets[i] >= 0 ? ops->poll(ops, test->tickets[i], err) : OPS_DONE;
        if (state == OPS_PENDING)
            return state;
        test->tickets[i] = -1;
        if (state == OPS_FAILED) {
            webgpu_self_test_close(gpu);
            return state;
        }
    }
    int wrong = -1, best = 0;
    bool half_wrong = test->results[5] != expected(5);
    for (int r = 0; r < TEST_ROWS; r++) {
        if (r != 5 && fabsf(test->results[r] - expected(r)) > 1e-4f)
            wrong = r;
        best = expected(r) > expected(best) ? r : best;
    }
    if (wrong < 0 && test->best == best && half_wrong && !test->tried_exact_half) {
        test->tried_exact_half = gpu->exact_half = device_flushes_halves = true;
        webgpu_forget_kernels(gpu);
        if (run(gpu, err))
            return OPS_PENDING;
    }
    bool right = wrong < 0 && test->best == best && !half_wrong;
    if (!right)
        fail(err, CARAT_NO_DEVICE, "the GPU '%s' computes wrong results in a test of known values; use the CPU", ops->device);
    webgpu_self_test_close(gpu);
    return right ? OPS_DONE : OPS_FAILED;
}

#ifndef __wasm__
bool webgpu_self_test(struct ops *ops, struct carat_error *err)
{
    if (!webgpu_self_test_start(ops, err))
        return false;
    enum ops_state state;
    while ((state = webgpu_self_test_poll(ops, err)) == OPS_PENDING) {
        struct self_test *test = webgpu_of(ops)->self_test;
        ops->wait(ops, test->tickets[0] >= 0 ? test->tickets[0] : test->tickets[1]);
    }
    return state == OPS_DONE;
}
#endif
