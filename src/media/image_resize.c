// image_resize.c: separable resampling of bytes with antialiasing and integer weights (Gemma 4 vision, decoding and size).
//
// Weights are computed in f64 and quantised to P bits. The reference (torchvision) takes, for each pass, the largest P up to 22
// with which every weight fits 16 bits; Pillow and llama.cpp always take 22. Reproducing P reproduces the bytes.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "media/image.h"

// The taps of one pass: output o reads inputs first[o] .. first[o] + count[o] - 1 with weights[o * max_count ..].
struct taps {
    int32_t *first, *count;
    int32_t *weights; // scaled by 2^precision
    int32_t max_count;
    int precision;
};

static double cubic(double x)
{
    x = fabs(x);
    if (x < 1)
        return (1.5 * x - 2.5) * x * x + 1;
    return x < 2 ? -0.5 * (((x - 5) * x + 8) * x - 4) : 0;
}

static double linear(double x)
{
    return fmax(0, 1 - fabs(x));
}

static void taps_free(struct taps *taps)
{
    free(taps->first);
    free(taps->count);
    free(taps->weights);
}

static int32_t quantised(double weight, int precision)
{
    return (int32_t)(weight * (double)(1 << precision) + (weight < 0 ? -0.5 : 0.5));
}

// The largest precision with which the largest weight stays below 2^15.
static int precision_of_16_bits(double largest)
{
    int precision = 0;
    while (precision < 22 && (int32_t)(largest * (double)(1 << (precision + 1)) + 0.5) < 32768)
        precision++;
    return precision;
}

// The normalised weights of output o into w; returns how many.
static int32_t weights_at(
    int32_t o, int32_t n_in, double scale, double (*kernel)(double), double support, double *w, int32_t *first)
{
    double stretch = fmax(scale, 1), centre = (o + 0.5) * scale, reach = support * stretch, sum = 0;
    int32_t from = (int32_t)fmax(0, trunc(centre - reach + 0.5));
    int32_t to = (int32_t)fmin(n_in, trunc(centre + reach + 0.5));
    for (int32_t j = from; j < to; j++) {
        w[j - from] = kernel((j - centre + 0.5) * (1.0 / stretch));
        sum += w[j - from];
    }
    for (int32_t j = 0; j < to - from && sum != 0; j++)
        w[j] /= sum;
    *first = from;
    return to - from;
}

static bool taps_make(int32_t n_in, int32_t n_out, enum image_filter filter, struct taps *taps, struct carat_error *err)
{
    double scale = (double)n_in / n_out, support = filter == IMAGE_BILINEAR_22 ? 1 : 2;
    int32_t max_count = (int32_t)ceil(support * fmax(scale, 1)) * 2 + 1;
    size_t n_weights = (size_t)n_out * (size_t)max_count;
    double *weights = calloc(n_weights, sizeof *weights);
    *taps = (struct taps){calloc((size_t)n_out, sizeof(int32_t)), calloc((size_t)n_out, sizeof(int32_t)),
        calloc(n_weights, sizeof(int32_t)), max_count, 22};
    if (weights == NULL || taps->first == NULL || taps->count == NULL || taps->weights == NULL) {
        free(weights);
        taps_free(taps);
        return fail(err, CARAT_NO_MEMORY, "no memory to resize an image from %d to %d pixels", (int)n_in, (int)n_out);
    }
    double largest = 0;
    for (int32_t o = 0; o < n_out; o++) {
        double *w = weights + (size_t)o * (size_t)max_count;
        taps->count[o] = weights_at(o, n_in, scale, filter == IMAGE_BILINEAR_22 ? linear : cubic, support, w, &taps->first[o]);
        for (int32_t j = 0; j < taps->count[o]; j++)
            largest = fmax(largest, w[j]);
    }
    if (filter == IMAGE_BICUBIC_16)
        taps->precision = precision_of_16_bits(largest);
    for (size_t i = 0; i < n_weights; i++)
        taps->weights[i] = quantised(weights[i], taps->precision);
    free(weights);
    return true;
}

