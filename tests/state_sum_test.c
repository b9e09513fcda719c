// state_sum_test.c: the checksums of saved states: nothing damaged is taken, states of version 1, which had none, still are.

#include "state_rig.h"

#include "base/xxh64.h"

enum { CONTEXT = 64, BATCH = 16, N = 24, N_SECTIONS = 5 };

// Of the bytes (7 i + 3) mod 256, by the Python package xxhash.
static void xxh64_is_the_known_one_however_the_bytes_are_cut(void **state)
{
    (void)state;
    static const struct {
        size_t n;
        uint64_t sum;
    } cases[] = {{0, 0xef46db3751d8e999}, {1, 0x1f25c8d0bc1f4bb6}, {3, 0x31d2363f52e564c9}, {4, 0x9bb64b7d66ee9fda},
        {8, 0xdab99d95c6f90092}, {31, 0xa2aa5f33cc4a6119}, {32, 0x23c3c17ef790fd97}, {33, 0x50a7cfc7ba588784},
        {64, 0x0eb64b3ef6eeb01f}, {100, 0xa61f8d4c170fe531}, {1000, 0x5f235fa033f1a3fb}};
    uint8_t bytes[1000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + 3);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        assert_int_equal(xxh64(bytes, cases[c].n), cases[c].sum);
        for (size_t piece = 1; piece < 70; piece++) {
            struct xxh64 sum;
            xxh64_begin(&sum);
            for (size_t at = 0; at < cases[c].n; at += piece)
                xxh64_add(&sum, bytes + at, cases[c].n - at < piece ? cases[c].n - at : piece);
            assert_int_equal(xxh64_of(&sum), cases[c].sum);
        }
    }
}

static size_t head_bytes(const struct carat_model *model)
{
    return 64 + strlen(model->name) + N * 12 + N_SECTIONS * 16 + 8;
}

static void the_checksums_stand_where_the_description_says(void **state)
{
    (void)state;
    struct carat_model *model = open_model("micro-e2b.F32.gguf", "cpu");
    struct carat_session *session = new_session(model, CONTEXT, BATCH, false);
    feed(session, 0, N);
    struct blob blob = save(session, CARAT_STATE_OWN);
    size_t n_head = head_bytes(model);
    assert_memory_equal(blob.bytes, "CRTS\2\0\0\0", 8);
    assert_int_equal(load_u64(blob.bytes + 8), blob.n);
    assert_int_equal(load_u32(blob.bytes + 60), (uint32_t)xxh64(blob.bytes, 60));
    assert_int_equal(load_u64(blob.bytes + n_head - 8), xxh64(blob.bytes, n_head - 8));
    assert_int_equal(load_u64(blob.bytes + blob.n - 8), xxh64(blob.bytes + n_head, blob.n - 8 - n_head));
    free(blob.bytes);
    carat_session_free(session);
    carat_model_free(model);
}

// One changed bit anywhere: what stands before keys and values leaves the session alone, what is in them empties it.
static void a_state_with_one_wrong_bit_is_refused(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model("micro-e2b.F32.gguf", "cpu");
    struct carat_session *session = new_session(model, CONTEXT, BATCH, false);
    feed(session, 900, 10);
    struct blob held = save(session, CARAT_STATE_OWN);
    carat_session_truncate(session, 0);
    feed(session, 0, N);
    struct blob blob = save(session, CARAT_STATE_OWN);
    size_t n_head = head_bytes(model);
    require(restore(session, held, &err), err);
    for (size_t at = 0; at < blob.n; at += at < n_head || at + 9 > blob.n ? 1 : 61) {
        blob.bytes[at] ^= (uint8_t)(1 << at % 8);
        if (restore(session, blob, &err))
            give_up("a wrong bit in byte %zu was not noticed", at);
        blob.bytes[at] ^= (uint8_t)(1 << at % 8);
        bool told = at < 4   ? strstr(err.message, "no saved state") != NULL
                    : at < 8 ? strstr(err.message, "version") != NULL
                             : strstr(err.message, "damaged") != NULL;
        if (!told)
            give_up("byte %zu: '%s'", at, err.message);
        assert_int_equal(carat_session_position(session), at < n_head ? 10 : 0);
        if (at >= n_head)
            require(restore(session, held, &err), err);
    }
    require(restore(session, blob, &err), err);
    assert_int_equal(carat_session_position(session), N);
    free(blob.bytes);
    free(held.bytes);
    carat_session_free(session);
    carat_model_free(model);
}

// The same state as version 1 had it: without the three checksums.
static struct blob as_version_1(struct blob blob, size_t n_head)
{
    struct blob old = {.bytes = malloc(blob.n), .n = blob.n - 16};
    assert_non_null(old.bytes);
    memcpy(old.bytes, blob.bytes, n_head - 8);
    memcpy(old.bytes + n_head - 8, blob.bytes + n_head, old.n - (n_head - 8));
    store_u64(store_u32(old.bytes + 4, 1), old.n);
    store_u32(old.bytes + 60, 0);
    return old;
}

static void a_state_of_version_1_is_still_taken(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = open_model("micro-e2b.F32.gguf", "cpu");
    struct carat_session *session = new_session(model, CONTEXT, BATCH, false);
    feed(session, 0, N);
    struct blob blob = save(session, CARAT_STATE_OWN), old = as_version_1(blob, head_bytes(model));
    carat_session_truncate(session, 0);
    feed(session, 900, 10);
    require(restore(session, old, &err), err);
    struct blob again = save(session, CARAT_STATE_OWN);
    assert_same_blob(again, blob);
    // Of later versions nothing is known.
    store_u32(blob.bytes + 4, 3);
    assert_false(restore(session, blob, &err));
    assert_int_equal(err.code, CARAT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "version 3"));
    assert_int_equal(carat_session_position(session), N);
    free(again.bytes);
    free(old.bytes);
    free(blob.bytes);
    carat_session_free(session);
    carat_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(xxh64_is_the_known_one_however_the_bytes_are_cut),
        cmocka_unit_test(the_checksums_stand_where_the_description_says),
        cmocka_unit_test(a_state_with_one_wrong_bit_is_refused),
        cmocka_unit_test(a_state_of_version_1_is_still_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
