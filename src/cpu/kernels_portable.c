// kernels_portable.c: the kernels in 16-byte vectors: NEON, WebAssembly SIMD, or whatever the compiler makes of plain C.

#include "cpu/simd_128.h"

#include "cpu/body.h"

#if defined(__ARM_FEATURE_DOTPROD)
#define NAME "NEON dotprod"
#elif defined(__ARM_NEON)
#define NAME "NEON"
#elif defined(__wasm_relaxed_simd__)
#define NAME "WebAssembly relaxed SIMD"
#elif defined(__wasm_simd128__)
#define NAME "WebAssembly SIMD"
#else
#define NAME "portable"
#endif

extern const struct cpu_kernels cpu_kernels_portable;

#ifdef __wasm_relaxed_simd__

#include "cpu/attend_relaxed.h"
#include "cpu/product_relaxed.h"

const struct cpu_kernels cpu_kernels_portable = {
    .name = NAME,
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_QUADS_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_QUADS_ENTRY)},
    .attend = attend_relaxed,
    KERNELS_OF_THE_BODY,
};

extern const struct cpu_kernels cpu_kernels_pairs;
const struct cpu_kernels cpu_kernels_pairs = {
    .name = NAME " in pairs",
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_PAIRS_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_PAIRS_ENTRY)},
    .attend = attend_relaxed,
    KERNELS_OF_THE_BODY,
};

#else

const struct cpu_kernels cpu_kernels_portable = {
    .name = NAME,
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_ENTRY)},
    .wide = {FOR_EACH_QUANTISED_TYPE(WIDE_ENTRY)},
    .attend = attend,
    KERNELS_OF_THE_BODY,
};

#endif
