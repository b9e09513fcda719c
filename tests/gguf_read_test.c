// gguf_read_test.c: opening GGUF files: good ones give what they hold, and only their headers are read.

#include "gguf_open.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tensors_of_every_fixture_tile_its_data_section),
        cmocka_unit_test(only_the_header_is_read_and_kept),
        cmocka_unit_test(metadata_of_a_fixture_reads_as_the_readme_says),
        cmocka_unit_test(a_missing_key_and_a_key_of_the_wrong_kind_are_named),
        cmocka_unit_test(integers_of_every_type_are_read_leniently_but_never_wrapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
