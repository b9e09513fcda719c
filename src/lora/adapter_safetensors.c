// adapter_safetensors.c: adapters in safetensors files: PEFT's names, and "lora.blk.N.<module>.A" with metadata.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lora/adapter_internal.h"

static bool read_matrix(const void *file, const void *matrix, float *out, uint64_t n, struct carat_error *err)
{
    return safetensors_read_f32(file, matrix, out, n, err);
}

struct module_name {
    const char *theirs; // under layers.N.
    const char *ours;   // under blk.N.
};

static const struct module_name peft_modules[] = {
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
};

static const struct module_name plain_modules[] = {
    {"attn_q", "attn_q"}, {"attn_k", "attn_k"}, {"attn_v", "attn_v"}, {"attn_o", "attn_output"}, {"ffn_gate", "ffn_gate"},
    {"ffn_up", "ffn_up"}, {"ffn_down", "ffn_down"}, {"lm_head", "output"}, // stored with layer 0, belongs to none
};

static const char *our_name(const struct module_name *modules, size_t n, const char *theirs)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(modules[i].theirs, theirs) == 0)
            return modules[i].ours;
    }
    return NULL;
}

// Reads "N.MODULE"; false when there is no number in front.
static bool split_layer(const char *text, int *layer, const char **module)
{
    int n = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9' && n < GEMMA4_MAX_LAYERS; at++)
        n = 10 * n + (*at - '0');
    if (at == text || *at != '.' || n >= GEMMA4_MAX_LAYERS)
        return false;
    *layer = n;
    *module = at + 1;
    return true;
}

static bool skip_prefix(const char **text, const char *prefix)
{
    size_t n = strlen(prefix);
    if (strncmp(*text, prefix, n) != 0)
        return false;
    *text += n;
    return true;
}

// The tensor of the model that a PEFT module path means. Wrappers in front ("model.", "language_model.") differ between classes.
static bool find_peft_target(const char *path, char target[GGUF_MAX_NAME_BYTES], struct carat_error *err)
{
    const char *rest = path, *module;
    int layer;
    while (skip_prefix(&rest, "base_model.") || skip_prefix(&rest, "model.") || skip_prefix(&rest, "language_model."))
        ;
    if (strcmp(rest, "per_layer_model_projection") == 0) {
        snprintf(target, GGUF_MAX_NAME_BYTES, "per_layer_model_proj.weight");
        return true;
    }
    if (strcmp(rest, "lm_head") == 0) {
        snprintf(target, GGUF_MAX_NAME_BYTES, "output.weight");
        return true;
    }
    if (skip_prefix(&rest, "layers.") && split_layer(rest, &layer, &module)) {
        const char *ours = our_name(peft_modules, sizeof peft_modules / sizeof peft_modules[0], module);
        if (ours != NULL) {
            snprintf(target, GGUF_MAX_NAME_BYTES, "blk.%d.%s.weight", layer, ours);
            return true;
        }
    }
    return fail(err, CARAT_UNSUPPORTED,
        "the adapter changes module '%s', which cannot be adapted here (attention, feed-forward and "
        "per-layer projections and lm_head can)",
        path);
}

static bool matrix_shape(const struct safetensors_tensor *tensor, struct carat_error *err)
{
    return tensor->n_dims == 2 ||
           fail(err, CARAT_BAD_FILE, "tensor '%s' of the adapter has %u dimensions instead of 2", tensor->name, tensor->n_dims);
}

// Cuts ".lora_A.weight" or ".lora_A.NAME.weight" off. The path becomes a terminated copy.
static bool split_peft_name(
    const struct safetensors_tensor *tensor, char *path, size_t n_path, bool *is_b, struct carat_error *err)
{
    const char *a = strstr(tensor->name, ".lora_A."), *b = strstr(tensor->name, ".lora_B.");
    const char *cut = a != NULL ? a : b;
    size_t n = cut != NULL ? (size_t)(cut - tensor->name) : 0, n_name = strlen(tensor->name);
    if (cut == NULL || n_name < 7 || strcmp(tensor->name + n_name - 7, ".weight") != 0)
        return fail(err, CARAT_UNSUPPORTED,
            "tensor '%s' of the adapter is no half of a low-rank pair of a projection; nothing else is supported", tensor->name);
    if (n >= n_path)
        return fail(err, CARAT_BAD_FILE, "the adapter has a tensor whose name is too long");
    memcpy(path, tensor->name, n);
    path[n] = '\0';
    *is_b = a == NULL;
    return true;
}

