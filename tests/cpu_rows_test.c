// cpu_rows_test.c: the CPU backend's fused operations, norms, experts and choices of tokens against the reference.

#include "cpu_rig.h"

// f32 sums of up to 1536 terms in another order and functions good to 2e-7 keep this distance from the largest value, also
// through two norms and a product.
static const double ROUNDING = 1e-5;

static const char *isa; // of the running test

#define check_pair(both, pair, what)                                                                                             \
    do {                                                                                                                         \
        double deviation_ = pair_deviation(both, pair);                                                                          \
        if (deviation_ > ROUNDING)                                                                                               \
            give_up("%s: %s deviates by %.2e (%s:%d)", isa, what, deviation_, __FILE__, __LINE__);                               \
    } while (0)

// A stream on both sides, with a pending term or settled.
struct streams {
    struct pair x, spare, term;
    struct weight term_norm, scale, norm;
    struct stream ref, cpu;
};

static struct streams *streams_new(struct backends *both, int32_t n, int32_t d, bool pending, bool normed)
{
    struct streams *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->x = pair_random(both, n, d);
    s->spare = pair_new(both, n, d, NULL);
    s->term = pair_random(both, n, d);
    s->term_norm = weight_new(GGUF_TYPE_F32, d, 1, 1);
    s->scale = weight_new(GGUF_TYPE_F32, 1, 1, 1);
    s->norm = weight_new(GGUF_TYPE_F32, d, 1, 1);
    s->ref = (struct stream){.x = s->x.ref, .spare = s->spare.ref, .eps = 1e-6f};
    s->cpu = (struct stream){.x = s->x.cpu, .spare = s->spare.cpu, .eps = 1e-6f};
    if (pending) {
        s->ref.term = s->term.ref, s->cpu.term = s->term.cpu;
        s->ref.term_norm = s->cpu.term_norm = normed ? &s->term_norm : NULL;
        s->ref.scale = s->cpu.scale = normed ? &s->scale : NULL;
    }
    return s;
}

static void streams_free(struct backends *both, struct streams *s)
{
    pair_free(both, &s->x);
    pair_free(both, &s->spare);
    pair_free(both, &s->term);
    weight_drop(&s->term_norm);
    weight_drop(&s->scale);
    weight_drop(&s->norm);
    free(s);
}

// The stream is settled on both sides, to the same value.
static void check_streams(struct backends *both, struct streams *s)
{
    assert_null(s->cpu.term.buffer);
    struct pair now = {.ref = s->ref.x, .cpu = s->cpu.x};
    check_pair(both, &now, "the settled stream");
}

static struct lora_pair *adapter_new(struct ops *ops, int32_t n_in, int32_t n_out, int32_t rank, struct lora_pair *next)
{
    struct lora_pair *pair = calloc(1, sizeof *pair);
    assert_non_null(pair);
    float *a = random_floats((size_t)(rank * n_in)), *b = random_floats((size_t)(rank * n_out));
    *pair = (struct lora_pair){
        .a = tensor_new(ops, rank, n_in, a), .b = tensor_new(ops, n_out, rank, b), .scale = 0.25f, .next = next};
    free(a);
    free(b);
    return pair;
}

static void adapters_free(struct ops *ops, struct lora_pair *pair)
{
    while (pair != NULL) {
        struct lora_pair *next = pair->next;
        ops->buffer_free(ops, pair->a.buffer);
        ops->buffer_free(ops, pair->b.buffer);
        free(pair);
        pair = next;
    }
}

enum { D = 256 };
static const int32_t batches[] = {1, 2, 4, 5, 19};
enum { BATCHES = sizeof batches / sizeof batches[0] };

