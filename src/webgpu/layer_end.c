// layer_end.c: the end of a layer with per-layer inputs, for one row, in two dispatches instead of three.
//
// The gate of the per-layer input multiplies x + f norm z, where z = down . h and the factor f needs all of z. So gate . (x + f
// norm z) = gate . x + f (gate . diag(norm) . down) . h. With the matrix in brackets, made once ("folded"), all three products
// run side by side (end_sums.wgsl), and what is left fits the step that multiplies with `proj` anyway (end_inject.wgsl).
//
// Folded matrices are 16-bit integers with a scale for every 64 (w_folded.wgsl), as inputs of products are, and as exact.

#include <stdio.h>
#include <stdlib.h>

#include "webgpu/products.h"

enum { GROUP = 256, LANES = 32, FOLD_ROWS = 32, FOLD_COLUMNS = 256 };

// A matrix in the format of w_folded.wgsl.
struct matrix {
    struct gpu_buffer *buffer; // NULL: none
    struct layout layout;
    uint32_t n_in, n_rows;
    uint64_t n_bytes;
};

struct folded {
    struct matrix product; // gate . diag(norm) . down: [ff -> P]
    struct matrix gate;    // [d -> P]; none: the gate's own type multiplies integers
};

// One of the three products that run side by side.
struct side {
    const struct layout *layout;
    struct gpu_binding weights;
    uint32_t n_rows, n_pairs; // n_pairs: stretches of 64 columns
    uint32_t n_splits;
};

enum { DOWN, FOLDED, GATE, N_SIDES };

static struct side side_of(const struct layout *layout, struct gpu_binding weights, uint32_t n_rows, uint32_t n_in)
{
    return (struct side){layout, weights, n_rows, n_in / 64, integer_splits_of(n_in / 64)};
}

static struct side side_of_linear(const struct linear *linear)
{
    const struct device_weight *w = device_of(linear);
    return side_of(&w->layout, bind_part(&w->parts[0]), (uint32_t)linear->weight.n_out, (uint32_t)linear->weight.n_in);
}

static struct side side_of_matrix(const struct matrix *m)
{
    return side_of(&m->layout, (struct gpu_binding){m->buffer, 0, m->n_bytes}, m->n_rows, m->n_in);
}

// Rounds of the 32 lanes of a row.
static uint32_t steps_of(const struct side *side)
{
    return divide_up(side->n_pairs / side->n_splits, LANES);
}

static uint32_t most_steps(const struct side sides[N_SIDES])
{
    uint32_t most = 0;
    for (int k = 0; k < N_SIDES; k++)
        most = steps_of(&sides[k]) > most ? steps_of(&sides[k]) : most;
    return most;
}

static void find_sides(const struct layer_end *end, const struct folded *f, struct side sides[N_SIDES])
{
    sides[DOWN] = side_of_linear(end->down);
    sides[FOLDED] = side_of_matrix(&f->product);
    sides[GATE] = f->gate.n_bytes > 0 ? side_of_matrix(&f->gate) : side_of_linear(end->gate);
}

// --- what can be folded --------------------------------------------------------------------------------------------------------

static bool is_plain(const struct linear *linear)
{
    return device_of(linear)->n_parts == 1 && !weight_exists(&linear->bias) && !linear->clipped;
}

// The last product, of the gated per-layer input: LANES lanes or fewer share a row, UNITS units (or pairs of them) long.
struct last_step {
    const struct layout *layout;
    uint32_t units, lanes_log2, steps;
};

static struct last_step last_step_of(const struct layer_end *end)
{
    struct last_step last = {.layout = &device_of(end->proj)->layout};
    last.units = (uint32_t)end->proj->weight.n_in / (last.layout->type->integers ? 64 : 32);
    last.lanes_log2 = log2_up(last.units < LANES ? last.units : LANES);
    last.steps = divide_up(last.units, 1u << last.lanes_log2);
    return last;
}

// Do both steps fit the device's workgroup memory?
static bool fits(const struct webgpu *gpu, const struct layer_end *end, const struct folded *f)
{
    struct side sides[N_SIDES];
    find_sides(end, f, sides);
    struct last_step last = last_step_of(end);
    uint32_t first_bytes = integer_bytes(most_steps(sides) * LANES);
    uint32_t last_bytes = last.layout->type->integers ? integer_bytes(last.steps << last.lanes_log2)
                                                      : (uint32_t)end->proj->weight.n_in * 17 / 4 + 16 + 4096;
    uint32_t most = gpu_limits(gpu->gpu)->max_workgroup_bytes;
    return first_bytes <= most && last_bytes <= most;
}

