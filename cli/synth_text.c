// synth_text.c: shapes and metadata of the text models.

#include "synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct synth_model synth_models[] = {
    {.name = "e2b",
        .long_name = "Synthetic E2B",
        .n_layers = 35,
        .d_model = 1536,
        .n_ff = 6144,
        .n_ff_shared = 12288,
        .n_heads = 8,
        .kv_heads_sliding = 1,
        .kv_heads_global = 1,
        .window = 512,
        .period = 5,
        .n_shared = 20,
        .per_layer = 256,
        .global_has_v = true,
        .n_context = 131072,
        .v_layers = 16,
        .v_width = 768,
        .v_ff = 3072,
        .v_heads = 12,
        .v_clipped = true,
        .has_audio = true},
    {.name = "e4b",
        .long_name = "Synthetic E4B",
        .n_layers = 42,
        .d_model = 2560,
        .n_ff = 10240,
        .n_ff_shared = 10240,
        .n_heads = 8,
        .kv_heads_sliding = 2,
        .kv_heads_global = 2,
        .window = 512,
        .period = 6,
        .n_shared = 18,
        .per_layer = 256,
        .global_has_v = true,
        .n_context = 131072,
        .v_layers = 16,
        .v_width = 768,
        .v_ff = 3072,
        .v_heads = 12,
        .v_clipped = true,
        .has_audio = true},
    {.name = "12b",
        .long_name = "Synthetic 12B",
        .n_layers = 48,
        .d_model = 3840,
        .n_ff = 15360,
        .n_ff_shared = 15360,
        .n_heads = 16,
        .kv_heads_sliding = 8,
        .kv_heads_global = 1,
        .window = 1024,
        .period = 6,
        .n_context = 262144,
        .unified = true},
    {.name = "26b",
        .long_name = "Synthetic 26B-A4B",
        .n_layers = 30,
        .d_model = 2816,
        .n_ff = 2112,
        .n_ff_shared = 2112,
        .n_heads = 16,
        .kv_heads_sliding = 8,
        .kv_heads_global = 2,
        .window = 1024,
        .period = 6,
        .n_experts = 128,
        .n_experts_used = 8,
        .n_expert_ff = 704,
        .n_context = 262144,
        .v_layers = 27,
        .v_width = 1152,
        .v_ff = 4304,
        .v_heads = 16,
        .v_standardised = true},
    {.name = "31b",
        .long_name = "Synthetic 31B",
        .n_layers = 60,
        .d_model = 5376,
        .n_ff = 21504,
        .n_ff_shared = 21504,
        .n_heads = 32,
        .kv_heads_sliding = 16,
        .kv_heads_global = 4,
        .window = 1024,
        .period = 6,
        .n_context = 262144,
        .v_layers = 27,
        .v_width = 1152,
        .v_ff = 4304,
        .v_heads = 16,
        .v_standardised = true},
};
const int n_synth_models = sizeof synth_models / sizeof synth_models[0];

// The last layer is global, and so is the last one with keys and values of its own, for those after it to share.
bool synth_is_sliding(const struct synth_model *m, uint32_t layer)
{
    return layer % m->period != m->period - 1 && layer != m->n_layers - 1 && layer != m->n_layers - m->n_shared - 1;
}

static uint32_t kv_heads(const struct synth_model *m, uint32_t layer)
{
    return synth_is_sliding(m, layer) ? m->kv_heads_sliding : m->kv_heads_global;
}

static uint32_t ff_width(const struct synth_model *m, uint32_t layer)
{
    return layer >= m->n_layers - m->n_shared ? m->n_ff_shared : m->n_ff;
}

