// kv_cache_test.c: which layers own keys and values, how much they take, and how far a sequence can be cut back.

#include "text_golden.h"

#include "model/memory.h"
#include "ref/ref.h"

// The published E2B: 35 layers, every fifth global, the last 20 share; window 512; 1 key head of 256 or 512.
static void make_e2b(struct gemma4_config *config, struct gemma4_layer layers[35])
{
    *config = (struct gemma4_config){.n_layers = 35, .n_kv_layers = 15, .n_heads = 8, .window = 512, .layers = layers};
    for (int32_t l = 0; l < 35; l++) {
        bool sliding = l % 5 != 4;
        layers[l] = (struct gemma4_layer){.sliding = sliding,
            .head_dim = sliding ? 256 : 512,
            .n_kv_heads = 1,
            .kv_owner = l < 15    ? l
                        : sliding ? 13
                                  : 14};
    }
}

static void only_owning_layers_take_memory(void **state)
{
    (void)state;
    struct gemma4_layer layers[35];
    struct gemma4_config config;
    struct carat_error err = {0};
    make_e2b(&config, layers);
    struct kv_options options = {.n_context = 4096, .max_batch = 128};
    uint64_t sliding, global;
    uint64_t total = kv_cache_bytes(&config, &options, &sliding, &global);
    // 12 sliding layers of 512 - 1 + 128 positions, 3 global ones of 4096, keys and values, 2 bytes.
    assert_int_equal(sliding, UINT64_C(12) * 639 * 256 * 2 * 2);
    assert_int_equal(global, UINT64_C(3) * 4096 * 512 * 2 * 2);
    assert_int_equal(total, sliding + global);
    options.is_f32 = true;
    assert_int_equal(kv_cache_bytes(&config, &options, NULL, NULL), 2 * total);
    options = (struct kv_options){.n_context = 100, .max_batch = 128};
    kv_cache_bytes(&config, &options, &sliding, &global);
    assert_int_equal(sliding, UINT64_C(12) * 100 * 256 * 2 * 2);

    struct ops *ops = ref_ops_new(&err);
    struct kv_cache *kv = kv_cache_new(ops, &config, &options, &err);
    require(kv != NULL, err);
    for (int32_t l = 0; l < 35; l++) {
        assert_true((kv->layers[l].k != NULL) == (l < 15));
        assert_ptr_equal(kv_view(kv, l), &kv->layers[l < 15 ? l : l % 5 != 4 ? 13 : 14]);
    }
    kv_cache_free(kv);
    ops->free(ops);
}

