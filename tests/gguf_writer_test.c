// gguf_writer_test.c: what the GGUF writer writes, and the safetensors reader.

#include "gguf/gguf.h" // before cmocka.h, which has a macro called fail
#include "gguf/quants.h"
#include "gguf/safetensors.h"
#include "gguf/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// A sink with room for *context bytes. It stands here because it calls fail.
static bool full_disk(void *context, const void *bytes, size_t n_bytes, struct carat_error *err)
{
    size_t *left = context;
    (void)bytes;
    if (n_bytes > *left)
        return fail(err, CARAT_IO, "the disk is full");
    *left -= n_bytes;
    return true;
}

#include <cmocka.h>

#include "gguf_build.h"

static char folder[] = "/tmp/carat-writer-XXXXXX";
static char path[128], part_path[128];

static int make_folder(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/out.gguf", folder);
    snprintf(part_path, sizeof part_path, "%s/out.gguf.part", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    remove(path);
    return rmdir(folder);
}

static bool take_bytes(void *context, const void *bytes, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    put(context, bytes, n_bytes);
    return true;
}

// The same small file once by the writer and once byte by byte.
static void a_written_file_has_exactly_the_bytes_of_the_format(void **state)
{
    (void)state;
    const uint64_t ne[2] = {2, 3};
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const int32_t numbers[2] = {-1, 7};
    const struct gguf_text texts[2] = {{"a", 1}, {"", 0}};
    struct bytes wanted = {0}, got = {0};
    put_head(&wanted, 3, 2, 10);
    put_u32_entry(&wanted, "u32", 5);
    put_key(&wanted, "u64", 10), put_number(&wanted, 1ull << 40, 8);
    put_key(&wanted, "i32", 5), put_number(&wanted, 0xffffffff, 4);
    put_key(&wanted, "f32", 6), put_number(&wanted, 0x3f800000, 4);
    put_key(&wanted, "f64", 12), put_number(&wanted, 0x3ff0000000000000, 8);
    put_key(&wanted, "bool", 7), put_number(&wanted, 1, 1);
    put_text_entry(&wanted, "text", "hello");
    put_key(&wanted, "i32s", 9), put_number(&wanted, 5, 4), put_number(&wanted, 2, 8), put(&wanted, numbers, 8);
    put_key(&wanted, "texts", 9), put_number(&wanted, 8, 4), put_number(&wanted, 2, 8), put_text(&wanted, "a"),
        put_text(&wanted, "");
    put_key(&wanted, "u16", 2), put_number(&wanted, 258, 2);
    put_tensor(&wanted, "one", 2, ne, 0, 0);
    put_tensor(&wanted, "two", 1, ne + 1, 0, 32);
    put_padding(&wanted, 32);
    put(&wanted, values, 24);
    put_padding(&wanted, 32);
    put(&wanted, values, 12);
    put_padding(&wanted, 32);

    struct gguf_writer *w = gguf_writer_new_sink(take_bytes, &got, 0, NULL);
    gguf_write_u32(w, "u32", 5);
    gguf_write_u64(w, "u64", 1ull << 40);
    gguf_write_i32(w, "i32", -1);
    gguf_write_f32(w, "f32", 1);
    gguf_write_f64(w, "f64", 1);
    gguf_write_bool(w, "bool", true);
    gguf_write_text(w, "text", "hello");
    gguf_write_array(w, "i32s", GGUF_VALUE_I32, numbers, 2);
    gguf_write_texts(w, "texts", texts, 2);
    gguf_write_scalar(w, "u16", GGUF_VALUE_U16, "\x02\x01");
    gguf_declare(w, "one", GGUF_TYPE_F32, 2, ne);
    gguf_declare(w, "two", GGUF_TYPE_F32, 1, ne + 1);
    assert_true(gguf_write_data(w, values, 10)); // in odd pieces
    assert_true(gguf_write_data(w, (const char *)values + 10, 14));
    assert_true(gguf_write_data(w, values, 12));
    assert_true(gguf_writer_finish(w, NULL));
    gguf_writer_free(w);
    assert_int_equal(got.n, wanted.n);
    assert_memory_equal(got.at, wanted.at, got.n);
    free(got.at);
    free(wanted.at);
}

// Every fixture model copied key by key and tensor by tensor gives the same file.
static void a_copied_fixture_is_the_same_file(void **state)
{
    (void)state;
    static const char *const names[] = {"models/tiny-26b.Q4_K_M", "models/tiny-mm.single-Q4_K_M", "models/micro-mm31.mmproj-F16",
        "tokenizer/small", "text/text-tiny-e2b.Q8_0"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char from[512];
        struct gguf_file *file;
        struct bytes got = {0};
        snprintf(from, sizeof from, "%s/%s.gguf", CARAT_FIXTURES, names[i]);
        assert_true(gguf_open_path(from, &file, NULL));
        struct gguf_writer *w = gguf_writer_new_sink(take_bytes, &got, 0, NULL);
        for (size_t k = 0; k < gguf_entry_count(file); k++)
            gguf_write_value(w, gguf_entry_at(file, k)->key, &gguf_entry_at(file, k)->value);
        for (uint64_t k = 0; k < gguf_tensor_count(file); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, k);
            gguf_declare(w, t->name, t->type, t->n_dims, t->ne);
        }
        for (uint64_t k = 0; k < gguf_tensor_count(file); k++) {
            const struct gguf_tensor *t = gguf_tensor_at(file, k);
            gguf_write_data(w, gguf_tensor_mapped(file, t), (size_t)t->n_bytes);
        }
        assert_true(gguf_writer_finish(w, NULL));
        gguf_writer_free(w);
        const struct gguf_source *source = gguf_file_source(file, 0);
        assert_int_equal(got.n, source->n_bytes);
        assert_memory_equal(got.at, source->mapped, got.n);
        free(got.at);
        gguf_close(file);
    }
}

