// tower_fuzz.c: any bytes as the header of a projector file (whose data are zeros): an error, or towers that look at a picture of
// one soft token and hear 0.1 s.

#include <string.h>

#include "model/towers.h"
#include "ref/ref.h"
#include "ref/ref_tower.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

enum { FILE_BYTES = 2 << 20, MAX_WORK_BYTES = 16 << 20 };

struct header {
    const uint8_t *bytes;
    size_t n_bytes;
};

static bool read_file(void *context, uint64_t offset, void *target, size_t n_bytes, struct carat_error *err)
{
    const struct header *header = context;
    (void)err;
    memset(target, 0, n_bytes);
    if (offset < header->n_bytes) {
        size_t n = header->n_bytes - (size_t)offset;
        memcpy(target, header->bytes + offset, n < n_bytes ? n : n_bytes);
    }
    return true;
}

static void look(const struct gguf_file *file, struct tower_ops *ops)
{
    static uint8_t pixels[48 * 48 * 3];
    struct image image = {.width = 48, .height = 48, .rgb = pixels};
    struct carat_error err;
    struct vision_tower *tower;
    struct vision_run run;
    if (!vision_exists(file) || !vision_open(file, TOWER_REFERENCE, &tower, &err))
        return;
    if (vision_run_bytes(tower, 64, 1) < MAX_WORK_BYTES && plan_load(&tower->plan, ops->ops, NULL, NULL, &err)) {
        vision_ready(tower);
        if (vision_start(tower, ops, &image, &run, &err)) {
            while (!vision_step(&run))
                continue;
            vision_end(&run);
            tensor_free(ops->ops, &run.soft);
        }
        plan_unload(&tower->plan, ops->ops);
    }
    vision_free(tower);
}

static void hear(const struct gguf_file *file, struct tower_ops *ops)
{
    static const float samples[1600];
    struct carat_error err;
    struct audio_tower *tower;
    struct audio_run run;
    if (!audio_exists(file) || !audio_open(file, TOWER_REFERENCE, &tower, &err))
        return;
    if (audio_run_bytes(tower, 3) < MAX_WORK_BYTES && plan_load(&tower->plan, ops->ops, NULL, NULL, &err)) {
        if (audio_start(tower, ops, samples, 1600, &run, &err)) {
            while (!audio_step(&run))
                continue;
            audio_end(&run);
            tensor_free(ops->ops, &run.soft);
        }
        plan_unload(&tower->plan, ops->ops);
    }
    audio_free(tower);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct carat_error err;
    struct header header = {data, n_bytes};
    struct gguf_source *source = gguf_source_callback(read_file, &header, FILE_BYTES, "fuzz", &err);
    struct gguf_file *file = NULL;
    if (source == NULL)
        return 0;
    if (!gguf_open(&source, 1, &file, &err)) {
        gguf_source_close(source);
        return 0;
    }
    struct ops *ops = ref_ops_new(&err);
    struct tower_ops *tower_ops = ops != NULL ? ref_tower_ops_new(ops, &err) : NULL;
    if (tower_ops != NULL) {
        look(file, tower_ops);
        hear(file, tower_ops);
        tower_ops->free(tower_ops);
    }
    if (ops != NULL)
        ops->free(ops);
    gguf_close(file);
    return 0;
}
