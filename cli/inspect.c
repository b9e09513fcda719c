// inspect.c: carat inspect: what a GGUF file holds and what it needs in memory.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "commands.h"
#include "engine/session.h"
#include "gguf/gguf.h"
#include "model/memory.h"
#include "options.h"

static const char help[] =
    "usage: carat inspect MODEL [OPTIONS]\n\n"
    "Prints the metadata, the tensors and the memory that a GGUF file needs. Reads only its header.\n"
    "MODEL is a GGUF file, a URL, or a name of the local Ollama store such as gemma4:e2b.\n\n"
    "  --json           one JSON object instead of text, with all array elements up to --elements\n"
    "  --elements N     elements shown of each array (default 8)\n"
    "  --summary        leave out metadata and tensors\n"
    "  -c, --context N  positions that the memory is computed for (default 4096)\n"
    "  --batch N        rows of a prefill chunk (default 512)\n"
    "  --kv-f32         keys and values in 32 bits\n"
    "\nExit code 1: the file cannot be read. A model that carat cannot run is still shown, with the reason.\n";

enum { DEFAULT_CONTEXT = 4096, DEFAULT_BATCH = 512, DEFAULT_ELEMENTS = 8, MAX_TEXT = 100, MAX_CONTEXT = 1 << 24 };

struct inspect {
    const char *name;
    struct gguf_file *file;
    bool json, summary;
    uint64_t n_elements; // shown of an array
    struct kv_options kv;
    uint64_t tower_bytes;       // of v., a. and mm. tensors
    struct plan plan;           // of the text model
    struct gemma4_text *text;   // NULL when the file holds none that carat runs
    struct carat_error reason;  // why not
    struct model_memory memory; // valid with text
    uint64_t kv_per_position;   // bytes that one more position of a long context takes
};

static const char *flavour(const struct gguf_file *file)
{
    if (gguf_text_is(file, "general.type", "mmproj"))
        return "projector: vision and audio towers for a llama.cpp text model";
    if (gguf_text_is(file, "general.type", "adapter"))
        return "LoRA adapter";
    if (gguf_text_is(file, "general.architecture", "gemma4-assistant"))
        return "drafter for Gemma 4";
    if (!gguf_text_is(file, "general.architecture", "gemma4"))
        return "not a Gemma 4 file";
    if (gguf_tensor_count(file) == 0)
        return "Gemma 4 vocabulary";
    return gguf_text_is(file, "tokenizer.ggml.model", "llama") ? "Gemma 4, Ollama's single file"
                                                               : "Gemma 4 text model, llama.cpp";
}

static bool is_tower(const char *name)
{
    return strncmp(name, "v.", 2) == 0 || strncmp(name, "a.", 2) == 0 || strncmp(name, "mm.", 3) == 0;
}

