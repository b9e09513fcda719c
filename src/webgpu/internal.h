// internal.h: what the files of the WebGPU backend share.

#ifndef CARAT_WEBGPU_INTERNAL_H
#define CARAT_WEBGPU_INTERNAL_H

#include "ops/ops.h"
#include "webgpu/gpu.h"
#include "webgpu/kernel.h"
#include "webgpu/layout.h"
#include "webgpu/webgpu_ops.h"

enum {
    MAX_PIECES = 64,    // of the keys of one head of one row
    MATVEC_MAX_ROWS = 4 // rows of activations up to which products go row by row
};

// Kernels, for the keys of the pipeline table.
enum kernel {
    KERNEL_REPACK = 1,
    KERNEL_EMBED,
    KERNEL_COPY,
    KERNEL_COPY_WITHIN,
    KERNEL_SETTLE,
    KERNEL_ADD_NORMS,
    KERNEL_GATED,
    KERNEL_PER_LAYER,
    KERNEL_LORA,
    KERNEL_MATVEC,
    KERNEL_MATMUL,
    KERNEL_QK_PREPARE,
    KERNEL_ATTEND,
    KERNEL_COMBINE,
    KERNEL_SUPPRESS,
    KERNEL_ARGMAX,
    KERNEL_TOP_K,
    KERNEL_ROUTE,
    KERNEL_EXPERTS,
    KERNEL_ATTEND_ONE,
    KERNEL_ATTEND_MANY,
    KERNEL_PROBE,
    KERNEL_JOIN_SPLITS,
    KERNEL_ADJUST,
    KERNEL_DRAW,
    KERNEL_FOLD,
    KERNEL_ROUND_ROWS,
    KERNEL_END_SUMS,
    KERNEL_END_INJECT,
    KERNEL_END_ENTER,
};

enum scratch {
    SCRATCH_NORMED,
    SCRATCH_GATED,
    SCRATCH_PROJECTED,
    SCRATCH_PIECES,
    SCRATCH_MARKS,
    SCRATCH_ADAPTER,
    SCRATCH_VALUES_A,
    SCRATCH_IDS_A,
    SCRATCH_VALUES_B,
    SCRATCH_IDS_B,
    SCRATCH_SUMS,
    SCRATCH_BEST,
    SCRATCH_CHOSEN,
    SCRATCH_SHARES,
    SCRATCH_EXPERTS,
    SCRATCH_SPLITS,
    SCRATCH_END,
    SCRATCH_ENTRY,
    N_SCRATCH
};

// A weight on the device. Its rows (of all slices) are spread over parts that each fit one binding.
struct weight_part {
    struct gpu_buffer *buffer;
    uint64_t offset, n_bytes; // in it; the offset is a multiple of 256
    uint32_t first_row;
    uint32_t n_rows;
};

// Weights that share a buffer (struct weight's group). It is made when the first of their bytes arrives: until then more may
// join.
struct weight_group {
    uint32_t number;
    struct gpu_buffer *buffer; // NULL: not made yet
    uint64_t n_bytes;
    struct device_weight *first;
    struct weight_group *next;
};

struct device_weight {
    struct layout layout;
    uint64_t n_rows;             // n_out * n_slices
    uint64_t row_bytes, n_bytes; // in the file
    uint64_t n_written;
    int n_parts;
    struct weight_part *parts;
    struct weight_group *group; // NULL: none
    struct device_weight *next_in_group;
    bool is_vector;     // one row: its values are also among the vectors, as f32
    uint32_t vector_at; // element, a multiple of 64
    float first_value;  // of a vector that is complete
    uint8_t *raw;       // of a vector, until it is complete
};

// Weights of one row, expanded to f32 in one buffer, so that a kernel needs one binding for all of its norms.
struct vectors {
    struct gpu_buffer *buffer;
    uint64_t n_used, capacity; // elements
};

// Rows on their way into planes. Byte 0 of `current` is byte `base` of the weight.
struct staging {
    struct gpu_buffer *current, *next;
    uint64_t capacity;
    const struct device_weight *weight; // NULL: none under way
    uint64_t base;
    uint64_t n_filled;
    uint64_t n_rows_done;
};

// The end of a layer whose second step is not done yet (layer_end.c), or done in part (layer_entry.c).
struct late_end {
    const struct layer_end *end; // NULL: nothing is pending
    struct gpu_binding sums, per_layer;
    struct tensor x, settled; // of the stream; `settled` is still to be written
    struct tensor out;
    float eps;
    // The next layer has taken the step along: its products are there but for the factors of two norms.
    struct tensor products;            // no buffer: it has not
    const struct weight *scale_weight; // of the settled stream, or NULL
};

