// gpu.c: the only file that calls webgpu.h.
//
// Functions used, all of them standard:
//   wgpuDeviceGetQueue wgpuDeviceCreateBuffer wgpuDeviceCreateShaderModule wgpuDeviceCreateBindGroupLayout
//   wgpuDeviceCreatePipelineLayout wgpuDeviceCreateComputePipeline wgpuDeviceCreateBindGroup wgpuDeviceCreateCommandEncoder
//   wgpuCommandEncoderBeginComputePass (descriptor NULL in WebAssembly) wgpuCommandEncoderCopyBufferToBuffer
//   wgpuCommandEncoderFinish (NULL) wgpuComputePassEncoderSetPipeline wgpuComputePassEncoderSetBindGroup (group 0, one dynamic
//   offset) wgpuComputePassEncoderDispatchWorkgroups wgpuComputePassEncoderEnd wgpuQueueWriteBuffer wgpuQueueSubmit (one)
//   wgpuBufferMapAsync (MapMode_Read) wgpuBufferUnmap wgpuBufferDestroy
//   wgpu{Buffer,BindGroup,BindGroupLayout,PipelineLayout,ShaderModule,ComputePipeline,CommandEncoder,CommandBuffer,
//   ComputePassEncoder,Queue,Device}Release
// In WebAssembly also wgpuBufferGetMapState and wgpuBufferReadMappedRange: the map callback is NULL there, completion is seen by
// asking for the state (Pending, Mapped, or Unmapped when it failed). Natively also the adapter and device requests, the mapped
// range, timestamps, and wgpu-native's wgpuDevicePoll, wgpuQueueSubmitForIndex and wgpuDeviceCreateShaderModuleTrusted.

#include "webgpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webgpu.h"
#ifndef __wasm__
#include "wgpu.h"
#endif

enum {
    PARAM_STRIDE = 256,      // smallest offset alignment that every device grants
    MAX_QUEUED = 4096,       // dispatches before a submit happens by itself
    GROUP_TABLE_MIN = 1024,  // slots of the bind group cache, a power of two
    PROFILE_QUERIES = 4096,  // two a dispatch
    MAX_PROFILE_NAMES = 256, // different kernels in a profile
};

struct gpu_buffer {
    WGPUBuffer handle;
    uint64_t n_bytes;
    uint32_t id; // never used again: keys the bind group cache
};

struct gpu_pipeline {
    WGPUComputePipeline handle;
    WGPUBindGroupLayout layout;
    int n_bindings;
    uint32_t id;
    char name[64];
};

struct group_key {
    uint32_t pipeline;
    uint32_t n;
    struct {
        uint32_t buffer;
        uint32_t pad;
        uint64_t offset, n_bytes;
    } at[GPU_MAX_BINDINGS];
};

struct group_slot {
    struct group_key key;
    WGPUBindGroup group; // NULL: free
};

struct ticket {
    WGPUBuffer staging; // kept between reads
    uint64_t capacity;
    uint64_t n_bytes;
    void *target;
    enum { TICKET_FREE, TICKET_PENDING, TICKET_MAPPED, TICKET_FAILED } state;
    uint64_t submission;
};

struct gpu {
    WGPUDevice device;
    WGPUQueue queue;
    struct gpu_limits limits;
    char name[128];
    int64_t n_dispatches;
    uint32_t next_id;

    WGPUCommandEncoder encoder; // NULL: nothing is queued
    WGPUComputePassEncoder pass;
    struct gpu_pipeline *bound; // pipeline set in the pass
    WGPUBuffer param_buffer;
    uint8_t *params; // [MAX_QUEUED * PARAM_STRIDE] of the work being queued
    uint32_t n_queued;
    uint64_t last_submission;

    struct group_slot *groups;
    uint32_t n_group_slots, n_groups;

    struct ticket tickets[GPU_MAX_TICKETS];

    struct carat_error error; // first error since the last gpu_take_error
    bool lost;
#ifndef __wasm__
    WGPUInstance instance;
    WGPUAdapter adapter;
    bool profiling;
    WGPUQuerySet queries;
    WGPUBuffer query_buffer;
    uint32_t n_queries;
    struct gpu_pipeline *profiled[PROFILE_QUERIES / 2];
    float timestamp_period;
#endif
};

const struct gpu_limits *gpu_limits(const struct gpu *gpu)
{
    return &gpu->limits;
}

const char *gpu_name(const struct gpu *gpu)
{
    return gpu->name;
}

int64_t gpu_dispatch_count(const struct gpu *gpu)
{
    return gpu->n_dispatches;
}

static WGPUStringView view_of(const char *text)
{
    return (WGPUStringView){.data = text, .length = strlen(text)};
}

