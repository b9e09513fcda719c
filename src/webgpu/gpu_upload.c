// gpu_upload.c: much data on its way to the device: the weights of a model.
//
// wgpuQueueWriteBuffer makes a staging buffer for every call and fills it with one thread. Here a few buffers that stay go round,
// and several threads fill them, so that the pages of a mapped file are also brought in by several cores. A slot is READY (mapped
// and empty), then FILLING (copies out of it are recorded as bytes come in), then BUSY: gpu_submit has unmapped it, handed its
// copies over and asked for it again; it is READY once the device is done with it. The next slot is filled meanwhile.
//
// Invariants: at most one slot is FILLING, and it alone has copies that are recorded and not submitted. Only the calling thread
// calls wgpu* functions; the others copy memory.

#ifndef __wasm__

#include <stdatomic.h>

#include "webgpu/gpu_internal.h"

enum {
    MOST_THREADS = 8,
    CHUNK_BYTES = 128 << 10, // that a thread takes at a time
    FEW_BYTES = 4 << 20,     // up to which slots and threads are not worth making
    ALIGNMENT = 256,         // of a copy's begin in its slot
};

// --- slots --------------------------------------------------------------------------------------------------------------------

static void on_mapped(WGPUMapAsyncStatus status, WGPUStringView message, void *userdata, void *unused)
{
    (void)message;
    (void)unused;
    struct upload_slot *slot = userdata;
    slot->state = status == WGPUMapAsyncStatus_Success ? SLOT_READY : SLOT_FAILED;
}

static struct upload_slot *find_slot(struct upload *upload, enum upload_state state)
{
    for (int i = 0; i < upload->n_slots; i++)
        if (upload->slots[i].state == state)
            return &upload->slots[i];
    return NULL;
}

// One more slot, mapped from the beginning; NULL: there is no memory for it, and none is needed to go on.
static struct upload_slot *add_slot(struct gpu *gpu)
{
    struct upload *upload = &gpu->upload;
    if (upload->n_slots == UPLOAD_MOST_SLOTS || gpu->error.code != CARAT_OK)
        return NULL;
    WGPUBufferDescriptor desc = {
        .usage = WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc, .size = UPLOAD_SLOT_BYTES, .mappedAtCreation = true};
    WGPUBuffer handle = wgpuDeviceCreateBuffer(gpu->device, &desc);
    if (gpu->error.code == CARAT_NO_MEMORY)
        gpu->error.code = CARAT_OK;
    else if (handle != NULL && gpu->error.code == CARAT_OK) {
        struct upload_slot *slot = &upload->slots[upload->n_slots++];
        *slot = (struct upload_slot){.handle = handle, .state = SLOT_READY};
        return slot;
    }
    if (handle != NULL)
        wgpuBufferRelease(handle);
    return NULL;
}

// Waits until the device is done with one of the slots, or with all of them.
static void wait_for_slots(struct gpu *gpu, bool all)
{
    struct upload *upload = &gpu->upload;
    for (int i = 0; i < 1000 && !gpu->lost && (all || find_slot(upload, SLOT_READY) == NULL); i++) {
        const struct upload_slot *first = NULL;
        for (int k = 0; k < upload->n_slots; k++) {
            const struct upload_slot *slot = &upload->slots[k];
            if (slot->state == SLOT_BUSY && (first == NULL || slot->submission < first->submission))
                first = slot;
        }
        if (first == NULL)
            return;
        WGPUSubmissionIndex index = first->submission;
        wgpuDevicePoll(gpu->device, true, &index);
    }
}

// A slot that can be filled, with its bytes; NULL: mapping does not work here, or the device is lost.
static struct upload_slot *take_slot(struct gpu *gpu)
{
    struct upload *upload = &gpu->upload;
    struct upload_slot *slot = find_slot(upload, SLOT_READY);
    if (slot == NULL && upload->n_slots > 0) {
        wgpuDevicePoll(gpu->device, false, NULL);
        slot = find_slot(upload, SLOT_READY);
    }
    if (slot == NULL)
        slot = add_slot(gpu);
    if (slot == NULL) {
        gpu_submit(gpu);
        wait_for_slots(gpu, false);
        slot = find_slot(upload, SLOT_READY);
    }
    if (slot == NULL)
        return NULL;
    slot->bytes = wgpuBufferGetMappedRange(slot->handle, 0, UPLOAD_SLOT_BYTES);
    slot->state = slot->bytes != NULL ? SLOT_FILLING : SLOT_FAILED;
    return slot->bytes != NULL ? slot : NULL;
}