static void a_file_appears_only_when_it_is_complete(void **state)
{
    (void)state;
    const uint64_t ne[1] = {8};
    const float values[8] = {0};
    struct carat_error err = {0};
    struct gguf_writer *w = gguf_writer_new(path, 64, &err);
    assert_non_null(w);
    gguf_declare(w, "t", GGUF_TYPE_F32, 1, ne);
    assert_true(gguf_write_data(w, values, 16));
    assert_int_equal(access(part_path, F_OK), 0);
    assert_false(gguf_writer_finish(w, &err));
    assert_non_null(strstr(err.message, "missing or incomplete"));
    gguf_writer_free(w);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(part_path, F_OK), -1);

    w = gguf_writer_new(path, 64, &err);
    gguf_declare(w, "t", GGUF_TYPE_F32, 1, ne);
    gguf_write_data(w, values, sizeof values);
    assert_true(gguf_writer_finish(w, &err));
    gguf_writer_free(w);
    assert_int_equal(access(part_path, F_OK), -1);
    struct gguf_file *file;
    assert_true(gguf_open_path(path, &file, NULL));
    assert_int_equal(gguf_find_tensor(file, "t")->offset % 64, 0);
    gguf_close(file);
}

// As root, /dev/null as the output would take the device from the whole system. A pipe stands for it here.
static void only_files_are_replaced(void **state)
{
    (void)state;
    char pipe_path[128], part[160];
    struct carat_error err = {0};
    struct stat status;
    snprintf(pipe_path, sizeof pipe_path, "%s/pipe", folder);
    snprintf(part, sizeof part, "%s.part", pipe_path);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_null(gguf_writer_new(pipe_path, 0, &err));
    assert_non_null(strstr(err.message, "not a regular file"));
    assert_int_equal(stat(pipe_path, &status), 0);
    assert_true(S_ISFIFO(status.st_mode));
    assert_int_equal(access(part, F_OK), -1);
    assert_null(gguf_writer_new(folder, 0, &err));
    unlink(pipe_path);
}

