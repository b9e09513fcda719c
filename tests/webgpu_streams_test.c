// webgpu_streams_test.c: the residual stream on the GPU, and the operations that settle it, against the scalar reference.

#include "webgpu_stream.h"

static const struct stream_case stream_cases[] = {
    {1, 256, true, true, true, true},
    {1, 256, true, true, false, true},
    {1, 256, false, false, false, true},
    {1, 256, false, false, true, false},
    {1, 256, true, false, true, false},
    {1, 768, true, true, true, false},
    {3, 256, true, true, true, true},
    {9, 256, true, true, true, true},
    {5, 256, false, false, false, false},
};
enum { N_STREAM_CASES = sizeof stream_cases / sizeof stream_cases[0] };

static void streams_settle_and_norm(void **state)
{
    (void)state;
    struct stream_case odd = {7, 37, true, true, true, true};
    for (int i = 0; i <= N_STREAM_CASES; i++) {
        const struct stream_case *c = i < N_STREAM_CASES ? &stream_cases[i] : &odd;
        struct twin_stream s;
        make_stream(c, &s);
        struct twin out = make_twin(gpu, ref, c->n_rows, c->d, 0);
        gpu->settle(gpu, &s.gpu);
        ref->settle(ref, &s.ref);
        check_settled(&s, "settle");
        free_stream(&s);
        make_stream(c, &s);
        gpu->norm(gpu, &s.gpu, &s.norm.gpu, out.gpu);
        ref->norm(ref, &s.ref, &s.norm.ref, out.ref);
        check_settled(&s, "norm");
        assert_close(gpu, ref, &out, "norm, case %d", i);
        free_twin(gpu, ref, &out);
        free_stream(&s);
    }
}

static void streams_project_into_parts_of_different_types(void **state)
{
    (void)state;
    static const int32_t n_out[3] = {96, 40, 33};
    static const enum gguf_type types[3] = {GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K};
    for (int i = 0; i < N_STREAM_CASES; i++) {
        for (int n_parts = 1; n_parts <= 3; n_parts++) {
            const struct stream_case *c = &stream_cases[i];
            struct twin_stream s;
            make_stream(c, &s);
            struct twin_weight w[3];
            struct linear on_gpu[3] = {0}, on_ref[3] = {0};
            const struct linear *gpu_parts[3], *ref_parts[3];
            int32_t total = 0;
            for (int k = 0; k < n_parts; k++) {
                w[k] = make_weight(gpu, types[k], c->d, n_out[k], 1);
                on_gpu[k].weight = w[k].gpu;
                on_ref[k].weight = w[k].ref;
                gpu_parts[k] = &on_gpu[k];
                ref_parts[k] = &on_ref[k];
                total += n_out[k];
            }
            struct twin out = make_twin(gpu, ref, c->n_rows, total, 0);
            gpu->norm_project(gpu, &s.gpu, c->has_norm ? &s.norm.gpu : NULL, gpu_parts, n_parts, out.gpu);
            ref->norm_project(ref, &s.ref, c->has_norm ? &s.norm.ref : NULL, ref_parts, n_parts, out.ref);
            assert_close(gpu, ref, &out, "case %d, %d parts", i, n_parts);
            check_settled(&s, "norm_project");
            free_twin(gpu, ref, &out);
            for (int k = 0; k < n_parts; k++)
                free_weight(gpu, &w[k]);
            free_stream(&s);
        }
    }
}

static void streams_go_through_gated_units(void **state)
{
    (void)state;
    static const enum activation activations[] = {ACTIVATION_GELU_TANH, ACTIVATION_GELU_QUICK, ACTIVATION_SILU};
    for (int i = 0; i < N_STREAM_CASES; i++) {
        const struct stream_case *c = &stream_cases[i];
        struct twin_stream s;
        make_stream(c, &s);
        static const enum gguf_type up_types[] = {GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q3_K};
        struct twin_weight gate = make_weight(gpu, GGUF_TYPE_Q4_K, c->d, 75, 1),
                           up = make_weight(gpu, up_types[i % 4], c->d, 75, 1);
        struct linear gate_gpu = {.weight = gate.gpu}, gate_ref = {.weight = gate.ref};
        struct linear up_gpu = {.weight = up.gpu}, up_ref = {.weight = up.ref};
        struct twin out = make_twin(gpu, ref, c->n_rows, 75, 0);
        gpu->norm_gated(gpu, &s.gpu, c->has_norm ? &s.norm.gpu : NULL, &gate_gpu, &up_gpu, activations[i % 3], out.gpu);
        ref->norm_gated(ref, &s.ref, c->has_norm ? &s.norm.ref : NULL, &gate_ref, &up_ref, activations[i % 3], out.ref);
        assert_close(gpu, ref, &out, "case %d", i);
        check_settled(&s, "norm_gated");
        free_twin(gpu, ref, &out);
        free_weight(gpu, &gate);
        free_weight(gpu, &up);
        free_stream(&s);
    }
}

