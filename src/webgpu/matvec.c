// matvec.c: products with few rows of activations, and those that settle and norm the stream by themselves (matvec.wgsl).

#include <stdio.h>
#include <string.h>

#include "webgpu/products.h"

enum {
    MOST_PRELOADED = 12, // units that an invocation keeps in registers
    MOST_GROUPS = 256,   // workgroups of one product: enough for the largest devices, few enough to make their inputs only once
    MOST_GATED_GROUPS = 384,
    // Integers, in pairs of units.
    MOST_PRELOADED_PAIRS = 6,
    STAGED_PAIRS = 64,   // staged at a time
    MOST_LANES = 32,     // that share a row
    MANY_ROWS = 1 << 15, // with so many, MANY_LANES share one
    MANY_LANES = 8,
    MOST_SPLITS = 8,     // of the columns
    ENOUGH_GROUPS = 120, // workgroups
};

struct matvec_params {
    uint32_t w[3][4];
    uint32_t n_rows, n_in, n_units, out_cols, out_first;
    uint32_t term_norm_at, norm_at, bias_at, other_cols, other_first;
    float scale, eps, cap, in_min, in_max, out_min, out_max;
    uint32_t n_pieces, head_vectors, groups_x, n_tiles;
};

struct matvec {
    uint32_t flags;
    int n_parts;
    const struct layout *layouts[3];
    uint32_t n_rows[3];
    uint32_t n_in;
    uint32_t n_units;                 // or pairs of them: integers
    uint32_t lanes_log2, rows, group; // shape of a workgroup
    uint32_t n_splits;                // workgroups that share the columns
    uint32_t term_splits;             // sums that make the stream's term
    uint32_t chunk;                   // units staged at a time
    bool preload, integers;
};

// May the input become integers? All types must multiply such, in pairs of units, and what is staged at a time must fit.
static bool takes_integers(const struct webgpu *gpu, const struct matvec *m)
{
    uint32_t pairs = m->n_units / 2, staged = !(m->flags & VEC_FUSED) && pairs > STAGED_PAIRS ? STAGED_PAIRS : pairs;
    uint32_t bytes = integer_bytes(divide_up(staged, 32) * 32);
    bool takes = !gpu->multiplies_floats && gpu_limits(gpu->gpu)->has_integer_dot && m->n_units % 2 == 0 &&
                 !(m->flags & VEC_ODD) && bytes <= gpu_limits(gpu->gpu)->max_workgroup_bytes;
    for (int k = 0; k < m->n_parts; k++)
        takes = takes && m->layouts[k]->type->integers;
    return takes;
}

// Into how many stretches of columns a long product is split, so that each workgroup needs only a part of a long input.
static uint32_t splits_of(uint32_t n_units)
{
    static const uint32_t candidates[] = {3, 4, 5, 6, 2};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        uint32_t n = candidates[i], units = n_units / n;
        if (n_units % n == 0 && units % 32 == 0 && units >= 64 && units <= 192)
            return n;
    }
    return 1;
}

uint32_t integer_splits_of(uint32_t n_pairs)
{
    for (uint32_t most = MOST_LANES; most <= 2 * MOST_LANES; most *= 2)
        for (uint32_t n = 1; n <= MOST_SPLITS; n++)
            if (n_pairs % (2 * n) == 0 && n_pairs / n <= most)
                return n;
    return 1;
}

// A lane for every pair of a row, unless there are many rows: more lanes and less for each to do is faster than the other way
// round, even where a quarter of them goes idle (docs/performance.md). Workgroups get smaller until there are enough of them.
static void choose_integer_shape(struct matvec *m, uint32_t n_rows)
{
    uint32_t pairs = m->n_units / m->n_splits;
    bool fused = m->flags & VEC_FUSED, gated = m->flags & VEC_GATED;
    m->rows = 1;
    uint32_t most = n_rows < MANY_ROWS ? MOST_LANES : MANY_LANES;
    m->lanes_log2 = log2_up(pairs < most ? pairs : most);
    m->group = 256;
    while (m->group > (fused ? 128 : 64) && divide_up(n_rows, m->group >> m->lanes_log2) * m->n_splits < ENOUGH_GROUPS)
        m->group /= 2;
    uint32_t steps = divide_up(pairs, 1u << m->lanes_log2);
    m->preload = steps * (gated ? 2 : 1) <= MOST_PRELOADED_PAIRS;
    if (fused)
        m->chunk = m->preload ? pairs : steps << m->lanes_log2;
    else
        m->chunk = pairs < STAGED_PAIRS ? pairs : STAGED_PAIRS;
}

