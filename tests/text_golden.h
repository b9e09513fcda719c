// text_golden.h: the golden suite of the text model for any backend. Include it first (see golden.h).
//
// A backend's test makes a policy and calls run_text_goldens(): every text model of the fixtures is loaded, its prompt, its long
// prompt and its greedy continuation are computed, and all that the goldens hold is compared; run_soft_goldens() does the same
// for prompts with images and sounds, whose soft tokens are given. A table of the largest deviations is printed. Example:
//
//     static struct ops *make(struct carat_error *err) { return ref_ops_new(err); }
//     static void goldens(void **state) {
//         struct text_policy exact = {.kv_f32 = true, .floats = TEXT_EXACT, .quantised = TEXT_EXACT};
//         run_text_goldens(make, &exact);
//     }
//
// The tolerances come from the agreement of two independent implementations on the same files: in f32 arithmetic on dequantised
// weights they differ by up to 4e-4 in logits (standard deviation 7.6) and 2e-4 in hidden states; with activations rounded to 8
// bits by up to 3 in single logits (6.6 where an expert flips) and 0.55 rms.

#ifndef CARAT_TESTS_TEXT_GOLDEN_H
#define CARAT_TESTS_TEXT_GOLDEN_H

#include "extent.h"
#include "golden.h"
#include "model/text.h"

// What is allowed on one kind of files.
struct text_tolerance {
    double logits;     // largest absolute deviation of a logit; 0: not judged
    double logits_rms; // of all logits of a file; 0: not judged
    double hidden;     // largest absolute deviation of embed, ple, layer.N, norm; 0: not judged
    double margin;     // greedy tokens must agree where the two best golden logits are further apart than this
};

#define TEXT_EXACT {.logits = 1e-3, .hidden = 5e-4}

enum golden_extent {
    GOLDEN_WHOLE,
    GOLDEN_BRIEF, // the logits of all tokens of the prompt, in one batch
    GOLDEN_LEFT_OUT
};

// What slow devices and sanitized builds do with the variants; GOLDEN_WHOLE elsewhere.
GOLDEN_HELPER enum golden_extent unless_slow(bool is_slow, enum golden_extent extent)
{
    return is_slow && !test_everything() ? extent : GOLDEN_WHOLE;
}

struct text_policy {
    bool kv_f32;                     // keys and values in 4 bytes
    enum golden_extent variants;     // of files that bring no architecture of their own
    struct text_tolerance floats;    // files of type F32, F16, BF16
    struct text_tolerance quantised; // all others
};

typedef struct ops *ops_factory(struct carat_error *err);

static const struct {
    const char *golden, *model;
    bool is_variant; // differs from an earlier model in the types of its weights alone
} text_goldens[] = {
    {"text-micro-e2b.F32.gguf", "micro-e2b.F32.gguf", false},
    {"text-micro-e2b.F32.gguf", "micro-e2b.F16.gguf", true},
    {"text-micro-e2b.F32.gguf", "micro-e2b.BF16.gguf", true},
    {"text-micro-31b.F16.gguf", "micro-31b.F16.gguf", false},
    {"text-micro-26b.BF16.gguf", "micro-26b.BF16.gguf", false},
    {"text-tiny-e2b.Q4_K_M.gguf", "tiny-e2b.Q4_K_M.gguf", false},
    {"text-tiny-e2b.Q4_K_M.gguf", "tiny-mm.single-Q4_K_M.gguf", true},
    {"text-tiny-e2b.Q8_0.gguf", "tiny-e2b.Q8_0.gguf", true},
    {"text-tiny-31b.Q4_K_M.gguf", "tiny-31b.Q4_K_M.gguf", true},
    {"text-tiny-26b.Q4_K_M.gguf", "tiny-26b.Q4_K_M.gguf", false},
    {"text-tiny-quant.Q4_0.gguf", "tiny-quant.Q4_0.gguf", true},
    {"text-tiny-quant.Q2_K.gguf", "tiny-quant.Q2_K.gguf", true},
    {"text-tiny-quant.Q3_K_M.gguf", "tiny-quant.Q3_K_M.gguf", true},
    {"text-tiny-quant.Q5_K_M.gguf", "tiny-quant.Q5_K_M.gguf", true},
    {"text-tiny-quant.Q6_K.gguf", "tiny-quant.Q6_K.gguf", true},
    {"text-tiny-quant.IQ4_NL.gguf", "tiny-quant.IQ4_NL.gguf", true},
    {"text-tiny-quant.IQ4_XS.gguf", "tiny-quant.IQ4_XS.gguf", true},
};

