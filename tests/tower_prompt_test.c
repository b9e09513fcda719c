// tower_prompt_test.c: pictures and sounds from their own bytes to the logits of the text model, in both packagings.
//
// The towers' soft tokens differ from the goldens' by up to 1e-4 (5e-4 from samples), so the logits, whose tolerance with given
// soft tokens is 1e-3 and whose deviation is 7.6, are allowed 5e-3.

#include "text_golden.h"

#include "model/towers.h"
#include "ref/ref.h"
#include "tower_goldens.h"

enum { MAX_MEDIA = 2 };

struct seen {
    struct gguf_file *file, *projector;
    struct towers *towers;
    struct soft_tokens *soft[MAX_MEDIA];
    int n;
};

static struct soft_tokens *finish_job(struct tower_job *job)
{
    struct carat_error err = {0};
    int32_t done, total;
    enum ops_state state = OPS_PENDING;
    assert_non_null(job);
    while (state == OPS_PENDING)
        state = towers_step(job, &done, &total, &err);
    if (state != OPS_DONE)
        fail_msg("%s", err.message);
    struct soft_tokens *soft = towers_result(job);
    towers_end(job);
    return soft;
}

// Looks at or listens to medium number i of the prompt ("image:landscape:60").
static struct soft_tokens *encode(struct towers *towers, const struct gguf_file *golden, uint64_t i)
{
    struct carat_error err = {0};
    char model[64], medium[64], path[256];
    golden_word(golden, "golden.model", 0, model, sizeof model);
    golden_word(golden, "golden.media", i, medium, sizeof medium);
    char *kind = strtok(medium, ":"), *name = strtok(NULL, ":");
    bool is_image = strcmp(kind, "image") == 0;
    // The pictures of micro-mm31 that store no bytes of their own are those of tiny-mm.
    snprintf(path, sizeof path, "media/%s-%s-%s.gguf", is_image ? "vision" : "audio", model, name);
    struct gguf_file *file = media_golden_open(path);
    struct soft_tokens *soft;
    if (is_image) {
        struct image image = golden_image(file);
        int32_t budget = golden_int(file, "golden.max_soft_tokens");
        soft = finish_job(towers_begin_image(towers, image.rgb, image.width, image.height, budget, &err));
        image_free(&image);
    } else {
        int64_t n = 0;
        float *samples = golden_sound(file, &n);
        soft = finish_job(towers_begin_audio(towers, samples, n, 0, &err));
        free(samples);
    }
    gguf_close(file);
    return soft;
}

static struct seen encode_all(struct rig *rig, const struct gguf_file *golden, const char *projector)
{
    struct carat_error err = {0};
    struct seen seen = {.file = rig->file, .projector = projector != NULL ? media_golden_open(projector) : NULL};
    if (!towers_new(rig->file, seen.projector, TOWER_REFERENCE, rig->text->config.d_model, rig->ops, &seen.towers, &err))
        fail_msg("%s", err.message);
    for (int kind = 0; kind < TOWER_KINDS; kind++) {
        if (towers_has(seen.towers, (enum tower_kind)kind) && !towers_load(seen.towers, (enum tower_kind)kind, NULL, NULL, &err))
            fail_msg("%s", err.message);
    }
    const struct gguf_value *media = gguf_find(golden, "golden.media");
    for (uint64_t i = 0; i < media->count; i++)
        seen.soft[seen.n++] = encode(seen.towers, golden, i);
    return seen;
}

static void forget_all(struct seen *seen)
{
    for (int i = 0; i < seen->n; i++)
        towers_drop(seen->towers, seen->soft[i]);
    towers_free(seen->towers);
    gguf_close(seen->projector);
}

// The stretches of soft tokens of the prompt, in order.
static void find_runs(const struct gguf_file *golden, const struct seen *seen, struct soft_run runs[MAX_MEDIA])
{
    size_t n;
    int n_runs = 0;
    int32_t *types = golden_i32(golden, "token_types", &n);
    for (size_t i = 0; i < n; i++) {
        if (types[i] != 0 && (i == 0 || types[i - 1] != types[i])) {
            assert_true(n_runs < seen->n);
            runs[n_runs] = (struct soft_run){.row = (int32_t)i, .rows = seen->soft[n_runs]->rows, .is_image = types[i] == 1};
            n_runs++;
        }
        if (types[i] != 0)
            runs[n_runs - 1].n_rows++;
    }
    assert_int_equal(n_runs, seen->n);
    free(types);
}

static void check_prompt(const char *name, const char *projector)
{
    struct carat_error err = {0};
    char path[96], model[64];
    snprintf(path, sizeof path, "media/%s", name);
    struct gguf_file *golden = media_golden_open(path);
    golden_word(golden, "golden.file", 0, model, sizeof model);
    struct rig rig;
    rig_open(&rig, ref_ops_new, model, (struct rig_options){.kv_f32 = true, .max_batch = 160});
    struct seen seen = encode_all(&rig, golden, projector);
    struct soft_run runs[MAX_MEDIA] = {0};
    find_runs(golden, &seen, runs);
    size_t n, n_positions, n_logits, n_vocab = (size_t)rig.text->config.n_vocab;
    int32_t *ids = golden_i32(golden, "ids", &n), *positions = golden_i32(golden, "pos", &n_positions);
    float *logits = golden_f32(golden, "logits", &n_logits), *got = malloc(n * n_vocab * sizeof *got);
    assert_non_null(got);
    struct text_batch batch = {.n = (int32_t)n, .ids = ids, .n_logits = (int32_t)n, .soft = runs, .n_soft = seen.n};
    require(text_forward(rig.context, rig.kv, &batch, &err), err);
    read_tensor(rig.ops, rig.context->logits, got);
    double worst = 0;
    for (size_t i = 0; i < n_positions; i++)
        worst = fmax(worst, largest_difference(got + (size_t)positions[i] * n_vocab, logits + i * n_vocab, (int64_t)n_vocab));
    if (!(worst <= 5e-3))
        fail_msg("%s: logits differ by %g", name, worst);
    forget_all(&seen);
    free(got);
    free(logits);
    free(positions);
    free(ids);
    rig_close(&rig);
    gguf_close(golden);
}

static void prompts_with_a_projector_file_give_the_reference_logits(void **state)
{
    (void)state;
    static const char *const names[] = {"audio", "image", "image-audio", "two-images"};
    for (size_t i = 0; i < 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "prompt-tiny-mm-%s.gguf", names[i]);
        check_prompt(name, "models/tiny-mm.mmproj-F16.gguf");
    }
}

static void prompts_with_a_single_file_give_the_reference_logits(void **state)
{
    (void)state;
    check_prompt("prompt-tiny-mm-single-image-audio.gguf", NULL);
}

static void images_that_see_both_ways_give_the_reference_logits(void **state)
{
    (void)state;
    check_prompt("prompt-micro-mm31-image.gguf", "models/micro-mm31.mmproj-F16.gguf");
    check_prompt("prompt-micro-mm31-two-images.gguf", "models/micro-mm31.mmproj-F16.gguf");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prompts_with_a_projector_file_give_the_reference_logits),
        cmocka_unit_test(prompts_with_a_single_file_give_the_reference_logits),
        cmocka_unit_test(images_that_see_both_ways_give_the_reference_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
