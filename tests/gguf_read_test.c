// gguf_read_test.c: opening GGUF files: good ones give what they hold, bad ones one sentence.

#include "gguf/gguf.h" // before cmocka.h, which has a macro called fail

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gguf_build.h"

enum { HEADER_PIECE = 64 * 1024 };

static struct gguf_file *open_fixture(const char *path)
{
    char full[512];
    struct gguf_file *file = NULL;
    struct carat_error err = {0};
    snprintf(full, sizeof full, "%s/%s", CARAT_FIXTURES, path);
    if (!gguf_open_path(full, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

// Opens the bytes from an allocation of exactly their size, so that a sanitizer sees every read beyond them.
static bool open_bytes(const uint8_t *bytes, size_t n, struct gguf_file **file, struct carat_error *err, void **copy)
{
    *copy = malloc(n == 0 ? 1 : n);
    assert_non_null(*copy);
    if (n != 0)
        memcpy(*copy, bytes, n);
    struct gguf_source *source = gguf_source_memory(*copy, n, "test.gguf", NULL);
    assert_non_null(source);
    bool ok = gguf_open(&source, 1, file, err);
    if (!ok)
        gguf_source_close(source);
    return ok;
}

struct reading {
    const uint8_t *bytes; // the rest of the file is zeros
    size_t n;
    uint64_t n_read, n_reads;
};

static bool read_counted(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    struct reading *reading = context;
    reading->n_read += n_bytes;
    reading->n_reads++;
    for (size_t i = 0; i < n_bytes; i++)
        ((uint8_t *)dst)[i] = offset + i < reading->n ? reading->bytes[offset + i] : 0;
    return true;
}

static const char *const model_names[] = {"micro-26b.BF16", "micro-31b.F16", "micro-e2b.BF16", "micro-e2b.F16", "micro-e2b.F32",
    "micro-mm31.mmproj-F16", "tiny-26b.Q4_K_M", "tiny-31b.Q4_K_M", "tiny-e2b.Q4_K_M", "tiny-e2b.Q8_0", "tiny-mm.mmproj-F16",
    "tiny-mm.single-Q4_K_M", "tiny-quant.IQ4_NL", "tiny-quant.IQ4_XS", "tiny-quant.Q2_K", "tiny-quant.Q3_K_M", "tiny-quant.Q4_0",
    "tiny-quant.Q5_K_M", "tiny-quant.Q6_K"};
enum { N_MODELS = sizeof model_names / sizeof model_names[0] };

static struct gguf_file *open_model(int i)
{
    char path[128];
    snprintf(path, sizeof path, "models/%s.gguf", model_names[i]);
    return open_fixture(path);
}

// The makers of the fixtures pad every tensor, the last one too, to 32 bytes and leave no gaps.
static void the_tensors_of_every_fixture_tile_its_data_section(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct gguf_file *file = open_model(m);
        uint64_t at = gguf_header_bytes(file, 0);
        assert_true(gguf_tensor_count(file) > 0);
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(file, i);
            assert_int_equal(tensor->offset, at);
            at = (at + tensor->n_bytes + 31) / 32 * 32;
            assert_ptr_equal(gguf_find_tensor(file, tensor->name), tensor);
        }
        assert_int_equal(at, gguf_file_source(file, 0)->n_bytes);
        assert_null(gguf_find_tensor(file, "no.such.tensor"));
        gguf_close(file);
    }
}

static void only_the_header_is_read_and_kept(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        struct gguf_file *mapped = open_model(m), *file;
        const struct gguf_source *whole = gguf_file_source(mapped, 0);
        struct reading reading = {.bytes = whole->mapped, .n = (size_t)whole->n_bytes};
        struct gguf_source *source = gguf_source_callback(read_counted, &reading, whole->n_bytes, "callback", NULL);
        assert_true(gguf_open(&source, 1, &file, NULL));
        uint64_t header = gguf_header_bytes(file, 0);
        assert_true(reading.n_read <= (2 * header > HEADER_PIECE ? 2 * header : HEADER_PIECE));
        assert_true(gguf_memory_bytes(file) < 3 * header + 64 * 1024);
        assert_int_equal(gguf_tensor_count(file), gguf_tensor_count(mapped));
        for (size_t i = 0; i < gguf_entry_count(file); i++) { // the same from a moving buffer as from a mapped file
            const struct gguf_entry *a = gguf_entry_at(file, i), *b = gguf_entry_at(mapped, i);
            struct gguf_text x, y;
            assert_string_equal(a->key, b->key);
            assert_int_equal(a->value.count, b->value.count);
            for (uint64_t k = 0; k < a->value.count && gguf_value_text(&a->value, k, &x); k++) {
                assert_true(gguf_value_text(&b->value, k, &y));
                assert_int_equal(x.n_bytes, y.n_bytes);
                assert_memory_equal(x.bytes, y.bytes, x.n_bytes);
            }
        }
        gguf_close(file);
        gguf_close(mapped);
    }
}

