// webgpu_layer_end_test.c: layers with per-layer inputs that end in two steps, with folded matrices, against the reference's
// four.

#define _GNU_SOURCE // RTLD_NEXT

#include "webgpu_stream.h"

#include "extent.h"
#include "webgpu/gpu_internal.h"
#include "webgpu/internal.h"

// --- devices that refuse ------------------------------------------------------------------------------------------------------

// These stand in front of the library's functions of the same names.
static const char *refused_kernel; // whose text does not compile
static uint64_t refused_bytes;     // of a storage buffer

WGPUShaderModule wgpuDeviceCreateShaderModuleTrusted(
    WGPUDevice device, WGPUShaderModuleDescriptor const *descriptor, WGPUShaderRuntimeChecks checks)
{
    WGPUShaderModule (*next)(WGPUDevice, WGPUShaderModuleDescriptor const *, WGPUShaderRuntimeChecks) =
        (WGPUShaderModule(*)(WGPUDevice, WGPUShaderModuleDescriptor const *, WGPUShaderRuntimeChecks))dlsym(RTLD_NEXT, __func__);
    WGPUShaderModuleDescriptor broken = *descriptor;
    WGPUShaderSourceWGSL source = *(const WGPUShaderSourceWGSL *)(const void *)descriptor->nextInChain;
    source.code = (WGPUStringView){"fn main(", 8};
    broken.nextInChain = &source.chain;
    bool is_refused = refused_kernel != NULL && strncmp(descriptor->label.data, refused_kernel, strlen(refused_kernel)) == 0;
    return next(device, is_refused ? &broken : descriptor, checks);
}

WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, WGPUBufferDescriptor const *descriptor)
{
    WGPUBuffer (*next)(WGPUDevice, WGPUBufferDescriptor const *) =
        (WGPUBuffer(*)(WGPUDevice, WGPUBufferDescriptor const *))dlsym(RTLD_NEXT, __func__);
    if (refused_bytes == 0 || descriptor->size != refused_bytes || !(descriptor->usage & WGPUBufferUsage_Storage))
        return next(device, descriptor);
    gpu_note_error(webgpu_of(gpu)->gpu, CARAT_NO_MEMORY, "out of memory", 13);
    return NULL;
}

// --- a layer's end on both backends -------------------------------------------------------------------------------------------

struct end_case {
    enum gguf_type down, gate, proj;
    int32_t d, n_ff, width;
    float magnitude; // of down and gate, where they are Q8_0 or F32
};

struct twin_end {
    struct twin_stream s;
    struct twin_weight down, gate, proj, norm;
    struct linear down_gpu, down_ref, gate_gpu, gate_ref, proj_gpu, proj_ref;
    struct twin in, per_layer, injected, out;
    struct layer_end gpu;
};

// The parts point into *e, which must stay where it is.
static void make_end(const struct end_case *c, struct twin_end *e)
{
    struct stream_case pending = {1, c->d, true, true, true, true};
    *e = (struct twin_end){0};
    make_stream(&pending, &e->s);
    e->down = make_scaled_weight(gpu, c->down, c->n_ff, c->d, 1, c->magnitude);
    e->gate = make_scaled_weight(gpu, c->gate, c->d, c->width, 1, c->magnitude);
    e->proj = make_weight(gpu, c->proj, c->width, c->d, 1);
    e->norm = make_vector(gpu, c->d);
    e->down_gpu.weight = e->down.gpu, e->down_ref.weight = e->down.ref;
    e->gate_gpu.weight = e->gate.gpu, e->gate_ref.weight = e->gate.ref;
    e->proj_gpu.weight = e->proj.gpu, e->proj_ref.weight = e->proj.ref;
    e->in = make_twin(gpu, ref, 1, c->n_ff, 1);
    e->per_layer = make_twin(gpu, ref, 1, 3 * c->width, 1);
    e->injected = make_twin(gpu, ref, 1, c->width, 0);
    e->out = make_twin(gpu, ref, 1, c->d, 0);
    e->gpu = (struct layer_end){.down = &e->down_gpu, .norm = &e->norm.gpu, .gate = &e->gate_gpu, .proj = &e->proj_gpu};
}

static void free_end(struct twin_end *e)
{
    gpu->unfold(gpu, &e->gpu);
    assert_null(e->gpu.folded);
    struct twin *twins[] = {&e->in, &e->per_layer, &e->injected, &e->out};
    for (size_t i = 0; i < sizeof twins / sizeof twins[0]; i++)
        free_twin(gpu, ref, twins[i]);
    struct twin_weight *weights[] = {&e->down, &e->gate, &e->proj, &e->norm};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        free_weight(gpu, weights[i]);
    free_stream(&e->s);
}

