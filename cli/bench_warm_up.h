// bench_warm_up.h: how long a benchmark runs before it counts; web/src/bench.ts has the same rule.
//
// The first seconds of a process are slower than the rest. NVIDIA's driver compiles a kernel quickly first and again in the
// background, and engines of WebAssembly do so with functions. The slow state can hold for a second, in which runs are equal
// too: hence a least time before equal runs count as steady.

#ifndef CARAT_CLI_BENCH_WARM_UP_H
#define CARAT_CLI_BENCH_WARM_UP_H

#include <math.h>
#include <stdbool.h>

enum { WARM_UP_MOST_RUNS = 100 };
static const double warm_up_least_ms = 2000, warm_up_most_ms = 5000;
static const double warm_up_steady = 0.03; // runs that differ by less than this part are equal

struct warm_up_run {
    double counted_ms; // what would be measured
    double whole_ms;   // with what comes before it, the positions of a depth for instance
};

// True when a test that has run n times, so long each, may begin to count. It has run once at least, for 5 s or 100 times at
// most, and otherwise for 2 s with the last two runs steady; a first run of 2 s is enough alone.
static inline bool is_warm(const struct warm_up_run *runs, int n)
{
    if (n == 0)
        return false;
    double whole_ms = 0;
    for (int i = 0; i < n; i++)
        whole_ms += runs[i].whole_ms;
    if (n >= WARM_UP_MOST_RUNS || whole_ms >= warm_up_most_ms)
        return true;
    if (whole_ms < warm_up_least_ms)
        return false;
    if (n == 1)
        return true;
    double last_ms = runs[n - 1].counted_ms, before_ms = runs[n - 2].counted_ms;
    return fabs(last_ms - before_ms) < warm_up_steady * fmin(last_ms, before_ms);
}

#endif
