// config.c: reads and checks the metadata of the text model (keys "gemma4.*").

#include "model/config.h"

#include <math.h>
#include <string.h>

struct reader {
    const struct gguf_file *file;
    struct arena *arena;
    struct carat_error *err;
};

static bool bad(struct reader *r, const char *key, long long value, const char *demand)
{
    return fail(r->err, CARAT_BAD_FILE, "'%s' is %lld, but it must be %s", key, value, demand);
}

// An integer in [1, most].
static bool read_size(struct reader *r, const char *key, int32_t most, int32_t *out)
{
    uint64_t value;
    if (!gguf_u64(r->file, key, &value, r->err))
        return false;
    if (value < 1 || value > (uint64_t)most)
        return fail(
            r->err, CARAT_BAD_FILE, "'%s' is %llu, but it must be between 1 and %d", key, (unsigned long long)value, most);
    *out = (int32_t)value;
    return true;
}

// An integer in [0, most]; 0 when the key is absent.
static bool read_optional_size(struct reader *r, const char *key, int32_t most, int32_t *out)
{
    uint32_t value;
    if (!gguf_u32_or(r->file, key, 0, &value, r->err))
        return false;
    if (value > (uint32_t)most)
        return fail(r->err, CARAT_BAD_FILE, "'%s' is %u, but it must be between 0 and %d", key, value, most);
    *out = (int32_t)value;
    return true;
}

// A finite number above `least` (or equal to it, when that is allowed).
static bool check_number(struct reader *r, const char *key, float value, float least, bool may_equal)
{
    if (isfinite(value) && (value > least || (may_equal && value == least)))
        return true;
    return fail(r->err, CARAT_BAD_FILE, "'%s' is %g, but it must be a finite number above %g", key, (double)value, (double)least);
}

// One integer per layer in [1, most], from a scalar or an array.
static bool read_per_layer(struct reader *r, const char *key, int32_t n_layers, int32_t most, int32_t *out)
{
    if (!gguf_per_layer(r->file, key, (uint32_t)n_layers, out, r->err))
        return false;
    for (int32_t l = 0; l < n_layers; l++) {
        if (out[l] < 1 || out[l] > most)
            return fail(r->err, CARAT_BAD_FILE, "'%s' is %d for layer %d, but it must be between 1 and %d", key, out[l], l, most);
    }
    return true;
}

// The same number for all layers, given as a scalar or as an array of equal entries.
static bool read_uniform(struct reader *r, const char *key, int32_t n_layers, int32_t most, int32_t *out)
{
    int32_t values[GEMMA4_MAX_LAYERS];
    if (!read_per_layer(r, key, n_layers, most, values))
        return false;
    for (int32_t l = 1; l < n_layers; l++) {
        if (values[l] != values[0])
            return fail(r->err, CARAT_UNSUPPORTED,
                "'%s' differs between layers (%d for layer 0, %d for layer %d), which no Gemma 4 does", key, values[0], values[l],
                l);
    }
    *out = values[0];
    return true;
}

static bool check_architecture(struct reader *r, enum gemma4_flavour *flavour)
{
    struct gguf_text name;
    if (!gguf_text(r->file, "general.architecture", &name, r->err))
        return false;
    if (gguf_text_is(r->file, "general.architecture", "clip"))
        return fail(r->err, CARAT_UNSUPPORTED,
            "this is a projector file (image and sound towers); give the text model's file, and this one beside it");
    if (gguf_text_is(r->file, "general.architecture", "gemma4-assistant"))
        return fail(r->err, CARAT_UNSUPPORTED, "this is a drafter, which only works beside a full model");
    if (!gguf_text_is(r->file, "general.architecture", "gemma4"))
        return fail(r->err, CARAT_UNSUPPORTED, "the file's architecture is '%.*s', only 'gemma4' is supported",
            (int)(name.n_bytes < 64 ? name.n_bytes : 64), name.bytes);
    if (gguf_text_is(r->file, "general.type", "adapter"))
        return fail(r->err, CARAT_UNSUPPORTED, "this is an adapter; give the model's file, and this one beside it");
    *flavour = gguf_text_is(r->file, "tokenizer.ggml.model", "llama") ? GEMMA4_OLLAMA : GEMMA4_LLAMA_CPP;
    return true;
}

