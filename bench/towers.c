// towers.c: time of the vision and audio towers.
//
// usage: towers MMPROJ.gguf [--backend ref|cpu|webgpu] [--threads N] [--repeat N] [--size PIXELS] [--seconds S] [--profile]
// Prints the median time of a square picture and of a sound, from pixels and samples to soft tokens in memory; every repetition
// is another picture. With --profile (webgpu): the time of every kernel by timestamps.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "media/sound.h"
#include "model/towers.h"
#include "ref/ref.h"
#ifdef CARAT_HAVE_WEBGPU
#include "webgpu/internal.h"
#endif

enum { MAX_REPEAT = 100 };

struct bench {
    const char *path, *backend;
    int n_threads, repeat, size;
    double seconds;
    bool profile;
    struct ops *ops;
    struct towers *towers;
};

static void die(const char *what, const struct carat_error *err)
{
    fprintf(stderr, "towers: %s: %s\n", what, err->message);
    exit(1);
}

static struct ops *make_backend(const struct bench *bench, struct carat_error *err)
{
    if (strcmp(bench->backend, "ref") == 0)
        return ref_ops_new(err);
#ifdef CARAT_HAVE_WEBGPU
    if (strcmp(bench->backend, "webgpu") == 0)
        return webgpu_ops_new(NULL, err);
#endif
    return cpu_ops_new(&(struct cpu_options){.n_threads = bench->n_threads}, err);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void finish(struct bench *bench, struct tower_job *job)
{
    struct carat_error err = {0};
    int32_t done, total;
    enum ops_state state = job != NULL ? OPS_PENDING : OPS_FAILED;
    while (state == OPS_PENDING) {
        int32_t ticket = towers_ticket(job);
        if (ticket >= 0)
            bench->ops->wait(bench->ops, ticket);
        state = towers_step(job, &done, &total, &err);
    }
    if (state == OPS_FAILED)
        die("a job", &err);
    towers_end(job);
}

static double run_image(struct bench *bench, uint8_t *rgb, int index)
{
    struct carat_error err = {0};
    rgb[0] = (uint8_t)index;
    double begin_ms = clock_ms();
    struct tower_job *job = towers_begin_image(bench->towers, rgb, bench->size, bench->size, 280, &err);
    if (job == NULL)
        die("an image", &err);
    finish(bench, job);
    return clock_ms() - begin_ms;
}

static double run_sound(struct bench *bench, float *samples, int64_t n, int index)
{
    struct carat_error err = {0};
    samples[0] = (float)index / 1000;
    double begin_ms = clock_ms();
    struct tower_job *job = towers_begin_audio(bench->towers, samples, n, 0, &err);
    if (job == NULL)
        die("a sound", &err);
    finish(bench, job);
    return clock_ms() - begin_ms;
}

static void report(const struct bench *bench, const char *what, double *times, int n)
{
    double first = times[0];
    qsort(times, (size_t)n, sizeof *times, by_value);
    printf("%s on %s: median %.2f ms, best %.2f ms of %d; first %.1f ms\n", what, bench->ops->device, times[n / 2], times[0], n,
        first);
}

static void begin_profile(struct bench *bench)
{
#ifdef CARAT_HAVE_WEBGPU
    if (bench->profile && strcmp(bench->backend, "webgpu") == 0)
        gpu_profile_start(webgpu_of(bench->ops)->gpu);
#endif
    (void)bench;
}

static void end_profile(struct bench *bench)
{
#ifdef CARAT_HAVE_WEBGPU
    static struct gpu_timing timings[64];
    if (!bench->profile || strcmp(bench->backend, "webgpu") != 0)
        return;
    int n = gpu_profile_end(webgpu_of(bench->ops)->gpu, timings, 64);
    for (int i = 0; i < n; i++)
        printf("  %9.1f us %5d x %8.2f us  %s\n", timings[i].total_us, (int)timings[i].n,
            timings[i].total_us / (double)timings[i].n, timings[i].name);
#endif
    (void)bench;
}

static void see(struct bench *bench)
{
    double times[MAX_REPEAT];
    size_t n_bytes = 3 * (size_t)bench->size * (size_t)bench->size;
    uint8_t *rgb = malloc(n_bytes);
    struct carat_error err = {0};
    for (size_t i = 0; rgb != NULL && i < n_bytes; i++)
        rgb[i] = (uint8_t)(i * 2654435761u >> 24);
    if (rgb == NULL || !towers_load(bench->towers, TOWER_VISION, NULL, NULL, &err))
        die("the vision tower", &err);
    for (int i = 0; i < bench->repeat; i++)
        times[i] = run_image(bench, rgb, i);
    char what[64];
    snprintf(what, sizeof what, "image %d x %d", bench->size, bench->size);
    report(bench, what, times, bench->repeat);
    begin_profile(bench);
    if (bench->profile)
        run_image(bench, rgb, 255);
    end_profile(bench);
    towers_release(bench->towers, TOWER_VISION);
    free(rgb);
}

static void hear(struct bench *bench)
{
    double times[MAX_REPEAT];
    int64_t n = (int64_t)(bench->seconds * SOUND_RATE);
    float *samples = malloc((size_t)n * sizeof(float));
    struct carat_error err = {0};
    for (int64_t i = 0; samples != NULL && i < n; i++)
        samples[i] = 0.3f * sinf((float)i * 0.05f + 3 * sinf((float)i * 7e-4f));
    if (samples == NULL || !towers_load(bench->towers, TOWER_AUDIO, NULL, NULL, &err))
        die("the audio tower", &err);
    for (int i = 0; i < bench->repeat; i++)
        times[i] = run_sound(bench, samples, n, i);
    char what[64];
    snprintf(what, sizeof what, "sound of %.1f s", bench->seconds);
    report(bench, what, times, bench->repeat);
    begin_profile(bench);
    if (bench->profile)
        run_sound(bench, samples, n, 255);
    end_profile(bench);
    towers_release(bench->towers, TOWER_AUDIO);
    free(samples);
}

int main(int argc, char **argv)
{
    struct bench bench = {.backend = "cpu", .repeat = 5, .size = 768, .seconds = 10};
    struct carat_error err = {0};
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--profile") == 0)
            bench.profile = true;
        else if (strcmp(argv[i], "--backend") == 0 && more)
            bench.backend = argv[++i];
        else if (strcmp(argv[i], "--threads") == 0 && more)
            bench.n_threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--repeat") == 0 && more)
            bench.repeat = atoi(argv[++i]);
        else if (strcmp(argv[i], "--size") == 0 && more)
            bench.size = atoi(argv[++i]);
        else if (strcmp(argv[i], "--seconds") == 0 && more)
            bench.seconds = atof(argv[++i]);
        else
            bench.path = argv[i];
    }
    if (bench.path == NULL || bench.repeat < 1 || bench.repeat > MAX_REPEAT || bench.size < 1 || bench.seconds <= 0) {
        fputs("usage: towers MMPROJ.gguf [--backend ref|cpu|webgpu] [--threads N] [--repeat N] [--size PIXELS] [--seconds S] "
              "[--profile]\n",
            stderr);
        return 2;
    }
    struct gguf_file *file = NULL;
    if (!gguf_open_path(bench.path, &file, &err))
        die(bench.path, &err);
    const struct gguf_tensor *projection = gguf_find_tensor(file, "mm.input_projection.weight");
    if (projection == NULL)
        projection = gguf_find_tensor(file, "mm.a.input_projection.weight");
    bench.ops = make_backend(&bench, &err);
    if (bench.ops == NULL || projection == NULL ||
        !towers_new(file, NULL, TOWER_REFERENCE, (int32_t)projection->ne[1], bench.ops, &bench.towers, &err))
        die("the backend or the towers", &err);
    if (towers_has(bench.towers, TOWER_VISION))
        see(&bench);
    if (towers_has(bench.towers, TOWER_AUDIO))
        hear(&bench);
    towers_free(bench.towers);
    bench.ops->free(bench.ops);
    gguf_close(file);
    return 0;
}
