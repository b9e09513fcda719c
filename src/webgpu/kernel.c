// kernel.c: the template language of the kernels (kernel.h) and the table of pipelines.

#include "webgpu/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "webgpu/kernel_texts.h"

enum { MAX_NAME = 32, MAX_VALUE = 32, MAX_LINE = 512, MAX_DEPTH = 12, TABLE_MIN = 256 };

struct definition {
    char name[MAX_NAME];
    char value[MAX_VALUE];
};

struct expansion {
    const char *file;
    struct definition definitions[KERNEL_MAX_DEFINITIONS];
    int n_definitions;
    int depth;
    struct json_writer out;
    struct kernel_source *source;
    struct carat_error *err;
};

static bool define(struct expansion *e, const char *name, size_t n_name, const char *value, size_t n_value)
{
    if (e->n_definitions == KERNEL_MAX_DEFINITIONS || n_name >= MAX_NAME || n_value >= MAX_VALUE)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': too many or too long definitions", e->file);
    struct definition *d = &e->definitions[e->n_definitions++];
    memcpy(d->name, name, n_name);
    d->name[n_name] = '\0';
    memcpy(d->value, value, n_value);
    d->value[n_value] = '\0';
    return true;
}

// The innermost definition of a name, or NULL.
static const char *value_of(const struct expansion *e, const char *name)
{
    for (int i = e->n_definitions; i-- > 0;)
        if (strcmp(e->definitions[i].name, name) == 0)
            return e->definitions[i].value;
    return NULL;
}

static bool is_set(const struct expansion *e, const char *name)
{
    if (name[0] == '!')
        return !is_set(e, name + 1);
    const char *value = value_of(e, name);
    return value != NULL && strcmp(value, "0") != 0;
}

// Replaces the last "${NAME}" that holds no other until there is none.
static bool substitute(struct expansion *e, char line[MAX_LINE])
{
    for (;;) {
        char *start = NULL;
        for (char *at = strstr(line, "${"); at != NULL; at = strstr(at + 2, "${"))
            start = at;
        if (start == NULL)
            return true;
        char *end = strchr(start, '}');
        char name[MAX_NAME] = "";
        if (end != NULL && end - start - 2 < MAX_NAME)
            memcpy(name, start + 2, (size_t)(end - start - 2));
        const char *value = value_of(e, name);
        if (end == NULL || value == NULL)
            return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': '%s' is not defined", e->file, name);
        char rest[MAX_LINE];
        snprintf(rest, sizeof rest, "%s", end + 1);
        if (snprintf(start, (size_t)(MAX_LINE - (start - line)), "%s%s", value, rest) >= MAX_LINE - (start - line))
            return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': a line is too long", e->file);
    }
}

static size_t line_length(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline != NULL ? (size_t)(newline - at) + 1 : (size_t)(end - at);
}

static bool starts(const char *at, const char *end, const char *word)
{
    size_t n = strlen(word);
    return (size_t)(end - at) >= n && memcmp(at, word, n) == 0;
}

// The line that closes the block whose body starts at `at`; *other = its #else, or NULL.
static const char *find_end(const char *at, const char *end, const char **other)
{
    int depth = 0;
    *other = NULL;
    for (; at < end; at += line_length(at, end)) {
        if (starts(at, end, "#if") || starts(at, end, "#for"))
            depth++;
        else if (starts(at, end, "#end") && depth-- == 0)
            return at;
        else if (starts(at, end, "#else") && depth == 0)
            *other = at;
    }
    return NULL;
}

static bool expand_lines(struct expansion *e, const char *at, const char *end);

static bool expand_if(struct expansion *e, const char *condition, const char *body, const char *close, const char *other)
{
    if (is_set(e, condition))
        return expand_lines(e, body, other != NULL ? other : close);
    return other == NULL || expand_lines(e, other + line_length(other, close), close);
}

