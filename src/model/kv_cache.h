// kv_cache.h: keys and values of one sequence.
//
// Global layers keep every position. Sliding layers keep a ring of window - 1 + batch positions, since older keys can never be
// seen again. Layers that share keys and values own nothing here: their owner's are used (config.layers[l].kv_owner).
//
// Invariants: n_committed <= n_context; positions below n_committed are readable, but on sliding layers only the last
// window - 1 of them. Going back (kv_truncate) is possible as long as the ring still holds what a query at the new end sees.

#ifndef CARAT_MODEL_KV_CACHE_H
#define CARAT_MODEL_KV_CACHE_H

#include "model/config.h"
#include "ops/ops.h"

struct kv_cache {
    struct ops *ops;
    const struct gemma4_config *config;
    struct kv_layer *layers; // [n_layers], empty where a layer shares
    int32_t n_context;       // positions in all
    int32_t max_batch;       // positions that may be added at once
    int32_t ring;            // capacity of sliding layers
    int32_t n_committed;     // positions whose keys and values are there
    int32_t n_written;       // highest position ever written, plus 1: what lies ring positions below it is lost
    uint64_t n_bytes;
};

struct kv_options {
    int32_t n_context; // positions
    int32_t max_batch; // largest batch that text_forward will be given with this cache
    bool is_f32;       // 4 bytes an element instead of 2
    int32_t n_rewind;  // positions that kv_truncate can always go back by, besides those of the last batch; usually 0
};

// Bytes that kv_cache_new would take for sliding and for global layers. Either pointer may be NULL.
uint64_t kv_cache_bytes(
    const struct gemma4_config *config, const struct kv_options *options, uint64_t *sliding, uint64_t *global);

// All memory is taken here. config must stay.
struct kv_cache *kv_cache_new(
    struct ops *ops, const struct gemma4_config *config, const struct kv_options *options, struct carat_error *err);
void kv_cache_free(struct kv_cache *kv); // NULL is allowed

// The keys and values that layer l looks at.
const struct kv_layer *kv_view(const struct kv_cache *kv, int32_t l);

// Makes room for n_new positions after the committed ones. Fails with CARAT_CONTEXT_FULL, changing nothing, when they do not fit
// the context.
bool kv_reserve(struct kv_cache *kv, int32_t n_new, struct carat_error *err);

// The next n_new positions have been computed (or are queued).
void kv_commit(struct kv_cache *kv, int32_t n_new);

// The smallest n > 0 that kv_truncate accepts at present; every n from there to n_committed is accepted too, and so is 0.
int32_t kv_oldest_end(const struct kv_cache *kv);

// Forgets all positions from n on. Fails with CARAT_BAD_ARGUMENT, changing nothing, when the rings no longer hold what is needed:
// then the sequence must be computed again from the start, kv_truncate(kv, 0).
bool kv_truncate(struct kv_cache *kv, int32_t n, struct carat_error *err);

// The oldest position that every layer still holds; 0 <= it <= n_committed.
int32_t kv_oldest(const struct kv_cache *kv);

// The buffers were filled from outside: n positions are there, on sliding layers the last n_held of them, which must be as many
// as a query at position n sees.
void kv_adopt(struct kv_cache *kv, int32_t n, int32_t n_held);

// Copies the contents of a cache of the same model and the same options.
void kv_copy(struct kv_cache *kv, const struct kv_cache *source);

#endif
