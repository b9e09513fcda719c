// webgpu_draw_test.c: drawing tokens on the GPU, and running ahead with it.

#include "draw_rig.h"
#include "run_ahead_rig.h"

#include "webgpu/webgpu_ops.h"
#include "webgpu_driver.h"

static struct ops *gpu;

static int open_device(void **state)
{
    (void)state;
    struct carat_error err = {0};
    use_software_driver();
    gpu = webgpu_ops_new(NULL, &err);
    require(gpu != NULL, err);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu->free(gpu);
    return 0;
}

static void a_draw_takes_the_token_that_the_sampler_takes(void **state)
{
    (void)state;
    // Of 4512 draws on SwiftShader none differed; other drivers may round exponentials otherwise.
    int n_different = compare_draws(gpu, 2003, 200) + compare_draws(gpu, 262144, 3);
    assert_in_range(n_different, 0, 2);
}

static void a_logit_that_is_no_number_is_never_chosen(void **state)
{
    (void)state;
    check_bad_numbers(gpu, 2003);
}

static void running_ahead_changes_neither_tokens_nor_the_sampler(void **state)
{
    (void)state;
    check_running_ahead("webgpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_draw_takes_the_token_that_the_sampler_takes),
        cmocka_unit_test(a_logit_that_is_no_number_is_never_chosen),
        cmocka_unit_test(running_ahead_changes_neither_tokens_nor_the_sampler),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
