// kernels_neon_dotprod.c: the kernels for 64-bit ARM processors with the dot product extension.

#ifdef __ARM_FEATURE_DOTPROD

#include "cpu/simd_128.h"

#include "cpu/body.h"

extern const struct cpu_kernels cpu_kernels_neon_dotprod;
const struct cpu_kernels cpu_kernels_neon_dotprod = {
    .name = "NEON dotprod",
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_ENTRY)},
    .attend = attend,
    KERNELS_OF_THE_BODY,
};

#endif