// --- errors -------------------------------------------------------------------------------------------------------------------

static void note_error(struct gpu *gpu, enum carat_code code, const char *message, size_t n)
{
    if (gpu->error.code != CARAT_OK)
        return; // the first error is the cause, the rest follows from it
    const char *what = code == CARAT_NO_MEMORY     ? "the GPU is out of memory"
                       : code == CARAT_DEVICE_LOST ? "the GPU device was lost"
                                                   : "the GPU refused a command";
    fail(&gpu->error, code, "%s: %.*s", what, (int)(n < 400 ? n : 400), message);
}

bool gpu_take_error(struct gpu *gpu, struct carat_error *err)
{
#ifdef __wasm__
    char message[400];
    uint32_t kind = gpu_error_from_host(message, sizeof message);
    if (kind != 0) {
        message[sizeof message - 1] = '\0';
        note_error(gpu, kind == 1 ? CARAT_NO_MEMORY : CARAT_DEVICE_LOST, message, strlen(message));
        gpu->lost = gpu->lost || kind == 2;
    }
#endif
    if (gpu->error.code == CARAT_OK)
        return true;
    if (err != NULL)
        *err = gpu->error;
    gpu->error.code = CARAT_OK;
    return false;
}

// --- device -------------------------------------------------------------------------------------------------------------------

static bool device_from_host(struct gpu *gpu, bool hardware_only, struct carat_error *err);

static bool make_queue(struct gpu *gpu, struct carat_error *err)
{
    gpu->queue = wgpuDeviceGetQueue(gpu->device);
    WGPUBufferDescriptor desc = {
        .usage = WGPUBufferUsage_Uniform | WGPUBufferUsage_CopyDst, .size = (uint64_t)MAX_QUEUED * PARAM_STRIDE};
    gpu->param_buffer = wgpuDeviceCreateBuffer(gpu->device, &desc);
    gpu->params = calloc(MAX_QUEUED, PARAM_STRIDE);
    gpu->n_group_slots = GROUP_TABLE_MIN;
    gpu->groups = calloc(gpu->n_group_slots, sizeof *gpu->groups);
    if (gpu->params == NULL || gpu->groups == NULL || gpu->param_buffer == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the GPU's command queue");
    return true;
}

struct gpu *gpu_new(bool hardware_only, struct carat_error *err)
{
    struct gpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the GPU's command queue");
        return NULL;
    }
    gpu->next_id = 1;
    if (!device_from_host(gpu, hardware_only, err) || !make_queue(gpu, err)) {
        gpu_free(gpu);
        return NULL;
    }
    return gpu;
}

#ifdef __wasm__

static bool device_from_host(struct gpu *gpu, bool hardware_only, struct carat_error *err)
{
    (void)hardware_only; // the host has chosen
    struct gpu_host_info info = {0};
    if (gpu_device_from_host(&info) == 0)
        return fail(err, CARAT_NO_DEVICE, "the browser offers no WebGPU device; use the CPU path");
    gpu->device = (WGPUDevice)(uintptr_t)info.device;
    gpu->limits = (struct gpu_limits){
        .max_buffer_bytes = (uint64_t)info.max_buffer_mib << 20,
        .max_binding_bytes = (uint64_t)info.max_binding_mib << 20,
        .max_workgroup_bytes = info.max_workgroup_bytes,
        .max_workgroups = info.max_workgroups,
        .has_subgroups = info.has_subgroups != 0,
        .subgroup_min = info.subgroup_min,
        .subgroup_max = info.subgroup_max,
    };
    info.name[sizeof info.name - 1] = '\0';
    snprintf(gpu->name, sizeof gpu->name, "%s", info.name);
    return true;
}

#else

static void on_adapter(WGPURequestAdapterStatus status, WGPUAdapter adapter, WGPUStringView message, void *slot, void *unused)
{
    (void)message;
    (void)unused;
    if (status == WGPURequestAdapterStatus_Success)
        *(WGPUAdapter *)slot = adapter;
}

static void on_device(WGPURequestDeviceStatus status, WGPUDevice device, WGPUStringView message, void *slot, void *gpu)
{
    if (status == WGPURequestDeviceStatus_Success)
        *(WGPUDevice *)slot = device;
    else
        note_error(gpu, CARAT_NO_DEVICE, message.data, message.length);
}

static void on_error(WGPUDevice const *device, WGPUErrorType type, WGPUStringView message, void *gpu, void *unused)
{
    (void)device;
    (void)unused;
    note_error(gpu, type == WGPUErrorType_OutOfMemory ? CARAT_NO_MEMORY : CARAT_DEVICE_LOST, message.data, message.length);
}

