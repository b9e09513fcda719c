// vision_forward.c: one picture through the vision tower, step by step (Gemma 4 vision, pixels to projector).

#include <math.h>
#include <stdlib.h>

#include "model/vision.h"

// Turns the position table of the rotation into memory of the backend: row p holds cos(p f_i), then sin(p f_i), i < head_dim / 4,
// with f_i = 100^(-2 i / (head_dim / 2)).
static bool make_rope(struct vision_run *run, int32_t head_dim, int32_t n_positions, struct carat_error *err)
{
    struct ops *ops = run->ops->ops;
    int32_t quarter = head_dim / 4;
    size_t n_bytes = (size_t)n_positions * 2 * (size_t)quarter * sizeof(float);
    float *table = malloc(n_bytes);
    if (table == NULL || !tensor_new(ops, n_positions, 2 * quarter, &run->rope, err)) {
        free(table);
        return table != NULL || fail(err, CARAT_NO_MEMORY, "no memory for the picture's positions");
    }
    for (int32_t p = 0; p < n_positions; p++) {
        for (int32_t i = 0; i < quarter; i++) {
            double angle = p * pow(100, -2.0 * i / (2 * quarter));
            table[p * 2 * quarter + i] = (float)cos(angle);
            table[p * 2 * quarter + quarter + i] = (float)sin(angle);
        }
    }
    ops->write(ops, run->rope.buffer, 0, table, n_bytes);
    free(table);
    return true;
}

uint64_t vision_run_bytes(const struct vision_tower *t, int32_t tile_rows, int32_t n_soft)
{
    uint64_t n = (uint64_t)n_soft * (uint64_t)(t->pool * t->pool), dv = (uint64_t)t->d_vision;
    uint64_t tile = n < (uint64_t)tile_rows ? n : (uint64_t)tile_rows, pixels = (uint64_t)(3 * t->patch * t->patch);
    uint64_t floats = tile * (pixels + 3 * dv) + (uint64_t)n_soft * (dv + (uint64_t)t->d_text);
    return 4 * (t->encoder_free ? floats : floats + n * 4 * dv + tile * (uint64_t)t->n_ff);
}

