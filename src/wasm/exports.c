// exports.c: the WebAssembly module's functions for JavaScript: memory, models, tokens, the original system's loop.
//
// web/src/engine.ts calls them; web/README.md lists them. Handles are pointers. A function that fails returns 0 (NULL, or a
// negative count) and leaves the error in one place, where wasm_error_code and wasm_error_message find it. Texts and arrays that
// a function gives are valid until the next call. 64-bit sizes travel as double, exact up to 2^53.
//
// The host brings the bytes: wasm_open reads headers through the import `read` and makes the plan, wasm_plan says which stretches
// of the files are needed, wasm_plan_write takes them, wasm_ready ends.

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "carat.h"
#include "engine/model.h"
#include "engine/session.h"
#include "text/chat.h"
#include "wasm/exports.h"
#include "wasm/step.h"

// Raised with interfaceNumber of web/src/wasm.ts whenever a function here changes its meaning.
enum { INTERFACE_NUMBER = 4 };

// Copies n bytes at `offset` of the host's source `part` to dst: 1 done, 0 failed, -1 not here yet.
__attribute__((import_module("carat"), import_name("read"))) int host_read(int part, double offset, void *dst, size_t n_bytes);

struct carat_error error;

static struct {
    void *bytes; // freed before the next result
    size_t n;
} result;

void set_result(void *bytes, size_t n)
{
    free(result.bytes);
    result.bytes = bytes;
    result.n = n;
}

// --- memory and errors --------------------------------------------------------------------------------------------------------

EXPORT(wasm_interface) int wasm_interface(void);
int wasm_interface(void)
{
    return INTERFACE_NUMBER;
}

EXPORT(wasm_alloc) void *wasm_alloc(size_t n_bytes);
void *wasm_alloc(size_t n_bytes)
{
    return aligned_alloc(16, (n_bytes + 15) & ~(size_t)15);
}

EXPORT(wasm_free) void wasm_free(void *memory);
void wasm_free(void *memory)
{
    free(memory);
}

EXPORT(wasm_error_code) int wasm_error_code(void);
int wasm_error_code(void)
{
    return error.code;
}

EXPORT(wasm_error_message) const char *wasm_error_message(void);
const char *wasm_error_message(void)
{
    return error.message;
}

EXPORT(wasm_result) const void *wasm_result(void);
const void *wasm_result(void)
{
    return result.bytes;
}

EXPORT(wasm_result_size) size_t wasm_result_size(void);
size_t wasm_result_size(void)
{
    return result.n;
}

// --- models -------------------------------------------------------------------------------------------------------------------

enum { MAX_PARTS = 256 };

static bool read_from_host(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    int part = (int)(intptr_t)context;
    switch (host_read(part, (double)offset, dst, n_bytes)) {
    case 1:
        return true;
    case -1:
        return fail(err, CARAT_IO, "the first %llu bytes of the file are not enough for its header",
            (unsigned long long)(offset + n_bytes));
    default:
        return fail(err, CARAT_IO, "%zu bytes at %llu could not be read", n_bytes, (unsigned long long)offset);
    }
}

// Opens parts [first, first + n) of the host as one file.
static bool open_file(int first, int n, const double *sizes, struct gguf_file **file)
{
    struct gguf_source *parts[MAX_PARTS] = {0};
    bool ok = true;
    for (int i = 0; i < n && ok; i++) {
        parts[i] =
            gguf_source_callback(read_from_host, (void *)(intptr_t)(first + i), (uint64_t)sizes[first + i], "the model", &error);
        ok = parts[i] != NULL;
    }
    if (ok && gguf_open(parts, (uint32_t)n, file, &error))
        return true;
    for (int i = 0; i < n; i++)
        gguf_source_close(parts[i]);
    return false;
}

// The words that JavaScript passes to wasm_open.
struct open_options {
    int32_t backend; // 0 cpu, 1 webgpu, 2 ref
    int32_t n_threads;
    int32_t flags;          // 1 exact, 2 text only
    int32_t compat;         // enum carat_compat
    int32_t n_projector;    // the last this many parts are the projector file
    int32_t disk_above_mib; // tables that are gathered by row stay in the file when they are larger; -1: never
};

