// reply_arguments.c: the arguments of a tool call, from the model's notation to JSON.
//
// Recursive descent with a bound on nesting. The notation has bare keys and strings between <|"|>; what models get wrong is
// repaired where the meaning is clear: JSON's own quotes, missing closing delimiters at the end, strings without delimiters.

#include <stdlib.h>
#include <string.h>

#include "text/reply.h"
#include "text/utf8.h"

static const struct text_view quote = {"<|\"|>", 5};

struct member { // of the mapping being read; its JSON texts stand in the output, the value behind the key
    size_t key;
    size_t value;
    size_t end;
    const char *key_text; // for sorting
    bool first;           // the first member of this name: takes the value of the last
    size_t last;
};

// A known key further away than this is not looked for, so that a long text full of commas stays linear.
enum { MAX_KEY_BYTES = 512 };

struct parser {
    const char *at;
    const char *end;
    int depth;
    struct json_writer out;
    struct carat_error *err;
};

static bool parse_value(struct parser *p, const struct json_value *schema, const struct json_value *siblings);

static bool bad(struct parser *p, const char *what)
{
    return fail(p->err, CARAT_BAD_ARGUMENT, "the arguments of the tool call cannot be read: %s", what);
}

// --- reading ---

static struct text_view rest(const struct parser *p)
{
    return (struct text_view){p->at, (size_t)(p->end - p->at)};
}

static void skip_space(struct parser *p)
{
    size_t length;
    while (p->at < p->end && utf8_is_space(utf8_decode(p->at, (size_t)(p->end - p->at), &length)))
        p->at += length;
}

static bool starts_with(struct text_view text, struct text_view start)
{
    return text.n_bytes >= start.n_bytes && memcmp(text.data, start.data, start.n_bytes) == 0;
}

// Where `what` stands in the text, or NULL.
static const char *find(struct text_view text, struct text_view what)
{
    while (text.n_bytes >= what.n_bytes) {
        const char *first = memchr(text.data, what.data[0], text.n_bytes - what.n_bytes + 1);
        if (first == NULL || memcmp(first, what.data, what.n_bytes) == 0)
            return first;
        text.n_bytes -= (size_t)(first + 1 - text.data);
        text.data = first + 1;
    }
    return NULL;
}

// Whether the value could end here: at the end, or before , } ] with white space allowed.
static bool at_delimiter(const struct parser *p, const char *at)
{
    struct parser look = *p;
    look.at = at;
    skip_space(&look);
    return look.at == look.end || *look.at == ',' || *look.at == '}' || *look.at == ']';
}

// What is left of an unclosed string: all but the closing characters at the very end.
static struct text_view unclosed(const struct parser *p, const char *start)
{
    struct text_view text = {start, (size_t)(p->end - start)};
    for (;;) {
        struct text_view shorter = text_trim_end(text);
        while (shorter.n_bytes > 0 && (shorter.data[shorter.n_bytes - 1] == '}' || shorter.data[shorter.n_bytes - 1] == ']'))
            shorter.n_bytes--;
        if (shorter.n_bytes == text.n_bytes)
            return text;
        text = shorter;
    }
}

static void write_string(struct parser *p, struct text_view text)
{
    json_write_string(&p->out, text.data, text.n_bytes);
}

// --- strings ---

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// Four hexadecimal digits at `at`, or -1.
static int32_t hex4(const char *at, const char *end)
{
    int32_t value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        if (hex_value(at[i]) < 0)
            return -1;
        value = value << 4 | hex_value(at[i]);
    }
    return value;
}

