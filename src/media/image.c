// image.c: pictures in memory: making, orienting, the size rules, patches. See image.h.

#include "media/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool image_new(int32_t width, int32_t height, struct image *out, struct carat_error *err)
{
    *out = (struct image){0};
    if (width < 1 || height < 1)
        return fail(err, CARAT_BAD_ARGUMENT, "the image is %d x %d pixels: it is empty", (int)width, (int)height);
    if (width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE || (int64_t)width * height > IMAGE_MAX_PIXELS)
        return fail(err, CARAT_UNSUPPORTED,
            "the image is %d x %d pixels, more than %d on a side or %d million in all: make it smaller first", (int)width,
            (int)height, IMAGE_MAX_SIDE, IMAGE_MAX_PIXELS / 1000000);
    out->rgb = calloc((size_t)width * (size_t)height, 3);
    if (out->rgb == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for an image of %d x %d pixels", (int)width, (int)height);
    out->width = width;
    out->height = height;
    return true;
}

void image_free(struct image *image)
{
    free(image->rgb);
    *image = (struct image){0};
}

// A colour over white, rounded.
static uint8_t over_white(uint8_t colour, uint8_t alpha)
{
    return (uint8_t)((colour * alpha + 255 * (255 - alpha) + 127) / 255);
}

bool image_from_pixels(
    const uint8_t *pixels, int32_t width, int32_t height, int n_channels, struct image *out, struct carat_error *err)
{
    if (n_channels < 1 || n_channels > 4)
        return fail(err, CARAT_BAD_ARGUMENT, "pixels with %d channels: 1 to 4 are possible", n_channels);
    if (!image_new(width, height, out, err))
        return false;
    size_t n_pixels = (size_t)width * (size_t)height;
    if (n_channels == 3) {
        memcpy(out->rgb, pixels, n_pixels * 3);
        return true;
    }
    bool has_alpha = n_channels == 2 || n_channels == 4;
    for (size_t i = 0; i < n_pixels; i++) {
        const uint8_t *pixel = pixels + i * (size_t)n_channels;
        for (int c = 0; c < 3; c++) {
            uint8_t colour = pixel[n_channels == 4 ? c : 0];
            out->rgb[3 * i + (size_t)c] = has_alpha ? over_white(colour, pixel[n_channels - 1]) : colour;
        }
    }
    return true;
}

bool image_orient(struct image *image, int orientation, struct carat_error *err)
{
    if (orientation < 2 || orientation > 8)
        return true;
    bool swaps = orientation >= 5; // width and height change places
    struct image upright;
    int32_t width = swaps ? image->height : image->width, height = swaps ? image->width : image->height;
    if (!image_new(width, height, &upright, err))
        return false;
    // Where the stored picture's pixel (x, y) = (0, 0) .. appears: mirrored in x, mirrored in y, after the exchange.
    bool mirror_x = orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
    bool mirror_y = orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
    for (int32_t y = 0; y < image->height; y++) {
        for (int32_t x = 0; x < image->width; x++) {
            int32_t to_x = swaps ? y : x, to_y = swaps ? x : y;
            to_x = mirror_x ? width - 1 - to_x : to_x;
            to_y = mirror_y ? height - 1 - to_y : to_y;
            memcpy(upright.rgb + 3 * ((size_t)to_y * (size_t)width + (size_t)to_x),
                image->rgb + 3 * ((size_t)y * (size_t)image->width + (size_t)x), 3);
        }
    }
    image_free(image);
    *image = upright;
    return true;
}

bool image_budget_is_valid(int32_t n_tokens)
{
    return n_tokens == 70 || n_tokens == 140 || n_tokens == 280 || n_tokens == 560 || n_tokens == 1120;
}

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t max_i32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

// Fills a budget of n_tokens cells; a side that would vanish becomes one cell and the other at most `cap` cells.
static void fill_budget(int32_t width, int32_t height, int32_t n_tokens, int32_t *target_width, int32_t *target_height)
{
    double factor = sqrt((double)n_tokens * 9.0 * 256.0 / ((double)height * (double)width));
    int32_t cells_y = (int32_t)floor(factor * height / IMAGE_CELL), cells_x = (int32_t)floor(factor * width / IMAGE_CELL);
    if (cells_y == 0) {
        cells_y = 1;
        cells_x = min_i32(width / height, n_tokens);
    } else if (cells_x == 0) {
        cells_x = 1;
        cells_y = min_i32(height / width, n_tokens);
    }
    *target_width = cells_x * IMAGE_CELL;
    *target_height = cells_y * IMAGE_CELL;
}

// llama.cpp: each side to the nearest cell, then scaled into 70 .. 1120 tokens. In f32 as there: a side that falls on a whole
// number of cells would otherwise get one more or less.
static void near_own_size(int32_t width, int32_t height, int32_t *target_width, int32_t *target_height)
{
    const float cell = IMAGE_CELL, least = 70 * cell * cell, most = 1120 * cell * cell;
    float x = (float)width, y = (float)height, area = (float)((int64_t)width * height);
    float w = fmaxf(cell, roundf(x / cell) * cell), h = fmaxf(cell, roundf(y / cell) * cell);
    if (w * h > most) {
        float beta = sqrtf(area / most);
        w = fmaxf(cell, floorf(x / beta / cell) * cell);
        h = fmaxf(cell, floorf(y / beta / cell) * cell);
    } else if (w * h < least) {
        float beta = sqrtf(least / area);
        w = ceilf(x * beta / cell) * cell;
        h = ceilf(y * beta / cell) * cell;
    }
    *target_width = (int32_t)w;
    *target_height = (int32_t)h;
}

bool image_target_size(int32_t width, int32_t height, int32_t n_tokens, enum image_rule rule, int32_t *target_width,
    int32_t *target_height, struct carat_error *err)
{
    if (width < 1 || height < 1)
        return fail(err, CARAT_BAD_ARGUMENT, "the image is %d x %d pixels: it is empty", (int)width, (int)height);
    if (!image_budget_is_valid(n_tokens))
        return fail(err, CARAT_BAD_ARGUMENT, "an image budget of %d tokens: choose 70, 140, 280, 560 or 1120", (int)n_tokens);
    if (rule == IMAGE_RULE_LLAMA_CPP) {
        near_own_size(width, height, target_width, target_height);
    } else if (rule == IMAGE_RULE_OLLAMA) {
        double factor = sqrt(280.0 * 9.0 * 256.0 / ((double)height * (double)width));
        *target_width = max_i32(1, (int32_t)floor(factor * width / IMAGE_CELL)) * IMAGE_CELL;
        *target_height = max_i32(1, (int32_t)floor(factor * height / IMAGE_CELL)) * IMAGE_CELL;
    } else {
        fill_budget(width, height, n_tokens, target_width, target_height);
    }
    int64_t n = (int64_t)(*target_width / IMAGE_CELL) * (*target_height / IMAGE_CELL);
    if (n > IMAGE_MAX_TOKENS || *target_width > IMAGE_MAX_SIDE || *target_height > IMAGE_MAX_SIDE)
        return fail(
            err, CARAT_UNSUPPORTED, "an image of %d x %d pixels is too elongated for this size rule", (int)width, (int)height);
    return true;
}

// Resizes keeping the ratio (the shorter side rounded up) and centres the result on black.
static bool letterbox(const struct image *image, int32_t width, int32_t height, struct image *out, struct carat_error *err)
{
    float scale = fminf((float)width / (float)image->width, (float)height / (float)image->height);
    int32_t inner_width = min_i32((int32_t)ceilf((float)image->width * scale), width);
    int32_t inner_height = min_i32((int32_t)ceilf((float)image->height * scale), height);
    struct image inner;
    if (!image_resize(image, inner_width, inner_height, IMAGE_BICUBIC_22, &inner, err))
        return false;
    bool ok = image_new(width, height, out, err);
    int32_t left = (width - inner.width) / 2, top = (height - inner.height) / 2;
    for (int32_t y = 0; ok && y < inner.height; y++)
        memcpy(out->rgb + 3 * ((size_t)(top + y) * (size_t)width + (size_t)left), inner.rgb + 3 * (size_t)y * (size_t)inner.width,
            3 * (size_t)inner.width);
    image_free(&inner);
    return ok;
}

bool image_prepare(const struct image *image, int32_t n_tokens, enum image_rule rule, struct image *out, struct carat_error *err)
{
    int32_t width, height;
    *out = (struct image){0};
    if (!image_target_size(image->width, image->height, n_tokens, rule, &width, &height, err))
        return false;
    if (rule == IMAGE_RULE_LLAMA_CPP)
        return letterbox(image, width, height, out, err);
    return image_resize(image, width, height, rule == IMAGE_RULE_OLLAMA ? IMAGE_BILINEAR_22 : IMAGE_BICUBIC_16, out, err);
}

int32_t image_token_count(const struct image *prepared)
{
    return (prepared->width / IMAGE_CELL) * (prepared->height / IMAGE_CELL);
}

void image_patches(
    const struct image *prepared, int32_t patch, int32_t first, int32_t count, float scale, float shift, float *out)
{
    int32_t n_columns = prepared->width / patch;
    for (int32_t p = first; p < first + count; p++) {
        const uint8_t *corner =
            prepared->rgb + 3 * ((size_t)(p / n_columns * patch) * (size_t)prepared->width + (size_t)(p % n_columns * patch));
        for (int c = 0; c < 3; c++) {
            for (int32_t y = 0; y < patch; y++) {
                const uint8_t *row = corner + 3 * (size_t)y * (size_t)prepared->width + c;
                for (int32_t x = 0; x < patch; x++)
                    *out++ = (float)row[3 * x] * scale + shift;
            }
        }
    }
}
