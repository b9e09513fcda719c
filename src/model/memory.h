// memory.h: what a model will take, known from the headers of its files before anything is loaded.

#ifndef CARAT_MODEL_MEMORY_H
#define CARAT_MODEL_MEMORY_H

#include "model/text.h"

// Bytes, as in the file for weights: what a backend adds by rearranging or saves by using mapped pages is not in it.
struct model_memory {
    uint64_t weights[PLAN_CLASSES]; // by class: layers, embedding and output, per-layer table, towers
    uint64_t kv_sliding, kv_global; // keys and values
    uint64_t scratch;               // of a text context
    uint64_t total;
};

// For one sequence in a context. The plan may hold towers beside the text model.
struct model_memory model_memory(const struct plan *plan, const struct gemma4_text *text, const struct text_options *text_options,
    const struct kv_options *kv_options);

#endif
