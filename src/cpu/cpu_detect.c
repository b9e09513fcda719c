// cpu_detect.c: which kernels this machine can run.

#include "cpu/kernels.h"

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

extern const struct cpu_kernels cpu_kernels_portable;

#if defined(__x86_64__)

extern const struct cpu_kernels cpu_kernels_avx2, cpu_kernels_avx_vnni, cpu_kernels_avx512;

static int detect(const struct cpu_kernels **tables)
{
    int n = 0;
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
                __builtin_cpu_supports("bmi2");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
        tables[n++] = &cpu_kernels_avx512;
    if (avx2 && __builtin_cpu_supports("avxvnni"))
        tables[n++] = &cpu_kernels_avx_vnni;
    if (avx2)
        tables[n++] = &cpu_kernels_avx2;
    return n;
}

#elif defined(__aarch64__)

extern const struct cpu_kernels cpu_kernels_neon_dotprod;

static int detect(const struct cpu_kernels **tables)
{
#if defined(__linux__)
    enum { HAS_DOTPROD = 1 << 20 }; // of AT_HWCAP
    bool dotprod = (getauxval(AT_HWCAP) & HAS_DOTPROD) != 0;
#else
    bool dotprod = true; // every 64-bit Apple processor that runs a supported system
#endif
    if (dotprod)
        tables[0] = &cpu_kernels_neon_dotprod;
    return dotprod;
}

#elif defined(__wasm_relaxed_simd__)

#include <wasm_simd128.h>

extern const struct cpu_kernels cpu_kernels_pairs;

// What i32x4.relaxed_dot_i8x16_i7x16_add makes of a second operand of more than seven bits tells how it is computed: exactly with
// unsigned bytes where VNNI does it, with signed ones on ARM, and with sums of pairs cut off at 32767 where V8 puts it together
// from several instructions, of which the first is wanted alone.
static int detect(const struct cpu_kernels **tables)
{
    volatile int8_t first = 127, second = -1;
    v128_t sums =
        wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat(first), wasm_i8x16_splat(second), wasm_i32x4_const_splat(0));
    tables[0] = &cpu_kernels_pairs;
    return wasm_i32x4_extract_lane(sums, 0) == 2 * 32767;
}

#else

static int detect(const struct cpu_kernels **tables)
{
    (void)tables;
    return 0;
}

#endif

int cpu_kernels_available(const struct cpu_kernels *tables[CPU_MAX_KERNELS])
{
    int n = detect(tables);
    tables[n] = &cpu_kernels_portable;
    return n + 1;
}
