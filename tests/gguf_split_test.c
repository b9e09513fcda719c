// gguf_split_test.c: models in several files.

#include "gguf_open.h"

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
        cmocka_unit_test(split_files_are_joined_and_their_numbers_checked),
        cmocka_unit_test(the_first_part_of_a_split_file_brings_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
