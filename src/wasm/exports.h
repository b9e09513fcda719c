// exports.h: what the files with exported functions share.

#ifndef CARAT_WASM_EXPORTS_H
#define CARAT_WASM_EXPORTS_H

#include <stddef.h>

#include "base/error.h"

#define EXPORT(name) __attribute__((export_name(#name)))

// Of the last call that failed.
extern struct carat_error error;

// Memory from malloc becomes the result that wasm_result gives; the one before it is freed.
void set_result(void *bytes, size_t n);

#endif
