// adapter.c: from the matrices of a file to pairs on the backend, attached to the projections of a model.

#include "lora/adapter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "lora/adapter_internal.h"

struct bound_pair {
    struct lora_pair pair;
    struct linear *linear; // NULL: it has no effect
    double scale;          // of the file
    const char *target;    // the weight's name
};

struct adapter {
    struct ops *ops;
    struct bound_pair *pairs;
    int32_t n_pairs;
    uint64_t n_bytes;
    uint64_t digest; // without the strength
    float strength;
    bool attached;
    char notice[256];
};

bool adapter_add_half(struct adapter_parts *parts, const char *target, bool is_b, const void *matrix, const uint64_t shape[2],
    struct carat_error *err)
{
    size_t i = 0;
    while (i < parts->n && strcmp(parts->items[i].target, target) != 0)
        i++;
    if (i == parts->n) {
        if (parts->n == parts->capacity) {
            size_t capacity = parts->capacity != 0 ? 2 * parts->capacity : 64;
            struct adapter_part *items = realloc(parts->items, capacity * sizeof *items);
            if (items == NULL)
                return fail(err, CARAT_NO_MEMORY, "no memory for the list of the adapter's matrices");
            parts->items = items;
            parts->capacity = capacity;
        }
        parts->items[parts->n] = (struct adapter_part){.scale = 1};
        snprintf(parts->items[parts->n++].target, sizeof parts->items[0].target, "%s", target);
    }
    struct adapter_part *part = &parts->items[i];
    if ((is_b ? part->b : part->a) != NULL)
        return fail(err, CARAT_BAD_FILE, "the adapter has two matrices %s for '%s'", is_b ? "B" : "A", target);
    *(is_b ? &part->b : &part->a) = matrix;
    memcpy(is_b ? part->b_shape : part->a_shape, shape, sizeof part->a_shape);
    return true;
}

static bool check_part(const struct adapter_part *part, const struct weight *weight, struct carat_error *err)
{
    if (part->a == NULL || part->b == NULL)
        return fail(err, CARAT_BAD_FILE, "the adapter has no matrix %s for '%s'", part->a == NULL ? "A" : "B", part->target);
    uint64_t rank = part->a_shape[0];
    if (rank < 1 || rank > ADAPTER_MAX_RANK || part->b_shape[1] != rank)
        return fail(err, CARAT_BAD_FILE,
            "the adapter's matrices for '%s' have the ranks %llu and %llu; they must be equal and at most %d", part->target,
            (unsigned long long)rank, (unsigned long long)part->b_shape[1], ADAPTER_MAX_RANK);
    if (part->a_shape[1] != (uint64_t)weight->n_in || part->b_shape[0] != (uint64_t)weight->n_out)
        return fail(err, CARAT_BAD_FILE,
            "the adapter's pair for '%s' maps %llu to %llu elements, but the model's projection maps %d to %d: it was made for "
            "another model",
            part->target, (unsigned long long)part->a_shape[1], (unsigned long long)part->b_shape[0], weight->n_in,
            weight->n_out);
    return true;
}

