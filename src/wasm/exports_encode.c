// exports_encode.c: exported functions that encode images and sounds for callers that feed soft tokens themselves. See exports.c.

#include "media/sound.h"
#include "wasm/encode.h"
#include "wasm/exports.h"

EXPORT(wasm_encode_image)
struct encoder *wasm_encode_image(struct carat_model *model, const float *pixels, int height, int width);
struct encoder *wasm_encode_image(struct carat_model *model, const float *pixels, int height, int width)
{
    return encoder_new_image(model, pixels, height, width, &error);
}

// The samples must stay until the encoder is freed.
EXPORT(wasm_encode_audio)
struct encoder *wasm_encode_audio(struct carat_model *model, const float *samples, int n_samples);
struct encoder *wasm_encode_audio(struct carat_model *model, const float *samples, int n_samples)
{
    return encoder_new_audio(model, samples, n_samples, &error);
}

static int32_t steps[2]; // done, total

EXPORT(wasm_encode_steps) const int32_t *wasm_encode_steps(void);
const int32_t *wasm_encode_steps(void)
{
    return steps;
}

// enum carat_status. After DONE the rows are the result.
EXPORT(wasm_encode_step) int wasm_encode_step(struct encoder *encoder);
int wasm_encode_step(struct encoder *encoder)
{
    enum carat_status status = encoder_step(encoder, &steps[0], &steps[1], &error);
    if (status == CARAT_DONE) {
        int32_t n_rows;
        float *rows = encoder_take(encoder, &n_rows);
        set_result(rows, (size_t)n_rows * (size_t)encoder_width(encoder) * sizeof *rows);
    }
    return status;
}

EXPORT(wasm_encode_cancel) void wasm_encode_cancel(struct encoder *encoder);
void wasm_encode_cancel(struct encoder *encoder)
{
    encoder_cancel(encoder);
}

EXPORT(wasm_encode_free) void wasm_encode_free(struct encoder *encoder);
void wasm_encode_free(struct encoder *encoder)
{
    encoder_free(encoder);
}

// --- files --------------------------------------------------------------------------------------------------------------------

// A WAV file as mono floats at 16 kHz: the result.
EXPORT(wasm_decode_wav) int wasm_decode_wav(const uint8_t *bytes, size_t n_bytes);
int wasm_decode_wav(const uint8_t *bytes, size_t n_bytes)
{
    struct sound sound;
    if (!sound_from_wav(bytes, n_bytes, &sound, &error))
        return 0;
    if (!sound_resample(&sound, &error)) {
        sound_free(&sound);
        return 0;
    }
    set_result(sound.samples, (size_t)sound.n_samples * sizeof *sound.samples);
    return 1;
}
