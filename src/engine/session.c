// session.c: sessions and the phases of a generation.

#include "engine/snapshot.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

// --- making and freeing --------------------------------------------------------------------------------------------------------

static bool ensure_context(struct carat_model *model, int32_t batch, struct carat_error *err)
{
    // The scratch is the model's and serves all sessions in turn. A larger batch replaces it.
    struct text_context *context = model->context;
    if (context != NULL && context->options.max_batch >= batch)
        return true;
    struct text_options options = {.max_batch = batch, .max_logits = 1};
    struct text_context *other = text_context_new(model->ops, model->text, &options, err);
    if (other == NULL)
        return false; // the sessions that are there keep theirs
    text_context_free(context);
    model->context = other;
    return true;
}

static bool take_memory(struct carat_session *session, const struct kv_options *kv, struct carat_error *err)
{
    struct carat_model *model = session->model;
    size_t n_context = (size_t)kv->n_context;
    size_t n_vocab = (size_t)model->text->config.n_vocab;
    session->ids = malloc(n_context * sizeof *session->ids);
    session->keys = malloc(n_context * sizeof *session->keys);
    session->logits = malloc(n_vocab * sizeof *session->logits);
    session->candidates = malloc((2 * SESSION_MAX_CANDIDATES + 2) * sizeof *session->candidates);
    if (session->ids == NULL || session->keys == NULL || session->logits == NULL || session->candidates == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a session of %d positions", kv->n_context);
    session->choices = session_choices_new(model->ops, err);
    session->kv = session->choices != NULL ? kv_cache_new(model->ops, &model->text->config, kv, err) : NULL;
    return session->kv != NULL;
}

// Running ahead pays where the device works on its own.
static int32_t run_ahead_of(const struct carat_model *model, const struct carat_session_options *options)
{
    if (options->run_ahead > 0)
        return options->run_ahead < SESSION_MAX_FLIGHTS ? options->run_ahead : SESSION_MAX_FLIGHTS;
    return strcmp(model->ops->name, "webgpu") == 0 ? SESSION_RUN_AHEAD : 1;
}

bool carat_session_new(
    struct carat_model *model, const struct carat_session_options *options, struct carat_session **out, struct carat_error *err)
{
    static const struct carat_session_options defaults;
    if (options == NULL)
        options = &defaults;
    int32_t limit = model->text->config.n_positions;
    int32_t n_context = options->context_length > 0       ? options->context_length
                        : limit < SESSION_DEFAULT_CONTEXT ? limit
                                                          : SESSION_DEFAULT_CONTEXT;
    *out = NULL;
    if (n_context > limit)
        return fail(err, CARAT_BAD_ARGUMENT, "a context of %d positions was asked for, but the model was trained for %d",
            n_context, limit);
    struct carat_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a session");
    session->model = model;
    session->adapter_changes = model->adapter_changes;
    session->run_all_rows = options->no_prefill_skip;
    session->run_ahead = run_ahead_of(model, options);
    session->batch = options->batch > 0 ? options->batch : SESSION_DEFAULT_BATCH;
    if (session->batch > model->ops->max_batch)
        session->batch = model->ops->max_batch;
    if (session->batch > n_context)
        session->batch = n_context;
    struct kv_options kv = {
        .n_context = n_context, .max_batch = session->batch, .is_f32 = options->kv_f32, .n_rewind = SESSION_REWIND};
    if (!ensure_context(model, session->batch, err) || !take_memory(session, &kv, err)) {
        carat_session_free(session);
        return false;
    }
    *out = session;
    return true;
}

bool carat_session_copy(struct carat_session *session, struct carat_session **copy, struct carat_error *err)
{
    *copy = NULL;
    struct carat_session_options options = {
        .context_length = session->kv->n_context,
        .batch = session->batch,
        .kv_f32 = session->kv->layers[0].is_f32,
        .no_prefill_skip = session->run_all_rows,
        .run_ahead = session->run_ahead,
    };
    struct carat_session *other;
    if (!session_is_idle(session, err) || !carat_session_new(session->model, &options, &other, err))
        return false;
    kv_copy(other->kv, session->kv);
    memcpy(other->ids, session->ids, (size_t)session->n_ids * sizeof *other->ids);
    memcpy(other->keys, session->keys, (size_t)session->n_ids * sizeof *other->keys);
    other->n_ids = session->n_ids;
    other->adapter_changes = session->adapter_changes;
    *copy = other;
    return true;
}

static void free_generation(struct carat_session *session)
{
    session_drop_media(session);
    sampler_free(session->sampler);
    session->sampler = NULL;
    free(session->segments);
    session->segments = NULL;
    session->n_segments = 0;
}

// Read-backs have targets inside the session: it must not go away before they have arrived.
static void settle_flights(struct carat_session *session)
{
    struct ops *ops = session->model->ops;
    for (int32_t i = 0; i < session->n_flights && ops->wait != NULL; i++)
        ops->wait(ops, session->flights[i].ticket);
    for (int32_t i = 0; i < session->n_chunks && ops->wait != NULL; i++)
        ops->wait(ops, session->chunks[i]);
    session->n_flights = 0;
    session->n_chunks = 0;
}

void carat_session_free(struct carat_session *session)
{
    if (session == NULL)
        return;
    settle_flights(session);
    snapshot_end(session);
    session_end_chat(session);
    free_generation(session);
    kv_cache_free(session->kv);
    session->model->ops->buffer_free(session->model->ops, session->choices);
    text_free(&session->text);
    text_free(&session->logprobs);
    token_list_free(&session->generated);
    token_list_free(&session->prompt);
    free(session->ids);
    free(session->keys);
    free(session->logits);
    free(session->candidates);
    free(session);
}

int32_t carat_session_position(const struct carat_session *session)
{
    return session->kv->n_committed;
}

int32_t carat_session_context(const struct carat_session *session)
{
    return session->kv->n_context;
}

uint64_t carat_session_bytes(const struct carat_session *session)
{
    return session->kv->n_bytes + session->model->context->n_bytes;
}

int32_t carat_session_truncate(struct carat_session *session, int32_t n)
{
    if (session->phase == PHASE_IDLE && n >= 0 && n < session->kv->n_committed) {
        if (!kv_truncate(session->kv, n, NULL))
            kv_truncate(session->kv, 0, NULL);
        session->n_ids = session->kv->n_committed;
    }
    return session->kv->n_committed;
}

// --- generating ----------------------------------------------------------------------------------------------------------------

void carat_sampling_default(struct carat_sampling *sampling)
{
    struct sampler_params params = sampler_defaults();
    *sampling = (struct carat_sampling){
        .temperature = params.temperature,
        .top_k = params.top_k,
        .top_p = params.top_p,
        .min_p = params.min_p,
        .repetition_penalty = params.repetition_penalty,
        .presence_penalty = params.presence_penalty,
        .frequency_penalty = params.frequency_penalty,
        .penalty_window = params.penalty_window,
        .seed = params.seed,
    };
}

void session_accept_history(const struct carat_session *session, struct sampler *sampler)
{
    for (int32_t i = 0; i < session->n_ids; i++) {
        if (session->keys[i] == (uint64_t)session->ids[i])
            sampler_accept(sampler, session->ids[i]);
    }
}

static bool make_sampler(struct carat_session *session, const struct carat_sampling *s, struct carat_error *err)
{
    _Static_assert(sizeof(struct carat_logit_bias) == sizeof(struct sampler_bias), "the same two members");
    struct sampler_params params = {
        .temperature = s->temperature,
        .top_k = s->top_k,
        .top_p = s->top_p,
        .min_p = s->min_p,
        .repetition_penalty = s->repetition_penalty,
        .presence_penalty = s->presence_penalty,
        .frequency_penalty = s->frequency_penalty,
        .penalty_window = s->penalty_window,
        .bias = (const struct sampler_bias *)s->biases,
        .n_bias = (size_t)s->n_biases,
        .seed = s->seed,
    };
    size_t n_suppressed;
    const int32_t *suppressed = tokenizer_suppressed(session->model->tok, &n_suppressed);
    session->sampler = sampler_new(session->model->text->config.n_vocab, &params, suppressed, n_suppressed, err);
    if (session->sampler != NULL)
        session_accept_history(session, session->sampler);
    return session->sampler != NULL;
}

static void reset_generation(struct carat_session *session, const struct carat_generate_options *options)
{
    session->options = *options;
    session->options.sampling.biases = NULL; // the sampler has its own copy
    session->generated.n = 0;
    session->prompt.n = 0;
    session->n_flights = 0;
    session->n_chunks = 0;
    session->next_slot = 0;
    session->n_launched = 0;
    session->job_done = -1;
    session->stop_asked = false;
    session->finish = CARAT_FINISH_NONE;
    session->usage = (struct carat_usage){0};
    session->begin_ms = clock_ms();
    session->first_ms = 0;
    decoder_init(&session->decoder, session->model->tok, options->with_special);
}

bool carat_generate_begin(struct carat_session *session, const int32_t *ids, int32_t n_ids, const struct carat_media *media,
    int32_t n_media, const struct carat_generate_options *options, struct carat_error *err)
{
    if (!session_is_idle(session, err))
        return false;
    struct carat_generate_options defaults = {.n_logprobs = -1};
    carat_sampling_default(&defaults.sampling);
    if (options == NULL)
        options = &defaults;
    if (options->max_tokens < 0 || options->n_logprobs < -1 || options->n_logprobs > 20)
        return fail(err, CARAT_BAD_ARGUMENT, "max_tokens must not be negative, and n_logprobs lies between -1 and 20");
    if (n_media < 0 || (n_media > 0 && media == NULL))
        return fail(err, CARAT_BAD_ARGUMENT, "n_media says %d, which is not the length of a list", n_media);
    if (options->sampling.n_biases < 0 || (options->sampling.n_biases > 0 && options->sampling.biases == NULL))
        return fail(err, CARAT_BAD_ARGUMENT, "n_biases says %d, which is not the length of a list", options->sampling.n_biases);
    reset_generation(session, options);
    if (!session_take_prompt(session, ids, n_ids, media, n_media, err) || !make_sampler(session, &options->sampling, err)) {
        session->n_ids = session->kv->n_committed;
        free_generation(session);
        return false;
    }
    session_begin_choices(session);
    session->usage.n_prompt = session->n_ids;
    session->usage.n_prompt_cached = session->kv->n_committed;
    session->phase = PHASE_ENCODE;
    return true;
}

void carat_stop(struct carat_session *session)
{
    if (session->phase == PHASE_ENCODE || session->phase == PHASE_PREFILL || session->phase == PHASE_DECODE)
        session->stop_asked = true;
}

// Takes back what is in the cache beyond the known ids, and ends the generation. Ids that are known but not in the cache (the
// last chosen one, the rest of a stopped prompt) are forgotten: the next prompt brings them again.
static void end_generation(struct carat_session *session)
{
    if (session->kv->n_committed > session->n_ids && !kv_truncate(session->kv, session->n_ids, NULL))
        kv_truncate(session->kv, 0, NULL);
    session->n_ids = session->kv->n_committed;
    free_generation(session);
    session->stop_asked = false;
    session->phase = PHASE_IDLE;
}

// Ends of read-backs that nobody wants any more.
static enum carat_status drain(struct carat_session *session)
{
    struct ops *ops = session->model->ops;
    while (session->n_chunks > 0) {
        if (ops->poll(ops, session->chunks[session->n_chunks - 1], NULL) == OPS_PENDING)
            return CARAT_PENDING;
        session->n_chunks--;
    }
    while (session->n_flights > 0) {
        if (ops->poll(ops, session->flights[session->n_flights - 1].ticket, NULL) == OPS_PENDING)
            return CARAT_PENDING;
        session->n_flights--;
    }
    return CARAT_DONE;
}

static enum carat_status give_finish(struct carat_session *session, struct carat_event *event)
{
    struct carat_usage *usage = &session->usage;
    double now = clock_ms();
    usage->n_generated = (int32_t)session->generated.n;
    if (session->first_ms > 0)
        usage->generate_ms = now - session->first_ms;
    else
        usage->prompt_ms = now - session->begin_ms - usage->encode_ms;
    int64_t dispatches = session->model->ops->n_dispatches - session->first_dispatches;
    usage->dispatches_per_token = session->n_launched > 0 ? (double)dispatches / session->n_launched : 0;
    end_generation(session);
    text_clear(&session->text);
    decoder_finish(&session->decoder, &session->text);
    struct text_view text = text_whole(&session->text);
    *event = (struct carat_event){
        .kind = CARAT_EVENT_FINISH,
        .text = text.data,
        .n_text = text.n_bytes,
        .finish = session->finish,
        .usage = *usage,
        .ids = session->generated.ids,
        .n_ids = (int32_t)session->generated.n,
    };
    return CARAT_EVENT;
}

static enum carat_status step(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    if (session->stop_asked && session->phase < PHASE_DRAIN) {
        session->finish = CARAT_FINISH_CANCELLED;
        session->phase = PHASE_DRAIN;
    }
    switch (session->phase) {
    case PHASE_IDLE:
    case PHASE_STATE:
        return CARAT_DONE;
    case PHASE_ENCODE:
        return session_encode_media(session, event, err);
    case PHASE_PREFILL:
        return session_prefill(session, event, err);
    case PHASE_DECODE:
        return session_decode(session, event, err);
    case PHASE_DRAIN:
        if (drain(session) == CARAT_PENDING)
            return CARAT_PENDING;
        session->phase = PHASE_FINISH;
        return give_finish(session, event);
    case PHASE_FINISH:
        return give_finish(session, event);
    }
    return CARAT_DONE;
}

void session_abort(struct carat_session *session)
{
    settle_flights(session);
    end_generation(session);
}

enum carat_status carat_generate_next(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    enum session_phase before;
    enum carat_status status;
    // A phase that ends without an event hands over to the next one at once.
    do {
        before = session->phase;
        status = step(session, event, err);
    } while (status == CARAT_DONE && session->phase != before);
    if (status == CARAT_FAILED)
        session_abort(session);
    return status;
}

void carat_session_wait(struct carat_session *session, int32_t timeout_ms)
{
    (void)timeout_ms;
    struct ops *ops = session->model->ops;
    if (ops->wait == NULL)
        return;
    if (session->job != NULL && towers_ticket(session->job) >= 0)
        ops->wait(ops, towers_ticket(session->job));
    else if (session->n_chunks > 0)
        ops->wait(ops, session->chunks[0]);
    else if (session->n_flights > 0)
        ops->wait(ops, session->flights[0].ticket);
    else if (session->state != NULL && session->state->ticket >= 0)
        ops->wait(ops, session->state->ticket);
}