static bool expand_for(struct expansion *e, const char *arguments, const char *body, const char *close)
{
    char name[MAX_NAME], count[MAX_NAME];
    if (sscanf(arguments, "%31s %31s", name, count) != 2)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': '#for %s' lacks a count", e->file, arguments);
    const char *value = value_of(e, count);
    long n = strtol(value != NULL ? value : count, NULL, 10);
    int n_before = e->n_definitions;
    for (long i = 0; i < n; i++) {
        char number[MAX_VALUE];
        int n_number = snprintf(number, sizeof number, "%ld", i);
        if (!define(e, name, strlen(name), number, (size_t)n_number) || !expand_lines(e, body, close))
            return false;
        e->n_definitions = n_before;
    }
    return true;
}

static const char *find_text(const char *file)
{
    for (const struct kernel_text *t = kernel_texts; t->name != NULL; t++)
        if (strcmp(t->name, file) == 0)
            return t->text;
    return NULL;
}

static bool define_all(struct expansion *e, const char *list)
{
    while (*list != '\0') {
        size_t n = strcspn(list, " \n");
        const char *equals = memchr(list, '=', n);
        if (equals != NULL && !define(e, list, (size_t)(equals - list), equals + 1, n - (size_t)(equals + 1 - list)))
            return false;
        list += n;
        list += strspn(list, " \n");
    }
    return true;
}

static bool expand_use(struct expansion *e, const char *arguments)
{
    char file[MAX_NAME];
    if (sscanf(arguments, "%31s", file) != 1)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': '#use' lacks a name", e->file);
    const char *text = find_text(file);
    if (text == NULL)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': there is no '%s'", e->file, file);
    int n_before = e->n_definitions;
    bool done = define_all(e, arguments + strlen(file)) && expand_lines(e, text, text + strlen(text));
    e->n_definitions = n_before;
    return done;
}

static bool expand_bind(struct expansion *e, const char *arguments)
{
    bool reads = strncmp(arguments, "read ", 5) == 0;
    const char *declaration = arguments + (reads ? 5 : 6);
    if (e->source->n_bindings == GPU_MAX_BINDINGS)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s' has more than %d bindings", e->file, GPU_MAX_BINDINGS);
    if (reads)
        e->source->read_only |= 1u << e->source->n_bindings;
    json_write_format(&e->out, "@group(0) @binding(%d) var<storage, %s> %s;\n", ++e->source->n_bindings,
        reads ? "read" : "read_write", declaration);
    return true;
}

static bool expand_lines(struct expansion *e, const char *at, const char *end)
{
    if (++e->depth > MAX_DEPTH)
        return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s' is nested too deeply", e->file);
    bool done = true;
    while (done && at < end) {
        size_t n = line_length(at, end);
        char line[MAX_LINE];
        if (n >= sizeof line)
            return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': a line is too long", e->file);
        memcpy(line, at, n);
        line[n] = '\0';
        line[strcspn(line, "\n")] = '\0';
        at += n;
        if (!substitute(e, line))
            return false;
        bool is_if = strncmp(line, "#if ", 4) == 0, is_for = strncmp(line, "#for ", 5) == 0;
        if (is_if || is_for) {
            const char *other, *close = find_end(at, end, &other);
            if (close == NULL)
                return fail(e->err, CARAT_BAD_ARGUMENT, "kernel '%s': '%s' has no #end", e->file, line);
            done = is_if ? expand_if(e, line + 4, at, close, other) : expand_for(e, line + 5, at, close);
            at = close + line_length(close, end);
        } else if (strncmp(line, "#use ", 5) == 0) {
            done = expand_use(e, line + 5);
        } else if (strncmp(line, "#bind ", 6) == 0) {
            done = expand_bind(e, line + 6);
        } else {
            json_write_literal(&e->out, line);
            json_write_literal(&e->out, "\n");
        }
    }
    e->depth--;
    return done;
}

