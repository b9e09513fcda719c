// layer_end.c: the end of a layer with per-layer inputs, for one row, in two dispatches instead of three.
//
// The gate of the per-layer input multiplies x + f norm z, where z = down . h and the factor f needs all of z. So gate . (x + f
// norm z) = gate . x + f (gate . diag(norm) . down) . h. With the matrix in brackets, made once ("folded"), all three products
// run side by side (end_sums.wgsl), and what is left fits the step that multiplies with `proj` anyway (end_inject.wgsl).
//
// Folded matrices are Q8_0 in two terms, what rounding leaves of the first being rounded once more: wrong by 2e-5 of the largest
// of 32. They are kept FACTOR times too large, so that the second term's scales, 1/32000 of the largest weights, are halves with
// all bits where those are 0.01 or more.

#include <stdio.h>
#include <stdlib.h>

#include "webgpu/products.h"

enum { TERMS = 2, FACTOR = 256, GROUP = 256, LANES = 32, FOLD_ROWS = 32, FOLD_COLUMNS = 256 };

struct folded {
    struct weight product; // gate . diag(norm) . down: [ff -> TERMS P]
    struct weight gate;    // [d -> TERMS P]; none: the gate's own type multiplies integers
};

// One of the three products that run side by side.
struct side {
    const struct weight *weight;
    const struct layout *layout;
    uint32_t n_rows, n_pairs; // n_pairs: stretches of 64 columns
    uint32_t n_splits;
};

enum { DOWN, FOLDED, GATE, N_SIDES };

static struct side side_of(const struct weight *weight)
{
    const struct device_weight *w = weight->device;
    uint32_t n_pairs = (uint32_t)weight->n_in / 64;
    return (struct side){weight, &w->layout, (uint32_t)weight->n_out, n_pairs, integer_splits_of(n_pairs)};
}

static uint32_t steps_of(const struct side *side)
{
    return divide_up(side->n_pairs / side->n_splits, LANES);
}

// --- folding ------------------------------------------------------------------------------------------------------------------

static bool is_plain(const struct linear *linear)
{
    return device_of(linear)->n_parts == 1 && !weight_exists(&linear->bias) && !linear->clipped;
}

static bool can_fold(const struct webgpu *gpu, const struct layer_end *end)
{
    int32_t n_ff = end->down->weight.n_in, d = end->down->weight.n_out, width = end->gate->weight.n_out;
    uint32_t longest = (uint32_t)(n_ff > d ? n_ff : d) / 64;
    uint64_t staged = divide_up(longest / integer_splits_of(longest), LANES) * LANES;
    return !gpu->multiplies_floats && is_plain(end->down) && is_plain(end->gate) && is_plain(end->proj) &&
           weight_exists(end->norm) && device_of(end->down)->layout.type->integers && n_ff % FOLD_COLUMNS == 0 && d % 64 == 0 &&
           width % 64 == 0 && integer_bytes((uint32_t)staged) <= gpu_limits(gpu->gpu)->max_workgroup_bytes;
}

static bool place(struct webgpu *gpu, struct weight *weight, int32_t n_in, int32_t n_out)
{
    *weight = (struct weight){.name = "folded", .type = GGUF_TYPE_Q8_0, .n_in = n_in, .n_out = n_out, .n_slices = 1};
    weight->row_bytes = (uint64_t)n_in / 32 * 34;
    weight->n_bytes = weight->row_bytes * (uint64_t)n_out;
    return webgpu_weight_place(&gpu->ops, weight, NULL, false, NULL) && ((struct device_weight *)weight->device)->n_parts == 1;
}

static void free_folded(struct webgpu *gpu, struct folded *f)
{
    webgpu_weight_free(&gpu->ops, &f->product);
    webgpu_weight_free(&gpu->ops, &f->gate);
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

static bool multiply(struct webgpu *gpu, struct tensor gate, const struct layer_end *end, const struct weight *product)
{
    const struct device_weight *down = device_of(end->down), *out = product->device;
    char definitions[64];
    snprintf(definitions, sizeof definitions, "TERMS=%d FACTOR=%d TYPE0=%s", TERMS, FACTOR, down->layout.type->snippet);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_FOLD | (uint64_t)down->layout.index << 8, "fold", definitions);
    if (kernel == NULL)
        return false;
    struct {
        uint32_t w0[4], n_gate, n_down, norm_at, row_words, scales_at;
    } p = {.n_gate = (uint32_t)gate.n_rows,
        .n_down = (uint32_t)gate.n_cols,
        .norm_at = webgpu_vector_at(end->norm),
        .row_words = out->layout.row_vectors * 4,
        .scales_at = out->layout.starts[1] * 4};
    set_weight(p.w0, &down->layout);
    struct gpu_binding bindings[] = {
        webgpu_tensor(gate), webgpu_vectors(gpu), bind_part(&out->parts[0]), bind_part(&down->parts[0])};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, (uint32_t)product->n_in / FOLD_COLUMNS,
        divide_up((uint32_t)gate.n_rows, FOLD_ROWS), 1);
    return true;
}

