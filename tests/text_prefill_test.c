// text_prefill_test.c: however a prompt is cut into batches, and whatever is skipped, the result is the same to the bit on the
// reference backend, whose rows never depend on each other but through keys and values.

#include "text_golden.h"

#include "ref/ref.h"

static const char *const models[] = {"micro-e2b.F32.gguf", "micro-31b.F16.gguf", "micro-26b.BF16.gguf", "tiny-e2b.Q4_K_M.gguf"};

enum { N_IDS = 100 };

static void make_ids(int32_t ids[N_IDS])
{
    uint32_t state = 12345;
    ids[0] = 2;
    for (int i = 1; i < N_IDS; i++) {
        state = state * 1664525u + 1013904223u;
        ids[i] = (int32_t)(state >> 8) % 640;
    }
}

// The logits of the last of n ids.
static void last_logits(const char *model, struct rig_options options, const int32_t *ids, int32_t n, int32_t chunk, float *out)
{
    struct rig rig;
    rig_open(&rig, ref_ops_new, model, options);
    rig_run(&rig, ids, n, chunk, NULL);
    assert_int_equal(rig.context->logits.n_rows, 1);
    read_tensor(rig.ops, rig.context->logits, out);
    rig_close(&rig);
}

static void any_chunking_gives_the_same_bits(void **state)
{
    (void)state;
    static const int32_t chunks[] = {1, 2, 3, 7, 16, 17, 33, 99};
    int32_t ids[N_IDS];
    float whole[640], parts[640];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (int f32 = 0; f32 < 2; f32++) {
            struct rig_options options = {.kv_f32 = f32};
            last_logits(models[m], options, ids, N_IDS, N_IDS, whole);
            for (size_t c = 0; c < sizeof chunks / sizeof chunks[0]; c++) {
                last_logits(models[m], options, ids, N_IDS, chunks[c], parts);
                assert_memory_equal(parts, whole, sizeof whole);
            }
        }
    }
}

static void skipping_layers_for_rows_without_logits_changes_nothing(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    float skipped[640], full[640];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (int32_t chunk = 9; chunk <= N_IDS; chunk += 91) {
            last_logits(models[m], (struct rig_options){.kv_f32 = true}, ids, N_IDS, chunk, skipped);
            last_logits(models[m], (struct rig_options){.kv_f32 = true, .run_all_rows = true}, ids, N_IDS, chunk, full);
            assert_memory_equal(skipped, full, sizeof full);
        }
    }
}

// With batches of 4 the ring of a window of 16 has 19 slots and wraps every few batches; with room for 128 it never does.
static void ring_equals_full_cache_across_the_wrap(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    float ring[640], whole[640];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        for (int32_t n = 14; n < 44; n++) {
            last_logits(models[m], (struct rig_options){.kv_f32 = true, .max_batch = 4}, ids, n, 4, ring);
            last_logits(models[m], (struct rig_options){.kv_f32 = true, .max_batch = 128}, ids, n, n, whole);
            assert_memory_equal(ring, whole, sizeof whole);
        }
    }
}

static void logits_of_several_last_rows_equal_those_of_all_rows(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    make_ids(ids);
    float *all = malloc(sizeof(float) * 640 * N_IDS), *some = malloc(sizeof(float) * 640 * 5);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct carat_error err = {0};
        struct rig rig;
        rig_open(&rig, ref_ops_new, models[m], (struct rig_options){.kv_f32 = true});
        rig_run(&rig, ids, N_IDS, 0, all);
        require(kv_truncate(rig.kv, 0, &err), err);
        struct text_batch batch = {.n = N_IDS, .ids = ids, .n_logits = 5};
        require(text_forward(rig.context, rig.kv, &batch, &err), err);
        assert_int_equal(rig.context->logits.n_rows, 5);
        read_tensor(rig.ops, rig.context->logits, some);
        assert_memory_equal(some, all + (size_t)640 * (N_IDS - 5), sizeof(float) * 640 * 5);
        rig_close(&rig);
    }
    free(some);
    free(all);
}

