// errno.h: in place of wasi-libc's, which declares errno as thread-local while the libc that Debian builds has a plain one. Only
// the first thread calls functions that set it.

#ifndef CARAT_WASM_ERRNO_H
#define CARAT_WASM_ERRNO_H

#include <__errno_values.h>

extern int errno;
#define errno errno

#endif
