// encode.h: images and sounds to soft tokens for callers that feed those themselves, as the original system's interface has it.

#ifndef CARAT_WASM_ENCODE_H
#define CARAT_WASM_ENCODE_H

#include "engine/model.h"

struct encoder;

// Pixels: planar [3, height, width] in [-1, 1], sides multiples of 48, taken as they are. The tower's weights must be loaded.
struct encoder *encoder_new_image(
    struct carat_model *model, const float *pixels, int32_t height, int32_t width, struct carat_error *err);
// Mono samples at 16 kHz, which must stay until the end. Sounds over 30 s are taken in pieces, their tokens follow each other.
struct encoder *encoder_new_audio(struct carat_model *model, const float *samples, int64_t n_samples, struct carat_error *err);

// A little more: PENDING (call again; *done of *total steps), DONE or FAILED.
enum carat_status encoder_step(struct encoder *encoder, int32_t *done, int32_t *total, struct carat_error *err);

// After DONE: n rows of d_model floats, the caller's to free.
float *encoder_take(struct encoder *encoder, int32_t *n_rows);

// Floats of a row.
int32_t encoder_width(const struct encoder *encoder);

// Not before encoder_step has ended: call encoder_cancel first and step on until it fails.
void encoder_free(struct encoder *encoder); // NULL is allowed
void encoder_cancel(struct encoder *encoder);

#endif
