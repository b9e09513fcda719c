// prompt.c: from a list of ids to what the cache must hold: media widened, the common beginning kept.

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "engine/reuse.h"
#include "engine/session.h"

enum { MAX_PIECES = 512 };

// --- widening ------------------------------------------------------------------------------------------------------------------

struct markers {
    int32_t begin, placeholder, end;
};

static struct markers markers_of(const struct tokenizer *tok, bool is_image)
{
    return is_image ? (struct markers){tokenizer_marker(tok, TOK_IMAGE_BEGIN), tokenizer_marker(tok, TOK_IMAGE),
                          tokenizer_marker(tok, TOK_IMAGE_END)}
                    : (struct markers){tokenizer_marker(tok, TOK_AUDIO_BEGIN), tokenizer_marker(tok, TOK_AUDIO),
                          tokenizer_marker(tok, TOK_AUDIO_END)};
}

static bool is_placeholder(const struct tokenizer *tok, int32_t id)
{
    enum tokenizer_marker marker = tokenizer_marker_of(tok, id);
    return marker == TOK_IMAGE || marker == TOK_AUDIO;
}

static uint64_t hash_media(const struct carat_media *media)
{
    int64_t shape[4] = {media->kind, media->width, media->height, media->image_tokens};
    uint64_t hash = hash_bytes(HASH_START, shape, sizeof shape);
    if (media->kind == CARAT_IMAGE)
        return hash_bytes(hash, media->rgb, (size_t)media->width * (size_t)media->height * 3);
    return hash_bytes(hash, media->samples, (size_t)media->n_samples * sizeof(float));
}