static bool round_gate(struct webgpu *gpu, struct tensor gate, const struct weight *rounded)
{
    const struct device_weight *out = rounded->device;
    char definitions[32];
    snprintf(definitions, sizeof definitions, "TERMS=%d FACTOR=%d", TERMS, FACTOR);
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_ROUND_ROWS, "round_rows", definitions);
    if (kernel == NULL)
        return false;
    struct {
        uint32_t n_rows, n_cols, row_words, scales_at;
    } p = {(uint32_t)gate.n_rows, (uint32_t)gate.n_cols, out->layout.row_vectors * 4, out->layout.starts[1] * 4};
    struct gpu_binding bindings[] = {webgpu_tensor(gate), bind_part(&out->parts[0])};
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, divide_up(p.n_cols, 64 * 64), p.n_rows, 1);
    return true;
}

void webgpu_fold(struct ops *ops, struct layer_end *end)
{
    struct webgpu *gpu = webgpu_of(ops);
    int32_t n_ff = end->down->weight.n_in, d = end->down->weight.n_out, width = end->gate->weight.n_out;
    bool rounds = !device_of(end->gate)->layout.type->integers;
    uint64_t more_bytes = (uint64_t)(n_ff + (rounds ? d : 0)) / 32 * 34 * TERMS * (uint64_t)width;
    if (!can_fold(gpu, end) || !webgpu_folding_pays(gpu, more_bytes))
        return;
    struct folded *f = calloc(1, sizeof *f);
    if (f == NULL)
        return;
    struct tensor gate = {0};
    bool made = place(gpu, &f->product, n_ff, TERMS * width) && (!rounds || place(gpu, &f->gate, d, TERMS * width));
    if (made)
        gate = decoded(gpu, &end->gate->weight);
    made = gate.buffer != NULL && multiply(gpu, gate, end, &f->product) && (!rounds || round_gate(gpu, gate, &f->gate));
    if (!made) {
        free_folded(gpu, f);
        return;
    }
    gpu_submit(gpu->gpu);
    end->folded = f;
    end->folded_bytes = more_bytes;
}

void webgpu_unfold(struct ops *ops, struct layer_end *end)
{
    if (end->folded != NULL)
        free_folded(webgpu_of(ops), end->folded);
    end->folded = NULL;
    end->folded_bytes = 0;
}

// --- the two steps ------------------------------------------------------------------------------------------------------------

static size_t define_weight(char *text, size_t size, int k, const struct layout *layout)
{
    size_t n = (size_t)snprintf(text, size, "TYPE%d=%s WORDS%d=%u ", k, layout->type->snippet, k, layout->row_vectors);
    for (int plane = 1; plane < LAYOUT_PLANES; plane++)
        n += (size_t)snprintf(text + n, size - n, "PLANE%d_%d=%u ", plane, k, layout->starts[plane]);
    return n;
}

static struct gpu_pipeline *sums_kernel(struct webgpu *gpu, const struct side sides[N_SIDES])
{
    uint32_t values[3 * N_SIDES], most = 0;
    for (int k = 0; k < N_SIDES; k++) {
        values[3 * k] = (uint32_t)sides[k].layout->index;
        values[3 * k + 1] = sides[k].n_rows;
        values[3 * k + 2] = sides[k].n_pairs;
        most = steps_of(&sides[k]) > most ? steps_of(&sides[k]) : most;
    }
    uint64_t key = webgpu_key(KERNEL_END_SUMS, values, 3 * N_SIDES);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    char text[900];
    size_t n = (size_t)snprintf(text, sizeof text, "WG=%d INTEGER=1 STRIDE=%u LANE_SHUFFLES=%d SHUFFLES_VECTORS=%d ", GROUP,
        integer_stride(most * LANES), gpu->subgroup_size >= LANES, gpu->subgroup_size >= 16);
    for (int k = 0; k < N_SIDES; k++) {
        n += define_weight(text + n, sizeof text - n, k, sides[k].layout);
        n += (size_t)snprintf(text + n, sizeof text - n, "ROWS%d=%u N_PAIRS%d=%u PAIRS%d=%u STEPS%d=%u INPUT%d=%s ", k,
            sides[k].n_rows, k, sides[k].n_pairs, k, sides[k].n_pairs / sides[k].n_splits, k, steps_of(&sides[k]), k,
            k == GATE ? "x" : "h");
    }
    return webgpu_kernel(gpu, key, "end_sums", text);
}