static void fused_with(const char *kernels)
{
    isa = kernels;
    struct backends both = backends_new(2, true, kernels);
    static const enum gguf_type types[3] = {GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, GGUF_TYPE_BF16};
    struct linear parts[3], gate = linear_new(GGUF_TYPE_Q4_K, D, 96), up = linear_new(GGUF_TYPE_Q5_0, D, 96);
    const struct linear *pointers[3] = {&parts[0], &parts[1], &parts[2]};
    for (int p = 0; p < 3; p++)
        parts[p] = linear_new(types[p], D, 64 + 33 * p);
    for (int b = 0; b < BATCHES; b++) {
        for (int kind = 0; kind < 3; kind++) { // settled, pending, pending with norm and scale
            int32_t n = batches[b];
            struct streams *s = streams_new(&both, n, D, kind > 0, kind > 1);
            struct pair out = pair_new(&both, n, 64 + 97 + 130, NULL), gated = pair_new(&both, n, 96, NULL);
            both.ref->norm_project(both.ref, &s->ref, &s->norm, pointers, 3, out.ref);
            both.cpu->norm_project(both.cpu, &s->cpu, &s->norm, pointers, 3, out.cpu);
            check_pair(&both, &out, "norm_project");
            check_streams(&both, s);
            streams_free(&both, s);
            for (int activation = 0; activation < 3; activation++) {
                s = streams_new(&both, n, D, kind > 0, kind > 1);
                both.ref->norm_gated(both.ref, &s->ref, &s->norm, &gate, &up, (enum activation)activation, gated.ref);
                both.cpu->norm_gated(both.cpu, &s->cpu, &s->norm, &gate, &up, (enum activation)activation, gated.cpu);
                check_pair(&both, &gated, "norm_gated");
                check_streams(&both, s);
                streams_free(&both, s);
            }
            s = streams_new(&both, n, D, kind > 0, kind > 1);
            struct pair inputs = pair_random(&both, n, 3 * 96);
            both.ref->per_layer_gate(both.ref, &s->ref, &gate, inputs.ref, 1, gated.ref);
            both.cpu->per_layer_gate(both.cpu, &s->cpu, &gate, inputs.cpu, 1, gated.cpu);
            check_pair(&both, &gated, "per_layer_gate");
            check_streams(&both, s);
            streams_free(&both, s);
            pair_free(&both, &inputs);
            pair_free(&both, &gated);
            pair_free(&both, &out);
        }
    }
    for (int p = 0; p < 3; p++)
        weight_drop(&parts[p].weight);
    weight_drop(&gate.weight);
    weight_drop(&up.weight);
    backends_free(&both);
}

static void fused_operations_settle_norm_multiply_and_gate_like_the_reference(void **state)
{
    (void)state;
    for_every_isa(fused_with);
}

// Bias, bounds (each part its own) and a chain of adapters. The adapters' matrices live on one side only, so each side has a
// copy.
static void extras_with(const char *kernels)
{
    isa = kernels;
    struct backends both = backends_new(3, true, kernels);
    struct linear plain = linear_new(GGUF_TYPE_Q8_0, D, 80), clipped = linear_new(GGUF_TYPE_F16, D, 48);
    clipped.clipped = true;
    clipped.in_min = -0.5f, clipped.in_max = 0.4f, clipped.out_min = -2, clipped.out_max = 3;
    plain.bias = weight_new(GGUF_TYPE_F32, 80, 1, 1);
    for (int b = 0; b < BATCHES; b++) {
        int32_t n = batches[b];
        struct linear ref = plain, cpu = plain;
        uint64_t seed = random_state;
        ref.adapters = adapter_new(both.ref, D, 80, 3, adapter_new(both.ref, D, 80, 16, NULL));
        random_state = seed;
        cpu.adapters = adapter_new(both.cpu, D, 80, 3, adapter_new(both.cpu, D, 80, 16, NULL));
        const struct linear *ref_parts[2] = {&ref, &clipped}, *cpu_parts[2] = {&cpu, &clipped};
        struct streams *s = streams_new(&both, n, D, true, true);
        struct pair out = pair_new(&both, n, 80 + 48, NULL), in = pair_random(&both, n, D), single = pair_new(&both, n, 80, NULL);
        both.ref->norm_project(both.ref, &s->ref, &s->norm, ref_parts, 2, out.ref);
        both.cpu->norm_project(both.cpu, &s->cpu, &s->norm, cpu_parts, 2, out.cpu);
        check_pair(&both, &out, "norm_project with bounds, bias and adapters");
        check_streams(&both, s);
        both.ref->project(both.ref, in.ref, &ref, single.ref);
        both.cpu->project(both.cpu, in.cpu, &cpu, single.cpu);
        check_pair(&both, &single, "project with adapters");
        both.ref->norm_gated(both.ref, &s->ref, &s->norm, &ref, &ref, ACTIVATION_GELU_TANH, single.ref);
        both.cpu->norm_gated(both.cpu, &s->cpu, &s->norm, &cpu, &cpu, ACTIVATION_GELU_TANH, single.cpu);
        check_pair(&both, &single, "norm_gated with adapters");
        pair_free(&both, &single);
        pair_free(&both, &in);
        pair_free(&both, &out);
        streams_free(&both, s);
        adapters_free(both.ref, ref.adapters);
        adapters_free(both.cpu, cpu.adapters);
    }
    weight_drop(&plain.weight);
    weight_drop(&plain.bias);
    weight_drop(&clipped.weight);
    backends_free(&both);
}

