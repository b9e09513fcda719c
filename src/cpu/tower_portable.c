// tower_portable.c: the towers' kernels in 16-byte vectors.

#include "cpu/simd_128.h"

#include "cpu/body_tower.h"

const struct tower_kernels tower_kernels_portable = TOWER_KERNELS_OF_THE_BODY;
