// text_ref_test.c: the reference backend computes what the goldens say, in f32 and f64 arithmetic on dequantised weights.

#include "text_golden.h"

#include "ref/ref.h"

static void every_text_fixture_agrees_within_f32_rounding(void **state)
{
    (void)state;
    struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    exact.variants = unless_slow(is_sanitized(), GOLDEN_BRIEF);
    run_text_goldens(ref_ops_new, &exact);
}

static void every_prompt_with_images_and_sounds_agrees_given_their_soft_tokens(void **state)
{
    (void)state;
    struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    run_soft_goldens(ref_ops_new, &exact);
}

// Rounding keys and values to 16 bits moves single logits by up to 0.1 and 0.02 rms here (10 bits of mantissa against scores of
// size 10 and more); the tolerance is the one that 16-bit activations have in the fixtures.
static void keys_and_values_in_16_bits_keep_the_greedy_tokens(void **state)
{
    (void)state;
    struct text_policy half = {.floats = {.logits = 0.15, .margin = 0.15}, .quantised = {.logits = 0.15, .margin = 0.15}};
    half.variants = unless_slow(is_sanitized(), GOLDEN_LEFT_OUT);
    run_text_goldens(ref_ops_new, &half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_text_fixture_agrees_within_f32_rounding),
        cmocka_unit_test(every_prompt_with_images_and_sounds_agrees_given_their_soft_tokens),
        cmocka_unit_test(keys_and_values_in_16_bits_keep_the_greedy_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
