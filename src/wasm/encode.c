// encode.c: an image or a sound step by step, and its rows read back.

#include "wasm/encode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "media/sound.h"
#include "model/towers_internal.h"

enum { CELL = 48 }; // pixels of a soft token's side

struct encoder {
    struct carat_model *model;
    struct image image;       // vision: owned
    struct vision_run vision; // running while vision.tower != NULL
    const float *samples;     // audio
    int64_t n_samples;
    int32_t n_pieces, piece;
    struct tower_job *job;    // of the piece; NULL: not begun
    struct soft_tokens *soft; // being read
    float *rows;              // [n_rows, d]
    int32_t n_rows, n_read;
    int32_t ticket;  // of a read-back under way; -1: none
    uint32_t probe;  // where read-backs go that only tell when a step is done
    bool reading;    // the ticket brings rows
    bool all_queued; // vision: the last step is queued
    bool cancelled;
};

int32_t encoder_width(const struct encoder *encoder)
{
    return encoder->model->text->config.d_model;
}

static struct encoder *encoder_new(struct carat_model *model, enum tower_kind kind, struct carat_error *err)
{
    if (model->towers == NULL || !towers_has(model->towers, kind) || !towers_loaded(model->towers, kind)) {
        fail(err, CARAT_UNSUPPORTED, "the model '%s' has no %s tower", model->name, kind == TOWER_VISION ? "vision" : "audio");
        return NULL;
    }
    struct encoder *encoder = calloc(1, sizeof *encoder);
    if (encoder == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for encoding");
        return NULL;
    }
    *encoder = (struct encoder){.model = model, .ticket = -1};
    return encoder;
}

static bool take_rows(struct encoder *encoder, int32_t n_rows, struct carat_error *err)
{
    if (n_rows < 1)
        return fail(err, CARAT_BAD_ARGUMENT, "this gives no soft token: the sound is too short");
    encoder->n_rows = n_rows;
    encoder->rows = calloc((size_t)n_rows * (size_t)encoder_width(encoder), sizeof *encoder->rows);
    return encoder->rows != NULL || fail(err, CARAT_NO_MEMORY, "no memory for %d soft tokens", n_rows);
}

// --- images ---

static bool fill_image(struct image *image, const float *pixels, struct carat_error *err)
{
    size_t n = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < n; i++) {
        for (size_t channel = 0; channel < 3; channel++) {
            if (!isfinite(pixels[channel * n + i]))
                return fail(err, CARAT_BAD_NUMBER, "pixel %zu of the image is not a number or infinite", i);
            float level = roundf((pixels[channel * n + i] + 1.0f) * 127.5f);
            image->rgb[3 * i + channel] = (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
        }
    }
    return true;
}

struct encoder *encoder_new_image(
    struct carat_model *model, const float *pixels, int32_t height, int32_t width, struct carat_error *err)
{
    if (height < CELL || width < CELL || height % CELL != 0 || width % CELL != 0) {
        fail(err, CARAT_BAD_ARGUMENT, "an image of %d x %d pixels: both sides must be multiples of %d", width, height, CELL);
        return NULL;
    }
    struct encoder *encoder = encoder_new(model, TOWER_VISION, err);
    if (encoder == NULL)
        return NULL;
    bool ok = image_new(width, height, &encoder->image, err) && take_rows(encoder, height / CELL * (width / CELL), err);
    if (ok) {
        ok = fill_image(&encoder->image, pixels, err) &&
             vision_start(model->towers->vision, model->towers->ops, &encoder->image, &encoder->vision, err);
    }
    if (ok)
        return encoder;
    encoder->vision.tower = NULL;
    encoder_free(encoder);
    return NULL;
}

static enum carat_status step_image(struct encoder *encoder, struct carat_error *err)
{
    struct ops *ops = encoder->model->ops;
    struct tensor soft = encoder->vision.soft;
    if (encoder->reading)
        return CARAT_DONE;
    if (encoder->all_queued) {
        encoder->reading = true;
        uint64_t n_bytes = (uint64_t)encoder->n_rows * (uint64_t)encoder_width(encoder) * sizeof *encoder->rows;
        encoder->ticket = ops->read_start(ops, soft.buffer, soft.offset, n_bytes, encoder->rows, err);
    } else {
        encoder->all_queued = vision_step(&encoder->vision);
        encoder->ticket = ops->read_start(ops, soft.buffer, soft.offset, sizeof encoder->probe, &encoder->probe, err);
    }
    return encoder->ticket >= 0 ? CARAT_PENDING : CARAT_FAILED;
}

