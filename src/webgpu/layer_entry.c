// layer_entry.c: a layer's queries, keys and values for one row, in the dispatch that ends the layer before (layer_end.c).
//
// Be x1 the stream without its last term, which is p = proj . e, normed: the stream is x2 = s (x1 + r post_norm p), where the
// factor r of the norm needs all of p. The next layer multiplies W with its own norm of that,
//   c (W . diag(next_norm) . x1 + r (W . diag(next_norm post_norm) . proj) . e),
// where c is the factor of that norm and the matrix in brackets is made once ("folded"). So one dispatch (end_enter.wgsl) makes
// p, x1 and both products; r and c, and x2 on the way, are left to attention, which norms queries and keys anyway
// (attend_one.wgsl). Any other operation joins first: the products are then made again in the usual way.

#include <stdio.h>

#include "webgpu/fold.h"

enum { MANY_LANES = 32, MOST_PARTS = 3, ROWS_AT_ONCE = 512 };

// Where the results lie in their buffer, in floats: the products with x1, those with e, p, x1.
static struct entry_places places_of(uint32_t n_rows, uint32_t d)
{
    uint32_t rows = divide_up(n_rows, 64) * 64;
    return (struct entry_places){.other = rows, .term = 2 * rows, .x = 2 * rows + d, .n = 2 * rows + 2 * d};
}

static uint32_t rows_of(const struct layer_end *end)
{
    uint32_t n_rows = 0;
    for (int k = 0; k < end->n_next; k++)
        n_rows += (uint32_t)end->next[k]->weight.n_out;
    return n_rows;
}

// The part of a buffer in which all parts of next lie. No buffer: they lie in several.
static struct gpu_binding bind_next(const struct layer_end *end)
{
    struct gpu_binding all = bind_part(&device_of(end->next[0])->parts[0]);
    for (int k = 1; k < end->n_next; k++) {
        struct gpu_binding part = bind_part(&device_of(end->next[k])->parts[0]);
        if (part.buffer != all.buffer)
            return (struct gpu_binding){0};
        uint64_t last = all.offset + all.n_bytes, part_last = part.offset + part.n_bytes;
        all.offset = part.offset < all.offset ? part.offset : all.offset;
        all.n_bytes = (part_last > last ? part_last : last) - all.offset;
    }
    return all;
}

// --- the kernel ---------------------------------------------------------------------------------------------------------------

struct shape {
    struct end_shape end;
    uint32_t lanes, lanes_log2; // of a row of proj and folded
    uint32_t few_steps;         // rounds of those lanes
    uint32_t many_steps;        // of MANY_LANES, for a row of next
    uint32_t n_groups;
};

static struct shape shape_of(const struct layer_end *end, const struct folded *f)
{
    struct shape s = {.end = end_shape_of(end, f)};
    uint32_t pairs = s.end.width / 64;
    s.lanes_log2 = log2_up(pairs < MANY_LANES ? pairs : MANY_LANES);
    s.lanes = 1u << s.lanes_log2;
    s.few_steps = divide_up(pairs, s.lanes);
    s.many_steps = divide_up(s.end.d / 64, MANY_LANES);
    for (int k = 0; k < end->n_next; k++)
        s.n_groups += divide_up((uint32_t)end->next[k]->weight.n_out, END_GROUP / MANY_LANES);
    s.n_groups += divide_up(s.end.d, END_GROUP >> s.lanes_log2) + divide_up(rows_of(end), END_GROUP >> s.lanes_log2);
    return s;
}

static uint32_t stretches_of(const struct shape *s)
{
    uint32_t few = s->few_steps * s->lanes, many = s->many_steps * MANY_LANES;
    return few > many ? few : many;
}

struct product_text {
    char *text;
    size_t size, n;
    int k;
    uint32_t start; // workgroups before it
};

static void define_product(struct product_text *t, const struct layout *layout, const char *of, const char *from, uint32_t n_rows,
    uint32_t out, bool many, const struct shape *s)
{
    uint32_t lanes = many ? MANY_LANES : s->lanes;
    t->n += define_weight(t->text + t->n, t->size - t->n, t->k, layout);
    t->n += (size_t)snprintf(t->text + t->n, t->size - t->n,
        "OF%d=%s FROM%d=%s ROWS%d=%u START%d=%u OUT%d=%u LANES%d=%u STEPS%d=%u PAIRS%d=%u KIND%d=%d SUM%d=%s ", t->k, of, t->k,
        from, t->k, n_rows, t->k, t->start, t->k, out, t->k, lanes, t->k, many ? s->many_steps : s->few_steps, t->k,
        (many ? s->end.d : s->end.width) / 64, t->k, !many, t->k, many ? "_many" : "_few");
    t->start += divide_up(n_rows, END_GROUP / lanes);
    t->k++;
}

