// model.c: opening models.

#include "engine/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/threads.h"
#include "cpu/cpu.h"
#include "gguf/ollama.h"
#include "gguf/source.h"
#include "ref/ref.h"
#include "text/decoder.h"
#ifdef CARAT_HAVE_WEBGPU
#include "webgpu/webgpu_ops.h"
#endif

// --- the backend ---------------------------------------------------------------------------------------------------------------

static struct ops *new_webgpu(const struct carat_model_options *options, bool hardware_only, struct carat_error *err)
{
#ifdef CARAT_HAVE_WEBGPU
    struct webgpu_options webgpu = {
        .keep_per_layer_table_on_disk = options->per_layer_table_on_disk,
        .hardware_only = hardware_only,
        .exact = options->exact,
        .no_autotune = options->no_autotune,
    };
    return webgpu_ops_new(&webgpu, err);
#else
    (void)options, (void)hardware_only;
    fail(err, CARAT_UNSUPPORTED, "this build of carat has no WebGPU backend: use the backend cpu");
    return NULL;
#endif
}

static struct ops *new_cpu(const struct carat_model_options *options, struct carat_error *err)
{
    struct cpu_options cpu = {.n_threads = options->n_threads, .exact = options->exact};
    return cpu_ops_new(&cpu, err);
}

bool model_check_backend(const char *name, struct carat_error *err)
{
    return name == NULL || strcmp(name, "webgpu") == 0 || strcmp(name, "cpu") == 0 || strcmp(name, "ref") == 0 ||
           fail(err, CARAT_BAD_ARGUMENT, "there is no backend '%s': use cpu, webgpu or ref", name);
}

struct ops *model_new_ops(const struct carat_model_options *options, struct carat_error *err)
{
    const char *name = options->backend;
    if (!model_check_backend(name, err))
        return NULL;
    if (name == NULL) {
        struct ops *ops = new_webgpu(options, true, NULL);
        return ops != NULL ? ops : new_cpu(options, err);
    }
    if (strcmp(name, "webgpu") == 0)
        return new_webgpu(options, false, err);
    if (strcmp(name, "cpu") == 0)
        return new_cpu(options, err);
    return ref_ops_new(err);
}

// --- what the files say about themselves ---------------------------------------------------------------------------------------

static void describe_name(struct carat_model *model)
{
    struct gguf_text text;
    if (gguf_text(model->file, "general.name", &text, NULL) && text.n_bytes > 0) {
        size_t n = text.n_bytes < 100 ? text.n_bytes : 100;
        while (n < text.n_bytes && n > 0 && ((unsigned char)text.bytes[n] & 0xc0) == 0x80)
            n--; // not inside a character
        for (size_t i = 0; i < n; i++)
            model->name[i] = (unsigned char)text.bytes[i] < 0x20 || text.bytes[i] == 0x7f ? '?' : text.bytes[i];
        model->name[n] = 0;
        return;
    }
    const char *path = gguf_file_source(model->file, 0)->name;
    const char *slash = strrchr(path, '/');
    snprintf(model->name, sizeof model->name, "%.100s", slash != NULL ? slash + 1 : path);
}