static void metadata_of_a_fixture_reads_as_the_readme_says(void **state)
{
    (void)state;
    struct gguf_file *file = open_fixture("models/tiny-e2b.Q4_K_M.gguf");
    struct carat_error err = {0};
    uint64_t wide;
    uint32_t n;
    float f;
    bool b;
    int32_t per_layer[3];
    struct gguf_text text;
    const struct gguf_value *array;
    assert_true(gguf_u32(file, "gemma4.block_count", &n, &err));
    assert_int_equal(n, 3);
    assert_true(gguf_u64(file, "gemma4.embedding_length", &wide, &err));
    assert_int_equal(wide, 256);
    assert_true(gguf_f32(file, "gemma4.final_logit_softcapping", &f, &err));
    assert_true(f == 30);
    assert_true(gguf_f32(file, "gemma4.block_count", &f, &err)); // an integer is a number too
    assert_true(gguf_bool(file, "tokenizer.ggml.add_bos_token", &b, &err));
    assert_true(b);
    assert_true(gguf_text(file, "general.architecture", &text, &err));
    assert_true(text.n_bytes == 6 && memcmp(text.bytes, "gemma4", 6) == 0);
    assert_true(gguf_text_is(file, "general.architecture", "gemma4"));
    assert_false(gguf_text_is(file, "general.architecture", "gemma"));
    assert_true(gguf_per_layer(file, "gemma4.feed_forward_length", 3, per_layer, &err));
    assert_true(per_layer[0] == 256 && per_layer[1] == 256 && per_layer[2] == 512);
    assert_true(gguf_per_layer(file, "gemma4.attention.head_count_kv", 3, per_layer, &err));
    assert_true(per_layer[0] == 1 && per_layer[1] == 1 && per_layer[2] == 1);
    assert_true(gguf_per_layer(file, "gemma4.attention.sliding_window_pattern", 3, per_layer, &err));
    assert_true(per_layer[0] == 1 && per_layer[1] == 0 && per_layer[2] == 0); // SF+F
    assert_true(gguf_array(file, "tokenizer.ggml.tokens", GGUF_VALUE_TEXT, &array, &err));
    assert_int_equal(array->count, 640);
    assert_true(gguf_value_text(array, 2, &text));
    assert_true(text.n_bytes == 5 && memcmp(text.bytes, "<bos>", 5) == 0);
    assert_false(gguf_value_text(array, 640, &text));
    gguf_close(file);
}

static void a_missing_key_and_a_key_of_the_wrong_kind_are_named(void **state)
{
    (void)state;
    struct gguf_file *file = open_fixture("models/tiny-e2b.Q4_K_M.gguf");
    struct carat_error err = {0};
    uint32_t n;
    float f;
    bool b;
    int32_t per_layer[4];
    struct gguf_text text;
    const struct gguf_value *array;
    assert_false(gguf_u32(file, "gemma4.absent", &n, &err));
    assert_int_equal(err.code, CARAT_NOT_FOUND);
    assert_non_null(strstr(err.message, "gemma4.absent"));
    assert_false(gguf_u32(file, "general.architecture", &n, &err));
    assert_int_equal(err.code, CARAT_BAD_FILE);
    assert_non_null(strstr(err.message, "general.architecture"));
    assert_false(gguf_u32(file, "gemma4.feed_forward_length", &n, &err)); // an array
    assert_false(gguf_f32(file, "general.name", &f, &err));
    assert_false(gguf_bool(file, "general.name", &b, &err));
    assert_false(gguf_text(file, "gemma4.block_count", &text, &err));
    assert_false(gguf_array(file, "tokenizer.ggml.tokens", GGUF_VALUE_I64, &array, &err));
    assert_false(gguf_array(file, "gemma4.block_count", GGUF_VALUE_I64, &array, &err));
    assert_false(gguf_per_layer(file, "gemma4.feed_forward_length", 4, per_layer, &err));
    assert_non_null(strstr(err.message, "gemma4.feed_forward_length"));
    assert_true(gguf_u32_or(file, "gemma4.absent", 7, &n, &err));
    assert_int_equal(n, 7);
    assert_false(gguf_u32_or(file, "general.name", 7, &n, &err));
    gguf_close(file);
}

