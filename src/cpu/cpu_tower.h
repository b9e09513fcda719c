// cpu_tower.h: the towers' operations on processors.

#ifndef CARAT_CPU_CPU_TOWER_H
#define CARAT_CPU_CPU_TOWER_H

#include "ops/tower_ops.h"

// ops: of cpu_ops_new; it must outlive the result, which is freed with its `free`. NULL on failure.
struct tower_ops *cpu_tower_ops_new(struct ops *ops, struct carat_error *err);

#endif
