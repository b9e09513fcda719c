// towers.h: eyes and ears of a model: both towers, their memory, and the soft tokens they have made.
//
// Opening reads tables only. A tower's weights are loaded when they are first needed and can be released at any time when no job
// is under way; they come back by themselves where the files can be read at once (natively), else the host executes the plan.
//
// A job turns one picture, or one piece of a sound, into soft tokens by steps that never wait: towers_step queues or computes a
// little and says whether more is to be done. A picture or sound that was seen before is answered from the cache, which is keyed
// by a hash of the content.

#ifndef CARAT_MODEL_TOWERS_H
#define CARAT_MODEL_TOWERS_H

#include "model/audio.h"
#include "model/vision.h"

enum tower_kind { TOWER_VISION, TOWER_AUDIO, TOWER_KINDS };

enum { TOWERS_CACHE_BYTES = 64 << 20 }; // soft tokens that nobody uses are kept up to this size

struct towers;
struct tower_job;

// Soft tokens in the backend's memory, shared between the cache and their users.
struct soft_tokens {
    struct tensor rows; // [N, d]
    uint64_t key[2];    // hash of the content and of how it was looked at
    int32_t n_users;    // 0: only cached
    struct soft_tokens *next;
};

// True when one of the two files holds a tower of that kind. projector may be NULL.
bool towers_present(const struct gguf_file *file, const struct gguf_file *projector, enum tower_kind kind);

// The towers of a model; d_text is the width of its text model. ops must outlive the result; the files must stay open. Works also
// when there is no tower at all.
bool towers_new(const struct gguf_file *file, const struct gguf_file *projector, enum tower_compat compat, int32_t d_text,
    struct ops *ops, struct towers **out, struct carat_error *err);
void towers_free(struct towers *towers); // NULL is allowed; jobs and soft tokens in use must be given back first

bool towers_has(const struct towers *towers, enum tower_kind kind);
uint64_t towers_weight_bytes(const struct towers *towers, enum tower_kind kind); // 0: no such tower
// Memory of the backend that a job takes while it runs.
uint64_t towers_job_bytes(const struct towers *towers, enum tower_kind kind, int32_t n_tokens);

// --- weights ---

bool towers_loaded(const struct towers *towers, enum tower_kind kind);
// Loads the weights if they are not there. For files that can be read at once; progress may be NULL.
bool towers_load(struct towers *towers, enum tower_kind kind, plan_progress *progress, void *context, struct carat_error *err);
// The plan for hosts that bring the bytes themselves: plan_place, plan_write ..., plan_finish, then towers_ready.
struct plan *towers_plan(struct towers *towers, enum tower_kind kind);
void towers_ready(struct towers *towers, enum tower_kind kind);
void towers_release(struct towers *towers, enum tower_kind kind);

// --- how many tokens ---

// Soft tokens of a picture of this size with a budget of 70, 140, 280, 560 or 1120.
bool towers_image_tokens(
    const struct towers *towers, int32_t width, int32_t height, int32_t budget, int32_t *n_tokens, struct carat_error *err);
// Pieces of a sound at 16 kHz that the tower hears one by one, and the tokens of one. The encoder-free model takes a sound
// whole. Fails when there is no ear or the sound is too short to give a token.
bool towers_audio_pieces(const struct towers *towers, int64_t n_samples, int32_t *n_pieces, struct carat_error *err);
int32_t towers_piece_tokens(const struct towers *towers, int64_t n_samples, int32_t piece);

// --- jobs ---

// The pixels (or samples) are the caller's and must stay until the job is done. The weights must be loaded unless the result is
// cached. budget 0: 280.
struct tower_job *towers_begin_image(
    struct towers *towers, const uint8_t *rgb, int32_t width, int32_t height, int32_t budget, struct carat_error *err);
struct tower_job *towers_begin_audio(
    struct towers *towers, const float *samples, int64_t n_samples, int32_t piece, struct carat_error *err);
// OPS_PENDING: call again; *done and *total tell how far it is. OPS_FAILED: with err.
enum ops_state towers_step(struct tower_job *job, int32_t *done, int32_t *total, struct carat_error *err);
// A ticket of the backend that towers_step waits for, for callers that want to sleep; -1: it has something to do.
int32_t towers_ticket(const struct tower_job *job);
// After OPS_DONE: the result, one user more. Given back with towers_drop.
struct soft_tokens *towers_result(struct tower_job *job);
// Ends a job, finished or not.
void towers_end(struct tower_job *job);                            // NULL is allowed
void towers_drop(struct towers *towers, struct soft_tokens *soft); // NULL is allowed

// The towers' operations of a backend, by its name. NULL on failure.
struct tower_ops *tower_ops_of(struct ops *ops, struct carat_error *err);

#endif
