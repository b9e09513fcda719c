// step.c: the original system's token loop.

#include "wasm/step.h"

#include <stdlib.h>

#include "base/hash.h"
#include "model/text.h"

struct stepper {
    struct carat_session *session;
    struct sampler *sampler;
    struct buffer *soft; // one soft token; NULL until the first
    float *logits;       // [n_vocab]
    int32_t ticket;      // of the read-back under way, -1: none
};

struct stepper *stepper_new(struct carat_session *session, struct carat_error *err)
{
    const struct tokenizer *tok = session->model->tok;
    int32_t n_vocab = session->model->text->config.n_vocab;
    struct stepper *stepper = calloc(1, sizeof *stepper);
    if (stepper == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for a token loop");
        return NULL;
    }
    size_t n_suppressed;
    const int32_t *suppressed = tokenizer_suppressed(tok, &n_suppressed);
    struct sampler_params params = sampler_original_defaults();
    *stepper = (struct stepper){.session = session, .ticket = -1};
    stepper->logits = malloc((size_t)n_vocab * sizeof *stepper->logits);
    stepper->sampler = sampler_new(n_vocab, &params, suppressed, n_suppressed, err);
    if (stepper->logits != NULL && stepper->sampler != NULL)
        return stepper;
    if (stepper->logits == NULL)
        fail(err, CARAT_NO_MEMORY, "no memory for %d logits", n_vocab);
    stepper_free(stepper);
    return NULL;
}

void stepper_free(struct stepper *stepper)
{
    if (stepper == NULL)
        return;
    struct ops *ops = stepper->session->model->ops;
    ops->buffer_free(ops, stepper->soft);
    sampler_free(stepper->sampler);
    free(stepper->logits);
    free(stepper);
}

bool stepper_set_sampling(struct stepper *stepper, const struct sampler_params *params, struct carat_error *err)
{
    struct sampler_params original = sampler_original_defaults();
    return sampler_set(stepper->sampler, params != NULL ? params : &original, err);
}

void stepper_reset(struct stepper *stepper)
{
    carat_session_truncate(stepper->session, 0);
    sampler_reset(stepper->sampler);
}

struct sampler *stepper_sampler(struct stepper *stepper)
{
    return stepper->sampler;
}

static bool forward_soft(struct stepper *stepper, const float *soft, struct carat_error *err)
{
    struct carat_session *session = stepper->session;
    struct ops *ops = session->model->ops;
    int32_t d = session->model->text->config.d_model;
    if (stepper->soft == NULL)
        stepper->soft = ops->buffer_new(ops, (uint64_t)d * sizeof *soft, err);
    if (stepper->soft == NULL)
        return false;
    ops->write(ops, stepper->soft, 0, soft, (uint64_t)d * sizeof *soft);
    struct soft_run run = {.n_rows = 1, .rows = {.buffer = stepper->soft, .n_rows = 1, .n_cols = d}};
    int32_t pad = 0;
    struct text_batch batch = {.n = 1, .ids = &pad, .soft = &run, .n_soft = 1, .n_logits = 1};
    return text_forward(session->model->context, session->kv, &batch, err);
}

bool stepper_begin(struct stepper *stepper, int32_t id, const float *soft, struct carat_error *err)
{
    struct carat_session *session = stepper->session;
    struct ops *ops = session->model->ops;
    int32_t n_vocab = session->model->text->config.n_vocab;
    if (session->phase != PHASE_IDLE || stepper->ticket >= 0)
        return fail(err, CARAT_BAD_ARGUMENT, "a step is under way on this session; wait for it");
    if (soft == NULL && (id < 0 || id >= n_vocab))
        return fail(err, CARAT_BAD_ARGUMENT, "there is no token %d; ids go from 0 to %d", id, n_vocab - 1);
    struct text_batch batch = {.n = 1, .ids = &id, .n_logits = 1};
    bool ok = soft != NULL ? forward_soft(stepper, soft, err) : text_forward(session->model->context, session->kv, &batch, err);
    if (!ok)
        return false;
    if (soft == NULL)
        sampler_accept(stepper->sampler, id);
    session->ids[session->n_ids] = soft != NULL ? 0 : id;
    size_t n_soft_bytes = (size_t)session->model->text->config.d_model * sizeof *soft;
    session->keys[session->n_ids] = soft != NULL ? SESSION_SOFT_KEY | hash_bytes(HASH_START, soft, n_soft_bytes) : (uint64_t)id;
    session->n_ids++;
    struct tensor logits = session->model->context->logits;
    stepper->ticket =
        ops->read_start(ops, logits.buffer, logits.offset, (uint64_t)n_vocab * sizeof *stepper->logits, stepper->logits, err);
    return stepper->ticket >= 0;
}

enum carat_status stepper_poll(struct stepper *stepper, int32_t *next, struct carat_error *err)
{
    struct ops *ops = stepper->session->model->ops;
    if (stepper->ticket < 0) {
        fail(err, CARAT_BAD_ARGUMENT, "no step is under way");
        return CARAT_FAILED;
    }
    enum ops_state state = ops->poll(ops, stepper->ticket, err);
    if (state == OPS_PENDING)
        return CARAT_PENDING;
    stepper->ticket = -1;
    if (state == OPS_FAILED || !sampler_sample(stepper->sampler, stepper->logits, next, NULL, err))
        return CARAT_FAILED;
    return CARAT_DONE;
}
