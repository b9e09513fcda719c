// attend.c: attention of one layer: preparing queries, storing keys and values, and the softmax over pieces of the keys.

#include <stdio.h>

#include "webgpu/internal.h"

enum {
    MIN_PIECE = 64,
    TILE = 32,
    ONE_LEAST = 16, // keys of attend_one's tile
    ONE_MOST = 64,
    LONG_PIECE = 256,
    MANY_GROUPS = 256, // workgroups of attend_many that keep a large device busy: fewer share out the keys
};

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
        snprintf(definitions, sizeof definitions, "HD=%d STORES=%d KV_F32=%d KV_WORD=%s", a->head_dim, a->writes_kv,
            a->kv->is_f32, a->kv->is_f32 ? "f32" : "u32");
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
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_heads + (a->writes_kv ? 2 * n_kv : 0), (uint32_t)qkv.n_rows, 1);
}

// The most keys that a row of the batch sees.
static uint32_t most_keys(const struct attention *a, uint32_t n_rows)
{
    uint32_t n = (uint32_t)a->first_position + n_rows;
    uint32_t window = (uint32_t)a->window + (a->last_key.buffer != NULL ? n_rows : 0);
    return a->window > 0 && window < n ? window : n;
}

// Query heads that one workgroup takes: as many as share a key head and fit workgroup memory.
static uint32_t heads_of_group(const struct attention *a)
{
    uint32_t n = (uint32_t)(a->n_heads / a->n_kv_heads), most = 2048 / (uint32_t)a->head_dim;
    most = most < 8 ? most : 8;
    for (uint32_t heads = most; heads > 1; heads--)
        if (n % heads == 0)
            return heads;
    return 1;
}

static struct gpu_pipeline *attend_kernel(struct webgpu *gpu, const struct attention *a, bool in_pieces)
{
    bool has_last = a->last_key.buffer != NULL;
    uint32_t n_heads = heads_of_group(a);
    uint64_t key = head_key(KERNEL_ATTEND, a, in_pieces | has_last << 1 | n_heads << 2);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[128];
    snprintf(definitions, sizeof definitions, "HD=%d HB=%u OWN=%d KV_F32=%d PIECES=%d LAST_KEY=%d", a->head_dim, n_heads,
        (a->head_dim / 2 + 127) / 128, a->kv->is_f32, in_pieces, has_last);
    return webgpu_kernel(gpu, key, "attend", definitions);
}

// How many keys one workgroup takes: enough workgroups to fill the device, pieces no shorter than they are worth.
static uint32_t piece_length(const struct attention *a, uint32_t n_rows, uint32_t n_keys)
{
    uint32_t groups = (uint32_t)a->n_heads / heads_of_group(a) * n_rows;
    uint32_t wanted = groups >= 512 ? 1 : 512 / groups;
    wanted = wanted < MAX_PIECES ? wanted : MAX_PIECES;
    uint32_t length = divide_up(n_keys, wanted);
    length = length > MIN_PIECE ? length : MIN_PIECE;
    return divide_up(length, TILE) * TILE;
}

// Where the results go: `out`, or pieces in scratch and their marks. Returns the number of bindings, 0 after a failure.
static int bind_results(
    struct webgpu *gpu, const struct attention *a, uint32_t n_pieces, struct tensor out, struct gpu_binding *bindings)
{
    bindings[0] = webgpu_tensor(out);
    if (n_pieces == 1)
        return 1;
    uint64_t n_marks = (uint64_t)out.n_rows * (uint64_t)a->n_heads * n_pieces;
    bindings[0] = webgpu_scratch(gpu, SCRATCH_PIECES, n_marks * (uint64_t)a->head_dim * 4);
    bindings[1] = webgpu_scratch(gpu, SCRATCH_MARKS, n_marks * 8);
    return bindings[0].buffer != NULL && bindings[1].buffer != NULL ? 2 : 0;
}

static void leave_pieces(struct webgpu *gpu, const struct attention *a, uint32_t n_pieces, struct tensor out)
{
    if (n_pieces == 1)
        return;
    gpu->pieces.out = out;
    gpu->pieces.n_pieces = n_pieces;
    gpu->pieces.n_heads = (uint32_t)a->n_heads;
    gpu->pieces.head_dim = (uint32_t)a->head_dim;
}

// --- one position -------------------------------------------------------------------------------------------------------------

