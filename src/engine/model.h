// model.h: an open model: files, tokenizer, weights, backend.
//
// Natively carat_model_open does everything. Where the host brings the bytes (WebAssembly) the steps are taken one by one:
// model_begin reads the headers and makes the plan, plan_place and plan_write of model->plan move the weights, model_ready ends.

#ifndef CARAT_ENGINE_MODEL_H
#define CARAT_ENGINE_MODEL_H

#include "carat.h"
#include "gguf/gguf.h"
#include "lora/adapter.h"
#include "model/plan.h"
#include "model/text.h"
#include "model/towers.h"
#include "text/tokenizer.h"

struct carat_model {
    struct gguf_file *file;      // owned
    struct gguf_file *projector; // owned; NULL: the towers are in `file`, or there are none
    struct tokenizer *tok;
    struct ops *ops;
    struct plan plan;
    struct gemma4_text *text;
    struct text_context *context; // made by the first session, used by all in turn
    struct towers *towers;        // NULL when only text is wanted
    bool has_vision, has_audio;   // what the files hold
    struct adapter **adapters;    // [n_adapters], attached
    int32_t n_adapters;
    uint32_t adapter_changes; // counts them: what a session computed before a change is of no use after it
    bool table_on_disk;       // rows of the per-layer table are read when they are needed
    enum carat_compat compat;
    char name[128];
    char quantization[16];
    uint64_t n_parameters;
    uint64_t file_bytes;
};

// Reads the tables of the files (which the model then owns, also on failure) and makes the backend. projector may be NULL.
bool model_begin(struct gguf_file *file, struct gguf_file *projector, const struct carat_model_options *options,
    struct carat_model **model, struct carat_error *err);

// Whether there is a backend of that name, in this build or another; NULL, which lets the model choose, is one.
bool model_check_backend(const char *name, struct carat_error *err);

// The backend that the options ask for; NULL: none of them works.
struct ops *model_new_ops(const struct carat_model_options *options, struct carat_error *err);

// From now on passes use the adapter, which the model then owns (also on failure).
bool model_attach(struct carat_model *model, struct adapter *adapter, float scale, struct carat_error *err);

// What keys and values depend on: the file's header with the compatibility that is asked for, and the adapters attached (0:
// none).
uint64_t model_digest(const struct carat_model *model);
uint64_t model_adapters_digest(const struct carat_model *model);

// All bytes of the plan are there.
bool model_ready(struct carat_model *model, struct carat_error *err);

#endif
