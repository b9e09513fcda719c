// towers.c: see towers.h. The cache and the jobs are in tower_jobs.c.

#include "model/towers_internal.h"

#include <stdlib.h>

static const struct gguf_file *file_with(const struct gguf_file *file, const struct gguf_file *projector, enum tower_kind kind)
{
    bool (*exists)(const struct gguf_file *) = kind == TOWER_VISION ? vision_exists : audio_exists;
    return projector != NULL && exists(projector) ? projector : exists(file) ? file : NULL;
}

bool towers_present(const struct gguf_file *file, const struct gguf_file *projector, enum tower_kind kind)
{
    return file_with(file, projector, kind) != NULL;
}

static bool check_width(int32_t d_tower, int32_t d_text, struct carat_error *err)
{
    return d_tower == d_text ||
           fail(err, CARAT_BAD_FILE,
               "the towers give vectors of %d, the text model takes %d: the projector file belongs to another "
               "model",
               (int)d_tower, (int)d_text);
}

bool towers_new(const struct gguf_file *file, const struct gguf_file *projector, enum tower_compat compat, int32_t d_text,
    struct ops *ops, struct towers **out, struct carat_error *err)
{
    const struct gguf_file *vision_file = file_with(file, projector, TOWER_VISION);
    const struct gguf_file *audio_file = file_with(file, projector, TOWER_AUDIO);
    struct towers *towers = calloc(1, sizeof *towers);
    *out = NULL;
    if (towers == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the towers");
    bool any = vision_file != NULL || audio_file != NULL;
    bool done = (!any || (towers->ops = tower_ops_of(ops, err)) != NULL) &&
                (vision_file == NULL || (vision_open(vision_file, compat, &towers->vision, err) &&
                                            check_width(towers->vision->d_text, d_text, err))) &&
                (audio_file == NULL ||
                    (audio_open(audio_file, compat, &towers->audio, err) && check_width(towers->audio->d_text, d_text, err)));
    if (!done) {
        towers_free(towers);
        return false;
    }
    *out = towers;
    return true;
}

void towers_free(struct towers *towers)
{
    if (towers == NULL)
        return;
    cache_empty(towers);
    for (int kind = 0; kind < TOWER_KINDS; kind++)
        towers_release(towers, (enum tower_kind)kind);
    vision_free(towers->vision);
    audio_free(towers->audio);
    if (towers->ops != NULL)
        towers->ops->free(towers->ops);
    free(towers);
}

bool towers_has(const struct towers *towers, enum tower_kind kind)
{
    return kind == TOWER_VISION ? towers->vision != NULL : towers->audio != NULL;
}

struct plan *towers_plan(struct towers *towers, enum tower_kind kind)
{
    if (!towers_has(towers, kind))
        return NULL;
    return kind == TOWER_VISION ? &towers->vision->plan : &towers->audio->plan;
}

uint64_t towers_weight_bytes(const struct towers *towers, enum tower_kind kind)
{
    if (!towers_has(towers, kind))
        return 0;
    return kind == TOWER_VISION ? towers->vision->plan.n_bytes : towers->audio->plan.n_bytes;
}

uint64_t towers_job_bytes(const struct towers *towers, enum tower_kind kind, int32_t n_tokens)
{
    if (!towers_has(towers, kind))
        return 0;
    return kind == TOWER_VISION ? vision_run_bytes(towers->vision, towers->ops->tile_rows, n_tokens)
                                : audio_run_bytes(towers->audio, n_tokens);
}

bool towers_loaded(const struct towers *towers, enum tower_kind kind)
{
    return towers->loaded[kind];
}

bool towers_load(struct towers *towers, enum tower_kind kind, plan_progress *progress, void *context, struct carat_error *err)
{
    if (!towers_has(towers, kind))
        return fail(err, CARAT_UNSUPPORTED, "this model cannot %s: its files hold no such tower",
            kind == TOWER_VISION ? "see images" : "hear sounds");
    if (towers->loaded[kind])
        return true;
    if (!plan_load(towers_plan(towers, kind), towers->ops->ops, progress, context, err))
        return false;
    towers_ready(towers, kind);
    return true;
}

void towers_ready(struct towers *towers, enum tower_kind kind)
{
    if (kind == TOWER_VISION)
        vision_ready(towers->vision);
    towers->loaded[kind] = true;
}

void towers_release(struct towers *towers, enum tower_kind kind)
{
    if (towers->loaded[kind])
        plan_unload(towers_plan(towers, kind), towers->ops->ops);
    towers->loaded[kind] = false;
}

bool towers_image_tokens(
    const struct towers *towers, int32_t width, int32_t height, int32_t budget, int32_t *n_tokens, struct carat_error *err)
{
    int32_t target_width = 0, target_height = 0;
    if (towers->vision == NULL)
        return fail(err, CARAT_UNSUPPORTED, "this model cannot see images: its files hold no vision tower");
    if (!image_target_size(width, height, budget != 0 ? budget : IMAGE_DEFAULT_TOKENS, vision_image_rule(towers->vision),
            &target_width, &target_height, err))
        return false;
    *n_tokens = target_width / IMAGE_CELL * (target_height / IMAGE_CELL);
    return true;
}

bool towers_audio_pieces(const struct towers *towers, int64_t n_samples, int32_t *n_pieces, struct carat_error *err)
{
    if (towers->audio == NULL)
        return fail(err, CARAT_UNSUPPORTED, "this model cannot hear sounds: its files hold no audio tower");
    *n_pieces = towers->audio->encoder_free ? n_samples > 0 : sound_piece_count(audio_mel_rule(towers->audio), n_samples);
    return *n_pieces > 0 ||
           fail(err, CARAT_UNSUPPORTED, "the sound has %lld samples at 16 kHz, too few to be heard: %lld are needed",
               (long long)n_samples, (long long)mel_least_samples(audio_mel_rule(towers->audio)));
}

int32_t towers_piece_tokens(const struct towers *towers, int64_t n_samples, int32_t piece)
{
    int64_t n = towers->audio->encoder_free ? n_samples : sound_piece_samples(n_samples, piece);
    return (int32_t)audio_token_count(towers->audio, n);
}
