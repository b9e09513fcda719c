// kv_cache.c: memory of keys and values, and what of it is readable.

#include "model/kv_cache.h"

#include <assert.h>
#include <stdlib.h>

static int32_t ring_capacity(const struct gemma4_config *config, const struct kv_options *options)
{
    int64_t ring = (int64_t)config->window - 1 + options->max_batch + options->n_rewind;
    return ring < options->n_context ? (int32_t)ring : options->n_context;
}

static uint64_t layer_bytes(const struct gemma4_config *config, int32_t l, int32_t capacity, bool is_f32)
{
    return (uint64_t)capacity * (uint64_t)gemma4_kv_row_elems(config, l) * (is_f32 ? 4 : 2);
}

uint64_t kv_cache_bytes(const struct gemma4_config *config, const struct kv_options *options, uint64_t *sliding, uint64_t *global)
{
    uint64_t sums[2] = {0, 0};
    for (int32_t l = 0; l < config->n_kv_layers; l++) {
        bool slides = config->layers[l].sliding;
        int32_t capacity = slides ? ring_capacity(config, options) : options->n_context;
        sums[slides] += 2 * layer_bytes(config, l, capacity, options->is_f32);
    }
    if (sliding != NULL)
        *sliding = sums[true];
    if (global != NULL)
        *global = sums[false];
    return sums[0] + sums[1];
}

static bool make_layer(struct kv_cache *kv, int32_t l, bool is_f32, struct carat_error *err)
{
    struct kv_layer *layer = &kv->layers[l];
    int32_t capacity = kv->config->layers[l].sliding ? kv->ring : kv->n_context;
    uint64_t n_bytes = layer_bytes(kv->config, l, capacity, is_f32);
    *layer = (struct kv_layer){
        .k = kv->ops->buffer_new(kv->ops, n_bytes, err),
        .capacity = capacity,
        .row_elems = gemma4_kv_row_elems(kv->config, l),
        .is_f32 = is_f32,
    };
    if (layer->k != NULL)
        layer->v = kv->ops->buffer_new(kv->ops, n_bytes, err);
    return layer->v != NULL || fail_in(err, "keys and values of layer %d for %d positions", l, capacity);
}

static bool check_options(const struct kv_options *options, struct carat_error *err)
{
    if (options->n_context < 1 || options->n_context > GEMMA4_MAX_POSITIONS)
        return fail(err, CARAT_BAD_ARGUMENT, "a context of %d positions is not possible, between 1 and %d are",
            options->n_context, GEMMA4_MAX_POSITIONS);
    if (options->max_batch < 1 || options->max_batch > GEMMA4_MAX_POSITIONS || options->n_rewind < 0 ||
        options->n_rewind > GEMMA4_MAX_POSITIONS)
        return fail(err, CARAT_BAD_ARGUMENT, "a batch of %d positions with %d to go back is not possible", options->max_batch,
            options->n_rewind);
    return true;
}

struct kv_cache *kv_cache_new(
    struct ops *ops, const struct gemma4_config *config, const struct kv_options *options, struct carat_error *err)
{
    if (!check_options(options, err))
        return NULL;
    struct kv_cache *kv = calloc(1, sizeof *kv);
    struct kv_layer *layers = calloc((size_t)config->n_layers, sizeof *layers);
    if (kv == NULL || layers == NULL) {
        free(layers);
        free(kv);
        fail(err, CARAT_NO_MEMORY, "no memory for the list of keys and values");
        return NULL;
    }
    *kv = (struct kv_cache){
        .ops = ops,
        .config = config,
        .layers = layers,
        .n_context = options->n_context,
        .max_batch = options->max_batch,
        .ring = ring_capacity(config, options),
        .n_bytes = kv_cache_bytes(config, options, NULL, NULL),
    };
    for (int32_t l = 0; l < config->n_kv_layers; l++) {
        if (!make_layer(kv, l, options->is_f32, err)) {
            kv_cache_free(kv);
            return NULL;
        }
    }
    return kv;
}