static void on_lost(WGPUDevice const *device, WGPUDeviceLostReason reason, WGPUStringView message, void *gpu, void *unused)
{
    (void)device;
    (void)unused;
    if (reason == WGPUDeviceLostReason_Destroyed || reason == WGPUDeviceLostReason_CallbackCancelled)
        return;
    ((struct gpu *)gpu)->lost = true;
    note_error(gpu, CARAT_DEVICE_LOST, message.data, message.length);
}

// The best adapter there is: a discrete card, else an integrated one, else whatever runs.
static WGPUAdapter choose_adapter(struct gpu *gpu)
{
    WGPUAdapter chosen = NULL;
    WGPURequestAdapterOptions options = {
        .featureLevel = WGPUFeatureLevel_Core, .powerPreference = WGPUPowerPreference_HighPerformance};
    WGPURequestAdapterCallbackInfo info = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_adapter, .userdata1 = &chosen};
    for (int i = 0; i < 2 && chosen == NULL; i++) {
        wgpuInstanceRequestAdapter(gpu->instance, &options, info);
        wgpuInstanceProcessEvents(gpu->instance);
        options.forceFallbackAdapter = true;
    }
    return chosen;
}

static void describe(struct gpu *gpu, const WGPUAdapterInfo *info)
{
    snprintf(gpu->name, sizeof gpu->name, "%.*s", (int)(info->device.length < 100 ? info->device.length : 100),
        info->device.data != NULL ? info->device.data : "");
    gpu->limits.subgroup_min = info->subgroupMinSize;
    gpu->limits.subgroup_max = info->subgroupMaxSize;
}

static bool device_from_host(struct gpu *gpu, bool hardware_only, struct carat_error *err)
{
    wgpuSetLogLevel(WGPULogLevel_Off);
    WGPUInstanceExtras extras = {
        .chain = {.sType = (WGPUSType)WGPUSType_InstanceExtras}, .backends = WGPUInstanceBackend_Primary};
    WGPUInstanceDescriptor desc = {.nextInChain = &extras.chain};
    gpu->instance = wgpuCreateInstance(&desc);
    gpu->adapter = gpu->instance != NULL ? choose_adapter(gpu) : NULL;
    if (gpu->adapter == NULL)
        return fail(err, CARAT_NO_DEVICE, "no GPU adapter was found; install a Vulkan driver, or use --backend cpu");

    WGPUAdapterInfo info = {0};
    wgpuAdapterGetInfo(gpu->adapter, &info);
    describe(gpu, &info);
    bool is_software = info.adapterType == WGPUAdapterType_CPU;
    wgpuAdapterInfoFreeMembers(info);
    if (hardware_only && is_software)
        return fail(err, CARAT_NO_DEVICE, "the only GPU adapter is the software renderer '%s'; use --backend cpu", gpu->name);

    const char *wish = getenv("CARAT_GPU_LIMITS");
    bool plain = wish != NULL && strcmp(wish, "default") == 0;
    WGPULimits best = {0};
    wgpuAdapterGetLimits(gpu->adapter, &best);
    // Slices of a weight are bound one by one: 2 GiB keeps every byte offset in 32 bits.
    uint64_t cap = (uint64_t)1 << 31;
    best.maxBufferSize = best.maxBufferSize < cap ? best.maxBufferSize : cap;
    best.maxStorageBufferBindingSize = best.maxStorageBufferBindingSize < cap ? best.maxStorageBufferBindingSize : cap - 4;
    WGPUFeatureName features[4];
    size_t n_features = 0;
    const WGPUFeatureName subgroups = (WGPUFeatureName)WGPUNativeFeature_Subgroup; // wgpu-native's name for the standard feature
    if (!plain && wgpuAdapterHasFeature(gpu->adapter, subgroups))
        features[n_features++] = subgroups;
    if (!plain && wgpuAdapterHasFeature(gpu->adapter, WGPUFeatureName_TimestampQuery))
        features[n_features++] = WGPUFeatureName_TimestampQuery;

    WGPUDeviceDescriptor device_desc = {
        .requiredFeatureCount = n_features,
        .requiredFeatures = features,
        .requiredLimits = plain ? NULL : &best,
        .uncapturedErrorCallbackInfo = {.callback = on_error, .userdata1 = gpu},
        .deviceLostCallbackInfo = {.mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_lost, .userdata1 = gpu},
    };
    WGPURequestDeviceCallbackInfo callback = {
        .mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_device, .userdata1 = &gpu->device, .userdata2 = gpu};
    wgpuAdapterRequestDevice(gpu->adapter, &device_desc, callback);
    wgpuInstanceProcessEvents(gpu->instance);
    if (gpu->device == NULL) {
        if (!gpu_take_error(gpu, err))
            return false;
        return fail(err, CARAT_NO_DEVICE, "the GPU adapter '%s' gave no device; use --backend cpu", gpu->name);
    }
    WGPULimits granted = {0};
    wgpuDeviceGetLimits(gpu->device, &granted);
    gpu->limits.max_buffer_bytes = granted.maxBufferSize;
    gpu->limits.max_binding_bytes = granted.maxStorageBufferBindingSize;
    gpu->limits.max_workgroup_bytes = granted.maxComputeWorkgroupStorageSize;
    gpu->limits.max_workgroups = granted.maxComputeWorkgroupsPerDimension;
    gpu->limits.has_subgroups = wgpuDeviceHasFeature(gpu->device, subgroups);
    gpu->limits.has_timestamps = wgpuDeviceHasFeature(gpu->device, WGPUFeatureName_TimestampQuery);
    return true;
}

