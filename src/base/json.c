// json.c: jsmn's tokens, checked and made into a tree.
//
// jsmn accepts more than JSON (missing commas, bare words, raw control characters), so what stands between two tokens and
// inside each is checked here.

#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_utf8.h"

#define JSMN_STATIC
#define JSMN_STRICT
#define JSMN_PARENT_LINKS
#include <jsmn.h>

struct json_document {
    char *source; // the input, a newline and a terminator
    size_t n_source;
    char *texts; // unescaped strings and numbers, each terminated
    struct json_value *values;
    size_t n_values;
};

struct builder {
    struct json_document *document;
    const jsmntok_t *tokens;
    int n_tokens;
    char *text; // next free byte of document->texts
    struct carat_error *err;
};

static bool fail_at(struct carat_error *err, const char *source, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at; i++) {
        column++;
        if (source[i] == '\n')
            line++, column = 1;
    }
    return fail(err, CARAT_BAD_FILE, "not valid JSON at line %zu, column %zu: %s", line, column, what);
}

static char *utf8_put(char *out, uint32_t c)
{
    if (c < 0x80) {
        *out++ = (char)c;
    } else if (c < 0x800) {
        *out++ = (char)(0xc0 | c >> 6);
        *out++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *out++ = (char)(0xe0 | c >> 12);
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    } else {
        *out++ = (char)(0xf0 | c >> 18);
        *out++ = (char)(0x80 | (c >> 12 & 63));
        *out++ = (char)(0x80 | (c >> 6 & 63));
        *out++ = (char)(0x80 | (c & 63));
    }
    return out;
}

// jsmn has checked that four hexadecimal digits stand here.
static uint32_t hex4(const char *s)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value = value << 4 | (uint32_t)(s[i] <= '9' ? s[i] - '0' : (s[i] | 32) - 'a' + 10);
    return value;
}

// The character that a \u escape at s (just after the u) stands for; *used = bytes after the u that belong to it.
static uint32_t unescape_u(const char *s, const char *end, size_t *used)
{
    uint32_t high = hex4(s);
    *used = 4;
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high < 0xdc00 && end - s >= 10 && s[4] == '\\' && s[5] == 'u') {
        uint32_t low = hex4(s + 6);
        if (low >= 0xdc00 && low < 0xe000) {
            *used = 10;
            return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        }
    }
    return 0xfffd;
}

// Unescapes the string token into b->text. An escape is never shorter than what it stands for, so the space suffices.
static bool put_string(struct builder *b, const jsmntok_t *token, const char **text, size_t *n_text)
{
    const char *source = b->document->source;
    const char *end = source + token->end;
    char *out = b->text;
    for (const char *s = source + token->start; s < end;) {
        if ((unsigned char)*s < 0x20)
            return fail_at(b->err, source, (size_t)(s - source), "a control character inside a string must be escaped");
        if (*s != '\\') {
            size_t n = utf8_length((const unsigned char *)s, (size_t)(end - s));
            if (n == 0)
                return fail_at(b->err, source, (size_t)(s - source), "a string holds bytes that are not UTF-8");
            memcpy(out, s, n);
            out += n, s += n;
            continue;
        }
        char escape = s[1];
        s += 2;
        if (escape == 'u') {
            size_t used;
            out = utf8_put(out, unescape_u(s, end, &used));
            s += used;
        } else {
            static const char names[] = "bfnrt", values[] = "\b\f\n\r\t";
            const char *found = strchr(names, escape);
            *out++ = found != NULL ? values[found - names] : escape;
        }
    }
    *text = b->text;
    *n_text = (size_t)(out - b->text);
    *out = '\0';
    b->text = out + 1;
    return true;
}

static const char *skip_digits(const char *s)
{
    while (*s >= '0' && *s <= '9')
        s++;
    return s;
}

static bool is_number(const char *s)
{
    s += *s == '-';
    const char *digits = s;
    s = skip_digits(s);
    if (s == digits || (*digits == '0' && s - digits > 1))
        return false;
    if (*s == '.') {
        digits = ++s;
        s = skip_digits(s);
        if (s == digits)
            return false;
    }
    if (*s == 'e' || *s == 'E') {
        s++;
        s += *s == '+' || *s == '-';
        digits = s;
        s = skip_digits(s);
        if (s == digits)
            return false;
    }
    return *s == '\0';
}

static bool put_primitive(struct builder *b, const jsmntok_t *token, struct json_value *value)
{
    size_t n = (size_t)(token->end - token->start);
    char *text = b->text;
    memcpy(text, b->document->source + token->start, n);
    text[n] = '\0';
    if (strcmp(text, "null") == 0) {
        value->type = JSON_NULL;
    } else if (strcmp(text, "true") == 0) {
        value->type = JSON_TRUE;
    } else if (strcmp(text, "false") == 0) {
        value->type = JSON_FALSE;
    } else if (is_number(text)) {
        value->type = JSON_NUMBER;
        value->number = strtod(text, NULL);
        value->text = text;
        value->n_text = n;
        b->text = text + n + 1;
    } else {
        return fail_at(b->err, b->document->source, (size_t)token->start, "expected a value");
    }
    return true;
}

