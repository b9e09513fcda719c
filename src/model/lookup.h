// lookup.h: finds the tensors of a model in its file, checks their shapes, and enters them into the plan.
//
// The first error sticks: after it every call does nothing and returns false, so a table is filled by a plain list of calls and
// checked once at its end. Vectors must be F32, as in every published file, since backends read them in place.

#ifndef CARAT_MODEL_LOOKUP_H
#define CARAT_MODEL_LOOKUP_H

#include "base/arena.h"
#include "model/plan.h"

struct lookup {
    const struct gguf_file *file;
    struct plan *plan;
    uint32_t first_part; // number of the file's first part in the plan
    enum plan_class class;
    struct carat_error *err; // never NULL
    bool failed;
    char prefix[GGUF_MAX_NAME_BYTES]; // put in front of the names, "blk.3."
    uint32_t group;                   // of the matrices that are found
};

// Adds the file to the plan and makes a look-up on it.
bool lookup_begin(
    struct lookup *lookup, const struct gguf_file *file, struct plan *plan, enum plan_class class, struct carat_error *err);

// Names are given without the prefix; `alias` is a second name, used by older files, or NULL.
const struct gguf_tensor *lookup_tensor(struct lookup *lookup, const char *name, const char *alias); // NULL when absent

// Describes a checked tensor as a weight, without entering it into the plan. n_in, n_out, n_slices: the shape it must have;
// 0 for a dimension that may have any size up to INT32_MAX.
bool lookup_describe(
    struct lookup *lookup, const struct gguf_tensor *tensor, int32_t n_in, int32_t n_out, int32_t n_slices, struct weight *out);

// The tensor must exist.
bool lookup_matrix(struct lookup *lookup, const char *name, const char *alias, int32_t n_in, int32_t n_out, struct weight *out);
bool lookup_stack(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, int32_t n_slices, struct weight *out);
bool lookup_vector(struct lookup *lookup, const char *name, const char *alias, int32_t n, struct weight *out);

// Left as it is (no weight) when the tensor is absent.
bool lookup_optional_vector(struct lookup *lookup, const char *name, const char *alias, int32_t n, struct weight *out);

// Numbers that the host itself needs: an F32 vector of n whose bytes come to `room` when the plan is executed. `weight` keeps the
// description. Nothing happens when the tensor is absent.
bool lookup_host_vector(struct lookup *lookup, const char *name, int32_t n, float *room, struct weight *weight);

#endif