static bool add_segment(
    struct carat_session *session, int32_t start, int32_t n, int32_t media, int32_t piece, struct carat_error *err)
{
    struct segment *grown = realloc(session->segments, (size_t)(session->n_segments + 1) * sizeof *grown);
    if (grown == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the list of images and sounds");
    session->segments = grown;
    uint64_t hash = hash_bytes(hash_media(&session->media[media]), &piece, sizeof piece);
    grown[session->n_segments++] = (struct segment){.start = start, .n = n, .media = media, .piece = piece, .hash = hash};
    return true;
}

// Puts the soft tokens of medium k in the place of its placeholder. Sentinels stand around every piece (in llama.cpp around all
// of them together); those at the outer ends may be in the prompt already.
static bool widen_one(struct carat_session *session, int32_t k, bool begun, bool ended, struct carat_error *err)
{
    const struct tokenizer *tok = session->model->tok;
    struct markers markers = markers_of(tok, session->media[k].kind == CARAT_IMAGE);
    int32_t n_soft[MAX_PIECES];
    int32_t n_pieces;
    if (!session_count_soft(session, &session->media[k], &n_pieces, n_soft, MAX_PIECES, err))
        return false;
    struct token_list *prompt = &session->prompt;
    bool apart = session->model->compat != CARAT_COMPAT_LLAMA_CPP;
    for (int32_t piece = 0; piece < n_pieces; piece++) {
        if ((piece > 0 ? apart : !begun) && !token_list_push(prompt, markers.begin, err))
            return false;
        if (!add_segment(session, (int32_t)prompt->n, n_soft[piece], k, piece, err))
            return false;
        for (int32_t i = 0; i < n_soft[piece]; i++) {
            if (!token_list_push(prompt, markers.placeholder, err))
                return false;
        }
        if ((piece + 1 < n_pieces ? apart : !ended) && !token_list_push(prompt, markers.end, err))
            return false;
    }
    return true;
}

static bool widen(struct carat_session *session, const int32_t *ids, int32_t n_ids, int32_t n_media, struct carat_error *err)
{
    const struct tokenizer *tok = session->model->tok;
    int32_t n_vocab = session->model->text->config.n_vocab;
    int32_t n_used = 0;
    for (int32_t i = 0; i < n_ids;) {
        if (ids[i] < 0 || ids[i] >= n_vocab)
            return fail(
                err, CARAT_BAD_ARGUMENT, "token id %d at position %d is outside the vocabulary of %d", ids[i], i, n_vocab);
        if (n_media == 0 || !is_placeholder(tok, ids[i])) {
            if (!token_list_push(&session->prompt, ids[i++], err))
                return false;
            continue;
        }
        if (n_used == n_media)
            return fail(err, CARAT_BAD_ARGUMENT, "the prompt has places for more than the %d images and sounds given", n_media);
        bool is_image = tokenizer_marker_of(tok, ids[i]) == TOK_IMAGE;
        if (is_image != (session->media[n_used].kind == CARAT_IMAGE))
            return fail(err, CARAT_BAD_ARGUMENT, "place %d in the prompt is for %s, but medium %d is another kind", n_used + 1,
                is_image ? "an image" : "a sound", n_used + 1);
        struct markers markers = markers_of(tok, is_image);
        bool begun = i > 0 && ids[i - 1] == markers.begin;
        int32_t placeholder = ids[i];
        while (i < n_ids && ids[i] == placeholder)
            i++;
        if (!widen_one(session, n_used++, begun, i < n_ids && ids[i] == markers.end, err))
            return false;
    }
    if (n_used < n_media)
        return fail(
            err, CARAT_BAD_ARGUMENT, "%d images and sounds were given, but the prompt has places for %d", n_media, n_used);
    return true;
}

// --- the common beginning ------------------------------------------------------------------------------------------------------

// Aligning may have moved the soft tokens: finds them again. Runs of placeholders come in the order of the segments.
static void locate_segments(struct carat_session *session)
{
    const struct tokenizer *tok = session->model->tok;
    size_t at = 0;
    for (int32_t i = 0; i < session->n_segments; i++) {
        while (at < session->prompt.n && !is_placeholder(tok, session->prompt.ids[at]))
            at++;
        session->segments[i].start = (int32_t)at;
        at += (size_t)session->segments[i].n;
    }
}

// The key of position p: its id, or the hash of the medium and the place in it.
static uint64_t key_at(const struct carat_session *session, int32_t p)
{
    for (int32_t i = 0; i < session->n_segments; i++) {
        const struct segment *segment = &session->segments[i];
        if (p >= segment->start && p < segment->start + segment->n)
            return SESSION_SOFT_KEY | (segment->hash + (uint64_t)(p - segment->start) * 2);
    }
    return (uint64_t)session->prompt.ids[p];
}

// How many positions of the prompt the cache already holds. The last one is always computed again, for its logits; an image that
// is seen both ways is kept as a whole or not at all.
static int32_t common_beginning(const struct carat_session *session)
{
    int32_t limit = (int32_t)session->prompt.n - 1;
    if (session->kv->n_committed < limit)
        limit = session->kv->n_committed;
    int32_t n = 0;
    while (n < limit && session->keys[n] == key_at(session, n))
        n++;
    for (int32_t i = 0; i < session->n_segments && session->model->text->config.image_attention != IMAGES_CAUSAL; i++) {
        const struct segment *segment = &session->segments[i];
        if (segment->start < n && n < segment->start + segment->n)
            n = segment->start;
    }
    return n;
}

static bool check_runs(const struct carat_session *session, struct carat_error *err)
{
    for (int32_t i = 0; i < session->n_segments && session->model->text->config.image_attention != IMAGES_CAUSAL; i++) {
        const struct segment *segment = &session->segments[i];
        if (session->media[segment->media].kind == CARAT_IMAGE && segment->n > session->batch)
            return fail(err, CARAT_BAD_ARGUMENT,
                "an image of %d tokens does not fit a batch of %d, which this model needs: choose a larger batch or fewer image "
                "tokens",
                segment->n, session->batch);
    }
    return true;
}

// Positions whose ids are known: all of them, or none that could be compared with the beginning of a prompt.
static int32_t known_positions(const struct carat_session *session)
{
    int32_t n = session->kv->n_committed;
    return n > 0 && session->keys[0] == SESSION_UNKNOWN_KEY ? 0 : n;
}

bool session_take_prompt(struct carat_session *session, const int32_t *ids, int32_t n_ids, const struct carat_media *media,
    int32_t n_media, struct carat_error *err)
{
    session->media = media;
    if (session->adapter_changes != session->model->adapter_changes)
        kv_truncate(session->kv, 0, NULL);
    session->adapter_changes = session->model->adapter_changes;
    if (n_ids <= 0)
        return fail(err, CARAT_BAD_ARGUMENT, "the prompt is empty: give at least one token");
    if (!widen(session, ids, n_ids, n_media, err) ||
        !reuse_align(session->model->tok, session->ids, (size_t)known_positions(session), &session->prompt, err))
        return false;
    locate_segments(session);
    if (session->prompt.n > (size_t)session->kv->n_context)
        return fail(err, CARAT_CONTEXT_FULL,
            "the prompt has %zu tokens, but the context holds %d: shorten it or choose a larger context", session->prompt.n,
            session->kv->n_context);
    if (!check_runs(session, err))
        return false;
    int32_t n_common = common_beginning(session);
    if (n_common < session->kv->n_committed && !kv_truncate(session->kv, n_common, NULL))
        kv_truncate(session->kv, 0, NULL);
    for (int32_t p = session->kv->n_committed; p < (int32_t)session->prompt.n; p++) {
        session->ids[p] = session->prompt.ids[p];
        session->keys[p] = key_at(session, p);
    }
    session->n_ids = (int32_t)session->prompt.n;
    return true;
}
