// tower_webgpu_test.c: the vision and audio towers on the GPU backend, against the goldens.

#include "tower_goldens.h"
#include "webgpu/webgpu_ops.h"
#include "webgpu/webgpu_tower.h"
#include "webgpu_driver.h"

static int make_backend(void **state)
{
    struct carat_error err = {0};
    use_software_driver();
    struct ops *ops = webgpu_ops_new(NULL, &err);
    *state = ops != NULL ? webgpu_tower_ops_new(ops, &err) : NULL;
    if (*state == NULL)
        print_error("%s. The tests run on SwiftShader: apt-get install chromium\n", err.message);
    return *state != NULL ? 0 : -1;
}

static int free_backend(void **state)
{
    struct tower_ops *tower = *state;
    struct ops *ops = tower->ops;
    tower->free(tower);
    ops->free(ops);
    return 0;
}

static void pictures_give_the_reference_soft_tokens(void **state)
{
    check_all_pictures(*state, !test_everything());
}

static void sounds_give_the_reference_soft_tokens(void **state)
{
    check_all_sounds(*state, !test_everything());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_give_the_reference_soft_tokens),
        cmocka_unit_test(sounds_give_the_reference_soft_tokens),
    };
    return cmocka_run_group_tests(tests, make_backend, free_backend);
}
