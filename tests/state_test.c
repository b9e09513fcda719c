// state_test.c: saving, restoring and copying sessions: nothing is lost, nothing wrong is taken.

#include "state_rig.h"

// Shared keys and values, values that are keys, experts.
static const char *const models[] = {"micro-e2b.F32.gguf", "micro-31b.F16.gguf", "micro-26b.BF16.gguf"};
enum { N_MODELS = sizeof models / sizeof models[0] };
static const enum carat_state_form forms[] = {CARAT_STATE_OWN, CARAT_STATE_RLMS};

// The rings of sliding layers hold 16 - 1 + 16 + 256 positions: 330 wrap around.
enum { CONTEXT = 400, BATCH = 16, WRAPPED = 330 };

static void a_restored_session_goes_on_bit_by_bit(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        for (int b = 0; b < n_backends(); b++) {
            struct carat_model *model = open_model(models[m], host_backends[b]);
            for (int how = 0; how < 8; how++)
                check_round_trip(model, forms[how & 1], (how & 2) != 0, CONTEXT, BATCH, (how & 4) != 0 ? WRAPPED : 37);
            carat_model_free(model);
        }
    }
}

static void a_copy_goes_on_by_itself(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        for (int b = 0; b < n_backends(); b++) {
            struct carat_model *model = open_model(models[m], host_backends[b]);
            check_copy(model, b == 1, WRAPPED);
            check_copy(model, b == 0, 20);
            carat_model_free(model);
        }
    }
}

static void an_empty_session_is_saved_and_restored_too(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *session = new_session(model, 64, BATCH, false);
    struct carat_session *copy;
    for (int f = 0; f < 2; f++) {
        struct blob blob = save(session, forms[f]);
        feed(session, 0, 12);
        require(restore(session, blob, &err), err);
        assert_int_equal(carat_session_position(session), 0);
        free(blob.bytes);
    }
    require(carat_session_copy(session, &copy, &err), err);
    assert_int_equal(carat_session_position(copy), 0);
    carat_session_free(copy);
    carat_session_free(session);
    carat_model_free(model);
}

// --- the bytes, by hand ---

// FNV-1a over (1, 32), (1, 32), (1, 64), (1, 32), (1, 64), (1, 32), (1, 32), (1, 64), each as two u32: sliding layers of
// micro-e2b have one key head of 32, global ones one of 64. Computed apart from this code.
enum { E2B_HASH = 0x71160425 };
// (2, 32), (2, 32), (1, 64), (2, 32), (1, 64)
#define DENSE_HASH 0xdd89cec7u

static void the_originals_form_has_the_bytes_of_its_description(void **state)
{
    (void)state;
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *session = new_session(model, CONTEXT, BATCH, false);
    feed(session, 0, WRAPPED);
    struct blob blob = save(session, CARAT_STATE_RLMS);
    // Sampler: rng, seed, temperature, top_k, top_p, repetition, window, count, the last 64 ids.
    enum { N_SAMPLER = 40 + 4 * 64, N_OWNED = 5 };
    const uint8_t *at = blob.bytes;
    assert_memory_equal(at, "RLMS\1\0\0\0", 8);
    assert_int_equal(load_u32(at + 8), N_SAMPLER);
    assert_int_equal(load_u32(at + 12), blob.n - 16 - N_SAMPLER);
    at += 16;
    assert_int_equal(load_u64(at), 0x00C0FFEE5E7Du);
    assert_int_equal(load_u64(at + 8), 0);
    assert_int_equal(load_u32(at + 16), 0x3f333333); // 0.7
    assert_int_equal(load_u32(at + 20), 40);
    assert_int_equal(load_u32(at + 24), 0x3f733333); // 0.95
    assert_int_equal(load_u32(at + 28), 0x3f800000); // 1
    assert_int_equal(load_u32(at + 32), 64);
    assert_int_equal(load_u32(at + 36), 64);
    for (int32_t i = 0; i < 64; i++)
        assert_int_equal(load_u32(at + 40 + 4 * i), some_id(WRAPPED - 64 + i));
    at += N_SAMPLER;
    static const uint8_t head[8] = {'R', 'L', 'K', 'V', 1, N_OWNED, 0, 0};
    assert_memory_equal(at, head, 8);
    assert_int_equal(load_u32(at + 8), WRAPPED);
    assert_int_equal(load_u32(at + 12), E2B_HASH);
    at += 16;
    size_t n_values = 0;
    for (uint32_t l = 0; l < N_OWNED; l++, at += 12) {
        bool slides = l == 0 || l == 1 || l == 3;
        uint32_t n = slides ? 16 - 1 + 256 : WRAPPED;
        assert_int_equal(load_u32(at), l);
        assert_int_equal(load_u32(at + 4), n);
        assert_int_equal(load_u16(at + 8), 1);
        assert_int_equal(load_u16(at + 10), slides ? 32 : 64);
        n_values += 2 * n * (slides ? 32 : 64);
    }
    assert_int_equal((size_t)(at - blob.bytes) + 4 * n_values, blob.n);
    free(blob.bytes);
    carat_session_free(session);
    carat_model_free(model);
    model = open_model(models[1], "cpu");
    session = new_session(model, 64, BATCH, false);
    feed(session, 0, 3);
    blob = save(session, CARAT_STATE_RLMS);
    at = blob.bytes + 16 + load_u32(blob.bytes + 8);
    assert_int_equal(at[5], 5);
    assert_int_equal(load_u32(at + 12), DENSE_HASH);
    assert_int_equal(load_u32(at + 16 + 4), 3);
    assert_int_equal(load_u16(at + 16 + 8), 2);
    free(blob.bytes);
    carat_session_free(session);
    carat_model_free(model);
}