static bool can_fold(const struct webgpu *gpu, const struct layer_end *end, const struct folded *f)
{
    int32_t n_ff = end->down->weight.n_in, d = end->down->weight.n_out, width = end->gate->weight.n_out;
    return !gpu->multiplies_floats && gpu_limits(gpu->gpu)->has_integer_dot && is_plain(end->down) && is_plain(end->gate) &&
           is_plain(end->proj) && weight_exists(end->norm) && device_of(end->down)->layout.type->integers &&
           n_ff % FOLD_COLUMNS == 0 && d % 64 == 0 && width % 64 == 0 && fits(gpu, end, f);
}

static void describe(struct matrix *m, int32_t n_in, int32_t n_rows)
{
    static const struct layout_type type = {.snippet = "w_folded", .integers = true};
    uint32_t plane = (uint32_t)n_in / 16, scales = divide_up((uint32_t)n_in / 64, 4);
    *m = (struct matrix){.n_in = (uint32_t)n_in, .n_rows = (uint32_t)n_rows};
    m->layout = (struct layout){.type = &type, .index = 255, .row_vectors = 2 * plane + scales, .starts = {0, plane, 2 * plane}};
    m->n_bytes = (uint64_t)m->layout.row_vectors * 16 * m->n_rows;
}

static bool make_room(struct webgpu *gpu, struct matrix *m)
{
    if (m->n_bytes > gpu_limits(gpu->gpu)->max_binding_bytes)
        return false;
    m->buffer = gpu_buffer_new(gpu->gpu, (m->n_bytes + 255) & ~(uint64_t)255, NULL);
    return m->buffer != NULL;
}

static void free_folded(struct webgpu *gpu, struct folded *f)
{
    gpu_buffer_free(gpu->gpu, f->product.buffer);
    gpu_buffer_free(gpu->gpu, f->gate.buffer);
    free(f);
}

// The rows of a weight in f32.
static struct tensor decoded(struct webgpu *gpu, const struct weight *weight)
{
    struct tensor ids = webgpu_scratch_tensor(gpu, SCRATCH_IDS_A, weight->n_out, 1);
    struct tensor rows = webgpu_scratch_tensor(gpu, SCRATCH_NORMED, weight->n_out, weight->n_in);
    int32_t *numbers = calloc((size_t)weight->n_out, sizeof *numbers);
    if (numbers == NULL || ids.buffer == NULL || rows.buffer == NULL) {
        free(numbers);
        return (struct tensor){0};
    }
    for (int32_t i = 0; i < weight->n_out; i++)
        numbers[i] = i;
    gpu_write(gpu->gpu, gpu_buffer_of(ids.buffer), 0, numbers, (uint64_t)weight->n_out * 4);
    free(numbers);
    webgpu_embed(&gpu->ops, weight, &(struct token_ids){.device = ids}, 1, rows);
    return rows;
}

static bool multiply(struct webgpu *gpu, struct tensor gate, const struct layer_end *end, const struct matrix *product)
{
    const struct device_weight *down = device_of(end->down);
    char definitions[64];
    snprintf(definitions, sizeof definitions, "TYPE0=%s", down->layout.type->snippet);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_FOLD | (uint64_t)down->layout.index << 8, "fold", definitions);
    if (kernel == NULL)
        return false;
    struct {
        uint32_t w0[4], n_gate, n_down, norm_at, row_words, low_at, scales_at;
    } p = {.n_gate = (uint32_t)gate.n_rows,
        .n_down = (uint32_t)gate.n_cols,
        .norm_at = webgpu_vector_at(end->norm),
        .row_words = product->layout.row_vectors * 4,
        .low_at = product->layout.starts[1] * 4,
        .scales_at = product->layout.starts[2] * 4};
    set_weight(p.w0, &down->layout);
    struct gpu_binding bindings[] = {
        webgpu_tensor(gate), webgpu_vectors(gpu), {product->buffer, 0, product->n_bytes}, bind_part(&down->parts[0])};
    gpu_dispatch(
        gpu->gpu, kernel, bindings, &p, sizeof p, product->n_in / FOLD_COLUMNS, divide_up((uint32_t)gate.n_rows, FOLD_ROWS), 1);
    return true;
}