enum { TEXT_GOLDENS = sizeof text_goldens / sizeof text_goldens[0] };

// A loaded model with one sequence.
struct rig {
    struct ops *ops;
    struct gguf_file *file;
    struct plan plan;
    struct gemma4_text *text;
    struct text_context *context;
    struct kv_cache *kv;
};

struct rig_options {
    int32_t max_batch; // 0: 128, or less if the backend takes less
    int32_t n_context; // 0: 256
    bool kv_f32;
    bool run_all_rows;
    enum gemma4_compat compat;
};

// Loads a model file that is already open, which the rig then owns.
GOLDEN_HELPER void rig_open_file(struct rig *rig, ops_factory *factory, struct gguf_file *file, struct rig_options options)
{
    struct carat_error err = {0};
    *rig = (struct rig){.ops = factory(&err), .file = file};
    require(rig->ops != NULL, err);
    require(gemma4_open(rig->file, options.compat, &rig->plan, &rig->text, &err), err);
    require(plan_load(&rig->plan, rig->ops, NULL, NULL, &err), err);
    gemma4_fold(rig->text, rig->ops);
    require(gemma4_ready(rig->text, &err), err);
    int32_t max_batch = options.max_batch != 0 ? options.max_batch : 128;
    if (max_batch > rig->ops->max_batch)
        max_batch = rig->ops->max_batch;
    struct text_options sizes = {.max_batch = max_batch, .max_logits = max_batch, .run_all_rows = options.run_all_rows};
    struct kv_options room = {
        .n_context = options.n_context != 0 ? options.n_context : 256, .max_batch = max_batch, .is_f32 = options.kv_f32};
    rig->context = text_context_new(rig->ops, rig->text, &sizes, &err);
    require(rig->context != NULL, err);
    rig->kv = kv_cache_new(rig->ops, &rig->text->config, &room, &err);
    require(rig->kv != NULL, err);
}

GOLDEN_HELPER void rig_open(struct rig *rig, ops_factory *factory, const char *model, struct rig_options options)
{
    rig_open_file(rig, factory, golden_open("models", model), options);
}

GOLDEN_HELPER void rig_close(struct rig *rig)
{
    kv_cache_free(rig->kv);
    text_context_free(rig->context);
    gemma4_unfold(rig->text, rig->ops);
    plan_unload(&rig->plan, rig->ops);
    gemma4_free(rig->text);
    plan_free(&rig->plan);
    rig->ops->free(rig->ops);
    gguf_close(rig->file);
}

// Runs n ids in chunks; the logits of all of them go to `logits` [n, V] (NULL: only the last row's are computed, and stay in the
// context).
GOLDEN_HELPER void rig_run(struct rig *rig, const int32_t *ids, int32_t n, int32_t chunk, float *logits)
{
    struct carat_error err = {0};
    int32_t largest = rig->context->options.max_batch;
    chunk = chunk < 1 || chunk > largest ? largest : chunk;
    for (int32_t first = 0; first < n; first += chunk) {
        int32_t n_rows = n - first < chunk ? n - first : chunk;
        struct text_batch batch = {.n = n_rows, .ids = ids + first, .n_logits = n_rows};
        if (logits == NULL)
            batch.n_logits = first + n_rows == n ? 1 : 0;
        require(text_forward(rig->context, rig->kv, &batch, &err), err);
        if (logits != NULL)
            read_tensor(rig->ops, rig->context->logits, logits + (size_t)first * (size_t)rig->text->config.n_vocab);
    }
}

// --- comparing ---

struct text_result {
    struct deviation prompt, longer, hidden;
    int n_greedy, n_greedy_equal, n_greedy_judged_wrong;
    double smallest_judged_margin;
};

struct hidden_check {
    struct rig *rig;
    const struct gguf_file *golden;
    struct deviation *deviation;
};

