// webgpu_products_test.c: weights and products on the GPU against the scalar reference.

#include "webgpu_pair.h"

#include "webgpu/gpu_internal.h"
#include "webgpu/internal.h"

#include "extent.h"

static const enum gguf_type all_types[] = {GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16, GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_1,
    GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q8_0, GGUF_TYPE_Q2_K, GGUF_TYPE_Q3_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K,
    GGUF_TYPE_Q6_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS, GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

static void check_project(enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_rows)
{
    struct twin_weight w = make_weight(gpu, type, n_in, n_out, 1);
    struct twin x = make_twin(gpu, ref, n_rows, n_in, 1), y = make_twin(gpu, ref, n_rows, n_out, 0);
    struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
    gpu->project(gpu, x.gpu, &on_gpu, y.gpu);
    ref->project(ref, x.ref, &on_ref, y.ref);
    assert_close(gpu, ref, &y, "%s, %d to %d, %d rows", gguf_type_name(type), n_in, n_out, n_rows);
    free_twin(gpu, ref, &x);
    free_twin(gpu, ref, &y);
    free_weight(gpu, &w);
}

static void every_type_multiplies_one_row(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++)
        check_project(all_types[i], 768, 37, 1);
}

static void every_type_multiplies_many_rows(void **state)
{
    (void)state;
    for (int i = 0; i < N_TYPES; i++) {
        check_project(all_types[i], 512, 70, 67);
        check_project(all_types[i], 256, 130, 9); // the tile for few rows
    }
}

static void odd_shapes_multiply(void **state)
{
    (void)state;
    static const int32_t shapes[][3] = {{1, 1, 1}, {3, 5, 1}, {31, 1, 2}, {33, 65, 5}, {100, 7, 4}, {64, 130, 9}, {96, 64, 64},
        {4100, 3, 1}, {4100, 3, 6}, {36, 200, 3}, {100, 70, 70}, {36, 66, 130}, {33, 3, 70}, {36, 3, 70}};
    static const enum gguf_type types[] = {GGUF_TYPE_F32, GGUF_TYPE_F16, GGUF_TYPE_BF16};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        check_project(types[i % 3], shapes[i][0], shapes[i][1], shapes[i][2]);
}

static void long_rows_multiply(void **state)
{
    (void)state;
    check_project(GGUF_TYPE_Q4_K, 12288, 9, 1);
    check_project(GGUF_TYPE_Q6_K, 6144, 5, 2);
    check_project(GGUF_TYPE_Q8_0, 2048, 33, 1);
    check_project(GGUF_TYPE_Q5_0, 352, 33, 1);
    check_project(GGUF_TYPE_Q8_0, 96, 33, 7);
    check_project(GGUF_TYPE_Q4_K, 1536, 70, 9); // columns dealt to several workgroups
}

// Widths of all models and odd ones, split and staged in every way, for the types that multiply integers.
static void rows_of_every_length_multiply(void **state)
{
    (void)state;
    static const int32_t lengths[] = {
        64, 128, 192, 256, 320, 768, 1024, 1280, 2048, 2560, 2816, 3840, 4096, 5376, 10240, 15360, 21504};
    static const enum gguf_type types[] = {GGUF_TYPE_Q6_K, GGUF_TYPE_Q4_0, GGUF_TYPE_Q4_K, GGUF_TYPE_Q8_0, GGUF_TYPE_Q5_K};
    enum { N_LENGTHS = sizeof lengths / sizeof lengths[0], N_INTEGERS = sizeof types / sizeof types[0] };
    for (int i = 0; i < N_LENGTHS; i++) {
        for (int k = 0; k < N_INTEGERS; k++) {
            bool is_block = types[k] != GGUF_TYPE_Q4_0 && types[k] != GGUF_TYPE_Q8_0;
            if (lengths[i] % (is_block ? 256 : 32) != 0 || (k != i % N_INTEGERS && !test_everything()))
                continue;
            check_project(types[k], lengths[i], i % 3 == 0 ? 300 : 5, 1 + (i + k) % 4 / 2);
        }
    }
}

