// chat_media.c: the images and sounds inside a chat request.

#include "chat_media.h"

#include <stdlib.h>
#include <string.h>

#include "../cli/media.h"
#include "media/image.h"
#include "media/sound.h"

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

bool base64_decode(const char *text, size_t n_text, unsigned char **bytes, size_t *n_bytes)
{
    unsigned char *out = malloc(n_text / 4 * 3 + 4);
    size_t n = 0;
    uint32_t group = 0;
    int n_digits = 0;
    bool padded = false;
    for (size_t i = 0; out != NULL && i < n_text; i++) {
        if (strchr(" \t\r\n", text[i]) != NULL && text[i] != 0)
            continue;
        int digit = digit_of(text[i]);
        padded |= text[i] == '=';
        if (text[i] != '=' && (digit < 0 || padded)) {
            free(out);
            return false;
        }
        if (padded)
            continue;
        group = group << 6 | (uint32_t)digit;
        if (++n_digits % 4 == 0) {
            out[n++] = (unsigned char)(group >> 16);
            out[n++] = (unsigned char)(group >> 8);
            out[n++] = (unsigned char)group;
        }
    }
    if (out == NULL || n_digits % 4 == 1) {
        free(out);
        return false;
    }
    if (n_digits % 4 >= 2)
        out[n++] = (unsigned char)(n_digits % 4 == 2 ? group >> 4 : group >> 10);
    if (n_digits % 4 == 3)
        out[n++] = (unsigned char)(group >> 2);
    *bytes = out;
    *n_bytes = n;
    return true;
}

static bool add_image(struct chat_media *media, const unsigned char *bytes, size_t n_bytes, struct carat_error *err)
{
    struct image image = {0};
    if (!image_decode(bytes, n_bytes, &image, err))
        return false;
    media->items[media->n++] =
        (struct carat_media){.kind = CARAT_IMAGE, .rgb = image.rgb, .width = image.width, .height = image.height};
    return true;
}

static bool add_sound(struct chat_media *media, const unsigned char *bytes, size_t n_bytes, struct carat_error *err)
{
    struct sound sound = {0};
    if (!sound_decode(bytes, n_bytes, &sound, err))
        return false;
    if (!sound_resample(&sound, err)) {
        sound_free(&sound);
        return false;
    }
    media->items[media->n++] = (struct carat_media){.kind = CARAT_AUDIO, .samples = sound.samples, .n_samples = sound.n_samples};
    return true;
}

// Decodes one part's base64 text.
static bool add(struct chat_media *media, bool is_image, const char *text, size_t n_text, struct carat_error *err)
{
    unsigned char *bytes;
    size_t n_bytes;
    const char *kind = is_image ? "an image" : "a sound";
    if (media->items == NULL) {
        media->items = calloc(CHAT_MEDIA_MAX, sizeof *media->items);
        if (media->items == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory for images and sounds");
    }
    if (media->n == CHAT_MEDIA_MAX)
        return fail(err, CARAT_BAD_ARGUMENT, "a request may have %d images and sounds", CHAT_MEDIA_MAX);
    if (!base64_decode(text, n_text, &bytes, &n_bytes))
        return fail(err, CARAT_BAD_ARGUMENT, "the data of %s is no base64 text", kind);
    bool ok = is_image ? add_image(media, bytes, n_bytes, err) : add_sound(media, bytes, n_bytes, err);
    free(bytes);
    return ok || fail_in(err, "%s of the request", kind);
}

static bool take_image_url(struct chat_media *media, const struct json_value *part, struct carat_error *err)
{
    const struct json_value *image_url = json_get(part, "image_url");
    const struct json_value *url = json_is(image_url, JSON_OBJECT) ? json_get(image_url, "url") : image_url;
    if (!json_is(url, JSON_STRING))
        return fail(err, CARAT_BAD_ARGUMENT, "an image_url part needs \"image_url\": {\"url\": \"data:...\"}");
    const char *comma = strchr(url->text, ',');
    if (strncmp(url->text, "data:", 5) != 0 || comma == NULL || comma - url->text < 7 || memcmp(comma - 7, ";base64", 7) != 0)
        return fail(err, CARAT_BAD_ARGUMENT, "an image must come as a data URL with base64: this server fetches nothing");
    return add(media, true, comma + 1, url->n_text - (size_t)(comma + 1 - url->text), err);
}

static bool take_input_audio(struct chat_media *media, const struct json_value *part, struct carat_error *err)
{
    const struct json_value *data = json_get(json_get(part, "input_audio"), "data");
    if (!json_is(data, JSON_STRING))
        return fail(err, CARAT_BAD_ARGUMENT, "an input_audio part needs \"input_audio\": {\"data\": BASE64}");
    return add(media, false, data->text, data->n_text, err);
}

static bool copy(const struct json_value *value, struct chat_media *media, struct json_writer *out, struct carat_error *err);

static bool copy_children(
    const struct json_value *value, struct chat_media *media, struct json_writer *out, struct carat_error *err)
{
    json_write_literal(out, value->type == JSON_OBJECT ? "{" : "[");
    for (size_t i = 0; i < value->n_children; i++) {
        const struct json_value *child = &value->children[i];
        json_write_literal(out, i > 0 ? "," : "");
        if (child->key != NULL) {
            json_write_string(out, child->key, child->n_key);
            json_write_literal(out, ":");
        }
        if (!copy(child, media, out, err))
            return false;
    }
    json_write_literal(out, value->type == JSON_OBJECT ? "}" : "]");
    return true;
}

static bool copy(const struct json_value *value, struct chat_media *media, struct json_writer *out, struct carat_error *err)
{
    if (value->type == JSON_OBJECT && json_text_is(json_get(value, "type"), "image_url")) {
        if (!take_image_url(media, value, err))
            return false;
        json_write_format(out, "{\"type\":\"image\",\"media\":%d}", media->n - 1);
        return true;
    }
    if (value->type == JSON_OBJECT && json_text_is(json_get(value, "type"), "input_audio")) {
        if (!take_input_audio(media, value, err))
            return false;
        json_write_format(out, "{\"type\":\"audio\",\"media\":%d}", media->n - 1);
        return true;
    }
    if (value->type == JSON_OBJECT || value->type == JSON_ARRAY)
        return copy_children(value, media, out, err);
    json_write_value(out, value);
    return true;
}

bool chat_media_take(const struct json_value *request, struct chat_media *media, struct json_writer *out, struct carat_error *err)
{
    if (request->type != JSON_OBJECT)
        return fail(err, CARAT_BAD_ARGUMENT, "the request must be a JSON object");
    json_write_literal(out, "{");
    bool first = true;
    for (size_t i = 0; i < request->n_children; i++) {
        const struct json_value *member = &request->children[i];
        json_write_literal(out, first ? "" : ",");
        first = false;
        json_write_string(out, member->key, member->n_key);
        json_write_literal(out, ":");
        // Tools may have parameters that look like media: only messages are searched.
        if (strcmp(member->key, "messages") != 0)
            json_write_value(out, member);
        else if (!copy(member, media, out, err))
            return false;
    }
    json_write_literal(out, "}");
    return !out->failed || fail(err, CARAT_NO_MEMORY, "no memory for the request");
}

void chat_media_free(struct chat_media *media)
{
    for (int i = 0; i < media->n; i++)
        media_unload(&media->items[i]);
    free(media->items);
    *media = (struct chat_media){0};
}
