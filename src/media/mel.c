// mel.c: see mel.h.

#include "media/mel.h"

#include <math.h>
#include <stdlib.h>

enum { FFT_MAX = 1024 };

static const double PI = 3.14159265358979323846;

// Everything that does not depend on the sound.
struct front_end {
    int n_fft, n_left; // FFT points, zeros in front
    float window[MEL_FRAME_SAMPLES];
    double cosines[FFT_MAX / 2], sines[FFT_MAX / 2]; // of -2 pi k / n_fft
    double filters[MEL_BANDS][FFT_MAX / 2 + 1];      // weight of each bin
    int first_bin[MEL_BANDS], end_bin[MEL_BANDS];    // bins with a weight
};

static int64_t zeros_in_front(enum mel_rule rule)
{
    return rule == MEL_RULE_OLLAMA ? 0 : MEL_HOP_SAMPLES;
}

int64_t mel_least_samples(enum mel_rule rule)
{
    return rule == MEL_RULE_LLAMA_CPP ? 2 : MEL_FRAME_SAMPLES + 1 - zeros_in_front(rule);
}

int64_t mel_frame_count_by(enum mel_rule rule, int64_t n_samples)
{
    int64_t n_after_first = n_samples + zeros_in_front(rule) - (MEL_FRAME_SAMPLES + 1);
    if (n_samples < mel_least_samples(rule))
        return 0;
    return n_after_first < 0 ? 1 : n_after_first / MEL_HOP_SAMPLES + 1;
}

int64_t mel_token_count(int64_t n_frames)
{
    if (n_frames < 1)
        return 0;
    int64_t n_halves = (n_frames - 1) / 2 + 1;
    return (n_halves - 1) / 2 + 1;
}

static double mel_of_hz(double hz)
{
    return 2595 * log10(1 + hz / 700);
}

static double hz_of_mel(double mel)
{
    return 700 * (pow(10, mel / 2595) - 1);
}

static void make_filters(struct front_end *front)
{
    double points[MEL_BANDS + 2], last = mel_of_hz(8000);
    for (int i = 0; i < MEL_BANDS + 2; i++)
        points[i] = hz_of_mel(last * i / (MEL_BANDS + 1));
    for (int m = 0; m < MEL_BANDS; m++) {
        front->first_bin[m] = front->end_bin[m] = 0;
        for (int k = 0; k <= front->n_fft / 2; k++) {
            double hz = 16000.0 * k / front->n_fft;
            double rising = (hz - points[m]) / (points[m + 1] - points[m]);
            double falling = (points[m + 2] - hz) / (points[m + 2] - points[m + 1]);
            front->filters[m][k] = fmax(0, fmin(rising, falling));
            if (front->filters[m][k] > 0) {
                if (front->end_bin[m] == 0)
                    front->first_bin[m] = k;
                front->end_bin[m] = k + 1;
            }
        }
    }
}

static void front_end_make(enum mel_rule rule, struct front_end *front)
{
    front->n_fft = rule == MEL_RULE_OLLAMA ? 1024 : 512;
    front->n_left = (int)zeros_in_front(rule);
    double shift = rule == MEL_RULE_OLLAMA ? 0.5 : 0;
    for (int i = 0; i < MEL_FRAME_SAMPLES; i++)
        front->window[i] = (float)(0.5 - 0.5 * cos(2 * PI * (i + shift) / MEL_FRAME_SAMPLES));
    for (int k = 0; k < front->n_fft / 2; k++) {
        front->cosines[k] = cos(2 * PI * k / front->n_fft);
        front->sines[k] = -sin(2 * PI * k / front->n_fft);
    }
    make_filters(front);
}

// The discrete Fourier transform in place, radix 2, decimation in time. n is a power of two.
static void transform(const struct front_end *front, double *re, double *im)
{
    int n = front->n_fft;
    for (int i = 1, j = 0; i < n; i++) {
        int bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            double swapped = re[i];
            re[i] = re[j];
            re[j] = swapped;
        }
    }
    for (int length = 2; length <= n; length *= 2) {
        for (int start = 0; start < n; start += length) {
            for (int k = 0; k < length / 2; k++) {
                int a = start + k, b = a + length / 2, turn = k * (n / length);
                double c = front->cosines[turn], s = front->sines[turn];
                double br = re[b] * c - im[b] * s, bi = re[b] * s + im[b] * c;
                re[b] = re[a] - br;
                im[b] = im[a] - bi;
                re[a] += br;
                im[a] += bi;
            }
        }
    }
}

// One frame that starts at `start` (negative: in the zeros in front).
static void frame_features(
    const struct front_end *front, enum mel_rule rule, const float *samples, int64_t n_samples, int64_t start, float *out)
{
    double re[FFT_MAX] = {0}, im[FFT_MAX] = {0};
    for (int i = 0; i < MEL_FRAME_SAMPLES; i++) {
        int64_t at = start + i;
        if (at >= 0 && at < n_samples) {
            float windowed = samples[at] * front->window[i];
            re[i] = windowed;
        }
    }
    transform(front, re, im);
    for (int k = 0; k <= front->n_fft / 2; k++)
        re[k] = sqrt(re[k] * re[k] + im[k] * im[k]);
    for (int m = 0; m < MEL_BANDS; m++) {
        double sum = 0;
        for (int k = front->first_bin[m]; k < front->end_bin[m]; k++)
            sum += front->filters[m][k] * re[k];
        out[m] = (float)log(rule == MEL_RULE_REFERENCE ? sum + 0.001 : fmax(sum, 0.001));
    }
}

bool mel_features(enum mel_rule rule, const float *samples, int64_t n_samples, float *out, struct carat_error *err)
{
    struct front_end *front = calloc(1, sizeof *front);
    if (front == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the audio features");
    front_end_make(rule, front);
    int64_t n_frames = mel_frame_count_by(rule, n_samples);
    for (int64_t f = 0; f < n_frames; f++)
        frame_features(front, rule, samples, n_samples, f * MEL_HOP_SAMPLES - front->n_left, out + f * MEL_BANDS);
    free(front);
    return true;
}