// Cutting the sequence and going on gives what never having gone further gives.
static void going_on_after_a_cut_forgets_what_was_cut(void **state)
{
    (void)state;
    int32_t ids[N_IDS];
    float cut[640], straight[640];
    make_ids(ids);
    for (size_t m = 0; m < sizeof models / sizeof models[0]; m++) {
        struct carat_error err = {0};
        struct rig rig;
        rig_open(&rig, ref_ops_new, models[m], (struct rig_options){.kv_f32 = true, .max_batch = 32});
        rig_run(&rig, ids, 60, 20, NULL);
        int32_t oldest = kv_oldest_end(rig.kv);
        assert_int_equal(oldest, 60 - (16 - 1 + 32) + 16 - 1);
        require(kv_truncate(rig.kv, oldest, &err), err);
        rig_run(&rig, ids + 70, 20, 20, NULL);
        read_tensor(rig.ops, rig.context->logits, cut);
        require(kv_truncate(rig.kv, 0, &err), err);
        int32_t again[N_IDS];
        memcpy(again, ids, sizeof ids);
        memcpy(again + oldest, ids + 70, 20 * sizeof *ids);
        rig_run(&rig, again, oldest + 20, 13, NULL);
        read_tensor(rig.ops, rig.context->logits, straight);
        assert_memory_equal(cut, straight, sizeof cut);
        rig_close(&rig);
    }
}

static void ids_on_the_device_give_the_same_as_ids_on_the_host(void **state)
{
    (void)state;
    struct carat_error err = {0};
    int32_t ids[N_IDS];
    float host[640], device[640];
    make_ids(ids);
    struct rig rig;
    rig_open(&rig, ref_ops_new, models[0], (struct rig_options){.kv_f32 = true});
    rig_run(&rig, ids, 20, 20, NULL);
    read_tensor(rig.ops, rig.context->logits, host);
    struct buffer *buffer = rig.ops->buffer_new(rig.ops, sizeof ids, &err);
    require(buffer != NULL, err);
    rig.ops->write(rig.ops, buffer, 0, ids, sizeof ids);
    require(kv_truncate(rig.kv, 0, &err), err);
    struct text_batch batch = {.n = 20, .device_ids = {.buffer = buffer, .n_rows = 20, .n_cols = 1}, .n_logits = 1};
    require(text_forward(rig.context, rig.kv, &batch, &err), err);
    read_tensor(rig.ops, rig.context->logits, device);
    assert_memory_equal(host, device, sizeof host);
    rig.ops->buffer_free(rig.ops, buffer);
    rig_close(&rig);
}

// A backend that leaves the per-layer table in the file.
static bool (*place_in_memory)(struct ops *, struct weight *, const void *, bool, struct carat_error *);

static bool place_on_disk(
    struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err)
{
    if (!may_stay_on_disk)
        return place_in_memory(ops, weight, mapped, false, err);
    weight->home = WEIGHT_DISK;
    return true;
}

static struct ops *ref_with_table_on_disk(struct carat_error *err)
{
    struct ops *ops = ref_ops_new(err);
    place_in_memory = ops->weight_place;
    ops->weight_place = place_on_disk;
    return ops;
}

static void the_per_layer_table_may_stay_on_disk(void **state)
{
    (void)state;
    static const char *const tables[] = {"micro-e2b.BF16.gguf", "tiny-e2b.Q4_K_M.gguf", "tiny-e2b.Q8_0.gguf"};
    int32_t ids[N_IDS];
    float memory[640], disk[640];
    make_ids(ids);
    for (size_t m = 0; m < sizeof tables / sizeof tables[0]; m++) {
        last_logits(tables[m], (struct rig_options){.kv_f32 = true}, ids, 40, 7, memory);
        struct rig rig;
        rig_open(&rig, ref_with_table_on_disk, tables[m], (struct rig_options){.kv_f32 = true});
        assert_int_equal(rig.text->per_layer_table.home, WEIGHT_DISK);
        rig_run(&rig, ids, 40, 7, NULL);
        read_tensor(rig.ops, rig.context->logits, disk);
        rig_close(&rig);
        assert_memory_equal(memory, disk, sizeof memory);
    }
}

