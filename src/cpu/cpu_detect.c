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
