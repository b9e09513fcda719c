// tower_goldens.h: the towers against the goldens, on any backend.
//
// Tolerances (from the reference's own spread): soft tokens 1e-4 from given resized pixels or given features, 5e-4 from samples,
// hidden states 5e-4.

#ifndef CARAT_TESTS_TOWER_GOLDENS_H
#define CARAT_TESTS_TOWER_GOLDENS_H

#include <math.h>

#include "extent.h"
#include "media_golden.h"
#include "model/audio.h"
#include "model/vision.h"

// The f32 of a tensor; freed by the caller.
static inline float *fetch_tensor(struct ops *ops, struct tensor tensor)
{
    struct carat_error err = {0};
    size_t n_bytes = (size_t)tensor.n_rows * (size_t)tensor.n_cols * 4;
    float *values = malloc(n_bytes);
    assert_non_null(values);
    int32_t ticket = ops->read_start(ops, tensor.buffer, tensor.offset, n_bytes, values, &err);
    if (ticket >= 0)
        ops->wait(ops, ticket);
    if (ticket < 0 || ops->poll(ops, ticket, &err) != OPS_DONE)
        fail_msg("%s", err.message);
    return values;
}

// Compares a tensor with the golden called `name`, if the file has it.
static inline void compare_tensor(
    struct ops *ops, struct tensor tensor, const struct gguf_file *golden, const char *file, const char *name, double tolerance)
{
    int64_t n = 0;
    float *expected = golden_tensor(golden, name, &n);
    if (expected == NULL)
        return;
    assert_int_equal(n, (int64_t)tensor.n_rows * tensor.n_cols);
    float *values = fetch_tensor(ops, tensor);
    double difference = largest_difference(values, expected, n);
    if (!(difference <= tolerance))
        fail_msg("%s: '%s' differs by %g on %s, %g is allowed", file, name, difference, ops->name, tolerance);
    free(values);
    free(expected);
}

struct loaded_vision {
    struct gguf_file *file;
    struct vision_tower *tower;
};

static inline struct loaded_vision load_vision(struct ops *ops, const char *name, enum tower_compat compat)
{
    struct carat_error err = {0};
    struct loaded_vision loaded = {.file = media_golden_open(name)};
    assert_true(vision_exists(loaded.file));
    if (!vision_open(loaded.file, compat, &loaded.tower, &err) || !plan_load(&loaded.tower->plan, ops, NULL, NULL, &err))
        fail_msg("%s: %s", name, err.message);
    vision_ready(loaded.tower);
    return loaded;
}

static inline void unload_vision(struct ops *ops, struct loaded_vision *loaded)
{
    plan_unload(&loaded->tower->plan, ops);
    vision_free(loaded->tower);
    gguf_close(loaded->file);
}

// The picture as the golden's tower got it: its own resized bytes where they are complete, else resized here.
static inline struct image golden_prepared(const struct gguf_file *golden)
{
    struct carat_error err = {0};
    struct image image = golden_image(golden), prepared;
    if (!image_prepare(&image, golden_int(golden, "golden.max_soft_tokens"), IMAGE_RULE_REFERENCE, &prepared, &err))
        fail_msg("%s", err.message);
    image_free(&image);
    uint8_t *resized = gguf_find_tensor(golden, "resized.rows") == NULL ? golden_tensor(golden, "resized", NULL) : NULL;
    if (resized != NULL)
        memcpy(prepared.rgb, resized, 3 * (size_t)prepared.width * (size_t)prepared.height);
    free(resized);
    return prepared;
}

// One picture of the goldens through the tower, hidden states included where the golden has them.
static inline void check_vision(struct tower_ops *tower_ops, const struct vision_tower *tower, const char *name)
{
    struct carat_error err = {0};
    struct gguf_file *golden = media_golden_open(name);
    struct image prepared = golden_prepared(golden);
    struct vision_run run;
    struct ops *ops = tower_ops->ops;
    if (!vision_start(tower, tower_ops, &prepared, &run, &err))
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(run.n_soft, golden_int(golden, "golden.soft_tokens"));
    for (bool done = false; !done;) {
        done = vision_step(&run);
        char hidden[32];
        int32_t stage = run.step / run.n_tiles; // complete stages: 1 embedding, then two a layer
        snprintf(hidden, sizeof hidden, "layer.%d", (int)(stage - 3) / 2);
        // The goldens' patch_embed is the output before positions are added, so the first thing to compare is layer 0.
        if (run.step % run.n_tiles == 0 && stage >= 3 && stage % 2 == 1 && tower->compat == TOWER_REFERENCE)
            compare_tensor(ops, run.x, golden, name, hidden, 5e-4);
    }
    const char *soft = tower->compat == TOWER_REFERENCE ? "soft" : "soft_quickgelu";
    compare_tensor(ops, run.soft, golden, name, soft, 1e-4);
    vision_end(&run);
    tensor_free(ops, &run.soft);
    image_free(&prepared);
    gguf_close(golden);
}

struct loaded_audio {
    struct gguf_file *file;
    struct audio_tower *tower;
};

static inline struct loaded_audio load_audio(struct ops *ops, const char *name, enum tower_compat compat)
{
    struct carat_error err = {0};
    struct loaded_audio loaded = {.file = media_golden_open(name)};
    assert_true(audio_exists(loaded.file));
    if (!audio_open(loaded.file, compat, &loaded.tower, &err) || !plan_load(&loaded.tower->plan, ops, NULL, NULL, &err))
        fail_msg("%s: %s", name, err.message);
    return loaded;
}

