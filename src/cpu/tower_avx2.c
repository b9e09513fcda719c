// tower_avx2.c: the towers' kernels for x86 processors with AVX2 and FMA.

#ifdef __AVX2__

#include "cpu/simd_avx2.h"

#include "cpu/body_tower.h"

const struct tower_kernels tower_kernels_avx2 = TOWER_KERNELS_OF_THE_BODY;

#endif
