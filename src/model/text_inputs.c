// text_inputs.c: what the host prepares for a pass: ids, rotary positions, last visible keys, rows of the table on disk.

#include <math.h>
#include <string.h>

#include "gguf/quants.h"
#include "model/text_internal.h"

// Fills the staging memory from front to back.
struct staging {
    struct text_context *context;
    uint64_t n_bytes;
};

static struct tensor stage(struct staging *staging, int32_t n_rows, int32_t n_cols, void **host)
{
    struct tensor tensor = {.buffer = staging->context->inputs, .offset = staging->n_bytes, .n_rows = n_rows, .n_cols = n_cols};
    *host = (char *)staging->context->staging + staging->n_bytes;
    staging->n_bytes += text_padded((uint64_t)n_rows * (uint64_t)n_cols * 4);
    return tensor;
}

static bool check_soft_runs(const struct text_batch *batch, int32_t d_model, struct carat_error *err)
{
    int32_t free_from = 0;
    for (int32_t i = 0; i < batch->n_soft; i++) {
        const struct soft_run *run = &batch->soft[i];
        if (run->row < free_from || run->n_rows < 1 || run->n_rows > batch->n - run->row)
            return fail(err, CARAT_BAD_ARGUMENT, "embedding rows %d to %lld do not fit a batch of %d positions", run->row,
                (long long)run->row + run->n_rows - 1, batch->n);
        if (run->rows.n_cols != d_model || run->first_row < 0 || run->n_rows > run->rows.n_rows - run->first_row)
            return fail(err, CARAT_BAD_ARGUMENT,
                "%d embeddings of width %d from row %d on are not there; the model's width is %d", run->n_rows, run->rows.n_cols,
                run->first_row, d_model);
        free_from = run->row + run->n_rows;
    }
    return true;
}

static bool stage_ids(struct staging *staging, const struct text_batch *batch, struct token_ids *ids, struct carat_error *err)
{
    if (batch->ids == NULL) {
        if (batch->n_soft > 0 || batch->device_ids.buffer == NULL || batch->device_ids.n_rows != batch->n)
            return fail(err, CARAT_BAD_ARGUMENT, "a batch without ids on the host must have all of them on the device");
        ids->device = batch->device_ids;
        return true;
    }
    void *room;
    ids->device = stage(staging, batch->n, 1, &room);
    ids->host = room;
    memcpy(room, batch->ids, (size_t)batch->n * sizeof *batch->ids);
    // The per-layer table has nothing for embeddings that come from outside: row 0 stands for them.
    for (int32_t i = 0; i < batch->n_soft; i++)
        memset((int32_t *)room + batch->soft[i].row, 0, (size_t)batch->soft[i].n_rows * sizeof(int32_t));
    int32_t n_vocab = staging->context->text->config.n_vocab;
    for (int32_t i = 0; i < batch->n; i++) {
        if (ids->host[i] < 0 || ids->host[i] >= n_vocab)
            return fail(err, CARAT_BAD_ARGUMENT, "token id %d is outside the vocabulary of %d", ids->host[i], n_vocab);
    }
    return true;
}

static bool has_images_both_ways(const struct gemma4_config *config, const struct text_batch *batch)
{
    bool found = false;
    for (int32_t i = 0; i < batch->n_soft; i++)
        found = found || batch->soft[i].is_image;
    return found && config->image_attention != IMAGES_CAUSAL;
}

// The last position that row `row` of the batch sees: its own, or the end of the image that it is part of.
static int32_t last_key_of(int32_t first_position, const struct text_batch *batch, int32_t row)
{
    for (int32_t i = 0; i < batch->n_soft; i++) {
        const struct soft_run *run = &batch->soft[i];
        if (run->is_image && row >= run->row && row < run->row + run->n_rows)
            return first_position + run->row + run->n_rows - 1;
    }
    return first_position + row;
}

static void stage_positions(
    struct staging *staging, int32_t batch_position, const struct text_batch *batch, int32_t first_row, struct text_positions *p)
{
    const struct gemma4_text *text = staging->context->text;
    int32_t n = batch->n - first_row;
    void *room;
    p->first_position = batch_position + first_row;
    p->rope_sliding = stage(staging, n, text->config.head_dim_sliding, &room);
    rope_fill(&text->rope_sliding, p->first_position, n, room);
    p->rope_global = stage(staging, n, text->config.head_dim_global, &room);
    rope_fill(&text->rope_global, p->first_position, n, room);
    if (!has_images_both_ways(&text->config, batch))
        return;
    p->last_key = stage(staging, n, 1, &room);
    for (int32_t i = 0; i < n; i++)
        ((int32_t *)room)[i] = last_key_of(batch_position, batch, first_row + i);
}

bool text_stage_inputs(struct text_context *context, int32_t first_position, const struct text_batch *batch, bool with_tail,
    struct text_inputs *inputs, struct carat_error *err)
{
    struct staging staging = {.context = context};
    *inputs = (struct text_inputs){0};
    if (!check_soft_runs(batch, context->text->config.d_model, err) || !stage_ids(&staging, batch, &inputs->ids, err))
        return false;
    stage_positions(&staging, first_position, batch, 0, &inputs->all);
    if (with_tail)
        stage_positions(&staging, first_position, batch, batch->n - batch->n_logits, &inputs->tail);
    context->ops->write(context->ops, context->inputs, 0, context->staging, staging.n_bytes);
    return true;
}

bool text_read_table_rows(struct text_context *context, const struct token_ids *ids, struct tensor rows, struct carat_error *err)
{
    const struct gemma4_text *text = context->text;
    const struct weight *table = &text->per_layer_table;
    float scale = (float)sqrt((double)text->config.per_layer_width);
    if (ids->host == NULL)
        return fail(err, CARAT_BAD_ARGUMENT, "the per-layer table is on disk, so the ids of a batch must be known on the host");
    for (int32_t i = 0; i < rows.n_rows; i++) {
        uint64_t offset = table->file_offset + (uint64_t)ids->host[i] * table->row_bytes;
        if (!gguf_source_read(text->per_layer_source, offset, context->table_row, (size_t)table->row_bytes, err))
            return fail_in(err, "reading a row of tensor '%s'", table->name);
        gguf_dequantize(table->type, context->table_row, context->table_values, (size_t)table->n_in);
        for (int32_t c = 0; c < table->n_in; c++)
            context->table_values[c] *= scale;
        uint64_t row_bytes = (uint64_t)table->n_in * sizeof(float);
        context->ops->write(context->ops, rows.buffer, rows.offset + (uint64_t)i * row_bytes, context->table_values, row_bytes);
    }
    return true;
}
