// gpu.c: buffers, kernels and the queue. The files gpu*.c are the only ones that call webgpu.h.
//
// Functions used by them, all standard:
//   wgpuDeviceGetQueue wgpuDeviceCreateBuffer wgpuDeviceCreateShaderModule wgpuDeviceCreateBindGroupLayout
//   wgpuDeviceCreatePipelineLayout wgpuDeviceCreateComputePipeline wgpuDeviceCreateBindGroup wgpuDeviceCreateCommandEncoder
//   wgpuCommandEncoderBeginComputePass (descriptor NULL in WebAssembly) wgpuCommandEncoderCopyBufferToBuffer
//   wgpuCommandEncoderFinish (NULL) wgpuComputePassEncoderSetPipeline wgpuComputePassEncoderSetBindGroup (group 0, no
//   dynamic offsets) wgpuComputePassEncoderDispatchWorkgroups wgpuComputePassEncoderEnd wgpuQueueWriteBuffer wgpuQueueSubmit
//   (one) wgpuBufferMapAsync (MapMode_Read) wgpuBufferUnmap wgpuBufferDestroy
//   wgpu{Buffer,BindGroup,BindGroupLayout,PipelineLayout,ShaderModule,ComputePipeline,CommandEncoder,CommandBuffer,
//   ComputePassEncoder,Queue,Device}Release
// In WebAssembly also wgpuBufferGetMapState and wgpuBufferReadMappedRange: the map callback is NULL there, completion is seen by
// asking for the state (Pending, Mapped, or Unmapped when it failed). Natively also the adapter and device requests, mapping to
// write, mapped ranges, timestamps, and wgpu-native's wgpuDevicePoll, wgpuQueueSubmitForIndex and
// wgpuDeviceCreateShaderModuleTrusted.

#include "webgpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webgpu/gpu_internal.h"

// --- buffers ------------------------------------------------------------------------------------------------------------------

void gpu_drop_groups(struct gpu *gpu)
{
    for (uint32_t i = 0; gpu->groups != NULL && i < gpu->n_group_slots; i++) {
        if (gpu->groups[i].group != NULL)
            wgpuBindGroupRelease(gpu->groups[i].group);
        gpu->groups[i].group = NULL;
    }
    gpu->n_groups = 0;
}

void gpu_release_handle(WGPUBuffer buffer)
{
    if (buffer == NULL)
        return;
    wgpuBufferDestroy(buffer);
    wgpuBufferRelease(buffer);
}

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
    gpu_drop_groups(gpu);
    gpu_release_handle(buffer->handle);
    free(buffer);
}

uint64_t gpu_buffer_bytes(const struct gpu_buffer *buffer)
{
    return buffer->n_bytes;
}

void gpu_write(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    gpu_submit(gpu); // writes overtake what is only recorded
    wgpuQueueWriteBuffer(gpu->queue, buffer->handle, offset, source, (size_t)n_bytes);
}

#ifdef __wasm__
void gpu_upload(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    gpu_write(gpu, buffer, offset, source, n_bytes);
}

void gpu_upload_end(struct gpu *gpu)
{
    (void)gpu;
}
#endif

void gpu_end_pass(struct gpu *gpu)
{
    if (gpu->pass == NULL)
        return;
    wgpuComputePassEncoderEnd(gpu->pass);
    wgpuComputePassEncoderRelease(gpu->pass);
    gpu->pass = NULL;
    gpu->bound = NULL;
}

void gpu_need_encoder(struct gpu *gpu)
{
    if (gpu->encoder == NULL)
        gpu->encoder = wgpuDeviceCreateCommandEncoder(gpu->device, NULL);
}

void gpu_copy(
    struct gpu *gpu, struct gpu_buffer *src, uint64_t src_offset, struct gpu_buffer *dst, uint64_t dst_offset, uint64_t n_bytes)
{
    gpu_need_encoder(gpu);
    gpu_end_pass(gpu);
    wgpuCommandEncoderCopyBufferToBuffer(gpu->encoder, src->handle, src_offset, dst->handle, dst_offset, n_bytes);
}

// --- kernels ------------------------------------------------------------------------------------------------------------------

