// gguf_hostile_test.c: opening GGUF files that are wrong: each gives one sentence, and none does harm.

#include "gguf_open.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
