// adapter_gguf.c: adapters in GGUF files, as llama.cpp writes and reads them.

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/quants.h"
#include "lora/adapter_internal.h"

static bool read_matrix(const void *file, const void *matrix, float *out, uint64_t n, struct carat_error *err)
{
    const struct gguf_tensor *tensor = matrix;
    void *bytes = malloc((size_t)tensor->n_bytes);
    if (bytes == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for tensor '%s' of the adapter", tensor->name);
    bool done = gguf_tensor_read(file, tensor, 0, bytes, (size_t)tensor->n_bytes, err) &&
                (gguf_dequantize(tensor->type, bytes, out, (size_t)n) ||
                    fail(err, CARAT_UNSUPPORTED, "tensor '%s' of the adapter has the type %s, which is not supported",
                        tensor->name, gguf_type_name(tensor->type)));
    free(bytes);
    return done;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static bool check_metadata(const struct gguf_file *file, struct carat_error *err)
{
    if (!gguf_text_is(file, "general.type", "adapter") || !gguf_text_is(file, "adapter.type", "lora"))
        return fail(err, CARAT_UNSUPPORTED,
            "this GGUF file is no LoRA adapter ('general.type' must be 'adapter', 'adapter.type' 'lora')");
    if (!gguf_text_is(file, "general.architecture", "gemma4"))
        return fail(err, CARAT_UNSUPPORTED, "the adapter was made for another architecture than 'gemma4'");
    const struct gguf_value *tokens = gguf_find(file, "adapter.alora.invocation_tokens");
    if (tokens != NULL && tokens->count > 0)
        return fail(err, CARAT_UNSUPPORTED,
            "the adapter wants to be activated by tokens ('adapter.alora.invocation_tokens'), which is not supported");
    return true;
}

// "blk.0.attn_q.weight.lora_a" is one half of what belongs to "blk.0.attn_q.weight".
static bool add_tensor(const struct gguf_tensor *tensor, struct adapter_parts *parts, struct carat_error *err)
{
    char target[GGUF_MAX_NAME_BYTES];
    bool is_b = ends_with(tensor->name, ".lora_b");
    if (ends_with(tensor->name, "_norm.weight"))
        return true; // some converters leave them in; they are not part of a low-rank adapter
    if (!is_b && !ends_with(tensor->name, ".lora_a"))
        return fail(
            err, CARAT_UNSUPPORTED, "tensor '%s' of the adapter is no half of a low-rank pair (.lora_a, .lora_b)", tensor->name);
    size_t n = strlen(tensor->name) - strlen(".lora_a");
    memcpy(target, tensor->name, n);
    target[n] = '\0';
    if (strcmp(target, "token_embd.weight") == 0)
        return fail(
            err, CARAT_UNSUPPORTED, "the adapter changes the embedding table ('token_embd.weight'), which is not supported");
    if (tensor->ne[2] != 1 || tensor->ne[3] != 1)
        return fail(err, CARAT_UNSUPPORTED,
            "tensor '%s' of the adapter is a stack of matrices; adapters of experts are not supported", tensor->name);
    return adapter_add_half(parts, target, is_b, tensor, (const uint64_t[2]){tensor->ne[1], tensor->ne[0]}, err);
}

bool adapter_parts_of_gguf(const struct gguf_file *file, struct adapter_parts *parts, struct carat_error *err)
{
    float alpha;
    if (!check_metadata(file, err) || !gguf_f32_or(file, "adapter.lora.alpha", 0, &alpha, err))
        return false;
    if (!isfinite(alpha))
        return fail(err, CARAT_BAD_FILE, "'adapter.lora.alpha' is no finite number");
    parts->read = read_matrix;
    parts->file = file;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        if (!add_tensor(gguf_tensor_at(file, i), parts, err))
            return false;
    }
    // Without alpha the product is used as it is.
    for (size_t i = 0; i < parts->n; i++)
        parts->items[i].scale = alpha != 0 && parts->items[i].b != NULL ? alpha / (double)parts->items[i].b_shape[1] : 1;
    return true;
}
