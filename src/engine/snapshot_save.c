// snapshot_save.c: a session becomes bytes, a piece at a time.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "engine/snapshot.h"

// --- the head ------------------------------------------------------------------------------------------------------------------

static bool list_sections(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    const struct kv_cache *kv = session->kv;
    const struct gemma4_config *config = kv->config;
    int32_t position = kv->n_committed;
    int32_t n_held = position - kv_oldest(kv);
    int32_t n_wanted = config->window - 1 + SESSION_REWIND;
    snapshot->head.position = position;
    snapshot->head.n_sections = position > 0 ? config->n_kv_layers : 0;
    snapshot->sections = calloc((size_t)config->n_kv_layers, sizeof *snapshot->sections);
    if (snapshot->sections == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to save a session of %d layers", config->n_layers);
    for (int32_t l = 0; l < snapshot->head.n_sections; l++) {
        int32_t n = n_held < n_wanted ? n_held : n_wanted;
        snapshot->sections[l] = (struct snapshot_section){.layer = l, .n = config->layers[l].sliding ? n : position};
    }
    return true;
}

// The original's form always has a sampler. Where the caller has none it gets the original's defaults and what was said last.
static struct sampler *stand_in(const struct carat_session *session, struct carat_error *err)
{
    struct sampler_params params = sampler_original_defaults();
    struct sampler *sampler = sampler_new(session->model->text->config.n_vocab, &params, NULL, 0, err);
    if (sampler != NULL)
        session_accept_history(session, sampler);
    return sampler;
}

static bool check_original(const struct gemma4_config *config, const struct snapshot *snapshot, struct carat_error *err)
{
    bool fits = snapshot->head.n_sections <= UINT8_MAX;
    for (int32_t l = 0; l < config->n_layers; l++)
        fits = fits && config->layers[l].n_kv_heads <= UINT16_MAX && config->layers[l].head_dim <= UINT16_MAX;
    if (!fits)
        return fail(err, CARAT_UNSUPPORTED,
            "the form RLMS has no room for a model of this shape (at most 255 layers of 65535): save in carat's own form");
    uint64_t n_kv =
        RLKV_HEAD_BYTES + RLKV_SECTION_BYTES * (uint64_t)snapshot->head.n_sections + snapshot_payload_bytes(snapshot, config);
    if (n_kv > UINT32_MAX)
        return fail(err, CARAT_UNSUPPORTED,
            "the form RLMS holds at most 4 GiB, but keys and values of %d positions take %llu MiB: save in carat's own form",
            snapshot->head.position, (unsigned long long)(n_kv >> 20));
    return true;
}

static void write_original(const struct gemma4_config *config, const struct snapshot *snapshot, struct sampler *sampler)
{
    const struct snapshot_head *head = &snapshot->head;
    uint64_t n_kv = snapshot->n_total - RLMS_HEAD_BYTES - head->n_sampler;
    uint8_t *at = snapshot->bytes;
    memcpy(at, "RLMS\1\0\0\0", 8);
    at = store_u32(store_u32(at + 8, (uint32_t)head->n_sampler), (uint32_t)n_kv);
    sampler_dump(sampler, false, at, head->n_sampler);
    at += head->n_sampler;
    memcpy(at, "RLKV\1\0\0\0", 8);
    at[5] = (uint8_t)head->n_sections;
    at = store_u32(store_u32(at + 8, (uint32_t)head->position), snapshot_layout_hash(config));
    for (int32_t i = 0; i < head->n_sections; i++) {
        const struct snapshot_section *section = &snapshot->sections[i];
        const struct gemma4_layer *layer = &config->layers[section->layer];
        at = store_u32(store_u32(at, (uint32_t)section->layer), (uint32_t)section->n);
        at = store_u16(store_u16(at, (uint16_t)layer->n_kv_heads), (uint16_t)layer->head_dim);
    }
}

static void write_own(const struct carat_session *session, const struct snapshot *snapshot, const struct sampler *sampler)
{
    const struct carat_model *model = session->model;
    const struct gemma4_config *config = &model->text->config;
    const struct snapshot_head *head = &snapshot->head;
    size_t n_name = strlen(model->name);
    uint8_t *at = snapshot->bytes;
    memcpy(at, "CRTS", 4);
    at = store_u64(store_u32(at + 4, CRTS_VERSION), snapshot->n_total);
    at = store_u64(store_u64(at, model_digest(model)), model_adapters_digest(model));
    at = store_u32(store_u32(at, (uint32_t)head->position), snapshot_layout_hash(config));
    at = store_u32(store_u32(at, (uint32_t)head->elem_bytes), (uint32_t)head->n_sections);
    at = store_u32(store_u32(at, (uint32_t)head->n_sampler), (uint32_t)n_name);
    at = store_u32(at, (uint32_t)model->n_adapters);
    at = store_u32(at, (uint32_t)xxh64(snapshot->bytes, CRTS_SUMMED_BYTES));
    memcpy(at, model->name, n_name);
    if (sampler != NULL)
        sampler_dump(sampler, true, at + n_name, head->n_sampler);
    at += n_name + head->n_sampler;
    for (int32_t p = 0; p < head->position; p++)
        at = store_u32(at, (uint32_t)session->ids[p]);
    for (int32_t p = 0; p < head->position; p++)
        at = store_u64(at, session->keys[p]);
    for (int32_t i = 0; i < head->n_sections; i++) {
        const struct snapshot_section *section = &snapshot->sections[i];
        const struct gemma4_layer *layer = &config->layers[section->layer];
        at = store_u32(store_u32(at, (uint32_t)section->layer), (uint32_t)section->n);
        at = store_u32(store_u32(at, (uint32_t)layer->n_kv_heads), (uint32_t)layer->head_dim);
    }
    store_u64(at, xxh64(snapshot->bytes, (size_t)(at - snapshot->bytes)));
}

static uint64_t head_bytes(const struct carat_session *session, const struct snapshot *snapshot)
{
    const struct snapshot_head *head = &snapshot->head;
    if (snapshot->form == CARAT_STATE_RLMS)
        return RLMS_HEAD_BYTES + head->n_sampler + RLKV_HEAD_BYTES + RLKV_SECTION_BYTES * (uint64_t)head->n_sections;
    return CRTS_HEAD_BYTES + strlen(session->model->name) + head->n_sampler + (uint64_t)head->position * (4 + 8) +
           CRTS_SECTION_BYTES * (uint64_t)head->n_sections + head->n_sum;
}

static bool make_head(struct carat_session *session, struct snapshot *snapshot, struct sampler *sampler, struct carat_error *err)
{
    const struct gemma4_config *config = session->kv->config;
    bool original = snapshot->form == CARAT_STATE_RLMS;
    struct snapshot_head *head = &snapshot->head;
    if (!list_sections(session, snapshot, err) || (original && !check_original(config, snapshot, err)))
        return false;
    head->elem_bytes = original || session->kv->layers[0].is_f32 ? 4 : 2;
    head->n_sum = original ? 0 : CRTS_SUM_BYTES;
    head->n_sampler = sampler != NULL ? sampler_dump(sampler, !original, NULL, 0) : 0;
    head->n_bytes = head_bytes(session, snapshot);
    snapshot->n_total = head->n_bytes + snapshot_payload_bytes(snapshot, config) + head->n_sum;
    snapshot->bytes = malloc((size_t)head->n_bytes);
    if (snapshot->bytes == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to save a session of %d positions", head->position);
    if (original)
        write_original(config, snapshot, sampler);
    else
        write_own(session, snapshot, sampler);
    return true;
}

bool session_save_begin(struct carat_session *session, enum carat_state_form form, struct sampler *sampler, uint64_t *n_bytes,
    struct carat_error *err)
{
    if (!session_is_idle(session, err))
        return false;
    if (form != CARAT_STATE_OWN && form != CARAT_STATE_RLMS)
        return fail(
            err, CARAT_BAD_ARGUMENT, "there is no form %d of a state: use CARAT_STATE_OWN or CARAT_STATE_RLMS", (int)form);
    if (session->adapter_changes != session->model->adapter_changes && session->kv->n_committed > 0)
        return fail(err, CARAT_BAD_ARGUMENT,
            "the adapters were changed since the session was filled, so its contents are of no use: run the prompt again first");
    struct sampler *other = NULL;
    if (sampler == NULL && form == CARAT_STATE_RLMS && (sampler = other = stand_in(session, err)) == NULL)
        return false;
    struct snapshot *snapshot = snapshot_new(session, err);
    bool ok = snapshot != NULL;
    if (ok) {
        snapshot->form = form;
        ok = make_head(session, snapshot, sampler, err) && snapshot_take_buffers(snapshot, session->kv, err);
        *n_bytes = snapshot->n_total;
    }
    if (!ok)
        snapshot_end(session);
    sampler_free(other);
    return ok;
}

bool carat_state_save_begin(struct carat_session *session, enum carat_state_form form, uint64_t *n_bytes, struct carat_error *err)
{
    return session_save_begin(session, form, NULL, n_bytes, err);
}

// --- pieces --------------------------------------------------------------------------------------------------------------------

static enum carat_status give(struct snapshot *snapshot, const void *given, size_t n, const void **bytes, size_t *n_bytes)
{
    *bytes = given;
    *n_bytes = n;
    snapshot->n_done += n;
    return CARAT_EVENT;
}

static enum carat_status save_next(struct carat_session *session, const void **bytes, size_t *n_bytes, struct carat_error *err)
{
    struct snapshot *snapshot = session->state;
    struct ops *ops = session->model->ops;
    if (snapshot->n_done == 0)
        return give(snapshot, snapshot->bytes, (size_t)snapshot->head.n_bytes, bytes, n_bytes);
    struct stretch stretch;
    if (!snapshot_next_stretch(snapshot, session->kv, &stretch)) {
        if (snapshot->n_sum_done == snapshot->head.n_sum)
            return CARAT_DONE;
        snapshot->n_sum_done = snapshot->head.n_sum;
        store_u64(snapshot->sum_bytes, xxh64_of(&snapshot->sum));
        return give(snapshot, snapshot->sum_bytes, snapshot->n_sum_done, bytes, n_bytes);
    }
    size_t n = (size_t)stretch.n_rows * (size_t)stretch.layer->row_elems;
    int cache_bytes = stretch.layer->is_f32 ? 4 : 2;
    if (snapshot->ticket < 0) {
        uint64_t offset = (uint64_t)stretch.slot * (uint64_t)stretch.layer->row_elems * (uint64_t)cache_bytes;
        snapshot->ticket = ops->read_start(ops, stretch.buffer, offset, n * (size_t)cache_bytes, snapshot->cache_rows, err);
        if (snapshot->ticket < 0)
            return CARAT_FAILED;
    }
    enum ops_state state = ops->poll(ops, snapshot->ticket, err);
    if (state == OPS_PENDING)
        return CARAT_PENDING;
    snapshot->ticket = -1;
    if (state == OPS_FAILED)
        return CARAT_FAILED;
    int elem_bytes = snapshot->head.elem_bytes;
    if (!snapshot_convert(snapshot->cache_rows, cache_bytes, snapshot->file_rows, elem_bytes, n)) {
        fail(err, CARAT_BAD_NUMBER,
            "keys or values of layer %d are not numbers: the model file is damaged, or the device computes wrongly",
            snapshot->sections[snapshot->section].layer);
        return CARAT_FAILED;
    }
    snapshot_advance(snapshot, stretch.n_rows);
    xxh64_add(&snapshot->sum, snapshot->file_rows, n * (size_t)elem_bytes);
    return give(snapshot, snapshot->file_rows, n * (size_t)elem_bytes, bytes, n_bytes);
}

enum carat_status carat_state_save_next(
    struct carat_session *session, const void **bytes, size_t *n_bytes, struct carat_error *err)
{
    *bytes = NULL;
    *n_bytes = 0;
    if (session->state == NULL || session->state->restoring) {
        fail(err, CARAT_BAD_ARGUMENT, "this session is not being saved: begin with carat_state_save_begin");
        return CARAT_FAILED;
    }
    enum carat_status status = save_next(session, bytes, n_bytes, err);
    if (status == CARAT_DONE || status == CARAT_FAILED)
        snapshot_end(session);
    return status;
}
