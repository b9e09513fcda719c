// exports_self_test.c: exported functions that check the GPU before a model is downloaded. See exports.c.

#include "engine/model.h"
#include "wasm/exports.h"
#ifdef CARAT_HAVE_WEBGPU
#include "webgpu/webgpu_ops.h"
#endif

static struct ops *tested; // while a test is under way

static int end_test(int answer)
{
    if (tested != NULL)
        tested->free(tested);
    tested = NULL;
    return answer;
}

// Starts a few kernels whose results are known, and then with autotune the trial of what is faster: 1, or 0 on failure. Models
// that are opened later go by what was found out.
EXPORT(wasm_self_test_begin) int wasm_self_test_begin(int autotune);
int wasm_self_test_begin(int autotune)
{
#ifdef CARAT_HAVE_WEBGPU
    end_test(0);
    tested = webgpu_ops_new(&(struct webgpu_options){.no_autotune = !autotune}, &error);
    if (tested == NULL)
        return 0;
    return webgpu_self_test_start(tested, &error) ? 1 : end_test(0);
#else
    (void)autotune;
    return fail(&error, CARAT_UNSUPPORTED, "this build has no WebGPU backend");
#endif
}

// 1: the device computes rightly; 0: it does not, the error says how; -1: not yet known.
EXPORT(wasm_self_test_poll) int wasm_self_test_poll(void);
int wasm_self_test_poll(void)
{
#ifdef CARAT_HAVE_WEBGPU
    if (tested == NULL)
        return end_test(0);
    switch (webgpu_self_test_poll(tested, &error)) {
    case OPS_PENDING:
        return -1;
    case OPS_DONE:
        return end_test(1);
    default:
        return end_test(0);
    }
#else
    return end_test(0);
#endif
}
