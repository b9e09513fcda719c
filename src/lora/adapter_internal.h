// adapter_internal.h: what the readers of adapter formats hand over.

#ifndef CARAT_LORA_ADAPTER_INTERNAL_H
#define CARAT_LORA_ADAPTER_INTERNAL_H

#include "gguf/gguf.h"
#include "gguf/safetensors.h"
#include "lora/adapter.h"

// Both matrices for one projection. Shapes are row-major: a [rank, n_in], b [n_out, rank].
struct adapter_part {
    char target[GGUF_MAX_NAME_BYTES]; // the tensor of the model, "blk.0.attn_q.weight"
    const void *a, *b;                // of the file; NULL: not seen yet
    uint64_t a_shape[2], b_shape[2];
    double scale;
};

struct adapter_parts {
    struct adapter_part *items;
    size_t n, capacity;
    // Reads a matrix of the file in f32.
    bool (*read)(const void *file, const void *matrix, float *out, uint64_t n, struct carat_error *err);
    const void *file;
};

// Notes one matrix. Fails when the target's half was there already.
bool adapter_add_half(struct adapter_parts *parts, const char *target, bool is_b, const void *matrix, const uint64_t shape[2],
    struct carat_error *err);

// Fill parts from a file that stays open as long as they are used.
bool adapter_parts_of_gguf(const struct gguf_file *file, struct adapter_parts *parts, struct carat_error *err);
bool adapter_parts_of_safetensors(const struct safetensors_file *file, const char *config, size_t n_config,
    struct adapter_parts *parts, struct carat_error *err);

// --- adapter_config.json ---

struct json_document;

struct peft_config {
    struct json_document *document;
    double rank, alpha;
    bool rank_stabilised; // alpha / sqrt(rank) instead of alpha / rank
};

// Refuses what is not implemented. Freed with peft_config_free also after a failure.
bool peft_config_read(const char *text, size_t n_bytes, struct peft_config *config, struct carat_error *err);
// The scale of the module called `path` ("model.layers.0.self_attn.q_proj"), whose A has `rank` rows: they must agree.
bool peft_config_scale(const struct peft_config *config, const char *path, uint64_t rank, double *scale, struct carat_error *err);
void peft_config_free(struct peft_config *config);

#endif
