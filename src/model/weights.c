// weights.c: fills the table of the text model's tensors (names and shapes: Gemma 4 GGUF files of llama.cpp and of Ollama).

#include "model/weights.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/lookup.h"

// The three parts of a fused matrix are rows of it that follow each other, so each becomes a weight of its own.
static bool take_rows(struct lookup *lookup, const struct weight *fused, int32_t first, int32_t n_rows, struct linear *out)
{
    out->weight = *fused;
    out->weight.n_out = n_rows;
    out->weight.file_offset += (uint64_t)first * fused->row_bytes;
    out->weight.n_bytes = (uint64_t)n_rows * fused->row_bytes;
    struct plan_item item = {.weight = &out->weight, .class = lookup->class};
    lookup->failed = !plan_add(lookup->plan, &item, lookup->err);
    return !lookup->failed;
}

static bool find_fused_qkv(
    struct lookup *lookup, const struct gguf_tensor *fused, int32_t d, int32_t n_q, int32_t n_kv, bool owns, struct text_layer *w)
{
    struct weight all;
    if (!lookup_describe(lookup, fused, d, n_q + 2 * n_kv, 1, &all) || !take_rows(lookup, &all, 0, n_q, &w->attn_q))
        return false;
    return !owns || (take_rows(lookup, &all, n_q, n_kv, &w->attn_k) && take_rows(lookup, &all, n_q + n_kv, n_kv, &w->attn_v));
}

static void list_qkv(struct text_layer *w)
{
    const struct linear *parts[] = {&w->attn_q, &w->attn_k, &w->attn_v};
    for (int i = 0; i < 3; i++) {
        if (!weight_exists(&parts[i]->weight))
            continue;
        w->qkv[w->n_qkv++] = parts[i];
        w->n_qkv_out += parts[i]->weight.n_out;
    }
    w->v_is_k = weight_exists(&w->attn_k.weight) && !weight_exists(&w->attn_v.weight);
}

static void find_attention(struct lookup *lookup, const struct gemma4_config *c, int32_t l, struct text_layer *w)
{
    const struct gemma4_layer *layer = &c->layers[l];
    bool owns = layer->kv_owner == l;
    int32_t d = c->d_model, n_q = c->n_heads * layer->head_dim, n_kv = layer->n_kv_heads * layer->head_dim;
    const struct gguf_tensor *fused = lookup_tensor(lookup, "attn_qkv.weight", NULL);
    lookup_vector(lookup, "attn_norm.weight", NULL, d, &w->attn_norm);
    if (fused != NULL) {
        find_fused_qkv(lookup, fused, d, n_q, n_kv, owns, w);
    } else {
        lookup_matrix(lookup, "attn_q.weight", NULL, d, n_q, &w->attn_q.weight);
        if (owns)
            lookup_matrix(lookup, "attn_k.weight", NULL, d, n_kv, &w->attn_k.weight);
        // Where the file has no V projection, V is K's. Only models without per-layer embeddings do that, on global layers.
        if (owns && (lookup_tensor(lookup, "attn_v.weight", NULL) != NULL || layer->sliding || c->per_layer_width > 0))
            lookup_matrix(lookup, "attn_v.weight", NULL, d, n_kv, &w->attn_v.weight);
    }
    list_qkv(w);
    lookup_vector(lookup, "attn_q_norm.weight", NULL, layer->head_dim, &w->attn_q_norm);
    if (owns)
        lookup_vector(lookup, "attn_k_norm.weight", NULL, layer->head_dim, &w->attn_k_norm);
    lookup_matrix(lookup, "attn_output.weight", NULL, n_q, d, &w->attn_output.weight);
    lookup_vector(lookup, "post_attention_norm.weight", "attn_post_norm.weight", d, &w->post_attention_norm);
}

static void find_feed_forward(struct lookup *lookup, const struct gemma4_config *c, int32_t l, struct text_layer *w)
{
    int32_t d = c->d_model, n_ff = c->layers[l].n_ff;
    const struct gguf_tensor *gate = lookup_tensor(lookup, "ffn_gate.weight", NULL);
    if (n_ff == 0 && gate != NULL)
        n_ff = gate->ne[1] <= GEMMA4_MAX_WIDTH ? (int32_t)gate->ne[1] : GEMMA4_MAX_WIDTH;
    lookup_vector(lookup, "ffn_norm.weight", "ffn_pre_norm.weight", d, &w->ffn_norm);
    lookup_matrix(lookup, "ffn_gate.weight", NULL, d, n_ff, &w->ffn_gate.weight);
    lookup_matrix(lookup, "ffn_up.weight", NULL, d, n_ff, &w->ffn_up.weight);
    lookup_matrix(lookup, "ffn_down.weight", NULL, n_ff, d, &w->ffn_down.weight);
    lookup_vector(lookup, "post_ffw_norm.weight", "ffn_post_norm.weight", d, &w->post_ffw_norm);
    lookup_optional_vector(lookup, "layer_output_scale.weight", "layer_scalar", 1, &w->layer_output_scale);
    c->layers[l].n_ff = n_ff;
}

