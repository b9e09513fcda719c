// tower_unified_test.c: the encoder-free image and audio input of the 12B model, for which there are no goldens: a small
// projector file with random weights, against the formulas written out here in f64.

#include <unistd.h>

#include "cpu/cpu.h"
#include "gguf/writer.h"
#include "model/towers.h"
#include "ref/ref.h"
#include "tower_goldens.h"

enum { PIXELS = 48 * 48 * 3, WIDTH = 40, TEXT = 24, POSITIONS = 6, FRAME = 640 };

static uint64_t seed = 7;

static float random_number(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(int64_t)seed / 9223372036854775808.0);
}

static float *random_numbers(size_t n, float scale, float shift)
{
    float *values = malloc(n * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < n; i++)
        values[i] = random_number() * scale + shift;
    return values;
}

static struct unified {
    char path[64];
    float *norm1, *norm1_bias, *embd, *embd_bias, *norm2, *norm2_bias, *positions, *norm3, *norm3_bias, *projection, *audio;
} model;

static int make_file(void **state)
{
    (void)state;
    struct carat_error err = {0};
    model = (struct unified){.norm1 = random_numbers(PIXELS, 0.3f, 1),
        .norm1_bias = random_numbers(PIXELS, 0.1f, 0),
        .embd = random_numbers(PIXELS * WIDTH, 0.02f, 0),
        .embd_bias = random_numbers(WIDTH, 0.1f, 0),
        .norm2 = random_numbers(WIDTH, 0.3f, 1),
        .norm2_bias = random_numbers(WIDTH, 0.1f, 0),
        .positions = random_numbers(WIDTH * POSITIONS * 2, 0.5f, 0),
        .norm3 = random_numbers(WIDTH, 0.3f, 1),
        .norm3_bias = random_numbers(WIDTH, 0.1f, 0),
        .projection = random_numbers(WIDTH * TEXT, 0.2f, 0),
        .audio = random_numbers(FRAME * TEXT, 0.05f, 0)};
    const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t ne[3];
        const float *values;
    } tensors[] = {{"v.patch_norm.1.weight", 1, {PIXELS, 1, 1}, model.norm1},
        {"v.patch_norm.1.bias", 1, {PIXELS, 1, 1}, model.norm1_bias}, {"v.patch_embd.weight", 2, {PIXELS, WIDTH, 1}, model.embd},
        {"v.patch_embd.bias", 1, {WIDTH, 1, 1}, model.embd_bias}, {"v.patch_norm.2.weight", 1, {WIDTH, 1, 1}, model.norm2},
        {"v.patch_norm.2.bias", 1, {WIDTH, 1, 1}, model.norm2_bias},
        {"v.position_embd.weight", 3, {WIDTH, POSITIONS, 2}, model.positions},
        {"v.patch_norm.3.weight", 1, {WIDTH, 1, 1}, model.norm3}, {"v.patch_norm.3.bias", 1, {WIDTH, 1, 1}, model.norm3_bias},
        {"mm.input_projection.weight", 2, {WIDTH, TEXT, 1}, model.projection},
        {"mm.a.input_projection.weight", 2, {FRAME, TEXT, 1}, model.audio}};
    snprintf(model.path, sizeof model.path, "unified-%d.gguf", (int)getpid());
    struct gguf_writer *writer = gguf_writer_new(model.path, 0, &err);
    assert_non_null(writer);
    gguf_write_text(writer, "general.architecture", "clip");
    gguf_write_text(writer, "clip.vision.projector_type", "gemma4uv");
    gguf_write_text(writer, "clip.audio.projector_type", "gemma4ua");
    gguf_write_u32(writer, "clip.vision.block_count", 0);
    gguf_write_u32(writer, "clip.vision.attention.head_count", 0);
    gguf_write_u32(writer, "clip.vision.patch_size", 16);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        gguf_declare(writer, tensors[i].name, GGUF_TYPE_F32, tensors[i].n_dims, tensors[i].ne);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        gguf_write_data(writer, tensors[i].values, tensors[i].ne[0] * tensors[i].ne[1] * tensors[i].ne[2] * sizeof(float));
    bool done = gguf_writer_finish(writer, &err);
    gguf_writer_free(writer);
    return done ? 0 : -1;
}

static int remove_file(void **state)
{
    (void)state;
    float *all[] = {model.norm1, model.norm1_bias, model.embd, model.embd_bias, model.norm2, model.norm2_bias, model.positions,
        model.norm3, model.norm3_bias, model.projection, model.audio};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return remove(model.path);
}

// --- the formulas ---

static void layer_norm(double *x, int n, const float *weight, const float *bias)
{
    double mean = 0, variance = 0;
    for (int i = 0; i < n; i++)
        mean += x[i] / n;
    for (int i = 0; i < n; i++)
        variance += (x[i] - mean) * (x[i] - mean) / n;
    for (int i = 0; i < n; i++)
        x[i] = (x[i] - mean) / sqrt(variance + 1e-5) * weight[i] + bias[i];
}

static void rms(double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * x[i] / n;
    for (int i = 0; i < n; i++)
        x[i] /= sqrt(sum + 1e-6);
}

static void product(const float *matrix, const double *x, int n_in, int n_out, double *out)
{
    for (int o = 0; o < n_out; o++) {
        out[o] = 0;
        for (int i = 0; i < n_in; i++)
            out[o] += (double)matrix[o * n_in + i] * x[i];
    }
}