// Which tables stay in the file, by the host's wish.
static void keep_small_tables(struct plan *plan, int32_t disk_above_mib)
{
    for (size_t i = 0; i < plan->n_items; i++) {
        struct plan_item *item = &plan->items[i];
        if (disk_above_mib < 0 || item->weight->n_bytes >> 20 < (uint64_t)disk_above_mib)
            item->may_stay_on_disk = false;
    }
}

EXPORT(wasm_open) struct carat_model *wasm_open(int n_parts, const double *sizes, const struct open_options *words);
struct carat_model *wasm_open(int n_parts, const double *sizes, const struct open_options *words)
{
    static const char *const backends[] = {"cpu", "webgpu", "ref"};
    struct carat_model_options options = {
        .backend = backends[words->backend],
        .n_threads = words->n_threads,
        .exact = (words->flags & 1) != 0,
        .text_only = (words->flags & 2) != 0,
        .per_layer_table_on_disk = words->disk_above_mib >= 0,
        .compat = (enum carat_compat)words->compat,
    };
    int n_text = n_parts - words->n_projector;
    struct gguf_file *file = NULL;
    struct gguf_file *projector = NULL;
    struct carat_model *model;
    if (n_parts > MAX_PARTS || n_text < 1) {
        fail(&error, CARAT_BAD_ARGUMENT, "a model of %d files can't be opened; at most %d are possible", n_parts, MAX_PARTS);
        return NULL;
    }
    if (!open_file(0, n_text, sizes, &file))
        return NULL;
    if (words->n_projector > 0 && !open_file(n_text, words->n_projector, sizes, &projector)) {
        gguf_close(file);
        return NULL;
    }
    if (!model_begin(file, projector, &options, &model, &error))
        return NULL;
    keep_small_tables(&model->plan, words->disk_above_mib);
    if (plan_place(&model->plan, model->ops, &error))
        return model;
    carat_model_free(model);
    return NULL;
}

EXPORT(wasm_close) void wasm_close(struct carat_model *model);
void wasm_close(struct carat_model *model)
{
    carat_model_free(model);
}

// A stretch of a file to be brought. All numbers, since JavaScript reads them from one Float64Array.
struct plan_line {
    double index; // for wasm_plan_write
    double part;
    double offset; // in the part
    double n_bytes;
    double direct; // 1: the bytes go to the GPU unread, so they need not be in this memory
};

// The GPU backend looks at vectors, and at the last bytes of what is no multiple of 4.
static bool goes_unread(const struct weight *weight)
{
    return weight->home == WEIGHT_DEVICE && weight->n_bytes % 4 == 0 && (weight->n_out > 1 || weight->n_slices > 1);
}

// The plan of the text model: placed by wasm_open.
EXPORT(wasm_text_plan) struct plan *wasm_text_plan(struct carat_model *model);
struct plan *wasm_text_plan(struct carat_model *model)
{
    return &model->plan;
}

// The lines of a plan are the result; returns how many, -1 on failure.
EXPORT(wasm_plan) int wasm_plan(const struct carat_model *model, const struct plan *plan);
int wasm_plan(const struct carat_model *model, const struct plan *plan)
{
    // A tower's plan knows one file only, which may be the projector: the last of the host's parts.
    bool is_projector = plan->n_files > 0 && plan->files[0] == model->projector && model->projector != NULL;
    uint32_t first_part = is_projector ? gguf_part_count(model->file) : 0;
    struct plan_line *lines = calloc(plan->n_items + 1, sizeof *lines);
    if (lines == NULL) {
        fail(&error, CARAT_NO_MEMORY, "no memory for a list of %zu weights", plan->n_items);
        return -1;
    }
    int n = 0;
    for (size_t i = 0; i < plan->n_items; i++) {
        const struct plan_item *item = &plan->items[i];
        if (!plan_needs_bytes(item))
            continue;
        lines[n++] = (struct plan_line){
            .index = (double)i,
            .part = first_part + item->weight->file_part,
            .offset = (double)item->weight->file_offset,
            .n_bytes = (double)item->weight->n_bytes,
            .direct = goes_unread(item->weight),
        };
    }
    set_result(lines, (size_t)n * sizeof *lines);
    return n;
}