#endif

static void drop_groups(struct gpu *gpu)
{
    for (uint32_t i = 0; gpu->groups != NULL && i < gpu->n_group_slots; i++) {
        if (gpu->groups[i].group != NULL)
            wgpuBindGroupRelease(gpu->groups[i].group);
        gpu->groups[i].group = NULL;
    }
    gpu->n_groups = 0;
}

static void release_buffer(WGPUBuffer buffer)
{
    if (buffer == NULL)
        return;
    wgpuBufferDestroy(buffer);
    wgpuBufferRelease(buffer);
}

void gpu_free(struct gpu *gpu)
{
    if (gpu == NULL)
        return;
    if (gpu->queue != NULL)
        gpu_submit(gpu);
#ifndef __wasm__
    if (gpu->device != NULL)
        wgpuDevicePoll(gpu->device, true, NULL);
    release_buffer(gpu->query_buffer);
    if (gpu->queries != NULL)
        wgpuQuerySetRelease(gpu->queries);
#endif
    drop_groups(gpu);
    free(gpu->groups);
    for (int i = 0; i < GPU_MAX_TICKETS; i++)
        release_buffer(gpu->tickets[i].staging);
    release_buffer(gpu->param_buffer);
    free(gpu->params);
    if (gpu->queue != NULL)
        wgpuQueueRelease(gpu->queue);
    if (gpu->device != NULL)
        wgpuDeviceRelease(gpu->device);
#ifndef __wasm__
    if (gpu->adapter != NULL)
        wgpuAdapterRelease(gpu->adapter);
    if (gpu->instance != NULL)
        wgpuInstanceRelease(gpu->instance);
#endif
    free(gpu);
}

// --- buffers ------------------------------------------------------------------------------------------------------------------

struct gpu_buffer *gpu_buffer_new(struct gpu *gpu, uint64_t n_bytes, struct carat_error *err)
{
    if (n_bytes > gpu->limits.max_buffer_bytes) {
        fail(err, CARAT_NO_MEMORY, "the GPU makes buffers of at most %llu MiB, %llu MiB are needed",
            (unsigned long long)(gpu->limits.max_buffer_bytes >> 20), (unsigned long long)(n_bytes >> 20));
        return NULL;
    }
    struct gpu_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for a GPU buffer's handle");
        return NULL;
    }
    WGPUBufferDescriptor desc = {
        .usage = WGPUBufferUsage_Storage | WGPUBufferUsage_CopySrc | WGPUBufferUsage_CopyDst, .size = n_bytes};
    buffer->handle = wgpuDeviceCreateBuffer(gpu->device, &desc);
    buffer->n_bytes = n_bytes;
    buffer->id = gpu->next_id++;
    bool refused = gpu->error.code == CARAT_NO_MEMORY && !gpu_take_error(gpu, err);
    if (buffer->handle != NULL && !refused)
        return buffer;
    if (!refused)
        fail(err, CARAT_NO_MEMORY, "the GPU has no room for a buffer of %llu bytes", (unsigned long long)n_bytes);
    if (buffer->handle != NULL)
        wgpuBufferRelease(buffer->handle);
    free(buffer);
    return NULL;
}

void gpu_buffer_free(struct gpu *gpu, struct gpu_buffer *buffer)
{
    if (buffer == NULL)
        return;
    gpu_submit(gpu);
    drop_groups(gpu);
    release_buffer(buffer->handle);
    free(buffer);
}

uint64_t gpu_buffer_bytes(const struct gpu_buffer *buffer)
{
    return buffer->n_bytes;
}

uint32_t gpu_buffer_handle(const struct gpu_buffer *buffer)
{
    return (uint32_t)(uintptr_t)buffer->handle;
}

void gpu_write(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    gpu_submit(gpu); // writes overtake what is only recorded
    wgpuQueueWriteBuffer(gpu->queue, buffer->handle, offset, source, (size_t)n_bytes);
}

