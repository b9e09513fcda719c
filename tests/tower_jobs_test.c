// tower_jobs_test.c: jobs, the cache of soft tokens, weights that come and go, odd sounds and pictures.

#include "model/towers.h"
#include "ref/ref.h"
#include "tower_goldens.h"

struct setting {
    struct ops *ops;
    struct gguf_file *text, *projector;
    struct towers *towers;
};

static int set_up(void **state)
{
    static struct setting setting;
    struct carat_error err = {0};
    setting.ops = ref_ops_new(&err);
    setting.text = media_golden_open("models/tiny-e2b.Q8_0.gguf");
    setting.projector = media_golden_open("models/tiny-mm.mmproj-F16.gguf");
    *state = &setting;
    if (towers_new(setting.text, setting.projector, TOWER_REFERENCE, 256, setting.ops, &setting.towers, &err))
        return 0;
    print_error("%s\n", err.message);
    return -1;
}

static int tear_down(void **state)
{
    struct setting *setting = *state;
    towers_free(setting->towers);
    gguf_close(setting->projector);
    gguf_close(setting->text);
    setting->ops->free(setting->ops);
    return 0;
}

static struct soft_tokens *finish(struct tower_job *job)
{
    struct carat_error err = {0};
    int32_t done = 0, total = 0, last = -1;
    for (enum ops_state state = OPS_PENDING; state != OPS_DONE;) {
        state = towers_step(job, &done, &total, &err);
        if (state == OPS_FAILED)
            fail_msg("%s", err.message);
        assert_true(done >= last && done <= total);
        last = done;
    }
    struct soft_tokens *soft = towers_result(job);
    towers_end(job);
    return soft;
}

static void weights_are_loaded_stated_and_released(void **state)
{
    struct setting *s = *state;
    struct carat_error err = {0};
    uint8_t pixel[3] = {1, 2, 3};
    for (int kind = 0; kind < TOWER_KINDS; kind++) {
        assert_true(towers_has(s->towers, (enum tower_kind)kind));
        assert_true(towers_weight_bytes(s->towers, (enum tower_kind)kind) > 100000);
        assert_true(towers_job_bytes(s->towers, (enum tower_kind)kind, 280) > 1000000);
        assert_false(towers_loaded(s->towers, (enum tower_kind)kind));
    }
    assert_null(towers_begin_image(s->towers, pixel, 1, 1, 70, &err));
    assert_non_null(strstr(err.message, "not loaded"));
    for (int round = 0; round < 2; round++) {
        assert_true(towers_load(s->towers, TOWER_VISION, NULL, NULL, &err));
        assert_true(towers_loaded(s->towers, TOWER_VISION));
        towers_release(s->towers, TOWER_VISION);
        assert_false(towers_loaded(s->towers, TOWER_VISION));
    }
}

// From the original bytes: a resized byte may be off by rounding, so 1e-2 (here the bytes are equal, so far less).
static void a_picture_gives_the_golden_soft_tokens_and_is_remembered(void **state)
{
    struct setting *s = *state;
    struct carat_error err = {0};
    struct gguf_file *golden = media_golden_open("media/vision-tiny-mm-portrait.gguf");
    struct image image = golden_image(golden);
    int32_t n_tokens = 0;
    assert_true(towers_image_tokens(s->towers, image.width, image.height, 70, &n_tokens, &err));
    assert_int_equal(n_tokens, golden_int(golden, "golden.soft_tokens"));
    assert_true(towers_load(s->towers, TOWER_VISION, NULL, NULL, &err));
    struct soft_tokens *soft = finish(towers_begin_image(s->towers, image.rgb, image.width, image.height, 70, &err));
    assert_int_equal(soft->rows.n_rows, n_tokens);
    compare_tensor(s->ops, soft->rows, golden, "portrait", "soft", 1e-4);
    towers_release(s->towers, TOWER_VISION);
    // Known already, so it needs no weights.
    struct soft_tokens *again = finish(towers_begin_image(s->towers, image.rgb, image.width, image.height, 70, &err));
    assert_ptr_equal(again, soft);
    towers_drop(s->towers, soft);
    towers_drop(s->towers, again);
    image.rgb[5] ^= 1; // another picture
    assert_null(towers_begin_image(s->towers, image.rgb, image.width, image.height, 70, &err));
    image_free(&image);
    gguf_close(golden);
}

