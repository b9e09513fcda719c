// mel.h: log-mel features of a sound at 16 kHz (Gemma 4 audio, log-mel features), token counts.
//
// Frames of 320 samples every 160, 160 zeros in front, periodic Hann window, FFT of 512, magnitudes, 128 triangular filters on
// the HTK mel scale from 0 to 8000 Hz, ln(sum + 0.001). The window is rounded to f32, products with it are f32, everything from
// the FFT on is f64: next to a pure tone the quiet bands consist of rounding, so the arithmetic shows.

#ifndef CARAT_MEDIA_MEL_H
#define CARAT_MEDIA_MEL_H

#include <stdint.h>

#include "base/error.h"

enum { MEL_BANDS = 128, MEL_HOP_SAMPLES = 160, MEL_FRAME_SAMPLES = 320 };

// Whose front end. The first is the definition, the others are for comparison.
enum mel_rule {
    MEL_RULE_REFERENCE,
    MEL_RULE_LLAMA_CPP, // ln(max(sum, 0.001)); 2 to 160 samples give a frame too
    MEL_RULE_OLLAMA,    // the same, and no zeros in front, window centred on half samples, FFT of 1024
};

// Samples that the first frame needs: 161, or as few as 2 in llama.cpp (the rest is zeros), or 321 in Ollama (none are in front).
int64_t mel_least_samples(enum mel_rule rule);

// Frames that n_samples give; 0 for fewer than mel_least_samples().
int64_t mel_frame_count_by(enum mel_rule rule, int64_t n_samples);

// Soft tokens of n_frames: two convolutions of stride 2. 25 per second.
int64_t mel_token_count(int64_t n_frames);

// out [mel_frame_count_by(rule, n_samples), MEL_BANDS].
bool mel_features(enum mel_rule rule, const float *samples, int64_t n_samples, float *out, struct carat_error *err);

#endif
