// fold.c: products of matrices, made once so that fewer have to be multiplied with later. A folded matrix is kept as 16-bit
// integers with a scale for every 64 (w_folded.wgsl), as inputs of products are, and is as exact as they.

#include <stdio.h>
#include <stdlib.h>

#include "webgpu/fold.h"

enum { FOLD_ROWS = 32 }; // of a folded matrix, made by a workgroup

void matrix_describe(struct matrix *m, int32_t n_in, int32_t n_rows)
{
    static const struct layout_type type = {.snippet = "w_folded", .integers = true};
    uint32_t plane = (uint32_t)n_in / 16, scales = divide_up((uint32_t)n_in / 64, 4);
    *m = (struct matrix){.n_in = (uint32_t)n_in, .n_rows = (uint32_t)n_rows};
    m->layout = (struct layout){.type = &type, .index = 255, .row_vectors = 2 * plane + scales, .starts = {0, plane, 2 * plane}};
    m->n_bytes = (uint64_t)m->layout.row_vectors * 16 * m->n_rows;
}

bool matrix_make_room(struct webgpu *gpu, struct matrix *m)
{
    if (m->n_bytes > gpu_limits(gpu->gpu)->max_binding_bytes)
        return false;
    m->buffer = gpu_buffer_new(gpu->gpu, (m->n_bytes + 255) & ~(uint64_t)255, NULL);
    return m->buffer != NULL;
}

void matrix_free(struct webgpu *gpu, struct matrix *m)
{
    gpu_buffer_free(gpu->gpu, m->buffer);
    m->buffer = NULL;
}

struct tensor matrix_decode(struct webgpu *gpu, const struct weight *weight, int32_t first_row, int32_t n_rows)
{
    struct tensor ids = webgpu_scratch_tensor(gpu, SCRATCH_IDS_A, n_rows, 1);
    struct tensor rows = webgpu_scratch_tensor(gpu, SCRATCH_NORMED, n_rows, weight->n_in);
    int32_t *numbers = calloc((size_t)n_rows, sizeof *numbers);
    if (numbers == NULL || ids.buffer == NULL || rows.buffer == NULL) {
        free(numbers);
        return (struct tensor){0};
    }
    for (int32_t i = 0; i < n_rows; i++)
        numbers[i] = first_row + i;
    gpu_write(gpu->gpu, gpu_buffer_of(ids.buffer), 0, numbers, (uint64_t)n_rows * 4);
    free(numbers);
    webgpu_embed(&gpu->ops, weight, &(struct token_ids){.device = ids}, 1, rows);
    return rows;
}

bool matrix_multiply(struct webgpu *gpu, struct tensor left, const struct weight *norm, const struct weight *other_norm,
    const struct linear *right, const struct matrix *m, uint32_t first_row)
{
    const struct device_weight *w = device_of(right);
    char definitions[64];
    snprintf(definitions, sizeof definitions, "TYPE0=%s TWO_NORMS=%d", w->layout.type->snippet, other_norm != NULL);
    uint64_t key = KERNEL_FOLD | (uint64_t)w->layout.index << 8 | (uint64_t)(other_norm != NULL) << 16;
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, key, "fold", definitions);
    if (kernel == NULL)
        return false;
    struct {
        uint32_t w0[4], n_left, n_right, n_units, norm_at, other_norm_at, first_row, row_words, low_at, scales_at;
    } p = {.n_left = (uint32_t)left.n_rows,
        .n_right = (uint32_t)left.n_cols,
        .n_units = m->n_in / 32,
        .norm_at = webgpu_vector_at(norm),
        .other_norm_at = webgpu_vector_at(other_norm),
        .first_row = first_row,
        .row_words = m->layout.row_vectors * 4,
        .low_at = m->layout.starts[1] * 4,
        .scales_at = m->layout.starts[2] * 4};
    set_weight(p.w0, &w->layout);
    struct gpu_binding bindings[] = {webgpu_tensor(left), webgpu_vectors(gpu), matrix_bind(m), bind_part(&w->parts[0])};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(m->n_in, FOLD_COLUMNS), divide_up(p.n_left, FOLD_ROWS), 1);
    return true;
}

bool matrix_round(struct webgpu *gpu, struct tensor rows, const struct matrix *m)
{
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_ROUND_ROWS, "round_rows", "");
    if (kernel == NULL)
        return false;
    struct {
        uint32_t n_cols, row_words, low_at, scales_at;
    } p = {(uint32_t)rows.n_cols, m->layout.row_vectors * 4, m->layout.starts[1] * 4, m->layout.starts[2] * 4};
    struct gpu_binding bindings[] = {webgpu_tensor(rows), matrix_bind(m)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(p.n_cols, 64 * 64), (uint32_t)rows.n_rows, 1);
    return true;
}

bool is_plain(const struct linear *linear)
{
    return device_of(linear)->n_parts == 1 && !weight_exists(&linear->bias) && !linear->clipped;
}
