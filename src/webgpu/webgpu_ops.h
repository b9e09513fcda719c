// webgpu_ops.h: the backend on WebGPU, natively (wgpu-native) and in the browser (navigator.gpu) from the same sources.

#ifndef CARAT_WEBGPU_WEBGPU_OPS_H
#define CARAT_WEBGPU_WEBGPU_OPS_H

#include "ops/ops.h"

struct webgpu_options {
    int32_t max_batch;                 // rows of the largest batch; 0: 512
    bool keep_per_layer_table_on_disk; // save device memory by reading rows of the per-layer table on demand
    bool hardware_only;                // fail with CARAT_NO_DEVICE rather than use a software renderer
};

// Natively: finds an adapter (waiting for it), makes a device. In the browser the host passes in its device.
struct ops *webgpu_ops_new(const struct webgpu_options *options, struct carat_error *err);

#endif
