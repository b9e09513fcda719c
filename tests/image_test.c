// image_test.c: pictures: decoding, orientation, the size rule, the filter.

#include "media_golden.h"

static void target_sizes_follow_the_reference(void **state)
{
    (void)state;
    static const struct {
        int32_t height, width, budget, target_height, target_width;
    } cases[] = {{480, 640, 280, 672, 912}, {1080, 1920, 280, 576, 1056}, {100, 100, 280, 768, 768}, {3000, 200, 280, 3072, 192},
        {1, 5000, 280, 48, 13440}, {20, 400, 70, 48, 1776}, {1, 1, 70, 384, 384}, {5000, 1, 280, 13440, 48},
        {4000, 5000, 1120, 1392, 1776}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t width = 0, height = 0;
        assert_true(
            image_target_size(cases[i].width, cases[i].height, cases[i].budget, IMAGE_RULE_REFERENCE, &width, &height, NULL));
        assert_int_equal(width, cases[i].target_width);
        assert_int_equal(height, cases[i].target_height);
    }
}

static void llama_cpp_keeps_a_picture_near_its_own_size(void **state)
{
    (void)state;
    int32_t width = 0, height = 0;
    assert_true(image_target_size(640, 480, 280, IMAGE_RULE_LLAMA_CPP, &width, &height, NULL));
    assert_int_equal(width, 624);
    assert_int_equal(height, 480);
}

static void every_picture_fits_its_budget(void **state)
{
    (void)state;
    static const int32_t budgets[] = {70, 140, 280, 560, 1120};
    uint32_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * 1664525u + 1013904223u;
        int32_t width = 1 + (int32_t)(seed >> 8) % (i % 2 ? 60000 : 700), budget = budgets[i % 5];
        seed = seed * 1664525u + 1013904223u;
        int32_t height = 1 + (int32_t)(seed >> 8) % (i % 3 ? 900 : 60000), w = 0, h = 0;
        struct carat_error err = {0};
        if (!image_target_size(width, height, budget, IMAGE_RULE_REFERENCE, &w, &h, &err))
            fail_msg("%d x %d: %s", width, height, err.message);
        assert_true(w >= 48 && h >= 48 && w % 48 == 0 && h % 48 == 0 && w / 48 * (h / 48) <= budget);
    }
}

static void compare_resized(const char *name)
{
    struct gguf_file *file = media_golden_open(name);
    struct image image = golden_image(file), prepared;
    struct carat_error err = {0};
    if (!image_prepare(&image, golden_int(file, "golden.max_soft_tokens"), IMAGE_RULE_REFERENCE, &prepared, &err))
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(prepared.width, golden_int(file, "golden.resized_width"));
    assert_int_equal(prepared.height, golden_int(file, "golden.resized_height"));
    assert_int_equal(image_token_count(&prepared), golden_int(file, "golden.soft_tokens"));
    int64_t n_rows = prepared.height, n_differ = 0;
    uint8_t *expected = golden_tensor(file, "resized", NULL);
    int32_t *rows = golden_tensor(file, "resized.rows", &n_rows);
    size_t row_bytes = 3 * (size_t)prepared.width;
    for (int64_t r = 0; expected != NULL && r < n_rows; r++) {
        size_t y = rows != NULL ? (size_t)rows[r] : (size_t)r;
        for (size_t i = 0; i < row_bytes; i++)
            n_differ += prepared.rgb[y * row_bytes + i] != expected[(size_t)r * row_bytes + i];
    }
    if (n_differ != 0)
        fail_msg("%s: %lld bytes differ", name, (long long)n_differ);
    free(expected);
    free(rows);
    image_free(&prepared);
    image_free(&image);
    gguf_close(file);
}

// With the reference's weights the bytes are the reference's, not only near them.
static void resized_bytes_equal_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny", "landscape", "portrait", "panorama", "tower", "pixel", "exact", "huge"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[96];
        snprintf(name, sizeof name, "media/vision-tiny-mm-%s.gguf", names[i]);
        compare_resized(name);
    }
}

static void weights_of_22_bits_stay_within_two_levels(void **state)
{
    (void)state;
    struct gguf_file *file = media_golden_open("media/vision-tiny-mm-landscape.gguf");
    struct image image = golden_image(file), resized;
    uint8_t *expected = golden_tensor(file, "resized", NULL);
    assert_true(image_resize(&image, 480, 288, IMAGE_BICUBIC_22, &resized, NULL));
    for (int32_t i = 0; i < 480 * 288 * 3; i++)
        assert_in_range(resized.rgb[i] - expected[i] + 2, 0, 4);
    free(expected);
    image_free(&resized);
    image_free(&image);
    gguf_close(file);
}