static void check_hidden(void *context, const char *name, int32_t layer, struct tensor rows)
{
    struct hidden_check *check = context;
    char full[32];
    if (strcmp(name, "layer") == 0)
        snprintf(full, sizeof full, "prompt.layer.%d", layer);
    else
        snprintf(full, sizeof full, "prompt.%s", name);
    if (!golden_has(check->golden, full))
        return;
    size_t n;
    float *golden = golden_f32(check->golden, full, &n);
    assert_int_equal(n, (size_t)rows.n_rows * (size_t)rows.n_cols);
    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    read_tensor(check->rig->ops, rows, got);
    deviation_add(check->deviation, got, golden, n);
    free(got);
    free(golden);
}

GOLDEN_HELPER void compare_prompt(struct rig *rig, const struct gguf_file *golden, bool brief, struct text_result *result)
{
    struct carat_error err = {0};
    size_t n, n_logits;
    int32_t *ids = golden_i32(golden, "prompt.ids", &n);
    float *logits = golden_f32(golden, "prompt.logits", &n_logits);
    float *got = malloc(n_logits * sizeof *got);
    assert_non_null(got);
    struct hidden_check check = {.rig = rig, .golden = golden, .deviation = &result->hidden};
    struct text_batch batch = {
        .n = (int32_t)n, .ids = ids, .n_logits = (int32_t)n, .capture = check_hidden, .capture_context = &check};
    require(text_forward(rig->context, rig->kv, &batch, &err), err);
    assert_int_equal(n_logits, n * (size_t)rig->text->config.n_vocab);
    read_tensor(rig->ops, rig->context->logits, got);
    deviation_add(&result->prompt, got, logits, n_logits);
    // Again in pieces, with logits for the last row only: rows without logits are not taken through all layers.
    size_t n_vocab = n_logits / n;
    static const int32_t chunks[] = {7, 0};
    for (int i = 0; i < 2 && !brief; i++) {
        require(kv_truncate(rig->kv, 0, &err), err);
        rig_run(rig, ids, (int32_t)n, chunks[i], NULL);
        read_tensor(rig->ops, rig->context->logits, got);
        deviation_add(&result->prompt, got, logits + n_logits - n_vocab, n_vocab);
    }
    free(got);
    free(logits);
    free(ids);
}

// The golden tokens are fed one by one, so that one difference does not bring on others.
GOLDEN_HELPER void compare_greedy(
    struct rig *rig, const struct gguf_file *golden, double margin_judged, struct text_result *result)
{
    struct carat_error err = {0};
    size_t n, n_margins;
    int32_t *ids = golden_i32(golden, "greedy.ids", &n);
    float *margins = golden_f32(golden, "greedy.margin", &n_margins);
    struct buffer *room = rig->ops->buffer_new(rig->ops, 4, &err);
    require(room != NULL, err);
    struct tensor choice = {.buffer = room, .n_rows = 1, .n_cols = 1};
    for (size_t i = 0; i < n; i++) {
        int32_t id;
        rig->ops->argmax(rig->ops, rig->context->logits, rig->context->logits.n_rows - 1, choice);
        read_tensor(rig->ops, choice, &id);
        result->n_greedy++;
        result->n_greedy_equal += id == ids[i];
        result->n_greedy_judged_wrong += id != ids[i] && margins[i] > margin_judged;
        struct text_batch batch = {.n = 1, .ids = &ids[i], .n_logits = 1};
        require(text_forward(rig->context, rig->kv, &batch, &err), err);
    }
    rig->ops->buffer_free(rig->ops, room);
    free(margins);
    free(ids);
}

GOLDEN_HELPER void compare_long(struct rig *rig, const struct gguf_file *golden, struct text_result *result)
{
    struct carat_error err = {0};
    size_t n, n_positions, n_logits;
    int32_t *ids = golden_i32(golden, "long.ids", &n);
    int32_t *positions = golden_i32(golden, "long.pos", &n_positions);
    float *logits = golden_f32(golden, "long.logits", &n_logits);
    size_t n_vocab = (size_t)rig->text->config.n_vocab;
    float *got = malloc(n * n_vocab * sizeof *got);
    assert_non_null(got);
    require(kv_truncate(rig->kv, 0, &err), err);
    rig_run(rig, ids, (int32_t)n, 0, got);
    for (size_t i = 0; i < n_positions; i++)
        deviation_add(&result->longer, got + (size_t)positions[i] * n_vocab, logits + i * n_vocab, n_vocab);
    free(got);
    free(logits);
    free(positions);
    free(ids);
}