static bool upload(struct adapter *adapter, const struct adapter_parts *parts, const struct adapter_part *part,
    const void *matrix, struct tensor *tensor, struct carat_error *err)
{
    uint64_t n = (uint64_t)tensor->n_rows * (uint64_t)tensor->n_cols;
    float *values = malloc((size_t)n * sizeof *values);
    if (values == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the adapter's pair for '%s'", part->target);
    bool done = parts->read(parts->file, matrix, values, n, err);
    for (uint64_t i = 0; done && i < n; i++)
        done = isfinite(values[i]) ||
               fail(err, CARAT_BAD_FILE, "the adapter's pair for '%s' holds numbers that are not finite", part->target);
    if (done) {
        tensor->buffer = adapter->ops->buffer_new(adapter->ops, n * 4, err);
        done = tensor->buffer != NULL;
    }
    if (done) {
        adapter->ops->write(adapter->ops, tensor->buffer, 0, values, n * 4);
        adapter->n_bytes += n * 4;
        adapter->digest = hash_bytes(adapter->digest, values, (size_t)n * 4);
    }
    free(values);
    return done;
}

// Keys and values of layers that share them are never computed, so adapting them means nothing.
static bool has_no_effect(const struct gemma4_text *text, const char *target)
{
    int layer, n = 0;
    if (sscanf(target, "blk.%d.%n", &layer, &n) != 1 || n == 0)
        return false;
    return layer >= text->config.n_kv_layers && layer < text->config.n_layers &&
           (strcmp(target + n, "attn_k.weight") == 0 || strcmp(target + n, "attn_v.weight") == 0);
}

static bool bind(struct adapter *adapter, struct gemma4_text *text, const struct adapter_parts *parts, struct carat_error *err)
{
    int n_ignored = 0;
    adapter->pairs = calloc(parts->n != 0 ? parts->n : 1, sizeof *adapter->pairs);
    if (adapter->pairs == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the adapter");
    for (size_t i = 0; i < parts->n; i++) {
        const struct adapter_part *part = &parts->items[i];
        struct linear *linear = gemma4_find_linear(text, part->target);
        if (linear == NULL && has_no_effect(text, part->target)) {
            n_ignored++;
            continue;
        }
        if (linear == NULL)
            return fail(err, CARAT_BAD_FILE,
                "the adapter changes '%s', which this model does not have: it was made for another model", part->target);
        if (!check_part(part, &linear->weight, err))
            return false;
        struct bound_pair *bound = &adapter->pairs[adapter->n_pairs++];
        *bound = (struct bound_pair){.linear = linear, .scale = part->scale, .target = linear->weight.name};
        adapter->digest = hash_bytes(adapter->digest, part->target, strlen(part->target));
        adapter->digest = hash_bytes(adapter->digest, &part->scale, sizeof part->scale);
        int32_t rank = (int32_t)part->a_shape[0];
        bound->pair.a = (struct tensor){.n_rows = rank, .n_cols = linear->weight.n_in};
        bound->pair.b = (struct tensor){.n_rows = linear->weight.n_out, .n_cols = rank};
        if (!upload(adapter, parts, part, part->a, &bound->pair.a, err) ||
            !upload(adapter, parts, part, part->b, &bound->pair.b, err))
            return false;
    }
    if (adapter->n_pairs == 0)
        return fail(err, CARAT_BAD_FILE, "the adapter changes nothing in this model");
    if (n_ignored > 0)
        snprintf(adapter->notice, sizeof adapter->notice,
            "%d pairs of the adapter belong to keys and values that layers %d and up take from others; they have no effect",
            n_ignored, text->config.n_kv_layers);
    return true;
}

static bool load_parts(
    struct ops *ops, struct gemma4_text *text, const struct adapter_parts *parts, struct adapter **out, struct carat_error *err)
{
    struct adapter *adapter = calloc(1, sizeof *adapter);
    if (adapter == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the adapter");
    adapter->ops = ops;
    adapter->digest = HASH_START;
    if (!bind(adapter, text, parts, err)) {
        adapter_free(adapter);
        return false;
    }
    *out = adapter;
    return true;
}

// A view of a source that can be closed without closing the source itself.
static bool read_through(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    return gguf_source_read(context, offset, dst, n_bytes, err);
}

bool adapter_load(struct ops *ops, struct gemma4_text *text, struct gguf_source *weights, const char *config, size_t n_config,
    struct adapter **out, struct carat_error *err)
{
    struct gguf_file *gguf = NULL;
    struct safetensors_file *safetensors = NULL;
    struct adapter_parts parts = {0};
    char magic[4];
    *out = NULL;
    if (!gguf_source_read(weights, 0, magic, sizeof magic, err))
        return false;
    struct gguf_source *through = gguf_source_callback(read_through, weights, weights->n_bytes, weights->name, err);
    if (through == NULL)
        return false;
    bool done;
    if (memcmp(magic, "GGUF", 4) == 0) {
        done = gguf_open(&through, 1, &gguf, err);
        done = done && adapter_parts_of_gguf(gguf, &parts, err);
    } else {
        done = safetensors_open(through, &safetensors, err);
        done = done && adapter_parts_of_safetensors(safetensors, config, n_config, &parts, err);
    }
    done = done && load_parts(ops, text, &parts, out, err);
    free(parts.items);
    if (gguf == NULL && safetensors == NULL)
        gguf_source_close(through);
    gguf_close(gguf);
    safetensors_close(safetensors);
    return done;
}

void adapter_attach(struct adapter *adapter, float strength)
{
    adapter_detach(adapter);
    for (int32_t i = 0; i < adapter->n_pairs; i++) {
        struct bound_pair *bound = &adapter->pairs[i];
        struct lora_pair **end = &bound->linear->adapters;
        while (*end != NULL)
            end = &(*end)->next;
        bound->pair.scale = (float)(bound->scale * strength);
        bound->pair.next = NULL;
        *end = &bound->pair;
    }
    adapter->strength = strength;
    adapter->attached = true;
}

void adapter_detach(struct adapter *adapter)
{
    for (int32_t i = 0; adapter->attached && i < adapter->n_pairs; i++) {
        struct bound_pair *bound = &adapter->pairs[i];
        struct lora_pair **at = &bound->linear->adapters;
        while (*at != &bound->pair)
            at = &(*at)->next;
        *at = bound->pair.next;
    }
    adapter->attached = false;
}

void adapter_free(struct adapter *adapter)
{
    if (adapter == NULL)
        return;
    adapter_detach(adapter);
    for (int32_t i = 0; i < adapter->n_pairs; i++) {
        adapter->ops->buffer_free(adapter->ops, adapter->pairs[i].pair.a.buffer);
        adapter->ops->buffer_free(adapter->ops, adapter->pairs[i].pair.b.buffer);
    }
    free(adapter->pairs);
    free(adapter);
}

int32_t adapter_pair_count(const struct adapter *adapter)
{
    return adapter->n_pairs;
}

uint64_t adapter_bytes(const struct adapter *adapter)
{
    return adapter->n_bytes;
}

uint64_t adapter_digest(const struct adapter *adapter)
{
    return hash_bytes(adapter->digest, &adapter->strength, sizeof adapter->strength);
}

const char *adapter_notice(const struct adapter *adapter)
{
    return adapter->notice;
}

const struct lora_pair *adapter_pair(const struct adapter *adapter, int32_t i, const char **target)
{
    if (target != NULL)
        *target = adapter->pairs[i].target;
    return &adapter->pairs[i].pair;
}