// The width of a head of one kind of layer. Keys and values have the same; RoPE covers all of it.
static bool read_head_dim(struct reader *r, const char *key_length, const char *value_length, const char *rope, int32_t *out)
{
    if (!read_size(r, key_length, GEMMA4_MAX_WIDTH, out))
        return false;
    if (*out % 2 != 0)
        return bad(r, key_length, *out, "even");
    uint32_t value_dim, rope_dim;
    if (!gguf_u32_or(r->file, value_length, (uint32_t)*out, &value_dim, r->err) ||
        !gguf_u32_or(r->file, rope, (uint32_t)*out, &rope_dim, r->err))
        return false;
    if (value_dim != (uint32_t)*out)
        return fail(r->err, CARAT_UNSUPPORTED, "'%s' is %u and '%s' is %d; they must be equal", value_length, value_dim,
            key_length, *out);
    if (rope_dim != (uint32_t)*out)
        return fail(r->err, CARAT_UNSUPPORTED, "'%s' is %u and '%s' is %d; they must be equal", rope, rope_dim, key_length, *out);
    return true;
}

static bool read_heads(struct reader *r, struct gemma4_config *c)
{
    const char *swa = "gemma4.attention.key_length_swa";
    if (!read_uniform(r, "gemma4.attention.head_count", c->n_layers, GEMMA4_MAX_WIDTH, &c->n_heads) ||
        !read_head_dim(r, "gemma4.attention.key_length", "gemma4.attention.value_length", "gemma4.rope.dimension_count",
            &c->head_dim_global))
        return false;
    c->head_dim_sliding = c->head_dim_global;
    if (gguf_find(r->file, swa) != NULL &&
        !read_head_dim(r, swa, "gemma4.attention.value_length_swa", "gemma4.rope.dimension_count_swa", &c->head_dim_sliding))
        return false;
    int64_t widest = c->head_dim_global > c->head_dim_sliding ? c->head_dim_global : c->head_dim_sliding;
    if (widest * c->n_heads > GEMMA4_MAX_WIDTH)
        return fail(r->err, CARAT_BAD_FILE,
            "'gemma4.attention.head_count' is %d with heads of %lld, together they must not exceed %d", c->n_heads,
            (long long)widest, GEMMA4_MAX_WIDTH);
    return true;
}

static bool read_rope(struct reader *r, struct gemma4_config *c)
{
    float global, sliding;
    const char *swa =
        gguf_find(r->file, "gemma4.rope.freq_base_swa") != NULL ? "gemma4.rope.freq_base_swa" : "gemma4.rope.local.freq_base";
    if (!gguf_f32(r->file, "gemma4.rope.freq_base", &global, r->err) ||
        !check_number(r, "gemma4.rope.freq_base", global, 1, false) || !gguf_f32_or(r->file, swa, 10000, &sliding, r->err) ||
        !check_number(r, swa, sliding, 1, false))
        return false;
    c->rope_base_global = global;
    c->rope_base_sliding = sliding;
    return true;
}

static bool read_pattern(struct reader *r, struct gemma4_config *c)
{
    const char *key = "gemma4.attention.sliding_window_pattern";
    const struct gguf_value *pattern = gguf_find(r->file, key);
    if (pattern == NULL)
        return fail(
            r->err, CARAT_NOT_FOUND, "'%s' is missing: it says for each layer whether it sees a window or everything", key);
    if (!pattern->is_array || pattern->count != (uint64_t)c->n_layers)
        return fail(r->err, CARAT_BAD_FILE, "'%s' must be an array with one entry for each of the %d layers", key, c->n_layers);
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (!gguf_value_bool(pattern, (uint64_t)l, &c->layers[l].sliding))
            return fail(r->err, CARAT_BAD_FILE, "entry %d of '%s' must be true or false", l, key);
        c->layers[l].head_dim = c->layers[l].sliding ? c->head_dim_sliding : c->head_dim_global;
    }
    return true;
}

