// bench_warm_up_test.c: when a benchmark has run long enough to begin counting. tests/web/bench.test.mjs has the same cases.

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../cli/bench_warm_up.h"

// Runs counted before it is warm, when the runs take times[0], times[1], ... and the last of them again and again.
static int runs_until_warm(const double *times_ms, int n_times, double before_ms)
{
    struct warm_up_run runs[2 * WARM_UP_MOST_RUNS];
    int n = 0;
    while (!is_warm(runs, n)) {
        assert_true(n < 2 * WARM_UP_MOST_RUNS);
        double counted_ms = times_ms[n < n_times ? n : n_times - 1];
        runs[n++] = (struct warm_up_run){counted_ms, before_ms + counted_ms};
    }
    return n;
}

#define RUNS(before_ms, ...)                                                                                                     \
    runs_until_warm((const double[]){__VA_ARGS__}, (int)(sizeof(double[]){__VA_ARGS__} / sizeof(double)), before_ms)

static void a_long_run_warms_up_alone(void **state)
{
    (void)state;
    assert_int_equal(RUNS(0, 2000), 1);
    assert_int_equal(RUNS(0, 30000), 1);
    assert_int_equal(RUNS(0, 1999, 1000), 3); // the first was not, and the second differs from it
}

static void equal_runs_count_after_two_seconds(void **state)
{
    (void)state;
    assert_int_equal(RUNS(0, 400), 5);
    assert_int_equal(RUNS(0, 450, 450, 450, 450, 240), 6); // a slow plateau of 1.8 s, left at the fifth run
    assert_int_equal(RUNS(0, 100), 20);
}

static void unsteady_runs_go_on_for_five_seconds(void **state)
{
    (void)state;
    assert_int_equal(RUNS(0, 1000, 971), 3);       // 2.99 % apart after 1971 ms, equal at the third
    assert_int_equal(RUNS(0, 1050, 1018, 500), 4); // 3.1 % apart at the second
    assert_int_equal(RUNS(0, 1050, 1081, 500), 2); // 2.95 %
    assert_int_equal(RUNS(0, 1000, 1100, 1000, 1100, 1000), 5);
    assert_int_equal(RUNS(0, 1000, 1100, 1000, 1100, 750, 600), 6); // 4950 ms at the fifth
}

static void the_whole_run_bounds_it_and_the_counted_part_is_compared(void **state)
{
    (void)state;
    assert_int_equal(RUNS(40000, 100, 50), 1);
    assert_int_equal(RUNS(1500, 100, 50, 50), 3);
    assert_int_equal(RUNS(1500, 100, 50, 20, 20), 4);
    assert_int_equal(RUNS(1500, 100, 50, 20, 10, 5), 4);
}

static void short_runs_end_after_a_hundred(void **state)
{
    (void)state;
    assert_int_equal(RUNS(0, 0.5), 100);
    assert_int_equal(RUNS(0, 0), 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_run_warms_up_alone),
        cmocka_unit_test(equal_runs_count_after_two_seconds),
        cmocka_unit_test(unsteady_runs_go_on_for_five_seconds),
        cmocka_unit_test(the_whole_run_bounds_it_and_the_counted_part_is_compared),
        cmocka_unit_test(short_runs_end_after_a_hundred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
