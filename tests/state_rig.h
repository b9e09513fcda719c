// state_rig.h: saving, restoring and continuing sessions, for the tests of the states on all backends.

#ifndef CARAT_TESTS_STATE_RIG_H
#define CARAT_TESTS_STATE_RIG_H

#include "model_rig.h"

#include "base/number.h"
#include "engine/snapshot.h"

GOLDEN_HELPER struct carat_session *new_session(struct carat_model *model, int32_t context, int32_t batch, bool kv_f32)
{
    struct carat_error err = {0};
    struct carat_session_options options = {.context_length = context, .batch = batch, .kv_f32 = kv_f32};
    struct carat_session *session = NULL;
    require(carat_session_new(model, &options, &session, &err), err);
    return session;
}

// --- bytes ---

struct blob {
    uint8_t *bytes;
    size_t n;
};

// The state in one piece; its length is what was announced.
GOLDEN_HELPER struct blob save(struct carat_session *session, enum carat_state_form form)
{
    struct carat_error err = {0};
    uint64_t n_total;
    require(carat_state_save_begin(session, form, &n_total, &err), err);
    struct blob blob = {.bytes = malloc((size_t)n_total)};
    const void *piece;
    size_t n_piece;
    enum carat_status status;
    while ((status = carat_state_save_next(session, &piece, &n_piece, &err)) != CARAT_DONE) {
        require(status != CARAT_FAILED, err);
        if (status == CARAT_PENDING)
            carat_session_wait(session, 1000);
        assert_true(n_piece <= n_total - blob.n);
        memcpy(blob.bytes + blob.n, piece, n_piece);
        blob.n += n_piece;
    }
    assert_int_equal(blob.n, n_total);
    return blob;
}

// Gives n_given bytes of n_announced in pieces of `piece` bytes.
GOLDEN_HELPER bool restore_some(struct carat_session *session, const uint8_t *bytes, size_t n_given, size_t n_announced,
    size_t piece, struct carat_error *err)
{
    if (!carat_state_restore_begin(session, n_announced, err))
        return false;
    for (size_t at = 0; at < n_given; at += piece) {
        if (!carat_state_restore_write(session, bytes + at, n_given - at < piece ? n_given - at : piece, err))
            return false;
    }
    return carat_state_restore_end(session, err);
}

GOLDEN_HELPER bool restore(struct carat_session *session, struct blob blob, struct carat_error *err)
{
    return restore_some(session, blob.bytes, blob.n, blob.n, 1000003, err);
}

// Of an RLMS: where the keys and values begin. What stands before, the sampler's history, needs ids.
GOLDEN_HELPER size_t kv_part(struct blob blob)
{
    assert_memory_equal(blob.bytes, "RLMS", 4);
    return 16 + load_u32(blob.bytes + 8);
}

GOLDEN_HELPER void assert_same_blob(struct blob a, struct blob b)
{
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.bytes, b.bytes, a.n);
}

// --- tokens ---

// An id that looks random, the same for the same number.
GOLDEN_HELPER int32_t some_id(int32_t number)
{
    return 10 + (int32_t)((uint32_t)number * 2654435761u >> 16) % 600;
}

// Puts n ids into an empty session, in chunks, from number `first` on.
GOLDEN_HELPER void feed(struct carat_session *session, int32_t first, int32_t n)
{
    struct carat_error err = {0};
    struct carat_generate_options options = {.max_tokens = 1, .ignore_eos = true, .n_logprobs = -1};
    carat_sampling_default(&options.sampling);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int32_t i = 0; i < n; i++)
        ids[i] = some_id(first + i);
    require(carat_generate_begin(session, ids, n, NULL, 0, &options, &err), err);
    struct carat_event event;
    enum carat_status status;
    while ((status = carat_generate_next(session, &event, &err)) != CARAT_DONE) {
        require(status != CARAT_FAILED, err);
        if (status == CARAT_PENDING)
            carat_session_wait(session, 1000);
    }
    assert_int_equal(carat_session_position(session), n);
    free(ids);
}