static void finish_on_gpu(struct twin_end *e)
{
    gpu->finish_layer(gpu, &e->s.gpu, &e->gpu, e->in.gpu, e->per_layer.gpu, 2, e->out.gpu);
}

static void finish_on_ref(struct twin_end *e)
{
    ref->settle(ref, &e->s.ref);
    ref->project(ref, e->in.ref, &e->down_ref, e->s.term.ref);
    e->s.ref.term = e->s.term.ref;
    e->s.ref.term_norm = &e->norm.ref;
    ref->per_layer_gate(ref, &e->s.ref, &e->gate_ref, e->per_layer.ref, 2, e->injected.ref);
    ref->project(ref, e->injected.ref, &e->proj_ref, e->out.ref);
}

// --- the tests ----------------------------------------------------------------------------------------------------------------

static void check_end(const struct end_case *c)
{
    struct twin_end e;
    make_end(c, &e);
    assert_true(gpu->fold(gpu, &e.gpu));
    assert_non_null(e.gpu.folded);
    for (int turn = 0; turn < 2; turn++) { // the second time over what the first one left
        finish_on_gpu(&e);
        finish_on_ref(&e);
        assert_close(gpu, ref, &e.out, "%s, %s, %s: %d, %d, %d, magnitude %g", gguf_type_name(c->down), gguf_type_name(c->gate),
            gguf_type_name(c->proj), c->d, c->n_ff, c->width, (double)c->magnitude);
        check_settled(&e.s, "finish_layer");
    }
    free_end(&e);
}

static void layers_end_in_two_steps(void **state)
{
    (void)state;
    static const struct end_case cases[] = {
        {GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q5_K, 256, 512, 256, 1},
        {GGUF_TYPE_Q6_K, GGUF_TYPE_F32, GGUF_TYPE_F32, 320, 768, 64, 1},
        {GGUF_TYPE_Q8_0, GGUF_TYPE_BF16, GGUF_TYPE_Q8_0, 1536, 256, 64, 1},
        {GGUF_TYPE_Q5_K, GGUF_TYPE_Q8_0, GGUF_TYPE_Q5_0, 192, 2560, 192, 1},
        {GGUF_TYPE_Q4_0, GGUF_TYPE_Q6_K, GGUF_TYPE_F16, 2560, 1024, 256, 1},
        {GGUF_TYPE_Q6_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, 1536, 6144, 256, 1},
        // The next take long on a software renderer.
        {GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q5_K, 1536, 12288, 256, 1},
        {GGUF_TYPE_Q6_K, GGUF_TYPE_F32, GGUF_TYPE_F32, 2560, 10240, 256, 1},
    };
    enum { N_CASES = sizeof cases / sizeof cases[0] };
    for (int i = 0; i < (test_everything() ? N_CASES : N_CASES - 2); i++)
        check_end(&cases[i]);
}

// A folded matrix is as exact as an input of a product, however small or large its numbers are. What is small in `down` is made
// large by the norm.
static void weights_of_every_size_fold(void **state)
{
    (void)state;
    static const float magnitudes[] = {1e-3f, 1e-2f, 1e3f};
    for (size_t i = 0; i < sizeof magnitudes / sizeof magnitudes[0]; i++) {
        check_end(&(struct end_case){GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 320, 768, 64, magnitudes[i]});
        check_end(&(struct end_case){GGUF_TYPE_Q8_0, GGUF_TYPE_F32, GGUF_TYPE_Q8_0, 320, 768, 64, magnitudes[i]});
    }
}

static void a_gate_that_is_no_number_shows_in_the_result(void **state)
{
    (void)state;
    static const float magnitudes[] = {NAN, INFINITY};
    for (int k = 0; k < 2; k++) {
        struct twin_end e;
        make_end(&(struct end_case){GGUF_TYPE_Q6_K, GGUF_TYPE_F32, GGUF_TYPE_Q8_0, 64, 256, 64, magnitudes[k]}, &e);
        assert_true(gpu->fold(gpu, &e.gpu));
        assert_non_null(e.gpu.folded);
        finish_on_gpu(&e);
        float got[64];
        read_tensor(gpu, e.out.gpu, got);
        for (int i = 0; i < 64; i++)
            assert_false(isfinite(got[i]));
        free_end(&e);
    }
}

