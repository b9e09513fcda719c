// decode.c: choosing tokens and feeding them back.

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "engine/session.h"

// --- launching
// ----------------------------------------------------------------------------------------------------------------------

static struct tensor id_slot(const struct carat_session *session, int32_t slot)
{
    return (struct tensor){.buffer = session->choices, .offset = (uint64_t)slot * 256, .n_rows = 1, .n_cols = 1};
}

// Greedy without anything that changes logits: the device's argmax is the choice.
static bool choice_is_plain(const struct carat_session *session)
{
    const struct carat_sampling *s = &session->options.sampling;
    return s->temperature <= 0 && s->repetition_penalty == 1 && s->presence_penalty == 0 && s->frequency_penalty == 0 &&
           s->n_biases == 0 && session->options.n_logprobs < 0;
}

static int32_t candidates_needed(const struct carat_session *session)
{
    int32_t needed = sampler_candidates_needed(session->sampler);
    return needed > session->options.n_logprobs ? needed : session->options.n_logprobs;
}

bool session_launch_choice(struct carat_session *session, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    struct tensor logits = session->model->context->logits;
    struct flight *flight = &session->flights[session->n_flights];
    assert(session->n_flights < SESSION_MAX_FLIGHTS);
    if (choice_is_plain(session)) {
        *flight = (struct flight){.kind = CHOICE_ON_DEVICE, .slot = session->next_slot};
        session->next_slot = (session->next_slot + 1) % SESSION_MAX_FLIGHTS;
        ops->argmax(ops, logits, 0, id_slot(session, flight->slot));
        flight->ticket = ops->read_start(
            ops, session->choices, (uint64_t)flight->slot * 256, sizeof(int32_t), &session->slot_ids[flight->slot], err);
    } else if (candidates_needed(session) <= SESSION_MAX_CANDIDATES && candidates_needed(session) <= logits.n_cols) {
        int32_t k = candidates_needed(session);
        struct tensor out = {.buffer = session->choices, .offset = SESSION_MAX_FLIGHTS * 256, .n_rows = 1, .n_cols = 2 * k + 2};
        *flight = (struct flight){.kind = CHOICE_CANDIDATES, .n_candidates = k};
        ops->top_k(ops, logits, 0, k, out);
        flight->ticket =
            ops->read_start(ops, out.buffer, out.offset, (uint64_t)out.n_cols * sizeof(float), session->candidates, err);
    } else {
        uint64_t n_bytes = (uint64_t)logits.n_cols * sizeof(float);
        *flight = (struct flight){.kind = CHOICE_LOGITS};
        flight->ticket = ops->read_start(ops, logits.buffer, logits.offset, n_bytes, session->logits, err);
    }
    if (flight->ticket < 0)
        return false;
    session->n_flights++;
    return true;
}

// The next token, whose id is known to the host or to the device, goes through the model; then the one after it is chosen.
static bool launch_step(struct carat_session *session, const int32_t *id, int32_t slot, struct carat_error *err)
{
    struct text_batch batch = {.n = 1, .ids = id, .device_ids = id_slot(session, slot), .n_logits = 1};
    session->n_launched++;
    return text_forward(session->model->context, session->kv, &batch, err) && session_launch_choice(session, err);
}

// Launches steps whose tokens only the device knows yet.
static bool run_ahead(struct carat_session *session, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    bool waits = ops->poll != NULL && strcmp(ops->name, "webgpu") == 0;
    if (!waits || session->model->table_on_disk || !choice_is_plain(session))
        return true;
    while (session->n_flights > 0 && session->n_flights < SESSION_RUN_AHEAD) {
        int64_t chosen = (int64_t)session->generated.n + session->n_flights;
        if (session->kv->n_committed >= session->kv->n_context ||
            (session->options.max_tokens > 0 && chosen >= session->options.max_tokens))
            return true;
        if (!launch_step(session, NULL, session->flights[session->n_flights - 1].slot, err))
            return false;
    }
    return true;
}