EXPORT(wasm_plan_write)
int wasm_plan_write(struct carat_model *model, struct plan *plan, size_t index, double offset, const void *bytes, size_t n_bytes);
int wasm_plan_write(struct carat_model *model, struct plan *plan, size_t index, double offset, const void *bytes, size_t n_bytes)
{
    return plan_write(plan, model->ops, index, (uint64_t)offset, bytes, n_bytes, &error);
}

EXPORT(wasm_ready) int wasm_ready(struct carat_model *model);
int wasm_ready(struct carat_model *model)
{
    return plan_finish(&model->plan, model->ops, &error) && model_ready(model, &error);
}

// What the backend makes of the weights for the sake of speed; nothing needs it. To be undone when the device did not take it.
EXPORT(wasm_fold) void wasm_fold(struct carat_model *model);
void wasm_fold(struct carat_model *model)
{
    gemma4_fold(model->text, model->ops);
}

EXPORT(wasm_unfold) void wasm_unfold(struct carat_model *model);
void wasm_unfold(struct carat_model *model)
{
    gemma4_unfold(model->text, model->ops);
}

// --- towers -------------------------------------------------------------------------------------------------------------------

// kind: enum tower_kind. 1 when the tower is there and its weights are not.
EXPORT(wasm_tower_wanted) int wasm_tower_wanted(const struct carat_model *model, int kind);
int wasm_tower_wanted(const struct carat_model *model, int kind)
{
    return model->towers != NULL && towers_has(model->towers, (enum tower_kind)kind) &&
           !towers_loaded(model->towers, (enum tower_kind)kind);
}

// Makes room for the weights and gives the plan that brings them; NULL on failure. wasm_tower_ready ends it.
EXPORT(wasm_tower_plan) struct plan *wasm_tower_plan(struct carat_model *model, int kind);
struct plan *wasm_tower_plan(struct carat_model *model, int kind)
{
    struct plan *plan = towers_plan(model->towers, (enum tower_kind)kind);
    return plan_place(plan, model->ops, &error) ? plan : NULL;
}

EXPORT(wasm_tower_ready) int wasm_tower_ready(struct carat_model *model, int kind);
int wasm_tower_ready(struct carat_model *model, int kind)
{
    if (!plan_finish(towers_plan(model->towers, (enum tower_kind)kind), model->ops, &error))
        return 0;
    towers_ready(model->towers, (enum tower_kind)kind);
    return 1;
}

// Gives the weights back, also those that were brought in part. They come again when they are needed.
EXPORT(wasm_tower_release) void wasm_tower_release(struct carat_model *model, int kind);
void wasm_tower_release(struct carat_model *model, int kind)
{
    if (model->towers == NULL || !towers_has(model->towers, (enum tower_kind)kind))
        return;
    if (towers_loaded(model->towers, (enum tower_kind)kind))
        towers_release(model->towers, (enum tower_kind)kind);
    else if (towers_plan(model->towers, (enum tower_kind)kind)->placed)
        plan_unload(towers_plan(model->towers, (enum tower_kind)kind), model->ops);
}

// --- adapters -----------------------------------------------------------------------------------------------------------------

// Adds an adapter: a GGUF or safetensors file in memory, config: adapter_config.json for PEFT's, or NULL. The number of matched
// weights, or 0 on failure.
EXPORT(wasm_adapter_load)
int wasm_adapter_load(
    struct carat_model *model, const void *bytes, size_t n_bytes, const char *config, size_t n_config, float scale);
int wasm_adapter_load(
    struct carat_model *model, const void *bytes, size_t n_bytes, const char *config, size_t n_config, float scale)
{
    struct gguf_source *source = gguf_source_memory(bytes, n_bytes, "the adapter", &error);
    struct adapter *adapter = NULL;
    if (source == NULL)
        return 0;
    bool ok = adapter_load(model->ops, model->text, source, config, n_config, &adapter, &error);
    gguf_source_close(source);
    if (!ok)
        return 0;
    int n_matched = adapter_pair_count(adapter);
    return model_attach(model, adapter, scale, &error) ? n_matched : 0;
}

