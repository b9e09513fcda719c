// text.c: the forward pass of the text model, layer by layer (Gemma 4 text model).

#include "model/text.h"

#include <math.h>
#include <string.h>

#include "model/text_internal.h"

// A pass under way.
struct step {
    struct ops *ops;
    const struct gemma4_text *text;
    struct text_context *context;
    const struct text_batch *batch;
    const struct kv_cache *kv;
    const struct text_positions *positions; // of the rows that are still in it
    struct stream stream;                   // [n, d]
    struct tensor per_layer;                // [n, P L]
    int32_t n;                              // rows that are still in it
    int32_t stored_layer;                   // whose keys and values were stored ahead of its queries; -1: none
};

// The first n rows of a scratch tensor, as rows of n_cols.
static struct tensor view(struct tensor scratch, int32_t n_rows, int32_t n_cols)
{
    return (struct tensor){.buffer = scratch.buffer, .offset = scratch.offset, .n_rows = n_rows, .n_cols = n_cols};
}

// Leaves x + RMS(term, norm), times scale, to the next operation.
static void add_later(struct step *s, struct tensor term, const struct weight *norm, const struct weight *scale)
{
    s->stream.term = term;
    s->stream.term_norm = norm;
    s->stream.scale = scale;
}

static struct attention attention_of_layer(const struct step *s, int32_t l)
{
    const struct gemma4_config *c = &s->text->config;
    const struct gemma4_layer *layer = &c->layers[l];
    const struct text_layer *w = &s->text->layers[l];
    bool both_ways =
        c->image_attention == IMAGES_BOTH_WAYS || (c->image_attention == IMAGES_BOTH_WAYS_ON_SLIDING && layer->sliding);
    return (struct attention){
        .n_heads = c->n_heads,
        .n_kv_heads = layer->n_kv_heads,
        .head_dim = layer->head_dim,
        .q_norm = &w->attn_q_norm,
        .k_norm = &w->attn_k_norm,
        .eps = c->eps,
        .writes_kv = layer->kv_owner == l && l != s->stored_layer,
        .v_is_k = w->v_is_k,
        .window = layer->sliding ? c->window : 0,
        .first_position = s->positions->first_position,
        .rope = layer->sliding ? s->positions->rope_sliding : s->positions->rope_global,
        .last_key = both_ways ? s->positions->last_key : (struct tensor){0},
        .kv = kv_view(s->kv, l),
    };
}

static bool ends_folded(const struct step *s, const struct text_layer *w)
{
    return s->n == 1 && w->end.folded != NULL && w->ffn_down.adapters == NULL && w->inp_gate.adapters == NULL &&
           w->proj.adapters == NULL;
}

