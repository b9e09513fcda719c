// wav_fuzz.c: any bytes as a WAV file: an error or a sound that can be resampled.

#include "media/sound.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct sound sound;
    struct carat_error err;
    if (sound_from_wav(data, n_bytes, &sound, &err) && sound.n_samples < 1 << 12 && sound.rate > 4000)
        sound_resample(&sound, &err);
    sound_free(&sound);
    return 0;
}