// Layers from n_layers - shared on use the keys and values of the last layer of the same kind below.
static bool read_sharing(struct reader *r, struct gemma4_config *c)
{
    const char *key = "gemma4.attention.shared_kv_layers";
    int32_t n_shared = 0;
    if (!read_optional_size(r, key, c->n_layers, &n_shared))
        return false;
    c->n_kv_layers = c->n_layers - n_shared;
    for (int32_t l = 0; l < c->n_layers; l++) {
        int32_t owner = l < c->n_kv_layers ? l : c->n_kv_layers - 1;
        while (owner >= 0 && c->layers[owner].sliding != c->layers[l].sliding)
            owner--;
        if (owner < 0)
            return fail(r->err, CARAT_BAD_FILE,
                "'%s' is %d, but no layer below layer %d has keys and values of the kind that layer %d needs", key, n_shared,
                c->n_kv_layers, l);
        c->layers[l].kv_owner = owner;
    }
    return true;
}

static bool read_kv_heads(struct reader *r, struct gemma4_config *c)
{
    const char *key = "gemma4.attention.head_count_kv", *global_key = "gemma4.attention.global_head_count_kv";
    int32_t n_heads[GEMMA4_MAX_LAYERS], n_global = 0;
    if (!read_per_layer(r, key, c->n_layers, c->n_heads, n_heads) || !read_optional_size(r, global_key, c->n_heads, &n_global))
        return false;
    const struct gguf_value *value = gguf_find(r->file, key);
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (n_global > 0 && !value->is_array && !c->layers[l].sliding)
            n_heads[l] = n_global;
        if (c->n_heads % n_heads[l] != 0)
            return fail(r->err, CARAT_BAD_FILE, "layer %d has %d key heads ('%s'), which do not divide its %d query heads", l,
                n_heads[l], key, c->n_heads);
    }
    for (int32_t l = 0; l < c->n_layers; l++)
        c->layers[l].n_kv_heads = n_heads[c->layers[l].kv_owner];
    return true;
}

static bool read_experts(struct reader *r, struct gemma4_config *c)
{
    return read_size(r, "gemma4.expert_used_count", c->n_experts, &c->n_experts_used) &&
           read_uniform(r, "gemma4.expert_feed_forward_length", c->n_layers, GEMMA4_MAX_WIDTH / 2, &c->n_expert_ff);
}

static bool read_feed_forward(struct reader *r, struct gemma4_config *c)
{
    const char *key = "gemma4.feed_forward_length";
    int32_t widths[GEMMA4_MAX_LAYERS];
    if (!read_per_layer(r, key, c->n_layers, GEMMA4_MAX_WIDTH, widths))
        return false;
    // A single number may describe only the narrow layers of a model whose sharing layers are twice as wide.
    bool is_array = gguf_find(r->file, key)->is_array;
    for (int32_t l = 0; l < c->n_layers; l++)
        c->layers[l].n_ff = is_array ? widths[l] : 0;
    if (!read_optional_size(r, "gemma4.expert_count", GEMMA4_MAX_EXPERTS, &c->n_experts))
        return false;
    return c->n_experts == 0 || read_experts(r, c);
}

// The vocabulary has as many tokens as the embedding table has rows.
static bool read_vocabulary(struct reader *r, struct gemma4_config *c)
{
    const struct gguf_tensor *table = gguf_find_tensor(r->file, "token_embd.weight");
    if (table == NULL)
        return fail(r->err, CARAT_NOT_FOUND, "tensor 'token_embd.weight' is missing: this is no complete text model");
    if (table->ne[1] < 1 || table->ne[1] > GEMMA4_MAX_VOCABULARY)
        return fail(r->err, CARAT_BAD_FILE, "tensor 'token_embd.weight' has %llu rows, between 1 and %d are allowed",
            (unsigned long long)table->ne[1], GEMMA4_MAX_VOCABULARY);
    c->n_vocab = (int32_t)table->ne[1];
    const struct gguf_value *tokens = gguf_find(r->file, "tokenizer.ggml.tokens");
    if (tokens != NULL && tokens->count != table->ne[1])
        return fail(r->err, CARAT_BAD_FILE, "'tokenizer.ggml.tokens' has %llu tokens, but 'token_embd.weight' has %d rows",
            (unsigned long long)tokens->count, c->n_vocab);
    uint32_t n_vocab;
    if (!gguf_u32_or(r->file, "gemma4.vocab_size", (uint32_t)c->n_vocab, &n_vocab, r->err))
        return false;
    if (n_vocab != (uint32_t)c->n_vocab)
        return fail(
            r->err, CARAT_BAD_FILE, "'gemma4.vocab_size' is %u, but 'token_embd.weight' has %d rows", n_vocab, c->n_vocab);
    return true;
}

