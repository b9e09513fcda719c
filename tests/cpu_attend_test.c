// cpu_attend_test.c: attention of the CPU backend against the reference, over shapes, windows, rings, and kinds of cache.

#include "cpu_rig.h"

struct attend_case {
    int32_t n_heads, n_kv_heads, head_dim, window, capacity;
    int32_t n_before; // positions already stored, put there in batches
    int32_t n;        // of the batch under test
    bool v_is_k, is_f32, shares, looks_ahead;
};

static const struct attend_case cases[] = {
    {.n_heads = 8, .n_kv_heads = 1, .head_dim = 256, .capacity = 200, .n_before = 100, .n = 1},
    {.n_heads = 8, .n_kv_heads = 1, .head_dim = 512, .capacity = 330, .n_before = 290, .n = 1, .is_f32 = true},
    {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .window = 100, .capacity = 140, .n_before = 250, .n = 1},
    {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .window = 100, .capacity = 140, .n_before = 240, .n = 37, .is_f32 = true},
    {.n_heads = 4, .n_kv_heads = 4, .head_dim = 36, .window = 16, .capacity = 40, .n_before = 0, .n = 25},
    {.n_heads = 6, .n_kv_heads = 2, .head_dim = 32, .window = 16, .capacity = 31, .n_before = 63, .n = 16, .v_is_k = true},
    {.n_heads = 3, .n_kv_heads = 1, .head_dim = 20, .capacity = 90, .n_before = 5, .n = 70, .is_f32 = true},
    {.n_heads = 16, .n_kv_heads = 8, .head_dim = 128, .window = 64, .capacity = 200, .n_before = 64, .n = 4, .shares = true},
    {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .window = 16, .capacity = 128, .n_before = 30, .n = 50, .looks_ahead = true},
    {.n_heads = 2, .n_kv_heads = 1, .head_dim = 32, .capacity = 2, .n_before = 0, .n = 1},
    {.n_heads = 5, .n_kv_heads = 1, .head_dim = 96, .capacity = 600, .n_before = 530, .n = 2},
};
enum { CASES = sizeof cases / sizeof cases[0] };

struct attend_rig {
    struct backends both;
    struct weight q_norm, k_norm;
    struct kv_layer ref_kv, cpu_kv;
};

static struct kv_layer kv_new(struct ops *ops, const struct attend_case *c)
{
    int32_t row = c->n_kv_heads * c->head_dim;
    uint64_t n_bytes = (uint64_t)c->capacity * (uint64_t)row * (c->is_f32 ? 4 : 2);
    return (struct kv_layer){.k = ops->buffer_new(ops, n_bytes, NULL),
        .v = ops->buffer_new(ops, n_bytes, NULL),
        .capacity = c->capacity,
        .row_elems = row,
        .is_f32 = c->is_f32};
}

static void kv_drop(struct ops *ops, struct kv_layer *kv)
{
    ops->buffer_free(ops, kv->k);
    ops->buffer_free(ops, kv->v);
}

static float *rope_of(int32_t first, int32_t n, int32_t head_dim)
{
    float *rope = malloc((size_t)n * (size_t)head_dim * sizeof *rope);
    assert_non_null(rope);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t p = 0; p < head_dim / 2; p++) {
            double angle = (first + i) * pow(10000, -2.0 * p / head_dim);
            rope[i * head_dim + p] = (float)cos(angle);
            rope[i * head_dim + head_dim / 2 + p] = (float)sin(angle);
        }
    }
    return rope;
}

