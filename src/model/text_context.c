// text_context.c: the memory that passes of the text model share.

#include "model/text.h"

#include <stdlib.h>

#include "model/text_internal.h"

struct widths {
    int32_t qkv, heads, gated;
};

static int32_t larger(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static struct widths widest(const struct gemma4_text *text)
{
    const struct gemma4_config *c = &text->config;
    struct widths w = {0};
    for (int32_t l = 0; l < c->n_layers; l++) {
        w.qkv = larger(w.qkv, text->layers[l].n_qkv_out);
        w.heads = larger(w.heads, c->n_heads * c->layers[l].head_dim);
        w.gated = larger(w.gated, c->layers[l].n_ff);
    }
    return w;
}

// One tensor of a context: its rows and columns, 0 columns when the model has no use for it.
struct part {
    struct tensor *tensor;
    int32_t n_rows, n_cols;
};

enum { N_PARTS = 12 };

static void list_parts(struct text_context *context, struct part parts[N_PARTS])
{
    const struct gemma4_config *c = &context->text->config;
    struct widths w = widest(context->text);
    int32_t n = context->options.max_batch, m = context->options.max_logits, p = c->per_layer_width;
    const struct part all[N_PARTS] = {
        {&context->x, n, c->d_model},
        {&context->spare, n, c->d_model},
        {&context->term, n, c->d_model},
        {&context->qkv, n, w.qkv},
        {&context->heads, n, w.heads},
        {&context->gated, n, w.gated},
        {&context->experts, n, c->n_experts > 0 ? c->d_model : 0},
        {&context->per_layer, n, p * c->n_layers},
        {&context->per_layer_tail, m, p * c->n_layers},
        {&context->per_layer_gated, n, p},
        {&context->hidden, m, c->d_model},
        {&context->logits, m, c->n_vocab},
    };
    for (int i = 0; i < N_PARTS; i++)
        parts[i] = all[i];
}

uint64_t text_padded(uint64_t n_bytes)
{
    return (n_bytes + 255) & ~(uint64_t)255;
}

static uint64_t part_bytes(struct part part)
{
    return text_padded((uint64_t)part.n_rows * (uint64_t)part.n_cols * 4);
}

// ids, last keys, and cosines with sines of both kinds of layers; once for all rows and once for those with logits.
static uint64_t inputs_bytes(const struct gemma4_config *c, const struct text_options *options)
{
    uint64_t total = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t rows = (uint64_t)(i == 0 ? options->max_batch : options->max_logits);
        total += 2 * text_padded(rows * 4) + text_padded(rows * (uint64_t)c->head_dim_sliding * 4) +
                 text_padded(rows * (uint64_t)c->head_dim_global * 4);
    }
    return total;
}

uint64_t text_context_bytes(const struct gemma4_text *text, const struct text_options *options)
{
    struct text_context context = {.text = text, .options = *options};
    struct part parts[N_PARTS];
    list_parts(&context, parts);
    uint64_t total = inputs_bytes(&text->config, options);
    for (int i = 0; i < N_PARTS; i++)
        total += part_bytes(parts[i]);
    return total;
}

static bool take_device_memory(struct text_context *context, struct carat_error *err)
{
    struct part parts[N_PARTS];
    list_parts(context, parts);
    for (int i = 0; i < N_PARTS; i++) {
        if (parts[i].n_cols == 0)
            continue;
        // A buffer each: a GPU forbids reading and writing one buffer within one operation.
        struct buffer *buffer = context->ops->buffer_new(context->ops, part_bytes(parts[i]), err);
        if (buffer == NULL)
            return fail_in(err, "working memory for batches of %d", context->options.max_batch);
        *parts[i].tensor = (struct tensor){.buffer = buffer, .n_rows = parts[i].n_rows, .n_cols = parts[i].n_cols};
    }
    context->inputs = context->ops->buffer_new(context->ops, context->staging_bytes, err);
    return context->inputs != NULL;
}

static bool take_host_memory(struct text_context *context, struct carat_error *err)
{
    const struct weight *table = &context->text->per_layer_table;
    context->staging = malloc((size_t)context->staging_bytes);
    bool done = context->staging != NULL;
    if (weight_exists(table) && table->home == WEIGHT_DISK) {
        context->table_row = malloc((size_t)table->row_bytes);
        context->table_values = malloc((size_t)table->n_in * sizeof(float));
        done = done && context->table_row != NULL && context->table_values != NULL;
    }
    return done || fail(err, CARAT_NO_MEMORY, "no memory for the inputs of batches of %d", context->options.max_batch);
}

struct text_context *text_context_new(
    struct ops *ops, const struct gemma4_text *text, const struct text_options *options, struct carat_error *err)
{
    if (options->max_batch < 1 || options->max_batch > ops->max_batch || options->max_logits < 0 ||
        options->max_logits > options->max_batch) {
        fail(err, CARAT_BAD_ARGUMENT,
            "batches of %d with %d rows of logits are not possible; backend '%s' takes batches up to %d", options->max_batch,
            options->max_logits, ops->name, ops->max_batch);
        return NULL;
    }
    struct text_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for a context");
        return NULL;
    }
    *context = (struct text_context){
        .ops = ops,
        .text = text,
        .options = *options,
        .n_bytes = text_context_bytes(text, options),
        .staging_bytes = inputs_bytes(&text->config, options),
    };
    if (!take_host_memory(context, err) || !take_device_memory(context, err)) {
        text_context_free(context);
        return NULL;
    }
    return context;
}

void text_context_free(struct text_context *context)
{
    if (context == NULL)
        return;
    struct part parts[N_PARTS];
    list_parts(context, parts);
    for (int i = 0; i < N_PARTS; i++)
        context->ops->buffer_free(context->ops, parts[i].tensor->buffer);
    context->ops->buffer_free(context->ops, context->inputs);
    free(context->table_values);
    free(context->table_row);
    free(context->staging);
    free(context);
}