// --- sounds ---

struct encoder *encoder_new_audio(struct carat_model *model, const float *samples, int64_t n_samples, struct carat_error *err)
{
    struct encoder *encoder = encoder_new(model, TOWER_AUDIO, err);
    if (encoder == NULL)
        return NULL;
    encoder->samples = samples;
    encoder->n_samples = n_samples;
    int32_t n_rows = 0;
    bool ok =
        sound_check_samples(samples, n_samples, err) && towers_audio_pieces(model->towers, n_samples, &encoder->n_pieces, err);
    for (int32_t piece = 0; ok && piece < encoder->n_pieces; piece++)
        n_rows += towers_piece_tokens(model->towers, n_samples, piece);
    if (ok && take_rows(encoder, n_rows, err))
        return encoder;
    encoder_free(encoder);
    return NULL;
}

// The rows of a piece that is done.
static enum carat_status read_piece(struct encoder *encoder, struct carat_error *err)
{
    struct ops *ops = encoder->model->ops;
    encoder->soft = towers_result(encoder->job);
    towers_end(encoder->job);
    encoder->job = NULL;
    struct tensor rows = encoder->soft->rows;
    size_t d = (size_t)encoder_width(encoder);
    if (rows.n_rows > encoder->n_rows - encoder->n_read) {
        fail(err, CARAT_BAD_ARGUMENT, "the sound gave more tokens than expected");
        return CARAT_FAILED;
    }
    float *target = encoder->rows + (size_t)encoder->n_read * d;
    encoder->ticket = ops->read_start(ops, rows.buffer, rows.offset, (uint64_t)rows.n_rows * d * sizeof *target, target, err);
    encoder->n_read += rows.n_rows;
    encoder->piece++;
    return encoder->ticket >= 0 ? CARAT_PENDING : CARAT_FAILED;
}

static enum carat_status step_audio(struct encoder *encoder, int32_t *done, int32_t *total, struct carat_error *err)
{
    struct towers *towers = encoder->model->towers;
    towers_drop(towers, encoder->soft);
    encoder->soft = NULL;
    if (encoder->piece == encoder->n_pieces)
        return CARAT_DONE;
    if (encoder->job == NULL)
        encoder->job = towers_begin_audio(towers, encoder->samples, encoder->n_samples, encoder->piece, err);
    if (encoder->job == NULL)
        return CARAT_FAILED;
    switch (towers_step(encoder->job, done, total, err)) {
    case OPS_DONE:
        return read_piece(encoder, err);
    case OPS_PENDING:
        return CARAT_PENDING;
    default:
        return CARAT_FAILED;
    }
}

// --- both ---

enum carat_status encoder_step(struct encoder *encoder, int32_t *done, int32_t *total, struct carat_error *err)
{
    struct ops *ops = encoder->model->ops;
    bool is_image = encoder->image.rgb != NULL;
    *done = is_image ? encoder->vision.step : encoder->piece;
    *total = is_image ? encoder->vision.n_steps : encoder->n_pieces;
    if (encoder->ticket >= 0) {
        enum ops_state state = ops->poll(ops, encoder->ticket, err);
        if (state == OPS_PENDING)
            return CARAT_PENDING;
        encoder->ticket = -1;
        if (state == OPS_FAILED)
            return CARAT_FAILED;
    }
    if (encoder->cancelled) {
        fail(err, CARAT_CANCELLED, "cancelled");
        return CARAT_FAILED;
    }
    return is_image ? step_image(encoder, err) : step_audio(encoder, done, total, err);
}

float *encoder_take(struct encoder *encoder, int32_t *n_rows)
{
    float *rows = encoder->rows;
    *n_rows = encoder->n_rows;
    encoder->rows = NULL;
    return rows;
}

void encoder_cancel(struct encoder *encoder)
{
    encoder->cancelled = true;
}

void encoder_free(struct encoder *encoder)
{
    if (encoder == NULL)
        return;
    towers_end(encoder->job);
    towers_drop(encoder->model->towers, encoder->soft);
    if (encoder->vision.tower != NULL) {
        vision_end(&encoder->vision);
        tensor_free(encoder->model->ops, &encoder->vision.soft);
    }
    image_free(&encoder->image);
    free(encoder->rows);
    free(encoder);
}