// Where a token begins and ends in the source, quotes included.
static size_t outer_start(const jsmntok_t *token)
{
    return (size_t)token->start - (token->type == JSMN_STRING);
}

static size_t outer_end(const jsmntok_t *token)
{
    return (size_t)token->end + (token->type == JSMN_STRING);
}

// Between from and to there must be white space and exactly one `separator` ('\0': none).
static bool check_gap(struct builder *b, size_t from, size_t to, char separator)
{
    const char *source = b->document->source;
    bool seen = separator == '\0';
    for (size_t i = from; i < to; i++) {
        char c = source[i];
        if (c == separator && !seen && c != '\0')
            seen = true;
        else if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return fail_at(b->err, source, i, "unexpected character");
    }
    if (!seen)
        return fail_at(b->err, source, to, separator == ':' ? "expected ':'" : "expected ','");
    return true;
}

static bool build_value(struct builder *b, int *at, struct json_value *value);

static bool build_children(struct builder *b, const jsmntok_t *parent, int *at, struct json_value *value)
{
    size_t n = (size_t)parent->size;
    struct json_value *children = b->document->values + b->document->n_values;
    b->document->n_values += n;
    size_t end = (size_t)parent->start + 1; // after the bracket, later after the previous child
    for (size_t i = 0; i < n; i++) {
        if (*at >= b->n_tokens)
            return fail_at(b->err, b->document->source, end, "expected a value");
        const jsmntok_t *token = &b->tokens[*at];
        if (!check_gap(b, end, outer_start(token), i == 0 ? '\0' : ','))
            return false;
        if (parent->type == JSMN_OBJECT) {
            if (token->type != JSMN_STRING || token->size != 1 || *at + 1 >= b->n_tokens)
                return fail_at(b->err, b->document->source, outer_start(token), "expected a name, ':' and a value");
            if (!put_string(b, token, &children[i].key, &children[i].n_key))
                return false;
            if (!check_gap(b, outer_end(token), outer_start(token + 1), ':'))
                return false;
            token = &b->tokens[++*at];
        }
        end = outer_end(token);
        if (!build_value(b, at, &children[i]))
            return false;
    }
    value->children = children;
    value->n_children = n;
    return check_gap(b, end, (size_t)parent->end - 1, '\0');
}

// Builds the value at token *at and moves *at behind it. Recursion is bounded by check_depth.
static bool build_value(struct builder *b, int *at, struct json_value *value)
{
    const jsmntok_t *token = &b->tokens[(*at)++];
    value->source = b->document->source + outer_start(token);
    value->n_source = outer_end(token) - outer_start(token);
    switch (token->type) {
    case JSMN_OBJECT:
        value->type = JSON_OBJECT;
        return build_children(b, token, at, value);
    case JSMN_ARRAY:
        value->type = JSON_ARRAY;
        return build_children(b, token, at, value);
    case JSMN_STRING:
        value->type = JSON_STRING;
        if (token->size != 0)
            return fail_at(b->err, b->document->source, outer_end(token), "unexpected ':'");
        return put_string(b, token, &value->text, &value->n_text);
    default:
        if (token->size != 0)
            return fail_at(b->err, b->document->source, outer_end(token), "unexpected ':'");
        return put_primitive(b, token, value);
    }
}

static bool fail_tokens(struct carat_error *err, const struct json_document *document, const jsmn_parser *parser, int code)
{
    if (code == JSMN_ERROR_PART || code == 0)
        return fail_at(err, document->source, document->n_source, "the text ends too early");
    return fail_at(err, document->source, parser->pos, "unexpected character");
}

// Splits document->source into tokens. NULL on failure.
static jsmntok_t *tokenize(const struct json_document *document, int *n_tokens, struct carat_error *err)
{
    size_t n_bytes = document->n_source + 1; // with the newline, which ends a number at top level
    jsmn_parser parser;
    jsmn_init(&parser);
    int n = jsmn_parse(&parser, document->source, n_bytes, NULL, 0);
    if (n <= 0) {
        fail_tokens(err, document, &parser, n);
        return NULL;
    }
    jsmntok_t *tokens = calloc((size_t)n, sizeof *tokens);
    if (tokens == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for %d JSON tokens; close other programs or send less", n);
        return NULL;
    }
    jsmn_init(&parser);
    *n_tokens = jsmn_parse(&parser, document->source, n_bytes, tokens, (unsigned)n);
    if (*n_tokens <= 0) {
        fail_tokens(err, document, &parser, *n_tokens);
        free(tokens);
        return NULL;
    }
    return tokens;
}