static void wrong_use_of_the_writer_is_an_error_that_stays(void **state)
{
    (void)state;
    const uint64_t ne[1] = {33}, good[1] = {32}, zero[1] = {0};
    char long_name[80] = {0};
    memset(long_name, 'n', 64);
    for (int kind = 0; kind < 8; kind++) {
        struct bytes got = {0};
        struct carat_error err = {0};
        struct gguf_writer *w = gguf_writer_new_sink(take_bytes, &got, 0, NULL);
        uint8_t data[64] = {0};
        if (kind == 0)
            gguf_declare(w, "t", GGUF_TYPE_Q8_0, 1, ne);
        else if (kind == 1)
            gguf_declare(w, long_name, GGUF_TYPE_F32, 1, good);
        else if (kind == 2)
            gguf_declare(w, "t", GGUF_TYPE_F32, 5, good);
        else if (kind == 3)
            gguf_declare(w, "t", GGUF_TYPE_F32, 1, zero);
        else if (kind == 4)
            gguf_write_array(w, "k", GGUF_VALUE_ARRAY, data, 1);
        else if (kind == 5)
            gguf_write_data(w, data, 1); // no tensor
        else if (kind == 6)
            gguf_write_data(w, data, 0), gguf_write_u32(w, "late", 1);
        else
            gguf_write_u32(w, "", 1);
        assert_int_equal(gguf_writer_error(w)->code, CARAT_BAD_ARGUMENT);
        assert_false(gguf_write_u32(w, "k", 1));
        assert_false(gguf_writer_finish(w, &err));
        assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
        gguf_writer_free(w);
        free(got.at);
    }
    assert_null(gguf_writer_new_sink(take_bytes, NULL, 48, NULL));
    struct carat_error err = {0};
    assert_null(gguf_writer_new("/no/such/folder/x.gguf", 0, &err));
    assert_int_equal(err.code, CARAT_IO);
}

static void a_full_disk_is_reported(void **state)
{
    (void)state;
    const uint64_t ne[1] = {1024};
    static const float values[1024];
    for (size_t room = 0; room < 200; room += 40) {
        size_t left = room;
        struct carat_error err = {0};
        struct gguf_writer *w = gguf_writer_new_sink(full_disk, &left, 0, NULL);
        gguf_declare(w, "t", GGUF_TYPE_F32, 1, ne);
        gguf_write_data(w, values, sizeof values);
        assert_false(gguf_writer_finish(w, &err));
        assert_string_equal(err.message, "the disk is full");
        gguf_writer_free(w);
    }
}

// --- safetensors

static struct safetensors_file *open_adapter(const char *name)
{
    char full[512];
    struct carat_error err = {0};
    struct safetensors_file *file = NULL;
    snprintf(full, sizeof full, "%s/lora/%s/adapter_model.safetensors", CARAT_FIXTURES, name);
    struct gguf_source *source = gguf_source_file(full, true, &err);
    if (source == NULL || !safetensors_open(source, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

// The same adapter through llama.cpp's converter: base_model.model.model.layers.N.self_attn.q_proj.lora_A.weight is
// blk.N.attn_q.weight.lora_a.
static void a_peft_adapter_holds_the_numbers_of_its_gguf_twin(void **state)
{
    (void)state;
    static const char *const modules[][2] = {{"self_attn.q_proj", "attn_q"}, {"self_attn.o_proj", "attn_output"},
        {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};
    char full[512];
    struct gguf_file *twin;
    struct safetensors_file *file = open_adapter("lora-micro-e2b");
    snprintf(full, sizeof full, "%s/lora/lora-micro-e2b.adapter-F32.gguf", CARAT_FIXTURES);
    assert_true(gguf_open_path(full, &twin, NULL));
    assert_int_equal(safetensors_count(file), gguf_tensor_count(twin));
    int n_compared = 0;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *t = safetensors_at(file, i);
        unsigned layer;
        const char *layers = strstr(t->name, "layers.");
        assert_non_null(layers);
        assert_int_equal(sscanf(layers, "layers.%u.", &layer), 1);
        for (size_t m = 0; m < sizeof modules / sizeof modules[0]; m++) {
            if (strstr(t->name, modules[m][0]) == NULL)
                continue;
            char name[128];
            snprintf(name, sizeof name, "blk.%u.%s.weight.lora_%c", layer, modules[m][1],
                strstr(t->name, "lora_A") != NULL ? 'a' : 'b');
            const struct gguf_tensor *g = gguf_find_tensor(twin, name);
            assert_non_null(g);
            assert_true(t->n_dims == 2 && t->shape[0] == g->ne[1] && t->shape[1] == g->ne[0]);
            size_t n = (size_t)gguf_tensor_elements(g);
            float *values = malloc(n * sizeof *values);
            assert_true(safetensors_read_f32(file, t, values, n, NULL));
            assert_memory_equal(values, gguf_tensor_mapped(twin, g), n * sizeof *values);
            assert_false(safetensors_read_f32(file, t, values, n - 1, NULL));
            assert_ptr_equal(safetensors_find(file, t->name), t);
            free(values);
            n_compared++;
        }
    }
    assert_true(n_compared > 50);
    gguf_close(twin);
    safetensors_close(file);
}

static struct bytes safetensors_bytes(const char *json, size_t n_data)
{
    struct bytes b = {0};
    put_number(&b, strlen(json), 8);
    put(&b, json, strlen(json));
    put_zeros(&b, n_data);
    return b;
}

static bool open_safetensors(const struct bytes *b, struct carat_error *err, struct safetensors_file **file)
{
    struct gguf_source *source = gguf_source_memory(b->at, b->n, "test.safetensors", NULL);
    bool ok = safetensors_open(source, file, err);
    if (!ok)
        gguf_source_close(source);
    return ok;
}

static void bad_safetensors_files_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_"
         "offsets\":[4,12]}}",
            "overlap"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_"
         "offsets\":[8,12]}}",
            "twice"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "4 bytes where its shape needs 8"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,20]}}", "end of the file"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,16]}}", "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296,4],\"data_offsets\":[0,0]}}", "impossible shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,6]}}", "impossible shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "dimensions"},
        {"{\"a\":{\"dtype\":\"X9\",\"shape\":[1],\"data_offsets\":[0,4]}}", "unknown type 'X9'"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "dtype"},
        {"{\"a\":7}", "dtype"},
        {"[]", "no object"},
        {"{\"a\":", "not valid JSON"},
    };
    struct safetensors_file *file;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = safetensors_bytes(cases[i].json, 16);
        struct carat_error err = {0};
        if (open_safetensors(&b, &err, &file))
            fail_msg("'%s' was accepted", cases[i].json);
        if (strstr(err.message, cases[i].message) == NULL)
            fail_msg("'%s' does not mention '%s'", err.message, cases[i].message);
        free(b.at);
    }
    static const uint64_t lengths[] = {UINT64_MAX, 1ull << 40, 25};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct bytes b = {0};
        put_number(&b, lengths[i], 8);
        put_zeros(&b, 24);
        assert_false(open_safetensors(&b, NULL, &file));
        for (b.n = 0; b.n < 8; b.n++)
            assert_false(open_safetensors(&b, NULL, &file));
        free(b.at);
    }
}

