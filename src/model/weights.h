// weights.h: the tensors of the text model, by role.
//
// Opening fills the table from the file's header: every tensor's shape is checked against the metadata, nothing is read yet. The
// plan then brings the bytes. d, H, ... as in config.h; hd, Hkv and ff are the layer's own.

#ifndef CARAT_MODEL_WEIGHTS_H
#define CARAT_MODEL_WEIGHTS_H

#include "model/config.h"
#include "model/plan.h"
#include "model/rope.h"

struct text_layer {
    struct weight attn_norm;           // [d]
    struct linear attn_q;              // [d -> H hd]
    struct linear attn_k;              // [d -> Hkv hd]; none on layers that share
    struct linear attn_v;              // [d -> Hkv hd]; none where V is K's projection
    const struct linear *qkv[3];       // those of the three that exist, in this order
    int n_qkv;                         //
    int32_t n_qkv_out;                 // sum of their outputs
    bool v_is_k;                       // V is taken from K's projection
    struct weight attn_q_norm;         // [hd]
    struct weight attn_k_norm;         // [hd]; none on layers that share
    struct linear attn_output;         // [H hd -> d]
    struct weight post_attention_norm; // [d]
    struct weight ffn_norm;            // [d]
    struct linear ffn_gate, ffn_up;    // [d -> ff]
    struct linear ffn_down;            // [ff -> d]
    struct weight post_ffw_norm;       // [d]
    struct weight layer_output_scale;  // [1], or none: 1
    struct linear inp_gate;            // [d -> P]; the next three only with per-layer embeddings
    struct linear proj;                // [P -> d]
    struct weight post_norm;           // [d]
    struct layer_end end;              // the same as the operation wants it
    bool has_experts;                  // the rest only with a mixture of experts
    struct weight router_scale;        // [d]
    struct weight router;              // [d -> E], F32
    struct weight pre_ffw_norm_2;      // [d]
    struct weight post_ffw_norm_1;     // [d]
    struct weight post_ffw_norm_2;     // [d]
    struct weight gate_up_exps;        // E x [d -> 2 n], or none: the next two
    struct weight gate_exps, up_exps;  // E x [d -> n]
    struct weight down_exps;           // E x [n -> d]
    struct weight down_exps_scale;     // [E], or none: 1
    struct experts experts;            // the same as the operation wants it
};

struct gemma4_text {
    struct gemma4_config config;
    struct weight embedding;         // [d -> V] when the file has an output matrix of its own; else none
    struct linear head;              // [d -> V] the output matrix, most often the embedding table itself
    const struct weight *token_embd; // the table that ids are looked up in: &embedding or &head.weight
    struct weight output_norm;       // [d]
    struct weight per_layer_table;   // [P L -> V]; the next three only with per-layer embeddings
    struct linear per_layer_proj;    // [d -> P L]
    struct weight per_layer_norm;    // [P]
    struct text_layer *layers;       // [n_layers]

    const struct gguf_file *file;          // where the table lies when it stays on disk
    struct gguf_source *per_layer_source;  //
    struct weight rope_factors_weight;     // describes rope_factors; none: the file has no such tensor
    float *rope_factors;                   // [head_dim_global / 2], filled by the plan
    struct rope rope_sliding, rope_global; // made by gemma4_ready
    struct arena arena;                    // of all of the above
};

// Reads the metadata and the tensor table, and enters every weight of the text model into the plan. The file must stay open. *out
// is freed with gemma4_free after the plan was unloaded.
bool gemma4_open(const struct gguf_file *file, enum gemma4_compat compat, struct plan *plan, struct gemma4_text **out,
    struct carat_error *err);

// To be called once when the plan's bytes are there: makes what depends on them.
bool gemma4_ready(struct gemma4_text *text, struct carat_error *err);

// What a backend makes of the weights for the sake of speed, once they are there (ops.h, fold): all of it, or nothing where there
// is no room. To be undone before the weights are unloaded.
void gemma4_fold(struct gemma4_text *text, struct ops *ops);
void gemma4_unfold(struct gemma4_text *text, struct ops *ops); // text NULL is allowed
uint64_t gemma4_folded_bytes(const struct gemma4_text *text);  // on the backend

void gemma4_free(struct gemma4_text *text); // NULL is allowed

// The projection called `name` in the file ("blk.0.attn_q.weight"), or NULL. "output.weight" is the output product, whichever
// matrix it uses. Tells where an adapter goes.
struct linear *gemma4_find_linear(struct gemma4_text *text, const char *name);

#endif
