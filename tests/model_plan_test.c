// model_plan_test.c: weights arrive by plan, however their bytes are brought.

#include "text_golden.h"

#include "model_edit.h"
#include "ref/ref.h"

static const char *const models[] = {
    "micro-e2b.BF16.gguf", "micro-26b.BF16.gguf", "tiny-31b.Q4_K_M.gguf", "tiny-mm.single-Q4_K_M.gguf"};

enum { N_MODELS = sizeof models / sizeof models[0], N_IDS = 20 };

static void run_ids(struct rig *rig, float logits[640])
{
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 2) % 640;
    rig_run(rig, ids, N_IDS, 0, NULL);
    read_tensor(rig->ops, rig->context->logits, logits);
}

struct handle {
    FILE *file;
    uint64_t n_bytes_left; // reads beyond fail
};

static bool read_file(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    struct handle *handle = context;
    if (n_bytes > handle->n_bytes_left)
        return (fail)(err, CARAT_IO, "the line is dead");
    handle->n_bytes_left -= n_bytes;
    return fseek(handle->file, (long)offset, SEEK_SET) == 0 && fread(dst, 1, n_bytes, handle->file) == n_bytes;
}

// A model whose file is not mapped.
static struct gguf_file *open_unmapped(const char *model, struct handle *handle)
{
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    *handle = (struct handle){.file = fopen(fixture("models", model), "rb"), .n_bytes_left = UINT64_MAX};
    assert_non_null(handle->file);
    fseek(handle->file, 0, SEEK_END);
    struct gguf_source *source = gguf_source_callback(read_file, handle, (uint64_t)ftell(handle->file), model, &err);
    require(source != NULL, err);
    require(gguf_open(&source, 1, &file, &err), err);
    return file;
}

static void a_file_that_is_read_gives_what_a_mapped_one_gives(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        float mapped[640], read[640];
        struct rig rig;
        rig_open(&rig, ref_ops_new, models[m], (struct rig_options){.kv_f32 = true});
        run_ids(&rig, mapped);
        rig_close(&rig);
        struct handle handle;
        rig_open_file(&rig, ref_ops_new, open_unmapped(models[m], &handle), (struct rig_options){.kv_f32 = true});
        run_ids(&rig, read);
        rig_close(&rig);
        fclose(handle.file);
        assert_memory_equal(mapped, read, sizeof mapped);
    }
}

// What a host does that holds the bytes: place, write in pieces, finish.
static void a_host_can_execute_the_plan_itself(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        float mapped[640], written[640];
        struct carat_error err = {0};
        struct rig rig;
        rig_open(&rig, ref_ops_new, models[m], (struct rig_options){.kv_f32 = true});
        run_ids(&rig, mapped);
        rig_close(&rig);

        struct handle handle;
        rig = (struct rig){.ops = ref_ops_new(&err), .file = open_unmapped(models[m], &handle)};
        require(gemma4_open(rig.file, COMPAT_NONE, &rig.plan, &rig.text, &err), err);
        require(plan_place(&rig.plan, rig.ops, &err), err);
        uint64_t end = 0;
        for (size_t i = 0; i < rig.plan.n_items; i++) {
            const struct weight *weight = rig.plan.items[i].weight;
            assert_true(plan_needs_bytes(&rig.plan.items[i]));
            assert_true(weight->file_offset >= end); // one pass over the file
            end = weight->file_offset + weight->n_bytes;
            char *bytes = malloc(weight->n_bytes);
            require(
                gguf_source_read(plan_source(&rig.plan, weight->file_part), weight->file_offset, bytes, weight->n_bytes, &err),
                err);
            for (uint64_t at = 0; at < weight->n_bytes; at += 1000) {
                uint64_t n = weight->n_bytes - at < 1000 ? weight->n_bytes - at : 1000;
                require(plan_write(&rig.plan, rig.ops, i, at, bytes + at, n, &err), err);
            }
            assert_false(plan_write(&rig.plan, rig.ops, i, weight->n_bytes, bytes, 1, &err));
            free(bytes);
        }
        assert_false(plan_write(&rig.plan, rig.ops, rig.plan.n_items, 0, "", 0, &err));
        require(plan_finish(&rig.plan, rig.ops, &err), err);
        assert_int_equal(rig.plan.n_brought, rig.plan.n_bytes);
        assert_true(rig.plan.load_ms > 0);
        require(gemma4_ready(rig.text, &err), err);
        struct text_options sizes = {.max_batch = 32, .max_logits = 1};
        struct kv_options room = {.n_context = 32, .max_batch = 32, .is_f32 = true};
        rig.context = text_context_new(rig.ops, rig.text, &sizes, &err);
        rig.kv = kv_cache_new(rig.ops, &rig.text->config, &room, &err);
        run_ids(&rig, written);
        rig_close(&rig);
        fclose(handle.file);
        assert_memory_equal(mapped, written, sizeof mapped);
    }
}

static bool stop_at(void *context, uint64_t n_done, uint64_t n_total)
{
    uint64_t *limit = context;
    assert_true(n_done <= n_total);
    return n_done < *limit;
}

