// image_fuzz.c: any bytes as a picture file: an error or a picture that can be prepared.

#include "media/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    struct image image, prepared;
    struct carat_error err;
    if (!image_decode(data, n_bytes, &image, &err))
        return 0;
    if ((int64_t)image.width * image.height < 1 << 16 && image_prepare(&image, 70, IMAGE_RULE_REFERENCE, &prepared, &err))
        image_free(&prepared);
    image_free(&image);
    return 0;
}