static void integers_of_every_type_are_read_leniently_but_never_wrapped(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        int n_bytes;
        uint64_t bits;
        bool is_u64, is_i64;
        int64_t value;
    } cases[] = {{0, 1, 200, true, true, 200}, {1, 1, 0xff, false, true, -1}, {2, 2, 65535, true, true, 65535},
        {3, 2, 0x8000, false, true, -32768}, {4, 4, 0xffffffff, true, true, 0xffffffff}, {5, 4, 0xffffffff, false, true, -1},
        {10, 8, UINT64_MAX, true, false, -1}, {11, 8, UINT64_MAX, false, true, -1}, {10, 8, 5, true, true, 5},
        {6, 4, 0, false, false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        struct gguf_file *file;
        void *copy;
        put_head(&b, 3, 0, 1);
        put_key(&b, "k", cases[i].type);
        put_number(&b, cases[i].bits, cases[i].n_bytes);
        assert_true(open_bytes(b.at, b.n, &file, NULL, &copy));
        uint64_t u;
        int64_t s;
        assert_int_equal(gguf_value_u64(gguf_find(file, "k"), 0, &u), cases[i].is_u64);
        assert_int_equal(gguf_value_i64(gguf_find(file, "k"), 0, &s), cases[i].is_i64);
        if (cases[i].is_i64)
            assert_true(s == cases[i].value);
        gguf_close(file);
        free(copy);
        free(b.at);
    }
}

// --- hostile files

// A small right file: keys of every type, arrays of every type, three tensors. section[] gets the ends of its sections.
static struct bytes small_file(size_t *sections, size_t *n_sections)
{
    static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    struct bytes b = {0};
    uint64_t ne[2] = {32, 2};
    size_t n = 0;
    put_head(&b, 3, 3, 24);
    sections[n++] = b.n;
    for (uint32_t type = 0; type < 13; type++) {
        char key[16];
        snprintf(key, sizeof key, "k%u", type);
        if (type == 9)
            continue;
        put_key(&b, key, type);
        if (type == 8)
            put_text(&b, "value");
        else
            put_number(&b, 1, sizes[type]);
        sections[n++] = b.n;
        snprintf(key, sizeof key, "a%u", type);
        put_key(&b, key, 9);
        put_number(&b, type, 4);
        put_number(&b, 2, 8);
        for (int i = 0; i < 2; i++) {
            if (type == 8)
                put_text(&b, "text");
            else
                put_number(&b, 0, sizes[type]);
        }
        sections[n++] = b.n;
    }
    put_tensor(&b, "f32", 2, ne, 0, 0);
    sections[n++] = b.n;
    put_tensor(&b, "q8_0", 2, ne, 8, 256);
    sections[n++] = b.n;
    put_tensor(&b, "f16", 1, ne, 1, 352);
    sections[n++] = b.n;
    put_padding(&b, 32);
    sections[n++] = b.n;
    put_zeros(&b, 352 + 64);
    *n_sections = n;
    return b;
}

static void a_file_truncated_at_any_byte_is_refused(void **state)
{
    (void)state;
    size_t sections[64], n_sections;
    struct bytes b = small_file(sections, &n_sections);
    struct gguf_file *file;
    struct carat_error err = {0};
    void *copy;
    if (!open_bytes(b.at, b.n, &file, &err, &copy))
        fail_msg("%s", err.message);
    gguf_close(file);
    free(copy);
    for (size_t n = 0; n < b.n; n++) {
        err = (struct carat_error){0};
        assert_false(open_bytes(b.at, n, &file, &err, &copy));
        assert_null(file);
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_non_null(strstr(err.message, "test.gguf"));
        free(copy);
    }
    free(b.at);
}

