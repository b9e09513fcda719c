// gpu_read.c: reading buffers back, and timing kernels.

#include <stdlib.h>
#include <string.h>

#include "webgpu/gpu_internal.h"

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
    gpu_release_handle(ticket->staging);
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
    gpu_need_encoder(gpu);
    gpu_end_pass(gpu);
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
    gpu_need_encoder(gpu);
    gpu_end_pass(gpu);
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
