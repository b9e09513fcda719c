// vision.c: the weights of the vision tower. The computation is in vision_forward.c.

#include "model/vision.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_LAYERS = 256, MAX_WIDTH = 1 << 16, MAX_POSITIONS = 1 << 20 };

bool vision_exists(const struct gguf_file *file)
{
    return gguf_find_tensor(file, "v.patch_embd.weight") != NULL;
}

enum image_rule vision_image_rule(const struct vision_tower *tower)
{
    return tower->compat == TOWER_LLAMA_CPP ? IMAGE_RULE_LLAMA_CPP
           : tower->compat == TOWER_OLLAMA  ? IMAGE_RULE_OLLAMA
                                            : IMAGE_RULE_REFERENCE;
}

static bool check_kind(const struct gguf_file *file, struct carat_error *err)
{
    static const char *const keys[] = {"clip.vision.projector_type", "clip.projector_type"};
    for (int i = 0; i < 2; i++) {
        struct gguf_text kind;
        if (gguf_find(file, keys[i]) == NULL)
            continue;
        if (!gguf_text(file, keys[i], &kind, err))
            return false;
        if (!gguf_text_is(file, keys[i], "gemma4v") && !gguf_text_is(file, keys[i], "gemma4uv"))
            return fail(err, CARAT_UNSUPPORTED,
                "the projector file is of the kind '%.*s', not one of Gemma 4 (gemma4v, gemma4uv)",
                (int)(kind.n_bytes < 40 ? kind.n_bytes : 40), kind.bytes);
        return true;
    }
    return true;
}

static bool read_config(const struct gguf_file *file, struct vision_tower *t, struct carat_error *err)
{
    int32_t patch = 0, pool = 0;
    if (!check_kind(file, err) || !tower_number(file, "vision", "patch_size", 1, 48, 16, &patch, err) ||
        !tower_number(file, "vision", "projector.scale_factor", 1, 48, 3, &pool, err))
        return false;
    if (patch * pool != IMAGE_CELL)
        return fail(err, CARAT_UNSUPPORTED, "patches of %d pixels pooled %d x %d: soft tokens of %d pixels are supported",
            (int)patch, (int)pool, (int)pool, IMAGE_CELL);
    t->eps = 1e-6f;
    t->encoder_free = gguf_find_tensor(file, "v.patch_norm.1.weight") != NULL;
    t->patch = t->encoder_free ? IMAGE_CELL : patch;
    t->pool = t->encoder_free ? 1 : pool;
    if (t->encoder_free)
        return true;
    const char *eps_key = gguf_find(file, "clip.vision.attention.layer_norm_epsilon") != NULL
                              ? "clip.vision.attention.layer_norm_epsilon"
                              : "gemma4.vision.attention.layer_norm_epsilon";
    if (!gguf_f32_or(file, eps_key, 1e-6f, &t->eps, err) ||
        !tower_number(file, "vision", "block_count", 1, MAX_LAYERS, 0, &t->n_layers, err) ||
        !tower_number(file, "vision", "attention.head_count", 1, 1024, 0, &t->n_heads, err))
        return false;
    return (t->eps > 0 && t->eps < 1) || fail(err, CARAT_BAD_FILE, "key '%s' must lie between 0 and 1", eps_key);
}

static void look_up_layer(struct lookup *l, struct vision_tower *t, struct vision_layer *layer, int32_t index)
{
    int32_t dv = t->d_vision, ff = t->n_ff, head_dim = dv / t->n_heads;
    snprintf(l->prefix, sizeof l->prefix, "v.blk.%d.", (int)index);
    lookup_vector(l, "ln1.weight", NULL, dv, &layer->ln1);
    lookup_clip_linear(l, "attn_q", dv, dv, &layer->attn_q);
    lookup_clip_linear(l, "attn_k", dv, dv, &layer->attn_k);
    lookup_clip_linear(l, "attn_v", dv, dv, &layer->attn_v);
    lookup_vector(l, "attn_q_norm.weight", NULL, head_dim, &layer->attn_q_norm);
    lookup_vector(l, "attn_k_norm.weight", NULL, head_dim, &layer->attn_k_norm);
    lookup_clip_linear(l, "attn_out", dv, dv, &layer->attn_out);
    lookup_vector(l, "attn_post_norm.weight", NULL, dv, &layer->attn_post_norm);
    lookup_vector(l, "ln2.weight", NULL, dv, &layer->ln2);
    lookup_clip_linear(l, "ffn_gate", dv, ff, &layer->ffn_gate);
    lookup_clip_linear(l, "ffn_up", dv, ff, &layer->ffn_up);
    lookup_clip_linear(l, "ffn_down", ff, dv, &layer->ffn_down);
    lookup_vector(l, "ffn_post_norm.weight", NULL, dv, &layer->ffn_post_norm);
    lookup_optional_vector(l, "out_scale.weight", NULL, 1, &layer->out_scale);
    l->prefix[0] = '\0';
}