static void every_type_embeds_rows(void **state)
{
    (void)state;
    int32_t ids[3] = {0, 36, 17};
    for (int i = 0; i < N_TYPES; i++) {
        struct twin_weight w = make_weight(gpu, all_types[i], 512, 37, 1);
        struct twin device = make_twin_of(gpu, ref, 3, 1, ids), out = make_twin(gpu, ref, 3, 512, 0);
        struct token_ids on_gpu = {.device = device.gpu}, on_ref = {.device = device.ref, .host = ids};
        gpu->embed(gpu, &w.gpu, &on_gpu, 3.5f, out.gpu);
        ref->embed(ref, &w.ref, &on_ref, 3.5f, out.ref);
        assert_close(gpu, ref, &out, "%s", gguf_type_name(all_types[i]));
        free_twin(gpu, ref, &device);
        free_twin(gpu, ref, &out);
        free_weight(gpu, &w);
    }
}

static void bias_bounds_and_adapters_apply(void **state)
{
    (void)state;
    for (int n_rows = 1; n_rows <= 9; n_rows += 8) {
        struct twin_weight w = make_weight(gpu, GGUF_TYPE_F16, 64, 50, 1), bias = make_vector(gpu, 50);
        struct twin x = make_twin(gpu, ref, n_rows, 64, 2), y = make_twin(gpu, ref, n_rows, 50, 0);
        struct twin a = make_twin(gpu, ref, 3, 64, 0.5f), b = make_twin(gpu, ref, 50, 3, 0.5f);
        struct lora_pair pair_gpu = {.a = a.gpu, .b = b.gpu, .scale = 2}, pair_ref = {.a = a.ref, .b = b.ref, .scale = 2};
        struct linear on_gpu = {.weight = w.gpu,
            .bias = bias.gpu,
            .clipped = true,
            .in_min = -1,
            .in_max = 1.5f,
            .out_min = -3,
            .out_max = 2,
            .adapters = &pair_gpu};
        struct linear on_ref = on_gpu;
        on_ref.weight = w.ref;
        on_ref.bias = bias.ref;
        on_ref.adapters = NULL; // the reference adapts the clipped input or the raw one: compared apart from the bounds below
        on_gpu.adapters = NULL;
        gpu->project(gpu, x.gpu, &on_gpu, y.gpu);
        ref->project(ref, x.ref, &on_ref, y.ref);
        assert_close(gpu, ref, &y, "bounds, %d rows", n_rows);
        on_gpu.clipped = on_ref.clipped = false;
        on_gpu.adapters = &pair_gpu;
        on_ref.adapters = &pair_ref;
        gpu->project(gpu, x.gpu, &on_gpu, y.gpu);
        ref->project(ref, x.ref, &on_ref, y.ref);
        assert_close(gpu, ref, &y, "adapters, %d rows", n_rows);
        free_twin(gpu, ref, &x);
        free_twin(gpu, ref, &y);
        free_twin(gpu, ref, &a);
        free_twin(gpu, ref, &b);
        free_weight(gpu, &w);
        free_weight(gpu, &bias);
    }
}

enum { EXPERTS_D = 96, N_EXPERTS = 8, EXPERTS_FF = 64 };

// Experts on both backends, but for gate and up.
struct twin_experts {
    struct twin_weight router_scale, router, pre_norm, down;
    struct experts gpu, ref;
};

// The experts point into *t, which must stay where it is.
static void make_experts(struct twin_experts *t)
{
    t->router_scale = make_vector(gpu, EXPERTS_D);
    t->router = make_weight(gpu, GGUF_TYPE_F32, EXPERTS_D, N_EXPERTS, 1);
    t->pre_norm = make_vector(gpu, EXPERTS_D);
    t->down = make_weight(gpu, GGUF_TYPE_Q5_0, EXPERTS_FF, EXPERTS_D, N_EXPERTS);
    t->gpu = (struct experts){.n_experts = N_EXPERTS,
        .n_used = 3,
        .n_ff = EXPERTS_FF,
        .router_scale = &t->router_scale.gpu,
        .router = &t->router.gpu,
        .pre_norm = &t->pre_norm.gpu,
        .down = &t->down.gpu,
        .eps = 1e-6f};
    t->ref = t->gpu;
    t->ref.router_scale = &t->router_scale.ref, t->ref.router = &t->router.ref;
    t->ref.pre_norm = &t->pre_norm.ref, t->ref.down = &t->down.ref;
}

static void free_experts(struct twin_experts *t)
{
    struct twin_weight *all[] = {&t->router_scale, &t->router, &t->pre_norm, &t->down};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_weight(gpu, all[i]);
}

