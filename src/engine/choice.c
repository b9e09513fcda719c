// choice.c: choosing a token after a pass: on the device, or here from the logits that it sends.

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "engine/session.h"

// --- on the device -------------------------------------------------------------------------------------------------------------

// Where things lie in session->choices, in bytes. The ids chosen on the device are at the start, 256 bytes apart.
enum {
    AT_CANDIDATES = SESSION_MAX_FLIGHTS * 256,
    AT_WINDOW = AT_CANDIDATES + ((2 * SESSION_MAX_CANDIDATES + 2) * 4 + 255) / 256 * 256,
    AT_BIAS_IDS = AT_WINDOW + DRAW_MAX_WINDOW * 4,
    AT_BIAS_VALUES = AT_BIAS_IDS + DRAW_MAX_BIASES * 4,
    CHOICES_END = AT_BIAS_VALUES + DRAW_MAX_BIASES * 4,
};

struct buffer *session_choices_new(struct ops *ops, struct carat_error *err)
{
    return ops->buffer_new(ops, CHOICES_END, err);
}

static struct tensor column(const struct carat_session *session, int32_t offset, int32_t n_rows)
{
    if (n_rows == 0)
        return (struct tensor){0};
    return (struct tensor){.buffer = session->choices, .offset = (uint64_t)offset, .n_rows = n_rows, .n_cols = 1};
}

struct tensor session_id_slot(const struct carat_session *session, int32_t slot)
{
    return column(session, slot * 256, 1);
}

// The device's argmax is the choice.
static bool is_plain(const struct carat_session *session)
{
    const struct sampler_params *p = sampler_get(session->sampler);
    return p->temperature <= 0 && p->n_bias == 0 && !sampler_penalises(session->sampler);
}

static bool can_draw(const struct carat_session *session)
{
    const struct sampler_params *p = sampler_get(session->sampler);
    return session->model->ops->draw != NULL && (p->temperature <= 0 || (p->top_k >= 1 && p->top_k <= DRAW_MAX_TOP_K)) &&
           p->n_bias <= DRAW_MAX_BIASES && (!sampler_penalises(session->sampler) || p->penalty_window <= DRAW_MAX_WINDOW);
}

// Gives the device what the draws need besides their parameters: the recent tokens, and the biases.
static void give_window(struct carat_session *session)
{
    struct ops *ops = session->model->ops;
    const struct sampler_params *p = sampler_get(session->sampler);
    int32_t ids[DRAW_MAX_WINDOW];
    session->n_seen = sampler_penalises(session->sampler) ? sampler_history(session->sampler, ids) : 0;
    if (session->n_seen > 0)
        ops->write(ops, session->choices, AT_WINDOW, ids, (uint64_t)session->n_seen * sizeof *ids);
    float values[DRAW_MAX_BIASES];
    for (size_t i = 0; i < p->n_bias; i++) {
        ids[i] = p->bias[i].id;
        values[i] = fmaxf(p->bias[i].value, -3.0e38f); // kernels may not know infinities
    }
    if (p->n_bias > 0) {
        ops->write(ops, session->choices, AT_BIAS_IDS, ids, p->n_bias * sizeof *ids);
        ops->write(ops, session->choices, AT_BIAS_VALUES, values, p->n_bias * sizeof *values);
    }
}

void session_begin_choices(struct carat_session *session)
{
    bool draws = !is_plain(session);
    session->device_chooses = session->options.n_logprobs < 0 && (!draws || can_draw(session));
    if (session->device_chooses && draws)
        give_window(session);
}

// The draw that follows those under way.
static struct draw next_draw(const struct carat_session *session)
{
    const struct sampler_params *p = sampler_get(session->sampler);
    struct draw draw = {
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .bias_ids = column(session, AT_BIAS_IDS, (int32_t)p->n_bias),
        .bias_values = column(session, AT_BIAS_VALUES, (int32_t)p->n_bias),
        .random = sampler_random(session->sampler, session->n_flights),
    };
    if (sampler_penalises(session->sampler)) {
        int64_t n_seen = session->n_seen + (int64_t)session->generated.n + session->n_flights;
        draw.window = column(session, AT_WINDOW, p->penalty_window);
        draw.n_window = n_seen < p->penalty_window ? (int32_t)n_seen : p->penalty_window;
        draw.window_slot = (int32_t)(n_seen % p->penalty_window);
    }
    return draw;
}

static void choose_on_device(struct carat_session *session, struct flight *flight, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    struct tensor logits = session->model->context->logits;
    *flight = (struct flight){.kind = CHOICE_ON_DEVICE, .slot = session->next_slot};
    session->next_slot = (session->next_slot + 1) % SESSION_MAX_FLIGHTS;
    struct tensor id = session_id_slot(session, flight->slot);
    if (is_plain(session)) {
        ops->argmax(ops, logits, 0, id);
    } else {
        struct draw draw = next_draw(session);
        ops->draw(ops, logits, 0, &draw, id);
    }
    flight->ticket = ops->read_start(ops, id.buffer, id.offset, sizeof(int32_t), &session->slot_ids[flight->slot], err);
}

// --- here ----------------------------------------------------------------------------------------------------------------------

static int32_t candidates_needed(const struct carat_session *session)
{
    int32_t needed = sampler_candidates_needed(session->sampler);
    return needed > session->options.n_logprobs ? needed : session->options.n_logprobs;
}

static void ask_for_logits(struct carat_session *session, struct flight *flight, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    struct tensor logits = session->model->context->logits;
    int32_t k = candidates_needed(session);
    if (k <= SESSION_MAX_CANDIDATES && k <= logits.n_cols) {
        struct tensor out = {.buffer = session->choices, .offset = AT_CANDIDATES, .n_rows = 1, .n_cols = 2 * k + 2};
        *flight = (struct flight){.kind = CHOICE_CANDIDATES, .n_candidates = k};
        ops->top_k(ops, logits, 0, k, out);
        flight->ticket =
            ops->read_start(ops, out.buffer, out.offset, (uint64_t)out.n_cols * sizeof(float), session->candidates, err);
    } else {
        uint64_t n_bytes = (uint64_t)logits.n_cols * sizeof(float);
        *flight = (struct flight){.kind = CHOICE_LOGITS};
        flight->ticket = ops->read_start(ops, logits.buffer, logits.offset, n_bytes, session->logits, err);
    }
}

bool session_launch_choice(struct carat_session *session, struct carat_error *err)
{
    assert(session->n_flights < SESSION_MAX_FLIGHTS);
    struct flight *flight = &session->flights[session->n_flights];
    if (session->device_chooses)
        choose_on_device(session, flight, err);
    else
        ask_for_logits(session, flight, err);
    if (flight->ticket < 0)
        return false;
    session->n_flights++;
    return true;
}

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

// --- a choice arrives ----------------------------------------------------------------------------------------------------------

bool session_land(struct carat_session *session, int32_t *id, struct carat_error *err)
{
    struct flight flight = session->flights[0];
    if (flight.kind == CHOICE_ON_DEVICE) {
        *id = session->slot_ids[flight.slot];
        if (sampler_get(session->sampler)->temperature > 0)
            sampler_skip(session->sampler);
    } else if (!sample(session, &flight, id, err)) {
        return false;
    }
    if (*id < 0 || *id >= session->model->text->config.n_vocab)
        return fail(err, CARAT_BAD_NUMBER,
            "the model's output at position %d is not a number: the model file is damaged, or the device computes wrongly",
            session->n_ids);
    session->n_flights--;
    memmove(session->flights, session->flights + 1, (size_t)session->n_flights * sizeof session->flights[0]);
    return true;
}