// n_rows: of all parts together. may_split: the result may be left in sums.
static void choose_shape(const struct webgpu *gpu, struct matvec *m, uint32_t n_rows, bool may_split)
{
    m->integers = takes_integers(gpu, m);
    m->n_splits = 1;
    may_split = may_split && n_rows < MANY_ROWS; // there are workgroups enough
    if (m->integers) {
        m->n_units /= 2;
        m->n_splits = may_split ? integer_splits_of(m->n_units) : 1;
        choose_integer_shape(m, n_rows);
        return;
    }
    m->n_splits = may_split ? splits_of(m->n_units) : 1;
    bool fused = m->flags & VEC_FUSED, gated = m->flags & VEC_GATED;
    uint32_t most = gpu_limits(gpu->gpu)->max_workgroup_bytes < 32768 ? 64 : 192, units = m->n_units / m->n_splits;
    m->group = units <= 16 ? 64 : 256;
    m->rows = m->n_splits > 1 ? 2 : 1;
    m->lanes_log2 = units <= 8 ? 3 : units <= 48 ? (n_rows <= 512 ? 5 : 4) : units <= 64 || units % 64 != 0 ? 5 : 6;
    uint32_t lanes = 1u << m->lanes_log2;
    m->preload = divide_up(units, lanes) * m->rows * (gated ? 2 : 1) <= MOST_PRELOADED;
    if (m->preload)
        m->chunk = units < most || fused ? units : most;
    else
        m->chunk = fused ? divide_up(units, lanes) << m->lanes_log2 : most;
}

static uint32_t rows_of_group(const struct matvec *m)
{
    return (m->group >> m->lanes_log2) * m->rows;
}

// Do the weights of both norms get bindings of their own? Devices grant eight.
static bool binds_norms(uint32_t flags, int n_parts)
{
    return flags & VEC_TERM_NORM && flags & VEC_NORM && !(flags & VEC_PER_LAYER) && n_parts <= 2;
}

// Is the kernel made for this number of columns alone?
static bool knows_units(const struct matvec *m)
{
    return m->preload || m->integers || m->flags & VEC_FUSED;
}

size_t define_weight(char *text, size_t size, int k, const struct layout *layout)
{
    size_t n = (size_t)snprintf(text, size, "TYPE%d=%s WORDS%d=%u ", k, layout->type->snippet, k, layout->row_vectors);
    for (int plane = 1; plane < LAYOUT_PLANES; plane++)
        n += (size_t)snprintf(text + n, size - n, "PLANE%d_%d=%u ", plane, k, layout->starts[plane]);
    return n;
}