struct webgpu {
    struct ops ops; // first: a struct ops * is a struct webgpu *
    struct gpu *gpu;
    struct kernel_table *kernels;
    struct webgpu_options options;
    struct vectors vectors;
    struct weight_group *weight_groups;
    struct staging staging;
    struct gpu_buffer *scratch[N_SCRATCH];
    uint32_t subgroup_size;      // 0: kernels do without subgroups
    bool exact_half;             // the device flushes small halves: convert by hand
    bool multiplies_floats;      // products of few rows in f32, not in integers
    struct self_test *self_test; // under way, or NULL
    struct trial *trial;         // likewise
    struct carat_error error;    // first failure of an operation, reported by the next read or poll
    // Attention of the last `attend` whose pieces are not joined yet.
    struct {
        struct tensor out; // no buffer: nothing is pending
        uint32_t n_pieces, n_heads, head_dim;
    } pieces;
    // The last product whose columns were split, its sums not added yet.
    struct {
        struct tensor out; // no buffer: nothing is pending
        uint32_t n_splits;
    } sums;
    struct late_end late;
    bool makes_factors; // was the last attention one that makes the factors of a late end's products?
};

static inline struct webgpu *webgpu_of(struct ops *ops)
{
    return (struct webgpu *)ops;
}

static inline struct gpu_buffer *gpu_buffer_of(struct buffer *buffer)
{
    return (struct gpu_buffer *)(void *)buffer;
}

static inline struct gpu_binding bind_part(const struct weight_part *part)
{
    return (struct gpu_binding){part->buffer, part->offset, part->n_bytes};
}

static inline uint32_t divide_up(uint32_t a, uint32_t b)
{
    return (a + b - 1) / b;
}

// The least k with 2^k >= n.
static inline uint32_t log2_up(uint32_t n)
{
    uint32_t k = 0;
    while (1u << k < n)
        k++;
    return k;
}

// --- webgpu_ops.c ---

// Keeps the first failure for the next read or poll.
void webgpu_failed(struct webgpu *gpu, const struct carat_error *err);

// The pipeline of a key, made when it is new. NULL after a failure, which is kept.
struct gpu_pipeline *webgpu_kernel(struct webgpu *gpu, uint64_t key, const char *file, const char *definitions);

// A key for what depends on more than fits one: a hash. 58 bits do not collide among the tens of kernels of a model.
uint64_t webgpu_key(enum kernel kernel, const uint32_t *values, int n);

// Makes all kernels anew when they are needed next.
void webgpu_forget_kernels(struct webgpu *gpu);

// A whole tensor, and the first n_bytes of a scratch buffer, which grows when needed (buffer NULL after a failure, which is
// kept).
struct gpu_binding webgpu_tensor(struct tensor tensor);
struct gpu_binding webgpu_scratch(struct webgpu *gpu, enum scratch which, uint64_t n_bytes);
struct tensor webgpu_scratch_tensor(struct webgpu *gpu, enum scratch which, int32_t n_rows, int32_t n_cols);
struct gpu_binding webgpu_vectors(struct webgpu *gpu);
// The n_splits sums that a product left whose columns were split, each as large as out.
struct gpu_binding webgpu_sums(struct webgpu *gpu, uint32_t n_splits, struct tensor out);

// The element of a one-row weight among the vectors.
uint32_t webgpu_vector_at(const struct weight *weight);
struct gpu_binding webgpu_vector(struct webgpu *gpu, const struct weight *weight); // its values alone; it must exist
float webgpu_first_value(const struct weight *weight);

// Dispatches n invocations in groups of 64, spread over x and y; returns the invocations in x, for the parameters.
uint32_t webgpu_grid(const struct webgpu *gpu, uint64_t n, uint32_t *x, uint32_t *y);

// --- weights.c ---
bool webgpu_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay, struct carat_error *err);
bool webgpu_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err);
void webgpu_weight_free(struct ops *ops, struct weight *weight);
bool webgpu_weights_ready(struct ops *ops, struct carat_error *err);
void webgpu_weights_close(struct webgpu *gpu);

// --- self_test.c ---
void webgpu_self_test_close(struct webgpu *gpu); // an unfinished test is dropped
bool webgpu_flushes_halves(void);                // has a test found that small halves become zero?
bool webgpu_confuses_integers(void);             // ... that products of integers are wrong?