static void a_changed_byte_anywhere_never_does_harm(void **state)
{
    (void)state;
    size_t sections[64], n_sections;
    struct bytes b = small_file(sections, &n_sections);
    static const uint8_t values[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (size_t at = 0; at < sections[n_sections - 1]; at++) {
        uint8_t before = b.at[at];
        for (size_t v = 0; v < sizeof values; v++) {
            struct gguf_file *file;
            struct carat_error err = {0};
            void *copy;
            b.at[at] = values[v];
            if (open_bytes(b.at, b.n, &file, &err, &copy))
                gguf_close(file);
            else
                assert_true(err.code != CARAT_OK && err.message[0] != '\0');
            free(copy);
        }
        b.at[at] = before;
    }
    free(b.at);
}

static void assert_refused(const struct bytes *b, enum carat_code code, const char *part_of_message)
{
    struct gguf_file *file;
    struct carat_error err = {0};
    void *copy;
    if (open_bytes(b->at, b->n, &file, &err, &copy))
        fail_msg("a file was accepted where '%s' was expected", part_of_message);
    assert_int_equal(err.code, code);
    if (strstr(err.message, part_of_message) == NULL)
        fail_msg("'%s' does not mention '%s'", err.message, part_of_message);
    free(copy);
}

// One tensor with these numbers in a file with enough data.
static void assert_tensor_refused(
    uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset, enum carat_code code, const char *what)
{
    struct bytes b = {0};
    put_head(&b, 3, 1, 0);
    put_tensor(&b, "the.tensor", n_dims, ne, type, offset);
    put_padding(&b, 32);
    put_zeros(&b, 4096);
    assert_refused(&b, code, what);
    free(b.at);
}

static void bad_tensors_are_refused_by_name(void **state)
{
    (void)state;
    const uint64_t good[5] = {32, 2, 1, 1, 1}, zero[2] = {32, 0}, odd[1] = {33};
    const uint64_t huge[4] = {1ull << 62, 2, 1, 1}, wraps[4] = {1ull << 32, 1ull << 32, 32, 1}, wide[2] = {1ull << 61, 1};
    const uint64_t bytes_wrap[2] = {1ull << 62, 1};
    assert_tensor_refused(0, good, 0, 0, CARAT_BAD_FILE, "the.tensor");
    assert_tensor_refused(5, good, 0, 0, CARAT_BAD_FILE, "5 dimensions");

    assert_tensor_refused(2, zero, 0, 0, CARAT_BAD_FILE, "no elements");
    assert_tensor_refused(1, odd, 8, 0, CARAT_BAD_FILE, "no multiple");
    assert_tensor_refused(4, huge, 0, 0, CARAT_BAD_FILE, "63 bits");
    assert_tensor_refused(4, wraps, 0, 0, CARAT_BAD_FILE, "63 bits");
    assert_tensor_refused(2, wide, 0, 0, CARAT_BAD_FILE, "63 bits");
    assert_tensor_refused(2, bytes_wrap, 0, 0, CARAT_BAD_FILE, "63 bits");
    assert_tensor_refused(2, good, 4, 0, CARAT_UNSUPPORTED, "type 4");
    assert_tensor_refused(2, good, 31, 0, CARAT_UNSUPPORTED, "type 31");
    assert_tensor_refused(2, good, 43, 0, CARAT_UNSUPPORTED, "type 43");
    assert_tensor_refused(2, good, 0xffffffff, 0, CARAT_UNSUPPORTED, "the.tensor");
    assert_tensor_refused(2, good, 0, 16, CARAT_BAD_FILE, "alignment");
    assert_tensor_refused(2, good, 0, 4096, CARAT_BAD_FILE, "end of the file");
    assert_tensor_refused(2, good, 0, 4096 - 224, CARAT_BAD_FILE, "end of the file");
    assert_tensor_refused(2, good, 0, UINT64_MAX - 31, CARAT_BAD_FILE, "end of the file");
}

static void overlapping_and_repeated_tensors_are_refused(void **state)
{
    (void)state;
    const uint64_t ne[1] = {64};
    for (int repeated = 0; repeated < 2; repeated++) {
        struct bytes b = {0};
        put_head(&b, 3, 2, 0);
        put_tensor(&b, "first", 1, ne, 0, 0);
        put_tensor(&b, repeated ? "first" : "second", 1, ne, 0, repeated ? 256 : 224);
        put_padding(&b, 32);
        put_zeros(&b, 1024);
        assert_refused(&b, CARAT_BAD_FILE, repeated ? "twice" : "overlap");
        free(b.at);
    }
}

static void gaps_and_another_order_of_tensors_are_accepted(void **state)
{
    (void)state;
    const uint64_t ne[1] = {64};
    struct bytes b = {0};
    struct gguf_file *file;
    void *copy;
    put_head(&b, 2, 2, 1); // version 2 has the same layout
    put_u32_entry(&b, "general.alignment", 64);
    put_tensor(&b, "second", 1, ne, 0, 512);
    put_tensor(&b, "first", 1, ne, 0, 0);
    put_padding(&b, 64);
    size_t data = b.n;
    put_zeros(&b, 512 + 256);
    assert_true(open_bytes(b.at, b.n, &file, NULL, &copy));
    assert_int_equal(gguf_find_tensor(file, "second")->offset, data + 512);
    assert_int_equal(gguf_file_version(file), 2);
    gguf_close(file);
    free(copy);
    free(b.at);
}

static void names_are_checked(void **state)
{
    (void)state;
    const uint64_t ne[1] = {32};
    char long_name[65] = {0};
    memset(long_name, 'x', 64);
    static const char *const names[] = {"", NULL};
    for (int i = 0; i < 2; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 1, 0);
        put_tensor(&b, names[i] != NULL ? names[i] : long_name, 1, ne, 0, 0);
        put_padding(&b, 32);
        put_zeros(&b, 128);
        assert_refused(&b, CARAT_BAD_FILE, "name");
        free(b.at);
    }
    struct bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_u32_entry(&b, "", 1);
    put_zeros(&b, 64);
    assert_refused(&b, CARAT_BAD_FILE, "empty name");
    b.n = 0;
    put_head(&b, 3, 0, 2);
    put_u32_entry(&b, "same", 1);
    put_u32_entry(&b, "same", 2);
    put_zeros(&b, 64);
    assert_refused(&b, CARAT_BAD_FILE, "'same' appears twice");
    static const char controls[] = {0, '\n', 27, 127}; // a terminal obeys some of them
    for (size_t i = 0; i < sizeof controls; i++) {
        char bad[3] = {'a', controls[i], 'b'}, says[16];
        snprintf(says, sizeof says, "byte %d ", controls[i]);
        b.n = 0;
        put_head(&b, 3, 0, 1);
        put_number(&b, 3, 8);
        put(&b, bad, 3);
        put_number(&b, 4, 4);
        put_number(&b, 1, 4);
        put_zeros(&b, 64);
        assert_refused(&b, CARAT_BAD_FILE, says);
    }
    free(b.at);
}