static struct twin_weight make_expert_weight(enum gguf_type type, int32_t n_out)
{
    return make_weight(gpu, type, EXPERTS_D, n_out, N_EXPERTS);
}

static void the_chosen_experts_add_up(void **state)
{
    (void)state;
    struct twin_experts t;
    make_experts(&t);
    struct twin_weight down_scale = make_vector(gpu, N_EXPERTS), both = make_expert_weight(GGUF_TYPE_Q8_0, 2 * EXPERTS_FF);
    struct twin_weight gate = make_expert_weight(GGUF_TYPE_Q8_0, EXPERTS_FF), up = make_expert_weight(GGUF_TYPE_Q4_1, EXPERTS_FF);
    for (int variant = 0; variant < 2; variant++) {
        for (int n_rows = 1; n_rows <= 7; n_rows += 6) {
            struct experts g = t.gpu, r = t.ref;
            if (variant == 0) {
                g.gate_up = &both.gpu;
                r.gate_up = &both.ref;
                g.down_scale = &down_scale.gpu;
                r.down_scale = &down_scale.ref;
            } else {
                g.gate = &gate.gpu, g.up = &up.gpu;
                r.gate = &gate.ref, r.up = &up.ref;
            }
            struct twin h = make_twin(gpu, ref, n_rows, EXPERTS_D, 2), out = make_twin(gpu, ref, n_rows, EXPERTS_D, 0);
            gpu->experts(gpu, h.gpu, &g, out.gpu);
            ref->experts(ref, h.ref, &r, out.ref);
            assert_close(gpu, ref, &out, "variant %d, %d rows", variant, n_rows);
            free_twin(gpu, ref, &h);
            free_twin(gpu, ref, &out);
        }
    }
    struct twin_weight *all[] = {&down_scale, &both, &gate, &up};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_weight(gpu, all[i]);
    free_experts(&t);
}

// Gate and up in several bindings each: cut at the same experts they work, cut at others they are refused.
static void experts_in_several_bindings(void **state)
{
    (void)state;
    struct twin_experts t;
    make_experts(&t);
    struct gpu *device = webgpu_of(gpu)->gpu;
    uint64_t usual = device->limits.max_binding_bytes;
    device->limits.max_binding_bytes = 5 * EXPERTS_FF * 112; // a row of Q8_0 is 3 blocks of 34 bytes, in vectors of 16
    struct twin_weight gate = make_expert_weight(GGUF_TYPE_Q8_0, EXPERTS_FF), up = make_expert_weight(GGUF_TYPE_Q8_0, EXPERTS_FF);
    struct twin_weight small_up = make_expert_weight(GGUF_TYPE_Q4_0, EXPERTS_FF);
    device->limits.max_binding_bytes = usual;
    t.gpu.gate = &gate.gpu, t.gpu.up = &up.gpu;
    t.ref.gate = &gate.ref, t.ref.up = &up.ref;
    assert_int_equal(((struct device_weight *)gate.gpu.device)->n_parts, 2);
    assert_int_equal(((struct device_weight *)small_up.gpu.device)->n_parts, 1);
    struct twin h = make_twin(gpu, ref, 7, EXPERTS_D, 2), out = make_twin(gpu, ref, 7, EXPERTS_D, 0);
    gpu->experts(gpu, h.gpu, &t.gpu, out.gpu);
    ref->experts(ref, h.ref, &t.ref, out.ref);
    assert_close(gpu, ref, &out, "two parts, %d rows", 7);
    t.gpu.up = &small_up.gpu;
    gpu->experts(gpu, h.gpu, &t.gpu, out.gpu);
    struct carat_error err = {0};
    float got[EXPERTS_D];
    assert_int_equal(gpu->read_start(gpu, out.gpu.buffer, 0, sizeof got, got, &err), -1);
    assert_int_equal(err.code, CARAT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "differ in type"));
    free_twin(gpu, ref, &h);
    free_twin(gpu, ref, &out);
    struct twin_weight *all[] = {&gate, &up, &small_up};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free_weight(gpu, all[i]);
    free_experts(&t);
}

static void the_default_limits_suffice(void **state)
{
    struct ops *usual = gpu;
    int usual_closeness = closeness;
    closeness = CLOSE_AS_16_BITS;
    gpu = open_limited_gpu(&(struct webgpu_options){.no_autotune = true});
    long_rows_multiply(state);
    gpu->free(gpu);
    gpu = usual;
    closeness = usual_closeness;
}

