// plan.h: which bytes of which file go where. Weights stream by this plan.
//
// Opening a model reads headers only and enters every weight it will use into a plan. Whoever holds the bytes executes it:
// natively plan_load does all of it; elsewhere the host calls plan_place, brings the bytes of the items that need some to
// plan_write in any order of items, and ends with plan_finish. A weight's file_part counts over all files of the plan.
//
// The plan does not own the weights: they belong to the model whose tables hold them. It does not own the files either.

#ifndef CARAT_MODEL_PLAN_H
#define CARAT_MODEL_PLAN_H

#include "base/error.h"
#include "gguf/gguf.h"
#include "ops/ops.h"

enum plan_class { PLAN_LAYERS, PLAN_EMBEDDING, PLAN_PER_LAYER_TABLE, PLAN_TOWERS, PLAN_CLASSES };

struct plan_item {
    struct weight *weight;
    enum plan_class class; // for reports
    bool may_stay_on_disk; // gathered by row, so its bytes need not be in memory
    void *host_room;       // not NULL: n_bytes of the model's own memory that take the bytes (numbers that the host needs)
    const void *mapped;    // the bytes in place, when the file is addressable
};

enum { PLAN_MAX_FILES = 4 };

struct plan {
    struct plan_item *items; // by file part and offset once placed
    size_t n_items;
    size_t capacity;
    uint64_t n_bytes;   // of all items
    uint64_t n_brought; // bytes that plan_write took since plan_place
    double begin_ms;    // when plan_place began
    double load_ms;     // from there to the end of plan_finish
    const struct gguf_file *files[PLAN_MAX_FILES];
    uint32_t first_parts[PLAN_MAX_FILES];
    uint32_t n_files;
    uint32_t n_parts;
    bool placed;
};

// Adds the parts of a file; *first_part is the number of its first one. A zero-initialised plan is empty.
bool plan_add_file(struct plan *plan, const struct gguf_file *file, uint32_t *first_part, struct carat_error *err);

// Adds a weight whose name, shape, size and place in the file are filled in.
bool plan_add(struct plan *plan, const struct plan_item *item, struct carat_error *err);

// Takes back what was added since `before` was copied from the plan.
void plan_restore(struct plan *plan, const struct plan *before);

// The source that holds part number `part`.
struct gguf_source *plan_source(const struct plan *plan, uint32_t part);

// Decides where each weight lives and makes room. On failure everything is freed again.
bool plan_place(struct plan *plan, struct ops *ops, struct carat_error *err);

// True when the item's bytes must be brought to plan_write.
bool plan_needs_bytes(const struct plan_item *item);

// The next bytes of item i. In order, in pieces; offset and n_bytes are multiples of 4 but for the end of the weight.
bool plan_write(
    struct plan *plan, struct ops *ops, size_t i, uint64_t offset, const void *bytes, uint64_t n_bytes, struct carat_error *err);

// All bytes are there.
bool plan_finish(struct plan *plan, struct ops *ops, struct carat_error *err);

// Called between pieces; false cancels (CARAT_CANCELLED).
typedef bool plan_progress(void *context, uint64_t n_done, uint64_t n_total);

// plan_place, reading of all bytes from the files, plan_finish. progress may be NULL. On failure everything is freed again.
bool plan_load(struct plan *plan, struct ops *ops, plan_progress *progress, void *context, struct carat_error *err);

// Gives back the room of all weights; they are unplaced afterwards.
void plan_unload(struct plan *plan, struct ops *ops);

// Forgets the items and the files. The weights must be unplaced.
void plan_free(struct plan *plan);

#endif