// attend_one keeps a head's pairs in its 256 invocations, and divides them into groups of equal size.
static bool takes_one(const struct attention *a, struct tensor qkv)
{
    int32_t d = a->head_dim;
    return qkv.n_rows == 1 && a->n_heads > 0 && a->n_heads < 4096 && a->n_kv_heads < 4096 && !a->kv->is_f32 &&
           (d == 32 || d == 64 || d == 128 || d == 256 || d == 512) && (a->last_key.buffer == NULL || !a->writes_kv);
}

static struct gpu_pipeline *one_kernel(
    struct webgpu *gpu, const struct attention *a, uint32_t tile, bool in_pieces, const struct entry *entry)
{
    bool enters = entry != NULL;
    uint32_t values[] = {(uint32_t)a->head_dim, (uint32_t)a->n_heads, (uint32_t)a->n_kv_heads, tile,
        in_pieces | (uint32_t)a->writes_kv << 1 | (uint32_t)a->v_is_k << 2, enters ? entry->d : 0};
    uint64_t key = webgpu_key(KERNEL_ATTEND_ONE, values, sizeof values / sizeof values[0]);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    uint32_t lanes = 256 / tile;
    char definitions[300];
    int n = snprintf(definitions, sizeof definitions,
        "HD=%d TILE=%u STEPS=%u N_HEADS=%d N_KV_HEADS=%d V_FIRST=%d PIECES=%d STORES=%d SUMS_AT_ONCE=%d LANE_SHUFFLES=%u "
        "ENTERS=%d",
        a->head_dim, tile, (uint32_t)a->head_dim * tile / 2048, a->n_heads, a->n_kv_heads,
        a->n_heads + (a->v_is_k ? 0 : a->n_kv_heads), in_pieces, a->writes_kv, a->writes_kv || enters,
        gpu->subgroup_size >= lanes ? log2_up(lanes) : 0, enters);
    if (enters)
        snprintf(definitions + n, sizeof definitions - (size_t)n, " D=%u D_ROUNDS=%u OTHER_AT=%u TERM_AT=%u X_AT=%u", entry->d,
            divide_up(entry->d, 256), entry->places.other, entry->places.term, entry->places.x);
    return webgpu_kernel(gpu, key, "attend_one", definitions);
}

// Short pieces as long as the next product joins them all; a tile has no more keys than a piece, and leaves every invocation a
// vector.
static void cut_keys(uint32_t head_dim, uint32_t n_keys, uint32_t *piece, uint32_t *tile)
{
    uint32_t least = 2048 / head_dim > ONE_LEAST ? 2048 / head_dim : ONE_LEAST, most = head_dim > 256 ? 32 : ONE_MOST;
    *piece = least;
    while (divide_up(n_keys, *piece) > (n_keys <= MOST_JOINED * LONG_PIECE ? MOST_JOINED : MAX_PIECES))
        *piece += *piece < ONE_MOST ? *piece : ONE_MOST;
    *tile = *piece < most ? *piece : most;
}

// entry: of a layer whose raw projections lack the factors of norms; NULL: qkv holds them whole.
static void attend_one(
    struct webgpu *gpu, struct tensor qkv, const struct attention *a, const struct entry *entry, struct tensor out)
{
    uint32_t position = (uint32_t)a->first_position, n_heads = (uint32_t)a->n_heads;
    uint32_t low = a->window > 0 && position >= (uint32_t)a->window ? position - (uint32_t)a->window + 1 : 0;
    uint32_t n_keys = position + 1 - low, piece, tile;
    cut_keys((uint32_t)a->head_dim, n_keys, &piece, &tile);
    uint32_t n_pieces = divide_up(n_keys, piece);
    struct gpu_pipeline *kernel = one_kernel(gpu, a, tile, n_pieces > 1, entry);
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {
        webgpu_tensor(qkv), webgpu_tensor(a->rope), webgpu_vectors(gpu), bind_keys(a, a->kv->k), bind_keys(a, a->kv->v)};
    int n = bind_results(gpu, a, n_pieces, out, &bindings[5]);
    if (kernel == NULL || n == 0)
        return;
    struct {
        uint32_t q_norm_at, k_norm_at, position, low, capacity, piece, n_pieces;
        float eps;
        uint32_t post_norm_at;
        float scale, stream_eps;
    } p = {webgpu_vector_at(a->q_norm), webgpu_vector_at(a->k_norm), position, low, (uint32_t)a->kv->capacity, piece, n_pieces,
        a->eps, 0, 0, 0};
    if (entry != NULL) {
        bindings[0] = entry->results;
        bindings[5 + n] = entry->settled;
        p.post_norm_at = entry->post_norm_at;
        p.scale = entry->scale;
        p.stream_eps = entry->eps;
    }
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_heads, 1, n_pieces);
    leave_pieces(gpu, a, n_pieces, out);
}