// The file that the original would write for a session whose cache has room for every position: put together here.
static struct blob file_of_the_original(struct carat_session *session, int32_t n_sliding)
{
    const struct kv_cache *kv = session->kv;
    const struct gemma4_config *config = kv->config;
    struct blob own = save(session, CARAT_STATE_RLMS);
    size_t n_sampler = load_u32(own.bytes + 8);
    int32_t n = carat_session_position(session);
    struct blob blob = {.bytes = malloc(own.n + 64 * (size_t)n * (size_t)config->n_layers * 128 * 4)};
    memcpy(blob.bytes, own.bytes, 16 + n_sampler + 16);
    uint8_t *at = blob.bytes + 16 + n_sampler + 16;
    for (int32_t l = 0; l < config->n_kv_layers; l++) {
        at = store_u32(store_u32(at, (uint32_t)l), (uint32_t)(config->layers[l].sliding ? n_sliding : n));
        at = store_u16(at, (uint16_t)config->layers[l].n_kv_heads);
        at = store_u16(at, (uint16_t)config->layers[l].head_dim);
    }
    for (int32_t l = 0; l < config->n_kv_layers; l++) {
        const struct kv_layer *layer = &kv->layers[l];
        int32_t n_rows = config->layers[l].sliding ? n_sliding : n;
        assert_true(layer->is_f32 && layer->capacity >= n);
        for (int which = 0; which < 2; which++) {
            struct tensor all = {.buffer = which == 0 ? layer->k : layer->v, .n_rows = n, .n_cols = layer->row_elems};
            float *values = malloc((size_t)n * (size_t)layer->row_elems * sizeof *values);
            read_tensor(session->model->ops, all, values);
            for (size_t i = (size_t)(n - n_rows) * (size_t)layer->row_elems; i < (size_t)n * (size_t)layer->row_elems; i++)
                at = store_u32(at, f32_bits(values[i]));
            free(values);
        }
    }
    blob.n = (size_t)(at - blob.bytes);
    store_u32(blob.bytes + 12, (uint32_t)(blob.n - 16 - n_sampler));
    free(own.bytes);
    return blob;
}