static void find_per_layer(struct lookup *lookup, const struct gemma4_config *c, struct text_layer *w)
{
    lookup_matrix(lookup, "inp_gate.weight", NULL, c->d_model, c->per_layer_width, &w->inp_gate.weight);
    lookup_matrix(lookup, "proj.weight", NULL, c->per_layer_width, c->d_model, &w->proj.weight);
    lookup_vector(lookup, "post_norm.weight", NULL, c->d_model, &w->post_norm);
    w->end = (struct layer_end){.down = &w->ffn_down, .norm = &w->post_ffw_norm, .gate = &w->inp_gate, .proj = &w->proj};
}

static void find_experts(struct lookup *lookup, const struct gemma4_config *c, struct text_layer *w)
{
    int32_t d = c->d_model, n = c->n_expert_ff, n_experts = c->n_experts;
    w->has_experts = true;
    lookup_vector(lookup, "ffn_gate_inp.scale", NULL, d, &w->router_scale);
    lookup_matrix(lookup, "ffn_gate_inp.weight", NULL, d, n_experts, &w->router);
    if (!lookup->failed && w->router.type != GGUF_TYPE_F32) {
        lookup->failed = true;
        fail(lookup->err, CARAT_UNSUPPORTED, "tensor '%s' has the type %s; a router must be F32", w->router.name,
            gguf_type_name(w->router.type));
    }
    lookup_vector(lookup, "pre_ffw_norm_2.weight", "ffn_pre_norm_2.weight", d, &w->pre_ffw_norm_2);
    lookup_vector(lookup, "post_ffw_norm_1.weight", "ffn_post_norm_1.weight", d, &w->post_ffw_norm_1);
    lookup_vector(lookup, "post_ffw_norm_2.weight", "ffn_post_norm_2.weight", d, &w->post_ffw_norm_2);
    bool fused = lookup_tensor(lookup, "ffn_gate_up_exps.weight", NULL) != NULL;
    if (fused) {
        lookup_stack(lookup, "ffn_gate_up_exps.weight", d, 2 * n, n_experts, &w->gate_up_exps);
    } else {
        lookup_stack(lookup, "ffn_gate_exps.weight", d, n, n_experts, &w->gate_exps);
        lookup_stack(lookup, "ffn_up_exps.weight", d, n, n_experts, &w->up_exps);
    }
    lookup_stack(lookup, "ffn_down_exps.weight", n, d, n_experts, &w->down_exps);
    lookup_optional_vector(lookup, "ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale", n_experts, &w->down_exps_scale);
    w->experts = (struct experts){
        .n_experts = n_experts,
        .n_used = c->n_experts_used,
        .n_ff = n,
        .router_scale = &w->router_scale,
        .router = &w->router,
        .pre_norm = &w->pre_ffw_norm_2,
        .gate_up = &w->gate_up_exps,
        .gate = &w->gate_exps,
        .up = &w->up_exps,
        .down = &w->down_exps,
        .down_scale = &w->down_exps_scale,
        .eps = c->eps,
    };
}

// NVFP4 weights may bring a scalar that multiplies their product. A file with one would give wrong results in silence.
static void refuse_scales(struct lookup *lookup)
{
    const char *products[] = {"attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
        "inp_gate", "proj", "ffn_gate_up_exps", "ffn_gate_exps", "ffn_up_exps"};
    for (size_t i = 0; !lookup->failed && i < sizeof products / sizeof products[0]; i++) {
        char name[GGUF_MAX_NAME_BYTES];
        snprintf(name, sizeof name, "%s.scale", products[i]);
        if (lookup_tensor(lookup, name, NULL) == NULL)
            continue;
        lookup->failed = true;
        fail(lookup->err, CARAT_UNSUPPORTED,
            "tensor '%s%s': weights with a scale of their own are not supported; use another "
            "quantisation of the model",
            lookup->prefix, name);
    }
}

