// text.h: the forward pass of the Gemma 4 text model.
//
// A context holds all memory that a pass needs, taken once for the largest batch; a pass allocates nothing. A pass takes n
// positions that follow the committed ones of a sequence (kv_cache.h), adds their keys and values, and gives logits for the last
// rows, as many as are asked for. Nothing here waits: what a pass computes is queued on the backend, and results are fetched with
// read_start. Several sequences may use one context in turn.
//
// Rows without logits go no further than the keys and values of the last layer that owns some: whatever comes after would feed
// nothing but their own logits.

#ifndef CARAT_MODEL_TEXT_H
#define CARAT_MODEL_TEXT_H

#include "model/kv_cache.h"
#include "model/weights.h"

// Embeddings of an image or a sound that stand in for the ids of n_rows positions.
struct soft_run {
    int32_t row;        // first row of the batch
    int32_t n_rows;     //
    struct tensor rows; // [at least first_row + n_rows, d], used as they are
    int32_t first_row;  // in `rows`
    bool is_image;      // one whole image: its positions may see each other both ways (decided by config.image_attention)
};

// Told about intermediate values while a pass runs; `rows` holds the value at that place in the queue, so a reading must be
// started before returning. name: "embed", "ple" (per-layer inputs, [n, P L]), "layer" (output of layer `layer`, scale included),
// "norm".
typedef void text_capture(void *context, const char *name, int32_t layer, struct tensor rows);

struct text_batch {
    int32_t n;                   // positions, kv->n_committed and the following
    const int32_t *ids;          // [n]; those of soft rows are ignored. NULL: the ids are on the device
    struct tensor device_ids;    // i32 [n, 1], used when ids is NULL; they must lie in the vocabulary
    const struct soft_run *soft; // by rising row, not overlapping
    int32_t n_soft;
    int32_t n_logits; // 0 .. n: logits of the last n_logits rows
    text_capture *capture;
    void *capture_context;
};

struct text_options {
    int32_t max_batch;  // largest n
    int32_t max_logits; // largest n_logits
    bool run_all_rows;  // rows without logits go through all layers too; only to prove that it makes no difference
};

struct text_context {
    struct ops *ops;
    const struct gemma4_text *text;
    struct text_options options;
    uint64_t n_bytes; // on the backend

    // Results of the last pass; n_rows is its n_logits.
    struct tensor logits; // [max_logits, V] after the softcap, suppressed ids at -3e38
    struct tensor hidden; // [max_logits, d] after the final norm

    // Scratch, [max_batch, ...]
    struct tensor x, spare, term;  // [d]
    struct tensor qkv;             // widest layer's q, k, v
    struct tensor heads;           // widest layer's H hd
    struct tensor gated;           // widest feed-forward
    struct tensor experts;         // [d], none without experts
    struct tensor per_layer;       // [P L], the next three none without per-layer embeddings
    struct tensor per_layer_tail;  // [max_logits, P L]
    struct tensor per_layer_gated; // [P]

    struct buffer *inputs; // ids, positions' cosines and sines, last keys
    void *staging;         // the same on the host
    uint64_t staging_bytes;
    void *table_row;     // one row of the per-layer table as in the file, when it stays on disk
    float *table_values; // the same in f32
};

// Bytes that a context takes on the backend.
uint64_t text_context_bytes(const struct gemma4_text *text, const struct text_options *options);

// The text's weights must be loaded and ready. text and ops must stay.
struct text_context *text_context_new(
    struct ops *ops, const struct gemma4_text *text, const struct text_options *options, struct carat_error *err);
void text_context_free(struct text_context *context); // NULL is allowed

// Queues the pass and commits the positions to kv. On failure nothing is committed: CARAT_CONTEXT_FULL when kv has no room,
// CARAT_BAD_ARGUMENT for a batch that breaks the rules above, CARAT_IO when the table on disk cannot be read.
bool text_forward(struct text_context *context, struct kv_cache *kv, const struct text_batch *batch, struct carat_error *err);

#endif