static void padded_headers_metadata_and_odd_offsets_are_accepted(void **state)
{
    (void)state;
    struct bytes b =
        safetensors_bytes("{\"__metadata__\":{\"format\":\"pt\"},\"h\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[1,3]},"
                          "\"e\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[3,3]},\"s\":{\"dtype\":\"F32\",\"shape\":[]"
                          ",\"data_offsets\":[3,7]}}    ",
            0);
    struct safetensors_file *file;
    float value;
    put(&b, "\0\x80\xbf\0\0\0\x40", 7); // -1 in BF16, 2 in F32
    assert_true(open_safetensors(&b, NULL, &file));
    assert_string_equal(safetensors_metadata(file, "format"), "pt");
    assert_null(safetensors_metadata(file, "absent"));
    assert_int_equal(safetensors_count(file), 3);
    assert_true(safetensors_read_f32(file, safetensors_find(file, "h"), &value, 1, NULL));
    assert_true(value == -1);
    assert_true(safetensors_read_f32(file, safetensors_find(file, "s"), &value, 1, NULL));
    assert_true(value == 2);
    assert_true(safetensors_read_f32(file, safetensors_find(file, "e"), NULL, 0, NULL));
    safetensors_close(file);
    free(b.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_file_has_exactly_the_bytes_of_the_format),
        cmocka_unit_test(a_copied_fixture_is_the_same_file),
        cmocka_unit_test(a_file_appears_only_when_it_is_complete),
        cmocka_unit_test(only_files_are_replaced),
        cmocka_unit_test(wrong_use_of_the_writer_is_an_error_that_stays),
        cmocka_unit_test(a_full_disk_is_reported),
        cmocka_unit_test(a_peft_adapter_holds_the_numbers_of_its_gguf_twin),
        cmocka_unit_test(bad_safetensors_files_are_refused),
        cmocka_unit_test(padded_headers_metadata_and_odd_offsets_are_accepted),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
