// vision.h: the vision tower: pictures to soft tokens (Gemma 4 vision).
//
// Opening reads the tensor table and fills a plan; the plan then brings the bytes. A run computes one picture in small steps: a
// step is one tile of rows of one half of a layer, so a caller can show progress and stop between steps.
//
// dv = width of the tower, d = width of the text model, n = patches, N = soft tokens = n / 9.
// The encoder-free input of the 12B model (no layers, patches of 48) is the same interface with other insides.

#ifndef CARAT_MODEL_VISION_H
#define CARAT_MODEL_VISION_H

#include "media/image.h"
#include "model/tower_weights.h"

struct vision_layer {
    struct weight ln1;                         // [dv]
    struct clip_linear attn_q, attn_k, attn_v; // [dv -> dv]
    struct weight attn_q_norm, attn_k_norm;    // [head_dim]
    struct clip_linear attn_out;               // [dv -> dv]
    struct weight attn_post_norm;              // [dv]
    struct weight ln2;                         // [dv]
    struct clip_linear ffn_gate, ffn_up;       // [dv -> ff]
    struct clip_linear ffn_down;               // [ff -> dv]
    struct weight ffn_post_norm;               // [dv]
    struct weight out_scale;                   // [1], or none
};

struct vision_tower {
    bool encoder_free;
    enum tower_compat compat;
    int32_t n_layers, d_vision, n_heads, n_ff, d_text;
    int32_t patch, pool; // pixels of a patch's side; patches of a soft token's side. patch * pool = 48
    int32_t n_positions; // entries per axis of the position table
    float eps;
    struct linear patch_embd;                        // [3 * patch * patch -> dv]
    struct weight position_embd;                     // 2 slices [n_positions rows of dv]: by column, by row
    struct vision_layer *layers;                     // [n_layers]
    struct weight std_bias, std_scale;               // [dv], or none
    struct clip_linear projection;                   // [dv -> d]
    struct weight patch_norm[3], patch_norm_bias[3]; // encoder-free only
    struct weight clamp_data;                        // describes packed_bounds; none: the file has no packed bounds
    float *packed_bounds;                            // [(7 n_layers + 1) * 4]
    struct plan plan;                                // of all weights; belongs to the tower
    struct arena arena;
};

// True when the file holds a vision tower.
bool vision_exists(const struct gguf_file *file);

// The file must stay open until vision_free. No weight is read.
bool vision_open(const struct gguf_file *file, enum tower_compat compat, struct vision_tower **out, struct carat_error *err);

// To be called once after the plan's bytes are there.
void vision_ready(struct vision_tower *tower);
void vision_free(struct vision_tower *tower); // NULL is allowed; the plan must be unloaded

// The size rule that goes with the tower's compat.
enum image_rule vision_image_rule(const struct vision_tower *tower);

// --- one picture ---

struct vision_run {
    const struct vision_tower *tower;
    struct tower_ops *ops;
    const struct image *image;         // the caller's, until the run is done
    int32_t n_columns, n;              // of the grid of patches, patches in all
    int32_t n_soft;                    // N
    int32_t tile, n_tiles;             // rows of a tile
    int32_t step, n_steps;             // done so far, in all
    struct tensor x;                   // [n, dv] the residual stream
    struct tensor q, k, v;             // [n, dv]
    struct tensor rope;                // [longest side, head_dim / 2]
    struct tensor pixels;              // [tile, 3 * patch * patch]
    struct tensor normed, mixed, term; // [tile, dv]
    struct tensor wide;                // [tile, ff]
    struct tensor pooled;              // [N, dv]
    struct tensor soft;                // [N, d] the result
    float *host_pixels;                // [tile, 3 * patch * patch]
};

// Bytes of the backend's memory that a run with n_soft tokens takes.
uint64_t vision_run_bytes(const struct vision_tower *tower, int32_t tile_rows, int32_t n_soft);

// prepared: a picture of the tower's size (image_prepare). The weights must be loaded.
bool vision_start(const struct vision_tower *tower, struct tower_ops *ops, const struct image *prepared, struct vision_run *run,
    struct carat_error *err);
// Queues the next step; true when it was the last one.
bool vision_step(struct vision_run *run);
void vision_end(struct vision_run *run); // frees everything but `soft`, which the caller has taken or frees with tensor_free

#endif