static void bad_values_are_refused_by_key(void **state)
{
    (void)state;
    static const struct {
        uint32_t type, element;
        uint64_t count;
        const char *message;
    } cases[] = {{13, 0, 0, "value type 13"}, {0xffffffff, 0, 0, "the.key"}, {9, 9, 1, "arrays of"}, {9, 13, 1, "unknown type"},
        {9, 4, 1ull << 62, "claims"}, {9, 10, UINT64_MAX, "claims"}, {9, 8, 1ull << 61, "claims"}, {9, 0, 1000, "claims"},
        {8, 0, 0, "ends inside"}, {7, 0, 0, "bool"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 0, 1);
        put_key(&b, "the.key", cases[i].type);
        if (cases[i].type == 9) {
            put_number(&b, cases[i].element, 4);
            put_number(&b, cases[i].count, 8);
        } else {
            put_number(&b, UINT64_MAX, 8); // a length of 2^64 - 1, a bool of 255
        }
        put_zeros(&b, 64);
        assert_refused(&b, CARAT_BAD_FILE, cases[i].message);
        free(b.at);
    }
}

static void a_bad_alignment_is_refused(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 3, 33, 0xffffffff};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        struct bytes b = {0};
        put_head(&b, 3, 0, 1);
        put_u32_entry(&b, "general.alignment", values[i]);
        put_zeros(&b, 64);
        assert_refused(&b, CARAT_BAD_FILE, "power of two");
        free(b.at);
    }
    struct bytes b = {0};
    put_head(&b, 3, 0, 1);
    put_key(&b, "general.alignment", 10);
    put_number(&b, 32, 8);
    put_zeros(&b, 64);
    assert_refused(&b, CARAT_BAD_FILE, "must be a u32");
    free(b.at);
}

