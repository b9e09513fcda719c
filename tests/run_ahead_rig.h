// run_ahead_rig.h: generating with several tokens under way, with one, and with the sampler on the host, for the tests of
// sessions on backends that draw.

#ifndef CARAT_TESTS_RUN_AHEAD_RIG_H
#define CARAT_TESTS_RUN_AHEAD_RIG_H

#include "model_rig.h"

#include "engine/session.h"

enum { MAX_TOKENS = 10, MAX_STATE = 1024 };

// What a generation gave, and the sampler's state after each token.
struct run {
    int32_t ids[MAX_TOKENS];
    int32_t n;
    enum carat_finish finish;
    struct {
        uint8_t bytes[MAX_STATE];
        size_t n_bytes;
    } states[MAX_TOKENS];
};

GOLDEN_HELPER struct carat_session *session_with(struct carat_model *model, int32_t run_ahead)
{
    struct carat_error err = {0};
    struct carat_session_options options = {.context_length = 96, .batch = 16, .run_ahead = run_ahead};
    struct carat_session *session = NULL;
    require(carat_session_new(model, &options, &session, &err), err);
    return session;
}

GOLDEN_HELPER struct carat_generate_options sampled(uint64_t seed)
{
    struct carat_generate_options options = {.max_tokens = MAX_TOKENS, .ignore_eos = true, .n_logprobs = -1};
    carat_sampling_default(&options.sampling);
    options.sampling.seed = seed;
    return options;
}

GOLDEN_HELPER struct run *generate(
    struct carat_session *session, const int32_t *ids, int32_t n_ids, const struct carat_generate_options *options)
{
    struct carat_error err = {0};
    struct carat_event event;
    struct run *run = calloc(1, sizeof *run);
    require(carat_generate_begin(session, ids, n_ids, NULL, 0, options, &err), err);
    for (;;) {
        enum carat_status status = carat_generate_next(session, &event, &err);
        require(status != CARAT_FAILED, err);
        if (status == CARAT_PENDING)
            carat_session_wait(session, 1000);
        if (status == CARAT_EVENT && event.kind == CARAT_EVENT_FINISH)
            break;
        if (status != CARAT_EVENT || event.kind != CARAT_EVENT_TOKEN)
            continue;
        size_t n_bytes = sampler_dump(session->sampler, true, run->states[run->n].bytes, MAX_STATE);
        assert_true(n_bytes <= MAX_STATE);
        run->states[run->n++].n_bytes = n_bytes;
    }
    assert_int_equal(run->n, event.n_ids - (event.finish == CARAT_FINISH_STOP)); // the end token has no event
    run->n = event.n_ids;
    memcpy(run->ids, event.ids, (size_t)event.n_ids * sizeof *run->ids);
    run->finish = event.finish;
    return run;
}

GOLDEN_HELPER void assert_same_run(const struct run *a, const struct run *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    for (int32_t i = 0; i < a->n; i++) {
        assert_int_equal(a->states[i].n_bytes, b->states[i].n_bytes);
        assert_memory_equal(a->states[i].bytes, b->states[i].bytes, a->states[i].n_bytes);
    }
}

// --- what is asked of every backend --------------------------------------------------------------------------------------------

static const int32_t some_prompt[] = {2, 17, 301, 45, 45, 9, 120, 301};
enum { N_PROMPT = sizeof some_prompt / sizeof *some_prompt };

// The tokens and the sampler's states are those of one token at a time, and those of the sampler on the host.
GOLDEN_HELPER void check_same_as_without(struct carat_model *model, const struct carat_generate_options *options)
{
    struct carat_session *sessions[] = {session_with(model, 1), session_with(model, 8), session_with(model, 1)};
    struct carat_generate_options on_host = *options;
    on_host.n_logprobs = 0; // logprobs need the logits here
    struct run *runs[3];
    for (int i = 0; i < 3; i++) {
        runs[i] = generate(sessions[i], some_prompt, N_PROMPT, i < 2 ? options : &on_host);
        assert_int_equal(sessions[i]->device_chooses, i < 2);
    }
    assert_same_run(runs[1], runs[0]);
    assert_same_run(runs[2], runs[0]);
    // What came after the end was rolled back: the sessions go on alike.
    int32_t more[N_PROMPT + MAX_TOKENS + 1];
    memcpy(more, some_prompt, sizeof some_prompt);
    memcpy(more + N_PROMPT, runs[0]->ids, (size_t)runs[0]->n * sizeof *more);
    int32_t n_more = N_PROMPT + runs[0]->n;
    more[n_more++] = 33;
    for (int i = 0; i < 3; i++) {
        free(runs[i]);
        struct carat_generate_options next = i < 2 ? *options : on_host;
        next.max_tokens = 2;
        runs[i] = generate(sessions[i], more, n_more, &next);
    }
    assert_same_run(runs[1], runs[0]);
    assert_same_run(runs[2], runs[0]);
    for (int i = 0; i < 3; i++) {
        free(runs[i]);
        carat_session_free(sessions[i]);
    }
}

GOLDEN_HELPER void check_sampling(struct carat_model *model)
{
    struct carat_generate_options options = sampled(11);
    check_same_as_without(model, &options);
    options.sampling.temperature = 0.6f;
    options.sampling.min_p = 0.02f;
    options.sampling.repetition_penalty = 1.3f;
    options.sampling.frequency_penalty = 0.2f;
    options.sampling.penalty_window = 10; // smaller than prompt and answer: it wraps
    check_same_as_without(model, &options);
    options.sampling.temperature = 0; // penalties, but no draw
    check_same_as_without(model, &options);
}

// The end of the turn becomes likely enough to be drawn among the first tokens, though not as the first.
GOLDEN_HELPER void check_stop(struct carat_model *model)
{
    struct carat_generate_options options = sampled(12);
    struct carat_logit_bias end = {.bias = 8};
    while (!tokenizer_is_end(model->tok, end.id))
        end.id++;
    options.ignore_eos = false;
    options.sampling.biases = &end;
    options.sampling.n_biases = 1;
    options.sampling.presence_penalty = 0.5f;
    struct carat_session *session = session_with(model, 4);
    struct run *run = generate(session, some_prompt, N_PROMPT, &options);
    assert_int_equal(run->finish, CARAT_FINISH_STOP);
    assert_in_range(run->n, 3, MAX_TOKENS - 4);
    assert_in_range(carat_session_position(session), N_PROMPT + run->n - 1, N_PROMPT + run->n);
    free(run);
    carat_session_free(session);
    check_same_as_without(model, &options);
}

// Parameters that the operation does not take are the sampler's business.
GOLDEN_HELPER void check_fall_back(struct carat_model *model)
{
    for (int i = 0; i < 3; i++) {
        struct carat_generate_options options = sampled(5);
        options.max_tokens = 3;
        options.sampling.top_k = i == 0 ? 0 : i == 1 ? DRAW_MAX_TOP_K + 1 : 64;
        options.sampling.penalty_window = i == 2 ? DRAW_MAX_WINDOW + 1 : 64;
        options.sampling.presence_penalty = 0.1f;
        struct carat_session *session = session_with(model, 4);
        struct run *run = generate(session, some_prompt, N_PROMPT, &options);
        assert_int_equal(run->n, 3);
        assert_false(session->device_chooses);
        free(run);
        carat_session_free(session);
    }
}

GOLDEN_HELPER void check_running_ahead(const char *backend)
{
    struct carat_model *model = open_model("micro-e2b.F32.gguf", backend);
    check_sampling(model);
    check_stop(model);
    check_fall_back(model);
    carat_model_free(model);
}

#endif
