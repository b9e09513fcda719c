// ops.h: the operations that the text model is made of, and the contract of a backend.
//
// Three backends implement it: src/ref (scalar, obvious, the judge in the tests), src/cpu (threads and SIMD) and src/webgpu. An
// operation is coarse on purpose: inside it a backend may fuse as it likes. n below is the number of rows, i.e. of positions in
// the batch; rows are independent but for attention. RMS(x, w) = x / sqrt(mean(x^2) + eps) * w over a row, in f32.
//
// Nothing here waits. Operations are queued in order; a backend on the CPU may do them at once. Results are fetched with
// read_start and poll. An operation that fails (only for want of memory or device) makes the next poll or read report it.
//
// Aliasing: outputs never overlap inputs unless an operation says so.

#ifndef CARAT_OPS_OPS_H
#define CARAT_OPS_OPS_H

#include <stddef.h>

#include "base/error.h"
#include "ops/tensor.h"

// The residual stream. Its value is (x + RMS(term, term_norm)) * scale; as long as the term is pending nobody has computed that.
// An operation that takes a stream settles it first: afterwards x holds the value and term is gone. A backend may write the value
// to `spare` and exchange x and spare, so that all workgroups of a kernel can read x while one writes.
struct stream {
    struct tensor x;                // [n, d]
    struct tensor spare;            // [n, d]
    struct tensor term;             // [n, d], or none: the stream is settled
    const struct weight *term_norm; // [d]; NULL: the term is added as it is
    const struct weight *scale;     // one element: the layer's output scale; NULL or no weight: 1
    float eps;
};

// The ids of the batch. When the host knows them, `host` is not NULL; `device` always holds them by the time they are needed.
struct token_ids {
    struct tensor device; // i32 [n, 1]
    const int32_t *host;  // [n], or NULL
};

enum activation { ACTIVATION_GELU_TANH, ACTIVATION_GELU_QUICK, ACTIVATION_SILU };

// Attention of one text layer over a batch of n positions that follow each other.
struct attention {
    int32_t n_heads, n_kv_heads, head_dim;
    const struct weight *q_norm; // [head_dim]
    const struct weight *k_norm; // [head_dim]; not used when the layer shares keys and values
    float eps;
    bool writes_kv;            // qkv holds q, k, v (or q, k): norm and store k and v first. Otherwise qkv holds q only.
    bool v_is_k;               // qkv holds q, k; v is the raw k with the weightless norm
    int32_t window;            // a query sees keys s with p - s < window; 0: all
    int32_t first_position;    // position of row 0; row i is at first_position + i
    struct tensor rope;        // [n, head_dim]: cos of the head_dim/2 pairs, then sin, for each row's position
    struct tensor last_key;    // i32 [n, 1]: last position that a row sees; none: each row's own position (causal)
    const struct kv_layer *kv; // of this layer, or of the donor
};

// One mixture-of-experts branch. Shapes as in the file.
struct experts {
    int32_t n_experts, n_used, n_ff;
    const struct weight *router_scale; // [d]
    const struct weight *router;       // [d -> n_experts]
    const struct weight *pre_norm;     // [d]
    const struct weight *gate_up;      // n_experts slices [d -> 2 n_ff], gate rows first; or none: gate and up are given
    const struct weight *gate, *up;    // n_experts slices [d -> n_ff]
    const struct weight *down;         // n_experts slices [n_ff -> d]
    const struct weight *down_scale;   // [n_experts], or none
    float eps;
};

// The end of a layer with per-layer inputs: z = down . h joins the stream by way of a norm, whose value goes through gate and
// proj.
struct layer_end {
    const struct linear *down; // [ff -> d]
    const struct weight *norm; // [d], of z
    const struct linear *gate; // [d -> P]
    const struct linear *proj; // [P -> d]
    // What comes next: the result is added to the stream by way of post_norm, and the next layer multiplies it, normed.
    const struct weight *post_norm, *next_norm; // [d]
    const struct linear *const *next;           // n_next of [d -> any]: queries, and keys and values where it has its own
    int n_next;                                 // 0: there is no next layer
    struct folded *folded;                      // what `fold` has made; NULL: nothing
    uint64_t folded_bytes;                      // on the backend
};

enum { DRAW_MAX_TOP_K = 256, DRAW_MAX_WINDOW = 1024, DRAW_MAX_BIASES = 1024 };