// The soft token of the cell in column x, row y.
static void expected_cell(const struct image *image, int x, int y, double *soft)
{
    static double pixels[PIXELS];
    double h[WIDTH];
    for (int i = 0; i < PIXELS; i++) {
        int c = i / (48 * 48), row = i / 48 % 48, column = i % 48;
        pixels[i] = image->rgb[((y * 48 + row) * image->width + x * 48 + column) * 3 + c] / 255.0;
    }
    layer_norm(pixels, PIXELS, model.norm1, model.norm1_bias);
    product(model.embd, pixels, PIXELS, WIDTH, h);
    for (int i = 0; i < WIDTH; i++)
        h[i] += model.embd_bias[i];
    layer_norm(h, WIDTH, model.norm2, model.norm2_bias);
    for (int i = 0; i < WIDTH; i++)
        h[i] += (double)model.positions[x * WIDTH + i] + model.positions[(POSITIONS + y) * WIDTH + i];
    layer_norm(h, WIDTH, model.norm3, model.norm3_bias);
    rms(h, WIDTH);
    product(model.projection, h, WIDTH, TEXT, soft);
}

static struct towers *open_towers(struct ops *ops, struct gguf_file **file)
{
    struct carat_error err = {0};
    struct towers *towers = NULL;
    if (!gguf_open_path(model.path, file, &err) || !towers_new(*file, NULL, TOWER_REFERENCE, TEXT, ops, &towers, &err) ||
        !towers_load(towers, TOWER_VISION, NULL, NULL, &err) || !towers_load(towers, TOWER_AUDIO, NULL, NULL, &err))
        fail_msg("%s", err.message);
    return towers;
}

static float *soft_of(struct towers *towers, struct ops *ops, struct tower_job *job, int32_t *n)
{
    int32_t done, total;
    struct carat_error err = {0};
    enum ops_state state = job != NULL ? OPS_PENDING : OPS_FAILED;
    while (state == OPS_PENDING)
        state = towers_step(job, &done, &total, &err);
    if (state != OPS_DONE)
        fail_msg("%s", err.message);
    struct soft_tokens *soft = towers_result(job);
    float *values = fetch_tensor(ops, soft->rows);
    *n = soft->rows.n_rows;
    towers_end(job);
    towers_drop(towers, soft);
    return values;
}

static void check_on(struct ops *ops)
{
    struct gguf_file *file;
    struct carat_error err = {0};
    struct towers *towers = open_towers(ops, &file);
    struct image image;
    int32_t n = 0;
    // 240 x 144 at a budget of 70 would be enlarged beyond the 6 positions, so the run is started on the prepared picture itself.
    assert_true(image_new(240, 144, &image, NULL));
    for (int32_t i = 0; i < 240 * 144 * 3; i++)
        image.rgb[i] = (uint8_t)(random_number() * 100 + 128);
    struct vision_tower *tower;
    struct vision_run run;
    struct tower_ops *tower_ops = tower_ops_of(ops, &err);
    assert_non_null(tower_ops);
    if (!vision_open(file, TOWER_REFERENCE, &tower, &err) || !plan_load(&tower->plan, ops, NULL, NULL, &err) ||
        !vision_start(tower, tower_ops, &image, &run, &err))
        fail_msg("%s", err.message);
    while (!vision_step(&run))
        continue;
    float *soft = fetch_tensor(ops, run.soft);
    for (int cell = 0; cell < 15; cell++) {
        double expected[TEXT];
        expected_cell(&image, cell % 5, cell / 5, expected);
        for (int i = 0; i < TEXT; i++)
            assert_float_equal(soft[cell * TEXT + i], expected[i], 2e-4);
    }
    free(soft);
    vision_end(&run);
    tensor_free(ops, &run.soft);
    plan_unload(&tower->plan, ops);
    vision_free(tower);
    tower_ops->free(tower_ops);
    image_free(&image);

    // 1500 samples: two whole frames and one filled up with zeros.
    float samples[1500];
    for (int i = 0; i < 1500; i++)
        samples[i] = random_number() * 0.5f;
    float *heard = soft_of(towers, ops, towers_begin_audio(towers, samples, 1500, 0, &err), &n);
    assert_int_equal(n, 3);
    for (int frame = 0; frame < 3; frame++) {
        double x[FRAME], expected[TEXT];
        for (int i = 0; i < FRAME; i++)
            x[i] = frame * FRAME + i < 1500 ? samples[frame * FRAME + i] : 0;
        rms(x, FRAME);
        product(model.audio, x, FRAME, TEXT, expected);
        for (int i = 0; i < TEXT; i++)
            assert_float_equal(heard[frame * TEXT + i], expected[i], 1e-4);
    }
    free(heard);
    towers_free(towers);
    gguf_close(file);
}

static void the_reference_follows_the_formulas(void **state)
{
    (void)state;
    struct ops *ops = ref_ops_new(NULL);
    check_on(ops);
    ops->free(ops);
}

static void the_cpu_follows_the_formulas(void **state)
{
    (void)state;
    struct ops *ops = cpu_ops_new(&(struct cpu_options){.n_threads = 2}, NULL);
    check_on(ops);
    ops->free(ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reference_follows_the_formulas),
        cmocka_unit_test(the_cpu_follows_the_formulas),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