static bool round_rows(struct webgpu *gpu, struct tensor rows, const struct matrix *to)
{
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_ROUND_ROWS, "round_rows", "");
    if (kernel == NULL)
        return false;
    struct {
        uint32_t n_cols, row_words, low_at, scales_at;
    } p = {(uint32_t)rows.n_cols, to->layout.row_vectors * 4, to->layout.starts[1] * 4, to->layout.starts[2] * 4};
    struct gpu_binding bindings[] = {webgpu_tensor(rows), {to->buffer, 0, to->n_bytes}};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(p.n_cols, 64 * 64), (uint32_t)rows.n_rows, 1);
    return true;
}

// --- the kernels of the two steps ----------------------------------------------------------------------------------------------

static struct gpu_pipeline *sums_kernel(struct webgpu *gpu, const struct side sides[N_SIDES])
{
    uint32_t values[3 * N_SIDES];
    for (int k = 0; k < N_SIDES; k++) {
        values[3 * k] = (uint32_t)sides[k].layout->index;
        values[3 * k + 1] = sides[k].n_rows;
        values[3 * k + 2] = sides[k].n_pairs;
    }
    uint64_t key = webgpu_key(KERNEL_END_SUMS, values, 3 * N_SIDES);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char text[900];
    size_t n = (size_t)snprintf(text, sizeof text,
        "WG=%d LANES=%d LANES_LOG2=%u INTEGER=1 STRIDE=%u LANE_SHUFFLES=%d SHUFFLES_VECTORS=%d ", GROUP, LANES, log2_up(LANES),
        integer_stride(most_steps(sides) * LANES), gpu->subgroup_size >= LANES, gpu->subgroup_size >= 16);
    for (int k = 0; k < N_SIDES; k++) {
        n += define_weight(text + n, sizeof text - n, k, sides[k].layout);
        n += (size_t)snprintf(text + n, sizeof text - n, "ROWS%d=%u N_PAIRS%d=%u PAIRS%d=%u STEPS%d=%u ROUNDS%d=%u INPUT%d=%s ",
            k, sides[k].n_rows, k, sides[k].n_pairs, k, sides[k].n_pairs / sides[k].n_splits, k, steps_of(&sides[k]), k,
            divide_up(steps_of(&sides[k]) * LANES * 16, GROUP), k, k == GATE ? "x" : "h");
    }
    return webgpu_kernel(gpu, key, "end_sums", text);
}

static struct gpu_pipeline *inject_kernel(
    struct webgpu *gpu, const struct side sides[N_SIDES], const struct last_step *last, uint32_t width)
{
    uint32_t d = sides[DOWN].n_rows;
    uint32_t values[] = {
        d, width, (uint32_t)last->layout->index, sides[DOWN].n_splits, sides[FOLDED].n_splits, sides[GATE].n_splits};
    uint64_t key = webgpu_key(KERNEL_END_INJECT, values, sizeof values / sizeof values[0]);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    bool integer = last->layout->type->integers;
    uint32_t lanes = 1u << last->lanes_log2;
    char text[700];
    size_t n = define_weight(text, sizeof text, 0, last->layout);
    snprintf(text + n, sizeof text - n,
        "WG=%d D=%u WIDTH=%u D_ROUNDS=%u WIDTH_ROUNDS=%u DOWN_SUMS=%u FOLDED_SUMS=%u GATE_SUMS=%u INTEGER=%d STRIDE=%u "
        "XS_VECTORS=%u LANES=%u LANES_LOG2=%u STEPS=%u UNITS=%u LANE_SHUFFLES=%d SHUFFLES_VECTORS=%d FETCH=%s DOT=%s INPUT=%s",
        GROUP, d / 4, width / 4, divide_up(d / 4, GROUP), divide_up(width / 4, GROUP), sides[DOWN].n_splits,
        sides[FOLDED].n_splits, sides[GATE].n_splits, integer, integer_stride(last->steps * lanes), width / 4 * 17 / 16 + 1,
        lanes, last->lanes_log2, last->steps, last->units, gpu->subgroup_size >= lanes, gpu->subgroup_size >= 16,
        integer ? "fetch_pair" : "fetch", integer ? "pair_dot" : "dot", integer ? "inside" : "x,pairs");
    return webgpu_kernel(gpu, key, "end_inject", text);
}

// --- folding and unfolding ----------------------------------------------------------------------------------------------------