// Weights that the metadata deny would be left out silently, and the answers wrong.
static bool refuse_unannounced(struct lookup *lookup, const struct gemma4_config *c)
{
    const char *name = c->per_layer_width == 0 && lookup_tensor(lookup, "inp_gate.weight", NULL) != NULL ? "inp_gate.weight"
                       : c->n_experts == 0 && lookup_tensor(lookup, "ffn_gate_inp.weight", NULL) != NULL ? "ffn_gate_inp.weight"
                                                                                                         : NULL;
    if (name == NULL)
        return true;
    lookup->failed = true;
    return fail(lookup->err, CARAT_BAD_FILE, "tensor '%s%s' is there, but 'gemma4.%s' is 0 or missing", lookup->prefix, name,
        strcmp(name, "inp_gate.weight") == 0 ? "embedding_length_per_layer_input" : "expert_count");
}

// After the last layer.
static bool refuse_more_layers(struct lookup *lookup, const struct gemma4_config *c)
{
    snprintf(lookup->prefix, sizeof lookup->prefix, "blk.%d.", c->n_layers);
    if (lookup_tensor(lookup, "attn_norm.weight", NULL) == NULL)
        return true;
    lookup->failed = true;
    return fail(lookup->err, CARAT_BAD_FILE, "tensor '%sattn_norm.weight' is there, but 'gemma4.block_count' is %d",
        lookup->prefix, c->n_layers);
}

static bool find_layers(struct lookup *lookup, struct gemma4_text *text)
{
    const struct gemma4_config *c = &text->config;
    lookup->class = PLAN_LAYERS;
    text->layers = arena_take_array(&text->arena, (size_t)c->n_layers, sizeof *text->layers);
    if (text->layers == NULL)
        return fail(lookup->err, CARAT_NO_MEMORY, "no memory for the table of %d layers", c->n_layers);
    for (int32_t l = 0; l < c->n_layers && !lookup->failed; l++) {
        struct text_layer *w = &text->layers[l];
        snprintf(lookup->prefix, sizeof lookup->prefix, "blk.%d.", l);
        lookup->group = (uint32_t)l + 1;
        find_attention(lookup, c, l, w);
        find_feed_forward(lookup, c, l, w);
        if (c->per_layer_width > 0)
            find_per_layer(lookup, c, w);
        if (c->n_experts > 0)
            find_experts(lookup, c, w);
        refuse_scales(lookup);
        if (!lookup->failed)
            refuse_unannounced(lookup, c);
    }
    if (!lookup->failed)
        refuse_more_layers(lookup, c);
    lookup->prefix[0] = '\0';
    lookup->group = 0;
    return !lookup->failed;
}

static bool find_per_layer_table(struct lookup *lookup, struct gemma4_text *text)
{
    const struct gemma4_config *c = &text->config;
    int32_t n = c->per_layer_width * c->n_layers;
    const struct gguf_tensor *table = lookup_tensor(lookup, "per_layer_token_embd.weight", NULL);
    if (table == NULL)
        return fail(lookup->err, CARAT_NOT_FOUND,
            "tensor 'per_layer_token_embd.weight' is missing, but the metadata announce "
            "per-layer embeddings of width %d",
            c->per_layer_width);
    if (!lookup_describe(lookup, table, n, c->n_vocab, 1, &text->per_layer_table))
        return false;
    text->per_layer_source = gguf_file_source(text->file, table->part);
    struct plan_item item = {.weight = &text->per_layer_table, .class = PLAN_PER_LAYER_TABLE, .may_stay_on_disk = true};
    lookup->failed = !plan_add(lookup->plan, &item, lookup->err);
    lookup->class = PLAN_LAYERS;
    lookup_matrix(lookup, "per_layer_model_proj.weight", NULL, c->d_model, n, &text->per_layer_proj.weight);
    return lookup_vector(lookup, "per_layer_proj_norm.weight", NULL, c->per_layer_width, &text->per_layer_norm);
}

static bool find_globals(struct lookup *lookup, struct gemma4_text *text)
{
    const struct gemma4_config *c = &text->config;
    bool tied = lookup_tensor(lookup, "output.weight", NULL) == NULL;
    lookup->class = PLAN_EMBEDDING;
    text->token_embd = tied ? &text->head.weight : &text->embedding;
    if (!tied) {
        lookup_matrix(lookup, "token_embd.weight", NULL, c->d_model, c->n_vocab, &text->embedding);
        lookup_matrix(lookup, "output.weight", NULL, c->d_model, c->n_vocab, &text->head.weight);
    } else {
        lookup_matrix(lookup, "token_embd.weight", NULL, c->d_model, c->n_vocab, &text->head.weight);
    }
    lookup->class = PLAN_LAYERS;
    lookup_vector(lookup, "output_norm.weight", NULL, c->d_model, &text->output_norm);
    text->rope_factors = arena_take_array(&text->arena, (size_t)c->head_dim_global / 2, sizeof *text->rope_factors);
    if (text->rope_factors == NULL)
        return fail(lookup->err, CARAT_NO_MEMORY, "no memory for the rotary factors");
    if (!lookup_host_vector(lookup, "rope_freqs.weight", c->head_dim_global / 2, text->rope_factors, &text->rope_factors_weight))
        return false;
    return c->per_layer_width == 0 || find_per_layer_table(lookup, text);
}

