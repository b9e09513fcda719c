// sampler.h: choosing the next token from logits.
//
// Order of the steps: mask (suppressed ids, logit bias, grammar), penalties over the recent tokens (each distinct token once, in
// greedy mode too), temperature, top-k, then top-p and min-p, both judged on the distribution that top-k left, then the draw.
// Temperature 0 takes the largest logit. Of equal logits the lower id comes first.
// The same parameters, seed, history and logits give the same token.

#ifndef CARAT_TEXT_SAMPLER_H
#define CARAT_TEXT_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct sampler_bias {
    int32_t id;
    float value; // added to the logit; -INFINITY forbids the id
};

struct sampler_params {
    float temperature;               // <= 0: greedy
    int32_t top_k;                   // <= 0: off
    float top_p;                     // >= 1: off; the smallest set of tokens that holds this much probability
    float min_p;                     // <= 0: off; keeps tokens of at least min_p times the largest probability
    float repetition_penalty;        // 1: off; positive logits are divided by it, negative multiplied
    float presence_penalty;          // subtracted once from the logit of a token in the window
    float frequency_penalty;         // subtracted for each time the token is in the window
    int32_t penalty_window;          // tokens looked back on; 0: none
    const struct sampler_bias *bias; // [n_bias], copied
    size_t n_bias;
    uint64_t seed; // 0: the start state of the original, 0x00C0FFEE5E7D
    bool raw_seed; // the seed is the RNG's first state itself, as in the original; else it is mixed, so that seeds 1, 2, 3 differ
};

enum { SAMPLER_MAX_WINDOW = 1 << 20, SAMPLER_MAX_TOP = 256 };

// Gemma 4's recommendation: temperature 1.0, top-k 64, top-p 0.95, no penalties, window 64.
struct sampler_params sampler_defaults(void);
// The original system's: temperature 0.7, top-k 40, top-p 0.95, repetition penalty 1.0, window 64.
struct sampler_params sampler_original_defaults(void);
// Always the largest logit.
struct sampler_params sampler_greedy(void);

struct sampler;

// n_vocab: length of the logits. suppressed: ids that are never chosen (copied).
// Fails with CARAT_BAD_ARGUMENT naming a parameter that is not a number or out of range.
struct sampler *sampler_new(int32_t n_vocab, const struct sampler_params *params, const int32_t *suppressed, size_t n_suppressed,
    struct carat_error *err);
void sampler_free(struct sampler *sampler);

// Other parameters for the same stream of tokens: the history stays (the last penalty_window tokens of it); the RNG restarts
// unless params->seed is 0. On failure nothing changes.
bool sampler_set(struct sampler *sampler, const struct sampler_params *params, struct carat_error *err);

// Empties the history; the RNG runs on.
void sampler_reset(struct sampler *sampler);

// A token became part of the sequence: it enters the penalty history. sampler_sample does not do this by itself.
void sampler_accept(struct sampler *sampler, int32_t id);

// Sees the logits [n_vocab] before everything else, e.g. to set those a grammar forbids to -INFINITY. NULL: none.
typedef bool sampler_mask(void *context, float *logits, int32_t n_vocab, struct carat_error *err);
void sampler_set_mask(struct sampler *sampler, sampler_mask *mask, void *context);

struct sampler_candidate {
    int32_t id;
    float value; // a logit on input; a log-probability in a report
};

// What the API calls logprobs: natural logarithms of the softmax over the logits after the mask, before penalties and
// temperature.
struct sampler_report {
    float logprob;                 // of the chosen token
    struct sampler_candidate *top; // [n_top] room for the most probable tokens, descending; may be NULL with n_top 0
    int32_t n_top;                 // wanted, at most SAMPLER_MAX_TOP; on return the number given
};

// Chooses from logits [n_vocab], which are overwritten. report may be NULL.
// Fails with CARAT_BAD_NUMBER when a logit is NaN or +infinity, or when every token is forbidden.
bool sampler_sample(struct sampler *sampler, float *logits, int32_t *id, struct sampler_report *report, struct carat_error *err);

// The same when only the largest logits were delivered: n candidates in any order, overwritten. log_sum_exp is the logarithm of
// the sum of exp over all logits that may be chosen, for the report; NAN when unknown (then the report is relative to the
// candidates). Exact as long as n >= sampler_candidates_needed(). Fails with CARAT_BAD_ARGUMENT when a mask is set.
bool sampler_sample_candidates(struct sampler *sampler, struct sampler_candidate *candidates, int32_t n, float log_sum_exp,
    int32_t *id, struct sampler_report *report, struct carat_error *err);

// How many candidates sampler_sample_candidates needs to be exact, given the parameters and the history; n_vocab when only all
// logits will do (top_k off, logit bias that raises, a mask, repetition penalty below 1 ...).
int32_t sampler_candidates_needed(const struct sampler *sampler);

// --- choices that are made elsewhere (draw in src/ops/ops.h) as this sampler would make them

const struct sampler_params *sampler_get(const struct sampler *sampler);

// Do the parameters change the logits of tokens in the window?
bool sampler_penalises(const struct sampler *sampler);

// The history, oldest first, into ids [penalty_window]. Returns its length.
int32_t sampler_history(const struct sampler *sampler, int32_t *ids);

// The 32 random bits that the draw after the next n_ahead ones will take. The RNG stays where it is.
uint32_t sampler_random(const struct sampler *sampler, int32_t n_ahead);

// A token was drawn elsewhere: the RNG moves on by one draw. Greedy choices take none.
void sampler_skip(struct sampler *sampler);

// --- saving and restoring

// State, little-endian, in the original's layout: rng u64, seed u64, temperature f32, top_k u32, top_p f32, repetition f32,
// window u32, history length u32, ids u32[] (oldest first). With `extended` carat's own fields follow: min_p f32, presence f32,
// frequency f32, raw_seed u32, number of biases u32, each id u32 and value f32. Returns the bytes needed; writes them if capacity
// suffices.
size_t sampler_dump(const struct sampler *sampler, bool extended, void *bytes, size_t capacity);

// Takes either layout; what it does not hold is off afterwards. On failure (CARAT_BAD_FILE) the sampler is unchanged.
bool sampler_restore(struct sampler *sampler, const void *bytes, size_t n_bytes, struct carat_error *err);

#endif