// One decoder layer. The residual stream is read and written in place; its last addition is left pending.
static void layer_forward(struct step *s, int32_t l)
{
    struct ops *ops = s->ops;
    const struct gemma4_config *c = &s->text->config;
    const struct text_layer *w = &s->text->layers[l];
    struct attention attention = attention_of_layer(s, l);
    int n_parts = l == s->stored_layer ? 1 : w->n_qkv; // queries come first
    struct tensor qkv = view(s->context->qkv, s->n, n_parts == 1 ? w->attn_q.weight.n_out : w->n_qkv_out);
    struct tensor heads = view(s->context->heads, s->n, c->n_heads * attention.head_dim);
    struct tensor gated = view(s->context->gated, s->n, c->layers[l].n_ff);
    struct tensor term = view(s->context->term, s->n, c->d_model);

    ops->norm_project(ops, &s->stream, &w->attn_norm, w->qkv, n_parts, qkv);
    ops->attend(ops, qkv, &attention, heads);
    ops->project(ops, heads, &w->attn_output, term);
    add_later(s, term, &w->post_attention_norm, NULL);

    ops->norm_gated(ops, &s->stream, &w->ffn_norm, &w->ffn_gate, &w->ffn_up, ACTIVATION_GELU_TANH, gated);
    if (ends_folded(s, w)) {
        ops->finish_layer(ops, &s->stream, &w->end, gated, s->per_layer, l, term);
        add_later(s, term, &w->post_norm, &w->layer_output_scale);
        return;
    }
    ops->project(ops, gated, &w->ffn_down, term);
    if (w->has_experts) {
        struct tensor routed = view(s->context->experts, s->n, c->d_model);
        ops->experts(ops, s->stream.x, &w->experts, routed);
        ops->add_norms(ops, term, &w->post_ffw_norm_1, routed, &w->post_ffw_norm_2, c->eps, term);
    }
    if (c->per_layer_width == 0) {
        add_later(s, term, &w->post_ffw_norm, &w->layer_output_scale);
        return;
    }
    add_later(s, term, &w->post_ffw_norm, NULL);

    struct tensor injected = view(s->context->per_layer_gated, s->n, c->per_layer_width);
    ops->per_layer_gate(ops, &s->stream, &w->inp_gate, s->per_layer, l, injected);
    ops->project(ops, injected, &w->proj, term);
    add_later(s, term, &w->post_norm, &w->layer_output_scale);
}

// The keys and values of all rows of layer l, without its queries.
static void store_keys_and_values(struct step *s, int32_t l)
{
    const struct text_layer *w = &s->text->layers[l];
    struct attention attention = attention_of_layer(s, l);
    struct tensor kv = view(s->context->qkv, s->n, w->n_qkv_out - w->attn_q.weight.n_out);
    attention.n_heads = 0;
    s->ops->norm_project(s->ops, &s->stream, &w->attn_norm, w->qkv + 1, w->n_qkv - 1, kv);
    s->ops->attend(s->ops, kv, &attention, (struct tensor){0});
    s->stored_layer = l;
}

static void capture(struct step *s, const char *name, int32_t layer, struct tensor rows)
{
    if (s->batch->capture != NULL)
        s->batch->capture(s->batch->capture_context, name, layer, rows);
}

static void capture_stream(struct step *s, int32_t layer)
{
    if (s->batch->capture == NULL)
        return;
    s->ops->settle(s->ops, &s->stream);
    capture(s, "layer", layer, s->stream.x);
}

// The layer-0 input: scaled rows of the embedding table, and embeddings from outside as they are.
static void embed(struct step *s, const struct text_inputs *inputs)
{
    const struct gemma4_config *c = &s->text->config;
    s->stream = (struct stream){
        .x = view(s->context->x, s->n, c->d_model),
        .spare = view(s->context->spare, s->n, c->d_model),
        .eps = c->eps,
    };
    s->ops->embed(s->ops, s->text->token_embd, &inputs->ids, (float)sqrt((double)c->d_model), s->stream.x);
    for (int32_t i = 0; i < s->batch->n_soft; i++) {
        const struct soft_run *run = &s->batch->soft[i];
        s->ops->copy_rows(s->ops, run->rows, run->first_row, s->stream.x, run->row, run->n_rows);
    }
    capture(s, "embed", 0, s->stream.x);
}

static bool prepare_per_layer_inputs(struct step *s, const struct text_inputs *inputs, struct carat_error *err)
{
    const struct gemma4_config *c = &s->text->config;
    const struct weight *table = &s->text->per_layer_table;
    if (c->per_layer_width == 0)
        return true;
    s->per_layer = view(s->context->per_layer, s->n, c->per_layer_width * c->n_layers);
    if (table->home == WEIGHT_DISK) {
        if (!text_read_table_rows(s->context, &inputs->ids, s->per_layer, err))
            return false;
    } else {
        s->ops->embed(s->ops, table, &inputs->ids, (float)sqrt((double)c->per_layer_width), s->per_layer);
    }
    s->ops->per_layer_inputs(
        s->ops, s->stream.x, s->per_layer, &s->text->per_layer_proj, &s->text->per_layer_norm, c->eps, c->n_layers, s->per_layer);
    capture(s, "ple", 0, s->per_layer);
    return true;
}