static void sliding_layers_may_come_with_all_positions_or_with_what_is_seen_and_not_with_less(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[0], "ref");
    struct carat_session *session = new_session(model, CONTEXT, CONTEXT, true); // its rings hold everything
    struct carat_session *other = new_session(model, CONTEXT, BATCH, true);
    feed(session, 0, WRAPPED);
    struct blob all = file_of_the_original(session, WRAPPED);
    struct blob seen = file_of_the_original(session, 16 - 1);
    struct blob less = file_of_the_original(session, 16 - 2);
    float *expected = go_on(session);
    require(restore(other, all, &err), err);
    assert_int_equal(kv_oldest(other->kv), WRAPPED - (16 - 1 + BATCH + 256));
    assert_goes_on_as(other, expected);
    assert_int_equal(carat_session_truncate(other, WRAPPED - 200), WRAPPED - 200);
    require(restore(other, seen, &err), err);
    assert_int_equal(kv_oldest(other->kv), WRAPPED - 15);
    assert_goes_on_as(other, expected);
    assert_int_equal(carat_session_truncate(other, WRAPPED), WRAPPED);
    assert_int_equal(carat_session_truncate(other, WRAPPED - 1), 0); // too far back
    assert_false(restore(other, less, &err));
    assert_non_null(strstr(err.message, "14 positions of layer 0"));
    free(expected);
    free(all.bytes);
    free(seen.bytes);
    free(less.bytes);
    carat_session_free(session);
    carat_session_free(other);
    carat_model_free(model);
}

static void keys_in_32_bits_round_to_the_nearest_16(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[1], "cpu");
    struct carat_session *exact = new_session(model, 64, BATCH, true);
    struct carat_session *half = new_session(model, 64, BATCH, false);
    feed(exact, 0, 40);
    struct blob blob = save(exact, CARAT_STATE_RLMS);
    require(restore(half, blob, &err), err);
    struct blob rounded = save(half, CARAT_STATE_RLMS);
    size_t payload = kv_part(blob) + 16 + 5 * 12;
    size_t rounded_payload = kv_part(rounded) + 16 + 5 * 12;
    assert_int_equal(rounded.n - rounded_payload, blob.n - payload);
    int n_changed = 0;
    for (size_t i = 0; i < blob.n - payload; i += 4) {
        float value = f32_from_bits(load_u32(blob.bytes + payload + i));
        uint32_t got = load_u32(rounded.bytes + rounded_payload + i);
        assert_int_equal(got, f32_bits(f32_from_f16(f16_from_f32(value))));
        n_changed += got != f32_bits(value);
    }
    assert_true(n_changed > 1000); // there was something to round
    // What 16 bits cannot hold is refused, with the layer.
    store_u32(blob.bytes + payload + 8, f32_bits(70000));
    assert_false(restore(half, blob, &err));
    assert_non_null(strstr(err.message, "layer 0"));
    require(restore(exact, blob, &err), err);
    free(blob.bytes);
    free(rounded.bytes);
    carat_session_free(exact);
    carat_session_free(half);
    carat_model_free(model);
}

// --- prompts ---

static int32_t cached_of(struct carat_session *session, const int32_t *ids, int32_t n, int32_t *next)
{
    struct carat_error err = {0};
    struct carat_generate_options options = {.max_tokens = 1, .ignore_eos = true, .n_logprobs = -1};
    carat_sampling_default(&options.sampling);
    options.sampling.temperature = 0;
    options.sampling.repetition_penalty = 1.3f;
    require(carat_generate_begin(session, ids, n, NULL, 0, &options, &err), err);
    struct carat_event event;
    int32_t n_cached = -1;
    enum carat_status status;
    while ((status = carat_generate_next(session, &event, &err)) != CARAT_DONE) {
        require(status != CARAT_FAILED, err);
        if (event.kind == CARAT_EVENT_FINISH) {
            n_cached = event.usage.n_prompt_cached;
            *next = event.ids[0];
        }
    }
    return n_cached;
}

static void with_ids_a_prompt_finds_what_is_restored_and_without_them_nothing(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 128, BATCH, false);
    struct carat_session *other = new_session(model, 128, BATCH, false);
    int32_t ids[50], expected, next;
    for (int32_t i = 0; i < 50; i++)
        ids[i] = some_id(i);
    feed(session, 0, 40);
    struct blob own = save(session, CARAT_STATE_OWN);
    struct blob original = save(session, CARAT_STATE_RLMS);
    assert_int_equal(cached_of(session, ids, 50, &expected), 40);
    require(restore(other, own, &err), err);
    assert_int_equal(cached_of(other, ids, 50, &next), 40);
    assert_int_equal(next, expected);
    require(restore(other, original, &err), err);
    assert_int_equal(carat_session_position(other), 40);
    struct blob unknown = save(other, CARAT_STATE_OWN);
    assert_int_equal(cached_of(other, ids, 50, &next), 0);
    assert_int_equal(next, expected); // the unknown ids are in no penalty, the prompt's are
    // Ids that stay unknown do so in carat's own form as well, and after going back.
    require(restore(other, unknown, &err), err);
    assert_int_equal(carat_session_truncate(other, 30), 30);
    assert_int_equal(cached_of(other, ids, 50, &next), 0);
    assert_int_equal(next, expected);
    // The placeholder's id 0 is not taken for a token.
    int32_t zeros[20] = {0};
    require(restore(other, original, &err), err);
    assert_int_equal(cached_of(other, zeros, 20, &next), 0);
    free(own.bytes);
    free(original.bytes);
    free(unknown.bytes);
    carat_session_free(session);
    carat_session_free(other);
    carat_model_free(model);
}