static void a_flat_picture_stays_flat(void **state)
{
    (void)state;
    static const enum image_rule rules[] = {IMAGE_RULE_REFERENCE, IMAGE_RULE_OLLAMA};
    struct image image, prepared;
    assert_true(image_new(37, 11, &image, NULL));
    memset(image.rgb, 200, 3 * 37 * 11);
    for (size_t r = 0; r < 2; r++) {
        assert_true(image_prepare(&image, 280, rules[r], &prepared, NULL));
        for (int32_t i = 0; i < prepared.width * prepared.height * 3; i++)
            assert_int_equal(prepared.rgb[i], 200);
        image_free(&prepared);
    }
    image_free(&image);
}

static void odd_sizes_are_prepared_or_refused(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{1, 1}, {1, 5000}, {5000, 1}, {5000, 4000}};
    struct image image, prepared;
    struct carat_error err = {0};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_true(image_new(sizes[i][0], sizes[i][1], &image, NULL));
        assert_true(image_prepare(&image, 280, IMAGE_RULE_REFERENCE, &prepared, NULL));
        assert_true(image_token_count(&prepared) <= 280);
        image_free(&prepared);
        image_free(&image);
    }
    assert_false(image_new(0, 5, &image, &err));
    assert_non_null(strstr(err.message, "empty"));
    assert_false(image_new(60000, 60000, &image, &err));
    assert_int_equal(err.code, CARAT_UNSUPPORTED);
    assert_false(image_target_size(10, 10, 100, IMAGE_RULE_REFERENCE, &(int32_t){0}, &(int32_t){0}, &err));
    assert_non_null(strstr(err.message, "1120"));
}

static void a_patch_is_channel_row_column(void **state)
{
    (void)state;
    struct image image;
    float patches[2 * 768];
    assert_true(image_new(48, 48, &image, NULL));
    for (int32_t i = 0; i < 48 * 48 * 3; i++)
        image.rgb[i] = (uint8_t)(i * 7 % 256);
    image_patches(&image, 16, 3, 2, 2.0f / 255.0f, -1, patches);
    for (int32_t p = 0; p < 2; p++) {
        for (int32_t i = 0; i < 768; i++) {
            int32_t c = i / 256, y = 16 + i / 16 % 16, x = p * 16 + i % 16; // patches 3 and 4: second row, columns 0 and 1
            uint8_t byte = image.rgb[(y * 48 + x) * 3 + c];
            assert_float_equal(patches[p * 768 + i], 2 * (byte / 255.0f) - 1, 1e-6);
        }
    }
    image_free(&image);
}

// Every orientation, against where EXIF says that the stored picture's first row and column appear.
static void orientations_turn_the_picture_upright(void **state)
{
    (void)state;
    // A picture of 3 x 2 whose bytes name the pixels; the upright pictures read from the EXIF 2.3 table.
    static const char *const upright[] = {"abcdef", "cbafed", "fedcba", "defabc", "adbecf", "daebfc", "fcebda", "cfbead"};
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct image image;
        assert_true(image_new(3, 2, &image, NULL));
        for (int i = 0; i < 6; i++)
            memset(image.rgb + 3 * i, 'a' + i, 3);
        assert_true(image_orient(&image, orientation, NULL));
        assert_int_equal(image.width, orientation >= 5 ? 2 : 3);
        for (int i = 0; i < 6; i++)
            assert_int_equal(image.rgb[3 * i], upright[orientation - 1][i]);
        image_free(&image);
    }
}

// --- files ---