static void an_abandoned_job_leaves_nothing_behind(void **state)
{
    struct setting *s = *state;
    struct carat_error err = {0};
    struct image image;
    int32_t done = 0, total = 0;
    assert_true(image_new(48, 48, &image, NULL));
    assert_true(towers_load(s->towers, TOWER_VISION, NULL, NULL, &err));
    for (int steps = 0; steps < 4; steps++) {
        struct tower_job *job = towers_begin_image(s->towers, image.rgb, 48, 48, 70, &err);
        assert_non_null(job);
        for (int i = 0; i < steps; i++)
            assert_int_equal(towers_step(job, &done, &total, &err), OPS_PENDING);
        towers_end(job);
    }
    image_free(&image);
    towers_release(s->towers, TOWER_VISION);
}

// A sound of 61 s: two whole pieces and a rest of 1 s; the second piece equals that piece alone.
static void a_long_sound_is_heard_in_pieces(void **state)
{
    struct setting *s = *state;
    struct carat_error err = {0};
    int64_t n = 61 * 16000;
    int32_t n_pieces = 0;
    float *samples = malloc((size_t)n * sizeof(float));
    assert_non_null(samples);
    for (int64_t i = 0; i < n; i++)
        samples[i] = 0.3f * sinf((float)i * 0.05f) * sinf((float)i * 1e-4f);
    assert_true(towers_audio_pieces(s->towers, n, &n_pieces, &err));
    assert_int_equal(n_pieces, 3);
    assert_int_equal(towers_piece_tokens(s->towers, n, 0), 750);
    assert_int_equal(towers_piece_tokens(s->towers, n, 2), 25);
    assert_true(towers_load(s->towers, TOWER_AUDIO, NULL, NULL, &err));
    struct soft_tokens *last = finish(towers_begin_audio(s->towers, samples, n, 2, &err));
    struct soft_tokens *alone = finish(towers_begin_audio(s->towers, samples + 60 * 16000, 16000, 0, &err));
    assert_int_equal(last->rows.n_rows, 25);
    assert_ptr_equal(last, alone);
    towers_drop(s->towers, last);
    towers_drop(s->towers, alone);
    assert_false(towers_audio_pieces(s->towers, 160, &n_pieces, &err));
    assert_non_null(strstr(err.message, "too few"));
    free(samples);
    towers_release(s->towers, TOWER_AUDIO);
}

static void a_projector_of_another_width_is_refused(void **state)
{
    struct setting *s = *state;
    struct towers *towers = NULL;
    struct carat_error err = {0};
    assert_false(towers_new(s->text, s->projector, TOWER_REFERENCE, 1536, s->ops, &towers, &err));
    assert_non_null(strstr(err.message, "another model"));
    assert_true(towers_new(s->text, NULL, TOWER_REFERENCE, 256, s->ops, &towers, &err));
    assert_false(towers_has(towers, TOWER_VISION));
    assert_null(towers_begin_image(towers, (uint8_t[3]){0}, 1, 1, 70, &err));
    assert_non_null(strstr(err.message, "cannot see"));
    towers_free(towers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_loaded_stated_and_released),
        cmocka_unit_test(a_picture_gives_the_golden_soft_tokens_and_is_remembered),
        cmocka_unit_test(an_abandoned_job_leaves_nothing_behind),
        cmocka_unit_test(a_long_sound_is_heard_in_pieces),
        cmocka_unit_test(a_projector_of_another_width_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
