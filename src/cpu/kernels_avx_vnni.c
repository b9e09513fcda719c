// kernels_avx_vnni.c: the kernels for x86 processors with AVX-VNNI.

#ifdef __AVXVNNI__

#include "cpu/simd_avx2.h"

#include "cpu/body.h"

extern const struct cpu_kernels cpu_kernels_avx_vnni;
const struct cpu_kernels cpu_kernels_avx_vnni = {
    .name = "AVX-VNNI",
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_ENTRY)},
    .attend = attend,
    KERNELS_OF_THE_BODY,
};

#endif
