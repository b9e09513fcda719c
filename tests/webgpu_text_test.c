// webgpu_text_test.c: the GPU backend computes what the goldens of the text model say.

#include "text_golden.h"

#include "webgpu/webgpu_ops.h"
#include "webgpu_driver.h"

// A device of each kind for all models: making its kernels takes most of the time on a software renderer.
static struct ops *usual, *exact;
static void (*free_device)(struct ops *ops);

static void keep(struct ops *ops)
{
    (void)ops;
}

static struct ops *make(struct ops **device, bool is_exact, struct carat_error *err)
{
    if (*device != NULL)
        return *device;
    use_software_driver();
    *device = webgpu_ops_new(&(struct webgpu_options){.exact = is_exact, .no_autotune = true}, err);
    if (*device != NULL) {
        free_device = (*device)->free;
        (*device)->free = keep;
    }
    return *device;
}

static struct ops *make_usual(struct carat_error *err)
{
    return make(&usual, false, err);
}

static struct ops *make_exact(struct carat_error *err)
{
    return make(&exact, true, err);
}

static int close_devices(void **state)
{
    (void)state;
    if (usual != NULL)
        free_device(usual);
    if (exact != NULL)
        free_device(exact);
    return 0;
}

// f32 sums in another order than the references': the tolerance is theirs.
static void the_exact_mode_agrees_within_f32_rounding(void **state)
{
    (void)state;
    struct text_policy policy = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    policy.variants = unless_slow(true, GOLDEN_LEFT_OUT);
    run_text_goldens(make_exact, &policy);
}

// Keys and values round to 16 bits, which the fixtures' README measured as up to 0.15 in a logit; so do the inputs of single
// rows' products, with a scale for every 64 of them, which is far less.
static void with_16_bits_it_gives_the_greedy_tokens(void **state)
{
    (void)state;
    struct text_policy policy = {.floats = {.logits = 0.15, .margin = 0.15}, .quantised = {.logits = 0.15, .margin = 0.15}};
    policy.variants = unless_slow(true, GOLDEN_LEFT_OUT);
    run_text_goldens(make_usual, &policy);
}

static void prompts_with_images_and_sounds_agree_given_their_soft_tokens(void **state)
{
    (void)state;
    struct text_policy policy = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
    run_soft_goldens(make_exact, &policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exact_mode_agrees_within_f32_rounding),
        cmocka_unit_test(with_16_bits_it_gives_the_greedy_tokens),
        cmocka_unit_test(prompts_with_images_and_sounds_agree_given_their_soft_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, close_devices);
}