static void bias_bounds_and_adapters_act_as_in_the_reference(void **state)
{
    (void)state;
    for_every_isa(extras_with);
}

static void rows_with(const char *kernels)
{
    isa = kernels;
    struct backends both = backends_new(2, true, kernels);
    static const int32_t widths[] = {1, 37, 64, 1000};
    for (int w = 0; w < 4; w++) {
        for (int b = 0; b < BATCHES; b++) {
            int32_t n = batches[b], d = widths[w];
            struct streams *s = streams_new(&both, n, d, true, b % 2 == 0);
            struct pair out = pair_new(&both, n, d, NULL);
            both.ref->norm(both.ref, &s->ref, &s->norm, out.ref);
            both.cpu->norm(both.cpu, &s->cpu, &s->norm, out.cpu);
            check_pair(&both, &out, "norm");
            check_streams(&both, s);
            streams_free(&both, s);
            s = streams_new(&both, n, d, true, b % 2 == 1);
            both.ref->settle(both.ref, &s->ref);
            both.cpu->settle(both.cpu, &s->cpu);
            check_streams(&both, s);
            both.ref->add_norms(both.ref, s->x.ref, &s->norm, s->term.ref, &s->term_norm, 1e-6f, s->x.ref);
            both.cpu->add_norms(both.cpu, s->x.cpu, &s->norm, s->term.cpu, &s->term_norm, 1e-6f, s->x.cpu);
            check_pair(&both, &s->x, "add_norms in place");
            both.ref->copy_rows(both.ref, s->x.ref, n - 1, out.ref, 0, 1);
            both.cpu->copy_rows(both.cpu, s->x.cpu, n - 1, out.cpu, 0, 1);
            check_pair(&both, &out, "copy_rows");
            streams_free(&both, s);
            pair_free(&both, &out);
        }
    }
    backends_free(&both);
}

static void norms_sums_and_copies_agree_with_the_reference(void **state)
{
    (void)state;
    for_every_isa(rows_with);
}

