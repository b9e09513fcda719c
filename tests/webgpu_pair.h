// webgpu_pair.h: the GPU backend and the reference, opened for a group of tests.

#ifndef CARAT_TESTS_WEBGPU_PAIR_H
#define CARAT_TESTS_WEBGPU_PAIR_H

#include "webgpu_device.h"

static struct ops *gpu, *ref;

// Products of few rows in f32.
static inline int open_both(void **state)
{
    (void)state;
    struct carat_error err = {0};
    gpu = open_gpu(&(struct webgpu_options){.exact = true});
    ref = ref_ops_new(&err);
    closeness = CLOSE_AS_F32;
    return ref == NULL;
}

// ... in integers, and with folded matrices.
static inline int open_both_for_integers(void **state)
{
    (void)state;
    struct carat_error err = {0};
    gpu = open_gpu(&(struct webgpu_options){.no_autotune = true, .folding = WEBGPU_FOLDS_ALWAYS});
    ref = ref_ops_new(&err);
    closeness = CLOSE_AS_16_BITS;
    return ref == NULL;
}

static inline int close_both(void **state)
{
    (void)state;
    gpu->free(gpu);
    ref->free(ref);
    return 0;
}

#endif