static void end_pass(struct gpu *gpu)
{
    if (gpu->pass == NULL)
        return;
    wgpuComputePassEncoderEnd(gpu->pass);
    wgpuComputePassEncoderRelease(gpu->pass);
    gpu->pass = NULL;
    gpu->bound = NULL;
}

static void need_encoder(struct gpu *gpu)
{
    if (gpu->encoder == NULL)
        gpu->encoder = wgpuDeviceCreateCommandEncoder(gpu->device, NULL);
}

void gpu_copy(
    struct gpu *gpu, struct gpu_buffer *src, uint64_t src_offset, struct gpu_buffer *dst, uint64_t dst_offset, uint64_t n_bytes)
{
    need_encoder(gpu);
    end_pass(gpu);
    wgpuCommandEncoderCopyBufferToBuffer(gpu->encoder, src->handle, src_offset, dst->handle, dst_offset, n_bytes);
}

// --- kernels ------------------------------------------------------------------------------------------------------------------

static WGPUShaderModule make_module(struct gpu *gpu, const char *name, const char *wgsl)
{
    WGPUShaderSourceWGSL source = {.chain = {.sType = WGPUSType_ShaderSourceWGSL}, .code = view_of(wgsl)};
    WGPUShaderModuleDescriptor desc = {.nextInChain = &source.chain, .label = view_of(name)};
#ifdef __wasm__
    return wgpuDeviceCreateShaderModule(gpu->device, &desc);
#else
    // Our kernels guard their own indices; wgpu's loop counters and clamps cost time in the inner loops.
    return wgpuDeviceCreateShaderModuleTrusted(gpu->device, &desc, WGPUShaderRuntimeChecks_None);
#endif
}

static WGPUBindGroupLayout make_layout(struct gpu *gpu, int n_bindings, uint32_t read_only)
{
    WGPUBindGroupLayoutEntry entries[GPU_MAX_BINDINGS + 1] = {{
        .binding = 0,
        .visibility = WGPUShaderStage_Compute,
        .buffer = {.type = WGPUBufferBindingType_Uniform, .hasDynamicOffset = true, .minBindingSize = GPU_MAX_PARAM_BYTES},
    }};
    for (int i = 0; i < n_bindings; i++)
        entries[i + 1] = (WGPUBindGroupLayoutEntry){
            .binding = (uint32_t)(i + 1),
            .visibility = WGPUShaderStage_Compute,
            .buffer = {.type = read_only >> i & 1u ? WGPUBufferBindingType_ReadOnlyStorage : WGPUBufferBindingType_Storage},
        };
    WGPUBindGroupLayoutDescriptor desc = {.entryCount = (size_t)n_bindings + 1, .entries = entries};
    return wgpuDeviceCreateBindGroupLayout(gpu->device, &desc);
}

struct gpu_pipeline *gpu_pipeline_new(
    struct gpu *gpu, const char *name, const char *wgsl, int n_bindings, uint32_t read_only, struct carat_error *err)
{
    struct gpu_pipeline *pipeline = calloc(1, sizeof *pipeline);
    if (pipeline == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for kernel '%s'", name);
        return NULL;
    }
    snprintf(pipeline->name, sizeof pipeline->name, "%s", name);
    pipeline->n_bindings = n_bindings;
    pipeline->id = gpu->next_id++;
    pipeline->layout = make_layout(gpu, n_bindings, read_only);
    WGPUPipelineLayoutDescriptor layout_desc = {.bindGroupLayoutCount = 1, .bindGroupLayouts = &pipeline->layout};
    WGPUPipelineLayout layout = wgpuDeviceCreatePipelineLayout(gpu->device, &layout_desc);
    WGPUShaderModule module = make_module(gpu, name, wgsl);
    WGPUComputePipelineDescriptor desc = {
        .label = view_of(pipeline->name), .layout = layout, .compute = {.module = module, .entryPoint = view_of("main")}};
    if (module != NULL && gpu->error.code == CARAT_OK)
        pipeline->handle = wgpuDeviceCreateComputePipeline(gpu->device, &desc);
    if (module != NULL)
        wgpuShaderModuleRelease(module);
    wgpuPipelineLayoutRelease(layout);
    if (gpu_take_error(gpu, err) && pipeline->handle != NULL)
        return pipeline;
    if (err != NULL)
        fail_in(err, "kernel '%s'", name);
    gpu_pipeline_free(pipeline);
    return NULL;
}

void gpu_pipeline_free(struct gpu_pipeline *pipeline)
{
    if (pipeline == NULL)
        return;
    if (pipeline->handle != NULL)
        wgpuComputePipelineRelease(pipeline->handle);
    if (pipeline->layout != NULL)
        wgpuBindGroupLayoutRelease(pipeline->layout);
    free(pipeline);
}

