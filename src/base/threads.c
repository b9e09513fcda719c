// threads.c: the pool, its barrier and the way threads wait.
//
// Every wait is for a 32-bit word to change. A thread spins on the word for some tens of microseconds, which covers the gaps
// between the operations of one token, and then sleeps on it: on a futex (Linux), on memory.atomic.wait (WebAssembly) or on a
// condition variable. `n_asleep` tells those who change a word whether a wake-up call is needed at all.
//
// Protocol of a job: the caller stores the job, sets n_running to the number of workers and advances `generation`; each worker
// runs the job and takes itself off n_running; the caller returns when n_running is 0.

#define _GNU_SOURCE // sched_getaffinity

#include "base/threads.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifndef __wasm__
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#endif
#ifdef __linux__
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

enum { SPINS_BEFORE_SLEEP = 4000 };

// Each word on its own cache line, so that spinning on one does not slow down the others.
struct word {
    _Alignas(128) _Atomic uint32_t value;
};

struct threads {
    int n_threads;
    threads_job *job;
    void *context;
    struct word generation;    // counts jobs
    struct word n_running;     // workers that have not finished the job
    struct word n_arrived;     // threads waiting at the barrier
    struct word barrier_phase; // counts barriers
    struct word n_asleep;
    atomic_bool stop;
#ifndef __wasm__
    int n_started;
    struct worker *workers; // [n_threads - 1]
    pthread_mutex_t mutex;  // these two only where there is no futex
    pthread_cond_t changed;
#endif
};

static void spin_once(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

// Sleeps while *word is `old`; may return early.
static void sleep_while(struct threads *pool, struct word *word, uint32_t old)
{
#if defined(__wasm__)
    (void)pool;
#ifdef __wasm_atomics__
    __builtin_wasm_memory_atomic_wait32((int *)&word->value, (int)old, -1);
#else
    (void)word, (void)old;
#endif
#elif defined(__linux__)
    (void)pool;
    syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
#else
    pthread_mutex_lock(&pool->mutex);
    if (atomic_load(&word->value) == old)
        pthread_cond_wait(&pool->changed, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
#endif
}

// The word was changed: wakes its sleepers.
static void wake_sleepers(struct threads *pool, struct word *word)
{
    if (atomic_load(&pool->n_asleep.value) == 0)
        return;
#if defined(__wasm__)
#ifdef __wasm_atomics__
    __builtin_wasm_memory_atomic_notify((int *)&word->value, UINT32_MAX);
#else
    (void)word;
#endif
#elif defined(__linux__)
    syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#else
    (void)word;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->mutex);
#endif
}

// Returns the word's value once it differs from `old`.
static uint32_t wait_for_change(struct threads *pool, struct word *word, uint32_t old)
{
    uint32_t value;
    for (int i = 0; i < SPINS_BEFORE_SLEEP; i++) {
        value = atomic_load_explicit(&word->value, memory_order_acquire);
        if (value != old)
            return value;
        spin_once();
    }
    // Sequentially consistent with the change and the look at n_asleep on the other side: one of the two sees the other.
    atomic_fetch_add(&pool->n_asleep.value, 1);
    while ((value = atomic_load(&word->value)) == old)
        sleep_while(pool, word, old);
    atomic_fetch_sub(&pool->n_asleep.value, 1);
    return value;
}

static void work(struct threads *pool, int index)
{
    uint32_t seen = 0;
    for (;;) {
        seen = wait_for_change(pool, &pool->generation, seen);
        if (atomic_load_explicit(&pool->stop, memory_order_acquire))
            return;
        pool->job(pool->context, index, pool->n_threads);
        if (atomic_fetch_sub(&pool->n_running.value, 1) == 1)
            wake_sleepers(pool, &pool->n_running);
    }
}

#ifdef __wasm__

void threads_worker_main(struct threads *pool, int index)
{
    work(pool, index);
    atomic_fetch_sub(&pool->n_running.value, 1); // threads_free may go on
    wake_sleepers(pool, &pool->n_running);
}

#ifdef __wasm_atomics__
// The host keeps started workers waiting; this sends one of them into threads_worker_main. 0: there is none left.
__attribute__((import_module("carat"), import_name("thread_start"))) int host_thread_start(struct threads *pool, int index);
#endif

static bool start_workers(struct threads *pool, struct carat_error *err)
{
#ifdef __wasm_atomics__
    for (int i = 1; i < pool->n_threads; i++) {
        if (host_thread_start(pool, i) != 0)
            continue;
        int wanted = pool->n_threads;
        pool->n_threads = i; // those that run have to be stopped
        return fail(err, CARAT_NO_MEMORY, "the browser gave only %d of %d threads; ask for fewer", i, wanted);
    }
    return true;
#else
    bool asked_for_more = pool->n_threads > 1;
    pool->n_threads = 1; // there are no others to be waited for
    if (asked_for_more)
        return fail(err, CARAT_UNSUPPORTED, "this build of carat has no threads; ask for one thread");
    return true;
#endif
}

static void stop_workers(struct threads *pool)
{
    if (pool->n_threads == 1)
        return;
    atomic_store(&pool->n_running.value, (uint32_t)pool->n_threads - 1);
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation.value, 1);
    wake_sleepers(pool, &pool->generation);
    for (uint32_t left; (left = atomic_load(&pool->n_running.value)) != 0;)
        wait_for_change(pool, &pool->n_running, left);
}