static void other_formats_and_versions_are_refused_with_advice(void **state)
{
    (void)state;
    static const struct {
        const char *start;
        enum carat_code code;
        const char *message;
    } cases[] = {{"ggjt\3\0\0\0", CARAT_BAD_FILE, "not a GGUF file"}, {"GGUF\1\0\0\0", CARAT_UNSUPPORTED, "version 1"},
        {"GGUF\0\0\0\3", CARAT_UNSUPPORTED, "big-endian"}, {"GGUF\4\0\0\0", CARAT_UNSUPPORTED, "version 4"},
        {"GGUF\0\0\0\0", CARAT_UNSUPPORTED, "version 0"}, {"version ", CARAT_BAD_FILE, "pointer"},
        {"<!DOCTYP", CARAT_BAD_FILE, "not a GGUF file"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = {0};
        put(&b, cases[i].start, 8);
        put_zeros(&b, 64);
        assert_refused(&b, cases[i].code, cases[i].message);
        free(b.at);
    }
}

static void absurd_counts_are_refused_before_anything_is_allocated(void **state)
{
    (void)state;
    static const uint64_t counts[] = {1ull << 63, UINT64_MAX, 1ull << 40, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int entries = 0; entries < 2; entries++) {
            struct bytes b = {0};
            put_head(&b, 3, entries ? 0 : counts[i], entries ? counts[i] : 0);
            put_zeros(&b, 1024);
            assert_refused(&b, CARAT_BAD_FILE, "claims");
            free(b.at);
        }
    }
}

// In a file of a terabyte the remaining bytes are no protection: the header as a whole is bounded.
static void huge_lengths_in_a_huge_file_cost_little(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct bytes b = {0};
        struct gguf_file *file;
        struct carat_error err = {0};
        put_head(&b, 3, kind == 3 ? 1ull << 34 : 0, kind == 2 ? 1ull << 35 : 1);
        put_key(&b, "the.key", kind == 0 ? 8 : 9);
        if (kind != 0)
            put_number(&b, 10, 4);
        put_number(&b, 1ull << 36, 8);
        struct reading reading = {.bytes = b.at, .n = b.n};
        struct gguf_source *source = gguf_source_callback(read_counted, &reading, 1ull << 40, "terabyte", NULL);
        assert_false(gguf_open(&source, 1, &file, &err));
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_int_equal(reading.n_read, HEADER_PIECE);
        gguf_source_close(source);
        free(b.at);
    }
}

// --- split files

static struct gguf_source *part_source(struct bytes *b, uint32_t no, uint32_t count, uint32_t total, const char *tensor)
{
    const uint64_t ne[1] = {64};
    *b = (struct bytes){0};
    put_head(b, 3, 1, 3);
    put_key(b, "split.no", 2);
    put_number(b, no, 2);
    put_key(b, "split.count", 2);
    put_number(b, count, 2);
    put_key(b, "split.tensors.count", 5);
    put_number(b, total, 4);
    put_tensor(b, tensor, 1, ne, 0, 0);
    put_padding(b, 32);
    put_zeros(b, 256);
    return gguf_source_memory(b->at, b->n, tensor, NULL);
}

struct split_case {
    uint32_t n_given, no[2], count[2], total[2];
    const char *names[2];
    const char *message; // NULL: right
};