GOLDEN_HELPER bool within(const struct text_result *result, const struct text_tolerance *t)
{
    bool good = result->n_greedy_judged_wrong == 0;
    if (t->logits > 0)
        good = good && result->prompt.largest <= t->logits && result->longer.largest <= t->logits;
    if (t->logits_rms > 0)
        good = good && deviation_rms(&result->prompt) <= t->logits_rms && deviation_rms(&result->longer) <= t->logits_rms;
    if (t->hidden > 0)
        good = good && result->hidden.largest <= t->hidden;
    return good;
}

// One model of the list.
GOLDEN_HELPER bool run_text_golden(ops_factory *factory, const struct text_policy *policy, int i)
{
    const char *model = text_goldens[i].model;
    bool floats = strstr(model, "F32") != NULL || strstr(model, "F16") != NULL; // BF16 too
    const struct text_tolerance *tolerance = floats ? &policy->floats : &policy->quantised;
    struct gguf_file *golden = golden_open("text", text_goldens[i].golden);
    bool brief = policy->variants == GOLDEN_BRIEF && text_goldens[i].is_variant;
    struct text_result result = {0};
    struct rig rig;
    rig_open(&rig, factory, model, (struct rig_options){.kv_f32 = policy->kv_f32});
    compare_prompt(&rig, golden, brief, &result);
    if (!brief) {
        compare_greedy(&rig, golden, tolerance->margin, &result);
        compare_long(&rig, golden, &result);
    }
    bool good = within(&result, tolerance);
    printf("  %-28s prompt %.1e rms %.1e  long %.1e rms %.1e  hidden %.1e  greedy %d/%d%s\n", model, result.prompt.largest,
        deviation_rms(&result.prompt), result.longer.largest, deviation_rms(&result.longer), result.hidden.largest,
        result.n_greedy_equal, result.n_greedy, good ? "" : "  <-- beyond the tolerance");
    rig_close(&rig);
    gguf_close(golden);
    return good;
}

GOLDEN_HELPER void run_text_goldens(ops_factory *factory, const struct text_policy *policy)
{
    int n_bad = 0;
    for (int i = 0; i < TEXT_GOLDENS; i++)
        if (policy->variants != GOLDEN_LEFT_OUT || !text_goldens[i].is_variant)
            n_bad += !run_text_golden(factory, policy, i);
    assert_int_equal(n_bad, 0);
}

// --- prompts with images and sounds ---

// The soft tokens are given (those of the goldens of the towers), so only the text model is judged: which rows they replace, row
// 0 of the per-layer table for them, and who sees whom within an image.

static const char *const soft_golden_names[] = {"prompt-micro-mm31-image.gguf", "prompt-micro-mm31-two-images.gguf",
    "prompt-tiny-mm-audio.gguf", "prompt-tiny-mm-image.gguf", "prompt-tiny-mm-image-audio.gguf", "prompt-tiny-mm-two-images.gguf",
    "prompt-tiny-mm-single-image-audio.gguf"};

enum { SOFT_GOLDENS = sizeof soft_golden_names / sizeof soft_golden_names[0], SOFT_MAX_RUNS = 4 };

GOLDEN_HELPER void golden_word(const struct gguf_file *file, const char *key, uint64_t i, char *out, size_t n_out)
{
    struct gguf_text text;
    const struct gguf_value *value = gguf_find(file, key);
    assert_non_null(value);
    assert_true(gguf_value_text(value, i, &text));
    snprintf(out, n_out, "%.*s", (int)text.n_bytes, text.bytes);
}

