// webgpu_state_test.c: states of sessions on the GPU, where read-backs arrive late.

#include "state_rig.h"

#include "webgpu_driver.h"

static struct carat_model *model;

static int open_device(void **state)
{
    (void)state;
    use_software_driver();
    model = open_model("micro-e2b.F32.gguf", "webgpu");
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    carat_model_free(model);
    return 0;
}

static void a_restored_session_goes_on_bit_by_bit(void **state)
{
    (void)state;
    check_round_trip(model, CARAT_STATE_OWN, false, 500, 128, 450);
    check_round_trip(model, CARAT_STATE_RLMS, true, 64, 32, 37);
}

static void a_copy_goes_on_by_itself(void **state)
{
    (void)state;
    check_copy(model, false, 40);
}

// The bytes are the same on every backend but for the rounding of what was computed.
static void a_state_of_the_processor_goes_on_here(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *judge = open_model("micro-e2b.F32.gguf", "ref");
    struct carat_session *session = new_session(judge, 500, 128, true);
    struct carat_session *other = new_session(model, 500, 128, true);
    feed(session, 0, 450);
    struct blob blob = save(session, CARAT_STATE_OWN);
    require(restore(other, blob, &err), err);
    struct blob again = save(other, CARAT_STATE_OWN);
    assert_same_blob(again, blob);
    float *expected = go_on(session);
    float *logits = go_on(other);
    struct deviation deviation = {0};
    deviation_add(&deviation, logits, expected, N_STEPS * N_VOCAB);
    assert_true(deviation.largest < 1e-3); // f32 sums in another order
    free(expected);
    free(logits);
    free(blob.bytes);
    free(again.bytes);
    carat_session_free(session);
    carat_session_free(other);
    carat_model_free(judge);
}

static void a_session_may_be_freed_while_a_read_back_is_under_way(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_session *session = new_session(model, 64, 16, false);
    uint64_t n_bytes;
    const void *piece;
    size_t n_piece;
    feed(session, 0, 20);
    require(carat_state_save_begin(session, CARAT_STATE_RLMS, &n_bytes, &err), err);
    assert_int_equal(carat_state_save_next(session, &piece, &n_piece, &err), CARAT_EVENT);
    carat_state_save_next(session, &piece, &n_piece, &err);
    carat_state_end(session);
    struct blob blob = save(session, CARAT_STATE_OWN);
    require(restore(session, blob, &err), err);
    require(carat_state_save_begin(session, CARAT_STATE_RLMS, &n_bytes, &err), err);
    carat_state_save_next(session, &piece, &n_piece, &err);
    carat_state_save_next(session, &piece, &n_piece, &err);
    carat_session_free(session);
    free(blob.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_restored_session_goes_on_bit_by_bit),
        cmocka_unit_test(a_copy_goes_on_by_itself),
        cmocka_unit_test(a_state_of_the_processor_goes_on_here),
        cmocka_unit_test(a_session_may_be_freed_while_a_read_back_is_under_way),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