// Refuses deep nesting before jsmn sees it: its time grows with the square of the depth.
static bool check_depth(const struct json_document *document, struct carat_error *err)
{
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < document->n_source; i++) {
        char c = document->source[i];
        if (in_string) {
            i += c == '\\';
            in_string = c != '"';
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_MAX_DEPTH)
                return fail_at(err, document->source, i, "nested too deeply");
        } else if (c == ']' || c == '}') {
            depth -= depth != 0;
        } else {
            in_string = c == '"';
        }
    }
    return true;
}

static bool build(struct json_document *document, struct carat_error *err)
{
    if (!check_depth(document, err))
        return false;
    int n_tokens = 0;
    jsmntok_t *tokens = tokenize(document, &n_tokens, err);
    if (tokens == NULL)
        return false;
    document->values = calloc((size_t)n_tokens, sizeof *document->values);
    document->texts = malloc(document->n_source + (size_t)n_tokens + 1);
    bool ok = document->values != NULL && document->texts != NULL;
    if (!ok)
        fail(err, CARAT_NO_MEMORY, "no memory for %d JSON values; close other programs or send less", n_tokens);
    if (ok) {
        struct builder b = {.document = document, .tokens = tokens, .n_tokens = n_tokens, .text = document->texts, .err = err};
        int at = 0;
        document->n_values = 1;
        ok = check_gap(&b, 0, outer_start(&tokens[0]), '\0') && build_value(&b, &at, &document->values[0]);
        if (ok && at != n_tokens)
            ok = fail_at(err, document->source, outer_start(&tokens[at]), "text after the end of the value");
        ok = ok && check_gap(&b, outer_end(&tokens[0]), document->n_source, '\0');
    }
    free(tokens);
    return ok;
}

struct json_document *json_parse(const char *text, size_t n_bytes, struct carat_error *err)
{
    if (n_bytes > JSON_MAX_BYTES) {
        fail(err, CARAT_BAD_FILE, "JSON text of %zu bytes, at most %d are allowed", n_bytes, JSON_MAX_BYTES);
        return NULL;
    }
    struct json_document *document = calloc(1, sizeof *document);
    if (document != NULL)
        document->source = malloc(n_bytes + 2);
    if (document == NULL || document->source == NULL) {
        free(document);
        fail(err, CARAT_NO_MEMORY, "no memory for %zu bytes of JSON; close other programs or send less", n_bytes);
        return NULL;
    }
    if (n_bytes != 0)
        memcpy(document->source, text, n_bytes);
    document->n_source = n_bytes;
    memcpy(document->source + n_bytes, "\n", 2);
    bool ok =
        memchr(document->source, '\0', n_bytes) == NULL || fail(err, CARAT_BAD_FILE, "not valid JSON: it holds a zero byte");
    if (!ok || !build(document, err)) {
        json_free(document);
        return NULL;
    }
    return document;
}

const struct json_value *json_root(const struct json_document *document)
{
    return &document->values[0];
}

void json_free(struct json_document *document)
{
    if (document == NULL)
        return;
    free(document->source);
    free(document->texts);
    free(document->values);
    free(document);
}

const struct json_value *json_get(const struct json_value *object, const char *key)
{
    if (!json_is(object, JSON_OBJECT))
        return NULL;
    size_t n_key = strlen(key);
    for (size_t i = object->n_children; i-- > 0;) {
        const struct json_value *member = &object->children[i];
        if (member->n_key == n_key && memcmp(member->key, key, n_key) == 0)
            return member;
    }
    return NULL;
}

bool json_is(const struct json_value *value, enum json_type type)
{
    return value != NULL && value->type == type;
}

bool json_text_is(const struct json_value *value, const char *text)
{
    return json_is(value, JSON_STRING) && value->n_text == strlen(text) && memcmp(value->text, text, value->n_text) == 0;
}

bool json_get_text(const struct json_value *object, const char *key, const char **out)
{
    const struct json_value *value = json_get(object, key);
    if (!json_is(value, JSON_STRING))
        return false;
    *out = value->text;
    return true;
}

bool json_get_number(const struct json_value *object, const char *key, double *out)
{
    const struct json_value *value = json_get(object, key);
    if (!json_is(value, JSON_NUMBER))
        return false;
    *out = value->number;
    return true;
}

bool json_i64(const struct json_value *value, int64_t *out)
{
    if (!json_is(value, JSON_NUMBER))
        return false;
    if (strpbrk(value->text, ".eE") == NULL) { // exact where a double is not
        errno = 0;
        *out = strtoll(value->text, NULL, 10);
        return errno == 0;
    }
    if (!(fabs(value->number) <= 0x1p53) || value->number != floor(value->number))
        return false;
    *out = (int64_t)value->number;
    return true;
}

bool json_get_i64(const struct json_value *object, const char *key, int64_t *out)
{
    return json_i64(json_get(object, key), out);
}

bool json_get_bool(const struct json_value *object, const char *key, bool *out)
{
    const struct json_value *value = json_get(object, key);
    if (!json_is(value, JSON_TRUE) && !json_is(value, JSON_FALSE))
        return false;
    *out = value->type == JSON_TRUE;
    return true;
}
