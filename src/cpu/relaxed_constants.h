// relaxed_constants.h: constants in WebAssembly. V8 makes a constant anew, in three instructions, wherever it is used; unless it
// cannot know it.

#ifndef CARAT_CPU_RELAXED_CONSTANTS_H
#define CARAT_CPU_RELAXED_CONSTANTS_H

#include <wasm_simd128.h>

#include "cpu/simd_128.h"

// Four times x, for a register of its own.
INLINE v128_t register_constant(uint32_t x)
{
    volatile uint32_t place = x;
    return wasm_u32x4_splat(place);
}

// The four numbers at x, for where registers are short: each use is a load.
INLINE v128_t memory_constant(const uint32_t *x)
{
    __asm__("" : "+r"(x)); // the compiler may not know what it loads
    return wasm_v128_load(x);
}

#endif