void synth_add(struct synth_list *list, const char *name, uint32_t layer, enum gguf_type type, enum synth_kind kind, float value,
    uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    if (list->n_tensors == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        struct synth_tensor *grown = realloc(list->tensors, capacity * sizeof *grown);
        if (grown == NULL) {
            list->out_of_memory = true;
            return;
        }
        list->tensors = grown;
        list->capacity = capacity;
    }
    struct synth_tensor *tensor = &list->tensors[list->n_tensors++];
    *tensor = (struct synth_tensor){.type = type, .kind = kind, .value = value, .ne = {ne0, ne1, ne2, 1}};
    tensor->n_dims = ne2 != 0 ? 3 : ne1 != 0 ? 2 : 1;
    for (uint32_t i = tensor->n_dims; i < GGUF_MAX_DIMS; i++)
        tensor->ne[i] = 1;
    snprintf(tensor->name, sizeof tensor->name, name, layer);
}

struct text_list {
    const struct synth *synth;
    struct gguf_mix_model mix;
    struct synth_list *list;
    uint32_t layer;
};

// A matrix that keeps the size of what passes through it, in the type that the mix gives it.
static void matrix(struct text_list *t, const char *name, enum gguf_type unquantised, uint64_t in, uint64_t out, uint64_t n)
{
    char full[GGUF_MAX_NAME_BYTES];
    snprintf(full, sizeof full, name, t->layer);
    uint64_t ne[GGUF_MAX_DIMS] = {in, out, n == 0 ? 1 : n, 1};
    enum gguf_type type = gguf_mix_type(&t->mix, full, n == 0 ? 2 : 3, ne, unquantised);
    // Ollama's own quantiser left the per-layer table as it was and quantised its projection.
    bool is_quantised = t->synth->mix != GGUF_MIX_F32 && t->synth->mix != GGUF_MIX_F16 && t->synth->mix != GGUF_MIX_BF16;
    if (t->synth->ollama && strcmp(full, "per_layer_token_embd.weight") == 0)
        type = GGUF_TYPE_BF16;
    if (t->synth->ollama && is_quantised && strcmp(full, "per_layer_model_proj.weight") == 0)
        type = gguf_mix_type(&t->mix, "blk.0.inp_gate.weight", 2, ne, unquantised);
    synth_add(t->list, full, 0, type, SYNTH_MATRIX, 1 / sqrtf((float)in), in, out, n);
}

static void norm(struct text_list *t, const char *name, float value, uint64_t n)
{
    synth_add(t->list, name, t->layer, GGUF_TYPE_F32, SYNTH_NORM, value, n, 0, 0);
}

static void list_attention(struct text_list *t)
{
    const struct synth_model *m = &t->synth->model;
    uint64_t head = synth_is_sliding(m, t->layer) ? SYNTH_HEAD_SLIDING : SYNTH_HEAD_GLOBAL, n_kv = kv_heads(m, t->layer);
    norm(t, "blk.%u.attn_norm.weight", 1, m->d_model);
    matrix(t, "blk.%u.attn_q.weight", GGUF_TYPE_BF16, m->d_model, head * m->n_heads, 0);
    matrix(t, "blk.%u.attn_k.weight", GGUF_TYPE_BF16, m->d_model, head * n_kv, 0);
    if (t->mix.has_attn_v[t->layer])
        matrix(t, "blk.%u.attn_v.weight", GGUF_TYPE_BF16, m->d_model, head * n_kv, 0);
    matrix(t, "blk.%u.attn_output.weight", GGUF_TYPE_BF16, head * m->n_heads, m->d_model, 0);
    norm(t, "blk.%u.attn_q_norm.weight", 1, head);
    norm(t, "blk.%u.attn_k_norm.weight", 2 / sqrtf((float)head),
        head); // attention logits of size 2: neither flat nor a single key
    norm(t, "blk.%u.post_attention_norm.weight", 1, m->d_model);
}

