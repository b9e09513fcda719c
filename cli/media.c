// media.c: images and sounds of the command line.

#include "media.h"

#include <stdlib.h>

#include "gguf/source.h"
#include "media/image.h"
#include "media/sound.h"

enum { MAX_MEDIA_BYTES = 1 << 30 };

static bool read_file(const char *path, uint8_t **bytes, size_t *n_bytes, struct carat_error *err)
{
    struct gguf_source *source = gguf_source_file(path, false, err);
    if (source == NULL)
        return false;
    *n_bytes = (size_t)source->n_bytes;
    *bytes = NULL;
    bool ok = source->n_bytes <= MAX_MEDIA_BYTES ||
              fail(err, CARAT_UNSUPPORTED, "'%s' has more than 1 GiB: cut it into smaller files", path);
    if (ok) {
        *bytes = malloc(*n_bytes + 1);
        ok = *bytes != NULL || fail(err, CARAT_NO_MEMORY, "no memory for the %zu bytes of '%s'", *n_bytes, path);
    }
    ok = ok && gguf_source_read(source, 0, *bytes, *n_bytes, err);
    gguf_source_close(source);
    if (!ok) {
        free(*bytes);
        *bytes = NULL;
    }
    return ok;
}

bool media_load(const char *path, bool is_image, int32_t image_tokens, struct carat_media *media, struct carat_error *err)
{
    uint8_t *bytes;
    size_t n_bytes;
    if (!read_file(path, &bytes, &n_bytes, err))
        return false;
    bool ok;
    if (is_image) {
        struct image image = {0};
        ok = image_decode(bytes, n_bytes, &image, err);
        *media = (struct carat_media){
            .kind = CARAT_IMAGE, .rgb = image.rgb, .width = image.width, .height = image.height, .image_tokens = image_tokens};
    } else {
        struct sound sound = {0};
        ok = sound_decode(bytes, n_bytes, &sound, err);
        if (ok && !sound_resample(&sound, err)) {
            sound_free(&sound);
            ok = false;
        }
        *media = (struct carat_media){.kind = CARAT_AUDIO, .samples = sound.samples, .n_samples = sound.n_samples};
    }
    free(bytes);
    return ok || fail_in(err, "'%s'", path);
}

void media_unload(struct carat_media *media)
{
    if (media->kind == CARAT_IMAGE) {
        struct image image = {.width = media->width, .height = media->height, .rgb = (uint8_t *)media->rgb};
        image_free(&image);
    } else {
        struct sound sound = {.samples = (float *)media->samples, .n_samples = media->n_samples};
        sound_free(&sound);
    }
    *media = (struct carat_media){0};
}
