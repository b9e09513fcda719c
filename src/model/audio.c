// audio.c: the weights of the audio tower, under the names of projector files and under Ollama's. The computation is in
// audio_forward.c.

#include "model/audio.h"

#include <stdio.h>
#include <stdlib.h>

#include "media/sound.h"

enum { MAX_LAYERS = 256, MAX_WIDTH = 1 << 16 };

// Names that differ between the two packagings. Two of them mean other tensors in the other one.
struct names {
    const char *input_projection, *output_projection;
    const char *attn_pre_norm, *attn_post_norm, *norm_out, *relative;
};

static const struct names projector_names = {
    "a.input_projection", "a.pre_encode.out", "attn_pre_norm.weight", "attn_post_norm.weight", "ln2.weight", "attn_k_rel.weight"};
static const struct names ollama_names = {
    "a.pre_encode.out", "mm.a.fc", "ln1.weight", "ln2.weight", "layer_pre_norm.weight", "linear_pos.weight"};

bool audio_exists(const struct gguf_file *file)
{
    return gguf_find_tensor(file, "mm.a.input_projection.weight") != NULL;
}

enum mel_rule audio_mel_rule(const struct audio_tower *tower)
{
    return tower->compat == TOWER_LLAMA_CPP ? MEL_RULE_LLAMA_CPP
           : tower->compat == TOWER_OLLAMA  ? MEL_RULE_OLLAMA
                                            : MEL_RULE_REFERENCE;
}

int64_t audio_token_count(const struct audio_tower *tower, int64_t n_samples)
{
    if (tower->encoder_free)
        return (n_samples + tower->frame_samples - 1) / tower->frame_samples;
    return mel_token_count(mel_frame_count_by(audio_mel_rule(tower), n_samples));
}

static bool read_config(const struct gguf_file *file, struct audio_tower *t, struct carat_error *err)
{
    struct gguf_text kind;
    const char *key = "clip.audio.projector_type";
    if (gguf_find(file, key) != NULL) {
        if (!gguf_text(file, key, &kind, err))
            return false;
        if (!gguf_text_is(file, key, "gemma4a") && !gguf_text_is(file, key, "gemma4ua"))
            return fail(err, CARAT_UNSUPPORTED,
                "the projector file's audio is of the kind '%.*s', not one of Gemma 4 (gemma4a, "
                "gemma4ua)",
                (int)(kind.n_bytes < 40 ? kind.n_bytes : 40), kind.bytes);
    }
    t->encoder_free = gguf_find_tensor(file, "a.conv1d.0.weight") == NULL;
    return t->encoder_free || (tower_number(file, "audio", "block_count", 1, MAX_LAYERS, 0, &t->n_layers, err) &&
                                  tower_number(file, "audio", "attention.head_count", 1, 1024, 0, &t->n_heads, err));
}

static void look_up_feed_forward(struct lookup *l, const struct audio_tower *t, const char *suffix, struct audio_feed_forward *f)
{
    char name[GGUF_MAX_NAME_BYTES];
    snprintf(name, sizeof name, "ffn_norm%s.weight", suffix);
    lookup_vector(l, name, NULL, t->width, &f->norm);
    snprintf(name, sizeof name, "ffn_up%s", suffix);
    lookup_clip_linear(l, name, t->width, t->n_ff, &f->up);
    snprintf(name, sizeof name, "ffn_down%s", suffix);
    lookup_clip_linear(l, name, t->n_ff, t->width, &f->down);
    snprintf(name, sizeof name, "ffn_post_norm%s.weight", suffix);
    lookup_vector(l, name, NULL, t->width, &f->post_norm);
}

static void look_up_layer(
    struct lookup *l, const struct names *names, const struct audio_tower *t, struct audio_layer *layer, int32_t index)
{
    int32_t c = t->width;
    snprintf(l->prefix, sizeof l->prefix, "a.blk.%d.", (int)index);
    look_up_feed_forward(l, t, "", &layer->first);
    lookup_vector(l, names->attn_pre_norm, NULL, c, &layer->attn_pre_norm);
    lookup_clip_linear(l, "attn_q", c, c, &layer->attn_q);
    lookup_clip_linear(l, "attn_k", c, c, &layer->attn_k);
    lookup_clip_linear(l, "attn_v", c, c, &layer->attn_v);
    lookup_clip_linear(l, "attn_out", c, c, &layer->attn_out);
    lookup_matrix(l, names->relative, NULL, c, c, &layer->relative.weight);
    lookup_vector(l, "per_dim_scale.weight", NULL, c / t->n_heads, &layer->per_dim_scale);
    lookup_vector(l, names->attn_post_norm, NULL, c, &layer->attn_post_norm);
    lookup_vector(l, "conv_norm.weight", NULL, c, &layer->conv_norm);
    lookup_clip_linear(l, "conv_pw1", c, 2 * c, &layer->conv_in);
    lookup_flattened(l, "conv_dw.weight", t->n_taps, c, &layer->conv_depthwise);
    lookup_vector(l, "norm_conv.weight", NULL, c, &layer->conv_post_norm);
    lookup_clip_linear(l, "conv_pw2", c, c, &layer->conv_out);
    look_up_feed_forward(l, t, "_1", &layer->second);
    lookup_vector(l, names->norm_out, NULL, c, &layer->norm_out);
    l->prefix[0] = '\0';
}