static void streams_take_their_per_layer_gates(void **state)
{
    (void)state;
    for (int i = 0; i < N_STREAM_CASES; i++) {
        const struct stream_case *c = &stream_cases[i];
        struct twin_stream s;
        make_stream(c, &s);
        struct twin_weight w = make_weight(gpu, GGUF_TYPE_Q8_0, c->d, 64, 1);
        struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
        struct twin per_layer = make_twin(gpu, ref, c->n_rows, 5 * 64, 1), out = make_twin(gpu, ref, c->n_rows, 64, 0);
        gpu->per_layer_gate(gpu, &s.gpu, &on_gpu, per_layer.gpu, 3, out.gpu);
        ref->per_layer_gate(ref, &s.ref, &on_ref, per_layer.ref, 3, out.ref);
        assert_close(gpu, ref, &out, "case %d", i);
        check_settled(&s, "per_layer_gate");
        free_twin(gpu, ref, &out);
        free_twin(gpu, ref, &per_layer);
        free_weight(gpu, &w);
        free_stream(&s);
    }
}

static void adapters_join_fused_products(void **state)
{
    (void)state;
    struct stream_case c = {1, 256, true, true, true, true};
    struct twin_stream s;
    make_stream(&c, &s);
    struct twin_weight w = make_weight(gpu, GGUF_TYPE_Q4_K, 256, 40, 1);
    struct twin a = make_twin(gpu, ref, 4, 256, 0.5f), b = make_twin(gpu, ref, 40, 4, 0.5f), out = make_twin(gpu, ref, 1, 80, 0);
    struct lora_pair pair_gpu = {.a = a.gpu, .b = b.gpu, .scale = 0.7f}, pair_ref = {.a = a.ref, .b = b.ref, .scale = 0.7f};
    struct linear plain_gpu = {.weight = w.gpu}, adapted_gpu = {.weight = w.gpu, .adapters = &pair_gpu};
    struct linear plain_ref = {.weight = w.ref}, adapted_ref = {.weight = w.ref, .adapters = &pair_ref};
    const struct linear *gpu_parts[] = {&plain_gpu, &adapted_gpu}, *ref_parts[] = {&plain_ref, &adapted_ref};
    gpu->norm_project(gpu, &s.gpu, &s.norm.gpu, gpu_parts, 2, out.gpu);
    ref->norm_project(ref, &s.ref, &s.norm.ref, ref_parts, 2, out.ref);
    assert_close(gpu, ref, &out, "%s", "second part adapted");
    free_twin(gpu, ref, &a);
    free_twin(gpu, ref, &b);
    free_twin(gpu, ref, &out);
    free_weight(gpu, &w);
    free_stream(&s);
}