static void inputs_and_head_with(const char *kernels)
{
    isa = kernels;
    struct backends both = backends_new(2, true, kernels);
    struct linear projection = linear_new(GGUF_TYPE_BF16, 64, 5 * 32), table = linear_new(GGUF_TYPE_Q6_K, D, 777);
    struct weight norm = weight_new(GGUF_TYPE_F32, 32, 1, 1);
    static const int32_t suppressed[] = {0, 700};
    for (int b = 0; b < BATCHES; b++) {
        int32_t n = batches[b];
        struct pair x = pair_random(&both, n, 64), rows = pair_random(&both, n, 5 * 32), in = pair_random(&both, n, D);
        struct pair logits = pair_new(&both, n, 777, NULL);
        both.ref->per_layer_inputs(both.ref, x.ref, rows.ref, &projection, &norm, 1e-6f, 5, rows.ref);
        both.cpu->per_layer_inputs(both.cpu, x.cpu, rows.cpu, &projection, &norm, 1e-6f, 5, rows.cpu);
        check_pair(&both, &rows, "per_layer_inputs in place");
        for (int capped = 0; capped < 2; capped++) {
            float cap = capped ? 30 : 0;
            both.ref->head(both.ref, in.ref, &table, cap, NULL, 0, logits.ref);
            both.cpu->head(both.cpu, in.cpu, &table, cap, NULL, 0, logits.cpu);
            check_pair(&both, &logits, "head");
        }
        both.cpu->head(both.cpu, in.cpu, &table, 30, suppressed, 2, logits.cpu);
        float *values = values_of(both.cpu, logits.cpu);
        assert_true(values[0] == -3.0e38f && values[700] == -3.0e38f && values[1] > -31);
        free(values);
        pair_free(&both, &logits);
        pair_free(&both, &in);
        pair_free(&both, &rows);
        pair_free(&both, &x);
    }
    weight_drop(&projection.weight);
    weight_drop(&table.weight);
    weight_drop(&norm);
    backends_free(&both);
}

static void per_layer_inputs_and_logits_agree_with_the_reference(void **state)
{
    (void)state;
    for_every_isa(inputs_and_head_with);
}

static void experts_of(const char *kernels, enum gguf_type type, int32_t n_ff, bool fused)
{
    struct backends both = backends_new(3, true, kernels);
    enum { EXPERTS = 9, USED = 3 };
    struct weight router_scale = weight_new(GGUF_TYPE_F32, D, 1, 1), router = weight_new(GGUF_TYPE_F32, D, EXPERTS, 1);
    struct weight pre_norm = weight_new(GGUF_TYPE_F32, D, 1, 1), down_scale = weight_new(GGUF_TYPE_F32, EXPERTS, 1, 1);
    struct weight gate_up = weight_new(type, D, 2 * n_ff, EXPERTS), up = weight_new(type, D, n_ff, EXPERTS);
    struct weight gate = weight_new(type, D, n_ff, EXPERTS), down = weight_new(type, n_ff, D, EXPERTS);
    struct experts e = {.n_experts = EXPERTS,
        .n_used = USED,
        .n_ff = n_ff,
        .router_scale = &router_scale,
        .router = &router,
        .pre_norm = &pre_norm,
        .down = &down,
        .eps = 1e-6f};
    e.gate_up = fused ? &gate_up : NULL;
    e.gate = fused ? NULL : &gate;
    e.up = fused ? NULL : &up;
    e.down_scale = fused ? &down_scale : NULL;
    down_scale.n_in = EXPERTS;
    for (int b = 0; b < BATCHES; b++) {
        struct pair h = pair_random(&both, batches[b], D), out = pair_new(&both, batches[b], D, NULL);
        both.ref->experts(both.ref, h.ref, &e, out.ref);
        both.cpu->experts(both.cpu, h.cpu, &e, out.cpu);
        check_pair(&both, &out, "experts");
        pair_free(&both, &h);
        pair_free(&both, &out);
    }
    struct weight *all[] = {&router_scale, &router, &pre_norm, &down_scale, &gate_up, &up, &gate, &down};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        weight_drop(all[i]);
    backends_free(&both);
}

static void experts_with(const char *kernels)
{
    isa = kernels;
    experts_of(kernels, GGUF_TYPE_Q5_0, 96, true);
    experts_of(kernels, GGUF_TYPE_Q4_K, 256, false);
    experts_of(kernels, GGUF_TYPE_BF16, 40, true);
}

static void routed_experts_agree_with_the_reference(void **state)
{
    (void)state;
    for_every_isa(experts_with);
}

