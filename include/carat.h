// carat.h: Gemma 4 inference on this device.
//
// The manual of the library, in tiers: open a model, hold a session, generate tokens, chat, keep the state. Everything is in
// UTF-8; sizes are in bytes, positions and counts in tokens. Objects are used by one thread at a time. A function that can fail
// returns false (or CARAT_FAILED) and fills `err`, which may be NULL. Nothing here prints or exits, and nothing waits for a GPU
// unless its name says so: the calls named ..._next say CARAT_PENDING while there is nothing to report, and are simply called
// again.
//
//     struct carat_model *model;   struct carat_session *session;   struct carat_error err;
//     carat_model_open("gemma4:e2b", NULL, &model, &err);
//     carat_session_new(model, NULL, &session, &err);
//     carat_chat_begin(session, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", NULL, 0, &err);
//     struct carat_event event;
//     enum carat_status status;
//     while ((status = carat_chat_next(session, &event, &err)) == CARAT_EVENT || status == CARAT_PENDING) {
//         if (status == CARAT_PENDING)
//             carat_session_wait(session, 100);
//         else if (event.kind == CARAT_EVENT_CONTENT)
//             fwrite(event.text, 1, event.n_text, stdout);
//     }
//
// The loop ends with CARAT_DONE after the FINISH event, or with CARAT_FAILED and the reason in err.message.

#ifndef CARAT_H
#define CARAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "carat_error.h"

