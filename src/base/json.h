// json.h: JSON text to a tree of values and back.
//
// The parser takes exactly RFC 8259 (no trailing commas, no comments), within limits on size and depth. Strings come out as
// UTF-8; \u escapes of surrogate pairs are joined, lone surrogates become U+FFFD. Tokens are found by jsmn; the checks around
// them are made here.

#ifndef CARAT_BASE_JSON_H
#define CARAT_BASE_JSON_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { JSON_MAX_DEPTH = 64, JSON_MAX_BYTES = 256 << 20 };

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json_value {
    enum json_type type;
    const char *key; // name of this member, terminated; NULL unless the parent is an object
    size_t n_key;
    const char *text; // JSON_STRING: its UTF-8, terminated (may hold U+0000 inside). JSON_NUMBER: as written, terminated
    size_t n_text;
    const char
        *source; // the value as it stands in the input (a copy), n_source bytes: numbers keep their form, objects their order
    size_t n_source;
    double number;                     // JSON_NUMBER
    const struct json_value *children; // elements or members, in order
    size_t n_children;
};

struct json_document; // owns all values

// NULL on failure; the message gives the line and column.
struct json_document *json_parse(const char *text, size_t n_bytes, struct carat_error *err);
const struct json_value *json_root(const struct json_document *document);
void json_free(struct json_document *document); // NULL is allowed

// The member called `key` (the last one when repeated), or NULL; also NULL when object is NULL or no object.
const struct json_value *json_get(const struct json_value *object, const char *key);

bool json_is(const struct json_value *value, enum json_type type); // false for NULL
bool json_text_is(const struct json_value *value, const char *text);

// Members with a kind. Return false, leaving *out, when the member is absent, null or of another kind.
bool json_get_text(const struct json_value *object, const char *key, const char **out);
bool json_get_number(const struct json_value *object, const char *key, double *out);
bool json_get_i64(const struct json_value *object, const char *key, int64_t *out); // integral numbers only, exact
bool json_get_bool(const struct json_value *object, const char *key, bool *out);
bool json_i64(const struct json_value *value, int64_t *out);

// A growing text. Zero-initialise; when memory runs out `failed` is set and the rest is dropped.
struct json_writer {
    char *bytes; // terminated
    size_t n_bytes;
    size_t capacity;
    bool failed;
};

void json_write_raw(struct json_writer *writer, const char *bytes, size_t n_bytes);
void json_write_literal(struct json_writer *writer, const char *text); // terminated, as it is
__attribute__((format(printf, 2, 3))) void json_write_format(struct json_writer *writer, const char *format, ...);

// "text" with quotes and escapes. Bytes that are no UTF-8 become U+FFFD.
void json_write_string(struct json_writer *writer, const char *text, size_t n_bytes);
void json_write_number(
    struct json_writer *writer, double number); // shortest form that reads back equal; null for NaN and infinities
void json_write_value(struct json_writer *writer, const struct json_value *value); // compact
void json_writer_free(struct json_writer *writer);

#endif