int threads_cores(void)
{
    return 1;
}

#else

struct worker {
    struct threads *pool;
    int index;
    pthread_t handle;
};

static void *worker_start(void *context)
{
    struct worker *worker = context;
    work(worker->pool, worker->index);
    return NULL;
}

static bool start_workers(struct threads *pool, struct carat_error *err)
{
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->changed, NULL);
    pool->workers = calloc((size_t)pool->n_threads, sizeof *pool->workers);
    if (pool->workers == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for %d threads", pool->n_threads);
    // Signals are the program's business: a worker that took one would keep the thread that waits for it from waking up.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool ok = true;
    for (int i = 1; ok && i < pool->n_threads; i++) {
        struct worker *worker = &pool->workers[i - 1];
        *worker = (struct worker){.pool = pool, .index = i};
        ok = pthread_create(&worker->handle, NULL, worker_start, worker) == 0;
        pool->n_started += ok;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return ok || fail(err, CARAT_NO_MEMORY, "the system gave only %d of %d threads; ask for fewer", pool->n_started + 1,
                     pool->n_threads);
}

static void stop_workers(struct threads *pool)
{
    atomic_store(&pool->stop, true);
    atomic_fetch_add(&pool->generation.value, 1);
    wake_sleepers(pool, &pool->generation);
    for (int i = 0; i < pool->n_started; i++)
        pthread_join(pool->workers[i].handle, NULL);
    free(pool->workers);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->mutex);
}

#ifdef __linux__
// Of the hardware threads of a core, only the first counts. True when `cpu` is the first, or when the system does not say.
static bool first_of_its_core(int cpu)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return true;
    char text[16] = "";
    bool read = fgets(text, sizeof text, file) != NULL;
    fclose(file);
    return !read || strtol(text, NULL, 10) == cpu;
}

int threads_cores(void)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 1;
    int n_cores = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        n_cores += CPU_ISSET(cpu, &allowed) && first_of_its_core(cpu);
    return n_cores > 0 ? n_cores : CPU_COUNT(&allowed);
}
#else
int threads_cores(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (int)n;
}
#endif

#endif

struct threads *threads_new(int n_threads, struct carat_error *err)
{
    if (n_threads == 0)
        n_threads = threads_cores();
    if (n_threads < 1 || n_threads > THREADS_MAX) {
        fail(err, CARAT_BAD_ARGUMENT, "%d threads were asked for; 1 to %d are possible", n_threads, THREADS_MAX);
        return NULL;
    }
    size_t n_bytes = (sizeof(struct threads) + 127) / 128 * 128;
    struct threads *pool = aligned_alloc(128, n_bytes);
    if (pool == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for a pool of %d threads", n_threads);
        return NULL;
    }
    *pool = (struct threads){.n_threads = n_threads};
    if (!start_workers(pool, err)) {
        stop_workers(pool);
        free(pool);
        return NULL;
    }
    return pool;
}

void threads_free(struct threads *pool)
{
    if (pool == NULL)
        return;
    stop_workers(pool);
    free(pool);
}

int threads_count(const struct threads *pool)
{
    return pool->n_threads;
}

void threads_run(struct threads *pool, threads_job *job, void *context)
{
    if (pool->n_threads == 1) {
        job(context, 0, 1);
        return;
    }
    pool->job = job;
    pool->context = context;
    atomic_store_explicit(&pool->n_running.value, (uint32_t)pool->n_threads - 1, memory_order_relaxed);
    atomic_fetch_add(&pool->generation.value, 1);
    wake_sleepers(pool, &pool->generation);
    job(context, 0, pool->n_threads);
    for (uint32_t left; (left = atomic_load_explicit(&pool->n_running.value, memory_order_acquire)) != 0;)
        wait_for_change(pool, &pool->n_running, left);
}

void threads_barrier(struct threads *pool)
{
    if (pool->n_threads == 1)
        return;
    uint32_t phase = atomic_load_explicit(&pool->barrier_phase.value, memory_order_acquire);
    if (atomic_fetch_add(&pool->n_arrived.value, 1) == (uint32_t)pool->n_threads - 1) {
        atomic_store_explicit(&pool->n_arrived.value, 0, memory_order_relaxed);
        atomic_fetch_add(&pool->barrier_phase.value, 1);
        wake_sleepers(pool, &pool->barrier_phase);
    } else {
        wait_for_change(pool, &pool->barrier_phase, phase);
    }
}