#ifdef __cplusplus
extern "C" {
#endif

// --- models
// -----------------------------------------------------------------------------------------------------------------------

struct carat_model;

// What another implementation computes differently from Hugging Face, which is the definition.
enum carat_compat { CARAT_COMPAT_NONE, CARAT_COMPAT_OLLAMA, CARAT_COMPAT_LLAMA_CPP };

// Called while something long is going on. Return false to cancel it (the call then fails with CARAT_CANCELLED).
typedef bool carat_progress(void *context, const char *what, uint64_t done, uint64_t total);

struct carat_model_options {
    const char *backend;   // "cpu", "webgpu" or "ref"; NULL: webgpu if there is a GPU, else cpu
    const char *projector; // file with the vision and audio towers (llama.cpp's mmproj); NULL: those of the model file, if any
    int32_t n_threads;     // cpu: 0 = one per physical core
    bool exact;            // f32 activations, slower: cpu rounds them to 8 bits otherwise, webgpu those of single rows to 16
    bool no_autotune;      // webgpu: take integer products without a short trial of what is faster on this device
    bool text_only;        // leave the towers alone
    bool per_layer_table_on_disk; // read rows of the per-layer table when they are needed instead of keeping it in memory
    enum carat_compat compat;
    carat_progress *progress; // may be NULL
    void *progress_context;
};

// Opens a model: a path, an http(s) URL, or a name of the local Ollama store such as "gemma4:e2b". NULL options: the defaults.
// The result is freed with carat_model_free after its sessions.
bool carat_model_open(
    const char *name, const struct carat_model_options *options, struct carat_model **model, struct carat_error *err);
void carat_model_free(struct carat_model *model);

struct carat_model_info {
    const char *name;         // general.name, or the file's name
    const char *architecture; // "gemma4"
    const char *quantization; // of most of the weights, e.g. "Q4_K"
    const char *backend;      // "cpu", "webgpu", "ref"
    const char *device;       // e.g. "AMD EPYC, AVX-512 VNNI, 2 threads"
    int32_t n_layers, n_embd, n_vocab;
    int32_t context_length; // the model's own limit
    uint64_t n_parameters;
    uint64_t file_bytes;
    uint64_t weight_bytes;      // resident
    uint64_t loaded_bytes;      // of them copied to where the model computes; the others are used where the file is mapped
    double load_ms;             // opening spent on placing and copying the weights
    uint64_t folded_bytes;      // of weight_bytes: products of matrices, made while loading, with which decoding is faster
    bool has_vision, has_audio; // what the files hold
};

void carat_model_info(const struct carat_model *model, struct carat_model_info *info);

// Text to ids. *ids (freed with carat_free) holds *n_ids ids. parse_special: marker texts such as <|turn> become their tokens.
bool carat_tokenize(const struct carat_model *model, const char *text, size_t n_text, bool add_bos, bool parse_special,
    int32_t **ids, int32_t *n_ids, struct carat_error *err);
// Ids to UTF-8 text (freed with carat_free). with_special: markers appear as their text.
bool carat_detokenize(const struct carat_model *model, const int32_t *ids, int32_t n_ids, bool with_special, char **text,
    size_t *n_text, struct carat_error *err);
void carat_free(void *memory);

// Adapters. Adds a LoRA adapter (GGUF, PEFT folder or safetensors, or the original system's file) with strength `scale`; they add
// up.
bool carat_adapter_load(struct carat_model *model, const char *path, float scale, int32_t *n_matched, struct carat_error *err);
void carat_adapters_clear(struct carat_model *model);

// --- sessions
// ---------------------------------------------------------------------------------------------------------------------

// One sequence of tokens with its keys and values. Several sessions may share a model.
struct carat_session;

struct carat_session_options {
    int32_t context_length; // positions; 0: the smaller of 4096 and the model's limit
    int32_t batch;          // rows of a prefill chunk; 0: 512
    bool kv_f32;            // keys and values in 32 instead of 16 bits
    bool no_prefill_skip;   // run the layers that share keys and values for every prompt position (for measurements)
    int32_t run_ahead;      // tokens under way at once where the device chooses them, up to 8; 0: 4 on a GPU, otherwise 1
};

// All memory is taken here. NULL options: the defaults.
bool carat_session_new(struct carat_model *model, const struct carat_session_options *options, struct carat_session **session,
    struct carat_error *err);
void carat_session_free(struct carat_session *session);

int32_t carat_session_position(const struct carat_session *session); // tokens and soft tokens in the cache
int32_t carat_session_context(const struct carat_session *session);
// Bytes that it takes where the model computes: its keys and values, and the scratch that all sessions of the model share.
uint64_t carat_session_bytes(const struct carat_session *session);
// Forgets everything after the first n positions. Sliding layers keep a limited past: when n is too far back the session is
// emptied instead. Returns the position it ends at.
int32_t carat_session_truncate(struct carat_session *session, int32_t n);

// Another session with the same contents and options, that goes on by itself; nothing is computed again. Fails while something is
// under way on the session.
bool carat_session_copy(struct carat_session *session, struct carat_session **copy, struct carat_error *err);

// --- media
// ------------------------------------------------------------------------------------------------------------------------

struct carat_media {
    enum { CARAT_IMAGE, CARAT_AUDIO } kind;
    const uint8_t *rgb; // image: [height, width, 3] bytes
    int32_t width, height;
    int32_t image_tokens; // budget: 70, 140, 280, 560 or 1120; 0: 280
    const float *samples; // audio: mono, 16 kHz, in [-1, 1]
    int64_t n_samples;
};

// --- generation
// -------------------------------------------------------------------------------------------------------------------

struct carat_logit_bias {
    int32_t id;
    float bias;
};

// carat_sampling_default() fills this with Gemma 4's recommendation.
struct carat_sampling {
    float temperature;                         // 1.0; 0: greedy
    int32_t top_k;                             // 64; 0: off
    float top_p;                               // 0.95; 1: off
    float min_p;                               // 0: off
    float repetition_penalty;                  // 1: off. Each token of the window counts once, in greedy mode too.
    float presence_penalty, frequency_penalty; // 0: off
    int32_t penalty_window;                    // 64 tokens
    uint64_t seed;
    const struct carat_logit_bias *biases;
    int32_t n_biases;
};

void carat_sampling_default(struct carat_sampling *sampling);

enum carat_status {
    CARAT_DONE,    // finished
    CARAT_EVENT,   // *event holds something; call again
    CARAT_PENDING, // nothing to report yet; call again, on a GPU when it may have finished (carat_session_wait natively)
    CARAT_FAILED,  // err says why; what was committed before stays usable
};

enum carat_finish { CARAT_FINISH_NONE, CARAT_FINISH_STOP, CARAT_FINISH_LENGTH, CARAT_FINISH_TOOL_CALLS, CARAT_FINISH_CANCELLED };

enum carat_event_kind {
    CARAT_EVENT_ENCODING,  // n_done of n_total steps of an image or a sound are done
    CARAT_EVENT_PROGRESS,  // n_done of n_total prompt positions are in the cache
    CARAT_EVENT_TOKEN,     // carat_generate: one id, with the text that became final with it
    CARAT_EVENT_CONTENT,   // carat_chat: a piece of the answer
    CARAT_EVENT_REASONING, // carat_chat: a piece of the thought
    CARAT_EVENT_TOOL_CALL, // carat_chat: a whole call
    CARAT_EVENT_FINISH,    // the last one; carat_generate: text holds what could not be completed before
};

struct carat_usage {
    int32_t n_prompt;            // positions of the prompt
    int32_t n_prompt_cached;     // of them found in the cache
    int32_t n_generated;         // tokens chosen, the end token included
    double prompt_ms;            // until the first token was there
    double generate_ms;          // from the first token to the last: n_generated - 1 tokens
    double encode_ms;            // images and sounds
    double dispatches_per_token; // on a GPU, of generated tokens; 0 on the CPU
};

// Pointers stay valid until the next call on the session.
struct carat_event {
    enum carat_event_kind kind;
    int32_t id;       // token
    const char *text; // token, content, reasoning: UTF-8, complete characters, not terminated; tool call: arguments as JSON
    size_t n_text;
    const char *tool_name;    // tool call
    const char *logprobs;     // content, token: JSON array of OpenAI's logprobs entries when asked for, else NULL
    int32_t n_done, n_total;  // progress
    enum carat_finish finish; // finish
    struct carat_usage usage; // finish
    const int32_t *ids;       // finish: all n_ids ids that were generated, the end token included
    int32_t n_ids;
};

struct carat_generate_options {
    struct carat_sampling sampling;
    int32_t max_tokens; // 0: until the context is full
    bool ignore_eos;    // end tokens do not end
    bool with_special;  // markers appear in the text
    int32_t n_logprobs; // -1: none; 0..20 alternatives for each token
};

// Prompt ids (BOS included by the caller) are matched with what the cache holds; only what differs is computed.
// A run of media placeholders (<|image|>, <|audio|>) in the ids stands for one medium, the k-th run for media[k]; it is widened
// to the medium's soft tokens, with the sentinels around it where they are not there already. The media must stay valid until the
// first event that is neither progress nor encoding.
// NULL options: Gemma 4's sampling until the context is full.
bool carat_generate_begin(struct carat_session *session, const int32_t *ids, int32_t n_ids, const struct carat_media *media,
    int32_t n_media, const struct carat_generate_options *options, struct carat_error *err);
enum carat_status carat_generate_next(struct carat_session *session, struct carat_event *event, struct carat_error *err);

// Ends the generation under way after the tokens that were already reported; ..._next then ends with a FINISH event (cancelled).
void carat_stop(struct carat_session *session);

// Natively: sleeps until the device has news, at most timeout_ms. Returns at once on the CPU.
void carat_session_wait(struct carat_session *session, int32_t timeout_ms);

// --- chat
// -------------------------------------------------------------------------------------------------------------------------

// request: the body of OpenAI's chat.completions as JSON text: messages, tools, temperature, top_p, top_k, min_p, seed,
// max_tokens, stop, logprobs, top_logprobs, presence_penalty, frequency_penalty, repetition_penalty, logit_bias, reasoning (true:
// think), continue_final_message. A content part {"type":"image"|"audio","media":k} stands for media[k]. The media must stay
// valid until the first event that is neither progress nor encoding.
bool carat_chat_begin(struct carat_session *session, const char *request, const struct carat_media *media, int32_t n_media,
    struct carat_error *err);
enum carat_status carat_chat_next(struct carat_session *session, struct carat_event *event, struct carat_error *err);

// --- state
// ------------------------------------------------------------------------------------------------------------------------

// What a session holds, as bytes that can be kept and taken back later, also by another backend. docs/state.md describes both
// forms.
enum carat_state_form {
    CARAT_STATE_OWN,  // with the token ids, so that prompts find what is in the cache, and digests of the model and the adapters
    CARAT_STATE_RLMS, // of the original system: f32, no ids (no prompt is found in the cache), any model of the same shape
};

// Saving. *n_bytes: of all pieces together. Until the end nothing else may happen on the session.
bool carat_state_save_begin(
    struct carat_session *session, enum carat_state_form form, uint64_t *n_bytes, struct carat_error *err);
// CARAT_EVENT: the next *n_bytes at *bytes, valid until the next call. CARAT_DONE after the last piece, or CARAT_PENDING.
enum carat_status carat_state_save_next(
    struct carat_session *session, const void **bytes, size_t *n_bytes, struct carat_error *err);

// Restoring n_bytes in all, given by carat_state_restore_write in pieces of any length. All that the headers tell is checked
// before the session changes: the model and its adapters (CARAT_BAD_ARGUMENT), the context (CARAT_CONTEXT_FULL), every length.
// When a write or the end fails later (too few bytes, numbers that are none) the session is empty, and err says so. After a
// failure nothing is under way any more.
bool carat_state_restore_begin(struct carat_session *session, uint64_t n_bytes, struct carat_error *err);
bool carat_state_restore_write(struct carat_session *session, const void *bytes, size_t n_bytes, struct carat_error *err);
bool carat_state_restore_end(struct carat_session *session, struct carat_error *err);

// Gives up saving or restoring before the end. A session that was half restored is empty.
void carat_state_end(struct carat_session *session);

#ifdef __cplusplus
}
#endif

#endif