static void define_matvec(const struct webgpu *gpu, const struct matvec *m, char *text, size_t size)
{
    uint32_t f = m->flags, lanes = 1u << m->lanes_log2, sg = gpu->subgroup_size;
    bool gated = f & VEC_GATED, fused = f & VEC_FUSED, apart = binds_norms(f, m->n_parts);
    uint32_t totals = m->rows * (gated ? 2 : 1), steps = divide_up(m->chunk, lanes), units = m->n_units / m->n_splits;
    uint32_t staged = (m->preload ? steps * lanes : m->chunk) * (m->integers ? 16 : 8);
    uint32_t stretch = sg == 0 ? 1 : lanes < sg ? lanes : sg;
    size_t n = 0;
    bool is_static = knows_units(m);
    for (int k = 0; k < m->n_parts; k++) {
        n += define_weight(text + n, size - n, k, m->layouts[k]);
        n += (size_t)snprintf(text + n, size - n, "ROWS%d=%u ", k, m->n_rows[k]);
    }
    n += (size_t)snprintf(text + n, size - n,
        "STATIC=%d MORE_SPLITS=%u MOST_JOINED=%d N_IN=%u N_UNITS=%u N_IN_OF=%s N_UNITS_OF=%s W_OF=%s ROWS_OF=%s ", is_static,
        m->term_splits > 1 ? m->term_splits - 1 : 0, MOST_JOINED, m->n_in, m->n_units,
        m->integers || m->flags & VEC_FUSED ? "N_IN" : "p.n_in", is_static ? "N_UNITS" : "p.n_units", is_static ? "W" : "p.w",
        is_static ? "ROWS0" : "p.n_rows");
    n += (size_t)snprintf(text + n, size - n,
        "PARTS=%d MORE_PARTS=%d RUNS=%d MANY_PARTS=%d FUSED=%d TERM=%d TERM_NORM=%d SCALE=%d SETTLES=%d NORM=%d APART=%d "
        "VECTORS=%d "
        "GATED=%d ODD=%d BIAS=%d CLIP=%d CAP=%d PER_LAYER=%d SILU=%d QUICK=%d COMBINE=%d ",
        m->n_parts, m->n_parts - 1, gated ? 1 : m->n_parts, m->n_parts > 1 && !gated, fused, !!(f & VEC_TERM),
        !!(f & VEC_TERM_NORM), !!(f & VEC_SCALE), !!(f & VEC_TERM), !!(f & VEC_NORM), apart,
        !apart && f & (VEC_TERM_NORM | VEC_NORM | VEC_BIAS), gated, !!(f & VEC_ODD), !!(f & VEC_BIAS), !!(f & VEC_CLIP),
        !!(f & VEC_CAP), !!(f & VEC_PER_LAYER), !!(f & VEC_SILU), !!(f & VEC_QUICK), !!(f & VEC_COMBINE));
    snprintf(text + n, size - n,
        "WG=%u LANES=%u R=%u TOTALS=%u SPLIT=%d SPLIT_UNITS=%u CHUNK=%u CHUNKS=%u MANY_CHUNKS=%d STEPS=%u STAGED=%u ROUNDS=%u "
        "XS_VECTORS=%u PRELOAD=%d SHUFFLES=%u STRETCH=%u CROSS=%d SUMS=%u INTEGER=%d STRIDE=%u SHUFFLES_VECTORS=%d DOT=%s "
        "FETCH=%s INPUT=%s UNIT_VECTORS=%d",
        m->group, lanes, m->rows, totals, m->n_splits > 1, units, m->chunk, divide_up(units, m->chunk),
        !fused && (!m->preload || units > m->chunk), steps, staged, divide_up(staged, m->group), staged * 17 / 16 + 1, m->preload,
        log2_up(stretch), stretch, stretch < lanes, m->group / stretch * totals, m->integers, integer_stride(staged / 16),
        sg >= 16, m->integers ? "pair_dot" : "dot", m->integers ? "fetch_pair" : "fetch", m->integers ? "inside" : "x,pairs",
        m->integers ? 16 : 8);
}

static uint64_t matvec_key(const struct matvec *m)
{
    uint32_t values[20] = {
        m->flags, (uint32_t)m->n_parts, m->lanes_log2, m->rows, m->group, m->n_splits, m->term_splits, m->preload, m->integers};
    int n = 9;
    if (knows_units(m)) {
        values[n++] = m->n_in;
        values[n++] = m->n_units;
    }
    for (int k = 0; k < m->n_parts; k++) {
        values[n++] = (uint32_t)m->layouts[k]->index;
        values[n++] = knows_units(m) ? m->n_rows[k] : 0;
    }
    return webgpu_key(KERNEL_MATVEC, values, n);
}

static struct gpu_pipeline *matvec_kernel(struct webgpu *gpu, const struct matvec *m)
{
    uint64_t key = matvec_key(m);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char definitions[1400];
    define_matvec(gpu, m, definitions, sizeof definitions);
    return webgpu_kernel(gpu, key, "matvec", definitions);
}

// One workgroup a tile, or fewer that take several in turn. Parts of different types cannot take turns.
static void dispatch_matvec(struct webgpu *gpu, struct gpu_pipeline *kernel, const struct gpu_binding *bindings,
    const struct matvec *m, struct matvec_params *p, uint32_t n_tiles, uint32_t n_batch)
{
    bool in_turn = m->n_parts == 1 || m->flags & VEC_GATED;
    p->n_tiles = n_tiles;
    uint32_t most = m->flags & VEC_GATED && m->integers ? MOST_GATED_GROUPS : MOST_GROUPS;
    p->groups_x = in_turn && n_tiles > most ? divide_up(n_tiles, divide_up(n_tiles, most)) : n_tiles;
    gpu_dispatch(gpu->gpu, kernel, bindings, p, sizeof *p, p->groups_x, n_batch * m->n_splits, 1);
}

// --- plain products -----------------------------------------------------------------------------------------------------------