// How a token is drawn; the sampler (src/text/sampler.h) says what the parameters mean.
struct draw {
    float temperature; // <= 0: the largest logit
    int32_t top_k;     // 1 .. DRAW_MAX_TOP_K; not looked at with temperature <= 0
    float top_p, min_p;
    float repetition_penalty, presence_penalty, frequency_penalty;
    struct tensor window;      // i32 [at most DRAW_MAX_WINDOW, 1]: recent ids in a ring; none: no penalties
    int32_t n_window;          // the first n_window places of it hold an id
    int32_t window_slot;       // where the drawn id is put
    struct tensor bias_ids;    // i32 [at most DRAW_MAX_BIASES, 1]: ids whose logits are raised or lowered; or none
    struct tensor bias_values; // [as many, 1], what is added; below -1e38: the id is forbidden
    uint32_t random;           // uniform over all 32 bits: the draw takes the place random / 2^32 of the mass that is left
};

enum ops_state { OPS_DONE, OPS_PENDING, OPS_FAILED };

struct ops {
    const char *name;     // "ref", "cpu", "webgpu"
    char device[128];     // what it runs on, for people: "AMD EPYC, AVX-512 VNNI, 2 threads"
    int32_t max_batch;    // largest n that operations take
    int64_t n_dispatches; // GPU dispatches so far; 0 elsewhere

    // --- memory -------------------------------------------------------------------------------------------------------------

    // Zeroed memory; NULL on failure. n_bytes is rounded up to a multiple of 256.
    struct buffer *(*buffer_new)(struct ops *ops, uint64_t n_bytes, struct carat_error *err);
    void (*buffer_free)(struct ops *ops, struct buffer *buffer); // NULL is allowed
    // Copies into a buffer. The source may be reused at once. offset and n_bytes are multiples of 4.
    void (*write)(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes);

    // Copies between two different buffers, in the order of the queue. All numbers are multiples of 4.
    void (*copy)(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
        uint64_t n_bytes);

    // Asks for a copy of a buffer's bytes into `target` (which must stay valid) after everything queued so far, and submits the
    // queue. Returns a ticket >= 0, or -1 with err. offset and n_bytes are multiples of 4.
    int32_t (*read_start)(
        struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err);
    // Has the copy arrived? Never waits. OPS_FAILED with err when it never will (device lost). A ticket ends with DONE or FAILED.
    enum ops_state (*poll)(struct ops *ops, int32_t ticket, struct carat_error *err);
    // Waits until poll would not say OPS_PENDING. NULL where waiting is impossible (WebAssembly on a GPU).
    void (*wait)(struct ops *ops, int32_t ticket);
    // Hands what is queued to the device.
    void (*submit)(struct ops *ops);

    // --- weights ------------------------------------------------------------------------------------------------------------

    // Decides where a weight lives and makes room. `mapped` = its bytes when the file is addressable (they stay valid), else
    // NULL. After it home is WEIGHT_HOST with host == mapped (nothing to do), WEIGHT_HOST or WEIGHT_DEVICE with room to be filled
    // by weight_write, or WEIGHT_DISK when may_stay_on_disk is true and the backend prefers that.
    bool (*weight_place)(
        struct ops *ops, struct weight *weight, const void *mapped, bool may_stay_on_disk, struct carat_error *err);
    // Fills n_bytes at `offset` of a weight with bytes of the file. In order, in pieces; offset and n_bytes are multiples of 4
    // but for the end of the weight.
    bool (*weight_write)(
        struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err);
    void (*weight_free)(struct ops *ops, struct weight *weight); // becomes WEIGHT_UNPLACED
    // All weights are written: last chance to rearrange them on the device.
    bool (*weights_ready)(struct ops *ops, struct carat_error *err);

    // --- the text model -----------------------------------------------------------------------------------------------------

    // out[i] = dequantise(row ids[i] of table) * scale. out [n, table.n_in].
    void (*embed)(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out);

    // rows[i] of dst from first_dst on = rows of src from first_src on. Same n_cols. Also for i32.
    void (*copy_rows)(
        struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows);

    // Per-layer inputs (E2B, E4B). x [n, d] is the input of layer 0; `rows` [n, n_layers * width] are the rows of the per-layer
    // table already scaled by sqrt(width). out [n, n_layers * width]:
    // out[l] = (RMS((projection . x)[l] / sqrt(d), norm) + rows[l]) / sqrt(2). out may be `rows` itself.
    void (*per_layer_inputs)(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
        const struct weight *norm, float eps, int32_t n_layers, struct tensor out);