bool kernel_expand(const char *file, const char *definitions, struct kernel_source *out, struct carat_error *err)
{
    struct expansion *e = calloc(1, sizeof *e);
    if (e == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to make kernel '%s'", file);
    *out = (struct kernel_source){0};
    e->file = file;
    e->source = out;
    e->err = err;
    bool done = define_all(e, definitions);
#ifdef __wasm__ // browsers want it said; naga does not know the word yet
    if (done && is_set(e, "SUBGROUPS"))
        json_write_literal(&e->out, "enable subgroups;\n");
#endif
    done = done && expand_use(e, file);
    if (done && e->out.failed)
        done = fail(err, CARAT_NO_MEMORY, "no memory to make kernel '%s'", file);
    if (done)
        out->wgsl = e->out.bytes;
    else
        json_writer_free(&e->out);
    free(e);
    return done;
}

// --- table --------------------------------------------------------------------------------------------------------------------

struct kernel_table {
    struct {
        uint64_t key;
        struct gpu_pipeline *pipeline; // NULL: free
    } *slots;
    uint32_t n_slots; // a power of two
    uint32_t n_used;
};

struct kernel_table *kernel_table_new(struct carat_error *err)
{
    struct kernel_table *table = calloc(1, sizeof *table);
    if (table != NULL)
        table->slots = calloc(TABLE_MIN, sizeof *table->slots);
    if (table == NULL || table->slots == NULL) {
        free(table);
        fail(err, CARAT_NO_MEMORY, "no memory for the table of GPU kernels");
        return NULL;
    }
    table->n_slots = TABLE_MIN;
    return table;
}

void kernel_table_clear(struct kernel_table *table)
{
    for (uint32_t i = 0; i < table->n_slots; i++) {
        gpu_pipeline_free(table->slots[i].pipeline);
        table->slots[i].pipeline = NULL;
    }
    table->n_used = 0;
}

void kernel_table_free(struct kernel_table *table)
{
    if (table == NULL)
        return;
    kernel_table_clear(table);
    free(table->slots);
    free(table);
}

static uint32_t place_of(const struct kernel_table *table, uint64_t key)
{
    uint32_t mask = table->n_slots - 1;
    uint32_t i = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32) & mask;
    while (table->slots[i].pipeline != NULL && table->slots[i].key != key)
        i = (i + 1) & mask;
    return i;
}

struct gpu_pipeline *kernel_find(struct kernel_table *table, uint64_t key)
{
    return table->slots[place_of(table, key)].pipeline;
}

static bool grow(struct kernel_table *table, struct carat_error *err)
{
    struct kernel_table wider = {.n_slots = table->n_slots * 2, .n_used = table->n_used};
    wider.slots = calloc(wider.n_slots, sizeof *wider.slots);
    if (wider.slots == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the table of GPU kernels");
    for (uint32_t i = 0; i < table->n_slots; i++)
        if (table->slots[i].pipeline != NULL)
            wider.slots[place_of(&wider, table->slots[i].key)] = table->slots[i];
    free(table->slots);
    *table = wider;
    return true;
}

struct gpu_pipeline *kernel_make(
    struct kernel_table *table, struct gpu *gpu, uint64_t key, const char *file, const char *definitions, struct carat_error *err)
{
    if (table->n_used * 2 >= table->n_slots && !grow(table, err))
        return NULL;
    struct kernel_source source;
    if (!kernel_expand(file, definitions, &source, err))
        return NULL;
    char name[96];
    snprintf(name, sizeof name, "%s %s", file, definitions);
    struct gpu_pipeline *pipeline = gpu_pipeline_new(gpu, name, source.wgsl, source.n_bindings, source.read_only, err);
    free(source.wgsl);
    if (pipeline == NULL)
        return NULL;
    uint32_t i = place_of(table, key);
    table->slots[i].key = key;
    table->slots[i].pipeline = pipeline;
    table->n_used++;
    return pipeline;
}
