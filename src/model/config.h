// config.h: what the metadata of a Gemma 4 file says about the text model.
//
// Everything comes from the file; nothing is assumed from a model's name. After gemma4_config_read every number is positive where
// it must be, every array has one entry per layer, and no product of two of them overflows 31 bits.

#ifndef CARAT_MODEL_CONFIG_H
#define CARAT_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "gguf/gguf.h"

enum {
    GEMMA4_MAX_LAYERS = 1024,
    GEMMA4_MAX_WIDTH = 1 << 17, // of the residual stream, of a head, of the feed-forward, of the heads together
    GEMMA4_MAX_VOCABULARY = 1 << 22,
    GEMMA4_MAX_POSITIONS = 1 << 24,
    GEMMA4_MAX_EXPERTS = 4096,
};

enum gemma4_flavour {
    GEMMA4_LLAMA_CPP, // text alone; towers come in a projector file
    GEMMA4_OLLAMA,    // one file with the towers, under Ollama's names
};

// Whose output is wanted where implementations differ.
enum gemma4_compat {
    COMPAT_NONE,   // Hugging Face, the definition of the model
    COMPAT_OLLAMA, // Ollama's former engine: a window one key wider, images attend both ways on all layers of all models
};

// Which layers let the positions of one image see each other in both directions.
enum gemma4_image_attention { IMAGES_CAUSAL, IMAGES_BOTH_WAYS_ON_SLIDING, IMAGES_BOTH_WAYS };

struct gemma4_layer {
    bool sliding;       // sees the last `window` positions only; else all ("global")
    int32_t head_dim;   // of queries, keys and values
    int32_t n_kv_heads; // on layers without keys and values of their own: those of the owner
    int32_t kv_owner;   // the layer whose keys and values it uses; itself where it has its own
    int32_t n_ff;       // width of the dense feed-forward; 0: the file gives one number only, the tensors decide
};

struct gemma4_config {
    enum gemma4_flavour flavour;
    enum gemma4_compat compat;
    enum gemma4_image_attention image_attention;
    int32_t n_layers;
    int32_t n_kv_layers; // layers 0 .. n_kv_layers - 1 have keys and values of their own
    int32_t d_model;     // width of the residual stream
    int32_t n_vocab;
    int32_t n_heads;
    int32_t n_positions; // context length that the model was trained for
    int32_t window;      // keys that a sliding layer sees, the query's own included
    int32_t head_dim_sliding, head_dim_global;
    double rope_base_sliding, rope_base_global;
    float eps;               // of every RMS norm
    float softcap;           // of the logits; 0: none
    int32_t per_layer_width; // of the per-layer embeddings; 0: the model has none
    int32_t n_experts;       // 0: no mixture of experts
    int32_t n_experts_used;
    int32_t n_expert_ff;
    int32_t n_suppressed;        // ids that are never to be chosen
    int32_t *suppressed;         // [n_suppressed]
    struct gemma4_layer *layers; // [n_layers]
};

// Fails with CARAT_UNSUPPORTED when the file is something else than a Gemma 4 text model, with CARAT_NOT_FOUND or CARAT_BAD_FILE
// naming the key that is missing or inconsistent. Arrays are taken from the arena.
bool gemma4_config_read(const struct gguf_file *file, enum gemma4_compat compat, struct arena *arena,
    struct gemma4_config *config, struct carat_error *err);

// Elements that one position takes in the key (and as many in the value) cache of layer l.
int32_t gemma4_kv_row_elems(const struct gemma4_config *config, int32_t l);

#endif
