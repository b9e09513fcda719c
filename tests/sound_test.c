// sound_test.c: reading sounds, resampling, pieces of 30 s.

#include <math.h>

#include "media/mel.h"
#include "media/sound.h"
#include "media_golden.h"

static void put(uint8_t **at, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

// A WAV file of n_frames of the value of `wave`; returns its size.
static size_t make_wav(uint8_t *file, int kind, bool extensible, int n_bits, int n_channels, uint32_t rate, int n_frames,
    double (*wave)(int frame, int channel))
{
    uint8_t *at = file;
    uint32_t frame_bytes = (uint32_t)(n_channels * n_bits / 8), format_bytes = extensible ? 40 : 16;
    memcpy(at, "RIFF", 4), at += 4;
    put(&at, 4 + 8 + format_bytes + 8 + 3 + 1 + 8 + frame_bytes * (uint32_t)n_frames, 4);
    memcpy(at, "WAVEfmt ", 8), at += 8;
    put(&at, format_bytes, 4);
    put(&at, extensible ? 0xfffe : (uint64_t)kind, 2);
    put(&at, (uint64_t)n_channels, 2);
    put(&at, rate, 4);
    put(&at, rate * frame_bytes, 4);
    put(&at, frame_bytes, 2);
    put(&at, (uint64_t)n_bits, 2);
    if (extensible) {
        put(&at, 22, 2);
        put(&at, (uint64_t)n_bits, 2);
        put(&at, 0, 4);
        put(&at, (uint64_t)kind, 2);
        memcpy(at, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71", 14), at += 14;
    }
    memcpy(at, "LIST\x03\0\0\0abc\0", 12), at += 12; // a chunk of odd length, padded
    memcpy(at, "data", 4), at += 4;
    put(&at, frame_bytes * (uint32_t)n_frames, 4);
    for (int i = 0; i < n_frames; i++) {
        for (int c = 0; c < n_channels; c++) {
            double value = wave(i, c);
            float f32 = (float)value;
            uint32_t f32_bits = 0;
            uint64_t bits = 0;
            memcpy(&f32_bits, &f32, 4);
            memcpy(&bits, &value, 8);
            if (kind == 3)
                put(&at, n_bits == 32 ? f32_bits : bits, n_bits / 8);
            else if (n_bits == 8)
                put(&at, (uint64_t)(lrint(value * 127) + 128), 1);
            else
                put(&at, (uint64_t)llrint(value * (ldexp(1, n_bits - 1) - 1)), n_bits / 8);
        }
    }
    return (size_t)(at - file);
}

static double ramp(int frame, int channel)
{
    return (frame - 32) / 64.0 * (channel == 0 ? 1 : 0.5);
}

static void every_kind_of_wav_is_read(void **state)
{
    (void)state;
    static const int kinds[][2] = {{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}};
    static uint8_t file[4096];
    for (size_t k = 0; k < 6; k++) {
        for (int variant = 0; variant < 4; variant++) {
            struct sound sound;
            struct carat_error err = {0};
            int n_channels = 1 + variant / 2;
            size_t n = make_wav(file, kinds[k][0], variant % 2, kinds[k][1], n_channels, 44100, 64, ramp);
            if (!sound_from_wav(file, n, &sound, &err))
                fail_msg("kind %d, %d bits: %s", kinds[k][0], kinds[k][1], err.message);
            assert_int_equal(sound.n_samples, 64);
            assert_int_equal(sound.rate, 44100);
            for (int i = 0; i < 64; i++) // 8 bits: steps of 1/128, and full scale is 127
                assert_float_equal(
                    sound.samples[i], (i - 32) / 64.0 * (n_channels == 1 ? 1 : 0.75), kinds[k][1] == 8 ? 0.012 : 1e-4);
            sound_free(&sound);
        }
    }
}

static void a_data_chunk_longer_than_the_file_is_read_as_far_as_it_goes(void **state)
{
    (void)state;
    static uint8_t file[4096];
    struct sound sound;
    size_t n = make_wav(file, 1, false, 16, 1, 16000, 64, ramp);
    assert_true(sound_from_wav(file, n - 29, &sound, NULL));
    assert_int_equal(sound.n_samples, 49);
    sound_free(&sound);
}

static void every_truncation_gives_an_error_or_a_sound(void **state)
{
    (void)state;
    static uint8_t file[4096];
    size_t n = make_wav(file, 3, true, 32, 2, 48000, 64, ramp);
    for (size_t i = 0; i < n; i++) {
        struct sound sound;
        struct carat_error err = {0};
        uint8_t *exact = malloc(i + 1); // so that a sanitizer sees reads beyond
        assert_non_null(exact);
        memcpy(exact, file, i);
        if (!sound_from_wav(exact, i, &sound, &err))
            assert_int_not_equal(err.message[0], 0);
        sound_free(&sound);
        free(exact);
    }
}

static double not_a_number(int frame, int channel)
{
    (void)channel;
    return frame == 5 ? NAN : 0;
}

static void a_sample_that_is_no_number_is_refused_by_its_place(void **state)
{
    (void)state;
    static uint8_t file[4096];
    struct sound sound;
    struct carat_error err = {0};
    size_t n = make_wav(file, 3, false, 32, 1, 16000, 10, not_a_number);
    assert_false(sound_from_wav(file, n, &sound, &err));
    assert_int_equal(err.code, CARAT_BAD_NUMBER);
    assert_non_null(strstr(err.message, "sample 5"));
    assert_null(sound.samples);
}

static void broken_formats_are_refused_by_name(void **state)
{
    (void)state;
    static uint8_t file[4096];
    struct sound sound;
    struct carat_error err = {0};
    size_t n = make_wav(file, 85, false, 16, 1, 16000, 10, ramp);
    assert_false(sound_decode(file, n, &sound, &err));
    assert_non_null(strstr(err.message, "compressed"));
    n = make_wav(file, 1, false, 16, 1, 0, 10, ramp);
    assert_false(sound_decode(file, n, &sound, &err));
    assert_non_null(strstr(err.message, "samples per second"));
    assert_false(sound_decode("hello, this is text", 19, &sound, &err));
    assert_int_not_equal(err.message[0], 0);
    assert_false(sound_decode("", 0, &sound, &err));
    assert_non_null(strstr(err.message, "empty"));
}

static struct sound tone(int32_t rate, double hz, double seconds)
{
    int64_t n = (int64_t)(seconds * rate);
    float *samples = malloc((size_t)n * sizeof(float));
    assert_non_null(samples);
    for (int64_t i = 0; i < n; i++)
        samples[i] = (float)sin(2 * M_PI * hz * (double)i / rate);
    return (struct sound){samples, n, rate};
}

// A tone below both Nyquist frequencies comes out as the same tone, sampled anew (away from the ends).
static void tones_below_the_limit_pass_resampling_unchanged(void **state)
{
    (void)state;
    static const int32_t rates[] = {8000, 11025, 22050, 24000, 32000, 44100, 48000, 96000, 44101};
    for (size_t r = 0; r < sizeof rates / sizeof rates[0]; r++) {
        double hz = 3100;
        struct sound sound = tone(rates[r], hz, 0.5);
        int64_t expected = (sound.n_samples * 16000 + rates[r] - 1) / rates[r];
        assert_true(sound_resample(&sound, NULL));
        assert_int_equal(sound.rate, 16000);
        assert_int_equal(sound.n_samples, expected);
        for (int64_t i = 400; i < sound.n_samples - 400; i++)
            assert_float_equal(sound.samples[i], sin(2 * M_PI * hz * (double)i / 16000), 2e-4);
        sound_free(&sound);
    }
}

// What 16 kHz cannot hold must vanish, not fold down into the band: 70 dB below full scale.
static void tones_above_the_limit_vanish(void **state)
{
    (void)state;
    static const double hz[] = {9000, 12000, 15000, 20000};
    for (size_t h = 0; h < 4; h++) {
        struct sound sound = tone(48000, hz[h], 0.5);
        assert_true(sound_resample(&sound, NULL));
        for (int64_t i = 400; i < sound.n_samples - 400; i++)
            assert_float_equal(sound.samples[i], 0, 3.2e-4);
        sound_free(&sound);
    }
}

static void long_sounds_are_cut_into_pieces_of_30_s(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {// samples, pieces, samples of the last piece
        {1, 0, 0}, {160, 0, 0}, {161, 1, 161}, {480000, 1, 480000}, {480160, 1, 480000}, {480161, 2, 161}, {2880000, 6, 480000}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sound_piece_count(MEL_RULE_REFERENCE, cases[i][0]), cases[i][1]);
        if (cases[i][1] > 0)
            assert_int_equal(sound_piece_samples(cases[i][0], (int32_t)cases[i][1] - 1), cases[i][2]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_wav_is_read),
        cmocka_unit_test(a_data_chunk_longer_than_the_file_is_read_as_far_as_it_goes),
        cmocka_unit_test(every_truncation_gives_an_error_or_a_sound),
        cmocka_unit_test(a_sample_that_is_no_number_is_refused_by_its_place),
        cmocka_unit_test(broken_formats_are_refused_by_name),
        cmocka_unit_test(tones_below_the_limit_pass_resampling_unchanged),
        cmocka_unit_test(tones_above_the_limit_vanish),
        cmocka_unit_test(long_sounds_are_cut_into_pieces_of_30_s),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