// Rows of the embedding table given as soft tokens are the same input as their ids, in a model without per-layer embeddings.
static void soft_tokens_stand_in_for_ids(void **state)
{
    (void)state;
    struct carat_error err = {0};
    int32_t ids[N_IDS];
    float from_ids[640], from_rows[640];
    make_ids(ids);
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-31b.F16.gguf", (struct rig_options){.kv_f32 = true});
    rig_run(&rig, ids, 40, 40, NULL);
    read_tensor(rig.ops, rig.context->logits, from_ids);
    struct tensor rows = {.buffer = rig.ops->buffer_new(rig.ops, 12 * 64 * 4, &err), .n_rows = 12, .n_cols = 64};
    require(rows.buffer != NULL, err);
    struct token_ids some = {.host = ids + 8};
    struct tensor ten = {.buffer = rows.buffer, .offset = 2 * 64 * 4, .n_rows = 10, .n_cols = 64};
    rig.ops->embed(rig.ops, rig.text->token_embd, &some, (float)sqrt(64.0), ten); // rows 2 .. 11
    int32_t blank[N_IDS];
    memcpy(blank, ids, sizeof ids);
    memset(blank + 8, -1, 10 * sizeof *blank);
    struct soft_run run = {.row = 8, .n_rows = 10, .rows = rows, .first_row = 2};
    struct text_batch batch = {.n = 40, .ids = blank, .n_logits = 1, .soft = &run, .n_soft = 1};
    require(kv_truncate(rig.kv, 0, &err), err);
    require(text_forward(rig.context, rig.kv, &batch, &err), err);
    read_tensor(rig.ops, rig.context->logits, from_rows);
    assert_memory_equal(from_ids, from_rows, sizeof from_ids);
    rig.ops->buffer_free(rig.ops, rows.buffer);
    rig_close(&rig);
}

static void batches_that_break_a_rule_are_refused_by_name(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, ref_ops_new, models[0], (struct rig_options){.max_batch = 8, .n_context = 10});
    int32_t good[10] = {2, 5, 6, 7, 8, 9, 10, 11, 12, 13}, high[] = {640}, low[] = {-1};
    struct buffer *buffer = rig.ops->buffer_new(rig.ops, 64 * 4 * 4, NULL);
    struct tensor rows = {.buffer = buffer, .n_rows = 4, .n_cols = 64}, narrow = rows;
    narrow.n_cols = 32;
    struct soft_run beyond = {.row = 2, .n_rows = 3, .rows = rows},
                    absent = {.row = 0, .n_rows = 4, .rows = rows, .first_row = 1},
                    thin = {.row = 0, .n_rows = 4, .rows = narrow};
    struct soft_run twice[] = {{.row = 0, .n_rows = 2, .rows = rows}, {.row = 1, .n_rows = 2, .rows = rows}};
    const struct {
        struct text_batch batch;
        const char *says;
    } cases[] = {
        {{.n = 0, .ids = good}, "a batch of 0 positions"},
        {{.n = 9, .ids = good}, "a batch of 9 positions"},
        {{.n = 2, .ids = good, .n_logits = 3}, "logits of 3 rows"},
        {{.n = 1, .ids = high}, "token id 640 is outside the vocabulary of 640"},
        {{.n = 1, .ids = low}, "token id -1"},
        {{.n = 1}, "must have all of them on the device"},
        {{.n = 4, .ids = good, .soft = &beyond, .n_soft = 1}, "embedding rows 2 to 4 do not fit"},
        {{.n = 4, .ids = good, .soft = &absent, .n_soft = 1}, "4 embeddings of width 64 from row 1 on are not there"},
        {{.n = 4, .ids = good, .soft = &thin, .n_soft = 1}, "4 embeddings of width 32"},
        {{.n = 4, .ids = good, .soft = twice, .n_soft = 2}, "embedding rows 1 to 2 do not fit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        assert_false(text_forward(rig.context, rig.kv, &cases[i].batch, &err));
        assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
        if (strstr(err.message, cases[i].says) == NULL)
            give_up("case %zu says '%s' instead of '%s'", i, err.message, cases[i].says);
        assert_int_equal(rig.kv->n_committed, 0);
    }
    struct carat_error err = {0};
    struct text_batch full = {.n = 8, .ids = good}, more = {.n = 3, .ids = good};
    require(text_forward(rig.context, rig.kv, &full, &err), err);
    assert_false(text_forward(rig.context, rig.kv, &more, &err));
    assert_int_equal(err.code, CARAT_CONTEXT_FULL);
    assert_int_equal(rig.kv->n_committed, 8);
    rig.ops->buffer_free(rig.ops, buffer);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_chunking_gives_the_same_bits),
        cmocka_unit_test(skipping_layers_for_rows_without_logits_changes_nothing),
        cmocka_unit_test(ring_equals_full_cache_across_the_wrap),
        cmocka_unit_test(logits_of_several_last_rows_equal_those_of_all_rows),
        cmocka_unit_test(going_on_after_a_cut_forgets_what_was_cut),
        cmocka_unit_test(ids_on_the_device_give_the_same_as_ids_on_the_host),
        cmocka_unit_test(the_per_layer_table_may_stay_on_disk),
        cmocka_unit_test(soft_tokens_stand_in_for_ids),
        cmocka_unit_test(batches_that_break_a_rule_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
