// chat_media.h: the images and sounds inside a chat request.

#ifndef CARAT_SERVER_CHAT_MEDIA_H
#define CARAT_SERVER_CHAT_MEDIA_H

#include "base/json.h"
#include "carat.h"

enum { CHAT_MEDIA_MAX = 64 };

struct chat_media {
    struct carat_media *items; // [n]
    int n;
};

// Copies a request into `out`, taking the media out: parts {"type":"image_url","image_url":{"url":"data:..."}} and
// {"type":"input_audio","input_audio":{"data":BASE64}} become {"type":"image"|"audio","media":k}. Only data URLs are read: the
// server fetches nothing.
bool chat_media_take(
    const struct json_value *request, struct chat_media *media, struct json_writer *out, struct carat_error *err);
void chat_media_free(struct chat_media *media);

// Decodes base64 (RFC 4648, with or without padding, white space ignored). *bytes is allocated. False for anything else.
bool base64_decode(const char *text, size_t n_text, unsigned char **bytes, size_t *n_bytes);

#endif
