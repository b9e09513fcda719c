// gpu.h: a thin layer over webgpu.h: device, buffers, pipelines, dispatches, read-backs.
//
// The files gpu*.c are the only ones that call wgpu* functions; the list of those they need stands at the top of gpu.c. Natively
// they come from wgpu-native. In WebAssembly they are imports (module "env", their own names) that the host implements over
// navigator.gpu, together with the two functions of the section "from the host" below. Handles there are any non-zero numbers.
//
// Work is queued: dispatches and copies are recorded until gpu_submit, and run in the order of recording. Nothing waits but
// gpu_wait. Errors of the device are collected and come out of gpu_take_error once.

#ifndef CARAT_WEBGPU_GPU_H
#define CARAT_WEBGPU_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { GPU_MAX_BINDINGS = 10, GPU_MAX_PARAM_BYTES = 256, GPU_MAX_TICKETS = 64 };

struct gpu;
struct gpu_buffer;
struct gpu_pipeline;

struct gpu_limits {
    uint64_t max_buffer_bytes;
    uint64_t max_binding_bytes;   // of one storage binding
    uint32_t max_workgroup_bytes; // of workgroup memory
    uint32_t max_workgroups;      // per dimension of a dispatch
    bool has_subgroups;
    uint32_t subgroup_min, subgroup_max;
    bool has_integer_dot; // dot4I8Packed
    bool has_timestamps;
};

// --- from the host (WebAssembly only) -----------------------------------------------------------------------------------------

#ifdef __wasm__
// What the host says of its device. 32-bit fields in this order, no padding, then the name.
struct gpu_host_info {
    uint32_t device;              // handle for the wgpuDevice* functions
    uint32_t max_buffer_mib;      // limits as requested and granted, rounded down
    uint32_t max_binding_mib;     // maxStorageBufferBindingSize
    uint32_t max_workgroup_bytes; // maxComputeWorkgroupStorageSize
    uint32_t max_workgroups;      // maxComputeWorkgroupsPerDimension
    uint32_t has_subgroups;       // 1 when the feature is enabled on the device and the language has it
    uint32_t subgroup_min, subgroup_max;
    uint32_t has_integer_dot; // 1 when the language has packed_4x8_integer_dot_product
    char name[96];            // for people, UTF-8, terminated: "nvidia hopper"
};

// Import "gpu_device_from_host" of module "env": fills *info with the device that the host made beforehand; 0 when there is none.
__attribute__((import_module("env"), import_name("gpu_device_from_host"))) uint32_t gpu_device_from_host(
    struct gpu_host_info *info);

// Import "gpu_error_from_host" of module "env": the first error since the last call (uncapturederror event or device.lost).
// 0: none; 1: out of memory; 2: device lost; 3: anything else. The message goes to `message`, terminated, cut to `capacity`.
__attribute__((import_module("env"), import_name("gpu_error_from_host"))) uint32_t gpu_error_from_host(
    char *message, uint32_t capacity);
#endif

// --- device -------------------------------------------------------------------------------------------------------------------

// Natively finds an adapter (a discrete card before others) and makes a device with its best limits; CARAT_NO_DEVICE when there
// is none, or, with hardware_only, only a software renderer. The environment variable CARAT_GPU_LIMITS=default keeps WebGPU's
// default limits and no features (for tests).
struct gpu *gpu_new(bool hardware_only, struct carat_error *err);
void gpu_free(struct gpu *gpu); // NULL is allowed

const struct gpu_limits *gpu_limits(const struct gpu *gpu);
const char *gpu_name(const struct gpu *gpu);       // of the adapter, for people
int64_t gpu_dispatch_count(const struct gpu *gpu); // dispatches so far

// What went wrong on the device since the last call: false with err, once.
bool gpu_take_error(struct gpu *gpu, struct carat_error *err);

// --- buffers ------------------------------------------------------------------------------------------------------------------

// Zeroed storage; NULL with err on failure. n_bytes is a multiple of 4 and at least 4.
struct gpu_buffer *gpu_buffer_new(struct gpu *gpu, uint64_t n_bytes, struct carat_error *err);
void gpu_buffer_free(struct gpu *gpu, struct gpu_buffer *buffer); // NULL is allowed; queued work is submitted first
uint64_t gpu_buffer_bytes(const struct gpu_buffer *buffer);

// Copies into a buffer after everything queued so far. offset and n_bytes are multiples of 4.
void gpu_write(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes);

// gpu_write for much at a time. Natively several threads copy, through buffers that are kept for it until gpu_upload_end, which
// waits until all has arrived.
void gpu_upload(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes);
void gpu_upload_end(struct gpu *gpu);

// Copies between two different buffers; all numbers are multiples of 4.
void gpu_copy(
    struct gpu *gpu, struct gpu_buffer *src, uint64_t src_offset, struct gpu_buffer *dst, uint64_t dst_offset, uint64_t n_bytes);

// --- kernels ------------------------------------------------------------------------------------------------------------------

// A compute pipeline with entry point "main". Binding 0 is a uniform of parameters, bindings 1 .. n_bindings are storage buffers,
// read-only where the bit (1 << index) of read_only is set, index counting from 0. The name shows up in errors and profiles.
struct gpu_pipeline *gpu_pipeline_new(
    struct gpu *gpu, const char *name, const char *wgsl, int n_bindings, uint32_t read_only, struct carat_error *err);
void gpu_pipeline_free(struct gpu_pipeline *pipeline);

struct gpu_binding {
    struct gpu_buffer *buffer;
    uint64_t offset;  // a multiple of 256
    uint64_t n_bytes; // a multiple of 4
};

// Queues a dispatch of x * y * z workgroups. params: n_param_bytes <= GPU_MAX_PARAM_BYTES, copied.
void gpu_dispatch(struct gpu *gpu, struct gpu_pipeline *pipeline, const struct gpu_binding *bindings, const void *params,
    size_t n_param_bytes, uint32_t x, uint32_t y, uint32_t z);

// Hands everything queued to the device.
void gpu_submit(struct gpu *gpu);

// --- read-back ----------------------------------------------------------------------------------------------------------------

enum gpu_read_state { GPU_READ_DONE, GPU_READ_PENDING, GPU_READ_FAILED };

// Copies bytes of a buffer to `target` once everything queued so far is done; submits. A ticket >= 0, or -1 with err.
int32_t gpu_read_start(
    struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err);
// Never waits. A ticket is spent when the answer is not PENDING.
enum gpu_read_state gpu_read_poll(struct gpu *gpu, int32_t ticket, struct carat_error *err);
#ifndef __wasm__
// Waits until the ticket's copy has arrived or failed. Later work may still be running.
void gpu_wait(struct gpu *gpu, int32_t ticket);
#endif

// --- timing (natively, where the device has timestamps) -----------------------------------------------------------------------

#ifndef __wasm__
struct gpu_timing {
    const char *name; // of the pipeline
    int64_t n;        // dispatches
    double total_us;
};

// From here on each dispatch runs in a pass of its own between two timestamps. False when the device has none.
bool gpu_profile_start(struct gpu *gpu);
// Waits for the device, then writes the sums by pipeline, largest first; returns how many. At most 2048 dispatches are timed.
int gpu_profile_end(struct gpu *gpu, struct gpu_timing *timings, int capacity);
#endif

#endif
