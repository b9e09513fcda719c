// plan.c: placing weights and bringing their bytes.

#include "model/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

// Large enough that a request to a server, or several threads, are worth it; small enough that progress moves.
enum { PIECE_BYTES = 4 << 20, MAPPED_PIECE_BYTES = 16 << 20 };

bool plan_add_file(struct plan *plan, const struct gguf_file *file, uint32_t *first_part, struct carat_error *err)
{
    if (plan->n_files == PLAN_MAX_FILES)
        return fail(err, CARAT_BAD_ARGUMENT, "a model cannot be made of more than %d files", PLAN_MAX_FILES);
    *first_part = plan->n_parts;
    plan->files[plan->n_files] = file;
    plan->first_parts[plan->n_files++] = plan->n_parts;
    plan->n_parts += gguf_part_count(file);
    return true;
}

bool plan_add(struct plan *plan, const struct plan_item *item, struct carat_error *err)
{
    assert(!plan->placed);
    if (plan->n_items == plan->capacity) {
        size_t capacity = plan->capacity != 0 ? 2 * plan->capacity : 64;
        struct plan_item *items = realloc(plan->items, capacity * sizeof *items);
        if (items == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory for the list of weights");
        plan->items = items;
        plan->capacity = capacity;
    }
    plan->items[plan->n_items++] = *item;
    plan->n_bytes += item->weight->n_bytes;
    return true;
}

void plan_restore(struct plan *plan, const struct plan *before)
{
    plan->n_items = before->n_items;
    plan->n_bytes = before->n_bytes;
    plan->n_files = before->n_files;
    plan->n_parts = before->n_parts;
}

struct gguf_source *plan_source(const struct plan *plan, uint32_t part)
{
    uint32_t f = plan->n_files;
    while (f > 0 && plan->first_parts[f - 1] > part)
        f--;
    assert(f > 0 && part < plan->n_parts);
    return gguf_file_source(plan->files[f - 1], part - plan->first_parts[f - 1]);
}

static int by_place_in_file(const void *a, const void *b)
{
    const struct weight *left = ((const struct plan_item *)a)->weight, *right = ((const struct plan_item *)b)->weight;
    if (left->file_part != right->file_part)
        return left->file_part < right->file_part ? -1 : 1;
    return (left->file_offset > right->file_offset) - (left->file_offset < right->file_offset);
}

static bool place(struct plan_item *item, struct ops *ops, struct carat_error *err)
{
    if (item->host_room == NULL)
        return ops->weight_place(ops, item->weight, item->mapped, item->may_stay_on_disk, err);
    item->weight->home = WEIGHT_HOST;
    item->weight->host = item->host_room;
    return true;
}

bool plan_place(struct plan *plan, struct ops *ops, struct carat_error *err)
{
    assert(!plan->placed);
    // Files that arrive as a stream are then read once, from front to back.
    if (plan->n_items > 1)
        qsort(plan->items, plan->n_items, sizeof *plan->items, by_place_in_file);
    plan->placed = true;
    plan->n_brought = 0;
    plan->begin_ms = clock_ms();
    for (size_t i = 0; i < plan->n_items; i++) {
        struct plan_item *item = &plan->items[i];
        const struct gguf_source *source = plan_source(plan, item->weight->file_part);
        item->mapped = source->mapped != NULL ? (const char *)source->mapped + item->weight->file_offset : NULL;
        if (!place(item, ops, err)) {
            plan_unload(plan, ops);
            return false;
        }
    }
    return true;
}

bool plan_needs_bytes(const struct plan_item *item)
{
    const struct weight *weight = item->weight;
    return weight->home == WEIGHT_DEVICE || (weight->home == WEIGHT_HOST && weight->host != item->mapped);
}

bool plan_write(
    struct plan *plan, struct ops *ops, size_t i, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err)
{
    if (!plan->placed || i >= plan->n_items)
        return fail(err, CARAT_BAD_ARGUMENT, "there is no weight number %zu to be filled", i);
    struct plan_item *item = &plan->items[i];
    if (offset > item->weight->n_bytes || n_bytes > item->weight->n_bytes - offset)
        return fail(err, CARAT_BAD_ARGUMENT, "bytes beyond the end of tensor '%s'", item->weight->name);
    plan->n_brought += n_bytes;
    if (item->host_room == NULL)
        return ops->weight_write(ops, item->weight, offset, bytes, n_bytes, err);
    memcpy((char *)item->host_room + offset, bytes, (size_t)n_bytes);
    return true;
}

bool plan_finish(struct plan *plan, struct ops *ops, struct carat_error *err)
{
    assert(plan->placed);
    bool is_ready = ops->weights_ready(ops, err);
    plan->load_ms = clock_ms() - plan->begin_ms;
    return is_ready;
}

struct loading {
    struct plan *plan;
    struct ops *ops;
    plan_progress *progress;
    void *context;
    void *piece; // PIECE_BYTES, for sources that are not mapped
    uint64_t n_done;
};

static bool load_item(struct loading *loading, size_t i, struct carat_error *err)
{
    const struct plan_item *item = &loading->plan->items[i];
    struct gguf_source *source = plan_source(loading->plan, item->weight->file_part);
    uint64_t n_bytes = item->weight->n_bytes, piece = item->mapped != NULL ? MAPPED_PIECE_BYTES : PIECE_BYTES;
    for (uint64_t offset = 0; offset < n_bytes && plan_needs_bytes(item); offset += piece) {
        size_t n = (size_t)(n_bytes - offset < piece ? n_bytes - offset : piece);
        const void *bytes = item->mapped != NULL ? (const char *)item->mapped + offset : loading->piece;
        if (item->mapped == NULL && !gguf_source_read(source, item->weight->file_offset + offset, loading->piece, n, err))
            return fail_in(err, "reading tensor '%s'", item->weight->name);
        if (!plan_write(loading->plan, loading->ops, i, offset, bytes, n, err))
            return false;
        if (loading->progress != NULL && !loading->progress(loading->context, loading->n_done + offset, loading->plan->n_bytes))
            return fail(err, CARAT_CANCELLED, "loading was cancelled");
    }
    loading->n_done += n_bytes;
    return true;
}

bool plan_load(struct plan *plan, struct ops *ops, plan_progress *progress, void *context, struct carat_error *err)
{
    if (!plan_place(plan, ops, err))
        return false;
    struct loading loading = {.plan = plan, .ops = ops, .progress = progress, .context = context, .piece = malloc(PIECE_BYTES)};
    if (loading.piece == NULL) {
        plan_unload(plan, ops);
        return fail(err, CARAT_NO_MEMORY, "no memory for reading the weights");
    }
    bool done = true;
    for (size_t i = 0; done && i < plan->n_items; i++)
        done = load_item(&loading, i, err);
    if (done && progress != NULL && !progress(context, plan->n_bytes, plan->n_bytes))
        done = fail(err, CARAT_CANCELLED, "loading was cancelled");
    done = done && plan_finish(plan, ops, err);
    free(loading.piece);
    if (!done)
        plan_unload(plan, ops);
    return done;
}

void plan_unload(struct plan *plan, struct ops *ops)
{
    for (size_t i = 0; plan->placed && i < plan->n_items; i++) {
        struct weight *weight = plan->items[i].weight;
        if (weight->home == WEIGHT_HOST && plan->items[i].host_room != NULL)
            weight->home = WEIGHT_UNPLACED;
        else if (weight->home != WEIGHT_UNPLACED)
            ops->weight_free(ops, weight);
    }
    plan->placed = false;
}

void plan_free(struct plan *plan)
{
    free(plan->items);
    *plan = (struct plan){0};
}