void gpu_upload_unmap(struct gpu *gpu)
{
    struct upload_slot *slot = gpu->upload.filling;
    if (slot == NULL)
        return;
    wgpuBufferUnmap(slot->handle);
    slot->bytes = NULL;
}

void gpu_upload_map(struct gpu *gpu)
{
    struct upload_slot *slot = gpu->upload.filling;
    if (slot == NULL)
        return;
    gpu->upload.filling = NULL;
    slot->state = SLOT_BUSY;
    slot->submission = gpu->last_submission;
    WGPUBufferMapCallbackInfo info = {.mode = WGPUCallbackMode_AllowProcessEvents, .callback = on_mapped, .userdata1 = slot};
    wgpuBufferMapAsync(slot->handle, WGPUMapMode_Write, 0, UPLOAD_SLOT_BYTES, info);
}

// --- filling ------------------------------------------------------------------------------------------------------------------

struct fill {
    struct gpu *submits; // NULL: nothing is to be submitted
    uint8_t *to;
    const uint8_t *from;
    uint64_t n_bytes;
    _Atomic uint64_t next;
};

// The caller (thread 0) hands over the slot before, while the others have begun already.
static void fill_chunks(void *context, int thread, int n_threads)
{
    (void)n_threads;
    struct fill *fill = context;
    if (thread == 0 && fill->submits != NULL)
        gpu_submit(fill->submits);
    for (uint64_t at; (at = atomic_fetch_add(&fill->next, CHUNK_BYTES)) < fill->n_bytes;) {
        uint64_t n = fill->n_bytes - at < CHUNK_BYTES ? fill->n_bytes - at : CHUNK_BYTES;
        memcpy(fill->to + at, fill->from + at, (size_t)n);
    }
}

static struct threads *new_threads(void)
{
    int n = threads_cores();
    struct threads *threads = threads_new(n < MOST_THREADS ? n : MOST_THREADS, NULL);
    return threads != NULL ? threads : threads_new(1, NULL);
}

// The next bytes, as many as the slot under way has room for; 0: there is no slot.
static uint64_t upload_some(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const uint8_t *source, uint64_t n_bytes)
{
    struct upload *upload = &gpu->upload;
    struct upload_slot *slot = upload->filling;
    uint64_t at = upload->n_filled;
    if (slot == NULL || at == UPLOAD_SLOT_BYTES) {
        slot = take_slot(gpu);
        at = 0;
    }
    if (slot == NULL)
        return 0;
    uint64_t n = n_bytes < UPLOAD_SLOT_BYTES - at ? n_bytes : UPLOAD_SLOT_BYTES - at;
    bool is_next = upload->filling != NULL && upload->filling != slot;
    struct fill fill = {.submits = is_next ? gpu : NULL, .to = slot->bytes + at, .from = source, .n_bytes = n};
    if (n > CHUNK_BYTES)
        threads_run(upload->threads, fill_chunks, &fill);
    else
        fill_chunks(&fill, 0, 1);
    upload->filling = slot;
    upload->n_filled = (at + n + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    gpu_need_encoder(gpu);
    gpu_end_pass(gpu);
    wgpuCommandEncoderCopyBufferToBuffer(gpu->encoder, slot->handle, at, buffer->handle, offset, n);
    return n;
}

void gpu_upload(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    struct upload *upload = &gpu->upload;
    const uint8_t *bytes = source;
    upload->n_seen += n_bytes;
    if (upload->n_seen > FEW_BYTES && upload->threads == NULL)
        upload->threads = new_threads();
    while (n_bytes > 0 && upload->threads != NULL && !upload->failed) {
        uint64_t n = upload_some(gpu, buffer, offset, bytes, n_bytes);
        upload->failed = n == 0;
        bytes += n;
        offset += n;
        n_bytes -= n;
    }
    if (n_bytes > 0)
        gpu_write(gpu, buffer, offset, bytes, n_bytes);
}

void gpu_upload_end(struct gpu *gpu)
{
    struct upload *upload = &gpu->upload;
    if (upload->n_slots > 0) {
        gpu_submit(gpu);
        wait_for_slots(gpu, true);
    }
    for (int i = 0; i < upload->n_slots; i++)
        gpu_release_handle(upload->slots[i].handle);
    threads_free(upload->threads);
    *upload = (struct upload){0};
}

#endif