// --- trial.c ---
// Goes on with the trial, which begins when it is needed: OPS_DONE when nothing is left to find out.
enum ops_state webgpu_trial_poll(struct webgpu *gpu, struct carat_error *err);
bool webgpu_prefers_floats(void); // has a trial found out that integers are slower?
// Is a dispatch less worth reading that many bytes more, or (negative) less?
bool webgpu_folding_pays(const struct webgpu *gpu, double n_bytes);
int32_t webgpu_trial_ticket(const struct webgpu *gpu); // what it waits for, or -1
void webgpu_trial_close(struct webgpu *gpu);

// --- project.c ---

enum product_flags {
    PRODUCT_BIAS = 1,
    PRODUCT_CLIP = 2,
    PRODUCT_CAP = 4,
    PRODUCT_PER_LAYER = 8,
    PRODUCT_ACTIVATES = 16, // many rows only: out = activation(product)
    PRODUCT_GATES = 32,     // many rows only: out = activation(out) * product
    PRODUCT_MAY_WAIT = 64,  // the result may be left in sums
};

// What a product does besides: columns of the result, and epilogues.
struct product {
    uint32_t flags;
    uint32_t out_first; // column of out
    float cap;
    struct tensor per_layer;
    uint32_t per_layer_first;
    enum activation activation;
};

// out[:, out_first ..] = linear(in), adapters included.
void webgpu_product(
    struct webgpu *gpu, struct tensor in, const struct linear *linear, const struct product *how, struct tensor out);
// The stream's settled, normed value in scratch.
struct tensor webgpu_normed(struct webgpu *gpu, struct stream *stream, const struct weight *norm);
// RMS(in, norm) in `out`, without touching `in`. norm NULL: weightless.
void webgpu_rms(struct webgpu *gpu, struct tensor in, const struct weight *norm, float eps, struct tensor out);

// Finishes what the last operations left to the next one: pieces of attention, sums of a split product. Every operation that does
// not take them as they are begins with this.
void webgpu_join_all(struct webgpu *gpu);

void webgpu_project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out);
void webgpu_norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out);
void webgpu_norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out);
void webgpu_per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out);
void webgpu_head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits);

// --- layer_end.c ---
bool webgpu_fold(struct ops *ops, struct layer_end *end);
void webgpu_unfold(struct ops *ops, struct layer_end *end);
void webgpu_finish_layer(struct ops *ops, struct stream *stream, const struct layer_end *end, struct tensor in,
    struct tensor per_layer, int32_t layer, struct tensor out);

// --- layer_entry.c ---
// norm_project for a stream whose layer's end is late, taking its second step along. False: it is to be done in the usual way.
bool webgpu_enter_layer(struct webgpu *gpu, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out);
// Finishes a late end.
void webgpu_join_end(struct webgpu *gpu);
// Are these products there but for the factors of two norms, which attention can make?
bool webgpu_lacks_factors(const struct webgpu *gpu, struct tensor products);
// What attention needs for it, which takes it over: results [products with x1, with e, the term, x1], at these floats of it, and
// where the settled stream goes.
struct entry_places {
    uint32_t other, term, x, n;
};
struct entry {
    struct gpu_binding results, settled;
    struct entry_places places;
    uint32_t d, post_norm_at;
    float scale, eps;
};
struct entry webgpu_take_entry(struct webgpu *gpu);

// --- stream.c ---
void webgpu_embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out);
void webgpu_copy_rows(
    struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows);
void webgpu_per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out);
void webgpu_add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out);
void webgpu_settle(struct ops *ops, struct stream *stream);
void webgpu_norm(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out);

// --- attend.c ---
void webgpu_attend(struct ops *ops, struct tensor qkv, const struct attention *attention, struct tensor out);
// How attend_many is cut for a width of heads, up to 512: queries of a workgroup, keys that it takes at a time.
struct attend_tile {
    uint32_t n_queries, n_keys;
    char definitions[160];
};
void webgpu_attend_tile(uint32_t head_dim, struct attend_tile *tile);
enum { MOST_JOINED = 8 }; // pieces that the next product joins by itself: each of its workgroups reads them all
// Can a product with `in` join the pending pieces while it reads them? Few enough, and `in` is what they make.
bool webgpu_takes_pieces(const struct webgpu *gpu, struct tensor in);
void webgpu_bind_pieces(struct webgpu *gpu, struct gpu_binding *pieces, struct gpu_binding *marks);
// Joins the pieces of the last attention.
void webgpu_join_pieces(struct webgpu *gpu);

// --- experts.c ---
void webgpu_experts(struct ops *ops, struct tensor h, const struct experts *experts, struct tensor out);

// --- select.c ---
void webgpu_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id);
void webgpu_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out);
void webgpu_draw(struct ops *ops, struct tensor logits, int32_t row, const struct draw *draw, struct tensor id);

#endif