static void measure(struct inspect *in)
{
    for (uint64_t i = 0; i < gguf_tensor_count(in->file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(in->file, i);
        if (is_tower(tensor->name))
            in->tower_bytes += tensor->n_bytes;
    }
    if (!gemma4_open(in->file, COMPAT_NONE, &in->plan, &in->text, &in->reason))
        return;
    if (in->kv.n_context > in->text->config.n_positions)
        in->kv.n_context = in->text->config.n_positions;
    if (in->kv.max_batch > in->kv.n_context)
        in->kv.max_batch = in->kv.n_context; // as a session does
    struct text_options options = {.max_batch = in->kv.max_batch, .max_logits = 1};
    in->memory = model_memory(&in->plan, in->text, &options, &in->kv);
    in->memory.weights[PLAN_TOWERS] += in->tower_bytes;
    in->memory.total += in->tower_bytes;
    in->kv_per_position = in->memory.kv_global / (uint64_t)in->kv.n_context;
}

// --- text

static void print_text(const struct gguf_text *text)
{
    putchar('\'');
    for (size_t i = 0; i < text->n_bytes; i++) {
        unsigned char c = (unsigned char)text->bytes[i];
        if (i >= MAX_TEXT && (c & 0xc0) != 0x80) {
            printf("'... (%zu bytes)", text->n_bytes);
            return;
        }
        if (c == '\n')
            fputs("\\n", stdout);
        else if (c < 0x20 || c == 0x7f)
            printf("\\x%02x", c);
        else
            putchar(c);
    }
    putchar('\'');
}

static void print_element(const struct gguf_value *value, uint64_t i)
{
    struct gguf_text text;
    double number;
    int64_t integer;
    uint64_t natural;
    bool flag;
    if (gguf_value_text(value, i, &text))
        print_text(&text);
    else if (value->type == GGUF_VALUE_BOOL && gguf_value_bool(value, i, &flag))
        fputs(flag ? "true" : "false", stdout);
    else if (gguf_value_u64(value, i, &natural))
        printf("%" PRIu64, natural);
    else if (gguf_value_i64(value, i, &integer))
        printf("%" PRId64, integer);
    else if (gguf_value_f64(value, i, &number))
        printf("%g", number);
}

static void print_metadata(const struct inspect *in)
{
    printf("\nmetadata: %zu keys\n", gguf_entry_count(in->file));
    for (size_t i = 0; i < gguf_entry_count(in->file); i++) {
        const struct gguf_entry *entry = gguf_entry_at(in->file, i);
        const struct gguf_value *value = &entry->value;
        char type[32];
        snprintf(type, sizeof type, value->is_array ? "%s[%" PRIu64 "]" : "%s", gguf_value_type_name(value->type), value->count);
        printf("  %-46s %-14s ", entry->key, type);
        for (uint64_t k = 0; k < value->count && k < in->n_elements; k++) {
            fputs(k == 0 ? "" : ", ", stdout);
            print_element(value, k);
        }
        puts(value->count > in->n_elements ? ", ..." : "");
    }
}

static void print_tensors(const struct inspect *in)
{
    bool many_parts = gguf_part_count(in->file) > 1;
    printf("\ntensors: %" PRIu64 "\n  %-46s %-8s %-24s %14s %14s%s\n", gguf_tensor_count(in->file), "name", "type",
        "shape (fastest first)", "bytes", "offset", many_parts ? " part" : "");
    for (uint64_t i = 0; i < gguf_tensor_count(in->file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(in->file, i);
        char shape[96] = "";
        size_t used = 0;
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            used += (size_t)snprintf(shape + used, sizeof shape - used, d == 0 ? "%" PRIu64 : " x %" PRIu64, tensor->ne[d]);
        printf("  %-46s %-8s %-24s %14" PRIu64 " %14" PRIu64, tensor->name, gguf_type_name(tensor->type), shape, tensor->n_bytes,
            tensor->offset);
        if (many_parts)
            printf(" %4u", tensor->part + 1);
        putchar('\n');
    }
}

struct histogram {
    uint64_t n_tensors, n_elements, n_bytes;
};

static void count_types(const struct gguf_file *file, struct histogram counts[GGUF_TYPE_LIMIT])
{
    memset(counts, 0, GGUF_TYPE_LIMIT * sizeof *counts);
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, i);
        counts[tensor->type].n_tensors++;
        counts[tensor->type].n_elements += gguf_tensor_elements(tensor);
        counts[tensor->type].n_bytes += tensor->n_bytes;
    }
}

static void print_types(const struct inspect *in)
{
    struct histogram counts[GGUF_TYPE_LIMIT];
    count_types(in->file, counts);
    printf("\ntypes\n  %-8s %8s %16s %12s\n", "type", "tensors", "elements", "size");
    for (uint32_t type = 0; type < GGUF_TYPE_LIMIT; type++) {
        if (counts[type].n_tensors != 0)
            printf("  %-8s %8" PRIu64 " %16" PRIu64 " %12s%s\n", gguf_type_name(type), counts[type].n_tensors,
                counts[type].n_elements, bytes_text(counts[type].n_bytes),
                gguf_type_info(type)->supported ? "" : "  (not supported as a weight)");
    }
}

static void print_amount(const char *what, uint64_t n_bytes, const char *note)
{
    if (n_bytes != 0)
        printf("  %-24s %10s%s%s\n", what, bytes_text(n_bytes), note[0] != '\0' ? "   " : "", note);
}

static void print_memory(const struct inspect *in)
{
    char note[96];
    if (in->text == NULL) {
        printf("\nmemory\n");
        print_amount("towers", in->tower_bytes, "");
        printf("  no text model that carat runs: %s\n", in->reason.message);
        return;
    }
    const struct model_memory *m = &in->memory;
    printf("\nmemory with a context of %d positions and batches of %d\n", in->kv.n_context, in->kv.max_batch);
    print_amount("layers", m->weights[PLAN_LAYERS], "");
    print_amount("embedding and output", m->weights[PLAN_EMBEDDING], "");
    print_amount("per-layer table", m->weights[PLAN_PER_LAYER_TABLE], "may stay on disk: --table-on-disk");
    print_amount("towers", m->weights[PLAN_TOWERS], "not needed with --text-only");
    print_amount("keys, values: sliding", m->kv_sliding, "whatever the context");
    snprintf(note, sizeof note, "%" PRIu64 " bytes a position", in->kv_per_position);
    print_amount("keys, values: global", m->kv_global, note);
    print_amount("working memory", m->scratch, "");
    print_amount("total", m->total, "");
    if (m->weights[PLAN_PER_LAYER_TABLE] != 0)
        print_amount("total, table on disk", m->total - m->weights[PLAN_PER_LAYER_TABLE], "");
}

