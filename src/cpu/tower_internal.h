// tower_internal.h: what the CPU's files of towers' operations share.

#ifndef CARAT_CPU_TOWER_INTERNAL_H
#define CARAT_CPU_TOWER_INTERNAL_H

#include "cpu/cpu_internal.h"
#include "cpu/tower_kernels.h"
#include "ops/tower_ops.h"

struct cpu_tower {
    struct tower_ops ops;
    struct cpu *cpu;
    const struct tower_kernels *kernels;
};

void cpu_tower_project(struct tower_ops *ops, struct tensor in, const struct linear *linear, bool silu, struct tensor out);
void cpu_tower_gated(struct tower_ops *ops, struct tensor in, const struct linear *gate, const struct linear *up,
    enum activation activation, struct tensor out);
void cpu_tower_image_prepare(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, int32_t first);
void cpu_tower_image_attend(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct image_attention *attention, struct tensor out);
void cpu_tower_subsample(struct tower_ops *ops, struct tensor in, int32_t n_channels, const struct weight *weight,
    const struct weight *norm, float eps, struct tensor out);
void cpu_tower_audio_attend(struct tower_ops *ops, struct tensor q, struct tensor k, struct tensor v,
    const struct audio_attention *attention, struct tensor out);
void cpu_tower_light_conv(struct tower_ops *ops, struct tensor in, const struct weight *weight, const struct weight *norm,
    float eps, struct tensor out);

// Runs `work` for items 0 .. n_items - 1 on all threads. `room` is what the thread has for itself, thread_bytes of it.
typedef void tower_work(const void *job, size_t item, void *room);
void cpu_tower_run(
    struct cpu_tower *tower, tower_work *work, const void *job, size_t n_items, unsigned char *rooms, size_t thread_bytes);

// Rounded up so that the next room begins at a cache line.
static inline size_t cpu_tower_aligned(size_t n_bytes)
{
    return (n_bytes + 63) / 64 * 64;
}

// Packs outputs first .. of a weight, at most a panel, through `rows` (panel * padded n_in floats).
void cpu_tower_pack(const struct cpu_tower *tower, const struct weight *weight, int32_t first, float *rows, float *panel);

#endif
