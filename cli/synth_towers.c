// synth_towers.c: shapes and metadata of the vision and audio towers, under llama.cpp's or Ollama's names.

#include "synth.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATCH = 16, POSITIONS = 10240, AUDIO_LAYERS = 12, AUDIO_WIDTH = 1024, AUDIO_FF = 4096, AUDIO_HEADS = 8, AUDIO_OUT = 1536 };
enum { UNIFIED_PATCH = 48 * 48 * 3, UNIFIED_POSITIONS = 1120, UNIFIED_AUDIO_FRAME = 640 };

struct tower_list {
    const struct synth *synth;
    struct synth_list *list;
    enum gguf_type matrix_type;
    bool clipped;
};

// The four clipping bounds of a linear; wide enough to clip little.
static void bounds(const struct tower_list *t, const char *base, uint32_t layer)
{
    static const struct {
        const char *suffix;
        float value;
    } kinds[] = {{"input_min", -20}, {"input_max", 20}, {"output_min", -30}, {"output_max", 30}};
    for (int i = 0; i < 4 && t->clipped; i++) {
        char name[GGUF_MAX_NAME_BYTES];
        snprintf(name, sizeof name, "%s.%s", base, kinds[i].suffix);
        synth_add(t->list, name, layer, GGUF_TYPE_F32, SYNTH_CONSTANT, kinds[i].value, 1, 0, 0);
    }
}

