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
const struct cpu_kernels cpu_kernels_portable = {
    .name = NAME,
    .narrow = {FOR_EACH_QUANTISED_TYPE(NARROW_ENTRY)},
    KERNELS_OF_THE_BODY,
};
