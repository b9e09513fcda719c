// error.c: filling a carat_error.

#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// Texts of files and users are part of messages: what would act on a terminal becomes '?'.
static void make_printable(char *message)
{
    for (; *message != '\0'; message++) {
        if ((unsigned char)*message < 0x20 || *message == 0x7f)
            *message = '?';
    }
}

bool fail(struct carat_error *err, enum carat_code code, const char *format, ...)
{
    if (err != NULL) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->message, sizeof err->message, format, args);
        va_end(args);
        make_printable(err->message);
    }
    return false;
}

bool fail_in(struct carat_error *err, const char *format, ...)
{
    if (err != NULL) {
        char prefix[CARAT_ERROR_MESSAGE_BYTES];
        char message[CARAT_ERROR_MESSAGE_BYTES];
        va_list args;
        va_start(args, format);
        vsnprintf(prefix, sizeof prefix, format, args);
        va_end(args);
        make_printable(prefix);
        memcpy(message, err->message, sizeof message);
        int n = snprintf(err->message, sizeof err->message, "%s: ", prefix);
        size_t used = n < 0 ? 0 : (size_t)n < sizeof err->message ? (size_t)n : sizeof err->message - 1;
        snprintf(err->message + used, sizeof err->message - used, "%s", message);
    }
    return false;
}

const char *carat_code_name(enum carat_code code)
{
    static const char *const names[] = {"ok", "bad_argument", "bad_file", "unsupported", "not_found", "io", "no_memory",
        "no_device", "device_lost", "context_full", "cancelled", "bad_number"};
    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "unknown";
}