static bool read_suppressed(struct reader *r, struct gemma4_config *c)
{
    const char *key = "tokenizer.ggml.suppress_tokens";
    if (gguf_find(r->file, key) == NULL)
        return true;
    const struct gguf_value *ids;
    if (!gguf_array(r->file, key, GGUF_VALUE_I64, &ids, r->err))
        return false;
    if (ids->count > (uint64_t)c->n_vocab)
        return fail(r->err, CARAT_BAD_FILE, "'%s' has more entries than the vocabulary", key);
    c->suppressed = arena_take_array(r->arena, (size_t)ids->count, sizeof *c->suppressed);
    if (c->suppressed == NULL && ids->count > 0)
        return fail(r->err, CARAT_NO_MEMORY, "no memory for '%s'", key);
    for (uint64_t i = 0; i < ids->count; i++) {
        int64_t id;
        if (!gguf_value_i64(ids, i, &id) || id < 0 || id >= c->n_vocab)
            return fail(r->err, CARAT_BAD_FILE, "'%s' names an id outside the vocabulary of %d tokens", key, c->n_vocab);
        c->suppressed[i] = (int32_t)id;
    }
    c->n_suppressed = (int32_t)ids->count;
    return true;
}

static bool read_scalars(struct reader *r, struct gemma4_config *c)
{
    const char *eps = "gemma4.attention.layer_norm_rms_epsilon", *cap = "gemma4.final_logit_softcapping";
    const char *width = "gemma4.embedding_length_per_layer_input";
    if (!read_size(r, "gemma4.context_length", GEMMA4_MAX_POSITIONS, &c->n_positions) ||
        !read_size(r, "gemma4.embedding_length", GEMMA4_MAX_WIDTH, &c->d_model) ||
        !read_size(r, "gemma4.attention.sliding_window", GEMMA4_MAX_POSITIONS, &c->window) ||
        !read_optional_size(r, width, GEMMA4_MAX_WIDTH, &c->per_layer_width) || !gguf_f32(r->file, eps, &c->eps, r->err) ||
        !check_number(r, eps, c->eps, 0, false) || !gguf_f32_or(r->file, cap, 0, &c->softcap, r->err) ||
        !check_number(r, cap, c->softcap, 0, true))
        return false;
    if ((int64_t)c->per_layer_width * c->n_layers > 1 << 22)
        return bad(r, width, c->per_layer_width, "smaller: the per-layer inputs of one position would exceed 4194304 elements");
    return true;
}

// What differs by the kind of model and by the wish to copy another implementation.
static void decide_attention(struct gemma4_config *c)
{
    // Not recorded in the file: the models without per-layer embeddings were trained with images attending both ways.
    c->image_attention = c->per_layer_width == 0 ? IMAGES_BOTH_WAYS_ON_SLIDING : IMAGES_CAUSAL;
    if (c->compat == COMPAT_OLLAMA) {
        c->image_attention = IMAGES_BOTH_WAYS;
        c->window++;
    }
}

bool gemma4_config_read(const struct gguf_file *file, enum gemma4_compat compat, struct arena *arena,
    struct gemma4_config *config, struct carat_error *err)
{
    struct carat_error local = {.code = CARAT_OK};
    struct reader r = {.file = file, .arena = arena, .err = &local};
    *config = (struct gemma4_config){.compat = compat};
    bool done =
        check_architecture(&r, &config->flavour) && read_size(&r, "gemma4.block_count", GEMMA4_MAX_LAYERS, &config->n_layers);
    if (done) {
        config->layers = arena_take_array(arena, (size_t)config->n_layers, sizeof *config->layers);
        done = config->layers != NULL || fail(&local, CARAT_NO_MEMORY, "no memory for %d layers", config->n_layers);
    }
    done = done && read_scalars(&r, config) && read_heads(&r, config) && read_rope(&r, config) && read_pattern(&r, config) &&
           read_sharing(&r, config) && read_kv_heads(&r, config) && read_feed_forward(&r, config) &&
           read_vocabulary(&r, config) && read_suppressed(&r, config);
    if (done)
        decide_attention(config);
    else if (err != NULL)
        *err = local;
    return done;
}

int32_t gemma4_kv_row_elems(const struct gemma4_config *config, int32_t l)
{
    return config->layers[l].n_kv_heads * config->layers[l].head_dim;
}