// Widths come from the shapes.
static bool read_widths(struct lookup *l, const struct names *names, struct audio_tower *t)
{
    char name[GGUF_MAX_NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", names->output_projection);
    const struct gguf_tensor *conv0 = lookup_required(l, "a.conv1d.0.weight"), *conv1 = lookup_required(l, "a.conv1d.1.weight"),
                             *up = lookup_required(l, "a.blk.0.ffn_up.weight"), *out = lookup_required(l, name),
                             *taps = lookup_required(l, "a.blk.0.conv_dw.weight"),
                             *projection = lookup_required(l, "mm.a.input_projection.weight");
    if (conv0 == NULL || conv1 == NULL || up == NULL || out == NULL || taps == NULL || projection == NULL)
        return false;
    uint64_t sizes[7] = {up->ne[0], up->ne[1], out->ne[1], projection->ne[1], conv0->ne[3], conv1->ne[3], taps->ne[0]};
    bool sane =
        sizes[4] <= 1024 && sizes[5] <= 1024 && sizes[6] <= 64 && up->ne[0] % (uint64_t)t->n_heads == 0 && up->ne[0] % 2 == 0;
    for (int i = 0; i < 7; i++)
        sane = sane && sizes[i] >= 1 && sizes[i] <= MAX_WIDTH;
    if (!sane) {
        l->failed = true;
        return fail(l->err, CARAT_BAD_FILE, "the audio tower's tensors have impossible widths (%llu, %llu, %llu, %llu)",
            (unsigned long long)sizes[0], (unsigned long long)sizes[1], (unsigned long long)sizes[4],
            (unsigned long long)sizes[6]);
    }
    int32_t *targets[7] = {&t->width, &t->n_ff, &t->d_out, &t->d_text, &t->n_channels[0], &t->n_channels[1], &t->n_taps};
    for (int i = 0; i < 7; i++)
        *targets[i] = (int32_t)sizes[i];
    return true;
}

static bool check_f32(struct lookup *l, const struct weight *weight)
{
    if (l->failed || weight->type == GGUF_TYPE_F32)
        return !l->failed;
    l->failed = true;
    return fail(l->err, CARAT_UNSUPPORTED, "tensor '%s' has the type %s; convolutions must be F32", weight->name,
        gguf_type_name(weight->type));
}

static bool look_up_encoder_free(struct lookup *l, struct audio_tower *t)
{
    const struct gguf_tensor *projection = lookup_required(l, "mm.a.input_projection.weight");
    if (projection == NULL)
        return false;
    lookup_matrix(l, "mm.a.input_projection.weight", NULL, 0, 0, &t->projection.weight);
    t->frame_samples = t->projection.weight.n_in;
    t->d_text = t->projection.weight.n_out;
    if (!l->failed && (t->frame_samples > MAX_WIDTH || t->d_text > MAX_WIDTH)) {
        l->failed = true;
        fail(l->err, CARAT_BAD_FILE, "tensor '%s' is impossibly wide", projection->name);
    }
    return !l->failed;
}

static bool look_up(struct lookup *l, const struct names *names, struct audio_tower *t)
{
    char name[GGUF_MAX_NAME_BYTES];
    if (!read_widths(l, names, t))
        return false;
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "a.conv1d.%d.weight", i);
        lookup_flattened(l, name, 9 * (i == 0 ? 1 : t->n_channels[0]), t->n_channels[i], &t->conv[i]);
        snprintf(name, sizeof name, "a.conv1d.%d.norm.weight", i);
        lookup_vector(l, name, NULL, t->n_channels[i], &t->conv_norm[i]);
        check_f32(l, &t->conv[i]);
    }
    snprintf(name, sizeof name, "%s.weight", names->input_projection);
    lookup_matrix(l, name, NULL, MEL_BANDS / 4 * t->n_channels[1], t->width, &t->input_projection.weight);
    snprintf(name, sizeof name, "%s.weight", names->output_projection);
    lookup_matrix(l, name, NULL, t->width, t->d_out, &t->output_projection.weight);
    snprintf(name, sizeof name, "%s.bias", names->output_projection);
    lookup_vector(l, name, NULL, t->d_out, &t->output_projection.bias);
    lookup_matrix(l, "mm.a.input_projection.weight", NULL, t->d_out, t->d_text, &t->projection.weight);
    t->layers = arena_take_array(&t->arena, (size_t)t->n_layers, sizeof *t->layers);
    if (t->layers == NULL)
        return fail(l->err, CARAT_NO_MEMORY, "no memory for the table of the audio tower's weights");
    for (int32_t i = 0; i < t->n_layers && !l->failed; i++) {
        look_up_layer(l, names, t, &t->layers[i], i);
        check_f32(l, &t->layers[i].conv_depthwise);
    }
    return !l->failed;
}

bool audio_open(const struct gguf_file *file, enum tower_compat compat, struct audio_tower **out, struct carat_error *err)
{
    struct lookup lookup;
    struct carat_error ignored;
    struct audio_tower *tower = calloc(1, sizeof *tower);
    err = err != NULL ? err : &ignored;
    *out = NULL;
    if (tower == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the audio tower");
    tower->compat = compat;
    bool is_ollama = gguf_find_tensor(file, "a.blk.0.layer_pre_norm.weight") != NULL;
    bool done = tower_check_alignment(file, err) && read_config(file, tower, err) &&
                lookup_begin(&lookup, file, &tower->plan, PLAN_TOWERS, err) &&
                (tower->encoder_free ? look_up_encoder_free(&lookup, tower)
                                     : look_up(&lookup, is_ollama ? &ollama_names : &projector_names, tower));
    if (!done) {
        audio_free(tower);
        return false;
    }
    *out = tower;
    return true;
}

void audio_free(struct audio_tower *tower)
{
    if (tower == NULL)
        return;
    plan_free(&tower->plan);
    arena_free(&tower->arena);
    free(tower);
}