EXPORT(wasm_adapters_clear) void wasm_adapters_clear(struct carat_model *model);
void wasm_adapters_clear(struct carat_model *model)
{
    carat_adapters_clear(model);
}

// --- what a model is ----------------------------------------------------------------------------------------------------------

static void write_text_member(struct json_writer *json, const char *name, const char *text)
{
    json_write_format(json, ",\"%s\":", name);
    json_write_string(json, text, strlen(text));
}

// What keys and values take with the sessions' defaults: sliding layers the same in every context, global ones by position.
static void write_kv_bytes(struct json_writer *json, const struct carat_model *model)
{
    struct kv_options options = {
        .n_context = model->text->config.n_positions, .max_batch = SESSION_DEFAULT_BATCH, .n_rewind = SESSION_REWIND};
    uint64_t sliding = 0;
    uint64_t global = 0;
    kv_cache_bytes(&model->text->config, &options, &sliding, &global);
    json_write_format(json, ",\"kvBytes\":{\"fixed\":%llu,\"perPosition\":%llu}", (unsigned long long)sliding,
        (unsigned long long)(global / (uint64_t)options.n_context));
}

// struct carat_model_info as JSON (ModelInfo of web/src/types.ts): the result.
EXPORT(wasm_info) int wasm_info(const struct carat_model *model);
int wasm_info(const struct carat_model *model)
{
    struct carat_model_info info;
    carat_model_info(model, &info);
    struct json_writer json = {0};
    json_write_format(&json, "{\"layers\":%d,\"embedding\":%d,\"vocabulary\":%d,\"contextLength\":%d", info.n_layers, info.n_embd,
        info.n_vocab, info.context_length);
    json_write_format(&json,
        ",\"parameters\":%llu,\"fileBytes\":%llu,\"weightBytes\":%llu,\"foldedBytes\":%llu,\"hasVision\":%s,\"hasAudio\":%s",
        (unsigned long long)info.n_parameters, (unsigned long long)info.file_bytes, (unsigned long long)info.weight_bytes,
        (unsigned long long)info.folded_bytes, info.has_vision ? "true" : "false", info.has_audio ? "true" : "false");
    json_write_format(&json, ",\"loadedBytes\":%llu,\"loadMs\":%.3f", (unsigned long long)info.loaded_bytes, info.load_ms);
    json_write_format(&json, ",\"tableOnDisk\":%s", model->table_on_disk ? "true" : "false");
    write_kv_bytes(&json, model);
    write_text_member(&json, "name", info.name);
    write_text_member(&json, "architecture", info.architecture);
    write_text_member(&json, "quantization", info.quantization);
    write_text_member(&json, "backend", info.backend);
    write_text_member(&json, "device", info.device);
    json_write_literal(&json, "}");
    set_result(json.bytes, json.n_bytes);
    return !json.failed || fail(&error, CARAT_NO_MEMORY, "no memory for the description of the model");
}

// --- tokens -------------------------------------------------------------------------------------------------------------------

// flags: 1 add <bos>, 2 recognise markers. The ids are the result; returns how many, -1 on failure.
EXPORT(wasm_tokenize) int wasm_tokenize(const struct carat_model *model, const char *text, size_t n_bytes, int flags);
int wasm_tokenize(const struct carat_model *model, const char *text, size_t n_bytes, int flags)
{
    int32_t *ids;
    int32_t n;
    if (!carat_tokenize(model, text, n_bytes, (flags & 1) != 0, (flags & 2) != 0, &ids, &n, &error))
        return -1;
    set_result(ids, (size_t)n * sizeof *ids);
    return n;
}

EXPORT(wasm_detokenize) int wasm_detokenize(const struct carat_model *model, const int32_t *ids, int n, int with_special);
int wasm_detokenize(const struct carat_model *model, const int32_t *ids, int n, int with_special)
{
    char *text;
    size_t n_bytes;
    if (!carat_detokenize(model, ids, n, with_special != 0, &text, &n_bytes, &error))
        return 0;
    set_result(text, n_bytes);
    return 1;
}

