// draw_test.c: drawing tokens where the logits are, and running ahead with it, on the reference backend.

#include "draw_rig.h"
#include "run_ahead_rig.h"

#include "cpu/cpu.h"

static void a_draw_takes_the_token_that_the_sampler_takes(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct ops *ref = ref_ops_new(&err);
    require(ref != NULL, err);
    // The reference weighs in f64, the sampler in f32: of millions of draws a few could differ, of these none does.
    assert_int_equal(compare_draws(ref, 2003, 700), 0);
    ref->free(ref);
}

static void a_logit_that_is_no_number_is_never_chosen(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct cpu_options options = {.n_threads = 2};
    struct ops *backends[] = {ref_ops_new(&err), cpu_ops_new(&options, &err)};
    for (int i = 0; i < 2; i++) {
        require(backends[i] != NULL, err);
        check_bad_numbers(backends[i], 2003);
        backends[i]->free(backends[i]);
    }
}

static void running_ahead_changes_neither_tokens_nor_the_sampler(void **state)
{
    (void)state;
    check_running_ahead("ref");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draw_takes_the_token_that_the_sampler_takes),
        cmocka_unit_test(a_logit_that_is_no_number_is_never_chosen),
        cmocka_unit_test(running_ahead_changes_neither_tokens_nor_the_sampler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
