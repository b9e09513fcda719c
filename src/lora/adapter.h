// adapter.h: low-rank adapters (LoRA) of the text model: y = W x + scale * B (A x).
//
// Three forms are read: GGUF adapters of llama.cpp (general.type = adapter), PEFT's adapter_model.safetensors with its
// adapter_config.json, and safetensors with names "lora.blk.N.<module>.A" whose metadata hold rank and alpha (format
// rullama-lora-v0). Adapters stay in f32 beside the weights, which may be quantised; several may be attached at once and add up.
//
// An adapter belongs to the model it was loaded for. Whatever would change the arithmetic in a way that is not implemented (DoRA,
// biases, trained embeddings, adapters of towers, routers or experts) is refused by name, and so is an adapter that fits nothing.

#ifndef CARAT_LORA_ADAPTER_H
#define CARAT_LORA_ADAPTER_H

#include "gguf/source.h"
#include "model/weights.h"

enum { ADAPTER_MAX_RANK = 1024 };

struct adapter;

// Reads an adapter from `weights`; the source stays the caller's and is not needed afterwards. config: the text of
// adapter_config.json, needed for PEFT only, else NULL. The adapter is not yet attached.
bool adapter_load(struct ops *ops, struct gemma4_text *text, struct gguf_source *weights, const char *config, size_t n_config,
    struct adapter **out, struct carat_error *err);

#ifndef __wasm__
// The same from a file, or from a folder with adapter_model.safetensors and adapter_config.json.
bool adapter_load_path(
    struct ops *ops, struct gemma4_text *text, const char *path, struct adapter **out, struct carat_error *err);
#endif

// From now on passes use the adapter with `strength` times its own scale. Attaching again changes the strength.
void adapter_attach(struct adapter *adapter, float strength);
void adapter_detach(struct adapter *adapter); // no effect when it is not attached

// Detaches and frees it. NULL is allowed. Must happen before the model is freed.
void adapter_free(struct adapter *adapter);

int32_t adapter_pair_count(const struct adapter *adapter);
uint64_t adapter_bytes(const struct adapter *adapter); // on the backend
// Tells what it changes apart: projections, matrices, scale and strength.
uint64_t adapter_digest(const struct adapter *adapter);
// What the user should know, e.g. which parts have no effect; "" for nothing.
const char *adapter_notice(const struct adapter *adapter);

// Pair i: the projection it changes and its matrices.
const struct lora_pair *adapter_pair(const struct adapter *adapter, int32_t i, const char **target);

#endif