static uint32_t hash_key(const struct group_key *key)
{
    uint64_t hash = key->pipeline * 0x9e3779b97f4a7c15u;
    for (uint32_t i = 0; i < key->n; i++) {
        hash = (hash ^ key->at[i].buffer ^ key->at[i].offset >> 8 ^ key->at[i].n_bytes << 20) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash ^ hash >> 32);
}

static struct group_slot *find_slot(struct gpu *gpu, const struct group_key *key)
{
    uint32_t mask = gpu->n_group_slots - 1;
    size_t n_bytes = offsetof(struct group_key, at) + key->n * sizeof key->at[0];
    for (uint32_t i = hash_key(key) & mask;; i = (i + 1) & mask) {
        struct group_slot *slot = &gpu->groups[i];
        if (slot->group == NULL || memcmp(&slot->key, key, n_bytes) == 0)
            return slot;
    }
}

static void grow_groups(struct gpu *gpu)
{
    struct group_slot *old = gpu->groups;
    uint32_t n_old = gpu->n_group_slots;
    struct group_slot *wider = calloc((size_t)n_old * 2, sizeof *wider);
    if (wider == NULL) { // start afresh rather than fail
        drop_groups(gpu);
        return;
    }
    gpu->groups = wider;
    gpu->n_group_slots = n_old * 2;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].group != NULL)
            *find_slot(gpu, &old[i].key) = old[i];
    free(old);
}

static WGPUBindGroup bind_group(struct gpu *gpu, const struct gpu_pipeline *pipeline, const struct gpu_binding *bindings)
{
    struct group_key key = {.pipeline = pipeline->id, .n = (uint32_t)pipeline->n_bindings};
    for (int i = 0; i < pipeline->n_bindings; i++) {
        key.at[i].buffer = bindings[i].buffer->id;
        key.at[i].offset = bindings[i].offset;
        key.at[i].n_bytes = bindings[i].n_bytes;
    }
    struct group_slot *slot = find_slot(gpu, &key);
    if (slot->group != NULL)
        return slot->group;
    if (gpu->n_groups * 2 >= gpu->n_group_slots) {
        grow_groups(gpu);
        slot = find_slot(gpu, &key);
    }
    WGPUBindGroupEntry entries[GPU_MAX_BINDINGS + 1] = {{.binding = 0, .buffer = gpu->param_buffer, .size = GPU_MAX_PARAM_BYTES}};
    for (int i = 0; i < pipeline->n_bindings; i++)
        entries[i + 1] = (WGPUBindGroupEntry){.binding = (uint32_t)(i + 1),
            .buffer = bindings[i].buffer->handle,
            .offset = bindings[i].offset,
            .size = bindings[i].n_bytes};
    WGPUBindGroupDescriptor desc = {
        .layout = pipeline->layout, .entryCount = (size_t)pipeline->n_bindings + 1, .entries = entries};
    slot->key = key;
    slot->group = wgpuDeviceCreateBindGroup(gpu->device, &desc);
    gpu->n_groups++;
    return slot->group;
}

static void begin_pass(struct gpu *gpu, struct gpu_pipeline *pipeline)
{
#ifndef __wasm__
    if (gpu->profiling && gpu->n_queries + 2 <= PROFILE_QUERIES) {
        end_pass(gpu);
        WGPUPassTimestampWrites writes = {
            .querySet = gpu->queries, .beginningOfPassWriteIndex = gpu->n_queries, .endOfPassWriteIndex = gpu->n_queries + 1};
        gpu->profiled[gpu->n_queries / 2] = pipeline;
        gpu->n_queries += 2;
        WGPUComputePassDescriptor desc = {.timestampWrites = &writes};
        gpu->pass = wgpuCommandEncoderBeginComputePass(gpu->encoder, &desc);
        return;
    }
#endif
    (void)pipeline;
    if (gpu->pass == NULL)
        gpu->pass = wgpuCommandEncoderBeginComputePass(gpu->encoder, NULL);
}

void gpu_dispatch(struct gpu *gpu, struct gpu_pipeline *pipeline, const struct gpu_binding *bindings, const void *params,
    size_t n_param_bytes, uint32_t x, uint32_t y, uint32_t z)
{
    if (gpu->n_queued == MAX_QUEUED)
        gpu_submit(gpu);
    need_encoder(gpu);
    begin_pass(gpu, pipeline);
    uint32_t offset = gpu->n_queued * PARAM_STRIDE;
    memcpy(gpu->params + offset, params, n_param_bytes);
    gpu->n_queued++;
    gpu->n_dispatches++;
    if (gpu->bound != pipeline)
        wgpuComputePassEncoderSetPipeline(gpu->pass, pipeline->handle);
    gpu->bound = pipeline;
    wgpuComputePassEncoderSetBindGroup(gpu->pass, 0, bind_group(gpu, pipeline, bindings), 1, &offset);
    wgpuComputePassEncoderDispatchWorkgroups(gpu->pass, x, y, z);
}

