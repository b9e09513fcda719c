// media_golden.h: reading the goldens of pictures and sounds in tests.

#ifndef CARAT_TESTS_MEDIA_GOLDEN_H
#define CARAT_TESTS_MEDIA_GOLDEN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"
#include "media/image.h"

// Last: it defines a macro called fail.
#include <cmocka.h>

// cmocka's own goes through that macro, which other headers of the tests take away.
#undef fail_msg
#define fail_msg(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

// A file of the fixtures folder, e.g. "media/vision-tiny-mm-tiny.gguf".
static inline struct gguf_file *media_golden_open(const char *name)
{
    char path[512];
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    snprintf(path, sizeof path, "%s/%s", CARAT_FIXTURES, name);
    if (!gguf_open_path(path, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

// The bytes of a tensor, freed by the caller; NULL when the file has none of that name.
static inline void *golden_tensor(const struct gguf_file *file, const char *name, int64_t *n_elements)
{
    struct carat_error err = {0};
    const struct gguf_tensor *tensor = gguf_find_tensor(file, name);
    if (tensor == NULL)
        return NULL;
    void *bytes = malloc((size_t)tensor->n_bytes);
    assert_non_null(bytes);
    if (!gguf_tensor_read(file, tensor, 0, bytes, (size_t)tensor->n_bytes, &err))
        fail_msg("%s", err.message);
    if (n_elements != NULL)
        *n_elements = (int64_t)gguf_tensor_elements(tensor);
    return bytes;
}

static inline int32_t golden_int(const struct gguf_file *file, const char *key)
{
    uint32_t value = 0;
    struct carat_error err = {0};
    if (!gguf_u32(file, key, &value, &err))
        fail_msg("%s", err.message);
    return (int32_t)value;
}

// The picture that a golden belongs to: stored as `raw` or given by the formula
// ((((3x + 5y) >> 3) ^ (x*y >> 9)) + 61c) & 255.
static inline struct image golden_image(const struct gguf_file *file)
{
    struct image image;
    struct carat_error err = {0};
    int32_t width = golden_int(file, "golden.width"), height = golden_int(file, "golden.height");
    uint8_t *raw = golden_tensor(file, "raw", NULL);
    if (!image_new(width, height, &image, &err))
        fail_msg("%s", err.message);
    for (int32_t i = 0; i < width * height * 3; i++) {
        int32_t c = i % 3, x = i / 3 % width, y = i / 3 / width;
        image.rgb[i] = raw != NULL ? raw[i] : (uint8_t)(((((3 * x + 5 * y) >> 3) ^ (x * y >> 9)) + 61 * c) & 255);
    }
    free(raw);
    return image;
}

// The sound that a golden belongs to: 16-bit samples, repeated up to golden.samples.
static inline float *golden_sound(const struct gguf_file *file, int64_t *n_samples)
{
    int64_t n_pcm = 0;
    int16_t *pcm = golden_tensor(file, "pcm", &n_pcm);
    *n_samples = golden_int(file, "golden.samples");
    float *samples = malloc((size_t)*n_samples * sizeof(float));
    assert_non_null(pcm);
    assert_non_null(samples);
    for (int64_t i = 0; i < *n_samples; i++)
        samples[i] = (float)pcm[i % n_pcm] / 32768.0f;
    free(pcm);
    return samples;
}

static inline double largest_difference(const float *a, const float *b, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double difference = (double)a[i] - b[i];
        difference = difference < 0 ? -difference : difference;
        if (!(difference <= largest)) // also a NaN
            largest = difference;
    }
    return largest;
}

#endif