bool gemma4_open(
    const struct gguf_file *file, enum gemma4_compat compat, struct plan *plan, struct gemma4_text **out, struct carat_error *err)
{
    *out = NULL;
    struct carat_error unwanted;
    struct lookup lookup;
    struct gemma4_text *text = calloc(1, sizeof *text);
    if (text == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the model's table");
    text->file = file;
    struct carat_error *told = err != NULL ? err : &unwanted;
    struct plan before = *plan;
    if (!gemma4_config_read(file, compat, &text->arena, &text->config, told) ||
        !lookup_begin(&lookup, file, plan, PLAN_LAYERS, told) || !find_globals(&lookup, text) || !find_layers(&lookup, text)) {
        plan_restore(plan, &before); // nothing may point into the table that is freed now
        gemma4_free(text);
        return false;
    }
    *out = text;
    return true;
}

void gemma4_unfold(struct gemma4_text *text, struct ops *ops)
{
    for (int32_t l = 0; text != NULL && ops->unfold != NULL && l < text->config.n_layers; l++)
        ops->unfold(ops, &text->layers[l].end);
}

void gemma4_fold(struct gemma4_text *text, struct ops *ops)
{
    bool has_room = true;
    for (int32_t l = 0; ops->fold != NULL && has_room && l < text->config.n_layers; l++) {
        struct text_layer *w = &text->layers[l];
        if (text->config.per_layer_width == 0 || w->has_experts)
            continue;
        const struct text_layer *next = l + 1 < text->config.n_layers ? w + 1 : NULL;
        w->end.post_norm = &w->post_norm;
        w->end.next_norm = next != NULL ? &next->attn_norm : NULL;
        w->end.next = next != NULL ? next->qkv : NULL;
        w->end.n_next = next != NULL ? next->n_qkv : 0;
        has_room = ops->fold(ops, &w->end);
    }
    if (!has_room)
        gemma4_unfold(text, ops);
}

uint64_t gemma4_folded_bytes(const struct gemma4_text *text)
{
    uint64_t n_bytes = 0;
    for (int32_t l = 0; l < text->config.n_layers; l++)
        n_bytes += text->layers[l].end.folded_bytes;
    return n_bytes;
}

bool gemma4_ready(struct gemma4_text *text, struct carat_error *err)
{
    const struct gemma4_config *c = &text->config;
    int32_t n_pairs = c->head_dim_global / 2;
    bool has_factors = weight_exists(&text->rope_factors_weight);
    // Without the tensor a quarter of a global head rotates ("proportional" rope).
    return rope_init(&text->rope_sliding, &text->arena, c->head_dim_sliding, c->rope_base_sliding, NULL, c->head_dim_sliding / 2,
               err) &&
           rope_init(&text->rope_global, &text->arena, c->head_dim_global, c->rope_base_global,
               has_factors ? text->rope_factors : NULL, n_pairs / 4, err);
}

void gemma4_free(struct gemma4_text *text)
{
    if (text != NULL)
        arena_free(&text->arena);
    free(text);
}

static struct linear *linear_if(struct linear *linear, const char *name)
{
    return weight_exists(&linear->weight) && strcmp(linear->weight.name, name) == 0 ? linear : NULL;
}

struct linear *gemma4_find_linear(struct gemma4_text *text, const char *name)
{
    // Also where the embedding table serves as output matrix: what is found is the product, never the look-up.
    if (strcmp(name, "output.weight") == 0)
        return &text->head;
    struct linear *found = linear_if(&text->per_layer_proj, name);
    for (int32_t l = 0; found == NULL && l < text->config.n_layers; l++) {
        struct text_layer *w = &text->layers[l];
        struct linear *all[] = {
            &w->attn_q, &w->attn_k, &w->attn_v, &w->attn_output, &w->ffn_gate, &w->ffn_up, &w->ffn_down, &w->inp_gate, &w->proj};
        for (size_t i = 0; found == NULL && i < sizeof all / sizeof all[0]; i++)
            found = linear_if(all[i], name);
    }
    return found;
}
