// media.c: images and sounds of a prompt become soft tokens, a step at a time.

#include "base/clock.h"
#include "engine/session.h"
#include "media/sound.h"

static const char *kind_name(const struct carat_media *media)
{
    return media->kind == CARAT_IMAGE ? "images" : "sounds";
}

static enum tower_kind tower_of(const struct carat_media *media)
{
    return media->kind == CARAT_IMAGE ? TOWER_VISION : TOWER_AUDIO;
}

static int32_t image_budget(const struct carat_media *media)
{
    return media->image_tokens != 0 ? media->image_tokens : IMAGE_DEFAULT_TOKENS;
}

// What the content is hashed by must be there before anything looks at it.
static bool check_medium(const struct carat_media *media, struct carat_error *err)
{
    if (media->kind != CARAT_IMAGE && media->kind != CARAT_AUDIO)
        return fail(err, CARAT_BAD_ARGUMENT, "a medium is of kind %d: use CARAT_IMAGE or CARAT_AUDIO", (int)media->kind);
    if (media->kind == CARAT_IMAGE && media->rgb == NULL)
        return fail(err, CARAT_BAD_ARGUMENT, "an image has no pixels: rgb is NULL");
    if (media->kind == CARAT_IMAGE && (int64_t)media->width * media->height > IMAGE_MAX_PIXELS)
        return fail(err, CARAT_UNSUPPORTED, "an image of %d x %d pixels is too large: make it smaller than %d million pixels",
            media->width, media->height, IMAGE_MAX_PIXELS / 1000000);
    if (media->kind == CARAT_AUDIO && (media->n_samples < 0 || (media->samples == NULL && media->n_samples > 0)))
        return fail(err, CARAT_BAD_ARGUMENT, "a sound has no samples: samples is NULL or n_samples negative");
    return media->kind != CARAT_AUDIO || sound_check_samples(media->samples, media->n_samples, err);
}

bool session_count_soft(struct carat_session *session, const struct carat_media *media, int32_t *n_pieces,
    int32_t *n_soft_of_piece, int32_t max_pieces, struct carat_error *err)
{
    struct towers *towers = session->model->towers;
    if (!check_medium(media, err))
        return false;
    if (towers == NULL || !towers_has(towers, tower_of(media)))
        return fail(err, CARAT_UNSUPPORTED,
            "the model '%s' takes no %s: use a file that holds that tower, or add its mmproj file", session->model->name,
            kind_name(media));
    if (media->kind == CARAT_IMAGE) {
        *n_pieces = 1;
        return towers_image_tokens(towers, media->width, media->height, image_budget(media), &n_soft_of_piece[0], err);
    }
    if (!towers_audio_pieces(towers, media->n_samples, n_pieces, err))
        return false;
    if (*n_pieces > max_pieces)
        return fail(err, CARAT_UNSUPPORTED, "a sound of %lld s is too long: %d pieces of 30 s are allowed",
            (long long)(media->n_samples / 16000), max_pieces);
    for (int32_t piece = 0; piece < *n_pieces; piece++)
        n_soft_of_piece[piece] = towers_piece_tokens(towers, media->n_samples, piece);
    return true;
}

static struct tower_job *begin_job(struct towers *towers, const struct carat_media *media, int32_t piece, struct carat_error *err)
{
    if (media->kind == CARAT_IMAGE)
        return towers_begin_image(towers, media->rgb, media->width, media->height, image_budget(media), err);
    return towers_begin_audio(towers, media->samples, media->n_samples, piece, err);
}

// What was seen before needs no weights; so they are loaded only when the job cannot begin without.
static bool start(struct carat_session *session, struct segment *segment, struct carat_error *err)
{
    struct towers *towers = session->model->towers;
    const struct carat_media *media = &session->media[segment->media];
    session->job = begin_job(towers, media, segment->piece, err);
    if (session->job == NULL && !towers_loaded(towers, tower_of(media))) {
        if (!towers_load(towers, tower_of(media), NULL, NULL, err))
            return false;
        session->job = begin_job(towers, media, segment->piece, err);
    }
    return session->job != NULL;
}

static void land(struct carat_session *session, struct segment *segment)
{
    segment->soft = towers_result(session->job);
    segment->rows = segment->soft->rows;
    towers_end(session->job);
    session->job = NULL;
}

// The first segment that is needed and has no soft tokens yet; NULL: none.
static struct segment *next_segment(struct carat_session *session)
{
    for (int32_t i = 0; i < session->n_segments; i++) {
        struct segment *segment = &session->segments[i];
        if (segment->soft == NULL && segment->start + segment->n > session->kv->n_committed)
            return segment;
    }
    return NULL;
}

static void note_time(struct carat_session *session)
{
    session->usage.encode_ms = clock_ms() - session->begin_ms;
}

enum carat_status session_encode_media(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    struct segment *segment = next_segment(session);
    if (segment == NULL) {
        session->phase = PHASE_PREFILL;
        return CARAT_DONE;
    }
    if (session->job == NULL && !start(session, segment, err))
        return CARAT_FAILED;
    int32_t done = 0;
    int32_t total = 0;
    enum ops_state state = towers_step(session->job, &done, &total, err);
    note_time(session);
    if (state == OPS_FAILED)
        return CARAT_FAILED;
    if (state == OPS_DONE)
        land(session, segment);
    else if (towers_ticket(session->job) >= 0 && done == session->job_done)
        return CARAT_PENDING;
    session->job_done = done;
    *event = (struct carat_event){.kind = CARAT_EVENT_ENCODING, .n_done = done, .n_total = total};
    return CARAT_EVENT;
}

void session_drop_media(struct carat_session *session)
{
    towers_end(session->job);
    session->job = NULL;
    for (int32_t i = 0; i < session->n_segments; i++) {
        towers_drop(session->model->towers, session->segments[i].soft);
        session->segments[i].soft = NULL;
    }
}