// --- any number of positions --------------------------------------------------------------------------------------------------

void webgpu_attend_tile(uint32_t head_dim, struct attend_tile *t)
{
    uint32_t vectors = divide_up(head_dim, 4);
    uint32_t ln = vectors <= 24 ? 8 : vectors <= 64 ? 16 : 32, lm = 128 / ln; // so that it all fits 16 KB of workgroup memory
    uint32_t tm = ln == 8 ? 8 : 4;                                            // and the registers
    uint32_t groups = ln == 8 ? 2 : 1, quads = ln == 8 ? 4 : ln == 16 ? 2 : 1, columns = divide_up(vectors, ln);
    uint32_t of_keys = 16 * groups, of_values = 4 * quads * columns, of_tops = tm * lm / 4;
    uint32_t room = of_keys > of_values ? of_keys : of_values;
    t->n_queries = tm * lm;
    t->n_keys = 4 * groups * ln;
    snprintf(t->definitions, sizeof t->definitions,
        "VECTORS=%u PADDED=%d CHUNKS=%u COLUMNS=%u TM=%u LM=%u LN=%u GROUPS=%u QUADS=%u FOURS=%u XV=%u YV=%u VV=%u ROOM=%u",
        vectors, vectors % 4 != 0, divide_up(vectors, 4), columns, tm, lm, ln, groups, quads, tm / 4, divide_up(tm * 4, ln),
        of_keys / lm, of_values / lm, room > of_tops ? room : of_tops);
}

// Enough queries that share a key head to fill a tile?
static bool takes_many(const struct attention *a, struct tensor qkv)
{
    return a->head_dim % 8 == 0 && a->head_dim <= 512 && qkv.n_rows * (a->n_heads / a->n_kv_heads) >= 64;
}

static void attend_many(struct webgpu *gpu, struct tensor qkv, const struct attention *a, struct tensor out)
{
    struct attend_tile t;
    webgpu_attend_tile((uint32_t)a->head_dim, &t);
    uint32_t n_rows = (uint32_t)qkv.n_rows, n_heads = (uint32_t)a->n_heads, n_kv = (uint32_t)a->n_kv_heads;
    uint32_t n_tiles = divide_up(n_rows * (n_heads / n_kv), t.n_queries);
    // The rows of a tile see windows that begin at different keys.
    uint32_t most = most_keys(a, n_rows), n_keys = most + (a->window > 0 ? t.n_queries / (n_heads / n_kv) + 1 : 0);
    uint32_t wanted = divide_up(MANY_GROUPS, n_tiles * n_kv);
    uint32_t piece = divide_up(n_keys, (wanted < MAX_PIECES ? wanted : MAX_PIECES) * t.n_keys) * t.n_keys;
    piece = piece > 2 * t.n_keys ? piece : 2 * t.n_keys;
    uint32_t n_pieces = divide_up(n_keys, piece);
    bool in_pieces = n_pieces > 1, has_last = a->last_key.buffer != NULL;
    uint64_t key = head_key(KERNEL_ATTEND_MANY, a, in_pieces | has_last << 1);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel == NULL) {
        char definitions[256];
        snprintf(definitions, sizeof definitions, "HALVES=%d PIECES=%d LAST_KEY=%d %s", !a->kv->is_f32, in_pieces, has_last,
            t.definitions);
        kernel = webgpu_kernel(gpu, key, "attend_many", definitions);
    }
    struct {
        uint32_t n_heads, n_kv_heads, qkv_cols, first_position, n_rows, window, capacity, piece, n_pieces;
    } p = {n_heads, n_kv, (uint32_t)qkv.n_cols, (uint32_t)a->first_position, n_rows, (uint32_t)a->window,
        (uint32_t)a->kv->capacity, piece, n_pieces};
    struct gpu_binding bindings[6] = {webgpu_tensor(qkv), bind_keys(a, a->kv->k), bind_keys(a, a->kv->v)};
    int n = bind_results(gpu, a, n_pieces, out, &bindings[3]);
    if (kernel == NULL || n == 0)
        return;
    if (has_last)
        bindings[3 + n] = webgpu_tensor(a->last_key);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_tiles, n_kv, n_pieces);
    leave_pieces(gpu, a, n_pieces, out);
}