static void list_experts(struct text_list *t)
{
    const struct synth_model *m = &t->synth->model;
    synth_add(t->list, "blk.%u.ffn_gate_inp.weight", t->layer, GGUF_TYPE_F32, SYNTH_MATRIX, 1, m->d_model, m->n_experts, 0);
    norm(t, "blk.%u.ffn_gate_inp.scale", 1, m->d_model);
    norm(t, "blk.%u.pre_ffw_norm_2.weight", 1, m->d_model);
    norm(t, "blk.%u.post_ffw_norm_1.weight", 1, m->d_model);
    norm(t, "blk.%u.post_ffw_norm_2.weight", 1, m->d_model);
    matrix(t, "blk.%u.ffn_gate_up_exps.weight", GGUF_TYPE_BF16, m->d_model, (uint64_t)2 * m->n_expert_ff, m->n_experts);
    matrix(t, "blk.%u.ffn_down_exps.weight", GGUF_TYPE_BF16, m->n_expert_ff, m->d_model, m->n_experts);
    norm(t, "blk.%u.ffn_down_exps.scale", 1, m->n_experts);
}

static void list_layer(struct text_list *t)
{
    const struct synth_model *m = &t->synth->model;
    uint64_t ff = ff_width(m, t->layer);
    list_attention(t);
    norm(t, "blk.%u.ffn_norm.weight", 1, m->d_model);
    matrix(t, "blk.%u.ffn_gate.weight", GGUF_TYPE_BF16, m->d_model, ff, 0);
    matrix(t, "blk.%u.ffn_up.weight", GGUF_TYPE_BF16, m->d_model, ff, 0);
    matrix(t, "blk.%u.ffn_down.weight", GGUF_TYPE_BF16, ff, m->d_model, 0);
    norm(t, "blk.%u.post_ffw_norm.weight", 1, m->d_model);
    if (m->n_experts != 0)
        list_experts(t);
    synth_add(t->list, "blk.%u.layer_output_scale.weight", t->layer, GGUF_TYPE_F32, SYNTH_NORM, 0.9f, 1, 0, 0);
    if (m->per_layer == 0)
        return;
    matrix(t, "blk.%u.inp_gate.weight", GGUF_TYPE_BF16, m->d_model, m->per_layer, 0);
    matrix(t, "blk.%u.proj.weight", GGUF_TYPE_BF16, m->per_layer, m->d_model, 0);
    norm(t, "blk.%u.post_norm.weight", 1, m->d_model);
}

void synth_list_text(const struct synth *synth, struct synth_list *list)
{
    const struct synth_model *m = &synth->model;
    struct text_list t = {.synth = synth,
        .list = list,
        .mix = {
            .mix = synth->mix, .n_layers = m->n_layers, .n_experts = m->n_experts, .heads_per_kv = m->n_heads / kv_heads(m, 0)}};
    for (uint32_t l = 0; l < m->n_layers; l++)
        t.mix.has_attn_v[l] = synth_is_sliding(m, l) || m->global_has_v;
    // Rows a quarter as long as what a layer adds, so that the last token does not simply repeat itself (the table is the output
    // matrix too); the final norm brings the logits to a size of 4.
    matrix(&t, "token_embd.weight", GGUF_TYPE_BF16, m->d_model, synth->n_vocab, 0);
    list->tensors[list->n_tensors - 1].value *= 0.25f;
    norm(&t, "output_norm.weight", 16, m->d_model);
    synth_add(list, "rope_freqs.weight", 0, GGUF_TYPE_F32, SYNTH_ROPE_FREQS, 0, SYNTH_HEAD_GLOBAL / 2, 0, 0);
    if (m->per_layer != 0) {
        matrix(&t, "per_layer_token_embd.weight", GGUF_TYPE_BF16, (uint64_t)m->per_layer * m->n_layers, synth->n_vocab, 0);
        list->tensors[list->n_tensors - 1].value = 1 / sqrtf((float)m->per_layer); // scaled by sqrt(width) in the model
        matrix(&t, "per_layer_model_proj.weight", GGUF_TYPE_BF16, m->d_model, (uint64_t)m->per_layer * m->n_layers, 0);
        norm(&t, "per_layer_proj_norm.weight", 1, m->per_layer);
    }
    for (t.layer = 0; t.layer < m->n_layers; t.layer++)
        list_layer(&t);
}