// Nothing is folded that the two steps could not take, and nothing where a trial would have to tell whether it pays.
static void what_cannot_be_folded_stays(void **state)
{
    (void)state;
    static const struct end_case cases[] = {
        {GGUF_TYPE_F16, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 64, 256, 64, 1}, // down multiplies no integers
        {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 64, 288, 64, 1},
        {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 96, 256, 64, 1},
        {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 64, 256, 96, 1},
        {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 64, 256, 64, 1},
    };
    enum { N_CASES = sizeof cases / sizeof cases[0] };
    struct ops *usual = gpu;
    for (int i = 0; i < N_CASES; i++) {
        if (i == N_CASES - 1)
            gpu = open_gpu(&(struct webgpu_options){.no_autotune = true});
        struct twin_end e;
        make_end(&cases[i], &e);
        assert_true(gpu->fold(gpu, &e.gpu));
        assert_null(e.gpu.folded);
        assert_int_equal(e.gpu.folded_bytes, 0);
        free_end(&e);
    }
    gpu->free(gpu);
    gpu = usual;
}

// A model whose layers do not fold works without, and nothing of the failure is left to be reported.
static void check_refusal(const char *kernel, uint64_t n_bytes)
{
    struct ops *usual = gpu;
    gpu = open_gpu(&(struct webgpu_options){.no_autotune = true, .folding = WEBGPU_FOLDS_ALWAYS});
    struct twin_end e;
    make_end(&(struct end_case){GGUF_TYPE_Q8_0, GGUF_TYPE_F32, GGUF_TYPE_Q8_0, 128, 512, 64, 1}, &e);
    refused_kernel = kernel;
    refused_bytes = n_bytes;
    assert_false(gpu->fold(gpu, &e.gpu));
    refused_kernel = NULL;
    refused_bytes = 0;
    assert_null(e.gpu.folded);
    struct twin z = make_twin(gpu, ref, 1, 128, 0);
    gpu->project(gpu, e.in.gpu, &e.down_gpu, z.gpu);
    ref->project(ref, e.in.ref, &e.down_ref, z.ref);
    assert_close(gpu, ref, &z, "after a refusal of %s or %d bytes", kernel != NULL ? kernel : "nothing", (int)n_bytes);
    free_twin(gpu, ref, &z);
    free_end(&e);
    gpu->free(gpu);
    gpu = usual;
}

static void a_device_that_refuses_to_fold_does_everything_else(void **state)
{
    (void)state;
    check_refusal("fold", 0);
    check_refusal("round_rows", 0);
    check_refusal("end_sums", 0);
    check_refusal("end_inject", 0);
    check_refusal(NULL, 64 * 128 * 4);                  // the gate in f32
    check_refusal(NULL, 64 * (2 * 512 + 4 * 512 / 64)); // the folded matrix
    check_refusal(NULL, 64 * (2 * 128 + 4 * 4));        // the rounded gate: two scales, padded
}

static void the_default_limits_suffice(void **state)
{
    (void)state;
    struct ops *usual = gpu;
    gpu = open_limited_gpu(&(struct webgpu_options){.no_autotune = true, .folding = WEBGPU_FOLDS_ALWAYS});
    check_end(&(struct end_case){GGUF_TYPE_Q4_K, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 640, 1536, 128, 1});
    // Its stream is not split, and would need more than 16 KiB of workgroup memory.
    struct twin_end e;
    make_end(&(struct end_case){GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 64 * 83, 256, 64, 1}, &e);
    assert_true(gpu->fold(gpu, &e.gpu));
    assert_null(e.gpu.folded);
    free_end(&e);
    gpu->free(gpu);
    gpu = usual;
}

// --- the next layer takes the end along
// -----------------------------------------------------------------------------------------

struct entry_case {
    struct end_case end;
    enum gguf_type types[3]; // of queries, keys, values
    int32_t n_heads, n_kv_heads, head_dim;
    bool owns; // keys and values
};

struct twin_entry {
    struct twin_end e;
    struct twin_weight parts[3], q_norm, k_norm;
    struct linear on_gpu[3], on_ref[3];
    const struct linear *next_gpu[3], *next_ref[3];
    int n_parts;
    struct kv_layer kv_gpu, kv_ref;
    struct twin qkv, heads;
};

enum { CAPACITY = 200 };

static struct kv_layer make_cache(struct ops *ops, const struct entry_case *c, bool is_f32)
{
    struct kv_layer kv = {.capacity = CAPACITY, .row_elems = c->n_kv_heads * c->head_dim, .is_f32 = is_f32};
    uint64_t n_bytes = (uint64_t)CAPACITY * (uint64_t)kv.row_elems * (is_f32 ? 4 : 2);
    kv.k = ops->buffer_new(ops, n_bytes, NULL);
    kv.v = ops->buffer_new(ops, n_bytes, NULL);
    return kv;
}

