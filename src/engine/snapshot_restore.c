// snapshot_restore.c: bytes, a piece at a time, become a session.
//
// The head is collected and checked completely first. With the first row of the payload the former contents go; from there on
// only what the bytes could not tell before can go wrong: that they end early, hold what is no number, or that the device fails.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "engine/snapshot.h"

bool session_restore_begin(struct carat_session *session, struct sampler *sampler, uint64_t n_bytes, struct carat_error *err)
{
    if (!session_is_idle(session, err))
        return false;
    struct snapshot *snapshot = snapshot_new(session, err);
    if (snapshot == NULL)
        return false;
    snapshot->restoring = true;
    snapshot->sampler = sampler;
    snapshot->n_total = n_bytes;
    if (snapshot_read_head(session, snapshot, err))
        return true;
    snapshot_end(session);
    return false;
}

bool carat_state_restore_begin(struct carat_session *session, uint64_t n_bytes, struct carat_error *err)
{
    return session_restore_begin(session, NULL, n_bytes, err);
}

static void empty(struct carat_session *session)
{
    kv_truncate(session->kv, 0, NULL);
    session->n_ids = 0;
    session->state->emptied = true;
}

// Moves bytes into room of which *n_filled are taken.
static void fill(uint8_t *room, size_t *n_filled, size_t n_room, const uint8_t **bytes, size_t *n)
{
    size_t taken = *n < n_room - *n_filled ? *n : n_room - *n_filled;
    memcpy(room + *n_filled, *bytes, taken);
    *n_filled += taken;
    *bytes += taken;
    *n -= taken;
}

static bool take_head(struct carat_session *session, const uint8_t **bytes, size_t *n, struct carat_error *err)
{
    struct snapshot *snapshot = session->state;
    fill(snapshot->bytes, &snapshot->n_have, (size_t)snapshot->head.n_bytes, bytes, n);
    if (!snapshot_read_head(session, snapshot, err))
        return false;
    return !snapshot->complete || snapshot_take_buffers(snapshot, session->kv, err);
}

// What follows the payload: its checksum.
static bool take_sum(struct snapshot *snapshot, const uint8_t **bytes, size_t *n, struct carat_error *err)
{
    fill(snapshot->sum_bytes, &snapshot->n_sum_done, snapshot->head.n_sum, bytes, n);
    return *n == 0 || fail(err, CARAT_BAD_ARGUMENT, "more bytes came than the %llu that were announced",
                          (unsigned long long)snapshot->n_total);
}

static bool check_sum(const struct snapshot *snapshot, struct carat_error *err)
{
    uint64_t got = xxh64_of(&snapshot->sum);
    return snapshot->head.n_sum == 0 || load_u64(snapshot->sum_bytes) == got ||
           fail(err, CARAT_BAD_FILE,
               "the saved state is damaged: its keys and values have the checksum %016llx, not %016llx as it says",
               (unsigned long long)got, (unsigned long long)load_u64(snapshot->sum_bytes));
}

static bool take_rows(struct carat_session *session, const uint8_t **bytes, size_t *n, struct carat_error *err)
{
    struct snapshot *snapshot = session->state;
    struct ops *ops = session->model->ops;
    struct stretch stretch;
    if (!snapshot_next_stretch(snapshot, session->kv, &stretch))
        return take_sum(snapshot, bytes, n, err);
    size_t n_elems = (size_t)stretch.n_rows * (size_t)stretch.layer->row_elems;
    size_t n_room = n_elems * (size_t)snapshot->head.elem_bytes;
    if (!snapshot->emptied)
        empty(session);
    fill(snapshot->file_rows, &snapshot->n_filled, n_room, bytes, n);
    if (snapshot->n_filled < n_room)
        return true;
    snapshot->n_filled = 0;
    xxh64_add(&snapshot->sum, snapshot->file_rows, n_room);
    int cache_bytes = stretch.layer->is_f32 ? 4 : 2;
    if (!snapshot_convert(snapshot->file_rows, snapshot->head.elem_bytes, snapshot->cache_rows, cache_bytes, n_elems))
        return fail(err, CARAT_BAD_FILE,
            "the state holds keys or values of layer %d that are no numbers, or too large for a cache of %d bits; it is damaged",
            snapshot->sections[snapshot->section].layer, 8 * cache_bytes);
    if (stretch.slot >= 0)
        ops->write(ops, stretch.buffer, (uint64_t)stretch.slot * (uint64_t)stretch.layer->row_elems * (uint64_t)cache_bytes,
            snapshot->cache_rows, n_elems * (size_t)cache_bytes);
    snapshot_advance(snapshot, stretch.n_rows);
    return true;
}

