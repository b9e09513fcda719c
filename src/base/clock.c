// clock.c: the monotonic clock; in WebAssembly the host provides it.

#include "base/clock.h"

#ifdef __wasm__

__attribute__((import_module("carat"), import_name("now"))) double host_clock_ms(void);

double clock_ms(void)
{
    return host_clock_ms();
}

#else

#include <time.h>

double clock_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

#endif
