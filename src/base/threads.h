// threads.h: a pool of threads that run one function together.
//
// The caller is thread 0 and takes part. A pool of one thread runs everything in the caller and needs no system support, which is
// how the library works where threads are missing. Workers spin briefly for the next job and then sleep.
//
// In WebAssembly the host starts the workers: each calls threads_worker_main(pool, index) on its own stack.

#ifndef CARAT_BASE_THREADS_H
#define CARAT_BASE_THREADS_H

#include "base/error.h"

struct threads;

// index: 0 .. n_threads - 1. Called once per thread and job.
typedef void threads_job(void *context, int index, int n_threads);

enum { THREADS_MAX = 256 };

// n_threads from 1 to THREADS_MAX; 0 = one per physical core. The result is freed with threads_free.
struct threads *threads_new(int n_threads, struct carat_error *err);
void threads_free(struct threads *pool);
int threads_count(const struct threads *pool);
int threads_cores(void); // physical cores that the process may use; 1 where threads are missing

// Runs job on every thread and returns when all are done. Not reentrant: a job must not call it.
void threads_run(struct threads *pool, threads_job *job, void *context);

// Inside a job: returns when every thread of the pool has called it equally often.
void threads_barrier(struct threads *pool);

#ifdef __wasm__
// The loop of a worker started by the host; returns when the pool is freed.
void threads_worker_main(struct threads *pool, int index);
#endif

#endif
