// mix.h: which type each tensor of a quantised model gets (the rules of llama.cpp's quantiser of September 2026, without an
// importance matrix).
//
// These rules are for writing files. A reader must take the types from the file: publishers deviate.

#ifndef CARAT_GGUF_MIX_H
#define CARAT_GGUF_MIX_H

#include "gguf/types.h"

enum { GGUF_MIX_MAX_LAYERS = 1024 };

enum gguf_mix {
    GGUF_MIX_F32,
    GGUF_MIX_F16,
    GGUF_MIX_BF16,
    GGUF_MIX_Q8_0,
    GGUF_MIX_Q6_K,
    GGUF_MIX_Q5_K_M,
    GGUF_MIX_Q4_K_M,
    GGUF_MIX_Q4_K_S,
    GGUF_MIX_Q4_0,
    GGUF_MIX_Q3_K_M,
    GGUF_MIX_Q2_K,
    GGUF_MIX_IQ4_NL,
    GGUF_MIX_IQ4_XS,
    GGUF_MIXES,
};

// What the rules need to know of the model.
struct gguf_mix_model {
    enum gguf_mix mix;
    uint32_t n_layers;
    uint32_t n_experts;    // 0: none
    uint32_t heads_per_kv; // of layer 0
    bool has_output;       // an output matrix of its own (else token_embd is tied)
    bool has_attn_v[GGUF_MIX_MAX_LAYERS];
};

const char *gguf_mix_name(enum gguf_mix mix);
bool gguf_mix_from_name(const char *name, enum gguf_mix *mix); // upper or lower case
uint32_t gguf_mix_file_type(enum gguf_mix mix);                // general.file_type

// The type of one tensor. `stored` is its type in the unquantised file, which is what it keeps where it is not quantised.
enum gguf_type gguf_mix_type(
    const struct gguf_mix_model *model, const char *name, uint32_t n_dims, const uint64_t *ne, enum gguf_type stored);

#endif
