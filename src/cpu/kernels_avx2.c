// kernels_avx2.c: the kernels for x86 processors with AVX2.

#ifdef __AVX2__

#include "cpu/simd_avx2.h"

#include "cpu/body.h"

extern const struct cpu_kernels cpu_kernels_avx2;
const struct cpu_kernels cpu_kernels_avx2 = {
    .name = "AVX2",
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_ENTRY)},
    .attend = attend,
    KERNELS_OF_THE_BODY,
};

#endif
