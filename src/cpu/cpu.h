// cpu.h: the backend for processors: threads, SIMD chosen at run time, weights used where they lie.

#ifndef CARAT_CPU_CPU_H
#define CARAT_CPU_CPU_H

#include "ops/ops.h"

struct cpu_options {
    int32_t n_threads; // 0: one per physical core
    bool exact;        // f32 activations instead of 8-bit ones in products with quantised weights
};

struct ops *cpu_ops_new(const struct cpu_options *options, struct carat_error *err);

#endif
