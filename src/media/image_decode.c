// image_decode.c: picture files to pixels, by stb_image; EXIF orientation by a reader of our own. See image.h.

#include <string.h>

#include "base/number.h"
#include "media/image.h"

// The orientation entry (tag 0x0112) of the first directory of a TIFF block; 1 when absent or broken.
static int tiff_orientation(const uint8_t *tiff, size_t n_bytes)
{
    if (n_bytes < 8 || (memcmp(tiff, "II*\0", 4) != 0 && memcmp(tiff, "MM\0*", 4) != 0))
        return 1;
    bool little = tiff[0] == 'I';
    uint32_t start = little ? load_u32(tiff + 4) : __builtin_bswap32(load_u32(tiff + 4));
    if (start > n_bytes - 2 || n_bytes < 10)
        return 1;
    uint16_t n_entries = little ? load_u16(tiff + start) : __builtin_bswap16(load_u16(tiff + start));
    for (uint32_t i = 0; i < n_entries; i++) {
        uint64_t at = (uint64_t)start + 2 + 12 * (uint64_t)i;
        if (at + 12 > n_bytes)
            return 1;
        uint16_t tag = load_u16(tiff + at), value = load_u16(tiff + at + 8);
        if (!little) {
            tag = __builtin_bswap16(tag);
            value = __builtin_bswap16(value);
        }
        if (tag == 0x0112)
            return value >= 1 && value <= 8 ? value : 1;
    }
    return 1;
}

int image_exif_orientation(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes < 4 || bytes[0] != 0xff || bytes[1] != 0xd8)
        return 1;
    size_t at = 2;
    while (at + 4 <= n_bytes && bytes[at] == 0xff) {
        uint8_t marker = bytes[at + 1];
        if (marker == 0xff) { // a fill byte
            at++;
            continue;
        }
        if (marker == 0xda || marker == 0xd9) // the picture's data begins, or the file ends
            return 1;
        size_t length = (size_t)bytes[at + 2] << 8 | bytes[at + 3];
        if (length < 2 || length > n_bytes - at - 2)
            return 1;
        if (marker == 0xe1 && length >= 8 && memcmp(bytes + at + 4, "Exif\0\0", 6) == 0)
            return tiff_orientation(bytes + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

#ifndef __wasm__

#define STB_IMAGE_IMPLEMENTATION
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_GIF
#define STBI_ONLY_BMP
#define STBI_ONLY_PNM
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_MAX_DIMENSIONS IMAGE_MAX_SIDE
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

// The name of a format that is known but not decoded; NULL when the bytes say nothing.
static const char *foreign_format(const uint8_t *bytes, size_t n_bytes)
{
    if (n_bytes >= 12 && memcmp(bytes, "RIFF", 4) == 0 && memcmp(bytes + 8, "WEBP", 4) == 0)
        return "a WebP image";
    if (n_bytes >= 12 && memcmp(bytes + 4, "ftyp", 4) == 0) {
        if (memcmp(bytes + 8, "avif", 4) == 0 || memcmp(bytes + 8, "avis", 4) == 0)
            return "an AVIF image";
        if (memcmp(bytes + 8, "heic", 4) == 0 || memcmp(bytes + 8, "heix", 4) == 0 || memcmp(bytes + 8, "mif1", 4) == 0)
            return "a HEIC image";
        return "a video";
    }
    if (n_bytes >= 4 && (memcmp(bytes, "II*\0", 4) == 0 || memcmp(bytes, "MM\0*", 4) == 0))
        return "a TIFF image";
    if (n_bytes >= 5 && memcmp(bytes, "%PDF-", 5) == 0)
        return "a PDF document";
    if (n_bytes >= 2 && ((bytes[0] == 0xff && bytes[1] == 0x0a) || (n_bytes >= 8 && memcmp(bytes + 4, "JXL ", 4) == 0)))
        return "a JPEG XL image";
    if (n_bytes >= 4 && (memcmp(bytes, "<svg", 4) == 0 || memcmp(bytes, "<?xm", 4) == 0))
        return "an SVG drawing";
    return NULL;
}

bool image_decode(const void *bytes, size_t n_bytes, struct image *out, struct carat_error *err)
{
    int width = 0, height = 0, n_channels = 0;
    *out = (struct image){0};
    if (n_bytes == 0)
        return fail(err, CARAT_BAD_FILE, "the image file is empty");
    if (n_bytes > INT32_MAX)
        return fail(err, CARAT_UNSUPPORTED, "the image file is larger than 2 GiB");
    const char *foreign = foreign_format(bytes, n_bytes);
    if (foreign != NULL)
        return fail(err, CARAT_UNSUPPORTED, "this is %s: convert it to PNG or JPEG", foreign);
    if (!stbi_info_from_memory(bytes, (int)n_bytes, &width, &height, &n_channels))
        return fail(err, CARAT_BAD_FILE, "not an image that can be read (%s): PNG, JPEG, GIF, BMP and PNM are understood",
            stbi_failure_reason());
    if (width < 1 || height < 1 || width > IMAGE_MAX_SIDE || height > IMAGE_MAX_SIDE ||
        (int64_t)width * height > IMAGE_MAX_PIXELS)
        return fail(err, CARAT_UNSUPPORTED,
            "the image is %d x %d pixels, more than %d on a side or %d million in all: make it smaller first", width, height,
            IMAGE_MAX_SIDE, IMAGE_MAX_PIXELS / 1000000);
    uint8_t *pixels = stbi_load_from_memory(bytes, (int)n_bytes, &width, &height, &n_channels, 0);
    if (pixels == NULL)
        return fail(err, CARAT_BAD_FILE, "the image is broken (%s)", stbi_failure_reason());
    bool ok = image_from_pixels(pixels, width, height, n_channels, out, err);
    stbi_image_free(pixels);
    if (ok && !image_orient(out, image_exif_orientation(bytes, n_bytes), err)) {
        image_free(out);
        return false;
    }
    return ok;
}

#endif