// A number per layer, as one number when all are equal.
static void write_per_layer(
    struct gguf_writer *w, const char *key, const struct synth_model *m, uint32_t (*value)(const struct synth_model *, uint32_t))
{
    uint8_t bytes[4 * GGUF_MIX_MAX_LAYERS];
    bool equal = true;
    for (uint32_t l = 0; l < m->n_layers; l++) {
        uint32_t v = value(m, l);
        equal = equal && v == value(m, 0);
        for (int i = 0; i < 4; i++)
            bytes[4 * l + (uint32_t)i] = (uint8_t)(v >> 8 * i);
    }
    if (equal)
        gguf_write_u32(w, key, value(m, 0));
    else
        gguf_write_array(w, key, GGUF_VALUE_I32, bytes, m->n_layers);
}

static void write_attention_keys(const struct synth_model *m, struct gguf_writer *w)
{
    uint8_t pattern[GGUF_MIX_MAX_LAYERS];
    for (uint32_t l = 0; l < m->n_layers; l++)
        pattern[l] = synth_is_sliding(m, l);
    gguf_write_u32(w, "gemma4.attention.head_count", m->n_heads);
    write_per_layer(w, "gemma4.attention.head_count_kv", m, kv_heads);
    gguf_write_u32(w, "gemma4.attention.key_length", SYNTH_HEAD_GLOBAL);
    gguf_write_u32(w, "gemma4.attention.value_length", SYNTH_HEAD_GLOBAL);
    gguf_write_u32(w, "gemma4.attention.key_length_swa", SYNTH_HEAD_SLIDING);
    gguf_write_u32(w, "gemma4.attention.value_length_swa", SYNTH_HEAD_SLIDING);
    gguf_write_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_write_u32(w, "gemma4.attention.sliding_window", m->window);
    gguf_write_array(w, "gemma4.attention.sliding_window_pattern", GGUF_VALUE_BOOL, pattern, m->n_layers);
    gguf_write_u32(w, "gemma4.attention.shared_kv_layers", m->n_shared);
    gguf_write_f32(w, "gemma4.rope.freq_base", 1000000);
    gguf_write_f32(w, "gemma4.rope.freq_base_swa", 10000);
    gguf_write_u32(w, "gemma4.rope.dimension_count", SYNTH_HEAD_GLOBAL);
    gguf_write_u32(w, "gemma4.rope.dimension_count_swa", SYNTH_HEAD_SLIDING);
}

void synth_write_text_keys(const struct synth *synth, struct gguf_writer *w)
{
    const struct synth_model *m = &synth->model;
    gguf_write_text(w, "general.architecture", "gemma4");
    gguf_write_text(w, "general.type", "model");
    gguf_write_text(w, "general.name", m->long_name);
    gguf_write_u32(w, "general.file_type", gguf_mix_file_type(synth->mix));
    gguf_write_u32(w, "general.quantization_version", 2);
    gguf_write_u32(w, "gemma4.block_count", m->n_layers);
    gguf_write_u32(w, "gemma4.context_length", m->n_context);
    gguf_write_u32(w, "gemma4.embedding_length", m->d_model);
    write_per_layer(w, "gemma4.feed_forward_length", m, ff_width);
    write_attention_keys(m, w);
    gguf_write_f32(w, "gemma4.final_logit_softcapping", 30);
    gguf_write_u32(w, "gemma4.embedding_length_per_layer_input", m->per_layer);
    if (m->n_experts != 0) {
        gguf_write_u32(w, "gemma4.expert_count", m->n_experts);
        gguf_write_u32(w, "gemma4.expert_used_count", m->n_experts_used);
        gguf_write_u32(w, "gemma4.expert_feed_forward_length", m->n_expert_ff);
    }
}
