// sound.c: sounds in memory, RIFF/WAVE, other formats by libsndfile, pieces. See sound.h.

#include "media/sound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"

#if defined(CARAT_HAVE_SNDFILE) && !defined(__wasm__)
#include <sndfile.h>
#endif

void sound_free(struct sound *sound)
{
    free(sound->samples);
    *sound = (struct sound){0};
}

static bool sound_new(int64_t n_samples, int32_t rate, struct sound *out, struct carat_error *err)
{
    *out = (struct sound){0};
    if (rate < SOUND_MIN_RATE || rate > SOUND_MAX_RATE)
        return fail(err, CARAT_UNSUPPORTED, "a sound of %d samples per second: %d to %d are possible", (int)rate, SOUND_MIN_RATE,
            SOUND_MAX_RATE);
    if (n_samples < 1)
        return fail(err, CARAT_BAD_ARGUMENT, "the sound is empty");
    if (n_samples > SOUND_MAX_SAMPLES)
        return fail(err, CARAT_UNSUPPORTED, "the sound has %lld samples, more than %d: cut it first", (long long)n_samples,
            SOUND_MAX_SAMPLES);
    out->samples = malloc((size_t)n_samples * sizeof(float));
    if (out->samples == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a sound of %lld samples", (long long)n_samples);
    out->n_samples = n_samples;
    out->rate = rate;
    return true;
}

bool sound_check_samples(const float *samples, int64_t n_samples, struct carat_error *err)
{
    for (int64_t i = 0; i < n_samples; i++)
        if (!isfinite(samples[i]))
            return fail(err, CARAT_BAD_NUMBER, "sample %lld of the sound is not a number or infinite: repair the recording",
                (long long)i);
    return true;
}

static bool check_finite(struct sound *sound, struct carat_error *err)
{
    bool ok = sound_check_samples(sound->samples, sound->n_samples, err);
    if (!ok)
        sound_free(sound);
    return ok;
}

static bool check_channels(int n_channels, struct carat_error *err)
{
    return (n_channels >= 1 && n_channels <= SOUND_MAX_CHANNELS) ||
           fail(err, CARAT_UNSUPPORTED, "a sound with %d channels: 1 to %d are possible", n_channels, SOUND_MAX_CHANNELS);
}

bool sound_from_samples(
    const float *samples, int64_t n_frames, int n_channels, int32_t rate, struct sound *out, struct carat_error *err)
{
    *out = (struct sound){0};
    if (!check_channels(n_channels, err) || !sound_new(n_frames, rate, out, err))
        return false;
    for (int64_t i = 0; i < n_frames; i++) {
        double sum = 0;
        for (int c = 0; c < n_channels; c++)
            sum += samples[i * n_channels + c];
        out->samples[i] = (float)(sum / n_channels);
    }
    return check_finite(out, err);
}

// --- RIFF/WAVE ---

enum { WAVE_PCM = 1, WAVE_FLOAT = 3, WAVE_EXTENSIBLE = 0xfffe };

struct wave_format {
    int kind; // WAVE_PCM or WAVE_FLOAT
    int n_channels;
    int32_t rate;
    int n_bytes; // of one sample
};

static bool read_format(const uint8_t *chunk, size_t n_bytes, struct wave_format *format, struct carat_error *err)
{
    if (n_bytes < 16)
        return fail(err, CARAT_BAD_FILE, "the WAV file's format chunk has %zu bytes, at least 16 are needed", n_bytes);
    int kind = load_u16(chunk), n_bits = load_u16(chunk + 14), align = load_u16(chunk + 12);
    uint32_t rate = load_u32(chunk + 4);
    if (kind == WAVE_EXTENSIBLE) {
        if (n_bytes < 40)
            return fail(err, CARAT_BAD_FILE, "the WAV file's extensible format chunk has %zu bytes, 40 are needed", n_bytes);
        kind = load_u16(chunk + 24); // the start of the sub-format's GUID
    }
    if (kind != WAVE_PCM && kind != WAVE_FLOAT)
        return fail(err, CARAT_UNSUPPORTED, "the WAV file is compressed (format %d): convert it to PCM", kind);
    bool known = kind == WAVE_PCM ? n_bits == 8 || n_bits == 16 || n_bits == 24 || n_bits == 32 : n_bits == 32 || n_bits == 64;
    if (!known)
        return fail(err, CARAT_UNSUPPORTED,
            "the WAV file has %d bits per sample: 8, 16, 24, 32 (PCM), 32 and 64 (float) are "
            "understood",
            n_bits);
    *format = (struct wave_format){kind, load_u16(chunk + 2), rate > INT32_MAX ? INT32_MAX : (int32_t)rate, n_bits / 8};
    if (!check_channels(format->n_channels, err))
        return false;
    if (align != format->n_channels * format->n_bytes)
        return fail(err, CARAT_BAD_FILE, "the WAV file's frames have %d bytes, %d channels of %d bits would need %d", align,
            format->n_channels, n_bits, format->n_channels * format->n_bytes);
    return true;
}

static double wave_sample(const struct wave_format *format, const uint8_t *bytes)
{
    if (format->kind == WAVE_FLOAT) {
        if (format->n_bytes == 4)
            return f32_from_bits(load_u32(bytes));
        uint64_t bits = load_u64(bytes);
        double value;
        memcpy(&value, &bits, sizeof value);
        return value;
    }
    switch (format->n_bytes) {
    case 1:
        return (bytes[0] - 128) / 128.0;
    case 2:
        return (int16_t)load_u16(bytes) / 32768.0;
    case 3:
        return (int32_t)((uint32_t)bytes[0] << 8 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 24) / 2147483648.0;
    default:
        return (int32_t)load_u32(bytes) / 2147483648.0;
    }
}

static bool read_data(
    const struct wave_format *format, const uint8_t *data, size_t n_bytes, struct sound *out, struct carat_error *err)
{
    size_t frame_bytes = (size_t)format->n_channels * (size_t)format->n_bytes;
    if (!sound_new((int64_t)(n_bytes / frame_bytes), format->rate, out, err))
        return false;
    for (int64_t i = 0; i < out->n_samples; i++) {
        double sum = 0;
        for (int c = 0; c < format->n_channels; c++, data += format->n_bytes)
            sum += wave_sample(format, data);
        out->samples[i] = (float)(sum / format->n_channels);
    }
    return check_finite(out, err);
}

bool sound_from_wav(const uint8_t *bytes, size_t n_bytes, struct sound *out, struct carat_error *err)
{
    struct wave_format format = {0};
    *out = (struct sound){0};
    if (n_bytes < 12 || memcmp(bytes, "RIFF", 4) != 0 || memcmp(bytes + 8, "WAVE", 4) != 0)
        return fail(err, CARAT_BAD_FILE, "this is no WAV file");
    size_t at = 12;
    while (n_bytes - at >= 8) {
        const uint8_t *chunk = bytes + at;
        uint64_t length = load_u32(chunk + 4);
        at += 8;
        uint64_t available = length < n_bytes - at ? length : n_bytes - at;
        if (memcmp(chunk, "fmt ", 4) == 0) {
            if (!read_format(chunk + 8, (size_t)available, &format, err))
                return false;
        } else if (memcmp(chunk, "data", 4) == 0) {
            if (format.kind == 0)
                return fail(err, CARAT_BAD_FILE, "the WAV file's data comes before its format");
            return read_data(&format, chunk + 8, (size_t)available, out, err);
        }
        at += (size_t)available;
        if (length % 2 != 0 && at < n_bytes)
            at++;
    }
    return fail(err, CARAT_BAD_FILE, "the WAV file has no data chunk");
}

// --- other formats ---

#ifndef __wasm__

#ifdef CARAT_HAVE_SNDFILE

struct memory_file {
    const uint8_t *bytes;
    sf_count_t n_bytes, at;
};

static sf_count_t memory_length(void *file)
{
    return ((struct memory_file *)file)->n_bytes;
}

static sf_count_t memory_seek(sf_count_t offset, int whence, void *context)
{
    struct memory_file *file = context;
    sf_count_t from = whence == SEEK_CUR ? file->at : whence == SEEK_END ? file->n_bytes : 0, to;
    if (__builtin_add_overflow(from, offset, &to) || to < 0 || to > file->n_bytes)
        return -1;
    return file->at = to;
}

static sf_count_t memory_read(void *target, sf_count_t count, void *context)
{
    struct memory_file *file = context;
    sf_count_t n = count < file->n_bytes - file->at ? count : file->n_bytes - file->at;
    if (n <= 0)
        return 0;
    memcpy(target, file->bytes + file->at, (size_t)n);
    file->at += n;
    return n;
}

static sf_count_t memory_tell(void *file)
{
    return ((struct memory_file *)file)->at;
}

static sf_count_t memory_write(const void *source, sf_count_t count, void *file)
{
    (void)source, (void)count, (void)file;
    return 0;
}

// Reads everything that is there into *samples (grown as it comes: the frame count of a header is only a promise).
static bool read_all(SNDFILE *file, const SF_INFO *info, float **samples, int64_t *n_frames, struct carat_error *err)
{
    enum { BLOCK_FRAMES = 65536 };
    size_t frame_bytes = (size_t)info->channels * sizeof(float);
    int64_t capacity = 0;
    for (;;) {
        if (*n_frames + BLOCK_FRAMES > capacity) {
            capacity = 2 * capacity + BLOCK_FRAMES;
            float *larger = capacity <= 2 * (int64_t)SOUND_MAX_SAMPLES ? realloc(*samples, (size_t)capacity * frame_bytes) : NULL;
            if (larger == NULL)
                return fail(err, CARAT_NO_MEMORY, "the sound does not fit into memory: cut it first");
            *samples = larger;
        }
        sf_count_t n = sf_readf_float(file, *samples + *n_frames * info->channels, BLOCK_FRAMES);
        if (n <= 0)
            return true;
        *n_frames += n;
    }
}

static bool sound_from_other(const void *bytes, size_t n_bytes, struct sound *out, struct carat_error *err)
{
    SF_VIRTUAL_IO io = {memory_length, memory_seek, memory_read, memory_write, memory_tell};
    struct memory_file memory = {bytes, (sf_count_t)n_bytes, 0};
    SF_INFO info = {0};
    SNDFILE *file = sf_open_virtual(&io, SFM_READ, &info, &memory);
    if (file == NULL)
        return fail(err, CARAT_BAD_FILE, "not a sound that can be read (%s): WAV, FLAC, Ogg, MP3 and AIFF are understood",
            sf_strerror(NULL));
    float *samples = NULL;
    int64_t n_frames = 0;
    bool ok = check_channels(info.channels, err) && read_all(file, &info, &samples, &n_frames, err) &&
              sound_from_samples(samples, n_frames, info.channels, info.samplerate, out, err);
    free(samples);
    sf_close(file);
    return ok;
}

#else

static bool sound_from_other(const void *bytes, size_t n_bytes, struct sound *out, struct carat_error *err)
{
    (void)bytes, (void)n_bytes, (void)out;
    return fail(err, CARAT_UNSUPPORTED, "this is no WAV file, and this build has no libsndfile to read others");
}

#endif

bool sound_decode(const void *bytes, size_t n_bytes, struct sound *out, struct carat_error *err)
{
    *out = (struct sound){0};
    if (n_bytes == 0)
        return fail(err, CARAT_BAD_FILE, "the sound file is empty");
    if (n_bytes >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp((const uint8_t *)bytes + 8, "WAVE", 4) == 0)
        return sound_from_wav(bytes, n_bytes, out, err);
    return sound_from_other(bytes, n_bytes, out, err);
}

#endif

// --- pieces ---

int32_t sound_piece_count(enum mel_rule rule, int64_t n_samples)
{
    int64_t n = n_samples / SOUND_PIECE_SAMPLES;
    return (int32_t)(mel_frame_count_by(rule, n_samples % SOUND_PIECE_SAMPLES) > 0 ? n + 1 : n);
}

int64_t sound_piece_samples(int64_t n_samples, int32_t piece)
{
    int64_t rest = n_samples - (int64_t)piece * SOUND_PIECE_SAMPLES;
    return rest < 0 ? 0 : rest < SOUND_PIECE_SAMPLES ? rest : SOUND_PIECE_SAMPLES;
}
