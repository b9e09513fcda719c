// mix.c: the rules of the usual quantisation mixes.

#include "gguf/mix.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    enum gguf_type type; // of most tensors
    uint32_t file_type;
} mixes[GGUF_MIXES] = {
    [GGUF_MIX_F32] = {"F32", GGUF_TYPE_F32, 0},
    [GGUF_MIX_F16] = {"F16", GGUF_TYPE_F16, 1},
    [GGUF_MIX_BF16] = {"BF16", GGUF_TYPE_BF16, 32},
    [GGUF_MIX_Q8_0] = {"Q8_0", GGUF_TYPE_Q8_0, 7},
    [GGUF_MIX_Q6_K] = {"Q6_K", GGUF_TYPE_Q6_K, 18},
    [GGUF_MIX_Q5_K_M] = {"Q5_K_M", GGUF_TYPE_Q5_K, 17},
    [GGUF_MIX_Q4_K_M] = {"Q4_K_M", GGUF_TYPE_Q4_K, 15},
    [GGUF_MIX_Q4_K_S] = {"Q4_K_S", GGUF_TYPE_Q4_K, 14},
    [GGUF_MIX_Q4_0] = {"Q4_0", GGUF_TYPE_Q4_0, 2},
    [GGUF_MIX_Q3_K_M] = {"Q3_K_M", GGUF_TYPE_Q3_K, 12},
    [GGUF_MIX_Q2_K] = {"Q2_K", GGUF_TYPE_Q2_K, 10},
    [GGUF_MIX_IQ4_NL] = {"IQ4_NL", GGUF_TYPE_IQ4_NL, 25},
    [GGUF_MIX_IQ4_XS] = {"IQ4_XS", GGUF_TYPE_IQ4_XS, 30},
};

const char *gguf_mix_name(enum gguf_mix mix)
{
    return mixes[mix].name;
}

bool gguf_mix_from_name(const char *name, enum gguf_mix *mix)
{
    for (int i = 0; i < GGUF_MIXES; i++) {
        if (strcasecmp(name, mixes[i].name) == 0) {
            *mix = (enum gguf_mix)i;
            return true;
        }
    }
    return false;
}

uint32_t gguf_mix_file_type(enum gguf_mix mix)
{
    return mixes[mix].file_type;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

// Norms, routers, small projections and whatever has one dimension stay as they are.
static bool is_quantised(const char *name, uint32_t n_dims)
{
    static const char *const kept[] = {"_norm.weight", "ffn_gate_inp.weight", "per_layer_model_proj.weight"};
    if (n_dims < 2 || !ends_with(name, "weight") || strstr(name, "patch_embd") != NULL || strstr(name, "position_embd") != NULL)
        return false;
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        if (ends_with(name, kept[i]))
            return false;
    }
    return true;
}