// Loading stops at any point; the sanitizer sees that nothing is left behind, and loading can be tried again.
static void loading_can_be_cancelled_and_fails_cleanly(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct handle handle;
    struct gguf_file *file = open_unmapped("micro-e2b.BF16.gguf", &handle);
    struct ops *ops = ref_ops_new(&err);
    struct plan plan = {0};
    struct gemma4_text *text;
    require(gemma4_open(file, COMPAT_NONE, &plan, &text, &err), err);
    for (uint64_t limit = 0; limit <= plan.n_bytes; limit += plan.n_bytes / 5) {
        assert_false(plan_load(&plan, ops, stop_at, &limit, &err));
        assert_int_equal(err.code, CARAT_CANCELLED);
        for (size_t i = 0; i < plan.n_items; i++)
            assert_int_equal(plan.items[i].weight->home, WEIGHT_UNPLACED);
    }
    handle.n_bytes_left = 100000;
    assert_false(plan_load(&plan, ops, NULL, NULL, &err));
    assert_int_equal(err.code, CARAT_IO);
    assert_non_null(strstr(err.message, "reading tensor '"));
    handle.n_bytes_left = UINT64_MAX;
    require(plan_load(&plan, ops, NULL, NULL, &err), err);
    plan_unload(&plan, ops);
    gemma4_free(text);
    plan_free(&plan);
    ops->free(ops);
    gguf_close(file);
    fclose(handle.file);
}

static void rotary_factors_of_a_file_are_checked_and_used(void **state)
{
    (void)state;
    float factors[32], plain[640], rotated[640];
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F16.gguf", (struct rig_options){.kv_f32 = true});
    assert_int_equal(rig.text->rope_global.n_pairs, 32);
    assert_int_equal(rig.text->rope_global.n_rotating, 8); // a quarter of the head
    assert_int_equal(rig.text->rope_sliding.n_rotating, 16);
    run_ids(&rig, plain);
    rig_close(&rig);
    for (int i = 0; i < 32; i++)
        factors[i] = i < 16 ? 2 : 1e30f;
    struct tensor_edit edit = {"rope_freqs.weight", "rope_freqs.weight", GGUF_TYPE_F32, {32, 1, 1, 1}, factors};
    for (int bad = 0; bad < 3; bad++) {
        struct carat_error err = {0};
        struct gguf_file *file = NULL;
        if (bad > 0)
            factors[3] = bad == 1 ? 0 : NAN;
        char *path = edited_model("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &edit, .n_tensors = 1});
        require(gguf_open_path(path, &file, &err), err);
        if (bad == 0) {
            rig_open_file(&rig, ref_ops_new, file, (struct rig_options){.kv_f32 = true});
            assert_int_equal(rig.text->rope_global.n_rotating, 16);
            run_ids(&rig, rotated);
            assert_memory_not_equal(plain, rotated, sizeof plain);
            rig_close(&rig);
        } else {
            struct ops *ops = ref_ops_new(&err);
            struct plan plan = {0};
            struct gemma4_text *text;
            require(gemma4_open(file, COMPAT_NONE, &plan, &text, &err), err);
            require(plan_load(&plan, ops, NULL, NULL, &err), err);
            assert_false(gemma4_ready(text, &err));
            assert_non_null(strstr(err.message, "entry 3 of tensor 'rope_freqs.weight'"));
            plan_unload(&plan, ops);
            gemma4_free(text);
            plan_free(&plan);
            ops->free(ops);
            gguf_close(file);
        }
        unlink(path);
        free(path);
    }
}

// cos and sin of exact angles, for positions up to the longest context, wherever a batch begins.
static void rotary_tables_are_exact_at_any_position(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct arena arena = {0};
    struct rope rope;
    require(rope_init(&rope, &arena, 512, 1000000, NULL, 64, &err), err);
    static const int32_t firsts[] = {0, 1, 63, 64, 65, 511, 131071, 262100, 262143};
    float *rows = malloc(70 * 512 * sizeof *rows), *one = malloc(512 * sizeof *one);
    for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
        rope_fill(&rope, firsts[f], 70, rows);
        for (int32_t row = 0; row < 70; row++) {
            for (int32_t i = 0; i < 256; i++) {
                double angle = i < 64 ? (firsts[f] + row) * pow(1000000, -2.0 * i / 512) : 0;
                assert_true(fabs(rows[row * 512 + i] - cos(angle)) < 1e-7);
                assert_true(fabs(rows[row * 512 + 256 + i] - sin(angle)) < 1e-7);
            }
            rope_fill(&rope, firsts[f] + row, 1, one);
            assert_memory_equal(one, rows + (ptrdiff_t)row * 512, 512 * sizeof *one);
        }
    }
    free(one);
    free(rows);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_that_is_read_gives_what_a_mapped_one_gives),
        cmocka_unit_test(a_host_can_execute_the_plan_itself),
        cmocka_unit_test(loading_can_be_cancelled_and_fails_cleanly),
        cmocka_unit_test(rotary_factors_of_a_file_are_checked_and_used),
        cmocka_unit_test(rotary_tables_are_exact_at_any_position),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