// What a long product leaves in several sums is added by whoever takes it, whichever operation that is.
static void a_long_product_becomes_the_term_of_the_stream(void **state)
{
    (void)state;
    struct twin_weight down = make_weight(gpu, GGUF_TYPE_Q4_K, 6144, 256, 1), w = make_weight(gpu, GGUF_TYPE_Q4_K, 256, 40, 1);
    struct linear down_gpu = {.weight = down.gpu}, down_ref = {.weight = down.ref};
    struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
    const struct linear *gpu_part = &on_gpu, *ref_part = &on_ref;
    for (int taker = 0; taker < 3; taker++) {
        struct stream_case c = {1, 256, true, true, true, true};
        struct twin_stream s;
        make_stream(&c, &s);
        struct twin x = make_twin(gpu, ref, 1, 6144, 1), out = make_twin(gpu, ref, 1, taker == 0 ? 40 : 256, 0);
        gpu->project(gpu, x.gpu, &down_gpu, s.term.gpu);
        ref->project(ref, x.ref, &down_ref, s.term.ref);
        if (taker == 0) {
            gpu->norm_project(gpu, &s.gpu, &s.norm.gpu, &gpu_part, 1, out.gpu);
            ref->norm_project(ref, &s.ref, &s.norm.ref, &ref_part, 1, out.ref);
        } else if (taker == 1) {
            gpu->norm(gpu, &s.gpu, &s.norm.gpu, out.gpu);
            ref->norm(ref, &s.ref, &s.norm.ref, out.ref);
        } else {
            gpu->copy_rows(gpu, s.term.gpu, 0, out.gpu, 0, 1);
            ref->copy_rows(ref, s.term.ref, 0, out.ref, 0, 1);
        }
        assert_close(gpu, ref, &out, "taker %d", taker);
        if (taker < 2)
            check_settled(&s, "a long product");
        free_twin(gpu, ref, &x);
        free_twin(gpu, ref, &out);
        free_stream(&s);
    }
    free_weight(gpu, &down);
    free_weight(gpu, &w);
}

static void two_norms_add(void **state)
{
    (void)state;
    struct twin_weight a_norm = make_vector(gpu, 100), b_norm = make_vector(gpu, 100);
    for (int where = 0; where < 3; where++) {
        struct twin a = make_twin(gpu, ref, 4, 100, 1), b = make_twin(gpu, ref, 4, 100, 5), out = make_twin(gpu, ref, 4, 100, 0);
        struct twin *to = where == 0 ? &out : where == 1 ? &a : &b;
        gpu->add_norms(gpu, a.gpu, &a_norm.gpu, b.gpu, &b_norm.gpu, 1e-6f, to->gpu);
        ref->add_norms(ref, a.ref, &a_norm.ref, b.ref, &b_norm.ref, 1e-6f, to->ref);
        assert_close(gpu, ref, to, "destination %d", where);
        free_twin(gpu, ref, &a);
        free_twin(gpu, ref, &b);
        free_twin(gpu, ref, &out);
    }
    free_weight(gpu, &a_norm);
    free_weight(gpu, &b_norm);
}

static void check_gated(enum gguf_type type, int32_t d, int32_t n_ff)
{
    struct stream_case c = {1, d, true, true, true, true};
    struct twin_stream s;
    make_stream(&c, &s);
    struct twin_weight gate = make_weight(gpu, type, d, n_ff, 1), up = make_weight(gpu, type, d, n_ff, 1);
    struct linear gate_gpu = {.weight = gate.gpu}, gate_ref = {.weight = gate.ref};
    struct linear up_gpu = {.weight = up.gpu}, up_ref = {.weight = up.ref};
    struct twin out = make_twin(gpu, ref, 1, n_ff, 0);
    gpu->norm_gated(gpu, &s.gpu, &s.norm.gpu, &gate_gpu, &up_gpu, ACTIVATION_GELU_TANH, out.gpu);
    ref->norm_gated(ref, &s.ref, &s.norm.ref, &gate_ref, &up_ref, ACTIVATION_GELU_TANH, out.ref);
    assert_close(gpu, ref, &out, "%s, %d to %d", gguf_type_name(type), d, n_ff);
    free_twin(gpu, ref, &out);
    free_weight(gpu, &gate);
    free_weight(gpu, &up);
    free_stream(&s);
}

// One row of all models' widths and an odd one, settled, normed and multiplied at once.
static void streams_of_every_width_go_through_gated_units(void **state)
{
    (void)state;
    static const int32_t widths[] = {320, 1536, 2560, 2816, 3840, 5376};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        check_gated(widths[i] % 256 != 0 ? GGUF_TYPE_Q8_0 : i % 2 == 0 ? GGUF_TYPE_Q6_K : GGUF_TYPE_Q4_K, widths[i], 70);
}

// As wide as real models are, so that a workgroup makes several tiles of rows in turn.
static void wide_gated_units_come_out_whole(void **state)
{
    (void)state;
    check_gated(GGUF_TYPE_Q4_K, 1536, 6144);
    check_gated(GGUF_TYPE_F16, 256, 12288);
}

