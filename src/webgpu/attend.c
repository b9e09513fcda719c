// attend.c: attention of one layer: preparing queries, storing keys and values, and the softmax over pieces of the keys.

#include <stdio.h>

#include "webgpu/internal.h"

enum { MIN_PIECE = 64, TILE = 32 };

static uint64_t head_key(enum kernel kernel, const struct attention *a, uint32_t flags)
{
    return (uint64_t)kernel | (uint64_t)flags << 8 | (uint64_t)a->kv->is_f32 << 16 | (uint64_t)(uint32_t)a->head_dim << 24;
}

static struct gpu_binding bind_keys(const struct attention *a, struct buffer *buffer)
{
    uint64_t n_bytes = (uint64_t)a->kv->capacity * (uint64_t)a->kv->row_elems * (a->kv->is_f32 ? 4 : 2);
    return (struct gpu_binding){gpu_buffer_of(buffer), 0, n_bytes};
}

static void prepare(struct webgpu *gpu, struct tensor qkv, const struct attention *a)
{
    uint64_t key = head_key(KERNEL_QK_PREPARE, a, a->writes_kv);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel == NULL) {
        char definitions[96];
        snprintf(definitions, sizeof definitions, "HD=%d STORES=%d KV_F32=%d KV_WORD=%s", a->head_dim, a->writes_kv, a->kv->is_f32,
            a->kv->is_f32 ? "f32" : "u32");
        kernel = webgpu_kernel(gpu, key, "qk_prepare", definitions);
    }
    if (kernel == NULL)
        return;
    uint32_t n_heads = (uint32_t)a->n_heads, n_kv = (uint32_t)a->n_kv_heads;
    struct {
        uint32_t n_heads, n_kv_heads, qkv_cols, v_first, q_norm_at, k_norm_at, first_position, capacity;
        float eps;
    } p = {n_heads, n_kv, (uint32_t)qkv.n_cols, (n_heads + (a->v_is_k ? 0 : n_kv)) * (uint32_t)a->head_dim,
        webgpu_vector_at(a->q_norm), webgpu_vector_at(a->k_norm), (uint32_t)a->first_position, (uint32_t)a->kv->capacity, a->eps};
    struct gpu_binding bindings[5] = {webgpu_tensor(qkv), webgpu_tensor(a->rope), webgpu_vectors(gpu)};
    if (a->writes_kv) {
        bindings[3] = bind_keys(a, a->kv->k);
        bindings[4] = bind_keys(a, a->kv->v);
    }
    gpu_dispatch(
        gpu->gpu, kernel, bindings, &p, sizeof p, n_heads + (a->writes_kv ? 2 * n_kv : 0), (uint32_t)qkv.n_rows, 1);
}

// The most keys that a row of the batch sees.
static uint32_t most_keys(const struct attention *a, uint32_t n_rows)
{
    uint32_t n = (uint32_t)a->first_position + n_rows;
    uint32_t window = (uint32_t)a->window + (a->last_key.buffer != NULL ? n_rows : 0);
    return a->window > 0 && window < n ? window : n;
}

static struct gpu_pipeline *attend_kernel(struct webgpu *gpu, const struct attention *a, bool in_pieces)
{
    bool has_last = a->last_key.buffer != NULL;
    uint64_t key = head_key(KERNEL_ATTEND, a, in_pieces | has_last << 1);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[128];
    snprintf(definitions, sizeof definitions, "HD=%d OWN=%d KV_F32=%d KV_WORD=%s PIECES=%d MAX_PIECES=%d LAST_KEY=%d", a->head_dim,
        (a->head_dim / 2 + 127) / 128, a->kv->is_f32, a->kv->is_f32 ? "f32" : "u32", in_pieces, MAX_PIECES, has_last);
    return webgpu_kernel(gpu, key, "attend", definitions);
}

// How many keys one workgroup takes: enough workgroups to fill the device, pieces no shorter than they are worth.
static uint32_t piece_length(const struct attention *a, uint32_t n_rows, uint32_t n_keys)
{
    uint32_t groups = (uint32_t)a->n_heads * n_rows;
    uint32_t wanted = groups >= 512 ? 1 : 512 / groups;
    wanted = wanted < MAX_PIECES ? wanted : MAX_PIECES;
    uint32_t length = divide_up(n_keys, wanted);
    length = length > MIN_PIECE ? length : MIN_PIECE;
    return divide_up(length, TILE) * TILE;
}

void webgpu_attend(struct ops *ops, struct tensor qkv, const struct attention *a, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_pieces(gpu);
    prepare(gpu, qkv, a);
    if (a->n_heads == 0)
        return;
    uint32_t n_rows = (uint32_t)qkv.n_rows, n_heads = (uint32_t)a->n_heads;
    uint32_t n_keys = most_keys(a, n_rows);
    uint32_t piece = piece_length(a, n_rows, n_keys);
    uint32_t n_pieces = divide_up(n_keys, piece);
    struct gpu_pipeline *kernel = attend_kernel(gpu, a, n_pieces > 1);
    if (kernel == NULL)
        return;
    struct {
        uint32_t n_heads, n_kv_heads, qkv_cols, first_position, n_rows, window, capacity, piece;
    } p = {n_heads, (uint32_t)a->n_kv_heads, (uint32_t)qkv.n_cols, (uint32_t)a->first_position, n_rows, (uint32_t)a->window,
        (uint32_t)a->kv->capacity, piece};
    struct gpu_binding bindings[6] = {webgpu_tensor(qkv), bind_keys(a, a->kv->k), bind_keys(a, a->kv->v), webgpu_tensor(out)};
    int n = 4;
    if (n_pieces > 1) {
        uint64_t n_marks = (uint64_t)n_rows * n_heads * MAX_PIECES;
        bindings[3] = webgpu_scratch(gpu, SCRATCH_PIECES, n_marks * (uint64_t)a->head_dim * 4);
        bindings[n++] = webgpu_scratch(gpu, SCRATCH_MARKS, n_marks * 8);
        if (bindings[3].buffer == NULL || bindings[4].buffer == NULL)
            return;
    }
    if (a->last_key.buffer != NULL)
        bindings[n++] = webgpu_tensor(a->last_key);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_heads, n_rows, n_pieces);
    if (n_pieces > 1) {
        gpu->pieces.out = out;
        gpu->pieces.n_pieces = n_pieces;
        gpu->pieces.n_heads = n_heads;
        gpu->pieces.head_dim = (uint32_t)a->head_dim;
    }
}

void webgpu_join_pieces(struct webgpu *gpu)
{
    if (gpu->pieces.out.buffer == NULL)
        return;
    struct tensor out = gpu->pieces.out;
    gpu->pieces.out.buffer = NULL;
    char definitions[32];
    snprintf(definitions, sizeof definitions, "MAX_PIECES=%d", MAX_PIECES);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_COMBINE, "combine", definitions);
    if (kernel == NULL)
        return;
    struct {
        uint32_t head_dim, n_pieces;
    } p = {gpu->pieces.head_dim, gpu->pieces.n_pieces};
    uint64_t n_marks = (uint64_t)out.n_rows * gpu->pieces.n_heads * MAX_PIECES;
    struct gpu_binding bindings[] = {webgpu_scratch(gpu, SCRATCH_PIECES, n_marks * p.head_dim * 4),
        webgpu_scratch(gpu, SCRATCH_MARKS, n_marks * 8), webgpu_tensor(out)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, gpu->pieces.n_heads * (uint32_t)out.n_rows, 1, 1);
}
