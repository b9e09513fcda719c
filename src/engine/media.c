// media.c: images and sounds of a prompt.

#include "engine/session.h"

bool session_count_soft(struct carat_session *session, const struct carat_media *media, int32_t *n_pieces,
    int32_t *n_soft_of_piece, int32_t max_pieces, struct carat_error *err)
{
    (void)n_pieces, (void)n_soft_of_piece, (void)max_pieces;
    bool is_image = media->kind == CARAT_IMAGE;
    return fail(err, CARAT_UNSUPPORTED, "the model '%s' takes no %s", session->model->name, is_image ? "images" : "sounds");
}

enum carat_status session_encode_media(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    (void)event, (void)err;
    session->phase = PHASE_PREFILL;
    return CARAT_DONE;
}