static struct matvec_params plain_params(const struct webgpu *gpu, struct tensor in, const struct linear *linear,
    const struct product *how, const struct weight_part *part, struct tensor out)
{
    const struct layout *layout = &device_of(linear)->layout;
    struct matvec_params p = {
        .n_rows = part->n_rows,
        .n_in = (uint32_t)in.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .out_first = how->out_first + part->first_row,
        .bias_at = webgpu_vector_at(&linear->bias) + part->first_row,
        .other_cols = (uint32_t)how->per_layer.n_cols,
        .other_first = how->per_layer_first + part->first_row,
        .cap = how->cap,
        .in_min = linear->in_min,
        .in_max = linear->in_max,
        .out_min = linear->out_min,
        .out_max = linear->out_max,
        .n_pieces = gpu->pieces.n_pieces,
        .head_vectors = gpu->pieces.head_dim / 4,
    };
    set_weight(p.w[0], layout);
    return p;
}

void plain_matvec(struct webgpu *gpu, struct tensor in, bool joins, const struct linear *linear, const struct product *how,
    const struct weight_part *part, struct tensor out)
{
    const struct layout *layout = &device_of(linear)->layout;
    uint32_t e = epilogue_flags(linear, how);
    struct matvec m = {
        .n_parts = 1, .layouts = {layout}, .n_rows = {part->n_rows}, .n_in = (uint32_t)in.n_cols, .n_units = layout->n_units};
    m.flags = (in.n_cols % 4 != 0 ? VEC_ODD : 0) | (e & PRODUCT_BIAS ? VEC_BIAS : 0) | (e & PRODUCT_CLIP ? VEC_CLIP : 0) |
              (e & PRODUCT_CAP ? VEC_CAP : 0) | (e & PRODUCT_PER_LAYER ? VEC_PER_LAYER : 0) | (joins ? VEC_COMBINE : 0);
    bool sums = how->flags & PRODUCT_MAY_WAIT && m.flags == 0 && linear->adapters == NULL && in.n_rows == 1 &&
                how->out_first == 0 && device_of(linear)->n_parts == 1 && out.n_cols == (int32_t)part->n_rows;
    choose_shape(gpu, &m, part->n_rows, sums);
    struct gpu_pipeline *kernel = matvec_kernel(gpu, &m);
    if (kernel == NULL)
        return;
    struct matvec_params p = plain_params(gpu, in, linear, how, part, out);
    p.n_units = m.n_units;
    struct gpu_binding bindings[GPU_MAX_BINDINGS] = {webgpu_tensor(in)};
    int n = 1;
    if (joins)
        webgpu_bind_pieces(gpu, &bindings[0], &bindings[n++]);
    if (e & PRODUCT_BIAS)
        bindings[n++] = webgpu_vectors(gpu);
    if (e & PRODUCT_PER_LAYER)
        bindings[n++] = webgpu_tensor(how->per_layer);
    bindings[n++] =
        m.n_splits > 1 ? webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)m.n_splits * part->n_rows * 4) : webgpu_tensor(out);
    bindings[n++] = bind_part(part);
    if (bindings[n - 2].buffer == NULL)
        return;
    dispatch_matvec(gpu, kernel, bindings, &m, &p, divide_up(part->n_rows, rows_of_group(&m)), (uint32_t)in.n_rows);
    if (m.n_splits > 1) {
        gpu->sums.out = out;
        gpu->sums.n_splits = m.n_splits;
    }
}

// --- products fused with the stream -------------------------------------------------------------------------------------------

// May one dispatch settle, norm and multiply? Each workgroup then keeps the whole row in its memory.
bool can_fuse(const struct webgpu *gpu, const struct stream *stream, const struct linear *const *parts, int n_parts)
{
    int32_t d = stream->x.n_cols;
    // Whole units for up to 32 lanes with their padding, the sums of 256 invocations, and room for reductions.
    uint64_t bytes = ((uint64_t)d + 1023) / 1024 * 1024 * 4 * 17 / 16 + 16 + 256 * 2 * 4 + 256 * 4;
    bool fuses = stream->x.n_rows == 1 && d % 32 == 0 && bytes <= gpu_limits(gpu->gpu)->max_workgroup_bytes && n_parts <= 3 &&
                 (stream->spare.buffer != NULL || stream->term.buffer == NULL);
    for (int k = 0; k < n_parts; k++)
        fuses = fuses && device_of(parts[k])->n_parts == 1 && !weight_exists(&parts[k]->bias) && !parts[k]->clipped &&
                parts[k]->adapters == NULL;
    return fuses;
}