// Runs a batch of n positions from `first` on on both sides; returns the deviation of the outputs.
static double run_batch(struct attend_rig *rig, const struct attend_case *c, int32_t first, int32_t n, bool shares)
{
    int32_t n_kv = shares ? 0 : (c->v_is_k ? 1 : 2) * c->n_kv_heads;
    struct pair qkv = pair_random(&rig->both, n, (c->n_heads + n_kv) * c->head_dim);
    struct pair out = pair_new(&rig->both, n, c->n_heads * c->head_dim, NULL);
    float *angles = rope_of(first, n, c->head_dim);
    struct pair rope = pair_new(&rig->both, n, c->head_dim, angles);
    int32_t *ahead = malloc((size_t)n * sizeof *ahead);
    assert_non_null(ahead);
    for (int32_t i = 0; i < n; i++) // runs of seven see each other
        ahead[i] = first + (i / 7 * 7 + 6 < n ? i / 7 * 7 + 6 : n - 1);
    struct pair last = pair_new(&rig->both, n, 1, ahead);
    struct attention a = {.n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .q_norm = &rig->q_norm,
        .k_norm = &rig->k_norm,
        .eps = 1e-6f,
        .writes_kv = !shares,
        .v_is_k = c->v_is_k,
        .window = c->window,
        .first_position = first};
    struct attention ref = a, cpu = a;
    ref.rope = rope.ref, ref.kv = &rig->ref_kv, ref.last_key = c->looks_ahead ? last.ref : (struct tensor){0};
    cpu.rope = rope.cpu, cpu.kv = &rig->cpu_kv, cpu.last_key = c->looks_ahead ? last.cpu : (struct tensor){0};
    rig->both.ref->attend(rig->both.ref, qkv.ref, &ref, out.ref);
    rig->both.cpu->attend(rig->both.cpu, qkv.cpu, &cpu, out.cpu);
    double deviation = pair_deviation(&rig->both, &out);
    pair_free(&rig->both, &last);
    pair_free(&rig->both, &rope);
    pair_free(&rig->both, &out);
    pair_free(&rig->both, &qkv);
    free(ahead);
    free(angles);
    return deviation;
}

// A norm without outliers, so that scores stay moderate.
static struct weight norm_new(enum gguf_type type, int32_t n)
{
    struct weight norm = weight_new(type, n, 1, 1);
    uint8_t *bytes = (uint8_t *)(uintptr_t)norm.host;
    for (int32_t i = 0; i < n; i++) {
        float value = (float)random_u32() * 0x1p-30f - 1;
        uint16_t half = f16_from_f32(value);
        memcpy(bytes + i * (type == GGUF_TYPE_F32 ? 4 : 2), type == GGUF_TYPE_F32 ? (void *)&value : (void *)&half,
            type == GGUF_TYPE_F32 ? 4 : 2);
    }
    return norm;
}

static void rig_new(struct attend_rig *rig, const struct attend_case *c, int n_threads, const char *kernels)
{
    rig->both = backends_new(n_threads, true, kernels);
    rig->q_norm = norm_new(GGUF_TYPE_F32, c->head_dim);
    rig->k_norm = norm_new(GGUF_TYPE_F16, c->head_dim);
    rig->ref_kv = kv_new(rig->both.ref, c);
    rig->cpu_kv = kv_new(rig->both.cpu, c);
}

static void rig_drop(struct attend_rig *rig)
{
    kv_drop(rig->both.ref, &rig->ref_kv);
    kv_drop(rig->both.cpu, &rig->cpu_kv);
    weight_drop(&rig->q_norm);
    weight_drop(&rig->k_norm);
    backends_free(&rig->both);
}

// Scores here reach 40, so an f32 rounding of a score moves a probability by 40 x 2^-24 = 2e-6, and a few add up. A 16-bit
// key or value rounds the other way when the f32 value before it differs in the last bit, by 2^-10 of itself, which shows in full
// where a query sees one key.
static void check_case(const struct attend_case *c, int n_threads, const char *kernels)
{
    struct attend_rig rig;
    rig_new(&rig, c, n_threads, kernels);
    double tolerance = c->is_f32 ? 5e-5 : 2e-3;
    int32_t largest = c->window > 0 ? c->capacity - c->window + 1 : c->capacity;
    for (int32_t first = 0; first < c->n_before;) {
        int32_t n = c->n_before - first < largest ? c->n_before - first : largest;
        double deviation = run_batch(&rig, c, first, n, false);
        if (deviation > tolerance)
            give_up("%s, %d threads: %d heads of %d, window %d, %d rows at %d: deviation %.2e", kernels, n_threads, c->n_heads,
                c->head_dim, c->window, n, first, deviation);
        first += n;
    }
    double deviation = run_batch(&rig, c, c->n_before - (c->shares ? c->n : 0), c->n, c->shares);
    if (deviation > tolerance)
        give_up("%s, %d threads: %d heads of %d, window %d, %d rows at %d: deviation %.2e", kernels, n_threads, c->n_heads,
            c->head_dim, c->window, c->n, c->n_before, deviation);
    rig_drop(&rig);
}

