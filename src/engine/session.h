// session.h: one sequence, and the generation under way on it.
//
// A session knows which id stands at each committed position (`ids`) and a key for comparing prompts (`keys`: the id, or a hash
// of the medium for its soft tokens). A generation goes through phases:
//
//     ENCODE    images and sounds that are not in the cache become soft tokens
//     PREFILL   the rest of the prompt goes through the model in chunks
//     DECODE    tokens are chosen and fed back
//     DRAIN     what was launched ahead and is not wanted arrives
//     FINISH    one FINISH event is due
//
// A choice in flight is a `flight`: its id comes from the device (argmax, draw) or from candidates or logits that are being read.
// Only choices made on the device can run ahead: the id feeds the next step there before the host has seen it. Several steps are
// then under way at once; stop tokens are noticed late and the cache is rolled back. The sampler here moves on token by token, as
// they land, so it is never ahead: what the draws under way need of its future, their random numbers, is looked up in advance.
//
// After a state without ids was restored (snapshot.h) the first positions have the key SESSION_UNKNOWN_KEY, which no prompt has:
// nothing of them is reused, and they are no part of the penalties' history.
//
// Invariant: outside a generation n_ids == kv->n_committed.

#ifndef CARAT_ENGINE_SESSION_H
#define CARAT_ENGINE_SESSION_H

#include "carat.h"
#include "engine/model.h"
#include "model/kv_cache.h"
#include "text/decoder.h"
#include "text/sampler.h"

enum {
    SESSION_DEFAULT_CONTEXT = 4096,
    SESSION_DEFAULT_BATCH = 512,
    SESSION_REWIND = 256, // positions that truncating can always go back by
    SESSION_MAX_FLIGHTS = 8,
    SESSION_RUN_AHEAD = 4, // choices under way at once on a GPU unless the options say otherwise
    SESSION_MAX_CANDIDATES = 256,
    SESSION_MAX_CHUNKS = 2, // prefill chunks queued on a GPU
};

// Keys are ids, or have this bit: soft tokens.
#define SESSION_SOFT_KEY ((uint64_t)1 << 63)
#define SESSION_UNKNOWN_KEY ((uint64_t)INT64_MAX)

// PHASE_STATE: no generation, but the contents are being saved or restored.
enum session_phase { PHASE_IDLE, PHASE_ENCODE, PHASE_PREFILL, PHASE_DECODE, PHASE_DRAIN, PHASE_FINISH, PHASE_STATE };

enum choice_kind {
    CHOICE_ON_DEVICE,  // argmax or draw: 4 bytes come back
    CHOICE_CANDIDATES, // the largest logits come back
    CHOICE_LOGITS,     // all logits come back
};

struct flight {
    int32_t ticket;
    enum choice_kind kind;
    int32_t slot;         // CHOICE_ON_DEVICE: where on the device the id is
    int32_t n_candidates; // CHOICE_CANDIDATES
};

struct chat_run;
struct snapshot;

// A stretch of the prompt that is soft tokens.
struct segment {
    int32_t start;            // position
    int32_t n;                // soft tokens
    int32_t media;            // index in the caller's list
    int32_t piece;            // sounds longer than the tower hears are several segments
    struct tensor rows;       // [n, d] once encoded
    struct soft_tokens *soft; // whose rows they are
    uint64_t hash;            // of the medium's content and piece
};

struct carat_session {
    struct carat_model *model;
    struct kv_cache *kv;
    int32_t batch;            // rows of a prefill chunk
    bool run_all_rows;        // of a chunk, through all layers
    int32_t run_ahead;        // choices under way at once, 1 .. SESSION_MAX_FLIGHTS
    int32_t *ids;             // [context]
    uint64_t *keys;           // [context]
    uint32_t adapter_changes; // of the model when the cache was filled
    int32_t n_ids;            // known ids: those committed, plus during a generation chosen ones and the rest of the prompt

    struct buffer *choices; // what is chosen, and what choosing needs (choice.c)
    float *logits;          // [n_vocab]
    float *candidates;      // [2 * SESSION_MAX_CANDIDATES + 2]
    uint32_t probe;         // where a read-back that only marks the end of a chunk goes
    struct snapshot *state; // being saved or restored in PHASE_STATE

