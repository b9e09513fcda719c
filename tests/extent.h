// extent.h: how much of the slow tests is run.

#ifndef CARAT_TESTS_EXTENT_H
#define CARAT_TESTS_EXTENT_H

#include <stdbool.h>
#include <stdlib.h>

// Whether every case is run everywhere (`./run test --all`, `./run gpu`). Otherwise what a software GPU or the sanitizers take
// minutes for is left to the other tests that cover it: single operations with every type and shape, the same goldens elsewhere.
static inline bool test_everything(void)
{
    return getenv("CARAT_ALL") != NULL;
}

// Whether this build is the one with sanitizers, whose plain twin runs the same test in full.
static inline bool is_sanitized(void)
{
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    return true;
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
    return true;
#else
    return false;
#endif
}

#endif