static void choices_with(const char *kernels)
{
    isa = kernels;
    struct backends both = backends_new(2, false, kernels);
    static const int32_t widths[] = {1, 5, 511, 513, 3000, 262144};
    for (int w = 0; w < 6; w++) {
        int32_t n = widths[w];
        float *values = random_floats(2 * (size_t)n);
        for (int32_t i = 0; i < 2 * n; i++)
            values[i] = roundf(values[i] * 40); // many equal ones
        struct pair logits = pair_new(&both, 2, n, values), id = pair_new(&both, 1, 1, NULL);
        both.ref->argmax(both.ref, logits.ref, 1, id.ref);
        both.cpu->argmax(both.cpu, logits.cpu, 1, id.cpu);
        int32_t *wanted = (int32_t *)(void *)values_of(both.ref, id.ref), *got = (int32_t *)(void *)values_of(both.cpu, id.cpu);
        assert_int_equal(wanted[0], got[0]);
        free(wanted);
        free(got);
        static const int32_t counts[] = {1, 5, 64, 256};
        for (int c = 0; c < 4 && counts[c] <= n; c++) {
            int32_t k = counts[c];
            struct pair best = pair_new(&both, 1, 2 * k + 2, NULL);
            both.ref->top_k(both.ref, logits.ref, 1, k, best.ref);
            both.cpu->top_k(both.cpu, logits.cpu, 1, k, best.cpu);
            float *a = values_of(both.ref, best.ref), *b = values_of(both.cpu, best.cpu);
            assert_memory_equal(a, b, (2 * (size_t)k + 1) * sizeof *a);
            assert_true(fabsf(a[2 * k + 1] - b[2 * k + 1]) <= 1e-6f * fabsf(a[2 * k + 1]) + 1e-6f);
            free(a);
            free(b);
            pair_free(&both, &best);
        }
        pair_free(&both, &id);
        pair_free(&both, &logits);
        free(values);
    }
    backends_free(&both);
}

static void argmax_and_top_k_choose_like_the_reference_ties_included(void **state)
{
    (void)state;
    for_every_isa(choices_with);
}

// A NaN somewhere in the activations reaches the logits, and the choice of a token reports it; the next one works again.
static void nan_with(const char *kernels)
{
    struct carat_error err = {0};
    struct ops *cpu = cpu_ops_new_with(2, false, kernels, &err);
    require(cpu != NULL, err);
    struct linear down = linear_new(GGUF_TYPE_Q6_K, 512, 300);
    for (int32_t n = 1; n < 7; n += 5) {
        for (int bad = 0; bad < 3; bad++) {
            float *x = random_floats((size_t)n * 512);
            if (bad > 0)
                x[(size_t)(n - 1) * 512 + 77] = bad == 1 ? NAN : INFINITY;
            struct tensor in = tensor_new(cpu, n, 512, x), out = tensor_new(cpu, n, 300, NULL), id = tensor_new(cpu, 1, 1, NULL);
            int32_t choice;
            cpu->project(cpu, in, &down, out);
            cpu->argmax(cpu, out, n - 1, id);
            bool fine = cpu->read_start(cpu, id.buffer, 0, 4, &choice, &err) >= 0;
            assert_true(fine == (bad == 0));
            if (bad > 0)
                assert_int_equal(err.code, CARAT_BAD_NUMBER);
            assert_true(cpu->read_start(cpu, id.buffer, 0, 4, &choice, &err) >= 0);
            cpu->buffer_free(cpu, in.buffer);
            cpu->buffer_free(cpu, out.buffer);
            cpu->buffer_free(cpu, id.buffer);
            free(x);
        }
    }
    weight_drop(&down.weight);
    cpu->free(cpu);
}

static void a_nan_or_infinity_is_reported_when_a_token_is_chosen(void **state)
{
    (void)state;
    for_every_isa(nan_with);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_operations_settle_norm_multiply_and_gate_like_the_reference),
        cmocka_unit_test(bias_bounds_and_adapters_act_as_in_the_reference),
        cmocka_unit_test(norms_sums_and_copies_agree_with_the_reference),
        cmocka_unit_test(per_layer_inputs_and_logits_agree_with_the_reference),
        cmocka_unit_test(routed_experts_agree_with_the_reference),
        cmocka_unit_test(argmax_and_top_k_choose_like_the_reference_ties_included),
        cmocka_unit_test(a_nan_or_infinity_is_reported_when_a_token_is_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
