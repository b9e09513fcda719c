// sampler_state.c: a sampler's state as bytes. The layout stands in sampler.h.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "text/sampler_internal.h"

enum { BASE_BYTES = 8 + 8 + 4 * 6, EXTENSION_BYTES = 4 * 5, BIAS_BYTES = 8 };

static uint8_t *store_f32(uint8_t *at, float value)
{
    return store_u32(at, f32_bits(value));
}

size_t sampler_dump(const struct sampler *s, bool extended, void *bytes, size_t capacity)
{
    const struct sampler_params *p = &s->params;
    size_t n_bytes = BASE_BYTES + 4 * (size_t)s->n_history + (extended ? EXTENSION_BYTES + BIAS_BYTES * p->n_bias : 0);
    if (n_bytes > capacity)
        return n_bytes;
    uint8_t *at = store_u64(store_u64(bytes, s->rng), p->seed);
    at = store_f32(at, p->temperature);
    at = store_u32(at, p->top_k > 0 ? (uint32_t)p->top_k : 0);
    at = store_f32(at, p->top_p);
    at = store_f32(at, p->repetition_penalty);
    at = store_u32(at, (uint32_t)p->penalty_window);
    at = store_u32(at, (uint32_t)s->n_history);
    for (int32_t i = 0; i < s->n_history; i++)
        at = store_u32(at, (uint32_t)sampler_history_at(s, i));
    if (!extended)
        return n_bytes;
    at = store_f32(at, p->min_p);
    at = store_f32(at, p->presence_penalty);
    at = store_f32(at, p->frequency_penalty);
    at = store_u32(at, p->raw_seed);
    at = store_u32(at, (uint32_t)p->n_bias);
    for (size_t i = 0; i < p->n_bias; i++)
        at = store_f32(store_u32(at, (uint32_t)p->bias[i].id), p->bias[i].value);
    return n_bytes;
}

// --- restoring ---

static bool bad(struct carat_error *err, const char *what)
{
    return fail(err, CARAT_BAD_FILE, "the sampler's saved state is damaged: %s", what);
}

static bool read_history(const struct sampler *s, const uint8_t *bytes, uint32_t n, int32_t *history, struct carat_error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = load_u32(bytes + 4 * (size_t)i);
        if (id >= (uint32_t)s->n_vocab)
            return bad(err, "its history names a token outside the vocabulary");
        history[i] = (int32_t)id;
    }
    return true;
}

static void read_extension(const uint8_t *at, struct sampler_params *p, struct sampler_bias *bias)
{
    p->min_p = f32_from_bits(load_u32(at));
    p->presence_penalty = f32_from_bits(load_u32(at + 4));
    p->frequency_penalty = f32_from_bits(load_u32(at + 8));
    p->raw_seed = load_u32(at + 12) != 0;
    at += EXTENSION_BYTES;
    for (size_t i = 0; i < p->n_bias; i++, at += BIAS_BYTES)
        bias[i] = (struct sampler_bias){(int32_t)load_u32(at), f32_from_bits(load_u32(at + 4))};
    p->bias = bias;
}

static bool restore(
    struct sampler *s, const uint8_t *bytes, uint32_t n_history, struct sampler_params *p, bool extended, struct carat_error *err)
{
    int32_t *history = malloc(((size_t)n_history + 1) * sizeof *history);
    struct sampler_bias *bias = malloc((p->n_bias + 1) * sizeof *bias);
    bool ok = history != NULL && bias != NULL;
    if (!ok)
        fail(err, CARAT_NO_MEMORY, "not enough memory for the sampler");
    ok = ok && read_history(s, bytes + BASE_BYTES, n_history, history, err);
    if (ok && extended)
        read_extension(bytes + BASE_BYTES + 4 * (size_t)n_history, p, bias);
    struct carat_error reason;
    if (ok && !sampler_replace(s, p, history, (int32_t)n_history, &reason))
        ok = reason.code == CARAT_NO_MEMORY ? fail(err, reason.code, "%s", reason.message) : bad(err, reason.message);
    free(history);
    free(bias);
    return ok;
}

bool sampler_restore(struct sampler *s, const void *bytes, size_t n_bytes, struct carat_error *err)
{
    const uint8_t *at = bytes;
    if (n_bytes < BASE_BYTES)
        return bad(err, "it is too short");
    uint64_t rng = load_u64(at);
    uint32_t top_k = load_u32(at + 20);
    uint32_t window = load_u32(at + 32);
    uint32_t n_history = load_u32(at + 36);
    if (rng == 0)
        return bad(err, "its random state is zero");
    if (top_k > INT32_MAX || window > SAMPLER_MAX_WINDOW)
        return bad(err, "its top_k or its window is too large");
    if (n_history > (n_bytes - BASE_BYTES) / 4)
        return bad(err, "it is shorter than its history");
    struct sampler_params params = {.seed = load_u64(at + 8),
        .temperature = f32_from_bits(load_u32(at + 16)),
        .top_k = (int32_t)top_k,
        .top_p = f32_from_bits(load_u32(at + 24)),
        .repetition_penalty = f32_from_bits(load_u32(at + 28)),
        .penalty_window = (int32_t)window,
        .raw_seed = true};
    size_t rest = n_bytes - BASE_BYTES - 4 * (size_t)n_history;
    bool extended = rest != 0;
    if (extended && rest < EXTENSION_BYTES)
        return bad(err, "its length is wrong");
    if (extended) {
        params.n_bias = load_u32(at + n_bytes - rest + 16);
        if (params.n_bias != (rest - EXTENSION_BYTES) / BIAS_BYTES || (rest - EXTENSION_BYTES) % BIAS_BYTES != 0)
            return bad(err, "its length is wrong");
    }
    if (!restore(s, at, n_history, &params, extended, err))
        return false;
    s->rng = rng;
    return true;
}
