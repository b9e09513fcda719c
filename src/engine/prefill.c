// prefill.c: the prompt goes through the model in chunks.

#include <assert.h>
#include <stdlib.h>

#include "engine/session.h"

// Where the chunk that starts at `first` ends. An image whose positions see each other both ways goes through in one piece.
static int32_t chunk_end(const struct carat_session *session, int32_t first)
{
    int32_t end = first + session->batch < session->n_ids ? first + session->batch : session->n_ids;
    if (session->model->text->config.image_attention == IMAGES_CAUSAL)
        return end;
    for (int32_t i = 0; i < session->n_segments; i++) {
        const struct segment *segment = &session->segments[i];
        if (segment->start < end && end < segment->start + segment->n && segment->start > first)
            end = segment->start;
    }
    return end;
}

// The parts of segments that lie in [first, end).
static int32_t collect_soft(const struct carat_session *session, int32_t first, int32_t end, struct soft_run *runs)
{
    int32_t n = 0;
    for (int32_t i = 0; i < session->n_segments; i++) {
        const struct segment *segment = &session->segments[i];
        int32_t from = segment->start > first ? segment->start : first;
        int32_t to = segment->start + segment->n < end ? segment->start + segment->n : end;
        if (from >= to)
            continue;
        runs[n++] = (struct soft_run){
            .row = from - first,
            .n_rows = to - from,
            .rows = segment->rows,
            .first_row = from - segment->start,
            .is_image = session->media[segment->media].kind == CARAT_IMAGE,
        };
    }
    return n;
}

static bool queue_chunk(struct carat_session *session, int32_t first, int32_t end, struct carat_error *err)
{
    struct soft_run *runs = calloc((size_t)session->n_segments + 1, sizeof *runs);
    if (runs == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the list of images and sounds");
    struct text_batch batch = {
        .n = end - first,
        .ids = session->ids + first,
        .soft = runs,
        .n_soft = collect_soft(session, first, end, runs),
        .n_logits = end == session->n_ids ? 1 : 0,
    };
    session->model->context->options.run_all_rows = session->run_all_rows;
    bool ok = text_forward(session->model->context, session->kv, &batch, err);
    free(runs);
    return ok;
}

// Keeps the queue of a GPU short, so that stopping takes effect soon. PENDING: it is full.
static enum carat_status make_room(struct carat_session *session, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    while (session->n_chunks > 0) {
        enum ops_state state = ops->poll(ops, session->chunks[0], err);
        if (state == OPS_PENDING)
            return session->n_chunks == SESSION_MAX_CHUNKS ? CARAT_PENDING : CARAT_DONE;
        session->chunks[0] = session->chunks[1];
        session->n_chunks--;
        if (state == OPS_FAILED)
            return CARAT_FAILED;
    }
    return CARAT_DONE;
}

enum carat_status session_prefill(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    struct ops *ops = session->model->ops;
    enum carat_status room = make_room(session, err);
    if (room != CARAT_DONE)
        return room;
    int32_t first = session->kv->n_committed;
    int32_t end = chunk_end(session, first);
    assert(first < end);
    if (!queue_chunk(session, first, end, err))
        return CARAT_FAILED;
    if (end == session->n_ids) {
        session->phase = PHASE_DECODE;
        return session_launch_choice(session, err) ? CARAT_DONE : CARAT_FAILED;
    }
    int32_t ticket = ops->read_start(ops, session->choices, 0, sizeof session->probe, &session->probe, err);
    if (ticket < 0)
        return CARAT_FAILED;
    session->chunks[session->n_chunks++] = ticket;
    *event = (struct carat_event){.kind = CARAT_EVENT_PROGRESS, .n_done = end, .n_total = session->n_ids};
    return CARAT_EVENT;
}