void kv_cache_free(struct kv_cache *kv)
{
    if (kv == NULL)
        return;
    for (int32_t l = 0; l < kv->config->n_layers; l++) {
        kv->ops->buffer_free(kv->ops, kv->layers[l].k);
        kv->ops->buffer_free(kv->ops, kv->layers[l].v);
    }
    free(kv->layers);
    free(kv);
}

const struct kv_layer *kv_view(const struct kv_cache *kv, int32_t l)
{
    return &kv->layers[kv->config->layers[l].kv_owner];
}

bool kv_reserve(struct kv_cache *kv, int32_t n_new, struct carat_error *err)
{
    if (n_new < 1 || n_new > kv->max_batch)
        return fail(err, CARAT_BAD_ARGUMENT, "%d positions at once do not fit the batch size of %d", n_new, kv->max_batch);
    if (n_new > kv->n_context - kv->n_committed)
        return fail(err, CARAT_CONTEXT_FULL, "%d more positions do not fit the context: %d of %d are in use", n_new,
            kv->n_committed, kv->n_context);
    return true;
}

void kv_commit(struct kv_cache *kv, int32_t n_new)
{
    assert(n_new >= 0 && n_new <= kv->n_context - kv->n_committed);
    kv->n_committed += n_new;
    if (kv->n_written < kv->n_committed)
        kv->n_written = kv->n_committed;
}

int32_t kv_oldest_end(const struct kv_cache *kv)
{
    // A query at position n sees back to n - window + 1; slots hold positions from n_written - ring on.
    int32_t n_lost = kv->n_written - kv->ring;
    if (n_lost <= 0)
        return kv->n_committed > 0 ? 1 : 0;
    int64_t oldest = (int64_t)n_lost + kv->config->window - 1;
    return oldest < kv->n_committed ? (int32_t)oldest : kv->n_committed;
}

bool kv_truncate(struct kv_cache *kv, int32_t n, struct carat_error *err)
{
    if (n < 0 || n > kv->n_committed)
        return fail(err, CARAT_BAD_ARGUMENT, "the sequence cannot be cut to %d positions, it has %d", n, kv->n_committed);
    if (n != 0 && n < kv_oldest_end(kv))
        return fail(err, CARAT_BAD_ARGUMENT, "the sequence cannot be cut to %d positions: the windows reach back to %d only", n,
            kv_oldest_end(kv));
    kv->n_committed = n;
    if (n == 0)
        kv->n_written = 0;
    return true;
}

int32_t kv_oldest(const struct kv_cache *kv)
{
    int32_t n_lost = kv->n_written - kv->ring;
    return n_lost <= 0 ? 0 : n_lost < kv->n_committed ? n_lost : kv->n_committed;
}

void kv_adopt(struct kv_cache *kv, int32_t n, int32_t n_held)
{
    assert(n >= 0 && n <= kv->n_context && n_held <= n && n_held <= kv->ring);
    assert(n_held == n || n_held >= kv->config->window - 1);
    kv->n_committed = n;
    // As if so much had been written that just the older positions are lost.
    kv->n_written = n_held == n ? n : n - n_held + kv->ring;
}

void kv_copy(struct kv_cache *kv, const struct kv_cache *source)
{
    struct ops *ops = kv->ops;
    for (int32_t l = 0; l < kv->config->n_kv_layers; l++) {
        const struct kv_layer *to = &kv->layers[l];
        const struct kv_layer *from = &source->layers[l];
        assert(to->capacity == from->capacity && to->is_f32 == from->is_f32);
        int32_t n_rows = source->n_written < from->capacity ? source->n_written : from->capacity;
        uint64_t n_bytes = (uint64_t)n_rows * (uint64_t)from->row_elems * (from->is_f32 ? 4 : 2);
        if (n_bytes == 0)
            continue;
        ops->copy(ops, from->k, 0, to->k, 0, n_bytes);
        ops->copy(ops, from->v, 0, to->v, 0, n_bytes);
    }
    ops->submit(ops);
    kv->n_committed = source->n_committed;
    kv->n_written = source->n_written;
}