static bool make_room(struct vision_run *run, struct carat_error *err)
{
    const struct vision_tower *t = run->tower;
    struct ops *ops = run->ops->ops;
    int32_t dv = t->d_vision, tile = run->tile, pixels = 3 * t->patch * t->patch;
    run->host_pixels = malloc((size_t)tile * (size_t)pixels * sizeof(float));
    if (run->host_pixels == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the picture's patches");
    if (!tensor_new(ops, tile, pixels, &run->pixels, err) || !tensor_new(ops, tile, dv, &run->normed, err) ||
        !tensor_new(ops, tile, dv, &run->mixed, err) || !tensor_new(ops, tile, dv, &run->term, err) ||
        !tensor_new(ops, run->n_soft, t->d_text, &run->soft, err))
        return false;
    if (t->encoder_free)
        return true;
    int32_t n_rows = run->n / run->n_columns, longest = n_rows > run->n_columns ? n_rows : run->n_columns;
    return tensor_new(ops, run->n, dv, &run->x, err) && tensor_new(ops, run->n, dv, &run->q, err) &&
           tensor_new(ops, run->n, dv, &run->k, err) && tensor_new(ops, run->n, dv, &run->v, err) &&
           tensor_new(ops, tile, t->n_ff, &run->wide, err) && tensor_new(ops, run->n_soft, dv, &run->pooled, err) &&
           make_rope(run, dv / t->n_heads, longest, err);
}

// Rows of a tile: fewer where each row has more patches to look at, so that a step stays short.
static int32_t tile_of(const struct tower_ops *ops, int32_t n)
{
    enum { USUAL_PATCHES = 2560 };
    int32_t tile = n > USUAL_PATCHES ? (int32_t)((int64_t)ops->tile_rows * USUAL_PATCHES / n) / 64 * 64 : ops->tile_rows;
    tile = tile < 64 ? 64 : tile;
    return n < tile ? n : tile;
}

bool vision_start(const struct vision_tower *tower, struct tower_ops *ops, const struct image *prepared, struct vision_run *run,
    struct carat_error *err)
{
    *run = (struct vision_run){.tower = tower, .ops = ops, .image = prepared};
    if (prepared->width < IMAGE_CELL || prepared->height < IMAGE_CELL || prepared->width % IMAGE_CELL != 0 ||
        prepared->height % IMAGE_CELL != 0)
        return fail(err, CARAT_BAD_ARGUMENT, "a picture of %d x %d pixels was not brought to the tower's size",
            (int)prepared->width, (int)prepared->height);
    int32_t n_columns = prepared->width / tower->patch, n_rows = prepared->height / tower->patch;
    if (n_columns > tower->n_positions || n_rows > tower->n_positions)
        return fail(err, CARAT_UNSUPPORTED, "the picture is %d x %d patches, the model knows %d positions along a side: crop it",
            (int)n_columns, (int)n_rows, (int)tower->n_positions);
    run->n_columns = n_columns;
    run->n = n_columns * n_rows;
    run->n_soft = image_token_count(prepared);
    run->tile = tile_of(ops, run->n);
    run->n_tiles = (run->n + run->tile - 1) / run->tile;
    run->n_steps = tower->encoder_free ? run->n_tiles : run->n_tiles * (1 + 2 * tower->n_layers) + 1;
    if (make_room(run, err))
        return true;
    vision_end(run);
    tensor_free(ops->ops, &run->soft);
    return false;
}

// Patches of the tile as numbers in the backend's memory.
static struct tensor upload_patches(struct vision_run *run, int32_t first, int32_t n, float scale, float shift)
{
    const struct vision_tower *t = run->tower;
    struct ops *ops = run->ops->ops;
    image_patches(run->image, t->patch, first, n, scale, shift, run->host_pixels);
    uint64_t n_bytes = (uint64_t)n * (uint64_t)run->pixels.n_cols * sizeof(float);
    ops->write(ops, run->pixels.buffer, run->pixels.offset, run->host_pixels, n_bytes);
    return tensor_rows(run->pixels, 0, n);
}

// Patches to vectors: the patch embedding and the positions.
static void embed_tile(struct vision_run *run, int32_t first, int32_t n)
{
    const struct vision_tower *t = run->tower;
    struct tower_ops *ops = run->ops;
    struct tensor x = tensor_rows(run->x, first, n);
    ops->project(ops, upload_patches(run, first, n, 2.0f / 255.0f, -1), &t->patch_embd, false, x);
    ops->add_positions(ops, x, &t->position_embd, first, run->n_columns);
}

static struct image_attention attention_of(const struct vision_run *run, const struct vision_layer *layer)
{
    const struct vision_tower *t = run->tower;
    return (struct image_attention){.n_heads = t->n_heads,
        .head_dim = t->d_vision / t->n_heads,
        .q_norm = &layer->attn_q_norm,
        .k_norm = &layer->attn_k_norm,
        .eps = t->eps,
        .n_columns = run->n_columns,
        .rope = run->rope};
}

// The first half of a layer: queries, keys and values of the tile's patches.
static void project_tile(struct vision_run *run, const struct vision_layer *layer, int32_t first, int32_t n)
{
    struct tower_ops *ops = run->ops;
    struct image_attention attention = attention_of(run, layer);
    struct tensor normed = tensor_rows(run->normed, 0, n), q = tensor_rows(run->q, first, n), k = tensor_rows(run->k, first, n),
                  v = tensor_rows(run->v, first, n);
    ops->norm(ops, tensor_rows(run->x, first, n), NULL, &layer->ln1, run->tower->eps, normed);
    ops->project(ops, normed, &layer->attn_q.linear, false, q);
    ops->project(ops, normed, &layer->attn_k.linear, false, k);
    ops->project(ops, normed, &layer->attn_v.linear, false, v);
    ops->image_prepare(ops, q, k, v, &attention, first);
}

// The second half: attention over all patches, the feed-forward.
static void finish_tile(struct vision_run *run, const struct vision_layer *layer, int32_t first, int32_t n)
{
    struct tower_ops *ops = run->ops;
    const struct vision_tower *t = run->tower;
    struct image_attention attention = attention_of(run, layer);
    struct tensor x = tensor_rows(run->x, first, n), normed = tensor_rows(run->normed, 0, n),
                  mixed = tensor_rows(run->mixed, 0, n), term = tensor_rows(run->term, 0, n), wide = tensor_rows(run->wide, 0, n);
    ops->image_attend(ops, tensor_rows(run->q, first, n), run->k, run->v, &attention, mixed);
    ops->project(ops, mixed, &layer->attn_out.linear, false, term);
    struct residual residual = {.term = term, .norm = &layer->attn_post_norm, .factor = 1};
    ops->norm(ops, x, &residual, &layer->ln2, t->eps, normed);
    enum activation activation = t->compat == TOWER_REFERENCE ? ACTIVATION_GELU_TANH : ACTIVATION_GELU_QUICK;
    ops->gated(ops, normed, &layer->ffn_gate.linear, &layer->ffn_up.linear, activation, wide);
    ops->project(ops, wide, &layer->ffn_down.linear, false, term);
    residual = (struct residual){.term = term, .norm = &layer->ffn_post_norm, .factor = 1, .scale = &layer->out_scale};
    ops->norm(ops, x, &residual, NULL, t->eps, (struct tensor){0});
}

// Vectors of soft tokens to the width of the text model. x may change.
static void project_soft(struct vision_run *run, struct tensor x, struct tensor soft)
{
    struct tower_ops *ops = run->ops;
    const struct vision_tower *t = run->tower;
    if (t->compat != TOWER_OLLAMA)
        ops->norm(ops, x, NULL, NULL, t->eps, x);
    ops->project(ops, x, &t->projection.linear, false, soft);
    if (t->compat == TOWER_OLLAMA)
        ops->norm(ops, soft, NULL, NULL, t->eps, soft);
}

// The encoder-free model: patches of 48 x 48 straight to soft tokens (12B unified vision). Its layer norms have an eps of 1e-5.
static void encoder_free_tile(struct vision_run *run, int32_t first, int32_t n)
{
    struct tower_ops *ops = run->ops;
    const struct vision_tower *t = run->tower;
    struct tensor x = tensor_rows(run->mixed, 0, n);
    struct tensor pixels = upload_patches(run, first, n, 1.0f / 255.0f, 0);
    ops->layer_norm(ops, pixels, &t->patch_norm[0], &t->patch_norm_bias[0], 1e-5f, pixels);
    ops->project(ops, pixels, &t->patch_embd, false, x);
    ops->layer_norm(ops, x, &t->patch_norm[1], &t->patch_norm_bias[1], 1e-5f, x);
    ops->add_positions(ops, x, &t->position_embd, first, run->n_columns);
    ops->layer_norm(ops, x, &t->patch_norm[2], &t->patch_norm_bias[2], 1e-5f, x);
    project_soft(run, x, tensor_rows(run->soft, first, n));
}

static void pool(struct vision_run *run)
{
    const struct vision_tower *t = run->tower;
    run->ops->image_pool(
        run->ops, run->x, run->n_columns, t->pool, sqrtf((float)t->d_vision), &t->std_bias, &t->std_scale, run->pooled);
    project_soft(run, run->pooled, run->soft);
}

bool vision_step(struct vision_run *run)
{
    int32_t stage = run->step / run->n_tiles, tile = run->step % run->n_tiles, first = tile * run->tile;
    int32_t n = run->n - first < run->tile ? run->n - first : run->tile;
    if (run->tower->encoder_free)
        encoder_free_tile(run, first, n);
    else if (stage == 0)
        embed_tile(run, first, n);
    else if (run->step == run->n_steps - 1)
        pool(run);
    else if (stage % 2 == 1)
        project_tile(run, &run->tower->layers[(stage - 1) / 2], first, n);
    else
        finish_tile(run, &run->tower->layers[(stage - 1) / 2], first, n);
    run->ops->ops->submit(run->ops->ops);
    return ++run->step == run->n_steps;
}

void vision_end(struct vision_run *run)
{
    struct ops *ops = run->ops->ops;
    struct tensor *tensors[] = {&run->x, &run->q, &run->k, &run->v, &run->rope, &run->pixels, &run->normed, &run->mixed,
        &run->term, &run->wide, &run->pooled};
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        tensor_free(ops, tensors[i]);
    free(run->host_pixels);
    run->host_pixels = NULL;
}