static void make_entry(const struct entry_case *c, bool is_f32, struct twin_entry *t)
{
    *t = (struct twin_entry){.n_parts = c->owns ? 3 : 1};
    make_end(&c->end, &t->e);
    int32_t n_rows = 0;
    for (int k = 0; k < t->n_parts; k++) {
        int32_t n = (k == 0 ? c->n_heads : c->n_kv_heads) * c->head_dim;
        t->parts[k] = random_weight(c->types[k], c->end.d, n, 1, 1);
        t->parts[k].gpu.group = 7; // in one buffer, as a layer's are
        place_weight(gpu, &t->parts[k]);
        n_rows += n;
    }
    for (int k = 0; k < t->n_parts; k++) {
        write_weight(gpu, &t->parts[k]);
        t->on_gpu[k].weight = t->parts[k].gpu, t->on_ref[k].weight = t->parts[k].ref;
        t->next_gpu[k] = &t->on_gpu[k], t->next_ref[k] = &t->on_ref[k];
    }
    t->q_norm = make_vector(gpu, c->head_dim);
    t->k_norm = make_vector(gpu, c->head_dim);
    t->kv_gpu = make_cache(gpu, c, is_f32);
    t->kv_ref = make_cache(ref, c, is_f32);
    t->qkv = make_twin(gpu, ref, 1, n_rows, 0);
    t->heads = make_twin(gpu, ref, 1, c->n_heads * c->head_dim, 0);
    struct layer_end *end = &t->e.gpu;
    end->post_norm = &t->e.s.term_norm.gpu;
    end->next_norm = &t->e.s.norm.gpu;
    end->next = t->next_gpu;
    end->n_next = t->n_parts;
}

static void free_entry(struct twin_entry *t)
{
    for (int k = 0; k < t->n_parts; k++)
        free_weight(gpu, &t->parts[k]);
    free_weight(gpu, &t->q_norm);
    free_weight(gpu, &t->k_norm);
    gpu->buffer_free(gpu, t->kv_gpu.k);
    gpu->buffer_free(gpu, t->kv_gpu.v);
    ref->buffer_free(ref, t->kv_ref.k);
    ref->buffer_free(ref, t->kv_ref.v);
    free_twin(gpu, ref, &t->qkv);
    free_twin(gpu, ref, &t->heads);
    free_end(&t->e);
}

// What comes between a layer's end and the next layer's products, or between them and attention.
enum between { NOTHING, SETTLES_FIRST, SETTLES_LATER };

static void enter(struct twin_entry *t, const struct entry_case *c, int32_t position, enum between between)
{
    float turn[512];
    for (int32_t i = 0; i < c->head_dim; i++)
        turn[i] = i < c->head_dim / 2 ? 0.8f : 0.6f;
    struct twin rope = make_twin_of(gpu, ref, 1, c->head_dim, turn);
    struct twin_stream *s = &t->e.s;
    bool is_settled = s->gpu.term.buffer == NULL;
    int64_t n_before = gpu_dispatch_count(webgpu_of(gpu)->gpu);
    finish_on_gpu(&t->e);
    finish_on_ref(&t->e);
    s->gpu.term = t->e.out.gpu, s->ref.term = t->e.out.ref;
    s->gpu.term_norm = &s->term_norm.gpu, s->ref.term_norm = &s->term_norm.ref;
    s->gpu.scale = &s->scale.gpu, s->ref.scale = &s->scale.ref;
    if (between == SETTLES_FIRST)
        gpu->settle(gpu, &s->gpu);
    gpu->norm_project(gpu, &s->gpu, &s->norm.gpu, t->next_gpu, t->n_parts, t->qkv.gpu);
    ref->norm_project(ref, &s->ref, &s->norm.ref, t->next_ref, t->n_parts, t->qkv.ref);
    if (between == SETTLES_LATER) { // whoever looks finds all in place
        assert_close(gpu, ref, &t->qkv, "joined products at %d", position);
        check_settled(s, "joined products");
    }
    struct attention a = {.n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .q_norm = &t->q_norm.gpu,
        .k_norm = &t->k_norm.gpu,
        .eps = 1e-6f,
        .writes_kv = c->owns,
        .first_position = position,
        .rope = rope.gpu,
        .kv = &t->kv_gpu};
    struct attention b = a;
    b.q_norm = &t->q_norm.ref, b.k_norm = &t->k_norm.ref, b.rope = rope.ref, b.kv = &t->kv_ref;
    gpu->attend(gpu, t->qkv.gpu, &a, t->heads.gpu);
    if (is_settled && between == NOTHING && !t->kv_gpu.is_f32)
        assert_int_equal(gpu_dispatch_count(webgpu_of(gpu)->gpu) - n_before, position > 0 ? 3 : 4); // the first may not know
    ref->attend(ref, t->qkv.ref, &b, t->heads.ref);
    // Scores are tens, of which 16 bits leave thousandths, and so of their exponentials.
    double d = difference(gpu, ref, &t->heads);
    if (!(d <= 5e-3)) {
        fail_msg("relative difference %.3g: %d heads of %d, width %d, position %d, %d", d, c->n_heads, c->head_dim, c->end.d,
            position, between);
    }
    check_settled(s, "entering a layer");
    free_twin(gpu, ref, &rope);
}

