// tower_avx512.c: the towers' kernels for x86 processors with AVX-512.

#ifdef __AVX512VNNI__

#include "cpu/simd_avx512.h"

#include "cpu/body_tower.h"

const struct tower_kernels tower_kernels_avx512 = TOWER_KERNELS_OF_THE_BODY;

#endif
