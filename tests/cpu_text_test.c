// cpu_text_test.c: the CPU backend computes what the goldens of the text model say.

#include "text_golden.h"

#include "cpu/cpu.h"
#include "cpu/cpu_internal.h"

static const char *kernels; // NULL: the best of this machine

static struct ops *make_exact(struct carat_error *err)
{
    return cpu_ops_new_with(2, true, kernels, err);
}

static struct ops *make_default(struct carat_error *err)
{
    return cpu_ops_new_with(2, false, kernels, err);
}

static void for_every_instruction_set(ops_factory *factory, const struct text_policy *policy)
{
    const struct cpu_kernels *tables[CPU_MAX_KERNELS];
    int n = cpu_kernels_available(tables);
    for (int i = 0; i < n; i++) {
        kernels = tables[i]->name;
        printf("  with %s:\n", kernels);
        run_text_goldens(factory, policy);
    }
    kernels = NULL;
}

// f32 sums in another order than the references': the tolerance is theirs.
static void exact_mode_agrees_within_f32_rounding_with_every_instruction_set(void **state)
{
    (void)state;
    struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    exact.variants = unless_slow(is_sanitized(), GOLDEN_BRIEF);
    for_every_instruction_set(make_exact, &exact);
}

// Activations in 8 bits and keys and values in 16: what the fixtures' README measured of such an implementation, and every greedy
// token that the golden margin decides. F32, F16 and BF16 weights take f32 activations, so there only keys and values round.
static void eight_bit_activations_give_the_greedy_tokens_with_every_instruction_set(void **state)
{
    (void)state;
    struct text_policy policy = {.floats = {.logits = 0.15, .margin = 0.15}, .quantised = {.logits_rms = 0.6, .margin = 1}};
    policy.variants = unless_slow(is_sanitized(), GOLDEN_BRIEF);
    for_every_instruction_set(make_default, &policy);
}

static void prompts_with_images_and_sounds_agree_given_their_soft_tokens(void **state)
{
    (void)state;
    struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    run_soft_goldens(make_exact, &exact);
    struct text_policy policy = {.floats = {.logits = 0.15}, .quantised = {.logits_rms = 0.6}};
    run_soft_goldens(make_default, &policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_mode_agrees_within_f32_rounding_with_every_instruction_set),
        cmocka_unit_test(eight_bit_activations_give_the_greedy_tokens_with_every_instruction_set),
        cmocka_unit_test(prompts_with_images_and_sounds_agree_given_their_soft_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