// --- a choice arrives
// -----------------------------------------------------------------------------------------------------------------

static void write_token_text(const struct carat_session *session, int32_t id, struct json_writer *out)
{
    struct text_buffer text = {0};
    decoder_decode(session->model->tok, &id, 1, true, &text);
    struct text_view view = text_whole(&text);
    json_write_literal(out, "\"token\":");
    json_write_string(out, view.data, view.n_bytes);
    json_write_literal(out, ",\"bytes\":[");
    int byte = tokenizer_byte(session->model->tok, id);
    if (byte >= 0)
        json_write_format(out, "%d", byte);
    for (size_t i = 0; byte < 0 && i < view.n_bytes; i++)
        json_write_format(out, "%s%d", i > 0 ? "," : "", (unsigned char)view.data[i]);
    json_write_literal(out, "]");
    text_free(&text);
}

// One entry of OpenAI's logprobs.content.
static void write_logprobs(struct carat_session *session, int32_t id, const struct sampler_report *report)
{
    struct json_writer out = {0};
    json_write_literal(&out, "{");
    write_token_text(session, id, &out);
    json_write_literal(&out, ",\"logprob\":");
    json_write_number(&out, report->logprob);
    json_write_literal(&out, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < report->n_top; i++) {
        json_write_literal(&out, i > 0 ? ",{" : "{");
        write_token_text(session, report->top[i].id, &out);
        json_write_literal(&out, ",\"logprob\":");
        json_write_number(&out, report->top[i].value);
        json_write_literal(&out, "}");
    }
    json_write_literal(&out, "]}");
    if (!out.failed)
        text_append(&session->logprobs, out.bytes, out.n_bytes);
    json_writer_free(&out);
}

static bool sample(struct carat_session *session, const struct flight *flight, int32_t *id, struct carat_error *err)
{
    enum { MAX_TOP = 20 };
    struct sampler_candidate top[MAX_TOP];
    struct sampler_report report = {.top = top, .n_top = session->options.n_logprobs > 0 ? session->options.n_logprobs : 0};
    struct sampler_report *wanted = session->options.n_logprobs >= 0 ? &report : NULL;
    if (flight->kind == CHOICE_LOGITS) {
        if (!sampler_sample(session->sampler, session->logits, id, wanted, err))
            return false;
    } else {
        struct sampler_candidate candidates[SESSION_MAX_CANDIDATES];
        int32_t k = flight->n_candidates;
        const float *values = session->candidates + k;
        for (int32_t i = 0; i < k; i++) {
            memcpy(&candidates[i].id, &session->candidates[i], sizeof candidates[i].id);
            candidates[i].value = values[i];
        }
        float log_sum_exp = values[k] + values[k + 1];
        if (!sampler_sample_candidates(session->sampler, candidates, k, log_sum_exp, id, wanted, err))
            return false;
    }
    if (wanted != NULL)
        write_logprobs(session, *id, wanted);
    return true;
}

// Takes the oldest flight, which has arrived, and finds its id.
static bool land(struct carat_session *session, int32_t *id, struct carat_error *err)
{
    struct flight flight = session->flights[0];
    if (flight.kind == CHOICE_ON_DEVICE)
        *id = session->slot_ids[flight.slot];
    else if (!sample(session, &flight, id, err))
        return false;
    if (*id < 0 || *id >= session->model->text->config.n_vocab)
        return fail(err, CARAT_BAD_NUMBER,
            "the model's output at position %d is not a number: the model file is damaged, or the device computes wrongly",
            session->n_ids);
    session->n_flights--;
    memmove(session->flights, session->flights + 1, (size_t)session->n_flights * sizeof session->flights[0]);
    return true;
}

// --- the token
// ------------------------------------------------------------------------------------------------------------------------

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
    if (!land(session, &id, err) || !record(session, id, err))
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
