// decode.c: feeding chosen tokens back, several steps ahead of what the host has seen.

#include "base/clock.h"
#include "engine/session.h"

// --- launching -----------------------------------------------------------------------------------------------------------------

// The next token, whose id is known to the host or to the device, goes through the model; then the one after it is chosen.
static bool launch_step(struct carat_session *session, const int32_t *id, int32_t slot, struct carat_error *err)
{
    struct text_batch batch = {.n = 1, .ids = id, .device_ids = session_id_slot(session, slot), .n_logits = 1};
    session->n_launched++;
    return text_forward(session->model->context, session->kv, &batch, err) && session_launch_choice(session, err);
}

// Launches steps whose tokens only the device knows yet.
static bool run_ahead(struct carat_session *session, struct carat_error *err)
{
    if (session->model->table_on_disk || !session->device_chooses)
        return true;
    while (session->n_flights > 0 && session->n_flights < session->run_ahead) {
        int64_t chosen = (int64_t)session->generated.n + session->n_flights;
        if (session->kv->n_committed >= session->kv->n_context ||
            (session->options.max_tokens > 0 && chosen >= session->options.max_tokens))
            return true;
        if (!launch_step(session, NULL, session->flights[session->n_flights - 1].slot, err))
            return false;
    }
    return true;
}

// --- the token -----------------------------------------------------------------------------------------------------------------

static enum carat_status finish(struct carat_session *session, enum carat_finish reason)
{
    session->finish = reason;
    session->phase = PHASE_DRAIN;
    return CARAT_DONE;
}

static void note_time(struct carat_session *session)
{
    if (session->first_ms > 0)
        return;
    session->first_ms = clock_ms();
    session->usage.prompt_ms = session->first_ms - session->begin_ms - session->usage.encode_ms;
    session->first_dispatches = session->model->ops->n_dispatches;
    session->n_launched = 0;
}

static bool record(struct carat_session *session, int32_t id, struct carat_error *err)
{
    if (!token_list_push(&session->generated, id, err))
        return false;
    sampler_accept(session->sampler, id);
    if (session->n_ids < session->kv->n_context) {
        session->ids[session->n_ids] = id;
        session->keys[session->n_ids] = (uint64_t)id;
        session->n_ids++;
    }
    return true;
}

static void give_token(struct carat_session *session, int32_t id, struct carat_event *event)
{
    decoder_feed(&session->decoder, id, &session->text);
    struct text_view text = text_whole(&session->text);
    *event = (struct carat_event){
        .kind = CARAT_EVENT_TOKEN,
        .id = id,
        .text = text.data,
        .n_text = text.n_bytes,
        .logprobs = session->logprobs.n_bytes > 0 ? session->logprobs.data : NULL,
    };
}

enum carat_status session_decode(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    text_clear(&session->text);
    text_clear(&session->logprobs);
    if (!run_ahead(session, err))
        return CARAT_FAILED;
    enum ops_state state = ops->poll(ops, session->flights[0].ticket, err);
    if (state != OPS_DONE)
        return state == OPS_PENDING ? CARAT_PENDING : CARAT_FAILED;
    int32_t id;
    if (!session_land(session, &id, err) || !record(session, id, err))
        return CARAT_FAILED;
    note_time(session);
    if (tokenizer_is_end(session->model->tok, id) && !session->options.ignore_eos)
        return finish(session, CARAT_FINISH_STOP);
    give_token(session, id, event);
    bool enough = session->options.max_tokens > 0 && (int64_t)session->generated.n >= session->options.max_tokens;
    bool full = session->n_flights == 0 && session->kv->n_committed >= session->kv->n_context;
    if (enough || full)
        finish(session, CARAT_FINISH_LENGTH);
    else if (session->n_flights == 0 && !launch_step(session, &id, 0, err))
        return CARAT_FAILED;
    return CARAT_EVENT;
}
