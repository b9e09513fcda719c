// exports.c: the WebAssembly module's functions for JavaScript (web/src/engine.ts calls them; web/README.md lists them).

#include <stdlib.h>

#include "base/error.h"
#include "base/threads.h"

#define EXPORT(name) __attribute__((export_name(#name)))

EXPORT(wasm_alloc) void *wasm_alloc(size_t n_bytes);
void *wasm_alloc(size_t n_bytes)
{
    return malloc(n_bytes);
}
