// webgpu_ops.h: the backend on WebGPU, natively (wgpu-native) and in the browser (navigator.gpu) from the same sources.

#ifndef CARAT_WEBGPU_WEBGPU_OPS_H
#define CARAT_WEBGPU_WEBGPU_OPS_H

#include "ops/ops.h"

enum webgpu_folding {
    WEBGPU_FOLDS_WHERE_IT_PAYS, // by the trial: never without autotune
    WEBGPU_FOLDS_ALWAYS,        // where it is possible
    WEBGPU_FOLDS_NEVER,
};

struct webgpu_options {
    int32_t max_batch;                 // rows of the largest batch; 0: 512
    bool keep_per_layer_table_on_disk; // save device memory by reading rows of the per-layer table on demand
    bool hardware_only;                // fail with CARAT_NO_DEVICE rather than use a software renderer
    bool no_autotune;                  // integers without a trial of what is faster (trial.c)
    enum webgpu_folding folding;       // of the matrices at the end of layers with per-layer inputs (layer_end.c)
    bool exact;                        // multiply few rows in f32 too, where 16-bit integers are the rule (integers.wgsl)
};

// Natively: finds an adapter, makes a device and runs the self-test below (waiting for all of them). In the browser the host
// passes in its device.
struct ops *webgpu_ops_new(const struct webgpu_options *options, struct carat_error *err);

// Starts a few kernels with small inputs and compares with known values; the results are fetched with webgpu_self_test_poll,
// which gives OPS_PENDING until they are there and OPS_FAILED with a sentence when the device computes rubbish. Some do: run it
// before a model is loaded. A trial of which kernels are faster follows, unless an earlier backend made it. Natively
// webgpu_self_test does all that and waits.
bool webgpu_self_test_start(struct ops *ops, struct carat_error *err);
enum ops_state webgpu_self_test_poll(struct ops *ops, struct carat_error *err);
#ifndef __wasm__
bool webgpu_self_test(struct ops *ops, struct carat_error *err);
#endif

#ifndef __wasm__
// Time per kernel, where the device has timestamps: everything queued between the two calls, one dispatch at a time. Writes at
// most `capacity` characters of a table for people; false when the device has no timestamps.
bool webgpu_profile_start(struct ops *ops);
bool webgpu_profile_end(struct ops *ops, char *table, size_t capacity);
#endif

#endif
