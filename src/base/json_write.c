// json_write.c: the growing text that JSON is written into.

#include "base/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_utf8.h"

void json_write_raw(struct json_writer *writer, const char *bytes, size_t n_bytes)
{
    if (writer->failed)
        return;
    if (n_bytes >= writer->capacity - writer->n_bytes || writer->capacity == 0) {
        size_t capacity = writer->capacity < 256 ? 256 : writer->capacity * 2;
        if (n_bytes >= capacity - writer->n_bytes)
            capacity = writer->n_bytes + n_bytes + 1;
        char *grown = n_bytes > SIZE_MAX / 4 || capacity > SIZE_MAX / 2 ? NULL : realloc(writer->bytes, capacity);
        if (grown == NULL) {
            writer->failed = true;
            return;
        }
        writer->bytes = grown;
        writer->capacity = capacity;
    }
    if (n_bytes != 0)
        memcpy(writer->bytes + writer->n_bytes, bytes, n_bytes);
    writer->n_bytes += n_bytes;
    writer->bytes[writer->n_bytes] = '\0';
}

void json_write_literal(struct json_writer *writer, const char *text)
{
    json_write_raw(writer, text, strlen(text));
}

void json_write_format(struct json_writer *writer, const char *format, ...)
{
    char small[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(small, sizeof small, format, args);
    if (n >= 0 && (size_t)n < sizeof small) {
        json_write_raw(writer, small, (size_t)n);
    } else {
        char *large = n < 0 ? NULL : malloc((size_t)n + 1);
        if (large == NULL) {
            writer->failed = true;
        } else {
            vsnprintf(large, (size_t)n + 1, format, again);
            json_write_raw(writer, large, (size_t)n);
        }
        free(large);
    }
    va_end(again);
    va_end(args);
}

void json_write_string(struct json_writer *writer, const char *text, size_t n_bytes)
{
    json_write_raw(writer, "\"", 1);
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        size_t length = utf8_length((const unsigned char *)text + i, n_bytes - i);
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f && length != 0) {
            json_write_raw(writer, text + i, length);
            i += length - 1;
            continue;
        }
        static const char names[] = "bfnrt\"\\", values[] = "\b\f\n\r\t\"\\";
        const char *found = c == 0 ? NULL : strchr(values, c);
        if (length == 0)
            json_write_literal(writer, "\xef\xbf\xbd");
        else if (found != NULL)
            json_write_format(writer, "\\%c", names[found - values]);
        else
            json_write_format(writer, "\\u%04x", c);
    }
    json_write_raw(writer, "\"", 1);
}

void json_write_number(struct json_writer *writer, double number)
{
    char text[40];
    if (!isfinite(number)) {
        json_write_literal(writer, "null");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, number);
        if (strtod(text, NULL) == number)
            break;
    }
    json_write_literal(writer, text);
}

void json_write_value(struct json_writer *writer, const struct json_value *value)
{
    static const char *const words[] = {[JSON_NULL] = "null", [JSON_FALSE] = "false", [JSON_TRUE] = "true"};
    switch (value->type) {
    case JSON_NULL:
    case JSON_FALSE:
    case JSON_TRUE:
        json_write_literal(writer, words[value->type]);
        break;
    case JSON_NUMBER:
        json_write_raw(writer, value->text, value->n_text);
        break;
    case JSON_STRING:
        json_write_string(writer, value->text, value->n_text);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        json_write_literal(writer, value->type == JSON_ARRAY ? "[" : "{");
        for (size_t i = 0; i < value->n_children; i++) {
            if (i != 0)
                json_write_literal(writer, ",");
            if (value->type == JSON_OBJECT) {
                json_write_string(writer, value->children[i].key, value->children[i].n_key);
                json_write_literal(writer, ":");
            }
            json_write_value(writer, &value->children[i]);
        }
        json_write_literal(writer, value->type == JSON_ARRAY ? "]" : "}");
        break;
    }
}

void json_writer_free(struct json_writer *writer)
{
    free(writer->bytes);
    *writer = (struct json_writer){0};
}