static void soft_tokens_keep_their_keys(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *session = new_session(model, 64, BATCH, false);
    feed(session, 0, 12);
    session->keys[5] = SESSION_SOFT_KEY | 77; // as an image leaves them
    struct blob blob = save(session, CARAT_STATE_OWN);
    struct carat_session *other = new_session(model, 64, BATCH, false);
    require(restore(other, blob, &err), err);
    assert_memory_equal(other->keys, session->keys, 12 * sizeof *session->keys);
    assert_memory_equal(other->ids, session->ids, 12 * sizeof *session->ids);
    assert_int_equal(other->n_ids, 12);
    free(blob.bytes);
    carat_session_free(session);
    carat_session_free(other);
    carat_model_free(model);
}

static void the_sampler_of_a_token_loop_comes_back(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *session = new_session(model, 64, BATCH, false);
    struct sampler_params params = sampler_original_defaults();
    struct sampler *sampler = sampler_new(N_VOCAB, &params, NULL, 0, &err);
    params.temperature = 1.5f;
    params.repetition_penalty = 1.25f;
    params.seed = 99;
    struct sampler *used = sampler_new(N_VOCAB, &params, NULL, 0, &err);
    feed(session, 0, 5);
    for (int32_t i = 0; i < 70; i++)
        sampler_accept(used, some_id(i));
    uint8_t dumps[2][1024];
    size_t n = sampler_dump(used, false, dumps[0], sizeof dumps[0]);
    uint64_t n_total;
    require(session_save_begin(session, CARAT_STATE_RLMS, used, &n_total, &err), err);
    struct blob blob = {.bytes = malloc((size_t)n_total)};
    const void *piece;
    size_t n_piece;
    while (carat_state_save_next(session, &piece, &n_piece, &err) == CARAT_EVENT) {
        memcpy(blob.bytes + blob.n, piece, n_piece);
        blob.n += n_piece;
    }
    assert_memory_equal(blob.bytes + 16, dumps[0], n);
    require(session_restore_begin(session, sampler, n_total, &err), err);
    require(carat_state_restore_write(session, blob.bytes, blob.n, &err), err);
    require(carat_state_restore_end(session, &err), err);
    assert_int_equal(sampler_dump(sampler, false, dumps[1], sizeof dumps[1]), n);
    assert_memory_equal(dumps[1], dumps[0], n);
    free(blob.bytes);
    sampler_free(sampler);
    sampler_free(used);
    carat_session_free(session);
    carat_model_free(model);
}

// --- what does not fit ---