static uint32_t fused_flags(const struct stream *stream, const struct fusion *f)
{
    uint32_t flags = f->flags | VEC_FUSED | (weight_exists(f->norm) ? VEC_NORM : 0);
    if (stream->term.buffer == NULL)
        return flags;
    return flags | VEC_TERM | (weight_exists(stream->term_norm) ? VEC_TERM_NORM : 0) |
           (weight_exists(stream->scale) ? VEC_SCALE : 0);
}

static int fused_bindings(struct webgpu *gpu, const struct stream *stream, const struct fusion *f, uint32_t flags,
    struct tensor out, struct gpu_binding *bindings)
{
    int n = 0;
    bindings[n++] = webgpu_tensor(stream->x);
    if (flags & VEC_TERM) {
        bindings[n++] = webgpu_tensor(stream->term);
        bindings[n++] = webgpu_tensor(stream->spare);
    }
    if (binds_norms(flags, f->n_parts)) {
        bindings[n++] = webgpu_vector(gpu, stream->term_norm);
        bindings[n++] = webgpu_vector(gpu, f->norm);
    } else if (flags & (VEC_TERM_NORM | VEC_NORM))
        bindings[n++] = webgpu_vectors(gpu);
    if (flags & VEC_PER_LAYER)
        bindings[n++] = webgpu_tensor(f->per_layer);
    bindings[n++] = webgpu_tensor(out);
    for (int k = 0; k < f->n_parts; k++)
        bindings[n++] = bind_part(&device_of(f->parts[k])->parts[0]);
    return n;
}

bool takes_sums(const struct webgpu *gpu, const struct stream *stream)
{
    const struct tensor *out = &gpu->sums.out;
    return out->buffer != NULL && out->buffer == stream->term.buffer && out->offset == stream->term.offset;
}

void fused_matvec(struct webgpu *gpu, struct stream *stream, const struct fusion *f, struct tensor out)
{
    uint32_t flags = fused_flags(stream, f);
    struct matvec m = {.flags = flags, .n_parts = f->n_parts, .n_in = (uint32_t)stream->x.n_cols};
    m.n_units = m.n_in / 32;
    m.term_splits = takes_sums(gpu, stream) ? gpu->sums.n_splits : 1;
    struct matvec_params p = {
        .n_in = (uint32_t)stream->x.n_cols,
        .out_cols = (uint32_t)out.n_cols,
        .term_norm_at = webgpu_vector_at(stream->term_norm) / 4,
        .norm_at = webgpu_vector_at(f->norm) / 4,
        .other_cols = (uint32_t)f->per_layer.n_cols,
        .other_first = f->per_layer_first,
        .scale = weight_exists(stream->scale) ? webgpu_first_value(stream->scale) : 1,
        .eps = stream->eps,
    };
    uint32_t n_rows = 0;
    for (int k = 0; k < f->n_parts; k++) {
        n_rows += (uint32_t)f->parts[k]->weight.n_out;
        m.layouts[k] = &device_of(f->parts[k])->layout;
        set_weight(p.w[k], m.layouts[k]);
        m.n_rows[k] = (uint32_t)f->parts[k]->weight.n_out;
    }
    choose_shape(gpu, &m, n_rows, false);
    p.n_units = m.n_units;
    struct gpu_pipeline *kernel = matvec_kernel(gpu, &m);
    if (kernel == NULL)
        return;
    uint32_t n_groups = 0;
    for (int k = 0; k < (flags & VEC_GATED ? 1 : f->n_parts); k++)
        n_groups += divide_up(m.n_rows[k], rows_of_group(&m));
    struct gpu_binding bindings[GPU_MAX_BINDINGS];
    fused_bindings(gpu, stream, f, flags, out, bindings);
    if (takes_sums(gpu, stream)) {
        bindings[1] = webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)m.term_splits * p.n_in * 4);
        gpu->sums.out.buffer = NULL;
    }
    dispatch_matvec(gpu, kernel, bindings, &m, &p, n_groups, 1);
    if (flags & VEC_TERM) {
        struct tensor settled = stream->spare;
        stream->spare = stream->x;
        stream->x = settled;
    }
    stream->term = (struct tensor){0};
    stream->term_norm = stream->scale = NULL;
}
