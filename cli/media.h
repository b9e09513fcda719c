// media.h: images and sounds of the command line.

#ifndef CARAT_CLI_MEDIA_H
#define CARAT_CLI_MEDIA_H

#include "base/error.h"
#include "carat.h"

// Reads an image or sound file into *media. What it points to is freed with media_unload.
bool media_load(const char *path, bool is_image, int32_t image_tokens, struct carat_media *media, struct carat_error *err);
void media_unload(struct carat_media *media);

#endif