// A JPEG of 16 x 8 grey pixels, the upper half white, the lower black.
static const uint8_t grey_jpeg[] = {0xff, 0xd8, 0xff, 0xe0, 0x00, 0x10, 0x4a, 0x46, 0x49, 0x46, 0x00, 0x01, 0x01, 0x00, 0x00,
    0x01, 0x00, 0x01, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x03, 0x02, 0x02, 0x03, 0x02, 0x02, 0x03, 0x03, 0x03, 0x03, 0x04,
    0x03, 0x03, 0x04, 0x05, 0x08, 0x05, 0x05, 0x04, 0x04, 0x05, 0x0a, 0x07, 0x07, 0x06, 0x08, 0x0c, 0x0a, 0x0c, 0x0c, 0x0b, 0x0a,
    0x0b, 0x0b, 0x0d, 0x0e, 0x12, 0x10, 0x0d, 0x0e, 0x11, 0x0e, 0x0b, 0x0b, 0x10, 0x16, 0x10, 0x11, 0x13, 0x14, 0x15, 0x15, 0x15,
    0x0c, 0x0f, 0x17, 0x18, 0x16, 0x14, 0x18, 0x12, 0x14, 0x15, 0x14, 0xff, 0xc0, 0x00, 0x0b, 0x08, 0x00, 0x08, 0x00, 0x10, 0x01,
    0x01, 0x11, 0x00, 0xff, 0xc4, 0x00, 0x15, 0x00, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0xff, 0xc4, 0x00, 0x18, 0x10, 0x00, 0x02, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x19, 0x67, 0xa6, 0xe4, 0xff, 0xda, 0x00, 0x08, 0x01, 0x01, 0x00, 0x00, 0x3f, 0x00, 0x8f,
    0x3a, 0x13, 0xb5, 0xe2, 0x0f, 0x3a, 0x13, 0xb5, 0xe2, 0x3f, 0xff, 0xd9};

// The same picture in CMYK.
static const uint8_t cmyk_jpeg[] = {0xff, 0xd8, 0xff, 0xee, 0x00, 0x0e, 0x41, 0x64, 0x6f, 0x62, 0x65, 0x00, 0x64, 0x00, 0x00,
    0x00, 0x00, 0x00, 0xff, 0xdb, 0x00, 0x43, 0x00, 0x06, 0x04, 0x05, 0x06, 0x05, 0x04, 0x06, 0x06, 0x05, 0x06, 0x07, 0x07, 0x06,
    0x08, 0x0a, 0x10, 0x0a, 0x0a, 0x09, 0x09, 0x0a, 0x14, 0x0e, 0x0f, 0x0c, 0x10, 0x17, 0x14, 0x18, 0x18, 0x17, 0x14, 0x16, 0x16,
    0x1a, 0x1d, 0x25, 0x1f, 0x1a, 0x1b, 0x23, 0x1c, 0x16, 0x16, 0x20, 0x2c, 0x20, 0x23, 0x26, 0x27, 0x29, 0x2a, 0x29, 0x19, 0x1f,
    0x2d, 0x30, 0x2d, 0x28, 0x30, 0x25, 0x28, 0x29, 0x28, 0xff, 0xc0, 0x00, 0x14, 0x08, 0x00, 0x08, 0x00, 0x10, 0x04, 0x43, 0x11,
    0x00, 0x4d, 0x11, 0x00, 0x59, 0x11, 0x00, 0x4b, 0x11, 0x00, 0xff, 0xc4, 0x00, 0x16, 0x00, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x08, 0xff, 0xc4, 0x00, 0x18, 0x10, 0x00, 0x02, 0x03,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x18, 0x66, 0xa5, 0xe3, 0xff, 0xda, 0x00,
    0x0e, 0x04, 0x43, 0x00, 0x4d, 0x00, 0x59, 0x00, 0x4b, 0x00, 0x00, 0x3f, 0x00, 0x8d, 0xcc, 0x26, 0xdb, 0x12, 0x37, 0x30, 0x9b,
    0x6c, 0x48, 0xdc, 0xc2, 0x6d, 0xb1, 0x35, 0x48, 0x6e, 0x61, 0x36, 0xd8, 0x86, 0xe6, 0x13, 0x6d, 0x88, 0x6e, 0x61, 0x36, 0xd8,
    0x83, 0xff, 0xd9};

struct bytes {
    uint8_t data[1 << 14];
    size_t n;
};

static void append(struct bytes *bytes, const void *data, size_t n)
{
    assert_true(bytes->n + n <= sizeof bytes->data);
    memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
}

