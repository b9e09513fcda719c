// error.h: how every part of carat reports what went wrong.
//
// A function that can fail takes a `struct carat_error *err` as its last argument and returns false (or NULL). It fills err with
// a code and one sentence that names the file, tensor or field and says what to do. err may be NULL when nobody wants to know.
// Nothing in the library prints, exits or aborts.

#ifndef CARAT_BASE_ERROR_H
#define CARAT_BASE_ERROR_H

#include <stdbool.h>

#include "carat_error.h"

// Fills *err and returns false, so that a failing path reads `return fail(err, CARAT_BAD_FILE, "tensor '%s' ...", name);`.
__attribute__((format(printf, 3, 4))) bool fail(struct carat_error *err, enum carat_code code, const char *format, ...);

// Puts "PREFIX: " in front of the message already in err, e.g. the name of a file, and returns false.
__attribute__((format(printf, 2, 3))) bool fail_in(struct carat_error *err, const char *format, ...);

#endif