static bool more_bits(uint32_t i, uint32_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

// The layer and the base name ("ffn_down") of "blk.N.BASE.weight"; false for other names.
static bool split_name(const char *name, uint32_t *layer, const char **base)
{
    unsigned number;
    int used = 0;
    if (sscanf(name, "blk.%u.%n", &number, &used) != 1 || used == 0 || number >= GGUF_MIX_MAX_LAYERS)
        return false;
    *layer = number;
    *base = name + used;
    return true;
}

static enum gguf_type attn_v_type(const struct gguf_mix_model *model, uint32_t layer, enum gguf_type type)
{
    uint32_t index = 0, n = 0;
    for (uint32_t l = 0; l < model->n_layers && l < GGUF_MIX_MAX_LAYERS; l++) {
        n += model->has_attn_v[l];
        index += l < layer && model->has_attn_v[l];
    }
    switch (model->mix) {
    case GGUF_MIX_Q4_K_M:
    case GGUF_MIX_Q5_K_M:
        return more_bits(index, n) ? GGUF_TYPE_Q6_K : type;
    case GGUF_MIX_Q4_K_S:
        return index < 4 ? GGUF_TYPE_Q5_K : type;
    case GGUF_MIX_Q3_K_M:
        return index < 2 ? GGUF_TYPE_Q5_K : GGUF_TYPE_Q4_K;
    case GGUF_MIX_Q2_K:
        return model->heads_per_kv >= 4 ? GGUF_TYPE_Q4_K : GGUF_TYPE_Q3_K;
    case GGUF_MIX_IQ4_NL:
    case GGUF_MIX_IQ4_XS:
        return model->heads_per_kv >= 4 ? GGUF_TYPE_Q5_K : type;
    default:
        return type;
    }
}

static enum gguf_type ffn_down_type(const struct gguf_mix_model *model, uint32_t layer, enum gguf_type type)
{
    uint32_t n = model->n_layers;
    switch (model->mix) {
    case GGUF_MIX_Q4_K_M:
    case GGUF_MIX_Q5_K_M:
        return more_bits(layer, n) ? GGUF_TYPE_Q6_K : type;
    case GGUF_MIX_Q4_K_S:
    case GGUF_MIX_IQ4_NL:
    case GGUF_MIX_IQ4_XS:
        return layer < n / 8 ? GGUF_TYPE_Q5_K : type;
    case GGUF_MIX_Q3_K_M:
        return layer < n / 16 ? GGUF_TYPE_Q5_K : GGUF_TYPE_Q4_K;
    case GGUF_MIX_Q2_K:
        return GGUF_TYPE_Q3_K;
    default:
        return type;
    }
}

static enum gguf_type attn_output_type(const struct gguf_mix_model *model, enum gguf_type type)
{
    bool small = model->mix == GGUF_MIX_Q2_K || model->mix == GGUF_MIX_Q3_K_M || model->mix == GGUF_MIX_Q4_K_S ||
                 model->mix == GGUF_MIX_Q4_K_M || model->mix == GGUF_MIX_IQ4_NL || model->mix == GGUF_MIX_IQ4_XS;
    if (model->n_experts == 8 && small)
        return GGUF_TYPE_Q5_K;
    if (model->mix == GGUF_MIX_Q2_K)
        return GGUF_TYPE_Q3_K;
    return model->mix == GGUF_MIX_Q3_K_M ? GGUF_TYPE_Q4_K : type;
}

// What a type becomes where 256 does not divide a row, and then where 32 does not.
static enum gguf_type fit_to_row(enum gguf_type type, uint64_t row)
{
    if (row % gguf_type_info(type)->block_elems == 0)
        return type;
    enum gguf_type smaller = type == GGUF_TYPE_Q4_K                             ? GGUF_TYPE_Q5_0
                             : type == GGUF_TYPE_Q5_K                           ? GGUF_TYPE_Q5_1
                             : type == GGUF_TYPE_Q6_K                           ? GGUF_TYPE_Q8_0
                             : type == GGUF_TYPE_Q2_K || type == GGUF_TYPE_Q3_K ? GGUF_TYPE_Q4_0
                             : type == GGUF_TYPE_IQ4_XS                         ? GGUF_TYPE_IQ4_NL
                                                                                : GGUF_TYPE_F16;
    return row % gguf_type_info(smaller)->block_elems == 0 ? smaller : GGUF_TYPE_F16;
}

enum gguf_type gguf_mix_type(
    const struct gguf_mix_model *model, const char *name, uint32_t n_dims, const uint64_t *ne, enum gguf_type stored)
{
    enum gguf_type type = mixes[model->mix].type;
    if (!is_quantised(name, n_dims))
        return stored;
    bool is_half = type == GGUF_TYPE_F32 || type == GGUF_TYPE_F16 || type == GGUF_TYPE_BF16;
    if (is_half)
        return type;
    uint32_t layer;
    const char *base;
    bool is_head = strcmp(name, "output.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0 ||
                   (strcmp(name, "token_embd.weight") == 0 && !model->has_output);
    if (is_head) {
        type = model->mix == GGUF_MIX_Q8_0 ? GGUF_TYPE_Q8_0 : GGUF_TYPE_Q6_K;
    } else if (split_name(name, &layer, &base) && model->mix != GGUF_MIX_Q8_0) {
        if (model->n_experts == 8 && (strcmp(base, "attn_k.weight") == 0 || strcmp(base, "attn_v.weight") == 0))
            type = GGUF_TYPE_Q8_0;
        else if (strcmp(base, "attn_v.weight") == 0)
            type = attn_v_type(model, layer, type);
        else if (strcmp(base, "attn_output.weight") == 0)
            type = attn_output_type(model, type);
        else if (strcmp(base, "ffn_down.weight") == 0 || strcmp(base, "ffn_down_exps.weight") == 0)
            type = ffn_down_type(model, layer, type);
    }
    return fit_to_row(type, ne[0]);
}