static void append_big(struct bytes *bytes, size_t value, int n_bytes)
{
    for (int i = n_bytes - 1; i >= 0; i--)
        append(bytes, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

// A PNG whose data is one stored (uncompressed) deflate block. Check sums are zero: the decoder does not look at them.
static void make_png(
    struct bytes *file, int width, int height, int n_bits, int colour_type, int pixel_bytes, const uint8_t *pixels)
{
    size_t row_bytes = (size_t)(width * pixel_bytes), n = (1 + row_bytes) * (size_t)height;
    file->n = 0;
    append(file, "\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR", 16);
    append_big(file, (size_t)width, 4);
    append_big(file, (size_t)height, 4);
    append(file, (uint8_t[]){(uint8_t)n_bits, (uint8_t)colour_type, 0, 0, 0, 0, 0, 0, 0}, 9);
    append_big(file, n + 11, 4);
    append(file, "IDAT\x78\x01\x01", 7);
    append(file, (uint8_t[]){(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)~n, (uint8_t)(~n >> 8)}, 4);
    for (int y = 0; y < height; y++) {
        append_big(file, 0, 1);
        append(file, pixels + (size_t)y * row_bytes, row_bytes);
    }
    append(file, "\0\0\0\0\0\0\0\0\0\0\0\0IEND\0\0\0\0", 20);
}

static void transparent_pixels_become_white(void **state)
{
    (void)state;
    static struct bytes file;
    static const uint8_t pixels[] = {10, 20, 30, 0, 10, 20, 30, 255, 0, 100, 200, 128};
    struct image image;
    make_png(&file, 3, 1, 8, 6, 4, pixels);
    assert_true(image_decode(file.data, file.n, &image, NULL));
    static const uint8_t expected[] = {255, 255, 255, 10, 20, 30, 127, 177, 227};
    assert_memory_equal(image.rgb, expected, 9);
    image_free(&image);
}

static void grey_becomes_rgb(void **state)
{
    (void)state;
    static struct bytes file;
    static const uint8_t pixels[] = {0, 90, 255};
    static const uint8_t expected[] = {0, 0, 0, 90, 90, 90, 255, 255, 255};
    struct image image;
    make_png(&file, 3, 1, 8, 0, 1, pixels);
    assert_true(image_decode(file.data, file.n, &image, NULL));
    assert_memory_equal(image.rgb, expected, 9);
    image_free(&image);
}

static void a_png_of_16_bits_keeps_the_upper_8(void **state)
{
    (void)state;
    static struct bytes file;
    static const uint8_t pixels[] = {0x12, 0xff, 0x80, 0x00, 0xff, 0xff, 0x00, 0x01, 0x7f, 0x80, 0xfe, 0x00};
    static const uint8_t expected[] = {0x12, 0x80, 0xff, 0x00, 0x7f, 0xfe};
    struct image image;
    struct carat_error err = {0};
    make_png(&file, 2, 1, 16, 2, 6, pixels);
    if (!image_decode(file.data, file.n, &image, &err))
        fail_msg("%s", err.message);
    assert_memory_equal(image.rgb, expected, 6);
    image_free(&image);
}

static void grey_and_cmyk_jpegs_become_rgb(void **state)
{
    (void)state;
    const uint8_t *files[] = {grey_jpeg, cmyk_jpeg};
    const size_t sizes[] = {sizeof grey_jpeg, sizeof cmyk_jpeg};
    for (int f = 0; f < 2; f++) {
        struct image image;
        struct carat_error err = {0};
        if (!image_decode(files[f], sizes[f], &image, &err))
            fail_msg("%s", err.message);
        assert_int_equal(image.width, 16);
        assert_int_equal(image.height, 8);
        for (int i = 0; i < 16 * 8 * 3; i++)
            assert_true(i < 16 * 4 * 3 ? image.rgb[i] > 250 : image.rgb[i] < 5);
        image_free(&image);
    }
}

// A JPEG with an Exif block of either byte order put behind its first marker.
static void exif_orientation_is_honoured(void **state)
{
    (void)state;
    static struct bytes oriented;
    static uint8_t little[] = {0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1,
        0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0};
    static uint8_t big[] = {0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0,
        0, 1, 0, 6, 0, 0, 0, 0, 0, 0};
    uint8_t *blocks[] = {little, big};
    for (int b = 0; b < 2; b++) {
        struct image image;
        oriented.n = 0;
        append(&oriented, grey_jpeg, 2);
        append(&oriented, blocks[b], sizeof little);
        append(&oriented, grey_jpeg + 2, sizeof grey_jpeg - 2);
        assert_int_equal(image_exif_orientation(oriented.data, oriented.n), 6);
        assert_true(image_decode(oriented.data, oriented.n, &image, NULL));
        assert_int_equal(image.width, 8);
        assert_int_equal(image.height, 16);
        assert_true(image.rgb[3 * 7] > 200 && image.rgb[0] < 50); // turned clockwise: what was above is on the right
        image_free(&image);
    }
}

static void an_animation_gives_its_first_frame(void **state)
{
    (void)state;
    // 2 x 2 pixels, two frames: red, then blue.
    static const uint8_t file[] = {0x47, 0x49, 0x46, 0x38, 0x39, 0x61, 0x02, 0x00, 0x02, 0x00, 0x81, 0x00, 0x00, 0xff, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x21, 0xf9, 0x04, 0x00, 0x0a, 0x00, 0x00, 0x00, 0x2c, 0x00, 0x00,
        0x00, 0x00, 0x02, 0x00, 0x02, 0x00, 0x00, 0x08, 0x06, 0x00, 0x01, 0x08, 0x04, 0x10, 0x10, 0x00, 0x21, 0xf9, 0x04, 0x01,
        0x0a, 0x00, 0x01, 0x00, 0x2c, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x02, 0x00, 0x81, 0x00, 0x00, 0xff, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x06, 0x00, 0x01, 0x08, 0x04, 0x10, 0x10, 0x00, 0x3b};
    struct image image;
    struct carat_error err = {0};
    if (!image_decode(file, sizeof file, &image, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < 4; i++)
        assert_memory_equal(image.rgb + 3 * i, "\xff\0\0", 3);
    image_free(&image);
}

static void other_formats_are_refused_by_name(void **state)
{
    (void)state;
    struct image image;
    struct carat_error err = {0};
    assert_false(image_decode("RIFF\0\0\0\0WEBPVP8 ", 16, &image, &err));
    assert_non_null(strstr(err.message, "WebP"));
    assert_false(image_decode("\0\0\0\x18"
                              "ftypheic\0\0\0\0",
        16, &image, &err));
    assert_non_null(strstr(err.message, "HEIC"));
    assert_false(image_decode("II*\0abcdefgh", 12, &image, &err));
    assert_non_null(strstr(err.message, "TIFF"));
    assert_false(image_decode("hello, world", 12, &image, &err));
    assert_int_equal(err.code, CARAT_BAD_FILE);
    assert_false(image_decode("", 0, &image, &err));
    assert_non_null(strstr(err.message, "empty"));
}

// A PNG header that promises more than the limit fails before memory is taken for the pixels.
static void a_huge_promise_is_refused_before_decoding(void **state)
{
    (void)state;
    static const uint8_t file[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0, 0xea, 0x60, 0, 0,
        0xea, 0x60, 8, 2, 0, 0, 0, 0, 0, 0, 0};
    struct image image;
    struct carat_error err = {0};
    assert_false(image_decode(file, sizeof file, &image, &err));
    assert_null(image.rgb);
}

static void a_truncated_file_gives_an_error_or_a_picture(void **state)
{
    (void)state;
    static struct bytes png;
    uint8_t pixels[20 * 10 * 3];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * i >> 4);
    make_png(&png, 20, 10, 8, 2, 3, pixels);
    const uint8_t *files[] = {png.data, grey_jpeg, cmyk_jpeg};
    const size_t sizes[] = {png.n, sizeof grey_jpeg, sizeof cmyk_jpeg};
    for (int f = 0; f < 3; f++) {
        for (size_t n = 0; n < sizes[f]; n++) {
            struct image image;
            struct carat_error err = {0};
            if (!image_decode(files[f], n, &image, &err))
                assert_int_not_equal(err.message[0], 0);
            image_free(&image);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(target_sizes_follow_the_reference),
        cmocka_unit_test(llama_cpp_keeps_a_picture_near_its_own_size),
        cmocka_unit_test(every_picture_fits_its_budget),
        cmocka_unit_test(resized_bytes_equal_the_reference),
        cmocka_unit_test(weights_of_22_bits_stay_within_two_levels),
        cmocka_unit_test(a_flat_picture_stays_flat),
        cmocka_unit_test(odd_sizes_are_prepared_or_refused),
        cmocka_unit_test(a_patch_is_channel_row_column),
        cmocka_unit_test(orientations_turn_the_picture_upright),
        cmocka_unit_test(transparent_pixels_become_white),
        cmocka_unit_test(grey_becomes_rgb),
        cmocka_unit_test(a_png_of_16_bits_keeps_the_upper_8),
        cmocka_unit_test(grey_and_cmyk_jpegs_become_rgb),
        cmocka_unit_test(exif_orientation_is_honoured),
        cmocka_unit_test(an_animation_gives_its_first_frame),
        cmocka_unit_test(other_formats_are_refused_by_name),
        cmocka_unit_test(a_huge_promise_is_refused_before_decoding),
        cmocka_unit_test(a_truncated_file_gives_an_error_or_a_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
