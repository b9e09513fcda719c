// webgpu_tower.h: the towers' operations on WebGPU.

#ifndef CARAT_WEBGPU_WEBGPU_TOWER_H
#define CARAT_WEBGPU_WEBGPU_TOWER_H

#include "ops/tower_ops.h"

// ops: of webgpu_ops_new; it must outlive the result, which is freed with its `free`. NULL on failure.
struct tower_ops *webgpu_tower_ops_new(struct ops *ops, struct carat_error *err);

#endif
