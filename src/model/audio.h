// audio.h: the audio tower: sounds to soft tokens (Gemma 4 audio).
//
// Like vision.h: opening fills a plan, a run computes one piece of sound of at most 30 s in steps of a layer.
//
// C = width of the tower, ff = of its feed-forwards, d = width of the text model, F = frames, n = soft tokens.
// The encoder-free input of the 12B model (raw samples in frames of 640) is the same interface with other insides.

#ifndef CARAT_MODEL_AUDIO_H
#define CARAT_MODEL_AUDIO_H

#include "media/mel.h"
#include "model/tower_weights.h"

struct audio_feed_forward {
    struct weight norm;      // [C]
    struct clip_linear up;   // [C -> ff]
    struct clip_linear down; // [ff -> C]
    struct weight post_norm; // [C]
};

struct audio_layer {
    struct audio_feed_forward first, second;
    struct weight attn_pre_norm;               // [C]
    struct clip_linear attn_q, attn_k, attn_v; // [C -> C]
    struct clip_linear attn_out;               // [C -> C]
    struct linear relative;                    // [C -> C] relative positions, not clipped
    struct weight per_dim_scale;               // [head_dim]
    struct weight attn_post_norm;              // [C]
    struct weight conv_norm;                   // [C] before the convolution module
    struct clip_linear conv_in;                // [C -> 2 C]
    struct weight conv_depthwise;              // C rows of n_taps
    struct weight conv_post_norm;              // [C] after the depthwise convolution
    struct clip_linear conv_out;               // [C -> C]
    struct weight norm_out;                    // [C]
};

struct audio_tower {
    bool encoder_free;
    enum tower_compat compat;
    int32_t n_layers, width, n_heads, n_ff, n_taps; // width = C
    int32_t d_out, d_text;                          // width of the output projection; d
    int32_t n_channels[2];                          // of the two convolutions
    int32_t frame_samples;                          // encoder-free only: 640
    struct weight conv[2];                          // [9 * channels in -> channels out]
    struct weight conv_norm[2];                     // [channels out]
    struct linear input_projection;                 // [32 * channels -> C]
    struct audio_layer *layers;                     // [n_layers]
    struct linear output_projection;                // [C -> d_out] with bias
    struct linear projection;                       // [d_out -> d]; encoder-free: [640 -> d]
    struct plan plan;                               // of all weights; belongs to the tower
    struct arena arena;
};

bool audio_exists(const struct gguf_file *file); // true when the file holds an audio tower

// The file must stay open until audio_free. No weight is read.
bool audio_open(const struct gguf_file *file, enum tower_compat compat, struct audio_tower **out, struct carat_error *err);
void audio_free(struct audio_tower *tower); // NULL is allowed; the plan must be unloaded

enum mel_rule audio_mel_rule(const struct audio_tower *tower);

// Soft tokens that n_samples at 16 kHz give. For the tower itself n_samples is at most 30 s.
int64_t audio_token_count(const struct audio_tower *tower, int64_t n_samples);

// --- one piece of sound ---

struct audio_run {
    const struct audio_tower *tower;
    struct tower_ops *ops;
    int32_t n_frames, n;                 // mel frames (encoder-free: n frames of samples), soft tokens
    int32_t step, n_steps;               // done so far, in all
    struct tensor mel;                   // [F, 128]; encoder-free: [n, 640]
    struct tensor halved;                // [(F + 1) / 2, 64 * channels]
    struct tensor quartered;             // [n, 32 * channels]
    struct tensor x;                     // [n, C] the residual stream
    struct tensor normed, q, k, v, term; // [n, C]
    struct tensor wide;                  // [n, the larger of ff and 2 C]
    struct tensor angles;                // [span, C] sines and cosines of the distances
    struct tensor distances;             // [span, C] the same projected, of the layer at work
    struct tensor out;                   // [n, d_out]
    struct tensor soft;                  // [n, d] the result
};

uint64_t audio_run_bytes(const struct audio_tower *tower, int64_t n_tokens); // of the backend's memory

// From samples at 16 kHz. Fails with CARAT_UNSUPPORTED when they give no token or are longer than 30 s.
bool audio_start(const struct audio_tower *tower, struct tower_ops *ops, const float *samples, int64_t n_samples,
    struct audio_run *run, struct carat_error *err);
// From features: [n_frames, 128]; encoder-free: [n_frames, 640] samples.
bool audio_start_features(const struct audio_tower *tower, struct tower_ops *ops, const float *features, int32_t n_frames,
    struct audio_run *run, struct carat_error *err);
bool audio_step(struct audio_run *run); // queues the next step; true when it was the last one
void audio_end(struct audio_run *run);  // frees everything but `soft`, which the caller has taken or frees with tensor_free

#endif