// Loads the soft tokens of medium number i ("image:landscape:60") into a buffer of the backend.
GOLDEN_HELPER struct tensor load_soft_tokens(struct rig *rig, const struct gguf_file *golden, uint64_t i)
{
    struct carat_error err = {0};
    char model[64], medium[64], path[256];
    golden_word(golden, "golden.model", 0, model, sizeof model);
    golden_word(golden, "golden.media", i, medium, sizeof medium);
    char *kind = strtok(medium, ":"), *name = strtok(NULL, ":");
    snprintf(path, sizeof path, "%s-%s-%s.gguf", strcmp(kind, "image") == 0 ? "vision" : "audio", model, name);
    struct gguf_file *file = golden_open("media", path);
    size_t n;
    float *soft = golden_f32(file, "soft", &n);
    int32_t d = rig->text->config.d_model;
    struct tensor tensor = {.buffer = rig->ops->buffer_new(rig->ops, n * 4, &err), .n_rows = (int32_t)n / d, .n_cols = d};
    require(tensor.buffer != NULL, err);
    rig->ops->write(rig->ops, tensor.buffer, 0, soft, n * 4);
    free(soft);
    gguf_close(file);
    return tensor;
}

// Every stretch of equal types other than text becomes a run.
GOLDEN_HELPER int find_soft_runs(struct rig *rig, const struct gguf_file *golden, struct soft_run runs[SOFT_MAX_RUNS])
{
    size_t n;
    int n_runs = 0;
    int32_t *types = golden_i32(golden, "token_types", &n);
    for (size_t i = 0; i < n; i++) {
        if (types[i] == 0)
            continue;
        if (i == 0 || types[i - 1] != types[i]) {
            assert_true(n_runs < SOFT_MAX_RUNS);
            runs[n_runs] = (struct soft_run){
                .row = (int32_t)i, .rows = load_soft_tokens(rig, golden, (uint64_t)n_runs), .is_image = types[i] == 1};
            n_runs++;
        }
        runs[n_runs - 1].n_rows++;
    }
    free(types);
    for (int i = 0; i < n_runs; i++)
        assert_int_equal(runs[i].n_rows, runs[i].rows.n_rows);
    return n_runs;
}

GOLDEN_HELPER bool run_soft_golden(ops_factory *factory, const struct text_policy *policy, const char *name)
{
    struct carat_error err = {0};
    struct gguf_file *golden = golden_open("media", name);
    char model[64];
    golden_word(golden, "golden.file", 0, model, sizeof model);
    const struct text_tolerance *tolerance = strstr(model, "F16") != NULL ? &policy->floats : &policy->quantised;
    struct rig rig;
    rig_open(&rig, factory, model, (struct rig_options){.kv_f32 = policy->kv_f32, .max_batch = 160});
    struct soft_run runs[SOFT_MAX_RUNS];
    int n_runs = find_soft_runs(&rig, golden, runs);
    size_t n, n_positions, n_logits, n_vocab = (size_t)rig.text->config.n_vocab;
    int32_t *ids = golden_i32(golden, "ids", &n), *positions = golden_i32(golden, "pos", &n_positions);
    float *logits = golden_f32(golden, "logits", &n_logits), *got = malloc(n * n_vocab * sizeof *got);
    assert_non_null(got);
    struct text_batch batch = {.n = (int32_t)n, .ids = ids, .n_logits = (int32_t)n, .soft = runs, .n_soft = n_runs};
    require(text_forward(rig.context, rig.kv, &batch, &err), err);
    read_tensor(rig.ops, rig.context->logits, got);
    struct deviation deviation = {0};
    for (size_t i = 0; i < n_positions; i++)
        deviation_add(&deviation, got + (size_t)positions[i] * n_vocab, logits + i * n_vocab, n_vocab);
    bool good = (tolerance->logits <= 0 || deviation.largest <= tolerance->logits) &&
                (tolerance->logits_rms <= 0 || deviation_rms(&deviation) <= tolerance->logits_rms);
    printf("  %-40s logits %.1e rms %.1e%s\n", name, deviation.largest, deviation_rms(&deviation),
        good ? "" : "  <-- beyond the tolerance");
    for (int i = 0; i < n_runs; i++)
        rig.ops->buffer_free(rig.ops, runs[i].rows.buffer);
    free(got);
    free(logits);
    free(positions);
    free(ids);
    rig_close(&rig);
    gguf_close(golden);
    return good;
}

GOLDEN_HELPER void run_soft_goldens(ops_factory *factory, const struct text_policy *policy)
{
    int n_bad = 0;
    for (int i = 0; i < SOFT_GOLDENS; i++)
        n_bad += !run_soft_golden(factory, policy, soft_golden_names[i]);
    assert_int_equal(n_bad, 0);
}

#endif