static struct gpu_pipeline *enter_kernel(struct webgpu *gpu, const struct layer_end *end, const struct folded *f)
{
    static const char *const starts[MOST_PARTS] = {"p.starts.x", "p.starts.y", "p.starts.z"};
    struct shape s = shape_of(end, f);
    const struct layout *proj = &device_of(end->proj)->layout;
    uint32_t values[8 + 2 * MOST_PARTS] = {
        s.end.d, s.end.width, s.end.n_sums[0], s.end.n_sums[1], s.end.n_sums[2], (uint32_t)proj->index, (uint32_t)end->n_next};
    int n_values = 7;
    for (int k = 0; k < end->n_next; k++) {
        values[n_values++] = (uint32_t)device_of(end->next[k])->layout.index;
        values[n_values++] = (uint32_t)end->next[k]->weight.n_out;
    }
    uint64_t key = webgpu_key(KERNEL_END_ENTER, values, n_values);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char text[2400];
    uint32_t n_rows = rows_of(end), row = 0, staged_many = s.many_steps * MANY_LANES * 16,
             staged_few = s.few_steps * s.lanes * 16;
    struct entry_places places = places_of(n_rows, s.end.d);
    struct product_text t = {.text = text, .size = sizeof text};
    for (int k = 0; k < end->n_next; k++) {
        const struct linear *part = end->next[k];
        define_product(&t, &device_of(part)->layout, "next", starts[k], (uint32_t)part->weight.n_out, row, true, &s);
        row += (uint32_t)part->weight.n_out;
    }
    define_product(&t, proj, "proj", "0u", s.end.d, places.term, false, &s);
    define_product(&t, &f->next.layout, "folded", "0u", n_rows, places.other, false, &s);
    t.n += define_end(text + t.n, sizeof text - t.n, &s.end);
    snprintf(text + t.n, sizeof text - t.n,
        "PRODUCTS=%d INTEGER=1 STRIDE=%u SHUFFLES_VECTORS=%d OF_STREAM0=1 OF_STREAM1=0 Z_ROUNDS=%u WIDTH_ROUNDS=%u "
        "STAGED_STREAM=%u STAGED_WIDTH=%u X_AT=%u MANY=%d MANY_LOG2=%u MANY_SHUFFLES=%d FEW=%u FEW_LOG2=%u FEW_SHUFFLES=%d",
        t.k, integer_stride(stretches_of(&s)), gpu->subgroup_size >= 16, divide_up(staged_many, END_GROUP),
        divide_up(staged_few, END_GROUP), staged_many, staged_few, places.x, MANY_LANES, log2_up(MANY_LANES),
        gpu->subgroup_size >= MANY_LANES, s.lanes, s.lanes_log2, gpu->subgroup_size >= s.lanes);
    return webgpu_kernel(gpu, key, "end_enter", text);
}

// --- folding ------------------------------------------------------------------------------------------------------------------

static bool can_enter(const struct webgpu *gpu, const struct layer_end *end, const struct folded *f)
{
    bool can = end->next != NULL && end->n_next <= MOST_PARTS && weight_exists(end->next_norm) && weight_exists(end->post_norm) &&
               device_of(end->proj)->layout.type->integers;
    for (int k = 0; can && k < end->n_next; k++)
        can = is_plain(end->next[k]) && device_of(end->next[k])->layout.type->integers;
    if (!can)
        return false;
    struct shape s = shape_of(end, f);
    struct gpu_binding next = bind_next(end);
    return next.buffer != NULL && next.n_bytes <= gpu_limits(gpu->gpu)->max_binding_bytes &&
           integer_bytes(stretches_of(&s)) <= gpu_limits(gpu->gpu)->max_workgroup_bytes;
}

void entry_describe(struct webgpu *gpu, const struct layer_end *end, struct folded *folded)
{
    if (!can_enter(gpu, end, folded))
        return;
    matrix_describe(&folded->next, end->proj->weight.n_in, (int32_t)rows_of(end));
    if (!webgpu_folding_pays(gpu, (double)folded->next.n_bytes))
        folded->next.n_bytes = 0;
}

// Some rows at a time, so that their scratch stays small.
static bool fold_part(
    struct webgpu *gpu, const struct layer_end *end, const struct weight *part, const struct matrix *next, uint32_t first_row)
{
    bool done = true;
    for (int32_t row = 0; done && row < part->n_out; row += ROWS_AT_ONCE) {
        int32_t n = part->n_out - row < ROWS_AT_ONCE ? part->n_out - row : ROWS_AT_ONCE;
        struct tensor rows = matrix_decode(gpu, part, row, n);
        done = rows.buffer != NULL &&
               matrix_multiply(gpu, rows, end->next_norm, end->post_norm, end->proj, next, first_row + (uint32_t)row);
    }
    return done;
}

