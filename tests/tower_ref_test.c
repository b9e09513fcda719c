// tower_ref_test.c: the vision and audio towers on the reference backend, against the goldens.

#include "ref/ref.h"
#include "ref/ref_tower.h"
#include "tower_goldens.h"

static int make_backend(void **state)
{
    struct ops *ops = ref_ops_new(NULL);
    *state = ops != NULL ? ref_tower_ops_new(ops, NULL) : NULL;
    return *state != NULL ? 0 : -1;
}

static int free_backend(void **state)
{
    struct tower_ops *tower = *state;
    struct ops *ops = tower->ops;
    tower->free(tower);
    ops->free(ops);
    return 0;
}

static void pictures_give_the_reference_soft_tokens(void **state)
{
    check_all_pictures(*state, is_sanitized() && !test_everything());
}

static void sounds_give_the_reference_soft_tokens(void **state)
{
    check_all_sounds(*state, is_sanitized() && !test_everything());
}

// llama.cpp computes the feed-forward with another activation; the goldens hold its result too.
static void the_activation_of_llama_cpp_can_be_asked_for(void **state)
{
    struct tower_ops *tower = *state;
    struct loaded_vision loaded = load_vision(tower->ops, "models/tiny-mm.mmproj-F16.gguf", TOWER_LLAMA_CPP);
    check_vision(tower, loaded.tower, "media/vision-tiny-mm-landscape.gguf");
    unload_vision(tower->ops, &loaded);
    loaded = load_vision(tower->ops, "models/micro-mm31.mmproj-F16.gguf", TOWER_LLAMA_CPP);
    check_vision(tower, loaded.tower, "media/vision-micro-mm31-landscape.gguf");
    unload_vision(tower->ops, &loaded);
}

static void a_picture_of_no_tower_size_is_refused(void **state)
{
    struct tower_ops *tower = *state;
    struct loaded_vision loaded = load_vision(tower->ops, "models/tiny-mm.mmproj-F16.gguf", TOWER_REFERENCE);
    struct vision_run run;
    struct image image;
    struct carat_error err = {0};
    assert_true(image_new(50, 48, &image, NULL));
    assert_false(vision_start(loaded.tower, tower, &image, &run, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    image_free(&image);
    assert_true(image_new(48 * 200, 48, &image, NULL)); // 600 patches in a row, 432 positions
    assert_false(vision_start(loaded.tower, tower, &image, &run, &err));
    assert_non_null(strstr(err.message, "432"));
    image_free(&image);
    unload_vision(tower->ops, &loaded);
}

static void a_sound_too_short_or_too_long_is_refused(void **state)
{
    struct tower_ops *tower = *state;
    struct loaded_audio loaded = load_audio(tower->ops, "models/tiny-mm.mmproj-F16.gguf", TOWER_REFERENCE);
    struct audio_run run;
    struct carat_error err = {0};
    float *samples = calloc(480001, sizeof(float));
    assert_non_null(samples);
    assert_false(audio_start(loaded.tower, tower, samples, 160, &run, &err));
    assert_non_null(strstr(err.message, "161"));
    assert_false(audio_start(loaded.tower, tower, samples, 480001, &run, &err));
    assert_int_equal(err.code, CARAT_UNSUPPORTED);
    free(samples);
    unload_audio(tower->ops, &loaded);
}

// Weights go and come back: the second computation gives the same bits.
static void released_weights_can_be_loaded_again(void **state)
{
    struct tower_ops *tower = *state;
    struct loaded_vision loaded = load_vision(tower->ops, "models/tiny-mm.mmproj-F16.gguf", TOWER_REFERENCE);
    plan_unload(&loaded.tower->plan, tower->ops);
    assert_true(plan_load(&loaded.tower->plan, tower->ops, NULL, NULL, NULL));
    vision_ready(loaded.tower);
    check_vision(tower, loaded.tower, "media/vision-tiny-mm-panorama.gguf");
    unload_vision(tower->ops, &loaded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pictures_give_the_reference_soft_tokens),
        cmocka_unit_test(sounds_give_the_reference_soft_tokens),
        cmocka_unit_test(the_activation_of_llama_cpp_can_be_asked_for),
        cmocka_unit_test(a_picture_of_no_tower_size_is_refused),
        cmocka_unit_test(a_sound_too_short_or_too_long_is_refused),
        cmocka_unit_test(released_weights_can_be_loaded_again),
    };
    return cmocka_run_group_tests(tests, make_backend, free_backend);
}
