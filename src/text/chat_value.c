// chat_value.c: JSON values in the notation of Gemma 4's tool calls: <|"|> around strings, keys sorted without regard to case.

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_writer.h"
#include "text/lowercase.h"
#include "text/utf8.h"

static const char quote[] = "<|\"|>";

// --- order of members ---

static int compare_names(const struct json_value *a, const struct json_value *b)
{
    size_t i = 0;
    size_t j = 0;
    while (i < a->n_key && j < b->n_key) {
        size_t length;
        uint32_t x = lowercase(utf8_decode(a->key + i, a->n_key - i, &length));
        i += length;
        uint32_t y = lowercase(utf8_decode(b->key + j, b->n_key - j, &length));
        j += length;
        if (x != y)
            return x < y ? -1 : 1;
    }
    return (i < a->n_key) - (j < b->n_key);
}

// Members of one object lie in one array, so their addresses tell their order.
static int by_lowercase(const void *a, const void *b)
{
    const struct json_value *x = *(const struct json_value *const *)a;
    const struct json_value *y = *(const struct json_value *const *)b;
    int order = compare_names(x, y);
    return order != 0 ? order : (x > y) - (x < y);
}

static int by_exact_name(const void *a, const void *b)
{
    const struct json_value *x = *(const struct json_value *const *)a;
    const struct json_value *y = *(const struct json_value *const *)b;
    size_t n = x->n_key < y->n_key ? x->n_key : y->n_key;
    int order = n != 0 ? memcmp(x->key, y->key, n) : 0;
    if (order == 0)
        order = (x->n_key > y->n_key) - (x->n_key < y->n_key);
    return order != 0 ? order : (x > y) - (x < y);
}

static bool same_name(const struct json_value *a, const struct json_value *b)
{
    return a->n_key == b->n_key && memcmp(a->key, b->key, a->n_key) == 0;
}

bool chat_members_sorted(const struct json_value *object, struct chat_members *members, struct carat_error *err)
{
    size_t n = object->n_children;
    *members = (struct chat_members){.items = (const struct json_value **)malloc((n + 1) * sizeof *members->items)};
    if (members->items == NULL)
        return fail(err, CARAT_NO_MEMORY, "not enough memory to sort %zu members", n);
    for (size_t i = 0; i < n; i++)
        members->items[i] = &object->children[i];
    qsort((void *)members->items, n, sizeof *members->items, by_exact_name);
    for (size_t i = 0; i < n; i++)
        if (i + 1 == n || !same_name(members->items[i], members->items[i + 1])) // of repeated names the last counts
            members->items[members->n++] = members->items[i];
    qsort((void *)members->items, members->n, sizeof *members->items, by_lowercase);
    return true;
}

void chat_members_free(struct chat_members *members)
{
    free((void *)members->items);
    *members = (struct chat_members){0};
}

// --- numbers ---

// Python's text of a float: the shortest digits that read back equal.
static void put_float(struct chat_prompt *prompt, double value)
{
    char digits[40];
    int precision = 0;
    do
        snprintf(digits, sizeof digits, "%.*e", precision, value);
    while (precision++ < 17 && strtod(digits, NULL) != value);
    char *e = strchr(digits, 'e');
    int exponent = atoi(e + 1);
    char text[64];
    if (exponent < -4 || exponent >= 16) {
        *e = '\0';
        snprintf(text, sizeof text, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
    } else {
        int n_decimals = precision - 1 - exponent; // digits after the first, less those before the point
        snprintf(text, sizeof text, "%.*f", n_decimals < 1 ? 1 : n_decimals, value);
    }
    chat_outside(prompt, text_of(text));
}

static bool put_number(struct chat_prompt *prompt, const struct json_value *value, struct carat_error *err)
{
    if (strpbrk(value->text, ".eE") == NULL) {
        chat_outside(prompt, strcmp(value->text, "-0") == 0 ? text_of("0") : (struct text_view){value->text, value->n_text});
        return true;
    }
    if (!(fabs(value->number) <= DBL_MAX))
        return fail(err, CARAT_BAD_ARGUMENT, "the number %.40s is too large", value->text);
    put_float(prompt, value->number);
    return true;
}

// --- values ---

static void put_key(struct chat_prompt *prompt, const struct json_value *member, bool quoted)
{
    if (quoted)
        chat_template(prompt, quote);
    chat_outside(prompt, (struct text_view){member->key, member->n_key});
    if (quoted)
        chat_template(prompt, quote);
    chat_template(prompt, ":");
}

static bool put_members(struct chat_prompt *prompt, const struct json_value *object, bool quoted_keys, struct carat_error *err)
{
    struct chat_members members;
    if (!chat_members_sorted(object, &members, err))
        return false;
    bool ok = true;
    for (size_t i = 0; ok && i < members.n; i++) {
        if (i != 0)
            chat_template(prompt, ",");
        put_key(prompt, members.items[i], quoted_keys);
        ok = chat_put_value(prompt, members.items[i], quoted_keys, err);
    }
    chat_members_free(&members);
    return ok;
}

bool chat_put_members(struct chat_prompt *prompt, const struct json_value *object, struct carat_error *err)
{
    return put_members(prompt, object, false, err);
}

// Nesting is bounded by the JSON parser.
bool chat_put_value(struct chat_prompt *prompt, const struct json_value *value, bool quoted_keys, struct carat_error *err)
{
    if (value == NULL || value->type == JSON_NULL) {
        chat_template(prompt, "null");
        return true;
    }
    bool ok = true;
    switch (value->type) {
    case JSON_NULL:
        break;
    case JSON_FALSE:
    case JSON_TRUE:
        chat_template(prompt, value->type == JSON_TRUE ? "true" : "false");
        break;
    case JSON_NUMBER:
        return put_number(prompt, value, err);
    case JSON_STRING:
        chat_template(prompt, quote);
        chat_outside(prompt, (struct text_view){value->text, value->n_text});
        chat_template(prompt, quote);
        break;
    case JSON_ARRAY:
        chat_template(prompt, "[");
        for (size_t i = 0; ok && i < value->n_children; i++) {
            if (i != 0)
                chat_template(prompt, ",");
            ok = chat_put_value(prompt, &value->children[i], quoted_keys, err);
        }
        chat_template(prompt, "]");
        break;
    case JSON_OBJECT:
        chat_template(prompt, "{");
        ok = put_members(prompt, value, quoted_keys, err);
        chat_template(prompt, "}");
        break;
    }
    return ok;
}