static void split_files_are_joined_and_their_numbers_checked(void **state)
{
    (void)state;
    static const struct split_case cases[] = {
        {2, {0, 1}, {2, 2}, {2, 2}, {"a", "b"}, NULL},
        {2, {0, 1}, {2, 2}, {2, 2}, {"a", "a"}, "twice"},
        {2, {1, 0}, {2, 2}, {2, 2}, {"a", "b"}, "place of part 1"},
        {2, {0, 0}, {2, 2}, {2, 2}, {"a", "b"}, "place of part 2"},
        {2, {0, 1}, {3, 3}, {2, 2}, {"a", "b"}, "split into 3 parts"},
        {2, {0, 1}, {2, 2}, {3, 3}, {"a", "b"}, "split.tensors.count"},
        {1, {0, 0}, {2, 2}, {2, 2}, {"a", "b"}, "split into 2 parts but 1"},
        {1, {1, 0}, {2, 2}, {2, 2}, {"a", "b"}, "open part 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct split_case *c = &cases[i];
        struct bytes b[2] = {{0}, {0}};
        struct gguf_source *parts[2];
        struct gguf_file *file;
        struct carat_error err = {0};
        for (uint32_t p = 0; p < c->n_given; p++)
            parts[p] = part_source(&b[p], c->no[p], c->count[p], c->total[p], c->names[p]);
        bool ok = gguf_open(parts, c->n_given, &file, &err);
        assert_int_equal(ok, c->message == NULL);
        if (ok) {
            assert_int_equal(gguf_tensor_count(file), 2);
            assert_int_equal(gguf_find_tensor(file, "b")->part, 1);
            assert_ptr_equal(gguf_file_source(file, 1), parts[1]);
            gguf_close(file);
        } else {
            if (strstr(err.message, c->message) == NULL)
                fail_msg("'%s' does not mention '%s'", err.message, c->message);
            for (uint32_t p = 0; p < c->n_given; p++)
                gguf_source_close(parts[p]);
        }
        free(b[0].at);
        free(b[1].at);
    }
}

static void write_bytes(const char *path, const struct bytes *b)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(b->at, 1, b->n, file), b->n);
    fclose(file);
}

static void the_first_part_of_a_split_file_brings_the_others(void **state)
{
    (void)state;
    char folder[] = "/tmp/carat-split-XXXXXX", path[3][128];
    assert_non_null(mkdtemp(folder));
    for (uint32_t p = 0; p < 3; p++) {
        struct bytes b;
        char tensor[8];
        snprintf(tensor, sizeof tensor, "t%u", p);
        gguf_source_close(part_source(&b, p, 3, 3, tensor));
        snprintf(path[p], sizeof path[p], "%s/m-%05u-of-00003.gguf", folder, p + 1);
        write_bytes(path[p], &b);
        free(b.at);
    }
    struct gguf_file *file;
    struct carat_error err = {0};
    if (!gguf_open_path(path[0], &file, &err))
        fail_msg("%s", err.message);
    assert_int_equal(gguf_part_count(file), 3);
    float values[64];
    assert_true(gguf_tensor_read(file, gguf_find_tensor(file, "t2"), 0, values, sizeof values, &err));
    assert_false(gguf_tensor_read(file, gguf_find_tensor(file, "t2"), 4, values, sizeof values, &err));
    gguf_close(file);
    assert_false(gguf_open_path(path[1], &file, &err));
    assert_non_null(strstr(err.message, "open part 1"));
    remove(path[2]);
    assert_false(gguf_open_path(path[0], &file, &err));
    assert_non_null(strstr(err.message, "part 3 of 3"));
    remove(path[0]);
    remove(path[1]);
    remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tensors_of_every_fixture_tile_its_data_section),
        cmocka_unit_test(only_the_header_is_read_and_kept),
        cmocka_unit_test(metadata_of_a_fixture_reads_as_the_readme_says),
        cmocka_unit_test(a_missing_key_and_a_key_of_the_wrong_kind_are_named),
        cmocka_unit_test(integers_of_every_type_are_read_leniently_but_never_wrapped),
        cmocka_unit_test(a_file_truncated_at_any_byte_is_refused),
        cmocka_unit_test(a_changed_byte_anywhere_never_does_harm),
        cmocka_unit_test(bad_tensors_are_refused_by_name),
        cmocka_unit_test(overlapping_and_repeated_tensors_are_refused),
        cmocka_unit_test(gaps_and_another_order_of_tensors_are_accepted),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(bad_values_are_refused_by_key),
        cmocka_unit_test(a_bad_alignment_is_refused),
        cmocka_unit_test(other_formats_and_versions_are_refused_with_advice),
        cmocka_unit_test(absurd_counts_are_refused_before_anything_is_allocated),
        cmocka_unit_test(huge_lengths_in_a_huge_file_cost_little),
        cmocka_unit_test(split_files_are_joined_and_their_numbers_checked),
        cmocka_unit_test(the_first_part_of_a_split_file_brings_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
