// sound.h: sounds on their way to the audio tower: decoding, mixing to mono, resampling to 16 kHz, cutting into pieces.
//
// Samples are f32, full scale 1. A sound with a NaN or an infinite sample is refused.
//
// The tower hears at most 30 s at a time. A longer sound is cut into consecutive pieces of exactly 30 s, each encoded on its
// own between its own sentinels; a last piece that is too short to give a token is dropped. So every sample but those of such
// a rest (at most 160) is heard.

#ifndef CARAT_MEDIA_SOUND_H
#define CARAT_MEDIA_SOUND_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "media/mel.h"

enum {
    SOUND_RATE = 16000,           // samples per second that the tower takes
    SOUND_PIECE_SAMPLES = 480000, // 30 s
    SOUND_MAX_CHANNELS = 64,
    SOUND_MIN_RATE = 100,
    SOUND_MAX_RATE = 1536000,
    SOUND_MAX_SAMPLES = 1 << 28, // of one channel, also after resampling: 4.6 hours at 16 kHz
};

struct sound {
    float *samples; // [n_samples] mono, owned
    int64_t n_samples;
    int32_t rate; // per second
};

// Whether all samples are finite; if not, the error says which is not.
bool sound_check_samples(const float *samples, int64_t n_samples, struct carat_error *err);

// From interleaved samples in memory: channels are averaged.
bool sound_from_samples(
    const float *samples, int64_t n_frames, int n_channels, int32_t rate, struct sound *out, struct carat_error *err);
void sound_free(struct sound *sound); // a zeroed sound is allowed

// Reads a RIFF/WAVE file: PCM of 8, 16, 24 or 32 bits, float of 32 or 64 bits, also as WAVE_FORMAT_EXTENSIBLE, 1 to 64 channels.
// A data chunk that says it is longer than the file is read as far as it goes.
bool sound_from_wav(const uint8_t *bytes, size_t n_bytes, struct sound *out, struct carat_error *err);

#ifndef __wasm__
// WAV by sound_from_wav; anything else (FLAC, Ogg, MP3, AIFF ...) by libsndfile where the build has it.
bool sound_decode(const void *bytes, size_t n_bytes, struct sound *out, struct carat_error *err);
#endif

// Brings the sound to 16 kHz with a band-limited filter; n_samples becomes ceil(n_samples * 16000 / rate).
bool sound_resample(struct sound *sound, struct carat_error *err);

// Pieces of a 16 kHz sound that give tokens. Piece i starts at sample i * SOUND_PIECE_SAMPLES and has sound_piece_samples(...).
int32_t sound_piece_count(enum mel_rule rule, int64_t n_samples);
int64_t sound_piece_samples(int64_t n_samples, int32_t piece);

#endif