static void print_report(const struct inspect *in)
{
    uint64_t n_bytes = 0, n_elements = 0;
    for (uint32_t part = 0; part < gguf_part_count(in->file); part++)
        n_bytes += gguf_file_source(in->file, part)->n_bytes;
    for (uint64_t i = 0; i < gguf_tensor_count(in->file); i++)
        n_elements += gguf_tensor_elements(gguf_tensor_at(in->file, i));
    printf("file      %s\n", gguf_file_source(in->file, 0)->name);
    printf("size      %s (%" PRIu64 " bytes) in %u part%s, GGUF version %u\n", bytes_text(n_bytes), n_bytes,
        gguf_part_count(in->file), gguf_part_count(in->file) == 1 ? "" : "s", gguf_file_version(in->file));
    printf("flavour   %s\n", flavour(in->file));
    printf("elements  %" PRIu64 "\n", n_elements);
    if (!in->summary) {
        print_metadata(in);
        print_tensors(in);
    }
    print_types(in);
    print_memory(in);
}

// --- JSON

static void write_element(struct json_writer *w, const struct gguf_value *value, uint64_t i)
{
    struct gguf_text text;
    double number;
    int64_t integer;
    uint64_t natural;
    bool flag;
    if (gguf_value_text(value, i, &text))
        json_write_string(w, text.bytes, text.n_bytes);
    else if (value->type == GGUF_VALUE_BOOL && gguf_value_bool(value, i, &flag))
        json_write_literal(w, flag ? "true" : "false");
    else if (gguf_value_u64(value, i, &natural))
        json_write_format(w, "%" PRIu64, natural);
    else if (gguf_value_i64(value, i, &integer))
        json_write_format(w, "%" PRId64, integer);
    else if (gguf_value_f64(value, i, &number))
        json_write_number(w, number);
}

static void write_metadata(struct json_writer *w, const struct inspect *in)
{
    json_write_literal(w, ",\"metadata\":{");
    for (size_t i = 0; i < gguf_entry_count(in->file); i++) {
        const struct gguf_entry *entry = gguf_entry_at(in->file, i);
        const struct gguf_value *value = &entry->value;
        json_write_literal(w, i == 0 ? "" : ",");
        json_write_string(w, entry->key, strlen(entry->key));
        json_write_format(w, ":{\"type\":\"%s\",", gguf_value_type_name(value->type));
        if (!value->is_array) {
            json_write_literal(w, "\"value\":");
            write_element(w, value, 0);
        } else {
            json_write_format(w, "\"count\":%" PRIu64 ",\"elements\":[", value->count);
            for (uint64_t k = 0; k < value->count && k < in->n_elements; k++) {
                json_write_literal(w, k == 0 ? "" : ",");
                write_element(w, value, k);
            }
            json_write_literal(w, "]");
        }
        json_write_literal(w, "}");
    }
    json_write_literal(w, "}");
}

