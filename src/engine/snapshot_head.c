// snapshot_head.c: reading and checking the head of a saved state.
//
// A head is read in steps: each says how many bytes the next one needs, and every size is bounded before that many are asked for.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "engine/snapshot.h"

// --- sizes ---------------------------------------------------------------------------------------------------------------------

static bool bad(struct carat_error *err, const char *what)
{
    return fail(err, CARAT_BAD_FILE, "the saved state is damaged: %s", what);
}

// The head has at least n_bytes bytes: makes room for them.
static bool ask_for(struct snapshot *snapshot, uint64_t n_bytes, struct carat_error *err)
{
    if (n_bytes > snapshot->n_total)
        return fail(err, CARAT_BAD_FILE, "the saved state is cut off: it has %llu bytes, its beginning alone takes %llu",
            (unsigned long long)snapshot->n_total, (unsigned long long)n_bytes);
    uint8_t *grown = realloc(snapshot->bytes, (size_t)n_bytes);
    if (grown == NULL)
        return fail(
            err, CARAT_NO_MEMORY, "no memory for the %llu bytes that a saved state begins with", (unsigned long long)n_bytes);
    snapshot->bytes = grown;
    snapshot->head.n_bytes = n_bytes;
    return true;
}

static bool check_total(const struct snapshot *snapshot, uint64_t n_promised, struct carat_error *err)
{
    return n_promised == snapshot->n_total ||
           fail(err, CARAT_BAD_FILE, "the saved state has %llu bytes, but %llu by what it says itself: it is cut off or damaged",
               (unsigned long long)snapshot->n_total, (unsigned long long)n_promised);
}

// --- what both forms hold ------------------------------------------------------------------------------------------------------

static bool check_shape(
    const struct carat_session *session, struct snapshot *snapshot, uint32_t position, uint32_t hash, struct carat_error *err)
{
    uint32_t own = snapshot_layout_hash(session->kv->config);
    if (hash != own)
        return fail(err, CARAT_BAD_ARGUMENT,
            "the state was saved with a model of another shape (layout hash %08x, that of '%s' is %08x): load the model it "
            "came from, or feed the tokens again",
            hash, session->model->name, own);
    if (position > (uint32_t)session->kv->n_context)
        return fail(err, CARAT_CONTEXT_FULL, "the state holds %u positions, but the context has %d: choose a larger context",
            position, session->kv->n_context);
    snapshot->head.position = (int32_t)position;
    return true;
}

static bool check_section_count(
    const struct carat_session *session, struct snapshot *snapshot, uint32_t n_sections, struct carat_error *err)
{
    uint32_t n_wanted = snapshot->head.position > 0 ? (uint32_t)session->kv->config->n_kv_layers : 0;
    snapshot->head.n_sections = (int32_t)n_wanted;
    return n_sections == n_wanted ||
           fail(err, CARAT_BAD_FILE, "the saved state is damaged: it has keys and values of %u layers, the model '%s' of %u",
               n_sections, session->model->name, n_wanted);
}

// Section i, whose layer, positions, key heads and their width the file names.
static bool take_section(
    const struct carat_session *session, struct snapshot *snapshot, int32_t i, const uint32_t says[4], struct carat_error *err)
{
    const struct gemma4_config *config = session->kv->config;
    const struct gemma4_layer *layer = &config->layers[i];
    int32_t position = snapshot->head.position;
    int32_t n_least = !layer->sliding || position < config->window - 1 ? position : config->window - 1;
    if (says[0] != (uint32_t)i)
        return fail(err, CARAT_BAD_FILE, "the saved state is damaged: layer %u stands in the place of layer %d", says[0], i);
    if (says[2] != (uint32_t)layer->n_kv_heads || says[3] != (uint32_t)layer->head_dim)
        return fail(err, CARAT_BAD_FILE,
            "the saved state is damaged: it says %u key heads of %u for layer %d, which has %d of %d", says[2], says[3], i,
            layer->n_kv_heads, layer->head_dim);
    if (says[1] > (uint32_t)position || says[1] < (uint32_t)n_least)
        return fail(err, CARAT_BAD_FILE,
            "the saved state holds %u positions of layer %d; going on at position %d needs at least %d and at most %d: feed the "
            "tokens again",
            says[1], i, position, n_least, position);
    snapshot->sections[i] = (struct snapshot_section){.layer = i, .n = (int32_t)says[1]};
    return true;
}

static bool check_sampler(const struct carat_session *session, const struct snapshot *snapshot, struct carat_error *err)
{
    const struct snapshot_head *head = &snapshot->head;
    struct sampler_params params = sampler_original_defaults();
    struct sampler *trial = sampler_new(session->model->text->config.n_vocab, &params, NULL, 0, err);
    bool ok = trial != NULL && sampler_restore(trial, snapshot->bytes + head->sampler_at, head->n_sampler, err);
    sampler_free(trial);
    return ok;
}

