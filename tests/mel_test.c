// mel_test.c: log-mel features and token counts.

#include <math.h>

#include "media/mel.h"
#include "media_golden.h"

static void frame_and_token_counts_follow_the_reference(void **state)
{
    (void)state;
    static const int64_t cases[][3] = {{0, 0, 0}, {1, 0, 0}, {160, 0, 0}, {161, 1, 1}, {320, 1, 1}, {321, 2, 1}, {16000, 99, 25},
        {32000, 199, 50}, {160000, 999, 250}, {480000, 2999, 750}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mel_frame_count_by(MEL_RULE_REFERENCE, cases[i][0]), cases[i][1]);
        assert_int_equal(mel_token_count(cases[i][1]), cases[i][2]);
    }
}

// The goldens hold f32 results of the same definition; 5e-6 allows for the order of f64 sums.
static void features_equal_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"n161", "n320", "n321", "n500", "silence", "tone", "chirp", "noise", "speech", "s30"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[96];
        struct carat_error err = {0};
        int64_t n_samples = 0, n_rows = 0;
        snprintf(name, sizeof name, "media/audio-tiny-mm-%s.gguf", names[i]);
        struct gguf_file *file = media_golden_open(name);
        float *samples = golden_sound(file, &n_samples), *expected = golden_tensor(file, "mel", NULL);
        int32_t *rows = golden_tensor(file, "mel.rows", &n_rows);
        int64_t n_frames = mel_frame_count_by(MEL_RULE_REFERENCE, n_samples);
        assert_int_equal(n_frames, golden_int(file, "golden.mel_valid"));
        assert_int_equal(mel_token_count(n_frames), golden_int(file, "golden.soft_tokens"));
        float *mel = malloc((size_t)n_frames * MEL_BANDS * sizeof(float));
        assert_non_null(mel);
        assert_true(mel_features(MEL_RULE_REFERENCE, samples, n_samples, mel, &err));
        double worst = 0;
        for (int64_t r = 0; r < n_rows; r++) {
            if (rows[r] < n_frames)
                worst = fmax(worst, largest_difference(mel + rows[r] * MEL_BANDS, expected + r * MEL_BANDS, MEL_BANDS));
        }
        if (!(worst < 5e-6))
            fail_msg("%s: features differ by %g", name, worst);
        free(mel);
        free(rows);
        free(expected);
        free(samples);
        gguf_close(file);
    }
}

// 1 kHz in mel is 999.99; the filter whose centre is nearest takes the peak.
static void a_tone_of_1_khz_peaks_in_its_band(void **state)
{
    (void)state;
    enum { N = 1600 };
    static const enum mel_rule rules[] = {MEL_RULE_REFERENCE, MEL_RULE_LLAMA_CPP, MEL_RULE_OLLAMA};
    float samples[N], mel[12 * MEL_BANDS];
    for (int i = 0; i < N; i++)
        samples[i] = (float)(0.5 * sin(2 * M_PI * 1000 * i / 16000.0));
    double spacing = 2595 * log10(1 + 8000 / 700.0) / 129;
    int nearest = (int)lround(2595 * log10(1 + 1000 / 700.0) / spacing) - 1;
    for (size_t r = 0; r < 3; r++) {
        int64_t n_frames = mel_frame_count_by(rules[r], N);
        assert_true(n_frames <= 12 && mel_features(rules[r], samples, N, mel, NULL));
        const float *row = mel + 4 * MEL_BANDS;
        int peak = 0;
        for (int m = 1; m < MEL_BANDS; m++)
            peak = row[m] > row[peak] ? m : peak;
        assert_int_equal(peak, nearest);
        assert_float_equal(row[0], log(0.001), rules[r] == MEL_RULE_OLLAMA ? 10 : 1e-6); // no bin of 512 falls into filter 0
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_and_token_counts_follow_the_reference),
        cmocka_unit_test(features_equal_the_reference),
        cmocka_unit_test(a_tone_of_1_khz_peaks_in_its_band),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