// After a failure: frees the state and says what became of the session.
static bool give_up(struct carat_session *session, struct carat_error *err)
{
    bool emptied = session->state->emptied;
    snapshot_end(session);
    return emptied ? fail_in(err, "restoring failed half way and the session is empty now") : false;
}

static bool check_restoring(const struct carat_session *session, struct carat_error *err)
{
    return (session->state != NULL && session->state->restoring) ||
           fail(err, CARAT_BAD_ARGUMENT, "this session is not being restored: begin with carat_state_restore_begin");
}

bool carat_state_restore_write(struct carat_session *session, const void *bytes, size_t n_bytes, struct carat_error *err)
{
    if (!check_restoring(session, err))
        return false;
    struct snapshot *snapshot = session->state;
    const uint8_t *at = bytes;
    size_t n = n_bytes;
    bool ok = true;
    while (ok && n > 0) {
        ok = snapshot->complete ? take_rows(session, &at, &n, err) : take_head(session, &at, &n, err);
    }
    snapshot->n_done += n_bytes;
    return ok || give_up(session, err);
}

// Positions that all sliding layers now hold.
static int32_t held(const struct carat_session *session)
{
    const struct snapshot *snapshot = session->state;
    int32_t n = snapshot->head.position < session->kv->ring ? snapshot->head.position : session->kv->ring;
    for (int32_t i = 0; i < snapshot->head.n_sections; i++) {
        const struct snapshot_section *section = &snapshot->sections[i];
        if (session->kv->config->layers[section->layer].sliding && section->n < n)
            n = section->n;
    }
    return n;
}

static void take_ids(struct carat_session *session)
{
    const struct snapshot *snapshot = session->state;
    const struct snapshot_head *head = &snapshot->head;
    for (int32_t p = 0; p < head->position; p++) {
        bool known = head->ids_at != 0;
        session->ids[p] = known ? (int32_t)load_u32(snapshot->bytes + head->ids_at + 4 * (size_t)p) : 0;
        session->keys[p] = known ? load_u64(snapshot->bytes + head->keys_at + 8 * (size_t)p) : SESSION_UNKNOWN_KEY;
    }
    session->n_ids = head->position;
    session->adapter_changes = session->model->adapter_changes;
}

bool carat_state_restore_end(struct carat_session *session, struct carat_error *err)
{
    if (!check_restoring(session, err))
        return false;
    struct snapshot *snapshot = session->state;
    const struct snapshot_head *head = &snapshot->head;
    if (snapshot->n_done != snapshot->n_total) {
        fail(err, CARAT_BAD_FILE, "the state ends after %llu of %llu bytes: give all of it", (unsigned long long)snapshot->n_done,
            (unsigned long long)snapshot->n_total);
        return give_up(session, err);
    }
    if (!check_sum(snapshot, err))
        return give_up(session, err);
    if (snapshot->sampler != NULL && head->n_sampler > 0 &&
        !sampler_restore(snapshot->sampler, snapshot->bytes + head->sampler_at, head->n_sampler, err))
        return give_up(session, err);
    if (!snapshot->emptied)
        empty(session);
    kv_adopt(session->kv, head->position, held(session));
    take_ids(session);
    session->model->ops->submit(session->model->ops);
    snapshot_end(session);
    return true;
}