// PEFT's patterns are matched against the path inside the wrapped model.
static const char *path_in_model(const char *path)
{
    skip_prefix(&path, "base_model.model.");
    return path;
}

static bool add_peft_tensor(const struct safetensors_tensor *tensor, const struct peft_config *config,
    struct adapter_parts *parts, struct carat_error *err)
{
    char path[256] = "", target[GGUF_MAX_NAME_BYTES];
    bool is_b = false;
    double scale = 1;
    if (!split_peft_name(tensor, path, sizeof path, &is_b, err) || !find_peft_target(path, target, err) ||
        !matrix_shape(tensor, err) || !peft_config_scale(config, path_in_model(path), tensor->shape[is_b ? 1 : 0], &scale, err) ||
        !adapter_add_half(parts, target, is_b, tensor, tensor->shape, err))
        return false;
    for (size_t i = 0; i < parts->n; i++) {
        if (strcmp(parts->items[i].target, target) == 0)
            parts->items[i].scale = scale;
    }
    return true;
}

static bool add_peft(const struct safetensors_file *file, const char *config_text, size_t n_config, struct adapter_parts *parts,
    struct carat_error *err)
{
    struct peft_config config = {0};
    if (config_text == NULL)
        return fail(err, CARAT_NOT_FOUND, "adapter_config.json is missing: without it the strength of the adapter is unknown");
    bool done = peft_config_read(config_text, n_config, &config, err);
    for (size_t i = 0; done && i < safetensors_count(file); i++)
        done = add_peft_tensor(safetensors_at(file, i), &config, parts, err);
    peft_config_free(&config);
    return done;
}

// "lora.blk.N.MODULE.A"
static bool add_plain_tensor(const struct safetensors_tensor *tensor, struct adapter_parts *parts, struct carat_error *err)
{
    char module[64] = "", target[GGUF_MAX_NAME_BYTES];
    const char *rest = tensor->name, *name;
    int layer;
    if (!skip_prefix(&rest, "lora.blk.") || !split_layer(rest, &layer, &name) || strlen(name) < 3 ||
        strlen(name) >= sizeof module)
        return fail(
            err, CARAT_BAD_FILE, "tensor '%s' of the adapter has no name of the form lora.blk.N.MODULE.A or .B", tensor->name);
    size_t n = strlen(name) - 2;
    memcpy(module, name, n);
    module[n] = '\0';
    const char *ours = our_name(plain_modules, sizeof plain_modules / sizeof plain_modules[0], module), *half = name + n;
    if (ours == NULL || (strcmp(half, ".A") != 0 && strcmp(half, ".B") != 0))
        return fail(err, CARAT_UNSUPPORTED, "tensor '%s' of the adapter changes '%s', which cannot be adapted here", tensor->name,
            module);
    snprintf(target, sizeof target, strcmp(ours, "output") == 0 ? "output.weight" : "blk.%d.%s.weight", layer, ours);
    return matrix_shape(tensor, err) && adapter_add_half(parts, target, half[1] == 'B', tensor, tensor->shape, err);
}

static bool metadata_number(const struct safetensors_file *file, const char *key, double *out, struct carat_error *err)
{
    const char *text = safetensors_metadata(file, key);
    char *end;
    *out = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL || end == text || *end != '\0' || !isfinite(*out))
        return fail(err, CARAT_BAD_FILE, "the adapter's metadata must hold the number '%s'", key);
    return true;
}

static bool add_plain(const struct safetensors_file *file, struct adapter_parts *parts, struct carat_error *err)
{
    double rank, alpha;
    if (!metadata_number(file, "rank", &rank, err) || !metadata_number(file, "alpha", &alpha, err))
        return false;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        if (!add_plain_tensor(safetensors_at(file, i), parts, err))
            return false;
    }
    for (size_t i = 0; i < parts->n; i++) {
        struct adapter_part *part = &parts->items[i];
        if (part->a != NULL && (double)part->a_shape[0] != rank)
            return fail(err, CARAT_BAD_FILE, "the adapter's pair for '%s' has rank %llu, but its metadata say %g", part->target,
                (unsigned long long)part->a_shape[0], rank);
        part->scale = alpha / rank;
    }
    return true;
}

bool adapter_parts_of_safetensors(const struct safetensors_file *file, const char *config, size_t n_config,
    struct adapter_parts *parts, struct carat_error *err)
{
    const char *format = safetensors_metadata(file, "format");
    parts->read = read_matrix;
    parts->file = file;
    if (format != NULL && strcmp(format, "rullama-lora-v0") == 0)
        return add_plain(file, parts, err);
    return add_peft(file, config, n_config, parts, err);
}