// Widths come from the shapes.
static bool read_widths(struct lookup *l, struct vision_tower *t)
{
    const struct gguf_tensor *embedding = lookup_required(l, "v.patch_embd.weight");
    const struct gguf_tensor *positions = lookup_required(l, "v.position_embd.weight");
    const struct gguf_tensor *projection = lookup_required(l, "mm.input_projection.weight");
    const struct gguf_tensor *gate = t->encoder_free ? projection : lookup_required(l, "v.blk.0.ffn_gate.weight");
    if (embedding == NULL || positions == NULL || projection == NULL || gate == NULL)
        return false;
    uint64_t dv = embedding->ne[embedding->n_dims - 1], d = projection->ne[1], ff = gate->ne[1], n = positions->ne[1];
    bool sane =
        dv >= 1 && dv <= MAX_WIDTH && d >= 1 && d <= MAX_WIDTH && ff >= 1 && ff <= MAX_WIDTH && n >= 1 && n <= MAX_POSITIONS;
    if (sane && !t->encoder_free)
        sane = dv % (uint64_t)t->n_heads == 0 && dv / (uint64_t)t->n_heads % 4 == 0;
    if (!sane) {
        l->failed = true;
        return fail(l->err, CARAT_BAD_FILE, "the vision tower's tensors have impossible widths (%llu, %llu, %llu, %llu)",
            (unsigned long long)dv, (unsigned long long)d, (unsigned long long)ff, (unsigned long long)n);
    }
    t->d_vision = (int32_t)dv;
    t->d_text = (int32_t)d;
    t->n_ff = (int32_t)ff;
    t->n_positions = (int32_t)n;
    return true;
}

static void look_up_encoder_free(struct lookup *l, struct vision_tower *t)
{
    for (int i = 0; i < 3; i++) {
        char name[40];
        int32_t n = i == 0 ? 3 * t->patch * t->patch : t->d_vision;
        snprintf(name, sizeof name, "v.patch_norm.%d.weight", i + 1);
        lookup_vector(l, name, NULL, n, &t->patch_norm[i]);
        snprintf(name, sizeof name, "v.patch_norm.%d.bias", i + 1);
        lookup_vector(l, name, NULL, n, &t->patch_norm_bias[i]);
    }
    lookup_vector(l, "v.patch_embd.bias", NULL, t->d_vision, &t->patch_embd.bias);
}

static bool look_up(struct lookup *l, struct vision_tower *t)
{
    if (!read_widths(l, t))
        return false;
    int32_t dv = t->d_vision;
    lookup_flattened(l, "v.patch_embd.weight", 3 * t->patch * t->patch, dv, &t->patch_embd.weight);
    lookup_stack(l, "v.position_embd.weight", dv, t->n_positions, 2, &t->position_embd);
    lookup_clip_linear(l, "mm.input_projection", dv, t->d_text, &t->projection);
    if (t->encoder_free) {
        look_up_encoder_free(l, t);
        return !l->failed;
    }
    lookup_optional_vector(l, "v.std_bias", NULL, dv, &t->std_bias);
    lookup_optional_vector(l, "v.std_scale", NULL, dv, &t->std_scale);
    t->layers = arena_take_array(&t->arena, (size_t)t->n_layers, sizeof *t->layers);
    t->packed_bounds = arena_take_array(&t->arena, 4 * (7 * (size_t)t->n_layers + 1), sizeof(float));
    if (t->layers == NULL || t->packed_bounds == NULL)
        return fail(l->err, CARAT_NO_MEMORY, "no memory for the table of the vision tower's weights");
    for (int32_t i = 0; i < t->n_layers && !l->failed; i++)
        look_up_layer(l, t, &t->layers[i], i);
    lookup_host_vector(l, "v.clamp_data", 4 * (7 * t->n_layers + 1), t->packed_bounds, &t->clamp_data);
    return !l->failed;
}

bool vision_open(const struct gguf_file *file, enum tower_compat compat, struct vision_tower **out, struct carat_error *err)
{
    struct lookup lookup;
    struct carat_error ignored;
    struct vision_tower *tower = calloc(1, sizeof *tower);
    err = err != NULL ? err : &ignored;
    *out = NULL;
    if (tower == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the vision tower");
    tower->compat = compat;
    if (!tower_check_alignment(file, err) || !read_config(file, tower, err) ||
        !lookup_begin(&lookup, file, &tower->plan, PLAN_TOWERS, err) || !look_up(&lookup, tower)) {
        vision_free(tower);
        return false;
    }
    *out = tower;
    return true;
}

void vision_ready(struct vision_tower *t)
{
    if (!weight_exists(&t->clamp_data))
        return;
    for (int32_t i = 0; i < t->n_layers; i++) {
        struct vision_layer *layer = &t->layers[i];
        struct clip_linear *linears[7] = {
            &layer->attn_q, &layer->attn_k, &layer->attn_v, &layer->attn_out, &layer->ffn_gate, &layer->ffn_up, &layer->ffn_down};
        for (int j = 0; j < 7; j++)
            clip_linear_take_packed(linears[j], t->packed_bounds + 4 * (7 * i + j));
    }
    clip_linear_take_packed(&t->projection, t->packed_bounds + 4 * 7 * t->n_layers);
}

void vision_free(struct vision_tower *tower)
{
    if (tower == NULL)
        return;
    plan_free(&tower->plan);
    arena_free(&tower->arena);
    free(tower);
}