// One id more, as a token loop does it: the logits after it, or NULL.
GOLDEN_HELPER void step(struct carat_session *session, int32_t id, float *logits)
{
    struct carat_error err = {0};
    struct text_batch batch = {.n = 1, .ids = &id, .n_logits = 1};
    require(text_forward(session->model->context, session->kv, &batch, &err), err);
    session->ids[session->n_ids] = id;
    session->keys[session->n_ids++] = (uint64_t)id;
    struct tensor all = session->model->context->logits;
    read_tensor(session->model->ops, (struct tensor){.buffer = all.buffer, .n_rows = 1, .n_cols = all.n_cols}, logits);
}

enum { N_STEPS = 6, N_VOCAB = 640 };

// The logits of a few steps, one after the other.
GOLDEN_HELPER float *go_on(struct carat_session *session)
{
    assert_int_equal(session->model->text->config.n_vocab, N_VOCAB);
    float *logits = malloc(N_STEPS * N_VOCAB * sizeof *logits);
    for (int32_t i = 0; i < N_STEPS; i++)
        step(session, some_id(7000 + i), logits + (size_t)i * N_VOCAB);
    return logits;
}

GOLDEN_HELPER void assert_goes_on_as(struct carat_session *session, const float *expected)
{
    float *logits = go_on(session);
    assert_memory_equal(logits, expected, N_STEPS * N_VOCAB * sizeof *logits);
    free(logits);
}

// --- what is asked of every backend ---

// Saving, restoring and going on gives what going on at once gives, bit by bit: also after going back a little.
GOLDEN_HELPER void check_round_trip(
    struct carat_model *model, enum carat_state_form form, bool kv_f32, int32_t context, int32_t batch, int32_t n_ids)
{
    struct carat_error err = {0};
    struct carat_session *session = new_session(model, context, batch, kv_f32);
    struct carat_session *other = new_session(model, context, batch, kv_f32);
    feed(session, 0, n_ids);
    feed(other, 5000, 9); // something to be replaced
    struct blob blob = save(session, form);
    float *expected = go_on(session);
    require(restore(other, blob, &err), err);
    assert_int_equal(carat_session_position(other), n_ids);
    struct blob again = save(other, form);
    size_t from = form == CARAT_STATE_RLMS ? kv_part(blob) : 0;
    size_t again_from = form == CARAT_STATE_RLMS ? kv_part(again) : 0;
    assert_int_equal(again.n - again_from, blob.n - from);
    assert_memory_equal(again.bytes + again_from, blob.bytes + from, blob.n - from);
    assert_goes_on_as(other, expected);
    // What truncating reaches is kept too.
    int32_t back = n_ids < 200 ? n_ids / 2 : n_ids - 200;
    assert_int_equal(carat_session_truncate(session, back), back);
    assert_int_equal(carat_session_truncate(other, back), back);
    float *after_going_back = go_on(session);
    assert_goes_on_as(other, after_going_back);
    free(expected);
    free(after_going_back);
    free(blob.bytes);
    free(again.bytes);
    carat_session_free(session);
    carat_session_free(other);
}

// A copy goes on as the original does, and neither disturbs the other.
GOLDEN_HELPER void check_copy(struct carat_model *model, bool kv_f32, int32_t n_ids)
{
    struct carat_error err = {0};
    struct carat_session *session = new_session(model, 400, 16, kv_f32);
    struct carat_session *copy, *witness;
    feed(session, 0, n_ids);
    struct blob before = save(session, CARAT_STATE_OWN);
    require(carat_session_copy(session, &copy, &err), err);
    require(carat_session_copy(session, &witness, &err), err);
    float *expected = go_on(session);
    float other[N_VOCAB];
    step(session, 33, other);
    assert_goes_on_as(copy, expected);
    struct blob after = save(witness, CARAT_STATE_OWN);
    assert_same_blob(after, before);
    carat_session_free(session);
    assert_goes_on_as(witness, expected);
    free(expected);
    free(before.bytes);
    free(after.bytes);
    carat_session_free(copy);
    carat_session_free(witness);
}

#endif
