// resample.c: band-limited resampling to 16 kHz with a windowed sinc (Kaiser window). See sound.h.
//
// Output sample o stands at input position o * rate / 16000. With that fraction reduced to step / n_phases, only n_phases
// different sets of filter taps exist; they are computed once, in f64. The filter passes up to 93 % of the lower of the two
// Nyquist frequencies and is 90 dB down at 107 %.

#include <math.h>
#include <stdlib.h>

#include "media/sound.h"

static const double ZERO_CROSSINGS = 24; // half width of the filter, in periods of its cut-off
static const double KAISER_BETA = 9;

// The modified Bessel function of the first kind, order 0, by its power series.
static double bessel_i0(double x)
{
    double sum = 1, term = 1;
    for (int k = 1; k < 64 && term > sum * 1e-17; k++) {
        term *= (x / (2 * k)) * (x / (2 * k));
        sum += term;
    }
    return sum;
}

static int64_t greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

struct filter {
    int64_t step, n_phases; // input samples per output sample = step / n_phases
    int32_t reach;          // taps cover inputs centre - reach + 1 .. centre + reach
    float *taps;            // [n_phases, 2 * reach]
};

// The taps of one phase: an output that lies `fraction` after input sample 0; they add up to 1.
static void phase_taps(double fraction, double cutoff, int32_t reach, double half_width, float *taps, double *scratch)
{
    const double pi = 3.14159265358979323846;
    double sum = 0, peak = bessel_i0(KAISER_BETA);
    for (int32_t j = 0; j < 2 * reach; j++) {
        double x = (j - reach + 1) - fraction, u = x / half_width;
        double sinc = fabs(x) < 1e-12 ? 1 : sin(pi * cutoff * x) / (pi * cutoff * x);
        scratch[j] = fabs(u) < 1 ? sinc * bessel_i0(KAISER_BETA * sqrt(1 - u * u)) / peak : 0;
        sum += scratch[j];
    }
    for (int32_t j = 0; j < 2 * reach; j++)
        taps[j] = (float)(scratch[j] / sum);
}

static bool filter_make(int32_t rate, struct filter *filter, struct carat_error *err)
{
    int64_t divisor = greatest_common_divisor(rate, SOUND_RATE);
    double cutoff = rate > SOUND_RATE ? (double)SOUND_RATE / rate : 1; // of the input's Nyquist frequency
    double half_width = ZERO_CROSSINGS / cutoff;
    *filter = (struct filter){rate / divisor, SOUND_RATE / divisor, (int32_t)ceil(half_width) + 1, NULL};
    size_t n_taps = 2 * (size_t)filter->reach;
    filter->taps = calloc((size_t)filter->n_phases * n_taps, sizeof(float));
    double *scratch = calloc(n_taps, sizeof(double));
    if (filter->taps == NULL || scratch == NULL) {
        free(filter->taps);
        free(scratch);
        return fail(err, CARAT_NO_MEMORY, "no memory to resample a sound of %d samples per second", (int)rate);
    }
    for (int64_t p = 0; p < filter->n_phases; p++)
        phase_taps(
            (double)p / (double)filter->n_phases, cutoff, filter->reach, half_width, filter->taps + (size_t)p * n_taps, scratch);
    free(scratch);
    return true;
}

static float filtered(const struct filter *filter, const struct sound *in, int64_t o)
{
    int64_t position = o * filter->step, centre = position / filter->n_phases;
    const float *taps = filter->taps + (size_t)(position % filter->n_phases) * 2 * (size_t)filter->reach;
    double sum = 0;
    for (int32_t j = 0; j < 2 * filter->reach; j++) {
        int64_t i = centre + j - filter->reach + 1;
        if (i >= 0 && i < in->n_samples)
            sum += (double)taps[j] * in->samples[i];
    }
    return (float)sum;
}

bool sound_resample(struct sound *sound, struct carat_error *err)
{
    struct filter filter;
    if (sound->rate == SOUND_RATE)
        return true;
    int64_t n_out = (sound->n_samples * SOUND_RATE + sound->rate - 1) / sound->rate;
    if (n_out > SOUND_MAX_SAMPLES)
        return fail(err, CARAT_UNSUPPORTED, "the sound is longer than %d samples at 16 kHz: cut it first", SOUND_MAX_SAMPLES);
    if (!filter_make(sound->rate, &filter, err))
        return false;
    float *samples = malloc((size_t)n_out * sizeof(float));
    for (int64_t o = 0; samples != NULL && o < n_out; o++)
        samples[o] = filtered(&filter, sound, o);
    free(filter.taps);
    if (samples == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a sound of %lld samples", (long long)n_out);
    free(sound->samples);
    *sound = (struct sound){samples, n_out, SOUND_RATE};
    return true;
}