// The entry of the vocabulary as the file has it.
EXPORT(wasm_token_text) int wasm_token_text(const struct carat_model *model, int id);
int wasm_token_text(const struct carat_model *model, int id)
{
    struct text_view view = tokenizer_token_text(model->tok, id);
    if (view.data == NULL)
        return fail(&error, CARAT_BAD_ARGUMENT, "there is no token %d", id);
    char *copy = malloc(view.n_bytes + 1);
    if (copy == NULL)
        return fail(&error, CARAT_NO_MEMORY, "no memory for the text of a token");
    memcpy(copy, view.data, view.n_bytes);
    set_result(copy, view.n_bytes);
    return 1;
}

EXPORT(wasm_is_end) int wasm_is_end(const struct carat_model *model, int id);
int wasm_is_end(const struct carat_model *model, int id)
{
    return tokenizer_is_end(model->tok, id);
}

EXPORT(wasm_find_token) int wasm_find_token(const struct carat_model *model, const char *text, size_t n_bytes);
int wasm_find_token(const struct carat_model *model, const char *text, size_t n_bytes)
{
    return tokenizer_find(model->tok, (struct text_view){text, n_bytes});
}

// --- the original system's token loop -----------------------------------------------------------------------------------------

EXPORT(wasm_stepper_new) struct stepper *wasm_stepper_new(struct carat_session *session);
struct stepper *wasm_stepper_new(struct carat_session *session)
{
    return stepper_new(session, &error);
}

EXPORT(wasm_stepper_free) void wasm_stepper_free(struct stepper *stepper);
void wasm_stepper_free(struct stepper *stepper)
{
    stepper_free(stepper);
}

EXPORT(wasm_stepper_reset) void wasm_stepper_reset(struct stepper *stepper);
void wasm_stepper_reset(struct stepper *stepper)
{
    stepper_reset(stepper);
}

EXPORT(wasm_stepper_sampling)
int wasm_stepper_sampling(
    struct stepper *stepper, float temperature, int top_k, float top_p, float repetition_penalty, double seed);
int wasm_stepper_sampling(
    struct stepper *stepper, float temperature, int top_k, float top_p, float repetition_penalty, double seed)
{
    struct sampler_params params = sampler_original_defaults();
    params.temperature = temperature;
    params.top_k = top_k;
    params.top_p = top_p;
    params.repetition_penalty = repetition_penalty;
    params.seed = (uint64_t)seed;
    return stepper_set_sampling(stepper, &params, &error);
}

// id -1: the soft token at `soft`.
EXPORT(wasm_step_begin) int wasm_step_begin(struct stepper *stepper, int id, const float *soft);
int wasm_step_begin(struct stepper *stepper, int id, const float *soft)
{
    return stepper_begin(stepper, id, soft, &error);
}

// The next id, -1 while the device computes, -2 on failure.
EXPORT(wasm_step_poll) int wasm_step_poll(struct stepper *stepper);
int wasm_step_poll(struct stepper *stepper)
{
    int32_t next;
    switch (stepper_poll(stepper, &next, &error)) {
    case CARAT_DONE:
        return next;
    case CARAT_PENDING:
        return -1;
    default:
        return -2;
    }
}

// --- the original system's prompts --------------------------------------------------------------------------------------------

// messages: a JSON array. flags: 1 <bos> in front, 2 the last message is an unfinished reply. The prompt's text is the result.
EXPORT(wasm_render) int wasm_render(const struct carat_model *model, const char *messages, int flags);
int wasm_render(const struct carat_model *model, const char *messages, int flags)
{
    struct chat_options options = {
        .large = model->text->config.per_layer_width == 0,
        .add_generation_prompt = (flags & 2) == 0,
        .continue_last = (flags & 2) != 0,
        .without_bos = (flags & 1) == 0,
    };
    struct json_document *document = json_parse(messages, strlen(messages), &error);
    struct chat chat = {0};
    struct chat_prompt prompt = {0};
    bool ok = document != NULL && chat_add_json(&chat, json_root(document), true, &error) &&
              chat_render(&chat, &options, &prompt, &error);
    if (ok) {
        set_result(prompt.text.data, prompt.text.n_bytes);
        prompt.text.data = NULL;
    }
    chat_prompt_free(&prompt);
    chat_free(&chat);
    json_free(document);
    return ok;
}