void gpu_submit(struct gpu *gpu)
{
    if (gpu->encoder == NULL)
        return;
    end_pass(gpu);
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(gpu->encoder, NULL);
    wgpuCommandEncoderRelease(gpu->encoder);
    gpu->encoder = NULL;
    if (gpu->n_queued > 0)
        wgpuQueueWriteBuffer(gpu->queue, gpu->param_buffer, 0, gpu->params, (size_t)gpu->n_queued * PARAM_STRIDE);
    gpu->n_queued = 0;
    if (commands == NULL)
        return;
#ifdef __wasm__
    wgpuQueueSubmit(gpu->queue, 1, &commands);
#else
    gpu->last_submission = wgpuQueueSubmitForIndex(gpu->queue, 1, &commands);
#endif
    wgpuCommandBufferRelease(commands);
}

// --- read-back ----------------------------------------------------------------------------------------------------------------

#ifndef __wasm__
static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *userdata, void *unused)
{
    (void)message;
    (void)unused;
    struct ticket *ticket = userdata;
    ticket->state = status == WGPUMapAsyncStatus_Success ? TICKET_MAPPED : TICKET_FAILED;
}
#endif

static bool make_staging(struct gpu *gpu, struct ticket *ticket, uint64_t n_bytes, struct carat_error *err)
{
    if (ticket->capacity >= n_bytes)
        return true;
    release_buffer(ticket->staging);
    uint64_t rounded = n_bytes < 4096 ? 4096 : n_bytes;
    WGPUBufferDescriptor desc = {.usage = WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst, .size = rounded};
    ticket->staging = wgpuDeviceCreateBuffer(gpu->device, &desc);
    ticket->capacity = ticket->staging != NULL ? rounded : 0;
    if (ticket->staging != NULL)
        return true;
    return fail(err, CARAT_NO_MEMORY, "no memory to read %llu bytes back from the GPU", (unsigned long long)n_bytes);
}

int32_t gpu_read_start(
    struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err)
{
    int32_t id = 0;
    while (id < GPU_MAX_TICKETS && gpu->tickets[id].state != TICKET_FREE)
        id++;
    if (id == GPU_MAX_TICKETS) {
        fail(err, CARAT_BAD_ARGUMENT, "more than %d reads from the GPU are under way; poll them first", GPU_MAX_TICKETS);
        return -1;
    }
    struct ticket *ticket = &gpu->tickets[id];
    if (!make_staging(gpu, ticket, n_bytes, err))
        return -1;
    need_encoder(gpu);
    end_pass(gpu);
    wgpuCommandEncoderCopyBufferToBuffer(gpu->encoder, buffer->handle, offset, ticket->staging, 0, n_bytes);
    gpu_submit(gpu);
    ticket->submission = gpu->last_submission;
    ticket->target = target;
    ticket->n_bytes = n_bytes;
    ticket->state = TICKET_PENDING;
    WGPUBufferMapCallbackInfo info = {.mode = WGPUCallbackMode_AllowProcessEvents};
#ifndef __wasm__
    info.callback = on_mapped;
    info.userdata1 = ticket;
#endif
    wgpuBufferMapAsync(ticket->staging, WGPUMapMode_Read, 0, (size_t)n_bytes, info);
    return id;
}

static void update_ticket(struct gpu *gpu, struct ticket *ticket)
{
    if (ticket->state != TICKET_PENDING)
        return;
#ifdef __wasm__
    WGPUBufferMapState state = wgpuBufferGetMapState(ticket->staging);
    if (state == WGPUBufferMapState_Mapped)
        ticket->state = TICKET_MAPPED;
    else if (state == WGPUBufferMapState_Unmapped)
        ticket->state = TICKET_FAILED;
#else
    wgpuDevicePoll(gpu->device, false, NULL);
#endif
    if (gpu->lost && ticket->state == TICKET_PENDING)
        ticket->state = TICKET_FAILED;
}

static void copy_mapped(struct ticket *ticket)
{
#ifdef __wasm__
    wgpuBufferReadMappedRange(ticket->staging, 0, ticket->target, (size_t)ticket->n_bytes);
#else
    const void *bytes = wgpuBufferGetConstMappedRange(ticket->staging, 0, (size_t)ticket->n_bytes);
    if (bytes != NULL)
        memcpy(ticket->target, bytes, (size_t)ticket->n_bytes);
#endif
    wgpuBufferUnmap(ticket->staging);
}