// One escape after its backslash; returns the bytes read, 0 when it is none (the backslash then stands for itself).
static size_t read_escape(const char *at, const char *end, struct text_buffer *out)
{
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    if (at == end)
        return 0;
    const char *name = strchr(names, *at);
    if (name != NULL && *at != '\0') {
        text_append_byte(out, values[name - names]);
        return 1;
    }
    int32_t high = *at == 'u' ? hex4(at + 1, end) : -1;
    if (high < 0)
        return 0;
    uint32_t c = (uint32_t)high;
    size_t n_read = 5;
    if (c >= 0xd800 && c < 0xdc00 && end - at >= 11 && at[5] == '\\' && at[6] == 'u') {
        int32_t low = hex4(at + 7, end);
        if (low >= 0xdc00 && low < 0xe000) {
            c = 0x10000 + ((c - 0xd800) << 10) + (uint32_t)(low - 0xdc00);
            n_read = 11;
        }
    }
    uint8_t bytes[4];
    text_append(out, bytes, utf8_encode(c >= 0xd800 && c < 0xe000 ? 0xfffd : c, bytes));
    return n_read;
}

// Writes the text between double quotes with its escapes resolved.
static void write_unescaped(struct parser *p, struct text_view text)
{
    struct text_buffer plain = {0};
    const char *end = text.data + text.n_bytes;
    for (const char *at = text.data; at < end;) {
        size_t n_read = *at == '\\' ? read_escape(at + 1, end, &plain) : 0;
        if (n_read == 0)
            text_append_byte(&plain, *at);
        at += 1 + n_read;
    }
    p->out.failed |= plain.failed;
    write_string(p, text_whole(&plain));
    text_free(&plain);
}

// The end of a string that began with `mark`, or NULL. Between double quotes a backslash protects the next character; a single
// quote counts when no backslash stands before it.
static const char *closing_mark(const struct parser *p, const char *start, char mark)
{
    for (const char *at = start; at < p->end; at++) {
        if (*at == mark && (mark == '"' || at == start || at[-1] != '\\'))
            return at;
        if (*at == '\\' && mark == '"' && at + 1 < p->end)
            at++;
    }
    return NULL;
}

enum follower { ANYTHING, DELIMITER, COLON };

static bool follows(const struct parser *p, const char *at, enum follower wanted)
{
    struct parser look = *p;
    look.at = at;
    skip_space(&look);
    return wanted == ANYTHING || (wanted == DELIMITER ? at_delimiter(p, at) : look.at < look.end && *look.at == ':');
}

// Reads and writes a string that starts with <|"|>, " or '. False when there is none; also when one of the last two marks is
// closed and something else than `wanted` follows, since then the marks are part of a longer text.
static bool parse_quoted(struct parser *p, enum follower wanted)
{
    if (starts_with(rest(p), quote)) {
        p->at += quote.n_bytes;
        const char *close = find(rest(p), quote);
        write_string(p, close != NULL ? (struct text_view){p->at, (size_t)(close - p->at)} : unclosed(p, p->at));
        p->at = close != NULL ? close + quote.n_bytes : p->end;
        return true;
    }
    if (p->at == p->end || (*p->at != '"' && *p->at != '\''))
        return false;
    char mark = *p->at;
    const char *start = p->at + 1;
    const char *close = closing_mark(p, start, mark);
    if (close != NULL ? !follows(p, close + 1, wanted) : wanted == COLON)
        return false;
    struct text_view text = close != NULL ? (struct text_view){start, (size_t)(close - start)} : unclosed(p, start);
    p->at = close != NULL ? close + 1 : p->end;
    if (mark == '"')
        write_unescaped(p, text);
    else
        write_string(p, text);
    return true;
}

// --- schemas ---

// A schema whose values can only be strings (or null).
static bool declares_string(const struct json_value *schema)
{
    const struct json_value *type = json_get(schema, "type");
    if (json_text_is(type, "string") || json_text_is(type, "STRING"))
        return true;
    if (!json_is(type, JSON_ARRAY) || type->n_children == 0)
        return false;
    bool has_string = false;
    for (size_t i = 0; i < type->n_children; i++) {
        bool string = json_text_is(&type->children[i], "string");
        if (!string && !json_text_is(&type->children[i], "null"))
            return false;
        has_string |= string;
    }
    return has_string;
}

