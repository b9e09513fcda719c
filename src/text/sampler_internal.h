// sampler_internal.h: the sampler's state. For the sampler's own files only.

#ifndef CARAT_TEXT_SAMPLER_INTERNAL_H
#define CARAT_TEXT_SAMPLER_INTERNAL_H

#include "text/sampler.h"

#define SAMPLER_START_STATE 0x00C0FFEE5E7Du

struct sampler {
    int32_t n_vocab;
    struct sampler_params params; // params.bias points to `bias`
    struct sampler_bias *bias;    // [params.n_bias]
    int32_t *suppressed;          // [n_suppressed]
    size_t n_suppressed;
    uint64_t rng;     // xorshift64, never 0
    int32_t *history; // ring [params.penalty_window]
    int32_t n_history;
    int32_t newest;  // where in the ring the next token goes
    float *saved;    // [penalty_window] logits before penalties, beside the first place of their id in the history
    int32_t *counts; // [n_vocab] how often each id stands in the ring
    sampler_mask *mask;
    void *mask_context;
    float *maxima;                        // [select_blocks(n_vocab)]
    struct sampler_candidate *candidates; // [n_candidates] room for the selection
    int32_t n_candidates;
};

bool sampler_check_params(const struct sampler_params *params, int32_t n_vocab, struct carat_error *err);

// Replaces parameters and history (oldest first) at once; the RNG stays. On failure nothing changes.
bool sampler_replace(struct sampler *sampler, const struct sampler_params *params, const int32_t *history, int32_t n_history,
    struct carat_error *err);

// The i-th token of the history, 0 the oldest.
static inline int32_t sampler_history_at(const struct sampler *sampler, int32_t i)
{
    int32_t window = sampler->params.penalty_window;
    return sampler->history[(sampler->newest - sampler->n_history + i + window) % window];
}

#endif