static bool read_sections(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    bool original = snapshot->form == CARAT_STATE_RLMS;
    int32_t n_sections = snapshot->head.n_sections;
    snapshot->sections = calloc((size_t)n_sections + 1, sizeof *snapshot->sections);
    if (snapshot->sections == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a saved state of %d layers", n_sections);
    const uint8_t *at = snapshot->bytes + snapshot->head.sections_at;
    for (int32_t i = 0; i < n_sections; i++, at += original ? RLKV_SECTION_BYTES : CRTS_SECTION_BYTES) {
        uint32_t heads = original ? load_u16(at + 8) : load_u32(at + 8);
        uint32_t width = original ? load_u16(at + 10) : load_u32(at + 12);
        if (!take_section(session, snapshot, i, (uint32_t[]){load_u32(at), load_u32(at + 4), heads, width}, err))
            return false;
    }
    return true;
}

// --- the original's form -------------------------------------------------------------------------------------------------------

static bool read_rlms(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    (void)session;
    struct snapshot_head *head = &snapshot->head;
    uint32_t n_sampler = load_u32(snapshot->bytes + 8);
    uint64_t n_kv = load_u32(snapshot->bytes + 12);
    if (snapshot->bytes[4] != RLMS_VERSION)
        return fail(err, CARAT_UNSUPPORTED, "the saved state is RLMS version %d; version 1 is known", snapshot->bytes[4]);
    if (n_sampler == 0 || n_sampler > MAX_SAMPLER_BYTES)
        return bad(err, "its sampler's part has an impossible length");
    head->sampler_at = RLMS_HEAD_BYTES;
    head->n_sampler = n_sampler;
    head->sections_at = RLMS_HEAD_BYTES + n_sampler + RLKV_HEAD_BYTES;
    return check_total(snapshot, RLMS_HEAD_BYTES + n_sampler + n_kv, err) && ask_for(snapshot, head->sections_at, err);
}

static bool read_rlkv(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    struct snapshot_head *head = &snapshot->head;
    const uint8_t *kv = snapshot->bytes + head->sections_at - RLKV_HEAD_BYTES;
    if (memcmp(kv, "RLKV", 4) != 0)
        return bad(err, "its keys and values do not begin with RLKV");
    if (kv[4] != RLMS_VERSION)
        return fail(err, CARAT_UNSUPPORTED, "the saved state's keys are RLKV version %d; version 1 is known", kv[4]);
    head->elem_bytes = 4;
    return check_shape(session, snapshot, load_u32(kv + 8), load_u32(kv + 12), err) &&
           check_section_count(session, snapshot, kv[5], err) &&
           ask_for(snapshot, head->sections_at + RLKV_SECTION_BYTES * (uint64_t)head->n_sections, err);
}

// --- carat's own form ----------------------------------------------------------------------------------------------------------

static bool read_crts(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    (void)session;
    struct snapshot_head *head = &snapshot->head;
    const uint8_t *bytes = snapshot->bytes;
    uint32_t version = load_u32(bytes + 4);
    uint32_t elem_bytes = load_u32(bytes + 40);
    uint32_t n_sampler = load_u32(bytes + 48);
    uint32_t n_name = load_u32(bytes + 52);
    if (version < 1 || version > CRTS_VERSION)
        return fail(err, CARAT_UNSUPPORTED,
            "the saved state is version %u of carat's form; versions 1 to %d are known: use a newer carat, or feed the tokens "
            "again",
            version, CRTS_VERSION);
    head->n_sum = version == 1 ? 0 : CRTS_SUM_BYTES;
    if (head->n_sum != 0 && load_u32(bytes + CRTS_SUMMED_BYTES) != (uint32_t)xxh64(bytes, CRTS_SUMMED_BYTES))
        return bad(err, "its first 64 bytes do not have the checksum that they say");
    if (!check_total(snapshot, load_u64(bytes + 8), err))
        return false;
    if (n_sampler > MAX_SAMPLER_BYTES || n_name > MAX_NAME_BYTES)
        return bad(err, "its sampler's part or its model's name has an impossible length");
    if (elem_bytes != 2 && elem_bytes != 4)
        return bad(err, "its numbers have neither 2 nor 4 bytes");
    if (head->n_sum == 0 && load_u32(bytes + CRTS_SUMMED_BYTES) != 0)
        return bad(err, "a field that must be 0 is not");
    head->elem_bytes = (int)elem_bytes;
    head->sampler_at = CRTS_HEAD_BYTES + n_name;
    head->n_sampler = n_sampler;
    head->ids_at = head->sampler_at + n_sampler;
    return ask_for(snapshot, head->sampler_at, err);
}

static bool read_origin(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    const struct carat_model *model = session->model;
    struct snapshot_head *head = &snapshot->head;
    const uint8_t *bytes = snapshot->bytes;
    size_t n_name = head->sampler_at - CRTS_HEAD_BYTES;
    char name[MAX_NAME_BYTES + 1] = {0};
    memcpy(name, bytes + CRTS_HEAD_BYTES, n_name);
    for (size_t i = 0; i < n_name; i++) { // it goes into a sentence, which must stay UTF-8
        if ((unsigned char)name[i] < 0x20 || (unsigned char)name[i] >= 0x7f)
            name[i] = '?';
    }
    if (load_u64(bytes + 16) != model_digest(model))
        return fail(err, CARAT_BAD_ARGUMENT,
            "the state was saved with another model, '%s': load that one; the one in use is '%s'", name, model->name);
    if (load_u64(bytes + 24) != model_adapters_digest(model))
        return fail(err, CARAT_BAD_ARGUMENT,
            "the state was saved with other adapters or strengths (%u adapters then, %d now): load the same ones, or feed the "
            "tokens again",
            load_u32(bytes + 56), model->n_adapters);
    if (!check_shape(session, snapshot, load_u32(bytes + 32), load_u32(bytes + 36), err) ||
        !check_section_count(session, snapshot, load_u32(bytes + 44), err))
        return false;
    head->keys_at = head->ids_at + 4 * (size_t)head->position;
    head->sections_at = head->keys_at + 8 * (size_t)head->position;
    return ask_for(snapshot, head->sections_at + CRTS_SECTION_BYTES * (uint64_t)head->n_sections + head->n_sum, err);
}

static bool check_head_sum(const struct snapshot *snapshot, struct carat_error *err)
{
    size_t n = (size_t)snapshot->head.n_bytes - snapshot->head.n_sum;
    return snapshot->head.n_sum == 0 || load_u64(snapshot->bytes + n) == xxh64(snapshot->bytes, n) ||
           bad(err, "its tokens and its table of layers do not have the checksum that it says");
}

static bool check_ids(const struct carat_session *session, const struct snapshot *snapshot, struct carat_error *err)
{
    const struct snapshot_head *head = &snapshot->head;
    uint32_t n_vocab = (uint32_t)session->model->text->config.n_vocab;
    for (int32_t p = 0; head->ids_at != 0 && p < head->position; p++) {
        uint32_t id = load_u32(snapshot->bytes + head->ids_at + 4 * (size_t)p);
        uint64_t key = load_u64(snapshot->bytes + head->keys_at + 8 * (size_t)p);
        if (id >= n_vocab)
            return fail(err, CARAT_BAD_FILE, "the saved state is damaged: id %u at position %d is outside the vocabulary of %u",
                id, p, n_vocab);
        if (key != id && (key & SESSION_SOFT_KEY) == 0 && key != SESSION_UNKNOWN_KEY)
            return fail(
                err, CARAT_BAD_FILE, "the saved state is damaged: the key at position %d is neither an id nor a medium", p);
    }
    return true;
}

// --- step by step --------------------------------------------------------------------------------------------------------------

static bool read_magic(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    (void)session;
    bool own = memcmp(snapshot->bytes, "CRTS", MAGIC_BYTES) == 0;
    if (!own && memcmp(snapshot->bytes, "RLMS", MAGIC_BYTES) != 0)
        return fail(err, CARAT_BAD_FILE, "this is no saved state: it begins with neither CRTS nor RLMS");
    snapshot->form = own ? CARAT_STATE_OWN : CARAT_STATE_RLMS;
    return ask_for(snapshot, own ? CRTS_HEAD_BYTES : RLMS_HEAD_BYTES, err);
}

static bool read_rest(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    const struct snapshot_head *head = &snapshot->head;
    snapshot->complete =
        check_head_sum(snapshot, err) && read_sections(session, snapshot, err) && check_ids(session, snapshot, err) &&
        check_total(snapshot, head->n_bytes + snapshot_payload_bytes(snapshot, session->kv->config) + head->n_sum, err) &&
        (head->n_sampler == 0 || check_sampler(session, snapshot, err));
    return snapshot->complete;
}

bool snapshot_read_head(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err)
{
    typedef bool step(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err);
    static step *const rlms[] = {read_magic, read_rlms, read_rlkv, read_rest};
    static step *const crts[] = {read_magic, read_crts, read_origin, read_rest};
    if (snapshot->head.n_bytes == 0)
        return ask_for(snapshot, MAGIC_BYTES, err);
    while (!snapshot->complete && snapshot->n_have == snapshot->head.n_bytes) {
        step *const *steps = snapshot->form == CARAT_STATE_OWN ? crts : rlms;
        if (!steps[snapshot->n_steps++](session, snapshot, err))
            return false;
    }
    return true;
}
