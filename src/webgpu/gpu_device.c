// gpu_device.c: finding a device, and its errors.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webgpu/gpu_internal.h"

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

// --- errors -------------------------------------------------------------------------------------------------------------------

void gpu_note_error(struct gpu *gpu, enum carat_code code, const char *message, size_t n)
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
        gpu_note_error(gpu, kind == 1 ? CARAT_NO_MEMORY : CARAT_DEVICE_LOST, message, strlen(message));
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
        .has_integer_dot = info.has_integer_dot != 0,
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
        gpu_note_error(gpu, CARAT_NO_DEVICE, message.data, message.length);
}

static void on_error(WGPUDevice const *device, WGPUErrorType type, WGPUStringView message, void *gpu, void *unused)
{
    (void)device;
    (void)unused;
    gpu_note_error(gpu, type == WGPUErrorType_OutOfMemory ? CARAT_NO_MEMORY : CARAT_DEVICE_LOST, message.data, message.length);
}

static void on_lost(WGPUDevice const *device, WGPUDeviceLostReason reason, WGPUStringView message, void *gpu, void *unused)
{
    (void)device;
    (void)unused;
    if (reason == WGPUDeviceLostReason_Destroyed || reason == WGPUDeviceLostReason_CallbackCancelled)
        return;
    ((struct gpu *)gpu)->lost = true;
    gpu_note_error(gpu, CARAT_DEVICE_LOST, message.data, message.length);
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
    gpu->limits.has_integer_dot = true; // wgpu-native makes it of other instructions where the device lacks it
    gpu->limits.has_timestamps = wgpuDeviceHasFeature(gpu->device, WGPUFeatureName_TimestampQuery);
    return true;
}

#endif

void gpu_free(struct gpu *gpu)
{
    if (gpu == NULL)
        return;
    if (gpu->queue != NULL)
        gpu_submit(gpu);
#ifndef __wasm__
    gpu_upload_end(gpu);
    if (gpu->device != NULL)
        wgpuDevicePoll(gpu->device, true, NULL);
    gpu_release_handle(gpu->query_buffer);
    if (gpu->queries != NULL)
        wgpuQuerySetRelease(gpu->queries);
#endif
    gpu_drop_groups(gpu);
    free(gpu->groups);
    for (int i = 0; i < GPU_MAX_TICKETS; i++)
        gpu_release_handle(gpu->tickets[i].staging);
    gpu_release_handle(gpu->param_buffer);
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