// Sums fit 32 bits: magnitudes of the weights of one output add up to less than 1.9 * 2^22, times 255.
static uint8_t clipped(int32_t sum, int precision)
{
    int32_t value = sum >> precision;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

// One pass along x of one row.
static void pass_x(const struct taps *taps, const uint8_t *in, uint8_t *out, int32_t n_out)
{
    for (int32_t o = 0; o < n_out; o++) {
        const int32_t *w = taps->weights + (size_t)o * (size_t)taps->max_count;
        const uint8_t *pixel = in + 3 * (size_t)taps->first[o];
        int32_t sums[3];
        sums[0] = sums[1] = sums[2] = 1 << (taps->precision - 1);
        for (int32_t j = 0; j < taps->count[o]; j++, pixel += 3) {
            sums[0] += w[j] * pixel[0];
            sums[1] += w[j] * pixel[1];
            sums[2] += w[j] * pixel[2];
        }
        for (int c = 0; c < 3; c++)
            out[3 * o + c] = clipped(sums[c], taps->precision);
    }
}

// One output row of the pass along y; sums holds n_bytes numbers.
static void pass_y(const struct taps *taps, int32_t o, const uint8_t *in, size_t n_bytes, int32_t *sums, uint8_t *out)
{
    const int32_t *w = taps->weights + (size_t)o * (size_t)taps->max_count;
    for (size_t i = 0; i < n_bytes; i++)
        sums[i] = 1 << (taps->precision - 1);
    for (int32_t j = 0; j < taps->count[o]; j++) {
        const uint8_t *row = in + (size_t)(taps->first[o] + j) * n_bytes;
        for (size_t i = 0; i < n_bytes; i++)
            sums[i] += w[j] * row[i];
    }
    for (size_t i = 0; i < n_bytes; i++)
        out[i] = clipped(sums[i], taps->precision);
}

static bool resize_x(
    const struct image *image, int32_t width, enum image_filter filter, struct image *out, struct carat_error *err)
{
    struct taps taps;
    if (!image_new(width, image->height, out, err))
        return false;
    if (image->width == width) {
        memcpy(out->rgb, image->rgb, 3 * (size_t)width * (size_t)image->height);
        return true;
    }
    if (!taps_make(image->width, width, filter, &taps, err)) {
        image_free(out);
        return false;
    }
    for (int32_t y = 0; y < image->height; y++)
        pass_x(&taps, image->rgb + 3 * (size_t)y * (size_t)image->width, out->rgb + 3 * (size_t)y * (size_t)width, width);
    taps_free(&taps);
    return true;
}

static bool resize_y(
    const struct image *image, int32_t height, enum image_filter filter, struct image *out, struct carat_error *err)
{
    struct taps taps;
    size_t n_bytes = 3 * (size_t)image->width;
    if (!image_new(image->width, height, out, err))
        return false;
    int32_t *sums = malloc(n_bytes * sizeof *sums);
    if (sums == NULL || !taps_make(image->height, height, filter, &taps, err)) {
        if (sums == NULL)
            fail(err, CARAT_NO_MEMORY, "no memory to resize an image of %d pixels' width", (int)image->width);
        free(sums);
        image_free(out);
        return false;
    }
    for (int32_t o = 0; o < height; o++)
        pass_y(&taps, o, image->rgb, n_bytes, sums, out->rgb + (size_t)o * n_bytes);
    taps_free(&taps);
    free(sums);
    return true;
}

bool image_resize(const struct image *image, int32_t width, int32_t height, enum image_filter filter, struct image *out,
    struct carat_error *err)
{
    struct image narrowed;
    *out = (struct image){0};
    if (!resize_x(image, width, filter, &narrowed, err))
        return false;
    if (narrowed.height == height) {
        *out = narrowed;
        return true;
    }
    bool ok = resize_y(&narrowed, height, filter, out, err);
    image_free(&narrowed);
    return ok;
}
