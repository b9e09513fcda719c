// state_fuzz.c: any bytes as a saved state, given in pieces: an error, or a session that saves what it took.
//
// The model is two layers of keys without a file behind them. Sizes, digests and checksums, which a fuzzer can't guess, are put
// right.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "engine/snapshot.h"
#include "ref/ref.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { CONTEXT = 24, WINDOW = 4, N_VOCAB = 100 };

static struct gemma4_layer layers[] = {
    {.sliding = true, .head_dim = 4, .n_kv_heads = 2, .kv_owner = 0},
    {.head_dim = 8, .n_kv_heads = 1, .kv_owner = 1},
    {.head_dim = 8, .n_kv_heads = 1, .kv_owner = 1},
};

static struct carat_session *make_session(void)
{
    static const uint8_t header[] = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    static struct gemma4_text text = {
        .config = {.n_layers = 3, .n_kv_layers = 2, .n_vocab = N_VOCAB, .window = WINDOW, .n_heads = 2, .layers = layers}};
    static struct carat_model model = {.name = "fuzz", .text = &text};
    static struct carat_session session = {.model = &model};
    struct gguf_source *source = gguf_source_memory(header, sizeof header, "memory", NULL);
    struct kv_options options = {.n_context = CONTEXT, .max_batch = 2, .n_rewind = 3};
    model.ops = ref_ops_new(NULL);
    session.kv = kv_cache_new(model.ops, &text.config, &options, NULL);
    session.ids = calloc(CONTEXT, sizeof *session.ids);
    session.keys = calloc(CONTEXT, sizeof *session.keys);
    if (source == NULL || !gguf_open(&source, 1, &model.file, NULL) || session.kv == NULL || session.ids == NULL)
        abort();
    return &session;
}

static void put_sums_right(uint8_t *bytes, size_t n)
{
    if (load_u32(bytes + 4) != CRTS_VERSION)
        return;
    store_u32(bytes + CRTS_SUMMED_BYTES, (uint32_t)xxh64(bytes, CRTS_SUMMED_BYTES));
    // The end of the head, by what it says itself.
    uint64_t at = CRTS_HEAD_BYTES + (uint64_t)load_u32(bytes + 52) + load_u32(bytes + 48) + 12 * (uint64_t)load_u32(bytes + 32) +
                  CRTS_SECTION_BYTES * (uint64_t)load_u32(bytes + 44);
    if (at + 2 * CRTS_SUM_BYTES > n)
        return;
    store_u64(bytes + at, xxh64(bytes, at));
    store_u64(bytes + n - CRTS_SUM_BYTES, xxh64(bytes + at + CRTS_SUM_BYTES, n - at - 2 * CRTS_SUM_BYTES));
}

static void put_right(const struct carat_session *session, uint8_t *bytes, size_t n)
{
    if (n >= CRTS_HEAD_BYTES && memcmp(bytes, "CRTS", 4) == 0) {
        store_u64(store_u64(store_u64(bytes + 8, n), model_digest(session->model)), 0);
        store_u32(bytes + 36, snapshot_layout_hash(session->kv->config));
        put_sums_right(bytes, n);
    }
    if (n < RLMS_HEAD_BYTES || memcmp(bytes, "RLMS", 4) != 0)
        return;
    uint64_t kv_at = RLMS_HEAD_BYTES + (uint64_t)load_u32(bytes + 8);
    if (kv_at + RLKV_HEAD_BYTES > n)
        return;
    store_u32(bytes + 12, (uint32_t)(n - kv_at));
    store_u32(bytes + kv_at + 12, snapshot_layout_hash(session->kv->config));
}

static bool restore(struct carat_session *session, const uint8_t *bytes, size_t n, size_t piece, struct carat_error *err)
{
    if (!carat_state_restore_begin(session, n, err))
        return false;
    for (size_t at = 0; at < n; at += piece) {
        if (!carat_state_restore_write(session, bytes + at, n - at < piece ? n - at : piece, err))
            return false;
    }
    return carat_state_restore_end(session, err);
}

static void save(struct carat_session *session)
{
    const void *bytes;
    size_t n;
    uint64_t n_total, n_saved = 0;
    if (!carat_state_save_begin(session, CARAT_STATE_OWN, &n_total, NULL))
        abort();
    while (carat_state_save_next(session, &bytes, &n, NULL) == CARAT_EVENT)
        n_saved += n;
    if (n_saved != n_total)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static struct carat_session *session;
    if (session == NULL)
        session = make_session();
    if (n_bytes < 2)
        return 0;
    size_t piece = 1 + data[0] % 64;
    size_t n = n_bytes - 1;
    uint8_t *bytes = malloc(n);
    if (bytes == NULL)
        return 0;
    memcpy(bytes, data + 1, n);
    put_right(session, bytes, n);
    int32_t before = session->kv->n_committed;
    struct carat_error err = {0};
    if (restore(session, bytes, n, piece, &err)) {
        if (session->n_ids != session->kv->n_committed || session->n_ids > CONTEXT)
            abort();
        save(session);
    } else if (err.code == CARAT_OK || err.message[0] == '\0' || session->phase != PHASE_IDLE) {
        abort();
    } else if (session->kv->n_committed != before && strstr(err.message, "empty now") == NULL) {
        abort();
    }
    free(bytes);
    return 0;
}