// Whoever looks at a long product at once must find it whole, not in sums.
static void long_products_are_whole_where_they_are_read(void **state)
{
    (void)state;
    struct twin_weight w = make_weight(gpu, GGUF_TYPE_Q8_0, 2560, 300, 1);
    struct twin x = make_twin(gpu, ref, 1, 2560, 1), y = make_twin(gpu, ref, 1, 300, 0);
    struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
    int32_t suppressed[2] = {5, 77};
    gpu->head(gpu, x.gpu, &on_gpu, 0, suppressed, 2, y.gpu);
    ref->head(ref, x.ref, &on_ref, 0, suppressed, 2, y.ref);
    float got[300], wanted[300];
    read_tensor(gpu, y.gpu, got);
    read_tensor(ref, y.ref, wanted);
    for (int i = 0; i < 300; i++)
        assert_true(i == 5 || i == 77 ? got[i] == -3.0e38f : fabsf(got[i] - wanted[i]) <= 1e-3f * fabsf(wanted[i]) + 1e-2f);
    free_twin(gpu, ref, &x);
    free_twin(gpu, ref, &y);
    free_weight(gpu, &w);
}

static void what_is_no_number_stays_none(void **state)
{
    (void)state;
    float values[1024];
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 1024; i++)
            values[i] = random_float();
        values[700] = k == 0 ? NAN : k == 1 ? INFINITY : -INFINITY;
        struct twin_weight w = make_weight(gpu, GGUF_TYPE_Q4_K, 1024, 8, 1);
        struct twin x = make_twin_of(gpu, ref, 1, 1024, values), y = make_twin(gpu, ref, 1, 8, 0);
        struct linear linear = {.weight = w.gpu};
        gpu->project(gpu, x.gpu, &linear, y.gpu);
        float got[8];
        read_tensor(gpu, y.gpu, got);
        for (int i = 0; i < 8; i++)
            assert_false(isfinite(got[i]));
        free_twin(gpu, ref, &x);
        free_twin(gpu, ref, &y);
        free_weight(gpu, &w);
    }
}

// Whatever the trial of the first device finds faster, the second one takes without a trial of its own, and both multiply
// rightly.
static void devices_multiply_after_the_trial(void **state)
{
    (void)state;
    struct ops *usual = gpu;
    closeness = CLOSE_AS_16_BITS;
    int64_t n_dispatches[2];
    for (int k = 0; k < 2; k++) {
        gpu = open_gpu(NULL);
        n_dispatches[k] = gpu->n_dispatches;
        check_project(GGUF_TYPE_Q4_K, 2048, 33, 1);
        gpu->free(gpu);
    }
    assert_true(n_dispatches[1] < n_dispatches[0]);
    gpu = usual;
    closeness = CLOSE_AS_F32;
}

static void the_device_passes_its_self_test(void **state)
{
    (void)state;
    struct carat_error err = {0};
    if (!webgpu_self_test(gpu, &err))
        fail_msg("%s", err.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_passes_its_self_test),
        cmocka_unit_test(devices_multiply_after_the_trial),
        cmocka_unit_test(the_default_limits_suffice),
        cmocka_unit_test(every_type_multiplies_one_row),
        cmocka_unit_test(every_type_multiplies_many_rows),
        cmocka_unit_test(odd_shapes_multiply),
        cmocka_unit_test(long_rows_multiply),
        cmocka_unit_test(every_type_embeds_rows),
        cmocka_unit_test(bias_bounds_and_adapters_apply),
        cmocka_unit_test(the_chosen_experts_add_up),
        cmocka_unit_test(experts_in_several_bindings),
    };
    const struct CMUnitTest with_integers[] = {
        cmocka_unit_test(every_type_multiplies_one_row),
        cmocka_unit_test(long_rows_multiply),
        cmocka_unit_test(rows_of_every_length_multiply),
        cmocka_unit_test(long_products_are_whole_where_they_are_read),
        cmocka_unit_test(what_is_no_number_stays_none),
    };
    int n_failed = cmocka_run_group_tests(tests, open_both, close_both);
    return n_failed + cmocka_run_group_tests(with_integers, open_both_for_integers, close_both);
}
