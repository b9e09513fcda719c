// snapshot.c: what saving and restoring share: the order of the payload, widths of numbers, copies of sessions.

#include "engine/snapshot.h"

#include <assert.h>
#include <stdlib.h>

#include "base/number.h"

// --- life ----------------------------------------------------------------------------------------------------------------------

bool session_is_idle(const struct carat_session *session, struct carat_error *err)
{
    if (session->phase == PHASE_STATE)
        return fail(err, CARAT_BAD_ARGUMENT, "the session is being saved or restored: let that finish, or end it, first");
    if (session->phase != PHASE_IDLE)
        return fail(err, CARAT_BAD_ARGUMENT, "a generation is under way on this session: stop it and let it finish first");
    return true;
}

struct snapshot *snapshot_new(struct carat_session *session, struct carat_error *err)
{
    struct snapshot *snapshot = calloc(1, sizeof *snapshot);
    if (snapshot == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to save or restore a session");
        return NULL;
    }
    snapshot->ticket = -1;
    xxh64_begin(&snapshot->sum);
    session->state = snapshot;
    session->phase = PHASE_STATE;
    return snapshot;
}

void snapshot_end(struct carat_session *session)
{
    struct snapshot *snapshot = session->state;
    if (snapshot == NULL)
        return;
    struct ops *ops = session->model->ops;
    if (snapshot->ticket >= 0 && ops->wait != NULL) { // it has its target here
        ops->wait(ops, snapshot->ticket);
        ops->poll(ops, snapshot->ticket, NULL);
    }
    free(snapshot->bytes);
    free(snapshot->sections);
    free(snapshot->cache_rows);
    free(snapshot->file_rows);
    free(snapshot);
    session->state = NULL;
    session->phase = PHASE_IDLE;
}

void carat_state_end(struct carat_session *session)
{
    snapshot_end(session);
}

// --- the payload ---------------------------------------------------------------------------------------------------------------

bool snapshot_take_buffers(struct snapshot *snapshot, const struct kv_cache *kv, struct carat_error *err)
{
    size_t n_bytes = PIECE_BYTES;
    for (int32_t i = 0; i < snapshot->head.n_sections; i++) {
        size_t row_bytes = (size_t)kv->layers[snapshot->sections[i].layer].row_elems * 4;
        n_bytes = row_bytes > n_bytes ? row_bytes : n_bytes;
    }
    snapshot->cache_rows = malloc(n_bytes);
    snapshot->file_rows = malloc(n_bytes);
    return (snapshot->cache_rows != NULL && snapshot->file_rows != NULL) ||
           fail(err, CARAT_NO_MEMORY, "no memory to save or restore a session in pieces of %zu bytes", n_bytes);
}

uint32_t snapshot_layout_hash(const struct gemma4_config *config)
{
    uint32_t hash = 0x811c9dc5u;
    for (int32_t l = 0; l < config->n_layers; l++) {
        uint8_t words[8];
        store_u32(store_u32(words, (uint32_t)config->layers[l].n_kv_heads), (uint32_t)config->layers[l].head_dim);
        for (size_t i = 0; i < sizeof words; i++)
            hash = (hash ^ words[i]) * 0x01000193u;
    }
    return hash;
}

uint64_t snapshot_payload_bytes(const struct snapshot *snapshot, const struct gemma4_config *config)
{
    // No overflow: a section has no more positions than a context that fits in memory.
    uint64_t total = 0;
    for (int32_t i = 0; i < snapshot->head.n_sections; i++) {
        const struct snapshot_section *section = &snapshot->sections[i];
        total += 2 * (uint64_t)section->n * (uint64_t)gemma4_kv_row_elems(config, section->layer);
    }
    return total * (uint64_t)snapshot->head.elem_bytes;
}

static int32_t smaller(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

bool snapshot_next_stretch(const struct snapshot *snapshot, const struct kv_cache *kv, struct stretch *stretch)
{
    if (snapshot->section == snapshot->head.n_sections)
        return false;
    const struct snapshot_section *section = &snapshot->sections[snapshot->section];
    const struct kv_layer *layer = &kv->layers[section->layer];
    int32_t position = snapshot->head.position - section->n + snapshot->row;
    int32_t first_kept = snapshot->head.position - layer->capacity;
    int32_t n_rows = smaller(section->n - snapshot->row, PIECE_BYTES / 4 / layer->row_elems);
    n_rows = n_rows > 0 ? n_rows : 1;
    *stretch = (struct stretch){.layer = layer, .buffer = snapshot->in_values ? layer->v : layer->k, .slot = -1};
    if (position < first_kept) {
        stretch->n_rows = smaller(n_rows, first_kept - position);
        return true;
    }
    stretch->slot = position % layer->capacity;
    stretch->n_rows = smaller(n_rows, layer->capacity - stretch->slot);
    return true;
}

void snapshot_advance(struct snapshot *snapshot, int32_t n_rows)
{
    snapshot->row += n_rows;
    assert(snapshot->row <= snapshot->sections[snapshot->section].n);
    if (snapshot->row < snapshot->sections[snapshot->section].n)
        return;
    snapshot->row = 0;
    snapshot->section += snapshot->in_values;
    snapshot->in_values = !snapshot->in_values;
}

bool snapshot_convert(const uint8_t *from, int from_bytes, uint8_t *to, int to_bytes, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        if (to_bytes == 2) {
            uint16_t half = from_bytes == 2 ? load_u16(from + 2 * i) : f16_from_f32(f32_from_bits(load_u32(from + 4 * i)));
            finite &= (half & 0x7c00u) != 0x7c00u;
            store_u16(to + 2 * i, half);
        } else {
            uint32_t bits = from_bytes == 4 ? load_u32(from + 4 * i) : f32_bits(f32_from_f16(load_u16(from + 2 * i)));
            finite &= (bits & 0x7f800000u) != 0x7f800000u;
            store_u32(to + 4 * i, bits);
        }
    }
    return finite;
}
