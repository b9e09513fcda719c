// layer_end.c: the end of a layer with per-layer inputs, for one row, in two dispatches instead of three.
//
// The gate of the per-layer input multiplies x + f norm z, where z = down . h and the factor f needs all of z. So gate . (x + f
// norm z) = gate . x + f (gate . diag(norm) . down) . h. With the matrix in brackets, made once ("folded"), all three products
// run side by side (end_sums.wgsl), and what is left fits the step that multiplies with `proj` anyway (end_inject.wgsl).
//
// The second step may wait for the next layer, which can take it along (layer_entry.c).

#include <stdio.h>
#include <stdlib.h>

#include "webgpu/fold.h"

enum { LANES = 32 };

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
    return side_of(&m->layout, matrix_bind(m), m->n_rows, m->n_in);
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

static void free_folded(struct webgpu *gpu, struct folded *f)
{
    matrix_free(gpu, &f->product);
    matrix_free(gpu, &f->gate);
    matrix_free(gpu, &f->next);
    free(f);
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
        "WG=%d LANES=%d LANES_LOG2=%u INTEGER=1 STRIDE=%u LANE_SHUFFLES=%d SHUFFLES_VECTORS=%d ", END_GROUP, LANES,
        log2_up(LANES), integer_stride(most_steps(sides) * LANES), gpu->subgroup_size >= LANES, gpu->subgroup_size >= 16);
    for (int k = 0; k < N_SIDES; k++) {
        n += define_weight(text + n, sizeof text - n, k, sides[k].layout);
        n += (size_t)snprintf(text + n, sizeof text - n, "ROWS%d=%u N_PAIRS%d=%u PAIRS%d=%u STEPS%d=%u ROUNDS%d=%u INPUT%d=%s ",
            k, sides[k].n_rows, k, sides[k].n_pairs, k, sides[k].n_pairs / sides[k].n_splits, k, steps_of(&sides[k]), k,
            divide_up(steps_of(&sides[k]) * LANES * 16, END_GROUP), k, k == GATE ? "x" : "h");
    }
    return webgpu_kernel(gpu, key, "end_sums", text);
}

struct end_shape end_shape_of(const struct layer_end *end, const struct folded *f)
{
    struct side sides[N_SIDES];
    find_sides(end, f, sides);
    return (struct end_shape){.d = sides[DOWN].n_rows,
        .width = sides[FOLDED].n_rows,
        .n_sums = {sides[DOWN].n_splits, sides[FOLDED].n_splits, sides[GATE].n_splits}};
}

size_t define_end(char *text, size_t size, const struct end_shape *shape)
{
    return (size_t)snprintf(text, size, "WG=%d D=%u WIDTH=%u DOWN_SUMS=%u FOLDED_SUMS=%u GATE_SUMS=%u ", END_GROUP, shape->d / 4,
        shape->width / 4, shape->n_sums[DOWN], shape->n_sums[FOLDED], shape->n_sums[GATE]);
}

static struct gpu_pipeline *inject_kernel(struct webgpu *gpu, const struct layer_end *end, const struct folded *f)
{
    struct end_shape shape = end_shape_of(end, f);
    struct last_step last = last_step_of(end);
    uint32_t values[] = {
        shape.d, shape.width, (uint32_t)last.layout->index, shape.n_sums[DOWN], shape.n_sums[FOLDED], shape.n_sums[GATE]};
    uint64_t key = webgpu_key(KERNEL_END_INJECT, values, sizeof values / sizeof values[0]);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    bool integer = last.layout->type->integers;
    uint32_t lanes = 1u << last.lanes_log2;
    char text[700];
    size_t n = define_weight(text, sizeof text, 0, last.layout);
    n += define_end(text + n, sizeof text - n, &shape);
    snprintf(text + n, sizeof text - n,
        "D_ROUNDS=%u WIDTH_ROUNDS=%u INTEGER=%d STRIDE=%u XS_VECTORS=%u LANES=%u LANES_LOG2=%u STEPS=%u UNITS=%u "
        "LANE_SHUFFLES=%d SHUFFLES_VECTORS=%d FETCH=%s DOT=%s INPUT=%s",
        divide_up(shape.d / 4, END_GROUP), divide_up(shape.width / 4, END_GROUP), integer, integer_stride(last.steps * lanes),
        shape.width / 4 * 17 / 16 + 1, lanes, last.lanes_log2, last.steps, last.units, gpu->subgroup_size >= lanes,
        gpu->subgroup_size >= 16, integer ? "fetch_pair" : "fetch", integer ? "pair_dot" : "dot", integer ? "inside" : "x,pairs");
    return webgpu_kernel(gpu, key, "end_inject", text);
}

// --- folding and unfolding ----------------------------------------------------------------------------------------------------

