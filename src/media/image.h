// image.h: pictures on their way to the vision tower: decoding, the size that the tower wants, resizing, patches.
//
// A picture is 8-bit RGB. Decoding turns every input into that: grey is repeated, 16 bits keep their upper 8, CMYK JPEGs are
// converted, transparent pixels are composited on white (the reference drops the alpha channel, which shows whatever colour is
// stored under transparent pixels), and the EXIF orientation of JPEGs is applied.
//
// The size rule and the filter are the model's own (Gemma 4 vision, decoding and size): the picture is stretched to the largest
// multiples of 48 that its token budget allows, so the aspect ratio changes slightly.

#ifndef CARAT_MEDIA_IMAGE_H
#define CARAT_MEDIA_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum {
    IMAGE_CELL = 48,              // pixels a soft token covers in each direction: 3 x 3 patches of 16
    IMAGE_MAX_SIDE = 65535,       // pixels
    IMAGE_MAX_PIXELS = 100000000, // of the picture as it comes
    IMAGE_DEFAULT_TOKENS = 280,   // budget
    IMAGE_MAX_TOKENS = 1120,
};

struct image {
    int32_t width, height; // pixels
    uint8_t *rgb;          // [height, width, 3], owned
};

// Whose rule decides the size, and how the picture gets there. The first is the definition; the others are for comparison.
enum image_rule {
    IMAGE_RULE_REFERENCE, // fills the budget, stretches, bicubic with antialiasing and 16-bit weights
    IMAGE_RULE_LLAMA_CPP, // 70 to 1120 tokens near the picture's own size, letterbox on black, bicubic with 22-bit weights
    IMAGE_RULE_OLLAMA,    // fills 280 tokens, stretches, bilinear
};

// An empty picture of this size, zeroed. Fails for sides below 1 or above the limits.
bool image_new(int32_t width, int32_t height, struct image *out, struct carat_error *err);
void image_free(struct image *image); // a zeroed image is allowed

// From pixels in memory, [height, width, n_channels]: 1 grey, 2 grey and alpha, 3 RGB, 4 RGB and alpha.
bool image_from_pixels(
    const uint8_t *pixels, int32_t width, int32_t height, int n_channels, struct image *out, struct carat_error *err);

#ifndef __wasm__
// Decodes a JPEG, PNG, GIF (first frame), BMP or PNM file. Other known formats are refused by name. The size is checked before
// memory is taken. In the browser its own decoder does this.
bool image_decode(const void *bytes, size_t n_bytes, struct image *out, struct carat_error *err);
#endif

// The EXIF orientation of a JPEG file, 1 to 8; 1 (upright) when there is none or the data is broken.
int image_exif_orientation(const uint8_t *bytes, size_t n_bytes);

// Turns and mirrors the picture so that it is upright. orientation: 1 to 8 as in EXIF.
bool image_orient(struct image *image, int orientation, struct carat_error *err);

// True for 70, 140, 280, 560 and 1120.
bool image_budget_is_valid(int32_t n_tokens);

// The size that a picture of width x height is brought to: multiples of 48. n_tokens is the budget (not used by the other rules
// but for the largest picture). Fails for empty pictures.
bool image_target_size(int32_t width, int32_t height, int32_t n_tokens, enum image_rule rule, int32_t *target_width,
    int32_t *target_height, struct carat_error *err);

// Brings a picture to the tower's size by the rule. out is a new picture.
bool image_prepare(const struct image *image, int32_t n_tokens, enum image_rule rule, struct image *out, struct carat_error *err);

// Soft tokens of a prepared picture.
int32_t image_token_count(const struct image *prepared);

// Patches as rows of numbers for the patch embedding. Patch p = row * (width / patch) + column covers patch x patch pixels; out
// [count, 3 * patch * patch] holds patches first .. first + count - 1, each as (channel, y, x), value byte * scale + shift.
void image_patches(
    const struct image *prepared, int32_t patch, int32_t first, int32_t count, float scale, float shift, float *out);

// --- the filter, for tests and other uses ---

enum image_filter { IMAGE_BICUBIC_16, IMAGE_BICUBIC_22, IMAGE_BILINEAR_22 };

// Separable resampling with antialiasing, horizontally first, each pass rounded to bytes.
bool image_resize(const struct image *image, int32_t width, int32_t height, enum image_filter filter, struct image *out,
    struct carat_error *err);

#endif