// Goes on with the last n rows only.
static void keep_last_rows(struct step *s, int32_t n, const struct text_positions *positions)
{
    int32_t first = s->n - n;
    if (first == 0)
        return;
    struct stream *stream = &s->stream;
    s->ops->settle(s->ops, stream);
    s->ops->copy_rows(s->ops, stream->x, first, stream->spare, 0, n);
    struct tensor kept = view(stream->spare, n, stream->x.n_cols);
    stream->spare = view(stream->x, n, stream->x.n_cols);
    stream->x = kept;
    if (s->per_layer.buffer != NULL) {
        struct tensor tail = view(s->context->per_layer_tail, n, s->per_layer.n_cols);
        s->ops->copy_rows(s->ops, s->per_layer, first, tail, 0, n);
        s->per_layer = tail;
    }
    s->positions = positions;
    s->n = n;
}

static void output(struct step *s)
{
    struct text_context *context = s->context;
    const struct gemma4_config *c = &s->text->config;
    context->hidden = view(context->hidden, s->n, c->d_model);
    context->logits = view(context->logits, s->n, c->n_vocab);
    s->ops->norm(s->ops, &s->stream, &s->text->output_norm, context->hidden);
    capture(s, "norm", 0, context->hidden);
    s->ops->head(s->ops, context->hidden, &s->text->head, c->softcap, c->suppressed, c->n_suppressed, context->logits);
}

static bool check_batch(
    const struct text_context *context, struct kv_cache *kv, const struct text_batch *batch, struct carat_error *err)
{
    if (batch->n < 1 || batch->n > context->options.max_batch)
        return fail(err, CARAT_BAD_ARGUMENT, "a batch of %d positions does not fit a context made for 1 to %d", batch->n,
            context->options.max_batch);
    if (batch->n_logits < 0 || batch->n_logits > batch->n || batch->n_logits > context->options.max_logits)
        return fail(err, CARAT_BAD_ARGUMENT, "logits of %d rows were asked of a batch of %d in a context made for %d",
            batch->n_logits, batch->n, context->options.max_logits);
    return kv_reserve(kv, batch->n, err);
}

bool text_forward(struct text_context *context, struct kv_cache *kv, const struct text_batch *batch, struct carat_error *err)
{
    const struct gemma4_config *c = &context->text->config;
    struct text_inputs inputs;
    struct step s = {
        .ops = context->ops,
        .text = context->text,
        .context = context,
        .batch = batch,
        .kv = kv,
        .positions = &inputs.all,
        .n = batch->n,
        .stored_layer = -1,
    };
    // Rows without logits leave at the last layer that owns keys and values, once theirs are stored.
    int32_t leave_at = context->options.run_all_rows || batch->n_logits == batch->n ? c->n_layers : c->n_kv_layers - 1;
    bool with_tail = batch->n_logits > 0 && leave_at < c->n_layers;
    if (!check_batch(context, kv, batch, err) || !text_stage_inputs(context, kv->n_committed, batch, with_tail, &inputs, err))
        return false;
    embed(&s, &inputs);
    if (!prepare_per_layer_inputs(&s, &inputs, err))
        return false;
    for (int32_t l = 0; l < c->n_layers; l++) {
        if (l == leave_at) {
            store_keys_and_values(&s, l);
            if (batch->n_logits == 0)
                break;
            keep_last_rows(&s, batch->n_logits, &inputs.tail);
        }
        layer_forward(&s, l);
        capture_stream(&s, l);
    }
    if (batch->n_logits > 0) {
        keep_last_rows(&s, batch->n_logits, NULL);
        output(&s);
    }
    kv_commit(kv, batch->n);
    return true;
}