static struct gpu_pipeline *inject_kernel(
    struct webgpu *gpu, const struct side sides[N_SIDES], const struct layout *proj, uint32_t width, uint32_t lanes_log2)
{
    uint32_t d = sides[DOWN].n_rows, folded_sums = sides[FOLDED].n_splits * TERMS,
             gate_sums = sides[GATE].n_splits * (sides[GATE].n_rows / width);
    uint32_t values[] = {d, width, (uint32_t)proj->index, sides[DOWN].n_splits, folded_sums, gate_sums};
    uint64_t key = webgpu_key(KERNEL_END_INJECT, values, sizeof values / sizeof values[0]);
    struct gpu_pipeline *kernel = kernel_find(gpu->kernels, key);
    if (kernel != NULL)
        return kernel;
    bool integer = proj->type->integers;
    uint32_t units = width / (integer ? 64 : 32), lanes = 1u << lanes_log2, steps = divide_up(units, lanes);
    char text[700];
    size_t n = define_weight(text, sizeof text, 0, proj);
    snprintf(text + n, sizeof text - n,
        "WG=%d D=%u WIDTH=%u D_ROUNDS=%u WIDTH_ROUNDS=%u DOWN_SUMS=%u FOLDED_SUMS=%u GATE_SUMS=%u INTEGER=%d STRIDE=%u "
        "FOLDED_FACTOR=%d GATE_FACTOR=%d XS_VECTORS=%u LANES=%u LANES_LOG2=%u STEPS=%u UNITS=%u LANE_SHUFFLES=%d "
        "SHUFFLES_VECTORS=%d FETCH=%s DOT=%s INPUT=%s",
        GROUP, d / 4, width / 4, divide_up(d / 4, GROUP), divide_up(width / 4, GROUP), sides[DOWN].n_splits, folded_sums,
        gate_sums, integer, integer_stride(steps * lanes), FACTOR, sides[GATE].n_rows > width ? FACTOR : 1,
        width / 4 * 17 / 16 + 1, lanes, lanes_log2, steps, units, gpu->subgroup_size >= lanes, gpu->subgroup_size >= 16,
        integer ? "fetch_pair" : "fetch", integer ? "pair_dot" : "dot", integer ? "inside" : "x,pairs");
    return webgpu_kernel(gpu, key, "end_inject", text);
}

void webgpu_finish_layer(struct ops *ops, struct stream *stream, const struct layer_end *end, struct tensor in,
    struct tensor per_layer, int32_t layer, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_settle(ops, stream);
    webgpu_join_all(gpu);
    const struct weight *gate = weight_exists(&end->folded->gate) ? &end->folded->gate : &end->gate->weight;
    struct side sides[N_SIDES] = {side_of(&end->down->weight), side_of(&end->folded->product), side_of(gate)};
    const struct layout *proj = &device_of(end->proj)->layout;
    uint32_t width = (uint32_t)end->gate->weight.n_out, units = width / (proj->type->integers ? 64 : 32);
    uint32_t lanes_log2 = log2_up(units < LANES ? units : LANES);
    uint32_t n_groups = 0, n_sums = 0;
    for (int k = 0; k < N_SIDES; k++) {
        n_groups += divide_up(sides[k].n_rows, GROUP / LANES) * sides[k].n_splits;
        n_sums += sides[k].n_rows * sides[k].n_splits;
    }
    struct gpu_pipeline *first = sums_kernel(gpu, sides), *second = inject_kernel(gpu, sides, proj, width, lanes_log2);
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_END, (uint64_t)n_sums * 4);
    if (first == NULL || second == NULL || sums.buffer == NULL)
        return;
    struct gpu_binding a[] = {webgpu_tensor(in), webgpu_tensor(stream->x), sums, bind_part(&device_of(end->down)->parts[0]),
        bind_part(&((const struct device_weight *)end->folded->product.device)->parts[0]),
        bind_part(&((const struct device_weight *)gate->device)->parts[0])};
    uint32_t unused[4] = {0};
    gpu_dispatch(gpu->gpu, first, a, unused, sizeof unused, n_groups, 1, 1);
    struct {
        uint32_t w0[4], norm_at, per_layer_at;
        float eps;
    } p = {.norm_at = webgpu_vector_at(end->norm) / 4, .per_layer_at = (uint32_t)layer * width / 4, .eps = stream->eps};
    set_weight(p.w0, proj);
    struct gpu_binding b[] = {webgpu_tensor(stream->x), sums, webgpu_tensor(per_layer), webgpu_vectors(gpu),
        webgpu_tensor(stream->spare), webgpu_tensor(out), bind_part(&device_of(end->proj)->parts[0])};
    gpu_dispatch(gpu->gpu, second, b, &p, sizeof p, divide_up((uint32_t)out.n_cols, (uint32_t)GROUP >> lanes_log2), 1, 1);
    struct tensor settled = stream->spare;
    stream->spare = stream->x;
    stream->x = settled;
}