static void a_sequence_can_be_cut_as_far_as_the_rings_reach(void **state)
{
    (void)state;
    struct gemma4_layer layers[2] = {{.sliding = true, .head_dim = 2, .n_kv_heads = 1, .kv_owner = 0},
        {.sliding = false, .head_dim = 2, .n_kv_heads = 1, .kv_owner = 1}};
    struct gemma4_config config = {.n_layers = 2, .n_kv_layers = 2, .n_heads = 1, .window = 4, .layers = layers};
    struct kv_options options = {.n_context = 40, .max_batch = 3, .n_rewind = 2};
    struct carat_error err = {0};
    struct ops *ops = ref_ops_new(&err);
    struct kv_cache *kv = kv_cache_new(ops, &config, &options, &err);
    require(kv != NULL, err);
    assert_int_equal(kv->layers[0].capacity, 4 - 1 + 3 + 2);
    assert_int_equal(kv->layers[1].capacity, 40);
    assert_int_equal(kv_oldest_end(kv), 0);
    require(kv_truncate(kv, 0, &err), err);

    // As long as the ring holds everything, any cut is possible.
    for (int i = 0; i < 4; i++) {
        require(kv_reserve(kv, 2, &err), err);
        kv_commit(kv, 2);
    }
    assert_int_equal(kv_oldest_end(kv), 1);
    require(kv_truncate(kv, 5, &err), err);
    kv_commit(kv, 3);

    // 20 positions written: slots hold 12 .. 19. A query at 15 sees 12 .. 15, one at 14 would need 11.
    for (int i = 0; i < 4; i++)
        kv_commit(kv, 3);
    assert_int_equal(kv->n_committed, 20);
    assert_int_equal(kv_oldest_end(kv), 15);
    assert_false(kv_truncate(kv, 14, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    assert_int_equal(kv->n_committed, 20);
    require(kv_truncate(kv, 15, &err), err);

    // What was overwritten stays lost, until positions beyond are written.
    assert_int_equal(kv_oldest_end(kv), 15);
    kv_commit(kv, 2);
    assert_false(kv_truncate(kv, 14, &err));
    require(kv_truncate(kv, 16, &err), err);
    assert_false(kv_truncate(kv, 17, &err));
    assert_false(kv_truncate(kv, -1, &err));
    require(kv_truncate(kv, 0, &err), err);
    assert_int_equal(kv_oldest_end(kv), 0);
    kv_commit(kv, 3);
    require(kv_truncate(kv, 1, &err), err);
    kv_cache_free(kv);
    ops->free(ops);
}

static void a_full_context_is_refused_and_changes_nothing(void **state)
{
    (void)state;
    struct gemma4_layer layer = {.sliding = true, .head_dim = 2, .n_kv_heads = 1};
    struct gemma4_config config = {.n_layers = 1, .n_kv_layers = 1, .n_heads = 1, .window = 4, .layers = &layer};
    struct carat_error err = {0};
    struct ops *ops = ref_ops_new(&err);
    struct kv_cache *kv = kv_cache_new(ops, &config, &(struct kv_options){.n_context = 5, .max_batch = 4}, &err);
    require(kv != NULL, err);
    require(kv_reserve(kv, 4, &err), err);
    kv_commit(kv, 4);
    assert_false(kv_reserve(kv, 2, &err));
    assert_int_equal(err.code, CARAT_CONTEXT_FULL);
    assert_int_equal(kv->n_committed, 4);
    require(kv_reserve(kv, 1, &err), err);
    assert_false(kv_reserve(kv, 0, &err));
    assert_false(kv_reserve(kv, 5, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    kv_cache_free(kv);
    static const struct kv_options impossible[] = {{.n_context = 0, .max_batch = 1}, {.n_context = 1 << 25, .max_batch = 1},
        {.n_context = 8, .max_batch = 0}, {.n_context = 8, .max_batch = 1, .n_rewind = -1}};
    for (int i = 0; i < 4; i++) {
        assert_null(kv_cache_new(ops, &config, &impossible[i], &err));
        assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    }
    ops->free(ops);
}

// Memory that runs out in the middle is given back.
static int n_buffers_left, n_buffers_held;
static struct buffer *(*buffer_new)(struct ops *, uint64_t, struct carat_error *);
static void (*buffer_free)(struct ops *, struct buffer *);

static struct buffer *scarce_buffer(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
{
    if (n_buffers_left-- <= 0) {
        (fail)(err, CARAT_NO_MEMORY, "no more buffers");
        return NULL;
    }
    struct buffer *buffer = buffer_new(ops, n_bytes, err);
    n_buffers_held += buffer != NULL;
    return buffer;
}

static void return_buffer(struct ops *ops, struct buffer *buffer)
{
    n_buffers_held -= buffer != NULL;
    buffer_free(ops, buffer);
}

static void memory_that_runs_out_is_reported_and_given_back(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F16.gguf", (struct rig_options){.max_batch = 8});
    buffer_new = rig.ops->buffer_new;
    buffer_free = rig.ops->buffer_free;
    rig.ops->buffer_new = scarce_buffer;
    rig.ops->buffer_free = return_buffer;
    struct text_options sizes = {.max_batch = 8, .max_logits = 1};
    struct kv_options room = {.n_context = 64, .max_batch = 8};
    for (int n = 0;; n++) {
        struct carat_error err = {0};
        n_buffers_held = 0;
        n_buffers_left = n;
        struct text_context *context = text_context_new(rig.ops, rig.text, &sizes, &err);
        struct kv_cache *kv = context != NULL ? kv_cache_new(rig.ops, &rig.text->config, &room, &err) : NULL;
        bool complete = kv != NULL;
        if (!complete)
            assert_int_equal(err.code, CARAT_NO_MEMORY);
        kv_cache_free(kv);
        text_context_free(context);
        assert_int_equal(n_buffers_held, 0);
        if (complete)
            break;
        assert_true(n < 100);
    }
    rig.ops->buffer_new = buffer_new;
    rig.ops->buffer_free = buffer_free;
    rig_close(&rig);
}

// The sum stated beforehand is what buffers then take.
static uint64_t n_bytes_taken;

static struct buffer *counted_buffer(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
{
    n_bytes_taken += n_bytes;
    return buffer_new(ops, n_bytes, err);
}

static void memory_is_stated_before_it_is_taken(void **state)
{
    (void)state;
    static const char *const models[] = {"micro-e2b.F16.gguf", "micro-26b.BF16.gguf", "tiny-31b.Q4_K_M.gguf"};
    for (int m = 0; m < 3; m++) {
        struct carat_error err = {0};
        struct rig rig;
        rig_open(&rig, ref_ops_new, models[m], (struct rig_options){.max_batch = 8});
        struct text_options sizes = {.max_batch = 24, .max_logits = 3};
        struct kv_options room = {.n_context = 640, .max_batch = 24};
        struct model_memory memory = model_memory(&rig.plan, rig.text, &sizes, &room);
        uint64_t n_weights = memory.weights[PLAN_LAYERS] + memory.weights[PLAN_EMBEDDING] + memory.weights[PLAN_PER_LAYER_TABLE];
        assert_int_equal(memory.total, n_weights + memory.kv_sliding + memory.kv_global + memory.scratch);
        assert_int_equal(n_weights, rig.plan.n_bytes);
        buffer_new = rig.ops->buffer_new;
        rig.ops->buffer_new = counted_buffer;
        n_bytes_taken = 0;
        struct text_context *context = text_context_new(rig.ops, rig.text, &sizes, &err);
        require(context != NULL, err);
        assert_int_equal(n_bytes_taken, memory.scratch);
        n_bytes_taken = 0;
        struct kv_cache *kv = kv_cache_new(rig.ops, &rig.text->config, &room, &err);
        require(kv != NULL, err);
        assert_int_equal(n_bytes_taken, memory.kv_sliding + memory.kv_global);
        kv_cache_free(kv);
        text_context_free(context);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_owning_layers_take_memory),
        cmocka_unit_test(a_sequence_can_be_cut_as_far_as_the_rings_reach),
        cmocka_unit_test(a_full_context_is_refused_and_changes_nothing),
        cmocka_unit_test(memory_that_runs_out_is_reported_and_given_back),
        cmocka_unit_test(memory_is_stated_before_it_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