static void check_entry(const struct entry_case *c, bool is_f32)
{
    struct twin_entry t;
    make_entry(c, is_f32, &t);
    assert_true(gpu->fold(gpu, &t.e.gpu));
    assert_non_null(t.e.gpu.folded);
    uint64_t n_rows = (uint64_t)t.qkv.gpu.n_cols, width = (uint64_t)c->end.width;
    uint64_t n_next = n_rows * (2 * width + (width / 64 + 3) / 4 * 16); // two planes of bytes, scales
    assert_true(t.e.gpu.folded_bytes >= n_next + (uint64_t)c->end.n_ff * width * 2);
    for (int32_t position = 0; position < (c->owns ? 40 : 3); position += position < 2 ? 1 : 13)
        enter(&t, c, position, NOTHING);
    enter(&t, c, 40, SETTLES_FIRST);
    enter(&t, c, 41, SETTLES_LATER);
    enter(&t, c, 42, NOTHING);
    free_entry(&t);
}

// A device that refuses what the next layer needs still folds the layer's end.
static void the_end_folds_without_the_next_layer(void **state)
{
    (void)state;
    static const struct entry_case c = {
        {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 128, 256, 64, 1}, {GGUF_TYPE_Q8_0}, 2, 1, 64, false};
    struct ops *usual = gpu;
    for (int refuses = 0; refuses < 2; refuses++) {
        gpu = open_gpu(&(struct webgpu_options){.no_autotune = true, .folding = WEBGPU_FOLDS_ALWAYS});
        struct twin_entry t;
        make_entry(&c, false, &t);
        refused_kernel = refuses == 0 ? "end_enter" : NULL;
        refused_bytes = refuses == 1 ? (128 * (2 * 64 + 16) + 255) / 256 * 256 : 0; // the matrix of the next layer
        assert_true(gpu->fold(gpu, &t.e.gpu));
        refused_kernel = NULL;
        refused_bytes = 0;
        assert_non_null(t.e.gpu.folded);
        assert_int_equal(t.e.gpu.folded_bytes, 64 * (2 * 256 + 16));
        finish_on_gpu(&t.e);
        finish_on_ref(&t.e);
        assert_close(gpu, ref, &t.e.out, "the end alone, %d", refuses);
        free_entry(&t);
        gpu->free(gpu);
    }
    gpu = usual;
}

static void the_next_layer_takes_the_end_along(void **state)
{
    (void)state;
    static const struct entry_case cases[] = {
        {{GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, 128, 256, 64, 1}, {GGUF_TYPE_Q8_0, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_0}, 2,
            1, 64, true},
        {{GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, 256, 512, 256, 1}, {GGUF_TYPE_Q4_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K}, 4,
            2, 32, true},
        {{GGUF_TYPE_Q6_K, GGUF_TYPE_Q4_K, GGUF_TYPE_Q5_K, 1536, 512, 256, 1}, {GGUF_TYPE_Q4_K}, 8, 1, 256, false},
        {{GGUF_TYPE_Q6_K, GGUF_TYPE_F32, GGUF_TYPE_Q8_0, 2560, 256, 320, 1}, {GGUF_TYPE_Q6_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q5_K}, 2,
            1, 512, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_entry(&cases[i], false);
    check_entry(&cases[0], true); // with keys and values in f32 attention does not make the factors
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_end_in_two_steps),
        cmocka_unit_test(weights_of_every_size_fold),
        cmocka_unit_test(a_gate_that_is_no_number_shows_in_the_result),
        cmocka_unit_test(what_cannot_be_folded_stays),
        cmocka_unit_test(a_device_that_refuses_to_fold_does_everything_else),
        cmocka_unit_test(the_default_limits_suffice),
        cmocka_unit_test(the_next_layer_takes_the_end_along),
        cmocka_unit_test(the_end_folds_without_the_next_layer),
    };
    return cmocka_run_group_tests(tests, open_both_for_integers, close_both);
}
