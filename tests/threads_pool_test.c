// threads_pool_test.c: the thread pool runs every index once per job, and its barrier separates phases.

#include "golden.h"

#include "base/threads.h"

#include <stdatomic.h>
#include <time.h>

struct tally {
    struct threads *pool;
    atomic_int runs[8];
    atomic_int arrived;
    atomic_int early; // threads that passed a barrier before all had arrived
};

static void count_run(void *context, int index, int n_threads)
{
    struct tally *tally = context;
    assert_int_equal(n_threads, threads_count(tally->pool));
    atomic_fetch_add(&tally->runs[index], 1);
}

static void every_index_runs_once_per_job(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++) {
        struct carat_error err = {0};
        struct tally tally = {.pool = threads_new(n, &err)};
        require(tally.pool != NULL, err);
        assert_int_equal(threads_count(tally.pool), n);
        for (int job = 0; job < 500; job++)
            threads_run(tally.pool, count_run, &tally);
        for (int i = 0; i < 8; i++)
            assert_int_equal(atomic_load(&tally.runs[i]), i < n ? 500 : 0);
        threads_free(tally.pool);
    }
}

static void pass_barriers(void *context, int index, int n_threads)
{
    struct tally *tally = context;
    (void)index;
    for (int round = 1; round <= 200; round++) {
        atomic_fetch_add(&tally->arrived, 1);
        threads_barrier(tally->pool);
        if (atomic_load(&tally->arrived) < round * n_threads)
            atomic_fetch_add(&tally->early, 1);
        threads_barrier(tally->pool);
    }
}

static void no_thread_passes_a_barrier_before_all_have_come(void **state)
{
    (void)state;
    for (int n = 1; n <= 6; n++) {
        struct carat_error err = {0};
        struct tally tally = {.pool = threads_new(n, &err)};
        require(tally.pool != NULL, err);
        threads_run(tally.pool, pass_barriers, &tally);
        assert_int_equal(atomic_load(&tally.early), 0);
        assert_int_equal(atomic_load(&tally.arrived), 200 * n);
        threads_free(tally.pool);
    }
}

static void workers_that_fell_asleep_wake_for_the_next_job(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct tally tally = {.pool = threads_new(4, &err)};
    require(tally.pool != NULL, err);
    for (int job = 0; job < 5; job++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); // far beyond the time that workers spin
        threads_run(tally.pool, count_run, &tally);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(atomic_load(&tally.runs[i]), 5);
    threads_free(tally.pool);
}

static void impossible_numbers_of_threads_are_refused(void **state)
{
    (void)state;
    struct carat_error err = {0};
    assert_null(threads_new(-1, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    assert_null(threads_new(100000, &err));
    struct threads *pool = threads_new(0, &err);
    require(pool != NULL, err);
    assert_true(threads_count(pool) >= 1);
    threads_free(pool);
    threads_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_runs_once_per_job),
        cmocka_unit_test(no_thread_passes_a_barrier_before_all_have_come),
        cmocka_unit_test(workers_that_fell_asleep_wake_for_the_next_job),
        cmocka_unit_test(impossible_numbers_of_threads_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