// Makes what `f` describes, and the kernels that will need it, so that what a device refuses is known before it is relied on.
static bool make(struct webgpu *gpu, const struct layer_end *end, struct folded *f)
{
    bool rounds = f->gate.n_bytes > 0;
    if (!matrix_make_room(gpu, &f->product) || (rounds && !matrix_make_room(gpu, &f->gate)))
        return false;
    struct side sides[N_SIDES];
    find_sides(end, f, sides);
    struct tensor gate = matrix_decode(gpu, &end->gate->weight, 0, end->gate->weight.n_out);
    return gate.buffer != NULL && matrix_multiply(gpu, gate, end->norm, NULL, end->down, &f->product, 0) &&
           (!rounds || matrix_round(gpu, gate, &f->gate)) && sums_kernel(gpu, sides) != NULL &&
           inject_kernel(gpu, end, f) != NULL;
}

// What fails while something is made that is not needed is no failure of the backend.
static void forget_failure(struct webgpu *gpu, struct carat_error before)
{
    gpu_take_error(gpu->gpu, NULL);
    gpu->error = before;
}

bool webgpu_fold(struct ops *ops, struct layer_end *end)
{
    struct webgpu *gpu = webgpu_of(ops);
    int32_t n_ff = end->down->weight.n_in, d = end->down->weight.n_out, width = end->gate->weight.n_out;
    bool rounds = !device_of(end->gate)->layout.type->integers;
    struct folded *f = calloc(1, sizeof *f);
    if (f == NULL)
        return false;
    matrix_describe(&f->product, n_ff, width);
    if (rounds)
        matrix_describe(&f->gate, d, width);
    // A rounded gate is read in place of the file's.
    int64_t read_more = (int64_t)(f->product.n_bytes + f->gate.n_bytes) - (rounds ? (int64_t)device_of(end->gate)->n_bytes : 0);
    if (!can_fold(gpu, end, f) || !webgpu_folding_pays(gpu, (double)read_more)) {
        free(f);
        return true;
    }
    entry_describe(gpu, end, f);
    struct carat_error before = gpu->error;
    if (make(gpu, end, f)) {
        if (f->next.n_bytes > 0 && !entry_make(gpu, end, f)) {
            matrix_free(gpu, &f->next);
            f->next.n_bytes = 0;
            forget_failure(gpu, before);
        }
        gpu_submit(gpu->gpu);
        end->folded = f;
        end->folded_bytes = f->product.n_bytes + f->gate.n_bytes + f->next.n_bytes;
        return true;
    }
    free_folded(gpu, f);
    forget_failure(gpu, before);
    return false;
}

void webgpu_unfold(struct ops *ops, struct layer_end *end)
{
    struct webgpu *gpu = webgpu_of(ops);
    if (gpu->late.end == end)
        gpu->late.end = NULL;
    if (end->folded != NULL)
        free_folded(gpu, end->folded);
    end->folded = NULL;
    end->folded_bytes = 0;
}

// --- running ------------------------------------------------------------------------------------------------------------------

void end_inject(struct webgpu *gpu, const struct late_end *late)
{
    const struct layer_end *end = late->end;
    struct gpu_pipeline *kernel = inject_kernel(gpu, end, end->folded);
    if (kernel == NULL)
        return;
    struct gpu_binding bindings[] = {webgpu_tensor(late->x), late->sums, late->per_layer, webgpu_vector(gpu, end->norm),
        webgpu_tensor(late->settled), webgpu_tensor(late->out), bind_part(&device_of(end->proj)->parts[0])};
    uint32_t rows_of_group = (uint32_t)END_GROUP >> last_step_of(end).lanes_log2;
    gpu_dispatch(
        gpu->gpu, kernel, bindings, &late->eps, sizeof late->eps, divide_up((uint32_t)late->out.n_cols, rows_of_group), 1, 1);
}

void webgpu_finish_layer(struct ops *ops, struct stream *stream, const struct layer_end *end, struct tensor in,
    struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_settle(ops, stream);
    webgpu_join_all(gpu);
    struct side sides[N_SIDES];
    find_sides(end, end->folded, sides);
    uint32_t n_groups = 0, n_sums = 0;
    for (int k = 0; k < N_SIDES; k++) {
        n_groups += divide_up(sides[k].n_rows, END_GROUP / LANES) * sides[k].n_splits;
        n_sums += sides[k].n_rows * sides[k].n_splits;
    }
    struct gpu_pipeline *kernel = sums_kernel(gpu, sides);
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_END, (uint64_t)n_sums * 4);
    if (kernel == NULL || sums.buffer == NULL)
        return;
    struct gpu_binding bindings[] = {
        webgpu_tensor(in), webgpu_tensor(stream->x), sums, sides[DOWN].weights, sides[FOLDED].weights, sides[GATE].weights};
    uint32_t unused[4] = {0};
    gpu_dispatch(gpu->gpu, kernel, bindings, unused, sizeof unused, n_groups, 1, 1);
    uint64_t width = sides[FOLDED].n_rows;
    struct late_end late = {.end = end, .sums = sums, .x = stream->x, .settled = stream->spare, .out = out, .eps = stream->eps};
    late.per_layer = webgpu_tensor(per_layer);
    late.per_layer.offset += (uint64_t)layer * width * 4;
    late.per_layer.n_bytes = width * 4;
    stream->spare = late.x;
    stream->x = late.settled;
    if (end->folded->next.n_bytes > 0)
        gpu->late = late;
    else
        end_inject(gpu, &late);
}