static void write_tensors(struct json_writer *w, const struct inspect *in)
{
    json_write_literal(w, ",\"tensors\":[");
    for (uint64_t i = 0; i < gguf_tensor_count(in->file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(in->file, i);
        json_write_literal(w, i == 0 ? "{\"name\":" : ",{\"name\":");
        json_write_string(w, tensor->name, strlen(tensor->name));
        json_write_format(w, ",\"type\":\"%s\",\"shape\":[", gguf_type_name(tensor->type));
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            json_write_format(w, d == 0 ? "%" PRIu64 : ",%" PRIu64, tensor->ne[d]);
        json_write_format(
            w, "],\"bytes\":%" PRIu64 ",\"offset\":%" PRIu64 ",\"part\":%u}", tensor->n_bytes, tensor->offset, tensor->part);
    }
    json_write_literal(w, "]");
}

static void write_types(struct json_writer *w, const struct inspect *in)
{
    struct histogram counts[GGUF_TYPE_LIMIT];
    const char *comma = "";
    count_types(in->file, counts);
    json_write_literal(w, ",\"types\":{");
    for (uint32_t type = 0; type < GGUF_TYPE_LIMIT; type++) {
        if (counts[type].n_tensors == 0)
            continue;
        json_write_format(w, "%s\"%s\":{\"tensors\":%" PRIu64 ",\"elements\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", comma,
            gguf_type_name(type), counts[type].n_tensors, counts[type].n_elements, counts[type].n_bytes);
        comma = ",";
    }
    json_write_literal(w, "}");
}

static void write_memory(struct json_writer *w, const struct inspect *in)
{
    const struct model_memory *m = &in->memory;
    json_write_format(w, ",\"memory\":{\"towers\":%" PRIu64, in->tower_bytes);
    if (in->text == NULL) {
        json_write_literal(w, ",\"reason\":");
        json_write_string(w, in->reason.message, strlen(in->reason.message));
    } else {
        json_write_format(w,
            ",\"context\":%d,\"batch\":%d,\"layers\":%" PRIu64 ",\"embedding\":%" PRIu64 ",\"per_layer_table\":%" PRIu64,
            in->kv.n_context, in->kv.max_batch, m->weights[PLAN_LAYERS], m->weights[PLAN_EMBEDDING],
            m->weights[PLAN_PER_LAYER_TABLE]);
        json_write_format(w,
            ",\"kv_sliding\":%" PRIu64 ",\"kv_global\":%" PRIu64 ",\"kv_per_position\":%" PRIu64 ",\"working\":%" PRIu64
            ",\"total\":%" PRIu64,
            m->kv_sliding, m->kv_global, in->kv_per_position, m->scratch, m->total);
    }
    json_write_literal(w, "}");
}

static bool print_json(const struct inspect *in)
{
    struct json_writer w = {0};
    const char *name = gguf_file_source(in->file, 0)->name, *kind = flavour(in->file);
    json_write_literal(&w, "{\"file\":");
    json_write_string(&w, name, strlen(name));
    json_write_literal(&w, ",\"flavour\":");
    json_write_string(&w, kind, strlen(kind));
    json_write_format(&w, ",\"version\":%u,\"parts\":%u", gguf_file_version(in->file), gguf_part_count(in->file));
    if (!in->summary) {
        write_metadata(&w, in);
        write_tensors(&w, in);
    }
    write_types(&w, in);
    write_memory(&w, in);
    json_write_literal(&w, "}\n");
    bool ok = !w.failed && fwrite(w.bytes, 1, w.n_bytes, stdout) == w.n_bytes;
    if (!ok)
        fputs("carat inspect: the JSON text could not be written\n", stderr);
    json_writer_free(&w);
    return ok;
}

int command_inspect(int argc, char **argv)
{
    struct inspect in = {.n_elements = DEFAULT_ELEMENTS,
        .kv = {.n_context = DEFAULT_CONTEXT, .max_batch = DEFAULT_BATCH, .n_rewind = SESSION_REWIND}};
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && in.name == NULL)
            in.name = positional;
        else if (positional != NULL)
            usage_error(argv[0], "'%s' is one argument too many", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)
            return fputs(help, stdout) < 0;
        else if (strcmp(option, "--json") == 0)
            in.json = true;
        else if (strcmp(option, "--summary") == 0)
            in.summary = true;
        else if (strcmp(option, "--elements") == 0)
            in.n_elements = (uint64_t)option_int(&arguments, option, 0, INT32_MAX);
        else if (strcmp(option, "-c") == 0 || strcmp(option, "--context") == 0)
            in.kv.n_context = (int32_t)option_int(&arguments, option, 1, MAX_CONTEXT);
        else if (strcmp(option, "--batch") == 0)
            in.kv.max_batch = (int32_t)option_int(&arguments, option, 1, 1 << 16);
        else if (strcmp(option, "--kv-f32") == 0)
            in.kv.is_f32 = true;
        else
            usage_error(argv[0], "there is no option '%s'", option);
    }
    if (in.name == NULL)
        usage_error(argv[0], "name a model");
    struct carat_error err = {0};
    if (!gguf_open_path(in.name, &in.file, &err)) {
        fprintf(stderr, "carat inspect: %s\n", err.message);
        return 1;
    }
    measure(&in);
    bool ok = true;
    if (in.json)
        ok = print_json(&in);
    else
        print_report(&in);
    gemma4_free(in.text);
    plan_free(&in.plan);
    gguf_close(in.file);
    return ok ? 0 : 1;
}