static const struct json_value *member_named(const struct json_value *object, struct text_view name)
{
    if (!json_is(object, JSON_OBJECT))
        return NULL;
    for (size_t i = 0; i < object->n_children; i++)
        if (text_equal((struct text_view){object->children[i].key, object->children[i].n_key}, name))
            return &object->children[i];
    return NULL;
}

// Whether a known key and its colon stand here.
static bool at_known_key(const struct parser *p, const char *at, const struct json_value *siblings)
{
    struct parser look = *p;
    look.at = at;
    skip_space(&look);
    size_t n = look.end - look.at < MAX_KEY_BYTES ? (size_t)(look.end - look.at) : MAX_KEY_BYTES;
    const char *colon = n > 0 ? memchr(look.at, ':', n) : NULL;
    if (colon == NULL)
        return false;
    struct text_view key = text_trim_end((struct text_view){look.at, (size_t)(colon - look.at)});
    if (key.n_bytes > 2 * quote.n_bytes && starts_with(key, quote))
        key = (struct text_view){key.data + quote.n_bytes, key.n_bytes - 2 * quote.n_bytes};
    else if (key.n_bytes > 2 && key.data[0] == '"')
        key = (struct text_view){key.data + 1, key.n_bytes - 2};
    return member_named(siblings, key) != NULL;
}

// --- values without delimiters ---

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

// The end of a JSON number at `at`, or NULL.
static const char *number_end(const char *at, const char *end)
{
    if (at < end && *at == '-')
        at++;
    const char *digits = at;
    at = skip_digits(at, end);
    if (at == digits || (*digits == '0' && at - digits > 1))
        return NULL;
    if (at < end && *at == '.') {
        digits = at + 1;
        at = skip_digits(digits, end);
        if (at == digits)
            return NULL;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        digits = at;
        at = skip_digits(digits, end);
        if (at == digits)
            return NULL;
    }
    return at;
}

// Reads null, and with only_null false also true, false and numbers, if a delimiter follows.
static bool parse_literal(struct parser *p, bool only_null)
{
    static const char *const words[] = {"null", "true", "false"};
    const char *end = NULL;
    for (int i = 0; i < (only_null ? 1 : 3); i++)
        if (starts_with(rest(p), text_of(words[i])))
            end = p->at + strlen(words[i]);
    if (end == NULL && !only_null)
        end = number_end(p->at, p->end);
    if (end == NULL || !at_delimiter(p, end))
        return false;
    json_write_raw(&p->out, p->at, (size_t)(end - p->at));
    p->at = end;
    return true;
}

// A string without delimiters that the schema knows to be one: up to the comma before the next known key. At the outermost level
// any other comma, brace or bracket is part of it, except the brace that closes the arguments.
static bool parse_declared_string(struct parser *p, const struct json_value *siblings)
{
    const char *start = p->at;
    const char *end = start;
    bool outermost = p->depth == 1;
    while (end < p->end && !(*end == ',' && at_known_key(p, end + 1, siblings)) && !(*end == '}' && !outermost))
        end++;
    struct text_view text = text_trim_end((struct text_view){start, (size_t)(end - start)});
    if (end == p->end && outermost && text.n_bytes > 0 && text.data[text.n_bytes - 1] == '}') {
        end = text.data + text.n_bytes - 1;
        text.n_bytes--;
    }
    write_string(p, text_trim_end(text));
    p->at = end;
    return true;
}

static bool parse_bare_string(struct parser *p)
{
    const char *start = p->at;
    while (p->at < p->end && *p->at != ',' && *p->at != '}' && *p->at != ']')
        p->at++;
    struct text_view text = text_trim_end((struct text_view){start, (size_t)(p->at - start)});
    if (text.n_bytes == 0)
        return bad(p, "a value is missing");
    write_string(p, text);
    return true;
}