    // The generation under way
    enum session_phase phase;
    struct carat_generate_options options;
    struct sampler *sampler;
    bool device_chooses; // by argmax or draw
    int32_t n_seen;      // tokens that the penalties' window on the device held at the start
    struct decoder decoder;
    struct text_buffer text;     // of the event last given out
    struct text_buffer logprobs; // likewise
    struct token_list generated;
    struct token_list prompt;
    struct segment *segments; // [n_segments] by position
    int32_t n_segments;
    struct tower_job *job; // the image or sound being encoded
    int32_t job_done;      // its steps when it was last looked at
    const struct carat_media *media;
    struct flight flights[SESSION_MAX_FLIGHTS]; // oldest first
    int32_t n_flights;
    int32_t slot_ids[SESSION_MAX_FLIGHTS]; // where ids chosen on the device arrive
    int32_t next_slot;
    int32_t chunks[SESSION_MAX_CHUNKS]; // tickets of prefill chunks, oldest first
    int32_t n_chunks;
    int32_t n_launched;             // forward passes of generated tokens
    struct chat_run *chat;          // the chat request under way, or NULL
    struct carat_media *chat_media; // its media in the order of the prompt
    bool stop_asked;
    enum carat_finish finish;
    struct carat_usage usage;
    double begin_ms, first_ms;
    int64_t first_dispatches;
};

// --- session.c -----------------------------------------------------------------------------------------------------------------

// Ends the generation under way at once, after a failure.
void session_abort(struct carat_session *session);

// The sampler sees the tokens that the cache holds; soft tokens and unknown ones are not part of the text.
void session_accept_history(const struct carat_session *session, struct sampler *sampler);

// May something else than a generation begin? Fails when one is under way, or when the contents are being saved or restored.
bool session_is_idle(const struct carat_session *session, struct carat_error *err);

// --- prompt.c: what the cache keeps, media -------------------------------------------------------------------------------------

// Widens placeholders, aligns the ids with the cached ones, truncates the cache to the common beginning. Fills session->prompt,
// segments, ids and keys.
bool session_take_prompt(struct carat_session *session, const int32_t *ids, int32_t n_ids, const struct carat_media *media,
    int32_t n_media, struct carat_error *err);

// --- chat.c --------------------------------------------------------------------------------------------------------------------

// Forgets the chat request under way.
void session_end_chat(struct carat_session *session);

// --- media.c: images and sounds ------------------------------------------------------------------------------------------------

// Soft tokens that a medium will take, piece by piece, before it is encoded. Fails when the model lacks the tower.
bool session_count_soft(struct carat_session *session, const struct carat_media *media, int32_t *n_pieces,
    int32_t *n_soft_of_piece, int32_t max_pieces, struct carat_error *err);

// Encodes what the cache does not hold, a step at a time.
enum carat_status session_encode_media(struct carat_session *session, struct carat_event *event, struct carat_error *err);

// Gives back the soft tokens of the prompt and ends a job under way.
void session_drop_media(struct carat_session *session);

// --- prefill.c: the prompt -----------------------------------------------------------------------------------------------------

// Queues the next chunk. The last one gives logits.
enum carat_status session_prefill(struct carat_session *session, struct carat_event *event, struct carat_error *err);

// --- choice.c: choosing a token ------------------------------------------------------------------------------------------------

struct buffer *session_choices_new(struct ops *ops, struct carat_error *err);

// Decides where the tokens of a generation are chosen, given its options and its sampler.
void session_begin_choices(struct carat_session *session);

// Chooses a token after the last queued pass, which gave logits.
bool session_launch_choice(struct carat_session *session, struct carat_error *err);

// Where on the device the id of a flight is.
struct tensor session_id_slot(const struct carat_session *session, int32_t slot);

// Takes the oldest flight, which has arrived, and finds its id.
bool session_land(struct carat_session *session, int32_t *id, struct carat_error *err);

// --- decode.c: token by token --------------------------------------------------------------------------------------------------

enum carat_status session_decode(struct carat_session *session, struct carat_event *event, struct carat_error *err);

#endif