    // Settles the stream; m = RMS(x, norm); out [n, sum of n_out] = the parts' products with m side by side. norm NULL: m = x.
    void (*norm_project)(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
        int n_parts, struct tensor out);

    // Attention. qkv [n, (n_heads + 2 or 1 or 0 times n_kv_heads) * head_dim] raw projections; out [n, n_heads * head_dim].
    // Query heads are normed (q_norm) and rotated, keys likewise with k_norm, values normed without a weight; keys and values are
    // stored in slots (first_position + i) % capacity before any query looks. Scale 1, softmax in f32. Query head h uses key head
    // h / (n_heads / n_kv_heads). May change qkv. With n_heads 0 keys and values are stored and nothing else happens: qkv holds
    // k, v (or k), out is not looked at.
    void (*attend)(struct ops *ops, struct tensor qkv, const struct attention *attention, struct tensor out);

    // out [n, n_out] = linear(in).
    void (*project)(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out);

    // Settles the stream; m = RMS(x, norm); out [n, n_ff] = activation(gate m) * (up m).
    void (*norm_gated)(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
        const struct linear *up, enum activation activation, struct tensor out);

    // Settles the stream; out [n, width] = gelu_tanh(gate . x) * per_layer[:, layer * width ...]. per_layer [n, n_layers *
    // width].
    void (*per_layer_gate)(struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer,
        int32_t layer, struct tensor out);

    // Once the weights are there: multiplies gate and down into each other (gate . diag(norm) . down), and next and proj, where
    // that is possible and makes decoding faster; else end->folded stays NULL. False when there is no room for it. `unfold` frees
    // what was made. NULL: the backend does no such thing.
    bool (*fold)(struct ops *ops, struct layer_end *end);
    void (*unfold)(struct ops *ops, struct layer_end *end);

    // The end of a layer for one row, with what `fold` has made and without adapters. Settles the stream; x += RMS(down . in,
    // norm); out [1, d] = proj . (gelu_tanh(gate . x) * per_layer[layer * P ...]). Needs the stream's `spare`.
    void (*finish_layer)(struct ops *ops, struct stream *stream, const struct layer_end *end, struct tensor in,
        struct tensor per_layer, int32_t layer, struct tensor out);

    // Mixture of experts on the settled stream value h (the stream must have no pending term): router, top n_used, weighted sum
    // of the experts of RMS(h, pre_norm). out [n, d].
    void (*experts)(struct ops *ops, struct tensor h, const struct experts *experts, struct tensor out);

    // out = RMS(a, a_norm) + RMS(b, b_norm). All [n, d]. out may be a or b.
    void (*add_norms)(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
        float eps, struct tensor out);

    // Settles the stream: afterwards x holds its value.
    void (*settle)(struct ops *ops, struct stream *stream);

    // Settles the stream; out [n, d] = RMS(x, norm): the final hidden state.
    void (*norm)(struct ops *ops, struct stream *stream, const struct weight *norm, struct tensor out);

    // logits [n, n_vocab] = cap * tanh(table . in / cap), cap 0: none. in [n, d] normed. Ids in `suppressed` get -infinity-like
    // -3.0e38.
    void (*head)(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
        int n_suppressed, struct tensor logits);

    // The next three choose among the logits of row `row`. A NaN or +infinity there is never chosen: the next read or poll fails
    // with CARAT_BAD_NUMBER, or the (first) id is negative.

    // Greedy choice: id [1, 1] i32 = index of the largest logit, the lowest index among equals.
    void (*argmax)(struct ops *ops, struct tensor logits, int32_t row, struct tensor id);

    // The k largest logits, descending, ties by lower id. out [1, 2 * k + 2]: k ids (as i32 bits), k logits, then
    // the largest logit and log(sum(exp(logit - largest))) over the whole row. k <= 256.
    void (*top_k)(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out);

    // Draws a token as the sampler does it: biases, penalties over the window, temperature, top-k, top-p and min-p, the draw.
    // id [1, 1] i32; it also enters the window, so that the next draw may follow before the host has seen this one. The row's
    // logits may change; those below -1e38 are forbidden: whatever is added, they are not drawn. A negative id when all are.
    // NULL: the backend leaves it to the sampler.
    void (*draw)(struct ops *ops, struct tensor logits, int32_t row, const struct draw *draw, struct tensor id);

    void (*free)(struct ops *ops);
};

#endif