static void attention_with(const char *kernels)
{
    for (int i = 0; i < CASES; i++) {
        for (int n_threads = 1; n_threads <= 3; n_threads += 2)
            check_case(&cases[i], n_threads, kernels);
    }
}

static void attention_agrees_with_the_reference(void **state)
{
    (void)state;
    for_every_isa(attention_with);
}

// 290 positions with the given threads and batches; the outputs of all.
static float *attend_in_pieces(int n_threads, int32_t step, int32_t window)
{
    struct carat_error err = {0};
    const struct attend_case c = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 64, .window = window, .capacity = 300};
    enum { N = 290 };
    struct ops *cpu = cpu_ops_new_with(n_threads, false, NULL, &err);
    require(cpu != NULL, err);
    random_state = 77;
    struct weight q_norm = weight_new(GGUF_TYPE_F32, c.head_dim, 1, 1), k_norm = weight_new(GGUF_TYPE_F32, c.head_dim, 1, 1);
    struct kv_layer kv = kv_new(cpu, &c);
    size_t n_qkv = 8 * 64, n_out = 4 * 64;
    float *qkv = random_floats(N * n_qkv), *rope = rope_of(0, N, c.head_dim), *all = malloc(N * n_out * sizeof *all);
    assert_non_null(all);
    for (int32_t first = 0; first < N; first += step) {
        int32_t n = N - first < step ? N - first : step;
        struct tensor in = tensor_new(cpu, n, (int32_t)n_qkv, qkv + (size_t)first * n_qkv);
        struct tensor angles = tensor_new(cpu, n, c.head_dim, rope + first * c.head_dim);
        struct tensor out = tensor_new(cpu, n, (int32_t)n_out, NULL);
        struct attention a = {.n_heads = 4,
            .n_kv_heads = 2,
            .head_dim = 64,
            .q_norm = &q_norm,
            .k_norm = &k_norm,
            .eps = 1e-6f,
            .writes_kv = true,
            .window = window,
            .first_position = first,
            .rope = angles,
            .kv = &kv};
        cpu->attend(cpu, in, &a, out);
        float *got = values_of(cpu, out);
        memcpy(all + (size_t)first * n_out, got, (size_t)n * n_out * sizeof *all);
        free(got);
        cpu->buffer_free(cpu, out.buffer);
        cpu->buffer_free(cpu, angles.buffer);
        cpu->buffer_free(cpu, in.buffer);
    }
    free(rope);
    free(qkv);
    kv_drop(cpu, &kv);
    weight_drop(&q_norm);
    weight_drop(&k_norm);
    cpu->free(cpu);
    return all;
}

static void threads_and_batches_do_not_change_a_bit(void **state)
{
    (void)state;
    for (int32_t window = 0; window <= 70; window += 70) {
        float *whole = attend_in_pieces(1, 290, window);
        static const struct {
            int n_threads;
            int32_t step;
        } ways[] = {{3, 290}, {2, 1}, {1, 7}, {3, 100}};
        for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
            float *pieces = attend_in_pieces(ways[i].n_threads, ways[i].step, window);
            assert_memory_equal(whole, pieces, 290 * 256 * sizeof *whole);
            free(pieces);
        }
        free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_agrees_with_the_reference),
        cmocka_unit_test(threads_and_batches_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
