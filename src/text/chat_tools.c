// chat_tools.c: declarations of tools in the system turn.
//
// The reference is a Jinja template, so where a schema is unusual the rules are Python's: what counts as empty, how a list of
// types is printed.

#include <stdlib.h>
#include <string.h>

#include "text/chat_writer.h"

static const char quote[] = "<|\"|>";

// Whether the template's `if value` holds.
static bool truthy(const struct json_value *value)
{
    if (value == NULL)
        return false;
    switch (value->type) {
    case JSON_NULL:
    case JSON_FALSE:
        return false;
    case JSON_TRUE:
        return true;
    case JSON_NUMBER:
        return value->number != 0;
    case JSON_STRING:
        return value->n_text != 0;
    case JSON_ARRAY:
    case JSON_OBJECT:
        return value->n_children != 0;
    }
    return false;
}

// A text as Python's repr() writes it.
static void append_repr(struct text_buffer *out, struct text_view text)
{
    bool has_single = memchr(text.data, '\'', text.n_bytes) != NULL;
    char mark = has_single && memchr(text.data, '"', text.n_bytes) == NULL ? '"' : '\'';
    text_append_byte(out, mark);
    for (size_t i = 0; i < text.n_bytes; i++) {
        char c = text.data[i];
        if (c == '\n' || c == '\r' || c == '\t') {
            text_append_string(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
            continue;
        }
        if (c == '\\' || c == mark)
            text_append_byte(out, '\\');
        text_append_byte(out, c);
    }
    text_append_byte(out, mark);
}

// A value as Python's str() writes it; nested is what repr() would.
static void append_str(struct text_buffer *out, const struct json_value *value, bool nested)
{
    switch (value->type) {
    case JSON_NULL:
        text_append_string(out, "None");
        break;
    case JSON_FALSE:
        text_append_string(out, "False");
        break;
    case JSON_TRUE:
        text_append_string(out, "True");
        break;
    case JSON_NUMBER:
        text_append(out, value->text, value->n_text);
        break;
    case JSON_STRING:
        if (nested)
            append_repr(out, (struct text_view){value->text, value->n_text});
        else
            text_append(out, value->text, value->n_text);
        break;
    case JSON_ARRAY:
    case JSON_OBJECT:
        text_append_byte(out, value->type == JSON_ARRAY ? '[' : '{');
        for (size_t i = 0; i < value->n_children; i++) {
            if (i != 0)
                text_append_string(out, ", ");
            if (value->type == JSON_OBJECT) {
                append_repr(out, (struct text_view){value->children[i].key, value->children[i].n_key});
                text_append_string(out, ": ");
            }
            append_str(out, &value->children[i], true);
        }
        text_append_byte(out, value->type == JSON_ARRAY ? ']' : '}');
        break;
    }
}

// The value's text in <|"|>, upper-cased on request. Absent gives the empty text.
static void put_quoted(struct chat_prompt *prompt, const struct json_value *value, bool upper)
{
    struct text_buffer text = {0};
    if (value != NULL)
        append_str(&text, value, false);
    for (size_t i = 0; upper && i < text.n_bytes; i++)
        if (text.data[i] >= 'a' && text.data[i] <= 'z')
            text.data[i] -= 'a' - 'A';
    prompt->text.failed |= text.failed;
    chat_template(prompt, quote);
    chat_outside(prompt, text_whole(&text));
    chat_template(prompt, quote);
    text_free(&text);
}

// required:[...] of a list of names.
static void put_names(struct chat_prompt *prompt, const struct json_value *list, bool upper)
{
    chat_template(prompt, "[");
    for (size_t i = 0; list->type == JSON_ARRAY && i < list->n_children; i++) {
        if (i != 0)
            chat_template(prompt, ",");
        put_quoted(prompt, &list->children[i], upper);
    }
    chat_template(prompt, "]");
}

static bool is_type(const struct json_value *schema, const char *name)
{
    const struct json_value *type = json_get(schema, "type");
    if (!json_is(type, JSON_STRING) || type->n_text != strlen(name))
        return false;
    for (size_t i = 0; i < type->n_text; i++) {
        char c = type->text[i];
        if ((c >= 'a' && c <= 'z' ? c - ('a' - 'A') : c) != name[i])
            return false;
    }
    return true;
}

static bool is_standard_key(const struct json_value *member)
{
    static const char *const keys[] = {"description", "type", "properties", "required", "nullable"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (text_is((struct text_view){member->key, member->n_key}, keys[i]))
            return true;
    return false;
}

static bool put_schema(struct chat_prompt *prompt, const struct json_value *schema, struct carat_error *err);

// NAME:{...},... of the members of a mapping. no_standard_keys: leave out those that describe the object itself.
static bool put_properties(
    struct chat_prompt *prompt, const struct json_value *properties, bool no_standard_keys, struct carat_error *err)
{
    struct chat_members members;
    if (!chat_members_sorted(properties, &members, err))
        return false;
    bool ok = true;
    bool first = true;
    for (size_t i = 0; ok && i < members.n; i++) {
        if (no_standard_keys && is_standard_key(members.items[i]))
            continue;
        if (!first)
            chat_template(prompt, ",");
        first = false;
        chat_outside(prompt, (struct text_view){members.items[i]->key, members.items[i]->n_key});
        chat_template(prompt, ":{");
        ok = put_schema(prompt, members.items[i], err);
        chat_template(prompt, "}");
    }
    chat_members_free(&members);
    return ok;
}

// One member of an array's items schema, after its name.
static bool put_item_member(struct chat_prompt *prompt, const struct json_value *member, struct carat_error *err)
{
    struct text_view key = {member->key, member->n_key};
    if (text_is(key, "properties")) {
        chat_template(prompt, "{");
        bool ok = member->type != JSON_OBJECT || put_properties(prompt, member, false, err);
        chat_template(prompt, "}");
        return ok;
    }
    if (text_is(key, "required"))
        put_names(prompt, member, false);
    else if (!text_is(key, "type"))
        return chat_put_value(prompt, member, true, err);
    else if (member->type == JSON_ARRAY)
        put_names(prompt, member, true);
    else
        put_quoted(prompt, member, true);
    return true;
}

static bool put_items(struct chat_prompt *prompt, const struct json_value *items, struct carat_error *err)
{
    struct chat_members members;
    if (!chat_members_sorted(items, &members, err))
        return false;
    chat_template(prompt, "items:{");
    bool ok = true;
    bool first = true;
    for (size_t i = 0; ok && i < members.n; i++) {
        if (members.items[i]->type == JSON_NULL)
            continue;
        if (!first)
            chat_template(prompt, ",");
        first = false;
        chat_outside(prompt, (struct text_view){members.items[i]->key, members.items[i]->n_key});
        chat_template(prompt, ":");
        ok = put_item_member(prompt, members.items[i], err);
    }
    chat_template(prompt, "}");
    chat_members_free(&members);
    return ok;
}

static bool put_object_schema(struct chat_prompt *prompt, const struct json_value *schema, struct carat_error *err)
{
    const struct json_value *properties = json_get(schema, "properties");
    bool has_properties = json_is(properties, JSON_OBJECT);
    chat_template(prompt, "properties:{");
    if (!put_properties(prompt, has_properties ? properties : schema, !has_properties, err))
        return false;
    chat_template(prompt, "},");
    const struct json_value *required = json_get(schema, "required");
    if (truthy(required)) {
        chat_template(prompt, "required:");
        put_names(prompt, required, false);
        chat_template(prompt, ",");
    }
    return true;
}

// What stands between the braces of a property. Nesting is bounded by the JSON parser.
static bool put_schema(struct chat_prompt *prompt, const struct json_value *schema, struct carat_error *err)
{
    const struct json_value *description = json_get(schema, "description");
    if (truthy(description)) {
        chat_template(prompt, "description:");
        put_quoted(prompt, description, false);
        chat_template(prompt, ",");
    }
    const struct json_value *choices = json_get(schema, "enum");
    if (is_type(schema, "STRING") && truthy(choices)) {
        chat_template(prompt, "enum:");
        if (!chat_put_value(prompt, choices, true, err))
            return false;
        chat_template(prompt, ",");
    }
    const struct json_value *items = json_get(schema, "items");
    if (is_type(schema, "ARRAY") && json_is(items, JSON_OBJECT) && truthy(items)) {
        if (!put_items(prompt, items, err))
            return false;
        chat_template(prompt, ",");
    }
    if (truthy(json_get(schema, "nullable")))
        chat_template(prompt, "nullable:true,");
    if (is_type(schema, "OBJECT") && !put_object_schema(prompt, schema, err))
        return false;
    chat_template(prompt, "type:");
    put_quoted(prompt, json_get(schema, "type"), true);
    return true;
}

static bool put_parameters(struct chat_prompt *prompt, const struct json_value *parameters, size_t index, struct carat_error *err)
{
    const struct json_value *properties = json_get(parameters, "properties");
    const struct json_value *required = json_get(parameters, "required");
    const struct json_value *type = json_get(parameters, "type");
    if (parameters->type != JSON_OBJECT || (truthy(properties) && properties->type != JSON_OBJECT))
        return fail(err, CARAT_BAD_ARGUMENT, "tools[%zu]: 'parameters' must be a schema of an object", index);
    chat_template(prompt, ",parameters:{");
    if (truthy(properties)) {
        chat_template(prompt, "properties:{");
        if (!put_properties(prompt, properties, false, err))
            return false;
        chat_template(prompt, "},");
    }
    if (truthy(required)) {
        chat_template(prompt, "required:");
        put_names(prompt, required, false);
        chat_template(prompt, ",");
    }
    chat_template(prompt, "type:");
    if (truthy(type))
        put_quoted(prompt, type, true);
    else // the template would leave the brace open
        chat_template(prompt, "<|\"|>OBJECT<|\"|>");
    chat_template(prompt, "}");
    return true;
}

static void put_response(struct chat_prompt *prompt, const struct json_value *response)
{
    const struct json_value *description = json_get(response, "description");
    chat_template(prompt, ",response:{");
    if (truthy(description)) {
        chat_template(prompt, "description:");
        put_quoted(prompt, description, false);
        chat_template(prompt, ",");
    }
    chat_template(prompt, "type:");
    put_quoted(prompt, json_get(response, "type"), true);
    chat_template(prompt, "}");
}

bool chat_put_tool(struct chat_prompt *prompt, const struct json_value *tool, size_t index, struct carat_error *err)
{
    const struct json_value *function = json_get(tool, "function");
    const struct json_value *name = json_get(function, "name");
    const struct json_value *parameters = json_get(function, "parameters");
    const struct json_value *response = json_get(function, "response");
    if (!json_is(name, JSON_STRING))
        return fail(err, CARAT_BAD_ARGUMENT, "tools[%zu] has no function with a name", index);
    chat_template(prompt, "<|tool>declaration:");
    chat_outside(prompt, (struct text_view){name->text, name->n_text});
    chat_template(prompt, "{description:");
    put_quoted(prompt, json_get(function, "description"), false);
    if (truthy(parameters) && !put_parameters(prompt, parameters, index, err))
        return false;
    if (response != NULL)
        put_response(prompt, response);
    chat_template(prompt, "}<tool|>");
    return true;
}