// --- lists and mappings ---

static bool enter(struct parser *p)
{
    p->at++;
    return ++p->depth <= REPLY_MAX_NESTING || bad(p, "they are nested too deeply");
}

static bool parse_list(struct parser *p, const struct json_value *schema)
{
    const struct json_value *items = json_get(schema, "items");
    if (!enter(p))
        return false;
    json_write_literal(&p->out, "[");
    skip_space(p);
    bool more = p->at < p->end && *p->at != ']';
    while (more) {
        if (!parse_value(p, items, NULL))
            return false;
        skip_space(p);
        more = p->at < p->end && *p->at == ',';
        if (more) {
            json_write_literal(&p->out, ",");
            p->at++;
        } else if (p->at < p->end && *p->at != ']') {
            return bad(p, "a list has something else than a comma between its values");
        }
    }
    if (p->at < p->end)
        p->at++;
    json_write_literal(&p->out, "]");
    p->depth--;
    return true;
}

// Reads a key and its colon. Its JSON text is appended to the output, its schema looked up.
static bool parse_key(struct parser *p, const struct json_value *properties, const struct json_value **schema)
{
    size_t start = p->out.n_bytes;
    skip_space(p);
    if (!parse_quoted(p, COLON)) {
        const char *colon = p->at < p->end ? memchr(p->at, ':', (size_t)(p->end - p->at)) : NULL;
        if (colon == NULL)
            return bad(p, "a key has no colon after it");
        struct text_view key = text_trim_end((struct text_view){p->at, (size_t)(colon - p->at)});
        if (key.n_bytes == 0)
            return bad(p, "a key is missing");
        write_string(p, key);
        p->at = colon;
    }
    skip_space(p);
    if (p->at == p->end || *p->at != ':')
        return bad(p, "a key has no colon after it");
    p->at++;
    if (p->out.failed)
        return false;
    // A name that needs escapes is not found, which only means that it is not repaired.
    *schema = member_named(properties, (struct text_view){p->out.bytes + start + 1, p->out.n_bytes - start - 2});
    return true;
}

static int by_key(const void *a, const void *b)
{
    const struct member *x = *(const struct member *const *)a;
    const struct member *y = *(const struct member *const *)b;
    size_t n_x = x->value - x->key;
    size_t n_y = y->value - y->key;
    int order = memcmp(x->key_text, y->key_text, n_x < n_y ? n_x : n_y);
    if (order == 0)
        order = (n_x > n_y) - (n_x < n_y);
    return order != 0 ? order : (x > y) - (x < y);
}

static bool same_key(const struct member *a, const struct member *b)
{
    return a->value - a->key == b->value - b->key && memcmp(a->key_text, b->key_text, a->value - a->key) == 0;
}

// Of members with equal keys the first keeps its place and takes the value of the last.
static bool join_repeated(struct parser *p, struct member *members, size_t n)
{
    struct member **sorted = (struct member **)malloc((n + 1) * sizeof(struct member *));
    if (sorted == NULL)
        return false;
    for (size_t i = 0; i < n; i++) {
        members[i].key_text = p->out.bytes + members[i].key;
        sorted[i] = &members[i];
    }
    qsort((void *)sorted, n, sizeof(struct member *), by_key);
    for (size_t i = 0, last; i < n; i = last + 1) {
        last = i;
        while (last + 1 < n && same_key(sorted[i], sorted[last + 1]))
            last++;
        sorted[i]->first = true;
        sorted[i]->last = (size_t)(sorted[last] - members);
    }
    free((void *)sorted);
    return true;
}

