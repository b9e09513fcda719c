// host_memory.h: memory of the backends that compute on the host. Everything happens at once; nothing is ever pending.
//
// The functions stand in such a backend's struct ops as they are; the backend's own struct begins with a struct host_ops.

#ifndef CARAT_OPS_HOST_MEMORY_H
#define CARAT_OPS_HOST_MEMORY_H

#include "ops/ops.h"

struct buffer {
    unsigned char *bytes; // aligned to 64
    uint64_t n_bytes;
    void *memory; // what to free
};

struct host_ops {
    struct ops ops;
    struct carat_error failure; // of an operation, until a poll or a read has reported it; code CARAT_OK: none
};

struct buffer *host_buffer_new(struct ops *ops, uint64_t n_bytes, struct carat_error *err);
void host_buffer_free(struct ops *ops, struct buffer *buffer);
void host_write(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes);
void host_copy(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
    uint64_t n_bytes);
int32_t host_read_start(
    struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err);
enum ops_state host_poll(struct ops *ops, int32_t ticket, struct carat_error *err);
void host_wait(struct ops *ops, int32_t ticket);
void host_submit(struct ops *ops);

// For weights whose place the backend has made: one with memory of its own keeps that in `device`, a mapped one has NULL there.
bool host_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err);
void host_weight_free(struct ops *ops, struct weight *weight);
bool host_weights_ready(struct ops *ops, struct carat_error *err);

#endif