static inline void unload_audio(struct ops *ops, struct loaded_audio *loaded)
{
    plan_unload(&loaded->tower->plan, ops);
    audio_free(loaded->tower);
    gguf_close(loaded->file);
}

// Rows `soft.rows` of the soft tokens against the golden's.
static inline void compare_soft_rows(
    struct ops *ops, struct tensor soft, const struct gguf_file *golden, const char *name, double tolerance)
{
    int64_t n_rows = 0;
    int32_t *rows = golden_tensor(golden, "soft.rows", &n_rows);
    float *expected = golden_tensor(golden, "soft", NULL), *values = fetch_tensor(ops, soft);
    double worst = 0;
    for (int64_t r = 0; r < n_rows; r++)
        worst = fmax(worst, largest_difference(values + (int64_t)rows[r] * soft.n_cols, expected + r * soft.n_cols, soft.n_cols));
    if (!(worst <= tolerance))
        fail_msg("%s: soft tokens differ by %g on %s, %g is allowed", name, worst, ops->name, tolerance);
    free(values);
    free(expected);
    free(rows);
}

static inline void finish_audio(struct audio_run *run, const struct gguf_file *golden, const char *name, double tolerance)
{
    struct ops *ops = run->ops->ops;
    for (bool done = false; !done;) {
        done = audio_step(run);
        char hidden[32];
        snprintf(hidden, sizeof hidden, "layer.%d", (int)run->step - 2);
        if (!done)
            compare_tensor(ops, run->x, golden, name, run->step == 1 ? "subsample" : hidden, 5e-4);
    }
    compare_soft_rows(ops, run->soft, golden, name, tolerance);
    audio_end(run);
    tensor_free(ops, &run->soft);
}

// One sound of the goldens through the tower: from the golden's features where they are complete, and from the samples.
static inline void check_audio(struct tower_ops *tower_ops, const struct audio_tower *tower, const char *name)
{
    struct carat_error err = {0};
    struct gguf_file *golden = media_golden_open(name);
    int64_t n_samples = 0, n_features = 0;
    float *samples = golden_sound(golden, &n_samples), *mel = golden_tensor(golden, "mel", &n_features);
    int32_t n_valid = golden_int(golden, "golden.mel_valid");
    struct audio_run run;
    assert_int_equal(audio_token_count(tower, n_samples), golden_int(golden, "golden.soft_tokens"));
    if (n_features >= (int64_t)n_valid * MEL_BANDS) {
        if (!audio_start_features(tower, tower_ops, mel, n_valid, &run, &err))
            fail_msg("%s: %s", name, err.message);
        finish_audio(&run, golden, name, 1e-4);
    }
    if (!audio_start(tower, tower_ops, samples, n_samples, &run, &err))
        fail_msg("%s: %s", name, err.message);
    finish_audio(&run, golden, name, 5e-4);
    free(mel);
    free(samples);
    gguf_close(golden);
}

// The quick ones first.
static const char *const tiny_pictures[] = {"tiny", "landscape", "pixel", "panorama", "portrait", "tower", "exact", "huge"};
static const char *const micro_pictures[] = {"tiny", "landscape"};
static const char *const sounds[] = {"n161", "n320", "n321", "n500", "silence", "speech", "tone", "chirp", "noise", "s30"};

// Every picture of the goldens, in both packagings of the file; with `quick` (slow backends) the larger ones, and most of the
// second packaging, are left out.
static inline void check_all_pictures(struct tower_ops *tower_ops, bool quick)
{
    static const struct {
        const char *file, *model;
        const char *const *pictures;
        size_t n, n_quick;
    } sets[] = {{"models/tiny-mm.mmproj-F16.gguf", "tiny-mm", tiny_pictures, 8, 4},
        {"models/tiny-mm.single-Q4_K_M.gguf", "tiny-mm", tiny_pictures, 8, 1},
        {"models/micro-mm31.mmproj-F16.gguf", "micro-mm31", micro_pictures, 2, 2}};
    for (size_t s = 0; s < sizeof sets / sizeof sets[0]; s++) {
        struct loaded_vision loaded = load_vision(tower_ops->ops, sets[s].file, TOWER_REFERENCE);
        for (size_t i = 0; i < (quick ? sets[s].n_quick : sets[s].n); i++) {
            char name[96];
            snprintf(name, sizeof name, "media/vision-%s-%s.gguf", sets[s].model, sets[s].pictures[i]);
            check_vision(tower_ops, loaded.tower, name);
        }
        unload_vision(tower_ops->ops, &loaded);
    }
}

static inline void check_all_sounds(struct tower_ops *tower_ops, bool quick)
{
    static const char *const files[] = {"models/tiny-mm.mmproj-F16.gguf", "models/tiny-mm.single-Q4_K_M.gguf"};
    static const size_t n_quick[] = {6, 1};
    for (size_t f = 0; f < 2; f++) {
        struct loaded_audio loaded = load_audio(tower_ops->ops, files[f], TOWER_REFERENCE);
        for (size_t i = 0; i < (quick ? n_quick[f] : sizeof sounds / sizeof sounds[0]); i++) {
            char name[96];
            snprintf(name, sizeof name, "media/audio-tiny-mm-%s.gguf", sounds[i]);
            check_audio(tower_ops, loaded.tower, name);
        }
        unload_audio(tower_ops->ops, &loaded);
    }
}

#endif