enum gpu_read_state gpu_read_poll(struct gpu *gpu, int32_t id, struct carat_error *err)
{
    if (id < 0 || id >= GPU_MAX_TICKETS || gpu->tickets[id].state == TICKET_FREE) {
        fail(err, CARAT_BAD_ARGUMENT, "no read from the GPU has the ticket %d", id);
        return GPU_READ_FAILED;
    }
    struct ticket *ticket = &gpu->tickets[id];
    update_ticket(gpu, ticket);
    if (ticket->state == TICKET_PENDING)
        return GPU_READ_PENDING;
    bool mapped = ticket->state == TICKET_MAPPED;
    if (mapped)
        copy_mapped(ticket);
    ticket->state = TICKET_FREE;
    if (!gpu_take_error(gpu, err))
        return GPU_READ_FAILED;
    if (mapped)
        return GPU_READ_DONE;
    fail(err, CARAT_DEVICE_LOST, "the GPU gave no result; load the model again");
    return GPU_READ_FAILED;
}

#ifndef __wasm__
void gpu_wait(struct gpu *gpu, int32_t id)
{
    if (id < 0 || id >= GPU_MAX_TICKETS)
        return;
    struct ticket *ticket = &gpu->tickets[id];
    WGPUSubmissionIndex index = ticket->submission;
    for (int i = 0; ticket->state == TICKET_PENDING && !gpu->lost && i < 1000; i++)
        wgpuDevicePoll(gpu->device, true, &index);
    if (ticket->state == TICKET_PENDING)
        ticket->state = TICKET_FAILED;
}

// --- timing -------------------------------------------------------------------------------------------------------------------

bool gpu_profile_start(struct gpu *gpu)
{
    if (!gpu->limits.has_timestamps)
        return false;
    gpu_submit(gpu);
    if (gpu->queries == NULL) {
        WGPUQuerySetDescriptor desc = {.type = WGPUQueryType_Timestamp, .count = PROFILE_QUERIES};
        gpu->queries = wgpuDeviceCreateQuerySet(gpu->device, &desc);
        WGPUBufferDescriptor buffer = {
            .usage = WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc, .size = PROFILE_QUERIES * 8};
        gpu->query_buffer = wgpuDeviceCreateBuffer(gpu->device, &buffer);
        gpu->timestamp_period = wgpuQueueGetTimestampPeriod(gpu->queue);
    }
    gpu->n_queries = 0;
    gpu->profiling = gpu->queries != NULL && gpu->query_buffer != NULL;
    return gpu->profiling;
}

static int add_timing(struct gpu_timing *timings, int n, int capacity, const char *name, double us)
{
    int i = 0;
    while (i < n && strcmp(timings[i].name, name) != 0)
        i++;
    if (i == capacity)
        return n;
    if (i == n)
        timings[n++] = (struct gpu_timing){.name = name};
    timings[i].n++;
    timings[i].total_us += us;
    return n;
}

static int slower_first(const void *a, const void *b)
{
    double x = ((const struct gpu_timing *)a)->total_us, y = ((const struct gpu_timing *)b)->total_us;
    return x < y ? 1 : x > y ? -1 : 0;
}

int gpu_profile_end(struct gpu *gpu, struct gpu_timing *timings, int capacity)
{
    if (!gpu->profiling)
        return 0;
    gpu->profiling = false;
    if (gpu->n_queries == 0)
        return 0;
    need_encoder(gpu);
    end_pass(gpu);
    wgpuCommandEncoderResolveQuerySet(gpu->encoder, gpu->queries, 0, gpu->n_queries, gpu->query_buffer, 0);
    uint64_t n_bytes = (uint64_t)gpu->n_queries * 8;
    uint64_t *ticks = malloc(n_bytes);
    struct gpu_buffer view = {.handle = gpu->query_buffer, .n_bytes = n_bytes};
    int32_t ticket = ticks != NULL ? gpu_read_start(gpu, &view, 0, n_bytes, ticks, NULL) : -1;
    int n = 0;
    if (ticket >= 0) {
        gpu_wait(gpu, ticket);
        if (gpu_read_poll(gpu, ticket, NULL) == GPU_READ_DONE)
            for (uint32_t i = 0; i < gpu->n_queries; i += 2)
                n = add_timing(timings, n, capacity, gpu->profiled[i / 2]->name,
                    (double)(ticks[i + 1] - ticks[i]) * gpu->timestamp_period * 1e-3);
    }
    free(ticks);
    qsort(timings, (size_t)n, sizeof *timings, slower_first);
    return n;
}
#endif
