// model_rig.h: models through the public API, on the backends that need no GPU.

#ifndef CARAT_TESTS_MODEL_RIG_H
#define CARAT_TESTS_MODEL_RIG_H

#include "golden.h"

#include "carat.h"
#include "extent.h"

static const char *const host_backends[] = {"cpu", "ref"};

// The scalar reference takes minutes with sanitizers; builds without them test it.
GOLDEN_HELPER int n_backends(void)
{
    return is_sanitized() ? 1 : 2;
}

GOLDEN_HELPER struct carat_model *open_model(const char *name, const char *backend)
{
    struct carat_error err = {0};
    struct carat_model_options options = {.backend = backend, .n_threads = 2};
    struct carat_model *model = NULL;
    require(carat_model_open(fixture("models", name), &options, &model, &err), err);
    return model;
}

#endif
