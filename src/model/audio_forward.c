// audio_forward.c: one piece of sound through the audio tower, step by step (Gemma 4 audio, subsampling to output).

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "media/sound.h"
#include "model/audio.h"

static const float EPS = 1e-6f; // always, whatever the file says: older projector files carry a wrong value

enum { SPAN = 12 }; // keys that a step sees, its own included

static int32_t span_of(const struct audio_tower *tower)
{
    return tower->compat == TOWER_OLLAMA ? SPAN + 1 : SPAN;
}

uint64_t audio_run_bytes(const struct audio_tower *t, int64_t n_tokens)
{
    uint64_t n = (uint64_t)n_tokens, d = (uint64_t)t->d_text;
    if (t->encoder_free)
        return 4 * n * ((uint64_t)t->frame_samples + d);
    uint64_t c = (uint64_t)t->width, wide = (uint64_t)(t->n_ff > 2 * t->width ? t->n_ff : 2 * t->width);
    uint64_t front = 4 * MEL_BANDS + 2 * 64 * (uint64_t)t->n_channels[0] + 32 * (uint64_t)t->n_channels[1];
    return 4 * n * (front + 6 * c + wide + (uint64_t)t->d_out + d);
}

// Row n: sin(n w_i), then cos(n w_i), w_i = 10000^(-i / (C / 2 - 1)).
static bool make_angles(struct audio_run *run, struct carat_error *err)
{
    int32_t half = run->tower->width / 2, span = span_of(run->tower);
    struct ops *ops = run->ops->ops;
    size_t n_bytes = (size_t)span * 2 * (size_t)half * sizeof(float);
    float *table = malloc(n_bytes);
    if (table == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the sound's positions");
    for (int32_t n = 0; n < span; n++) {
        for (int32_t i = 0; i < half; i++) {
            double angle = n * exp(-i * log(10000) / (half > 1 ? half - 1 : 1));
            table[n * 2 * half + i] = (float)sin(angle);
            table[n * 2 * half + half + i] = (float)cos(angle);
        }
    }
    bool done = tensor_new(ops, span, 2 * half, &run->angles, err) && tensor_new(ops, span, 2 * half, &run->distances, err);
    if (done)
        ops->write(ops, run->angles.buffer, 0, table, n_bytes);
    free(table);
    return done;
}

static bool make_room(struct audio_run *run, struct carat_error *err)
{
    const struct audio_tower *t = run->tower;
    struct ops *ops = run->ops->ops;
    int32_t n = run->n, c = t->width, n_halves = (run->n_frames - 1) / 2 + 1;
    if (!tensor_new(ops, n, t->d_text, &run->soft, err) ||
        !tensor_new(ops, run->n_frames, t->encoder_free ? t->frame_samples : MEL_BANDS, &run->mel, err))
        return false;
    if (t->encoder_free)
        return true;
    return tensor_new(ops, n_halves, MEL_BANDS / 2 * t->n_channels[0], &run->halved, err) &&
           tensor_new(ops, n, MEL_BANDS / 4 * t->n_channels[1], &run->quartered, err) && tensor_new(ops, n, c, &run->x, err) &&
           tensor_new(ops, n, c, &run->normed, err) && tensor_new(ops, n, c, &run->q, err) &&
           tensor_new(ops, n, c, &run->k, err) && tensor_new(ops, n, c, &run->v, err) && tensor_new(ops, n, c, &run->term, err) &&
           tensor_new(ops, n, t->n_ff > 2 * c ? t->n_ff : 2 * c, &run->wide, err) &&
           tensor_new(ops, n, t->d_out, &run->out, err) && make_angles(run, err);
}

bool audio_start_features(const struct audio_tower *tower, struct tower_ops *ops, const float *features, int32_t n_frames,
    struct audio_run *run, struct carat_error *err)
{
    *run = (struct audio_run){.tower = tower, .ops = ops, .n_frames = n_frames};
    if (n_frames < 1)
        return fail(err, CARAT_UNSUPPORTED, "the sound is too short to be heard: it gives no frame");
    run->n = tower->encoder_free ? n_frames : (int32_t)mel_token_count(n_frames);
    run->n_steps = tower->encoder_free ? 1 : tower->n_layers + 2;
    if (!make_room(run, err)) {
        audio_end(run);
        tensor_free(ops->ops, &run->soft);
        return false;
    }
    uint64_t n_bytes = (uint64_t)n_frames * (uint64_t)run->mel.n_cols * sizeof(float);
    ops->ops->write(ops->ops, run->mel.buffer, 0, features, n_bytes);
    return true;
}

bool audio_start(const struct audio_tower *tower, struct tower_ops *ops, const float *samples, int64_t n_samples,
    struct audio_run *run, struct carat_error *err)
{
    *run = (struct audio_run){.tower = tower, .ops = ops};
    int64_t n_tokens = audio_token_count(tower, n_samples);
    enum mel_rule rule = audio_mel_rule(tower);
    if (n_tokens < 1)
        return fail(err, CARAT_UNSUPPORTED, "the sound has %lld samples at 16 kHz, too few to be heard: %lld are needed",
            (long long)n_samples, (long long)mel_least_samples(rule));
    if (n_samples > (tower->encoder_free ? SOUND_MAX_SAMPLES / 16 : SOUND_PIECE_SAMPLES))
        return fail(err, CARAT_UNSUPPORTED, "the sound is %.1f s long, more than can be heard at once: cut it into pieces",
            (double)n_samples / SOUND_RATE);
    int64_t n_frames = tower->encoder_free ? n_tokens : mel_frame_count_by(rule, n_samples);
    float *features = calloc((size_t)n_frames * (size_t)(tower->encoder_free ? tower->frame_samples : MEL_BANDS), sizeof(float));
    if (features == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the features of a sound");
    if (tower->encoder_free)
        memcpy(features, samples, (size_t)n_samples * sizeof(float)); // the last frame is filled up with zeros
    bool done = (tower->encoder_free || mel_features(rule, samples, n_samples, features, err)) &&
                audio_start_features(tower, ops, features, (int32_t)n_frames, run, err);
    free(features);
    return done;
}

// Mel frames to the residual stream.
static void subsample(struct audio_run *run)
{
    struct tower_ops *ops = run->ops;
    const struct audio_tower *t = run->tower;
    ops->subsample(ops, run->mel, 1, &t->conv[0], &t->conv_norm[0], EPS, run->halved);
    ops->subsample(ops, run->halved, t->n_channels[0], &t->conv[1], &t->conv_norm[1], EPS, run->quartered);
    ops->project(ops, run->quartered, &t->input_projection, false, run->x);
}

// Half a feed-forward: adds `residual` to x, leaves the result in `term`.
static void feed_forward(struct audio_run *run, const struct audio_feed_forward *f, const struct residual *residual)
{
    struct tower_ops *ops = run->ops;
    struct tensor wide = tensor_as(run->wide, run->n, run->tower->n_ff);
    ops->norm(ops, run->x, residual, &f->norm, EPS, run->normed);
    ops->project(ops, run->normed, &f->up.linear, true, wide);
    ops->project(ops, wide, &f->down.linear, false, run->term);
}

static void attend(struct audio_run *run, const struct audio_layer *layer, const struct residual *residual)
{
    struct tower_ops *ops = run->ops;
    const struct audio_tower *t = run->tower;
    int32_t head_dim = t->width / t->n_heads;
    struct audio_attention attention = {.n_heads = t->n_heads,
        .head_dim = head_dim,
        .span = span_of(t),
        .per_dim_scale = &layer->per_dim_scale,
        .q_scale = (float)(1 / (sqrt(head_dim) * M_LN2)),
        .k_scale = (float)(log(1 + M_E) / M_LN2),
        .cap = 50,
        .distances = run->distances};
    ops->project(ops, run->angles, &layer->relative, false, run->distances);
    ops->norm(ops, run->x, residual, &layer->attn_pre_norm, EPS, run->normed);
    ops->project(ops, run->normed, &layer->attn_q.linear, false, run->q);
    ops->project(ops, run->normed, &layer->attn_k.linear, false, run->k);
    ops->project(ops, run->normed, &layer->attn_v.linear, false, run->v);
    ops->audio_attend(ops, run->q, run->k, run->v, &attention, run->normed);
    ops->project(ops, run->normed, &layer->attn_out.linear, false, run->term);
}

static void convolve(struct audio_run *run, const struct audio_layer *layer, const struct residual *residual)
{
    struct tower_ops *ops = run->ops;
    struct tensor wide = tensor_as(run->wide, run->n, 2 * run->tower->width);
    ops->norm(ops, run->x, residual, &layer->conv_norm, EPS, run->normed);
    ops->project(ops, run->normed, &layer->conv_in.linear, false, wide);
    ops->light_conv(ops, wide, &layer->conv_depthwise, &layer->conv_post_norm, EPS, run->normed);
    ops->project(ops, run->normed, &layer->conv_out.linear, false, run->term);
}

// One conformer block. Each part leaves a term that the next one adds to the stream.
static void conformer_block(struct audio_run *run, const struct audio_layer *layer)
{
    struct residual half = {.term = run->term, .norm = &layer->first.post_norm, .factor = 0.5f};
    struct residual attended = {.term = run->term, .norm = &layer->attn_post_norm, .factor = 1};
    struct residual convolved = {.term = run->term, .factor = 1};
    struct residual last = {.term = run->term, .norm = &layer->second.post_norm, .factor = 0.5f};
    feed_forward(run, &layer->first, NULL);
    attend(run, layer, &half);
    convolve(run, layer, &attended);
    feed_forward(run, &layer->second, &convolved);
    run->ops->norm(run->ops, run->x, &last, &layer->norm_out, EPS, run->x);
}

static void finish(struct audio_run *run)
{
    struct tower_ops *ops = run->ops;
    const struct audio_tower *t = run->tower;
    struct tensor out = t->encoder_free ? run->mel : run->out;
    if (!t->encoder_free)
        ops->project(ops, run->x, &t->output_projection, false, out);
    ops->norm(ops, out, NULL, NULL, EPS, out);
    ops->project(ops, out, &t->projection, false, run->soft);
}

bool audio_step(struct audio_run *run)
{
    if (run->step == run->n_steps - 1)
        finish(run);
    else if (run->step == 0)
        subsample(run);
    else
        conformer_block(run, &run->tower->layers[run->step - 1]);
    run->ops->ops->submit(run->ops->ops);
    return ++run->step == run->n_steps;
}

void audio_end(struct audio_run *run)
{
    struct tensor *tensors[] = {&run->mel, &run->halved, &run->quartered, &run->x, &run->normed, &run->q, &run->k, &run->v,
        &run->term, &run->wide, &run->angles, &run->distances, &run->out};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensor_free(run->ops->ops, tensors[i]);
}
