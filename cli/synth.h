// synth.h: parts of carat synth: the shapes of a model, its metadata, its vocabulary, and random weights (inside cli only).

#ifndef CARAT_CLI_SYNTH_H
#define CARAT_CLI_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "gguf/mix.h"
#include "gguf/writer.h"

// Shapes of one released model.
struct synth_model {
    const char *name;      // "e2b"
    const char *long_name; // for general.name
    uint32_t n_layers, d_model, n_ff, n_heads;
    uint32_t n_ff_shared; // width on the layers that share keys and values
    uint32_t kv_heads_sliding, kv_heads_global;
    uint32_t window, period; // every period-th layer is global
    uint32_t n_shared;       // trailing layers without keys and values of their own
    uint32_t per_layer;      // width of the per-layer embeddings, 0: none
    bool global_has_v;
    uint32_t n_experts, n_experts_used, n_expert_ff;
    uint32_t n_context;
    // towers
    uint32_t v_layers, v_width, v_ff, v_heads;
    bool v_clipped, v_standardised, has_audio, unified;
};

extern const struct synth_model synth_models[];
extern const int n_synth_models;

enum { SYNTH_HEAD_SLIDING = 256, SYNTH_HEAD_GLOBAL = 512, SYNTH_VOCABULARY = 262144 };

// What is to be written.
struct synth {
    struct synth_model model; // n_layers and n_shared possibly reduced
    enum gguf_mix mix;
    uint32_t n_vocab;
    uint64_t seed;
    bool ollama;                 // one file with the towers, under Ollama's names
    bool towers_only;            // an mmproj file
    const char *vocabulary_from; // GGUF file whose tokenizer is copied, or NULL
};

bool synth_is_sliding(const struct synth_model *model, uint32_t layer);

enum synth_kind {
    SYNTH_MATRIX,     // normal, standard deviation `value`
    SYNTH_NORM,       // around `value`, 10 % up and down
    SYNTH_CONSTANT,   // `value`
    SYNTH_ROPE_FREQS, // 1 for the first quarter, then 1e30
};

struct synth_tensor {
    char name[GGUF_MAX_NAME_BYTES];
    enum gguf_type type;
    enum synth_kind kind;
    uint32_t n_dims;
    uint64_t ne[GGUF_MAX_DIMS];
    float value;
};

struct synth_list {
    struct synth_tensor *tensors;
    size_t n_tensors, capacity;
    bool out_of_memory;
};

// Adds a tensor of up to three dimensions (0 = none). The name is a format for the layer.
__attribute__((format(printf, 2, 0))) void synth_add(struct synth_list *list, const char *name, uint32_t layer,
    enum gguf_type type, enum synth_kind kind, float value, uint64_t ne0, uint64_t ne1, uint64_t ne2);

void synth_list_text(const struct synth *synth, struct synth_list *list);   // synth_text.c
void synth_list_towers(const struct synth *synth, struct synth_list *list); // synth_towers.c

void synth_write_text_keys(const struct synth *synth, struct gguf_writer *writer);
void synth_write_tower_keys(const struct synth *synth, struct gguf_writer *writer);
bool synth_write_vocabulary(const struct synth *synth, struct gguf_writer *writer, struct carat_error *err); // synth_vocabulary.c

// synth_data.c: the bytes of tensors, made of random blocks.
struct synth_data;
struct synth_data *synth_data_new(uint64_t seed);
void synth_data_free(struct synth_data *data);
// Writes all data of one tensor.
bool synth_write_tensor(
    struct synth_data *data, const struct synth_tensor *tensor, struct gguf_writer *writer, struct carat_error *err);

#endif
