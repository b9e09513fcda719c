// text_ref_test.c: the reference backend computes what the goldens say, in f32 and f64 arithmetic on dequantised weights.

#include "text_golden.h"

#include "ref/ref.h"

static void every_text_fixture_agrees_within_f32_rounding(void **state)
{
    (void)state;
    struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    run_text_goldens(ref_ops_new, &exact);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_fixture_agrees_within_f32_rounding),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