// Replaces the texts of keys and values, which stand behind each other from `start` on, by the object.
static bool write_object(struct parser *p, size_t start, struct member *members, size_t n)
{
    struct json_writer object = {0};
    bool ok = !p->out.failed && join_repeated(p, members, n);
    json_write_literal(&object, "{");
    for (size_t i = 0; ok && i < n; i++) {
        const struct member *value = &members[members[i].last];
        if (!members[i].first)
            continue;
        if (object.n_bytes > 1)
            json_write_literal(&object, ",");
        json_write_raw(&object, p->out.bytes + members[i].key, members[i].value - members[i].key);
        json_write_literal(&object, ":");
        json_write_raw(&object, p->out.bytes + value->value, value->end - value->value);
    }
    json_write_literal(&object, "}");
    if (ok)
        p->out.n_bytes = start;
    if (ok && !object.failed)
        json_write_raw(&p->out, object.bytes, object.n_bytes);
    p->out.failed |= !ok || object.failed;
    json_writer_free(&object);
    return !p->out.failed;
}

// The members up to the closing brace or the end of the text.
static bool parse_members(
    struct parser *p, const struct json_value *properties, struct member **members, size_t *n, struct carat_error *err)
{
    size_t capacity = 0;
    skip_space(p);
    bool more = p->at < p->end && *p->at != '}';
    while (more) {
        if (*n == capacity) {
            capacity = capacity * 2 + 8;
            struct member *larger = realloc(*members, capacity * sizeof *larger);
            if (larger == NULL)
                return fail(err, CARAT_NO_MEMORY, "not enough memory for the arguments of a tool call");
            *members = larger;
        }
        struct member *member = &(*members)[(*n)++];
        const struct json_value *schema = NULL;
        *member = (struct member){.key = p->out.n_bytes};
        if (!parse_key(p, properties, &schema))
            return false;
        member->value = p->out.n_bytes;
        if (!parse_value(p, schema, properties))
            return false;
        member->end = p->out.n_bytes;
        skip_space(p);
        more = p->at < p->end && *p->at == ',';
        if (more)
            p->at++;
        else if (p->at < p->end && *p->at != '}')
            return bad(p, "something else than a comma stands between two arguments");
    }
    return true;
}

static bool parse_mapping(struct parser *p, const struct json_value *schema)
{
    struct member *members = NULL;
    size_t n = 0;
    size_t start = p->out.n_bytes;
    bool ok =
        enter(p) && parse_members(p, json_get(schema, "properties"), &members, &n, p->err) && write_object(p, start, members, n);
    free(members);
    if (ok && p->at < p->end)
        p->at++;
    p->depth--;
    return ok;
}

// siblings: the properties of the mapping that the value belongs to; NULL in lists.
static bool parse_value(struct parser *p, const struct json_value *schema, const struct json_value *siblings)
{
    bool declared = declares_string(schema);
    skip_space(p);
    if (parse_quoted(p, declared ? DELIMITER : ANYTHING))
        return true;
    if (declared)
        return parse_literal(p, true) || (siblings != NULL ? parse_declared_string(p, siblings) : parse_bare_string(p));
    if (p->at < p->end && *p->at == '{')
        return parse_mapping(p, schema);
    if (p->at < p->end && *p->at == '[')
        return parse_list(p, schema);
    return parse_literal(p, false) || parse_bare_string(p);
}

bool reply_arguments_to_json(
    struct text_view arguments, const struct json_value *schema, struct text_buffer *out, struct carat_error *err)
{
    struct parser p = {.at = arguments.data, .end = arguments.data + arguments.n_bytes, .err = err};
    skip_space(&p);
    bool ok = p.at < p.end && *p.at == '{' ? parse_mapping(&p, schema) : bad(&p, "they do not begin with a brace");
    skip_space(&p);
    if (ok && p.at < p.end)
        ok = bad(&p, "something follows the closing brace");
    if (p.out.failed)
        ok = fail(err, CARAT_NO_MEMORY, "not enough memory for the arguments of a tool call");
    if (ok)
        text_append(out, p.out.bytes, p.out.n_bytes);
    json_writer_free(&p.out);
    return ok;
}
