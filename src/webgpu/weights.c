// weights.c: room for weights on the device, and the way of their bytes into it.

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "gguf/quants.h"
#include "webgpu/internal.h"

enum { STAGING_BYTES = 8 << 20, FIRST_VECTORS = 1 << 20 };

static struct device_weight *device_weight_of(const struct weight *weight)
{
    return weight->device;
}

// --- groups -------------------------------------------------------------------------------------------------------------------

static uint64_t most_bytes_of_buffer(const struct webgpu *gpu)
{
    const struct gpu_limits *limits = gpu_limits(gpu->gpu);
    return limits->max_binding_bytes < limits->max_buffer_bytes ? limits->max_binding_bytes : limits->max_buffer_bytes;
}

// A weight of one part becomes a member of its group.
static bool join_group(struct webgpu *gpu, uint32_t number, struct device_weight *w, struct carat_error *err)
{
    struct weight_group *g = gpu->weight_groups;
    while (g != NULL && (g->number != number || g->buffer != NULL))
        g = g->next;
    if (g == NULL) {
        g = calloc(1, sizeof *g);
        if (g == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory for the list of weights on the GPU");
        g->number = number;
        g->next = gpu->weight_groups;
        gpu->weight_groups = g;
    }
    w->parts[0].offset = g->n_bytes;
    g->n_bytes += (w->parts[0].n_bytes + 255) & ~(uint64_t)255;
    w->group = g;
    w->next_in_group = g->first;
    g->first = w;
    return true;
}

// The last member takes the group's buffer with it.
static void leave_group(struct webgpu *gpu, struct device_weight *w)
{
    struct weight_group *g = w->group;
    struct device_weight **at = &g->first;
    while (*at != w)
        at = &(*at)->next_in_group;
    *at = w->next_in_group;
    w->group = NULL;
    if (g->first != NULL)
        return;
    struct weight_group **link = &gpu->weight_groups;
    while (*link != g)
        link = &(*link)->next;
    *link = g->next;
    gpu_buffer_free(gpu->gpu, g->buffer);
    free(g);
}

// Makes the buffer of a weight's group, or, when the group exceeds a binding, buffers of their own for its members.
static bool make_group(struct webgpu *gpu, struct weight_group *g, struct carat_error *err)
{
    if (g->buffer != NULL)
        return true;
    if (g->n_bytes <= most_bytes_of_buffer(gpu)) {
        g->buffer = gpu_buffer_new(gpu->gpu, g->n_bytes, err);
        for (struct device_weight *w = g->first; w != NULL; w = w->next_in_group)
            w->parts[0].buffer = g->buffer;
        return g->buffer != NULL;
    }
    for (struct device_weight *w = g->first, *next; w != NULL; w = next) {
        next = w->next_in_group;
        leave_group(gpu, w);
        w->parts[0].offset = 0;
        w->parts[0].buffer = gpu_buffer_new(gpu->gpu, w->parts[0].n_bytes, err);
        if (w->parts[0].buffer == NULL)
            return false;
    }
    return true;
}

static void free_device_weight(struct webgpu *gpu, struct device_weight *w)
{
    if (w == NULL)
        return;
    if (gpu->staging.weight == w)
        gpu->staging.weight = NULL;
    if (w->group != NULL)
        leave_group(gpu, w);
    else
        for (int i = 0; w->parts != NULL && i < w->n_parts; i++)
            gpu_buffer_free(gpu->gpu, w->parts[i].buffer);
    free(w->parts);
    free(w->raw);
    free(w);
}

// --- place --------------------------------------------------------------------------------------------------------------------

static bool make_parts(struct webgpu *gpu, const struct weight *weight, struct device_weight *w, struct carat_error *err)
{
    uint64_t row_bytes = (uint64_t)w->layout.row_vectors * 16, most = most_bytes_of_buffer(gpu);
    uint64_t rows_of_part = most / row_bytes;
    // Experts stay whole: a kernel finds all rows of one in the same part.
    if (weight->n_slices > 1 && rows_of_part >= (uint64_t)weight->n_out)
        rows_of_part -= rows_of_part % (uint64_t)weight->n_out;
    if (rows_of_part == 0 || (weight->n_slices > 1 && rows_of_part < (uint64_t)weight->n_out))
        return fail(err, CARAT_UNSUPPORTED,
            "tensor '%s' has rows or slices that exceed the GPU's bindings of %llu MiB; use the CPU", weight->name,
            (unsigned long long)(most >> 20));
    if (rows_of_part > w->n_rows)
        rows_of_part = w->n_rows;
    w->n_parts = (int)((w->n_rows + rows_of_part - 1) / rows_of_part);
    w->parts = calloc((size_t)w->n_parts, sizeof *w->parts);
    if (w->parts == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the handles of tensor '%s'", weight->name);
    for (int i = 0; i < w->n_parts; i++) {
        uint64_t first = (uint64_t)i * rows_of_part;
        uint64_t n = w->n_rows - first < rows_of_part ? w->n_rows - first : rows_of_part;
        w->parts[i] = (struct weight_part){.n_bytes = n * row_bytes, .first_row = (uint32_t)first, .n_rows = (uint32_t)n};
        if (weight->group != 0 && w->n_parts == 1)
            return join_group(gpu, weight->group, w, err);
        w->parts[i].buffer = gpu_buffer_new(gpu->gpu, n * row_bytes, err);
        if (w->parts[i].buffer == NULL)
            return fail_in(err, "tensor '%s' (%llu MiB)", weight->name, (unsigned long long)(w->n_bytes >> 20));
    }
    return true;
}

static bool take_vector(struct webgpu *gpu, const struct weight *weight, struct device_weight *w, struct carat_error *err)
{
    struct vectors *v = &gpu->vectors;
    uint64_t n = ((uint64_t)weight->n_in + 63) / 64 * 64;
    if (v->n_used + n > v->capacity) {
        uint64_t capacity = v->capacity == 0 ? FIRST_VECTORS : v->capacity * 2;
        while (capacity < v->n_used + n)
            capacity *= 2;
        struct gpu_buffer *wider = gpu_buffer_new(gpu->gpu, capacity * 4, err);
        if (wider == NULL)
            return fail_in(err, "tensor '%s'", weight->name);
        if (v->n_used > 0)
            gpu_copy(gpu->gpu, v->buffer, 0, wider, 0, v->n_used * 4);
        gpu_buffer_free(gpu->gpu, v->buffer);
        v->buffer = wider;
        v->capacity = capacity;
    }
    w->is_vector = true;
    w->vector_at = (uint32_t)v->n_used;
    w->raw = malloc((size_t)w->n_bytes + 4);
    if (w->raw == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for tensor '%s'", weight->name);
    v->n_used += n;
    return true;
}

bool webgpu_weight_place(struct ops *ops, struct weight *weight, const void *mapped, bool may_stay, struct carat_error *err)
{
    (void)mapped;
    struct webgpu *gpu = webgpu_of(ops);
    if (may_stay && gpu->options.keep_per_layer_table_on_disk) {
        weight->home = WEIGHT_DISK;
        return true;
    }
    struct device_weight *w = calloc(1, sizeof *w);
    if (w == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the handle of tensor '%s'", weight->name);
    uint64_t n_rows;
    if (!layout_of(weight->type, weight->n_in, &w->layout) || weight->n_out <= 0 || weight->n_slices <= 0 ||
        !mul_u64((uint64_t)weight->n_out, (uint64_t)weight->n_slices, &n_rows) || n_rows > UINT32_MAX) {
        free(w);
        return fail(err, CARAT_UNSUPPORTED, "the GPU has no kernels for tensor '%s' of type %s and %d columns; use the CPU",
            weight->name, gguf_type_name((uint32_t)weight->type), weight->n_in);
    }
    w->n_rows = n_rows;
    w->row_bytes = weight->row_bytes;
    w->n_bytes = weight->row_bytes * n_rows;
    if (!make_parts(gpu, weight, w, err) || (n_rows == 1 && !take_vector(gpu, weight, w, err))) {
        free_device_weight(gpu, w);
        return false;
    }
    weight->device = w;
    weight->home = WEIGHT_DEVICE;
    return true;
}

void webgpu_weight_free(struct ops *ops, struct weight *weight)
{
    if (weight->home == WEIGHT_DEVICE) {
        gpu_upload_end(webgpu_of(ops)->gpu); // whatever was being loaded will not be completed
        free_device_weight(webgpu_of(ops), weight->device);
    }
    weight->device = NULL;
    weight->host = NULL;
    weight->home = WEIGHT_UNPLACED;
}

// --- fill ---------------------------------------------------------------------------------------------------------------------

struct repack_params {
    uint32_t starts[4], bytes[4], offsets[4], orders[4];
    uint32_t n_blocks, block_bytes, row_bytes, row_words, src_offset, dst_row, n_rows, grid_x;
};

static bool repack(struct webgpu *gpu, const struct device_weight *w, const struct weight_part *part, uint64_t first, uint64_t n)
{
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_REPACK, "repack", "");
    if (kernel == NULL)
        return false;
    const struct layout *l = &w->layout;
    struct repack_params p = {
        .n_blocks = l->n_blocks,
        .block_bytes = l->block_bytes,
        .row_bytes = (uint32_t)w->row_bytes,
        .row_words = l->row_vectors * 4,
        .src_offset = (uint32_t)(first * w->row_bytes - gpu->staging.base),
        .dst_row = (uint32_t)(first - part->first_row),
        .n_rows = (uint32_t)n,
    };
    for (int k = 0; k < LAYOUT_PLANES; k++) {
        p.starts[k] = l->starts[k] * 4;
        p.bytes[k] = l->type->planes[k].bytes;
        p.offsets[k] = l->type->planes[k].offset;
        p.orders[k] = l->type->planes[k].order;
    }
    uint32_t x, y;
    p.grid_x = webgpu_grid(gpu, n * p.row_words, &x, &y);
    struct gpu_binding bindings[] = {
        {gpu->staging.current, 0, gpu->staging.capacity},
        bind_part(part),
    };
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, x, y, 1);
    return true;
}

// Moves the complete rows of the staging buffer into their planes and the rest to the front of the other buffer.
static bool flush_rows(struct webgpu *gpu, struct device_weight *w)
{
    struct staging *s = &gpu->staging;
    uint64_t n_complete = (s->base + s->n_filled) / w->row_bytes;
    for (int i = 0; i < w->n_parts; i++) {
        const struct weight_part *part = &w->parts[i];
        uint64_t first = s->n_rows_done > part->first_row ? s->n_rows_done : part->first_row;
        uint64_t end = part->first_row + (uint64_t)part->n_rows;
        end = end < n_complete ? end : n_complete;
        if (first < end && !repack(gpu, w, part, first, end - first))
            return false;
    }
    s->n_rows_done = n_complete;
    uint64_t base = n_complete * w->row_bytes & ~(uint64_t)3;
    uint64_t rest = s->base + s->n_filled - base;
    if (rest > 0)
        gpu_copy(gpu->gpu, s->current, base - s->base, s->next, 0, (rest + 3) & ~(uint64_t)3);
    struct gpu_buffer *other = s->current;
    s->current = s->next;
    s->next = other;
    s->base = base;
    s->n_filled = rest;
    return true;
}

static bool begin_staging(struct webgpu *gpu, const struct weight *weight, struct device_weight *w, struct carat_error *err)
{
    struct staging *s = &gpu->staging;
    if (s->weight == w)
        return true;
    if (s->weight != NULL && s->weight->n_written < s->weight->n_bytes)
        return fail(err, CARAT_BAD_ARGUMENT, "tensor '%s' is written before the one in front of it is complete", weight->name);
    uint64_t needed = STAGING_BYTES > 2 * w->row_bytes ? STAGING_BYTES : 2 * w->row_bytes;
    needed = (needed + 255) & ~(uint64_t)255;
    if (s->capacity < needed) {
        gpu_buffer_free(gpu->gpu, s->current);
        gpu_buffer_free(gpu->gpu, s->next);
        s->current = gpu_buffer_new(gpu->gpu, needed, err);
        s->next = gpu_buffer_new(gpu->gpu, needed, err);
        s->capacity = needed;
        if (s->current == NULL || s->next == NULL) {
            s->capacity = 0;
            return fail_in(err, "tensor '%s'", weight->name);
        }
    }
    s->weight = w;
    s->base = s->n_filled = s->n_rows_done = 0;
    return true;
}

// Where the next bytes of a weight go.
struct write_target {
    struct gpu_buffer *buffer;
    uint64_t offset;
    uint64_t n_bytes;
};

// The place of the next bytes of a matrix, at most n_wanted of them.
static bool next_target(
    struct ops *ops, struct weight *weight, uint64_t n_wanted, struct write_target *target, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    struct device_weight *w = device_weight_of(weight);
    *target = (struct write_target){0};
    if (weight->home != WEIGHT_DEVICE || w->n_written >= w->n_bytes)
        return fail(err, CARAT_BAD_ARGUMENT, "tensor '%s' takes no more bytes", weight->name);
    uint64_t left = w->n_bytes - w->n_written;
    n_wanted = n_wanted < left ? n_wanted : left;
    if (!w->layout.direct) {
        if (!begin_staging(gpu, weight, w, err))
            return false;
        uint64_t room = gpu->staging.capacity - gpu->staging.n_filled;
        target->buffer = gpu->staging.current;
        target->offset = gpu->staging.n_filled;
        target->n_bytes = n_wanted < room ? n_wanted : room;
        return true;
    }
    for (int i = 0; i < w->n_parts; i++) {
        uint64_t first = w->parts[i].first_row * w->row_bytes, end = first + w->parts[i].n_rows * w->row_bytes;
        if (w->n_written >= first && w->n_written < end) {
            target->buffer = w->parts[i].buffer;
            target->offset = w->parts[i].offset + w->n_written - first;
            target->n_bytes = n_wanted < end - w->n_written ? n_wanted : end - w->n_written;
        }
    }
    return true;
}

// n_bytes have been written to that place.
static bool note_written(struct ops *ops, struct weight *weight, uint64_t n_bytes, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    struct device_weight *w = device_weight_of(weight);
    w->n_written += n_bytes;
    if (w->layout.direct)
        return true;
    struct staging *s = &gpu->staging;
    s->n_filled += n_bytes;
    if (s->n_filled < s->capacity && w->n_written < w->n_bytes)
        return true;
    if (!flush_rows(gpu, w)) {
        if (err != NULL)
            *err = gpu->error;
        return false;
    }
    if (w->n_written == w->n_bytes)
        s->weight = NULL;
    return true;
}

// Copies n bytes to a place on the device, the last word filled up with zeros.
static void write_padded(struct webgpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const uint8_t *bytes, uint64_t n)
{
    uint64_t whole = n & ~(uint64_t)3;
    if (whole > 0)
        gpu_upload(gpu->gpu, buffer, offset, bytes, whole);
    if (n == whole) // in WebAssembly `bytes` may be a pointer that only the host can follow: it must not be looked at
        return;
    uint8_t tail[4] = {0};
    memcpy(tail, bytes + whole, (size_t)(n - whole));
    gpu_upload(gpu->gpu, buffer, offset + whole, tail, 4);
}

static bool write_staged(struct ops *ops, struct weight *weight, const uint8_t *bytes, uint64_t n, struct carat_error *err)
{
    while (n > 0) {
        struct write_target target;
        if (!next_target(ops, weight, n, &target, err))
            return false;
        write_padded(webgpu_of(ops), target.buffer, target.offset, bytes, target.n_bytes);
        if (!note_written(ops, weight, target.n_bytes, err))
            return false;
        bytes += target.n_bytes;
        n -= target.n_bytes;
    }
    return true;
}

// A complete vector goes among the vectors as f32, and into its place as a matrix of one row.
static bool finish_vector(struct ops *ops, struct weight *weight, struct device_weight *w, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    float *values = malloc((size_t)weight->n_in * sizeof *values);
    if (values == NULL || !gguf_dequantize(weight->type, w->raw, values, (size_t)weight->n_in)) {
        free(values);
        return fail(err, CARAT_NO_MEMORY, "no memory for tensor '%s'", weight->name);
    }
    w->first_value = values[0];
    gpu_upload(gpu->gpu, gpu->vectors.buffer, (uint64_t)w->vector_at * 4, values, (uint64_t)weight->n_in * 4);
    free(values);
    w->n_written = 0;
    w->is_vector = false; // now the bytes go the way of a matrix
    bool done = write_staged(ops, weight, w->raw, w->n_bytes, err);
    w->is_vector = true;
    free(w->raw);
    w->raw = NULL;
    return done;
}

bool webgpu_weight_write(
    struct ops *ops, struct weight *weight, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err)
{
    struct device_weight *w = device_weight_of(weight);
    if (weight->home != WEIGHT_DEVICE || offset != w->n_written || n_bytes > w->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "tensor '%s' is not written in order", weight->name);
    if (n_bytes == 0)
        return true;
    if (w->group != NULL && !make_group(webgpu_of(ops), w->group, err))
        return fail_in(err, "tensor '%s' and those of its layer", weight->name);
    if (!w->is_vector)
        return write_staged(ops, weight, bytes, n_bytes, err);
    memcpy(w->raw + offset, bytes, (size_t)n_bytes);
    w->n_written += n_bytes;
    return w->n_written < w->n_bytes || finish_vector(ops, weight, w, err);
}

bool webgpu_weights_ready(struct ops *ops, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    gpu_submit(gpu->gpu);
    gpu_upload_end(gpu->gpu);
    struct staging *s = &gpu->staging;
    bool complete = s->weight == NULL;
    gpu_buffer_free(gpu->gpu, s->current);
    gpu_buffer_free(gpu->gpu, s->next);
    *s = (struct staging){0};
    if (!complete)
        return fail(err, CARAT_BAD_FILE, "a weight is incomplete");
    return gpu_take_error(gpu->gpu, err);
}

void webgpu_weights_close(struct webgpu *gpu)
{
    gpu_buffer_free(gpu->gpu, gpu->staging.current);
    gpu_buffer_free(gpu->gpu, gpu->staging.next);
    gpu_buffer_free(gpu->gpu, gpu->vectors.buffer);
}
