// bench_profile.h: where the time of a pass goes.
//
// On a GPU the time of every kind of kernel, by timestamps where the device has them. On the processor, where an operation is
// done when its call returns, the time of every operation by the clock.

#ifndef CARAT_CLI_BENCH_PROFILE_H
#define CARAT_CLI_BENCH_PROFILE_H

#include "ops/ops.h"

// From now on time is taken; one profile at a time. False where the GPU has no timestamps.
bool profile_start(struct ops *ops);

// Ends it and writes a line for each kernel or operation, the dearest first, at most `capacity` characters. False: nothing was
// seen.
bool profile_end(struct ops *ops, char *text, size_t capacity);

#endif
