// ref_tower.h: the towers' operations of the reference backend.

#ifndef CARAT_REF_REF_TOWER_H
#define CARAT_REF_REF_TOWER_H

#include "ops/tower_ops.h"

// ops: of ref_ops_new; it must outlive the result, which is freed with its `free`. NULL on failure.
struct tower_ops *ref_tower_ops_new(struct ops *ops, struct carat_error *err);

#endif
