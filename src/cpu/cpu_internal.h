// cpu_internal.h: what the files of the CPU backend share.
//
// An operation is one job of the thread pool. Inside it the work is cut into items that threads take from a shared counter, so
// that unequal threads finish together; barriers separate the phases. A result never depends on which thread computed it, nor on
// how many there are.

#ifndef CARAT_CPU_CPU_INTERNAL_H
#define CARAT_CPU_CPU_INTERNAL_H

#include <stdatomic.h>
#include <stddef.h>

#include "base/threads.h"
#include "cpu/kernels.h"
#include "ops/host_memory.h"

// Memory that an operation needs while it runs. It only ever grows, so that decoding does not allocate.
struct room {
    unsigned char *bytes; // aligned to 64
    size_t n_bytes;
};

struct cpu {
    struct host_ops host;
    const struct cpu_kernels *kernels;
    struct threads *threads;
    int n_threads;
    bool exact;
    struct room room;
};

// A cursor over a room: first run with bytes NULL to learn the size, then with the room's bytes.
struct layout_cursor {
    unsigned char *bytes;
    size_t n_used;
};
void *cpu_take(struct layout_cursor *cursor, size_t count, size_t size);

// The backend's room with at least n_bytes; NULL notes the failure. Its contents are not kept.
unsigned char *cpu_room(struct cpu *cpu, size_t n_bytes);

float *cpu_floats(struct tensor tensor);
int32_t *cpu_ints(struct tensor tensor);

// The values of a vector weight: in place when it is F32, else expanded into `room` ([n_in rounded up to 16]). NULL: no weight.
const float *cpu_vector(const struct cpu *cpu, const struct weight *weight, float *room);

// Floats that one row of n_in takes in activations.f32.
static inline size_t cpu_padded(int32_t n_in)
{
    return ((size_t)n_in + 15) / 16 * 16;
}

// Does this weight take f32 activations?
bool cpu_uses_f32(const struct cpu *cpu, const struct weight *weight);

// Room for n_rows of activations of width n_in.
void cpu_take_activations(struct layout_cursor *cursor, int32_t n_rows, int32_t n_in, struct activations *x);

// out[c * stride + r] = rows first_row .. of a slice of the weight times columns first_col .. of x.
struct product_rows {
    const struct weight *weight;
    int32_t slice, first_row, n_rows;
    const struct activations *x;
    int32_t first_col, n_cols;
    float *out;
    size_t out_stride;
    void *scratch;
};
void cpu_product_rows(const struct cpu *cpu, const struct product_rows *product);

// Rows of a weight that a thread should take at once when n_cols columns are multiplied and the weight has n_rows in all.
int32_t cpu_chunk_rows(const struct cpu *cpu, const struct weight *weight, int32_t n_rows, int32_t n_cols);

static inline size_t cpu_next(_Atomic size_t *counter)
{
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// memory and weights
bool cpu_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err);

// operations, as ops.h describes them
void cpu_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out);
void cpu_copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows);
void cpu_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out);
void cpu_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out);
void cpu_attend(struct ops *ops, struct tensor qkv, const struct attention *attention, struct tensor out);
void cpu_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out);
void cpu_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out);
void cpu_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out);
void cpu_experts(struct ops *ops, struct tensor h, const struct experts *experts, struct tensor out);
void cpu_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out);
void cpu_settle(struct ops *ops, struct stream *stream);
void cpu_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out);
void cpu_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits);
void cpu_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id);
void cpu_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out);

// For tests: as cpu_ops_new, with the kernels of that name ("portable", "AVX2", ...); NULL when the machine lacks them.
struct ops *cpu_ops_new_with(int32_t n_threads, bool exact, const char *kernels, struct carat_error *err);

#endif
