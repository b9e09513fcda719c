// tower_cpu_test.c: the vision and audio towers on the CPU backend, against the goldens, with every set of kernels that the
// machine can run.

#include "cpu/cpu_internal.h"
#include "cpu/cpu_tower.h"
#include "tower_goldens.h"

static void with_kernels(const char *kernels, int n_threads, void (*check)(struct tower_ops *, bool))
{
    struct carat_error err = {0};
    struct ops *ops = cpu_ops_new_with(n_threads, false, kernels, &err);
    if (ops == NULL)
        return; // this machine lacks them
    struct tower_ops *tower = cpu_tower_ops_new(ops, &err);
    assert_non_null(tower);
    check(tower, false);
    tower->free(tower);
    ops->free(ops);
}

static void with_all_kernels(void (*check)(struct tower_ops *, bool))
{
    const struct cpu_kernels *tables[CPU_MAX_KERNELS];
    int n = cpu_kernels_available(tables);
    for (int i = 0; i < n; i++)
        with_kernels(tables[i]->name, 1 + i % 3, check);
}

static void pictures_give_the_reference_soft_tokens(void **state)
{
    (void)state;
    with_all_kernels(check_all_pictures);
}

static void sounds_give_the_reference_soft_tokens(void **state)
{
    (void)state;
    with_all_kernels(check_all_sounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_give_the_reference_soft_tokens),
        cmocka_unit_test(sounds_give_the_reference_soft_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