static void attend_rows(struct webgpu *gpu, struct tensor qkv, const struct attention *a, struct tensor out)
{
    uint32_t n_rows = (uint32_t)qkv.n_rows, n_heads = (uint32_t)a->n_heads;
    uint32_t n_keys = most_keys(a, n_rows);
    uint32_t piece = piece_length(a, n_rows, n_keys);
    uint32_t n_pieces = divide_up(n_keys, piece);
    struct gpu_pipeline *kernel = attend_kernel(gpu, a, n_pieces > 1);
    struct {
        uint32_t n_heads, n_kv_heads, qkv_cols, first_position, n_rows, window, capacity, piece, n_pieces;
    } p = {n_heads, (uint32_t)a->n_kv_heads, (uint32_t)qkv.n_cols, (uint32_t)a->first_position, n_rows, (uint32_t)a->window,
        (uint32_t)a->kv->capacity, piece, n_pieces};
    struct gpu_binding bindings[6] = {webgpu_tensor(qkv), bind_keys(a, a->kv->k), bind_keys(a, a->kv->v)};
    int n = bind_results(gpu, a, n_pieces, out, &bindings[3]);
    if (kernel == NULL || n == 0)
        return;
    if (a->last_key.buffer != NULL)
        bindings[3 + n] = webgpu_tensor(a->last_key);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_heads / heads_of_group(a), n_rows, n_pieces);
    leave_pieces(gpu, a, n_pieces, out);
}

void webgpu_attend(struct ops *ops, struct tensor qkv, const struct attention *a, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    gpu->makes_factors = takes_one(a, qkv);
    if (gpu->makes_factors && webgpu_lacks_factors(gpu, qkv)) {
        struct entry entry = webgpu_take_entry(gpu);
        attend_one(gpu, qkv, a, &entry, out);
        return;
    }
    webgpu_join_all(gpu);
    if (gpu->makes_factors) {
        attend_one(gpu, qkv, a, NULL, out);
        return;
    }
    if (a->head_dim % 8 != 0 || a->head_dim > 2048) {
        struct carat_error err = {0};
        fail(&err, CARAT_UNSUPPORTED, "the GPU has no kernels for heads of %d elements; use the CPU", a->head_dim);
        webgpu_failed(gpu, &err);
        return;
    }
    prepare(gpu, qkv, a);
    if (a->n_heads > 0) // else keys and values alone
        (takes_many(a, qkv) ? attend_many : attend_rows)(gpu, qkv, a, out);
}

// --- pieces -------------------------------------------------------------------------------------------------------------------

bool webgpu_takes_pieces(const struct webgpu *gpu, struct tensor in)
{
    const struct tensor *out = &gpu->pieces.out;
    return out->buffer != NULL && out->buffer == in.buffer && out->offset == in.offset && in.n_rows == 1 && out->n_rows == 1 &&
           gpu->pieces.n_pieces <= MOST_JOINED && gpu->pieces.head_dim % 4 == 0;
}

void webgpu_bind_pieces(struct webgpu *gpu, struct gpu_binding *pieces, struct gpu_binding *marks)
{
    uint64_t n_marks = (uint64_t)gpu->pieces.out.n_rows * gpu->pieces.n_heads * gpu->pieces.n_pieces;
    *pieces = webgpu_scratch(gpu, SCRATCH_PIECES, n_marks * gpu->pieces.head_dim * 4);
    *marks = webgpu_scratch(gpu, SCRATCH_MARKS, n_marks * 8);
}

void webgpu_join_pieces(struct webgpu *gpu)
{
    if (gpu->pieces.out.buffer == NULL)
        return;
    struct tensor out = gpu->pieces.out;
    gpu->pieces.out.buffer = NULL;
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_COMBINE, "combine", "");
    if (kernel == NULL)
        return;
    struct {
        uint32_t head_dim, n_pieces;
    } p = {gpu->pieces.head_dim, gpu->pieces.n_pieces};
    struct gpu_binding bindings[3];
    webgpu_bind_pieces(gpu, &bindings[0], &bindings[1]);
    bindings[2] = webgpu_tensor(out);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, gpu->pieces.n_heads * (uint32_t)out.n_rows, 1, 1);
}