// Names the type that most bytes of the layers' matrices have; counts parameters and bytes.
static void describe_size(struct carat_model *model)
{
    enum { N_TYPES = 64 };
    uint64_t bytes_by_type[N_TYPES] = {0};
    for (uint64_t i = 0; i < gguf_tensor_count(model->file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(model->file, i);
        model->n_parameters += gguf_tensor_elements(tensor);
        if (strncmp(tensor->name, "blk.", 4) == 0 && (unsigned)tensor->type < N_TYPES)
            bytes_by_type[tensor->type] += tensor->n_bytes;
    }
    unsigned most = 0;
    for (unsigned type = 1; type < N_TYPES; type++) {
        if (bytes_by_type[type] > bytes_by_type[most])
            most = type;
    }
    const struct gguf_type_info *info = gguf_type_info(most);
    snprintf(model->quantization, sizeof model->quantization, "%s", info != NULL ? info->name : "?");
    for (uint32_t part = 0; part < gguf_part_count(model->file); part++)
        model->file_bytes += gguf_file_source(model->file, part)->n_bytes;
    if (model->projector != NULL)
        model->file_bytes += gguf_file_source(model->projector, 0)->n_bytes;
}

// --- opening -------------------------------------------------------------------------------------------------------------------

static bool read_tables(struct carat_model *model, const struct carat_model_options *options, struct carat_error *err)
{
    enum gemma4_compat compat = options->compat == CARAT_COMPAT_OLLAMA ? COMPAT_OLLAMA : COMPAT_NONE;
    if (!gemma4_open(model->file, compat, &model->plan, &model->text, err) || !tokenizer_from_gguf(model->file, &model->tok, err))
        return fail_in(err, "'%s'", gguf_file_source(model->file, 0)->name);
    if (tokenizer_vocab_size(model->tok) != model->text->config.n_vocab)
        return fail(err, CARAT_BAD_FILE, "'%s' lists %d tokens but its embedding table has %d rows",
            gguf_file_source(model->file, 0)->name, tokenizer_vocab_size(model->tok), model->text->config.n_vocab);
    model->compat = options->compat;
    model->has_vision = !options->text_only && towers_present(model->file, model->projector, TOWER_VISION);
    model->has_audio = !options->text_only && towers_present(model->file, model->projector, TOWER_AUDIO);
    if (!options->text_only && model->projector != NULL && !towers_present(model->projector, NULL, TOWER_VISION) &&
        !towers_present(model->projector, NULL, TOWER_AUDIO))
        return fail(err, CARAT_BAD_FILE, "'%s' is no projector: it holds neither a vision nor an audio tower",
            gguf_file_source(model->projector, 0)->name);
    describe_name(model);
    describe_size(model);
    return true;
}

static bool open_towers(struct carat_model *model, struct carat_error *err)
{
    static const enum tower_compat compats[] = {
        [CARAT_COMPAT_NONE] = TOWER_REFERENCE,
        [CARAT_COMPAT_OLLAMA] = TOWER_OLLAMA,
        [CARAT_COMPAT_LLAMA_CPP] = TOWER_LLAMA_CPP,
    };
    if (!model->has_vision && !model->has_audio)
        return true;
    return towers_new(
        model->file, model->projector, compats[model->compat], model->text->config.d_model, model->ops, &model->towers, err);
}

bool model_begin(struct gguf_file *file, struct gguf_file *projector, const struct carat_model_options *options,
    struct carat_model **out, struct carat_error *err)
{
    static const struct carat_model_options defaults;
    struct carat_model *model = calloc(1, sizeof *model);
    *out = NULL;
    if (model == NULL) {
        gguf_close(file);
        gguf_close(projector);
        return fail(err, CARAT_NO_MEMORY, "no memory for a model");
    }
    if (options == NULL)
        options = &defaults;
    model->file = file;
    model->projector = projector;
    bool ok = read_tables(model, options, err);
    if (ok) {
        model->ops = model_new_ops(options, err);
        ok = model->ops != NULL && open_towers(model, err);
    }
    if (!ok) {
        carat_model_free(model);
        return false;
    }
    *out = model;
    return true;
}

bool model_ready(struct carat_model *model, struct carat_error *err)
{
    model->table_on_disk = model->text->per_layer_table.home == WEIGHT_DISK;
    return gemma4_ready(model->text, err);
}

void carat_model_free(struct carat_model *model)
{
    if (model == NULL)
        return;
    carat_adapters_clear(model);
    free((void *)model->adapters);
    text_context_free(model->context);
    towers_free(model->towers);
    if (model->ops != NULL) {
        gemma4_unfold(model->text, model->ops);
        plan_unload(&model->plan, model->ops);
        model->ops->free(model->ops);
    }
    plan_free(&model->plan);
    gemma4_free(model->text);
    tokenizer_free(model->tok);
    gguf_close(model->file);
    gguf_close(model->projector);
    free(model);
}

#ifndef __wasm__

struct loading {
    const struct carat_model_options *options;
};

static bool report_loading(void *context, uint64_t n_done, uint64_t n_total)
{
    const struct loading *loading = context;
    return loading->options->progress == NULL ||
           loading->options->progress(loading->options->progress_context, "loading weights", n_done, n_total);
}

// Opens the model file and finds its projector: the one asked for, or the one that the Ollama store lists.
static bool open_files(const char *name, const struct carat_model_options *options, struct gguf_file **file,
    struct gguf_file **projector, struct carat_error *err)
{
    *projector = NULL;
    if (!gguf_open_path(name, file, err))
        return false;
    bool ok = true;
    struct ollama_model stored;
    if (options->text_only)
        return true;
    if (options->projector != NULL) {
        ok = gguf_open_path(options->projector, projector, err);
    } else if (strstr(name, "://") == NULL && ollama_find(NULL, name, &stored, NULL)) {
        if (strcmp(stored.model_path, gguf_file_source(*file, 0)->name) == 0 && stored.n_projectors > 0)
            ok = gguf_open_path(stored.projector_paths[0], projector, err);
        ollama_model_free(&stored);
    }
    if (!ok)
        gguf_close(*file);
    return ok;
}

bool carat_model_open(
    const char *name, const struct carat_model_options *options, struct carat_model **model, struct carat_error *err)
{
    static const struct carat_model_options defaults;
    struct loading loading = {.options = options != NULL ? options : &defaults};
    struct gguf_file *file;
    struct gguf_file *projector;
    *model = NULL;
    if (!open_files(name, loading.options, &file, &projector, err) || !model_begin(file, projector, options, model, err) ||
        *model == NULL)
        return false;
    if (plan_load(&(*model)->plan, (*model)->ops, report_loading, &loading, err) && model_ready(*model, err)) {
        gemma4_fold((*model)->text, (*model)->ops);
        return true;
    }
    carat_model_free(*model);
    *model = NULL;
    return false;
}

#endif

// --- adapters ------------------------------------------------------------------------------------------------------------------

bool model_attach(struct carat_model *model, struct adapter *adapter, float scale, struct carat_error *err)
{
    struct adapter **grown = (struct adapter **)realloc((void *)model->adapters, (size_t)(model->n_adapters + 1) * sizeof *grown);
    if (grown == NULL) {
        adapter_free(adapter);
        return fail(err, CARAT_NO_MEMORY, "no memory for the list of adapters");
    }
    model->adapters = grown;
    grown[model->n_adapters++] = adapter;
    model->adapter_changes++;
    adapter_attach(adapter, scale);
    return true;
}

#ifndef __wasm__
bool carat_adapter_load(struct carat_model *model, const char *path, float scale, int32_t *n_matched, struct carat_error *err)
{
    struct adapter *adapter;
    if (!adapter_load_path(model->ops, model->text, path, &adapter, err))
        return false;
    if (n_matched != NULL)
        *n_matched = adapter_pair_count(adapter);
    return model_attach(model, adapter, scale, err);
}
#endif

void carat_adapters_clear(struct carat_model *model)
{
    for (int32_t i = 0; i < model->n_adapters; i++)
        adapter_free(model->adapters[i]);
    if (model->n_adapters > 0)
        model->adapter_changes++;
    model->n_adapters = 0;
}

// --- digests -------------------------------------------------------------------------------------------------------------------

uint64_t model_digest(const struct carat_model *model)
{
    uint64_t header = gguf_header_digest(model->file);
    uint8_t compat = (uint8_t)model->compat;
    return hash_bytes(header, &compat, sizeof compat);
}

uint64_t model_adapters_digest(const struct carat_model *model)
{
    uint64_t sum = 0; // they add up in any order
    for (int32_t i = 0; i < model->n_adapters; i++)
        sum += adapter_digest(model->adapters[i]);
    return sum;
}

// --- information and tokens ----------------------------------------------------------------------------------------------------

static uint64_t resident_bytes(const struct carat_model *model)
{
    uint64_t n_bytes = 0;
    for (size_t i = 0; i < model->plan.n_items; i++) {
        const struct weight *weight = model->plan.items[i].weight;
        if (weight->home == WEIGHT_HOST || weight->home == WEIGHT_DEVICE)
            n_bytes += weight->n_bytes;
    }
    return n_bytes + gemma4_folded_bytes(model->text);
}

void carat_model_info(const struct carat_model *model, struct carat_model_info *info)
{
    const struct gemma4_config *config = &model->text->config;
    *info = (struct carat_model_info){
        .name = model->name,
        .architecture = "gemma4",
        .quantization = model->quantization,
        .backend = model->ops->name,
        .device = model->ops->device,
        .n_layers = config->n_layers,
        .n_embd = config->d_model,
        .n_vocab = config->n_vocab,
        .context_length = config->n_positions,
        .n_parameters = model->n_parameters,
        .file_bytes = model->file_bytes,
        .weight_bytes = resident_bytes(model),
        .loaded_bytes = model->plan.n_brought,
        .load_ms = model->plan.load_ms,
        .folded_bytes = gemma4_folded_bytes(model->text),
        .has_vision = model->has_vision,
        .has_audio = model->has_audio,
    };
}

bool carat_tokenize(const struct carat_model *model, const char *text, size_t n_text, bool add_bos, bool parse_special,
    int32_t **ids, int32_t *n_ids, struct carat_error *err)
{
    struct token_list list = {0};
    unsigned flags = (add_bos ? TOK_ADD_BOS : 0) | (parse_special ? TOK_PARSE_SPECIAL : 0);
    *ids = NULL;
    *n_ids = 0;
    if (!tokenizer_encode(model->tok, text, n_text, flags, &list, err)) {
        token_list_free(&list);
        return false;
    }
    *ids = list.ids;
    *n_ids = (int32_t)list.n;
    return true;
}

bool carat_detokenize(const struct carat_model *model, const int32_t *ids, int32_t n_ids, bool with_special, char **text,
    size_t *n_text, struct carat_error *err)
{
    struct text_buffer out = {0};
    *text = NULL;
    *n_text = 0;
    for (int32_t i = 0; i < n_ids; i++) {
        if (ids[i] < 0 || ids[i] >= tokenizer_vocab_size(model->tok))
            return fail(err, CARAT_BAD_ARGUMENT, "token id %d at position %d is outside the vocabulary of %d", ids[i], i,
                tokenizer_vocab_size(model->tok));
    }
    decoder_decode(model->tok, ids, n_ids > 0 ? (size_t)n_ids : 0, with_special, &out);
    text_append(&out, "", 0);
    *text = out.data;
    *n_text = out.n_bytes;
    if (!out.failed && out.data != NULL)
        return true;
    text_free(&out);
    *text = NULL;
    return fail(err, CARAT_NO_MEMORY, "no memory for the text of %d tokens", n_ids);
}

void carat_free(void *memory)
{
    free(memory);
}