// Makes what `f` describes, and the kernels that will need it, so that what a device refuses is known before it is relied on.
static bool make(struct webgpu *gpu, const struct layer_end *end, struct folded *f)
{
    bool rounds = f->gate.n_bytes > 0;
    if (!make_room(gpu, &f->product) || (rounds && !make_room(gpu, &f->gate)))
        return false;
    struct side sides[N_SIDES];
    find_sides(end, f, sides);
    struct last_step last = last_step_of(end);
    struct tensor gate = decoded(gpu, &end->gate->weight);
    return gate.buffer != NULL && multiply(gpu, gate, end, &f->product) && (!rounds || round_rows(gpu, gate, &f->gate)) &&
           sums_kernel(gpu, sides) != NULL && inject_kernel(gpu, sides, &last, f->product.n_rows) != NULL;
}

bool webgpu_fold(struct ops *ops, struct layer_end *end)
{
    struct webgpu *gpu = webgpu_of(ops);
    int32_t n_ff = end->down->weight.n_in, d = end->down->weight.n_out, width = end->gate->weight.n_out;
    bool rounds = !device_of(end->gate)->layout.type->integers;
    struct folded *f = calloc(1, sizeof *f);
    if (f == NULL)
        return false;
    describe(&f->product, n_ff, width);
    if (rounds)
        describe(&f->gate, d, width);
    // A rounded gate is read in place of the file's.
    int64_t read_more = (int64_t)(f->product.n_bytes + f->gate.n_bytes) - (rounds ? (int64_t)device_of(end->gate)->n_bytes : 0);
    if (!can_fold(gpu, end, f) || !webgpu_folding_pays(gpu, (double)read_more)) {
        free(f);
        return true;
    }
    // Nothing depends on it: what fails here is no failure of the backend.
    struct carat_error before = gpu->error;
    if (make(gpu, end, f)) {
        gpu_submit(gpu->gpu);
        end->folded = f;
        end->folded_bytes = f->product.n_bytes + f->gate.n_bytes;
        return true;
    }
    free_folded(gpu, f);
    gpu_take_error(gpu->gpu, NULL);
    gpu->error = before;
    return false;
}

void webgpu_unfold(struct ops *ops, struct layer_end *end)
{
    if (end->folded != NULL)
        free_folded(webgpu_of(ops), end->folded);
    end->folded = NULL;
    end->folded_bytes = 0;
}

// --- running ------------------------------------------------------------------------------------------------------------------

void webgpu_finish_layer(struct ops *ops, struct stream *stream, const struct layer_end *end, struct tensor in,
    struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_settle(ops, stream);
    webgpu_join_all(gpu);
    struct side sides[N_SIDES];
    find_sides(end, end->folded, sides);
    struct last_step last = last_step_of(end);
    uint32_t width = end->folded->product.n_rows, n_groups = 0, n_sums = 0;
    for (int k = 0; k < N_SIDES; k++) {
        n_groups += divide_up(sides[k].n_rows, GROUP / LANES) * sides[k].n_splits;
        n_sums += sides[k].n_rows * sides[k].n_splits;
    }
    struct gpu_pipeline *first = sums_kernel(gpu, sides), *second = inject_kernel(gpu, sides, &last, width);
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_END, (uint64_t)n_sums * 4);
    if (first == NULL || second == NULL || sums.buffer == NULL)
        return;
    struct gpu_binding a[] = {
        webgpu_tensor(in), webgpu_tensor(stream->x), sums, sides[DOWN].weights, sides[FOLDED].weights, sides[GATE].weights};
    uint32_t unused[4] = {0};
    gpu_dispatch(gpu->gpu, first, a, unused, sizeof unused, n_groups, 1, 1);
    struct gpu_binding input = webgpu_tensor(per_layer), norm = webgpu_vector(gpu, end->norm);
    input.offset += (uint64_t)layer * width * 4;
    input.n_bytes = (uint64_t)width * 4;
    struct gpu_binding b[] = {webgpu_tensor(stream->x), sums, input, norm, webgpu_tensor(stream->spare), webgpu_tensor(out),
        bind_part(&device_of(end->proj)->parts[0])};
    gpu_dispatch(gpu->gpu, second, b, &stream->eps, sizeof stream->eps,
        divide_up((uint32_t)out.n_cols, (uint32_t)GROUP >> last.lanes_log2), 1, 1);
    struct tensor settled = stream->spare;
    stream->spare = stream->x;
    stream->x = settled;
}