bool entry_make(struct webgpu *gpu, const struct layer_end *end, struct folded *folded)
{
    bool done = matrix_make_room(gpu, &folded->next);
    uint32_t first_row = 0;
    for (int k = 0; done && k < end->n_next; k++) {
        done = fold_part(gpu, end, &end->next[k]->weight, &folded->next, first_row);
        first_row += (uint32_t)end->next[k]->weight.n_out;
    }
    return done && enter_kernel(gpu, end, folded) != NULL;
}

// --- running ------------------------------------------------------------------------------------------------------------------

static bool is_same(struct tensor a, struct tensor b)
{
    return a.buffer != NULL && a.buffer == b.buffer && a.offset == b.offset;
}

// Is this the stream that the late end has left, and the product that was folded into it? And will attention make the factors, as
// it did last? Else all would be made twice.
static bool fits(const struct webgpu *gpu, const struct stream *stream, const struct weight *norm,
    const struct linear *const *parts, int n_parts)
{
    const struct layer_end *end = gpu->late.end;
    bool fits = end != NULL && gpu->makes_factors && gpu->late.products.buffer == NULL && is_same(stream->x, gpu->late.settled) &&
                is_same(stream->term, gpu->late.out) && stream->term_norm == end->post_norm && norm == end->next_norm &&
                n_parts == end->n_next && can_fuse(gpu, stream, parts, n_parts);
    for (int k = 0; fits && k < n_parts; k++)
        fits = parts[k] == end->next[k];
    return fits;
}

bool webgpu_enter_layer(struct webgpu *gpu, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    if (!fits(gpu, stream, norm, parts, n_parts))
        return false;
    struct late_end *late = &gpu->late;
    const struct layer_end *end = late->end;
    struct shape s = shape_of(end, end->folded);
    struct gpu_pipeline *kernel = enter_kernel(gpu, end, end->folded);
    struct gpu_binding results = webgpu_scratch(gpu, SCRATCH_ENTRY, places_of(rows_of(end), s.end.d).n * 4);
    struct gpu_binding next = bind_next(end);
    if (kernel == NULL || results.buffer == NULL)
        return false;
    struct {
        uint32_t norm_at, next_norm_at;
        float eps;
        uint32_t pad, starts[4];
    } p = {.norm_at = webgpu_vector_at(end->norm) / 4, .next_norm_at = webgpu_vector_at(norm) / 4, .eps = late->eps};
    for (int k = 0; k < n_parts; k++)
        p.starts[k] = (uint32_t)((device_of(parts[k])->parts[0].offset - next.offset) / 16);
    struct gpu_binding bindings[] = {webgpu_tensor(late->x), late->sums, late->per_layer, webgpu_vectors(gpu), results, next,
        bind_part(&device_of(end->proj)->parts[0]), matrix_bind(&end->folded->next)};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, s.n_groups, 1, 1);
    late->products = out;
    late->scale_weight = stream->scale;
    stream->term = (struct tensor){0};
    stream->term_norm = stream->scale = NULL;
    return true;
}

bool webgpu_lacks_factors(const struct webgpu *gpu, struct tensor products)
{
    return gpu->late.end != NULL && is_same(products, gpu->late.products);
}

struct entry webgpu_take_entry(struct webgpu *gpu)
{
    struct late_end late = gpu->late;
    gpu->late.end = NULL;
    uint32_t d = (uint32_t)late.x.n_cols;
    struct entry_places places = places_of(rows_of(late.end), d);
    return (struct entry){.results = webgpu_scratch(gpu, SCRATCH_ENTRY, places.n * 4),
        .settled = webgpu_tensor(late.settled),
        .places = places,
        .d = d,
        .post_norm_at = webgpu_vector_at(late.end->post_norm),
        .scale = weight_exists(late.scale_weight) ? webgpu_first_value(late.scale_weight) : 1,
        .eps = late.eps};
}

void webgpu_join_end(struct webgpu *gpu)
{
    struct late_end late = gpu->late;
    if (late.end == NULL)
        return;
    gpu->late.end = NULL;
    if (late.products.buffer == NULL) {
        end_inject(gpu, &late);
        return;
    }
    // The same once more: from x1 and p.
    int32_t d = late.x.n_cols;
    struct entry_places places = places_of(rows_of(late.end), (uint32_t)d);
    struct tensor results = webgpu_scratch_tensor(gpu, SCRATCH_ENTRY, 1, (int32_t)places.n);
    struct tensor x = {.buffer = results.buffer, .offset = places.x * 4, .n_rows = 1, .n_cols = d};
    struct tensor term = {.buffer = results.buffer, .offset = places.term * 4, .n_rows = 1, .n_cols = d};
    struct stream stream = {.x = x, .spare = late.settled, .eps = late.eps, .term = term};
    stream.term_norm = late.end->post_norm;
    stream.scale = late.scale_weight;
    struct fusion f = {.norm = late.end->next_norm, .parts = late.end->next, .n_parts = late.end->n_next};
    fused_matvec(gpu, &stream, &f, late.products);
}