// --- per-layer inputs ---

static void per_layer_inputs_combine(void **state)
{
    (void)state;
    for (int n_rows = 1; n_rows <= 6; n_rows += 5) {
        for (int in_place = 0; in_place < 2; in_place++) {
            struct twin_weight w = make_weight(gpu, GGUF_TYPE_BF16, 128, 3 * 32, 1), norm = make_vector(gpu, 32);
            struct twin x = make_twin(gpu, ref, n_rows, 128, 1), rows = make_twin(gpu, ref, n_rows, 3 * 32, 1);
            struct twin out = make_twin(gpu, ref, n_rows, 3 * 32, 0);
            struct twin *to = in_place ? &rows : &out;
            struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
            gpu->per_layer_inputs(gpu, x.gpu, rows.gpu, &on_gpu, &norm.gpu, 1e-6f, 3, to->gpu);
            ref->per_layer_inputs(ref, x.ref, rows.ref, &on_ref, &norm.ref, 1e-6f, 3, to->ref);
            assert_close(gpu, ref, to, "%d rows, in place %d", n_rows, in_place);
            free_twin(gpu, ref, &x);
            free_twin(gpu, ref, &rows);
            free_twin(gpu, ref, &out);
            free_weight(gpu, &w);
            free_weight(gpu, &norm);
        }
    }
}

static void check_per_layer_inputs(enum gguf_type type, int32_t d)
{
    struct twin_weight w = make_weight(gpu, type, d, 3 * 256, 1), norm = make_vector(gpu, 256);
    struct twin x = make_twin(gpu, ref, 1, d, 1), rows = make_twin(gpu, ref, 1, 3 * 256, 1),
                out = make_twin(gpu, ref, 1, 3 * 256, 0);
    struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
    gpu->per_layer_inputs(gpu, x.gpu, rows.gpu, &on_gpu, &norm.gpu, 1e-6f, 3, out.gpu);
    ref->per_layer_inputs(ref, x.ref, rows.ref, &on_ref, &norm.ref, 1e-6f, 3, out.ref);
    assert_close(gpu, ref, &out, "%s, a row of %d", gguf_type_name(type), d);
    free_twin(gpu, ref, &x);
    free_twin(gpu, ref, &rows);
    free_twin(gpu, ref, &out);
    free_weight(gpu, &w);
    free_weight(gpu, &norm);
}

static void per_layer_inputs_of_long_rows_combine(void **state)
{
    (void)state;
    check_per_layer_inputs(GGUF_TYPE_Q8_0, 2560);
    check_per_layer_inputs(GGUF_TYPE_F16, 4096);
}

static void the_default_limits_suffice(void **state)
{
    (void)state;
    struct ops *usual = gpu;
    gpu = open_limited_gpu(&(struct webgpu_options){.no_autotune = true});
    check_gated(GGUF_TYPE_Q4_K, 1536, 40);
    gpu->free(gpu);
    gpu = usual;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_settle_and_norm),
        cmocka_unit_test(streams_project_into_parts_of_different_types),
        cmocka_unit_test(streams_go_through_gated_units),
        cmocka_unit_test(streams_take_their_per_layer_gates),
        cmocka_unit_test(adapters_join_fused_products),
        cmocka_unit_test(a_long_product_becomes_the_term_of_the_stream),
        cmocka_unit_test(per_layer_inputs_combine),
        cmocka_unit_test(two_norms_add),
    };
    const struct CMUnitTest with_integers[] = {
        cmocka_unit_test(the_default_limits_suffice),
        cmocka_unit_test(streams_project_into_parts_of_different_types),
        cmocka_unit_test(streams_go_through_gated_units),
        cmocka_unit_test(streams_of_every_width_go_through_gated_units),
        cmocka_unit_test(wide_gated_units_come_out_whole),
        cmocka_unit_test(streams_take_their_per_layer_gates),
        cmocka_unit_test(a_long_product_becomes_the_term_of_the_stream),
        cmocka_unit_test(per_layer_inputs_of_long_rows_combine),
    };
    int n_failed = cmocka_run_group_tests(tests, open_both, close_both);
    return n_failed + cmocka_run_group_tests(with_integers, open_both_for_integers, close_both);
}
