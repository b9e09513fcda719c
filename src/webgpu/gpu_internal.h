// gpu_internal.h: what the files gpu*.c share; nobody else includes it.

#ifndef CARAT_WEBGPU_GPU_INTERNAL_H
#define CARAT_WEBGPU_GPU_INTERNAL_H

#include <string.h>

#include "base/threads.h"
#include "webgpu/gpu.h"

#include "webgpu.h"
#ifndef __wasm__
#include "wgpu.h"
#endif

enum {
    PARAM_STRIDE = 256,      // smallest offset alignment that every device grants
    MAX_QUEUED = 4096,       // dispatches before a submit happens by itself
    GROUP_TABLE_MIN = 1024,  // slots of the bind group cache, a power of two
    MOST_GROUPS = 4096,      // in the cache; a token needs some 230, each other number of rows likewise
    PROFILE_QUERIES = 4096,  // two a dispatch
    MAX_PROFILE_NAMES = 256, // different kernels in a profile
    UPLOAD_SLOT_BYTES = 8 << 20,
    UPLOAD_MOST_SLOTS = 8, // made one by one, when the device is not done with any of those before
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
    char name[96];
};

struct group_key {
    uint32_t pipeline;
    uint32_t param_slot;
    uint32_t n;
    uint32_t pad;
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

// See gpu_upload.c.
struct upload_slot {
    WGPUBuffer handle;
    uint8_t *bytes; // [UPLOAD_SLOT_BYTES] of a FILLING slot
    enum upload_state { SLOT_READY, SLOT_FILLING, SLOT_BUSY, SLOT_FAILED } state;
    uint64_t submission; // the last one that reads it
};

struct upload {
    struct upload_slot slots[UPLOAD_MOST_SLOTS];
    int n_slots;
    struct upload_slot *filling; // its copies are recorded; NULL: none
    uint64_t n_filled;           // of it
    uint64_t n_seen;             // bytes since the last gpu_upload_end
    struct threads *threads;     // NULL: there was little so far
    bool failed;                 // mapping does not work here
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
    struct upload upload;
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

static inline WGPUStringView gpu_text(const char *text)
{
    return (WGPUStringView){.data = text, .length = strlen(text)};
}

// Keeps the first error for gpu_take_error.
void gpu_note_error(struct gpu *gpu, enum carat_code code, const char *message, size_t n);

// Destroys and releases; NULL is allowed.
void gpu_release_handle(WGPUBuffer buffer);

// Forgets all bind groups, e.g. because a buffer goes away.
void gpu_drop_groups(struct gpu *gpu);

// Makes an encoder for queued work, and ends the compute pass in it, for what cannot be inside one.
void gpu_need_encoder(struct gpu *gpu);
void gpu_end_pass(struct gpu *gpu);

#ifndef __wasm__
// Before and after what is queued is submitted: hands the slot whose copies are in it to the device, and asks for it again.
void gpu_upload_unmap(struct gpu *gpu);
void gpu_upload_map(struct gpu *gpu);
#endif

#endif