static void another_models_and_other_adapters_states_are_refused_by_name(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_model *twin = open_model("tiny-e2b.Q8_0.gguf", "cpu"); // the same shape
    struct carat_model *stranger = open_model(models[1], "cpu");
    struct carat_session *session = new_session(model, 64, BATCH, false);
    struct carat_session *small = new_session(model, 20, BATCH, false);
    struct carat_session *of_twin = new_session(twin, 64, BATCH, false);
    struct carat_session *of_stranger = new_session(stranger, 64, BATCH, false);
    feed(session, 0, 30);
    feed(of_twin, 0, 7);
    struct blob own = save(session, CARAT_STATE_OWN);
    struct blob original = save(session, CARAT_STATE_RLMS);
    assert_false(restore(of_twin, own, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    assert_non_null(strstr(err.message, model->name));
    assert_int_equal(carat_session_position(of_twin), 7);
    require(restore(of_twin, original, &err), err); // it says nothing of the model but its shape
    assert_int_equal(carat_session_position(of_twin), 30);
    assert_false(restore(of_stranger, original, &err));
    assert_non_null(strstr(err.message, "another shape"));
    assert_false(restore(small, own, &err));
    assert_int_equal(err.code, CARAT_CONTEXT_FULL);
    assert_non_null(strstr(err.message, "30 positions"));
    int32_t n_matched;
    require(carat_adapter_load(model, fixture("lora", "lora-tiny-e2b"), 0.5f, &n_matched, &err), err);
    uint64_t n_bytes;
    assert_false(carat_state_save_begin(session, CARAT_STATE_OWN, &n_bytes, &err)); // computed without it
    assert_non_null(strstr(err.message, "adapters"));
    assert_false(restore(session, own, &err));
    assert_non_null(strstr(err.message, "0 adapters then, 1 now"));
    feed(session, 0, 30);
    struct blob adapted = save(session, CARAT_STATE_OWN);
    require(restore(session, adapted, &err), err);
    carat_adapters_clear(model);
    require(carat_adapter_load(model, fixture("lora", "lora-tiny-e2b"), 0.25f, &n_matched, &err), err);
    assert_false(restore(session, adapted, &err)); // another strength
    carat_adapters_clear(model);
    assert_false(restore(session, adapted, &err));
    assert_non_null(strstr(err.message, "1 adapters then, 0 now"));
    require(restore(session, own, &err), err);
    free(own.bytes);
    free(original.bytes);
    free(adapted.bytes);
    carat_session_free(session);
    carat_session_free(small);
    carat_session_free(of_twin);
    carat_session_free(of_stranger);
    carat_model_free(model);
    carat_model_free(twin);
    carat_model_free(stranger);
}

// The state is taken, or refused with a sentence; when refused the session holds what it held, unless the message says otherwise.
static void check_hostile(struct carat_session *session, const uint8_t *bytes, size_t n, size_t n_announced, size_t piece,
    struct blob held, int *n_refused)
{
    struct carat_error err = {0};
    if (restore_some(session, bytes, n, n_announced, piece, &err)) {
        require(restore(session, held, &err), err);
        return;
    }
    ++*n_refused;
    assert_int_not_equal(err.code, CARAT_OK);
    assert_true(strlen(err.message) > 20);
    if (strstr(err.message, "the session is empty now") != NULL) {
        assert_int_equal(carat_session_position(session), 0);
        require(restore(session, held, &err), err);
        return;
    }
    struct blob now = save(session, CARAT_STATE_OWN);
    assert_same_blob(now, held);
    free(now.bytes);
}

static void hostile_bytes_are_refused_and_leave_the_session_alone(void **state)
{
    (void)state;
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *source = new_session(model, 64, BATCH, false);
    struct carat_session *session = new_session(model, 64, BATCH, false);
    feed(source, 0, 24);
    feed(session, 900, 10);
    struct blob held = save(session, CARAT_STATE_OWN);
    for (int f = 0; f < 2; f++) {
        struct blob blob = save(source, forms[f]);
        size_t n_head = f == 0 ? 64 + strlen(model->name) + 24 * 12 + 5 * 16 + 8 : 16 + 40 + 4 * 24 + 16 + 5 * 12;
        uint8_t *changed = malloc(blob.n + 8);
        static const uint8_t masks[] = {0x01, 0x80, 0xff};
        int n_refused = 0;
        for (size_t at = 0; at < n_head; at++) {
            for (size_t m = 0; m < sizeof masks; m++) {
                memcpy(changed, blob.bytes, blob.n);
                changed[at] ^= masks[m];
                check_hostile(session, changed, blob.n, blob.n, 4096, held, &n_refused);
            }
        }
        assert_true(n_refused > 300 && (f != 0 || n_refused == 3 * (int)n_head)); // carat's own form has checksums
        // Cut off, with the length that is left and with the length that was.
        for (size_t n = 0; n < blob.n; n += n < n_head + 40 ? 1 : 997) {
            n_refused = 0;
            check_hostile(session, blob.bytes, n, n, 61, held, &n_refused);
            check_hostile(session, blob.bytes, n, blob.n, 61, held, &n_refused);
            assert_int_equal(n_refused, 2);
        }
        // Longer than it says, and more than was announced.
        n_refused = 0;
        memcpy(changed, blob.bytes, blob.n);
        check_hostile(session, changed, blob.n + 4, blob.n + 4, 4096, held, &n_refused);
        check_hostile(session, changed, blob.n + 4, blob.n, 4096, held, &n_refused);
        // No numbers.
        store_u16(changed + blob.n - (f == 0 ? 8 + 2 : 2), f == 0 ? 0x7c00 : 0x7fc0);
        check_hostile(session, changed, blob.n, blob.n, 4096, held, &n_refused);
        assert_int_equal(n_refused, 3);
        free(changed);
        free(blob.bytes);
    }
    struct carat_error err = {0};
    assert_false(restore_some(session, (const uint8_t *)"GGUF....", 8, 8, 8, &err));
    assert_non_null(strstr(err.message, "neither CRTS nor RLMS"));
    assert_false(carat_state_restore_begin(session, 3, &err));
    assert_false(carat_state_restore_begin(session, 0, &err));
    free(held.bytes);
    carat_session_free(source);
    carat_session_free(session);
    carat_model_free(model);
}

static void one_thing_at_a_time(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model(models[0], "cpu");
    struct carat_session *session = new_session(model, 64, BATCH, false);
    struct carat_session *copy;
    const void *piece;
    size_t n_piece;
    uint64_t n_bytes;
    int32_t id = 9;
    feed(session, 0, 20);
    struct blob blob = save(session, CARAT_STATE_OWN);
    assert_int_equal(carat_state_save_next(session, &piece, &n_piece, &err), CARAT_FAILED);
    assert_false(carat_state_restore_write(session, blob.bytes, 1, &err));
    assert_false(carat_state_restore_end(session, &err));
    for (int restoring = 0; restoring < 2; restoring++) {
        require(restoring ? carat_state_restore_begin(session, blob.n, &err)
                          : carat_state_save_begin(session, CARAT_STATE_OWN, &n_bytes, &err),
            err);
        assert_false(carat_generate_begin(session, &id, 1, NULL, 0, NULL, &err));
        assert_non_null(strstr(err.message, "saved or restored"));
        assert_false(carat_chat_begin(session, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", NULL, 0, &err));
        assert_false(carat_session_copy(session, &copy, &err));
        assert_false(carat_state_save_begin(session, CARAT_STATE_OWN, &n_bytes, &err));
        assert_false(carat_state_restore_begin(session, blob.n, &err));
        assert_int_equal(carat_session_truncate(session, 3), 20);
        carat_state_end(session);
    }
    require(carat_generate_begin(session, &id, 1, NULL, 0, NULL, &err), err);
    assert_false(carat_state_save_begin(session, CARAT_STATE_OWN, &n_bytes, &err));
    assert_non_null(strstr(err.message, "under way"));
    carat_session_free(session);
    session = new_session(model, 64, BATCH, false);
    assert_false(carat_state_save_begin(session, (enum carat_state_form)7, &n_bytes, &err));
    require(carat_state_restore_begin(session, blob.n, &err), err);
    require(carat_state_restore_write(session, blob.bytes, blob.n / 2, &err), err);
    carat_session_free(session); // half way
    free(blob.bytes);
    carat_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restored_session_goes_on_bit_by_bit),
        cmocka_unit_test(a_copy_goes_on_by_itself),
        cmocka_unit_test(an_empty_session_is_saved_and_restored_too),
        cmocka_unit_test(the_originals_form_has_the_bytes_of_its_description),
        cmocka_unit_test(sliding_layers_may_come_with_all_positions_or_with_what_is_seen_and_not_with_less),
        cmocka_unit_test(keys_in_32_bits_round_to_the_nearest_16),
        cmocka_unit_test(with_ids_a_prompt_finds_what_is_restored_and_without_them_nothing),
        cmocka_unit_test(soft_tokens_keep_their_keys),
        cmocka_unit_test(the_sampler_of_a_token_loop_comes_back),
        cmocka_unit_test(another_models_and_other_adapters_states_are_refused_by_name),
        cmocka_unit_test(hostile_bytes_are_refused_and_leave_the_session_alone),
        cmocka_unit_test(one_thing_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
