// step.h: the original system's token loop: one token in, the next one out, with a sampler that lives as long as the session.

#ifndef CARAT_WASM_STEP_H
#define CARAT_WASM_STEP_H

#include "engine/session.h"

struct stepper;

// The sampler starts with the original's defaults. The session must outlive the stepper and generate nothing else meanwhile.
struct stepper *stepper_new(struct carat_session *session, struct carat_error *err);
void stepper_free(struct stepper *stepper); // NULL is allowed

// Original defaults where NULL. A seed of 0 lets the random numbers run on.
bool stepper_set_sampling(struct stepper *stepper, const struct sampler_params *params, struct carat_error *err);

// Position 0, empty penalty history; the random numbers run on.
void stepper_reset(struct stepper *stepper);

// What saving and restoring a session takes along.
struct sampler *stepper_sampler(struct stepper *stepper);

// Feeds a token, or one soft token (d floats, not seen by the sampler) when id is -1. stepper_poll then gives the sampled next
// id.
bool stepper_begin(struct stepper *stepper, int32_t id, const float *soft, struct carat_error *err);
enum carat_status stepper_poll(struct stepper *stepper, int32_t *next, struct carat_error *err); // DONE, PENDING or FAILED

#endif
