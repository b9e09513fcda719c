// kernels_avx512.c: the kernels for x86 processors with AVX-512 VNNI.

#ifdef __AVX512VNNI__

#include "cpu/simd_avx512.h"

#include "cpu/body.h"
#include "cpu/narrow_avx512.h"

extern const struct cpu_kernels cpu_kernels_avx512;
const struct cpu_kernels cpu_kernels_avx512 = {
    .name = "AVX-512 VNNI",
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_512_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_ENTRY)},
    .attend = attend,
    KERNELS_OF_THE_BODY,
};

#endif