static void linear(const struct tower_list *t, const char *base, uint32_t layer, uint64_t in, uint64_t out)
{
    char name[GGUF_MAX_NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", base);
    synth_add(t->list, name, layer, t->matrix_type, SYNTH_MATRIX, 1 / sqrtf((float)in), in, out, 0);
    bounds(t, base, layer);
}

static void norm(const struct tower_list *t, const char *name, uint32_t layer, uint64_t n)
{
    synth_add(t->list, name, layer, GGUF_TYPE_F32, SYNTH_NORM, 1, n, 0, 0);
}

static void list_vision(const struct tower_list *t)
{
    const struct synth_model *m = &t->synth->model;
    uint64_t w = m->v_width, head = w / m->v_heads;
    synth_add(t->list, "v.patch_embd.weight", 0, GGUF_TYPE_F16, SYNTH_MATRIX, 1 / sqrtf(PATCH * PATCH * 3), PATCH, PATCH, 3);
    struct synth_tensor *patch = &t->list->tensors[t->list->n_tensors - 1];
    patch->n_dims = 4;
    patch->ne[3] = w;
    synth_add(t->list, "v.position_embd.weight", 0, GGUF_TYPE_F32, SYNTH_MATRIX, 0.5f, w, POSITIONS, 2);
    if (m->v_standardised) {
        synth_add(t->list, "v.std_bias", 0, GGUF_TYPE_F32, SYNTH_CONSTANT, 0, w, 0, 0);
        synth_add(t->list, "v.std_scale", 0, GGUF_TYPE_F32, SYNTH_NORM, 0.05f, w, 0, 0);
    }
    for (uint32_t l = 0; l < m->v_layers; l++) {
        norm(t, "v.blk.%u.ln1.weight", l, w);
        linear(t, "v.blk.%u.attn_q", l, w, w);
        linear(t, "v.blk.%u.attn_k", l, w, w);
        linear(t, "v.blk.%u.attn_v", l, w, w);
        linear(t, "v.blk.%u.attn_out", l, w, w);
        norm(t, "v.blk.%u.attn_q_norm.weight", l, head);
        synth_add(t->list, "v.blk.%u.attn_k_norm.weight", l, GGUF_TYPE_F32, SYNTH_NORM, 2 / sqrtf((float)head), head, 0, 0);
        norm(t, "v.blk.%u.attn_post_norm.weight", l, w);
        norm(t, "v.blk.%u.ln2.weight", l, w);
        linear(t, "v.blk.%u.ffn_gate", l, w, m->v_ff);
        linear(t, "v.blk.%u.ffn_up", l, w, m->v_ff);
        linear(t, "v.blk.%u.ffn_down", l, m->v_ff, w);
        norm(t, "v.blk.%u.ffn_post_norm.weight", l, w);
    }
    synth_add(t->list, "mm.input_projection.weight", 0, GGUF_TYPE_F16, SYNTH_MATRIX, 1 / sqrtf((float)w), w, m->d_model, 0);
}

static void list_audio_layer(const struct tower_list *t, uint32_t l)
{
    static const char *const ffn[2][4] = {
        {"ffn_norm", "ffn_up", "ffn_down", "ffn_post_norm"}, {"ffn_norm_1", "ffn_up_1", "ffn_down_1", "ffn_post_norm_1"}};
    bool ollama = t->synth->ollama;
    for (int i = 0; i < 2; i++) {
        char name[GGUF_MAX_NAME_BYTES];
        snprintf(name, sizeof name, "a.blk.%%u.%s.weight", ffn[i][0]);
        norm(t, name, l, AUDIO_WIDTH);
        snprintf(name, sizeof name, "a.blk.%%u.%s", ffn[i][1]);
        linear(t, name, l, AUDIO_WIDTH, AUDIO_FF);
        snprintf(name, sizeof name, "a.blk.%%u.%s", ffn[i][2]);
        linear(t, name, l, AUDIO_FF, AUDIO_WIDTH);
        snprintf(name, sizeof name, "a.blk.%%u.%s.weight", ffn[i][3]);
        norm(t, name, l, AUDIO_WIDTH);
    }
    norm(t, ollama ? "a.blk.%u.ln1.weight" : "a.blk.%u.attn_pre_norm.weight", l, AUDIO_WIDTH);
    linear(t, "a.blk.%u.attn_q", l, AUDIO_WIDTH, AUDIO_WIDTH);
    linear(t, "a.blk.%u.attn_k", l, AUDIO_WIDTH, AUDIO_WIDTH);
    linear(t, "a.blk.%u.attn_v", l, AUDIO_WIDTH, AUDIO_WIDTH);
    linear(t, "a.blk.%u.attn_out", l, AUDIO_WIDTH, AUDIO_WIDTH);
    synth_add(t->list, ollama ? "a.blk.%u.linear_pos.weight" : "a.blk.%u.attn_k_rel.weight", l, t->matrix_type, SYNTH_MATRIX,
        1 / sqrtf(AUDIO_WIDTH), AUDIO_WIDTH, AUDIO_WIDTH, 0);
    synth_add(t->list, "a.blk.%u.per_dim_scale.weight", l, GGUF_TYPE_F32, SYNTH_NORM, 0.7f, AUDIO_WIDTH / AUDIO_HEADS, 0, 0);
    norm(t, ollama ? "a.blk.%u.ln2.weight" : "a.blk.%u.attn_post_norm.weight", l, AUDIO_WIDTH);
    norm(t, "a.blk.%u.conv_norm.weight", l, AUDIO_WIDTH);
    linear(t, "a.blk.%u.conv_pw1", l, AUDIO_WIDTH, 2 * AUDIO_WIDTH);
    synth_add(t->list, "a.blk.%u.conv_dw.weight", l, GGUF_TYPE_F32, SYNTH_MATRIX, 0.4f, 5, AUDIO_WIDTH, 0);
    norm(t, "a.blk.%u.norm_conv.weight", l, AUDIO_WIDTH);
    linear(t, "a.blk.%u.conv_pw2", l, AUDIO_WIDTH, AUDIO_WIDTH);
    norm(t, ollama ? "a.blk.%u.layer_pre_norm.weight" : "a.blk.%u.ln2.weight", l, AUDIO_WIDTH);
}

// A convolution kernel of 3 x 3.
static void convolution(const struct tower_list *t, const char *name, uint64_t in, uint64_t out)
{
    synth_add(t->list, name, 0, GGUF_TYPE_F32, SYNTH_MATRIX, 1 / sqrtf(9.0f * (float)in), 3, 3, in);
    struct synth_tensor *tensor = &t->list->tensors[t->list->n_tensors - 1];
    tensor->n_dims = 4;
    tensor->ne[3] = out;
}

static void list_audio(const struct tower_list *t)
{
    bool ollama = t->synth->ollama;
    float spread = 1 / sqrtf(AUDIO_WIDTH);
    enum gguf_type projector = GGUF_TYPE_F16;
    convolution(t, "a.conv1d.0.weight", 1, 128);
    norm(t, "a.conv1d.0.norm.weight", 0, 128);
    convolution(t, "a.conv1d.1.weight", 128, 32);
    norm(t, "a.conv1d.1.norm.weight", 0, 32);
    synth_add(t->list, ollama ? "a.pre_encode.out.weight" : "a.input_projection.weight", 0,
        ollama ? t->matrix_type : GGUF_TYPE_F32, SYNTH_MATRIX, spread, AUDIO_WIDTH, AUDIO_WIDTH, 0);
    for (uint32_t l = 0; l < AUDIO_LAYERS; l++)
        list_audio_layer(t, l);
    synth_add(t->list, ollama ? "mm.a.fc.weight" : "a.pre_encode.out.weight", 0, projector, SYNTH_MATRIX, spread, AUDIO_WIDTH,
        AUDIO_OUT, 0);
    synth_add(
        t->list, ollama ? "mm.a.fc.bias" : "a.pre_encode.out.bias", 0, GGUF_TYPE_F32, SYNTH_CONSTANT, 0.01f, AUDIO_OUT, 0, 0);
    synth_add(t->list, "mm.a.input_projection.weight", 0, projector, SYNTH_MATRIX, 1 / sqrtf(AUDIO_OUT), AUDIO_OUT,
        t->synth->model.d_model, 0);
}

// 12B has no towers: patches and frames are projected directly.
static void list_unified(const struct tower_list *t)
{
    uint64_t d = t->synth->model.d_model;
    static const struct {
        const char *name;
        bool is_patch;
    } norms[] = {{"v.patch_norm.1", true}, {"v.patch_norm.2", false}, {"v.patch_norm.3", false}};
    for (int i = 0; i < 3; i++) {
        char name[GGUF_MAX_NAME_BYTES];
        snprintf(name, sizeof name, "%s.weight", norms[i].name);
        norm(t, name, 0, norms[i].is_patch ? UNIFIED_PATCH : d);
        snprintf(name, sizeof name, "%s.bias", norms[i].name);
        synth_add(t->list, name, 0, GGUF_TYPE_F32, SYNTH_CONSTANT, 0.01f, norms[i].is_patch ? UNIFIED_PATCH : d, 0, 0);
    }
    synth_add(t->list, "v.patch_embd.weight", 0, GGUF_TYPE_F32, SYNTH_MATRIX, 1 / sqrtf(UNIFIED_PATCH), UNIFIED_PATCH, d, 0);
    synth_add(t->list, "v.patch_embd.bias", 0, GGUF_TYPE_F32, SYNTH_CONSTANT, 0.01f, d, 0, 0);
    synth_add(t->list, "v.position_embd.weight", 0, GGUF_TYPE_F32, SYNTH_MATRIX, 0.5f, d, UNIFIED_POSITIONS, 2);
    synth_add(t->list, "mm.input_projection.weight", 0, t->matrix_type, SYNTH_MATRIX, 1 / sqrtf((float)d), d, d, 0);
    synth_add(t->list, "mm.a.input_projection.weight", 0, t->matrix_type, SYNTH_MATRIX, 1 / sqrtf(UNIFIED_AUDIO_FRAME),
        UNIFIED_AUDIO_FRAME, d, 0);
}

void synth_list_towers(const struct synth *synth, struct synth_list *list)
{
    struct tower_list t = {.synth = synth, .list = list, .matrix_type = GGUF_TYPE_F16, .clipped = synth->model.v_clipped};
    if (synth->model.unified) {
        list_unified(&t);
        return;
    }
    list_vision(&t);
    if (!synth->model.has_audio)
        return;
    t.matrix_type = synth->ollama ? GGUF_TYPE_BF16 : GGUF_TYPE_F16;
    list_audio(&t);
}

static void write_tower(struct gguf_writer *w, const char *prefix, uint32_t layers, uint32_t width, uint32_t ff, uint32_t heads)
{
    char key[96];
    const struct {
        const char *name;
        uint32_t value;
    } keys[] = {
        {"block_count", layers}, {"embedding_length", width}, {"feed_forward_length", ff}, {"attention.head_count", heads}};
    for (int i = 0; i < 4; i++) {
        snprintf(key, sizeof key, "%s.%s", prefix, keys[i].name);
        gguf_write_u32(w, key, keys[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", prefix);
    gguf_write_f32(w, key, 1e-6f);
}

static void write_ollama_keys(const struct synth_model *m, struct gguf_writer *w)
{
    write_tower(w, "gemma4.vision", m->v_layers, m->v_width, m->v_ff, m->v_heads);
    gguf_write_u32(w, "gemma4.vision.patch_size", PATCH);
    gguf_write_u32(w, "gemma4.vision.num_channels", 3);
    gguf_write_u32(w, "gemma4.vision.projector.scale_factor", 3);
    if (!m->has_audio)
        return;
    write_tower(w, "gemma4.audio", AUDIO_LAYERS, AUDIO_WIDTH, AUDIO_FF, AUDIO_HEADS);
    gguf_write_u32(w, "gemma4.audio.conv_kernel_size", 5);
}

void synth_write_tower_keys(const struct synth *synth, struct gguf_writer *w)
{
    static const uint8_t zeros[12], ones[12] = {0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f};
    const struct synth_model *m = &synth->model;
    bool has_audio = m->has_audio || m->unified;
    if (synth->ollama) {
        write_ollama_keys(m, w);
        return;
    }
    gguf_write_text(w, "general.architecture", "clip");
    gguf_write_text(w, "general.type", "mmproj");
    gguf_write_text(w, "general.name", m->long_name);
    gguf_write_u32(w, "general.file_type", gguf_mix_file_type(GGUF_MIX_F16));
    gguf_write_bool(w, "clip.has_vision_encoder", true);
    gguf_write_text(w, "clip.vision.projector_type", m->unified ? "gemma4uv" : "gemma4v");
    write_tower(w, "clip.vision", m->v_layers, m->unified ? m->d_model : m->v_width, m->v_ff, m->v_heads);
    gguf_write_u32(w, "clip.vision.projection_dim", m->d_model);
    gguf_write_u32(w, "clip.vision.image_size", 224);
    gguf_write_u32(w, "clip.vision.patch_size", PATCH);
    gguf_write_array(w, "clip.vision.image_mean", GGUF_VALUE_F32, zeros, 3);
    gguf_write_array(w, "clip.vision.image_std", GGUF_VALUE_F32, ones, 3);
    if (has_audio) {
        gguf_write_bool(w, "clip.has_audio_encoder", true);
        gguf_write_text(w, "clip.audio.projector_type", m->unified ? "gemma4ua" : "gemma4a");
        write_tower(w, "clip.audio", m->unified ? 0 : AUDIO_LAYERS, m->unified ? m->d_model : AUDIO_WIDTH,
            m->unified ? 0 : AUDIO_FF, m->unified ? 0 : AUDIO_HEADS);
        gguf_write_u32(w, "clip.audio.num_mel_bins", m->unified ? UNIFIED_AUDIO_FRAME : 128);
        gguf_write_u32(w, "clip.audio.projection_dim", m->d_model);
    }
    gguf_write_u32(w, "general.quantization_version", 2);
}