static WGPUShaderModule make_module(struct gpu *gpu, const char *name, const char *wgsl)
{
    WGPUShaderSourceWGSL source = {.chain = {.sType = WGPUSType_ShaderSourceWGSL}, .code = gpu_text(wgsl)};
    WGPUShaderModuleDescriptor desc = {.nextInChain = &source.chain, .label = gpu_text(name)};
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
        .buffer = {.type = WGPUBufferBindingType_Uniform, .minBindingSize = GPU_MAX_PARAM_BYTES},
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
        .label = gpu_text(pipeline->name), .layout = layout, .compute = {.module = module, .entryPoint = gpu_text("main")}};
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
    uint64_t hash = (key->pipeline ^ (uint64_t)key->param_slot << 32) * 0x9e3779b97f4a7c15u;
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
        gpu_drop_groups(gpu);
        return;
    }
    gpu->groups = wider;
    gpu->n_group_slots = n_old * 2;
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].group != NULL)
            *find_slot(gpu, &old[i].key) = old[i];
    free(old);
}

// The parameters' place is part of a group, since dynamic offsets make JavaScript's setBindGroup twice as slow. A token's
// dispatches come in the same order as those of the token before, and so in the same places.
static WGPUBindGroup bind_group(struct gpu *gpu, const struct gpu_pipeline *pipeline, const struct gpu_binding *bindings)
{
    struct group_key key = {.pipeline = pipeline->id, .param_slot = gpu->n_queued, .n = (uint32_t)pipeline->n_bindings};
    for (int i = 0; i < pipeline->n_bindings; i++) {
        key.at[i].buffer = bindings[i].buffer->id;
        key.at[i].offset = bindings[i].offset;
        key.at[i].n_bytes = bindings[i].n_bytes;
    }
    struct group_slot *slot = find_slot(gpu, &key);
    if (slot->group != NULL)
        return slot->group;
    if (gpu->n_groups * 2 >= gpu->n_group_slots) {
        if (gpu->n_groups >= MOST_GROUPS)
            gpu_drop_groups(gpu);
        else
            grow_groups(gpu);
        slot = find_slot(gpu, &key);
    }
    WGPUBindGroupEntry entries[GPU_MAX_BINDINGS + 1] = {{.binding = 0,
        .buffer = gpu->param_buffer,
        .offset = (uint64_t)gpu->n_queued * PARAM_STRIDE,
        .size = GPU_MAX_PARAM_BYTES}};
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
        gpu_end_pass(gpu);
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
    gpu_need_encoder(gpu);
    begin_pass(gpu, pipeline);
    if (gpu->bound != pipeline)
        wgpuComputePassEncoderSetPipeline(gpu->pass, pipeline->handle);
    gpu->bound = pipeline;
    wgpuComputePassEncoderSetBindGroup(gpu->pass, 0, bind_group(gpu, pipeline, bindings), 0, NULL);
    memcpy(gpu->params + gpu->n_queued * PARAM_STRIDE, params, n_param_bytes);
    gpu->n_queued++;
    gpu->n_dispatches++;
    wgpuComputePassEncoderDispatchWorkgroups(gpu->pass, x, y, z);
}

static void submit_commands(struct gpu *gpu, WGPUCommandBuffer commands)
{
    if (commands == NULL)
        return;
    if (gpu->lost || gpu->error.code != CARAT_OK) { // wgpu-native ends the process when it is given broken commands
        wgpuCommandBufferRelease(commands);
        return;
    }
#ifdef __wasm__
    wgpuQueueSubmit(gpu->queue, 1, &commands);
#else
    gpu->last_submission = wgpuQueueSubmitForIndex(gpu->queue, 1, &commands);
#endif
    wgpuCommandBufferRelease(commands);
}

void gpu_submit(struct gpu *gpu)
{
    if (gpu->encoder == NULL)
        return;
    gpu_end_pass(gpu);
    WGPUCommandBuffer commands = wgpuCommandEncoderFinish(gpu->encoder, NULL);
    wgpuCommandEncoderRelease(gpu->encoder);
    gpu->encoder = NULL;
    if (gpu->n_queued > 0)
        wgpuQueueWriteBuffer(gpu->queue, gpu->param_buffer, 0, gpu->params, (size_t)gpu->n_queued * PARAM_STRIDE);
    gpu->n_queued = 0;
#ifdef __wasm__
    submit_commands(gpu, commands);
#else
    gpu_upload_unmap(gpu);
    submit_commands(gpu, commands);
    gpu_upload_map(gpu);
#endif
}
