// tower_weights.h: what the weight tables of the vision and the audio tower have in common.

#ifndef CARAT_MODEL_TOWER_WEIGHTS_H
#define CARAT_MODEL_TOWER_WEIGHTS_H

#include "model/lookup.h"
#include "ops/tower_ops.h"

// Whose output is wanted where implementations differ.
enum tower_compat {
    TOWER_REFERENCE, // Hugging Face, the definition of the model
    TOWER_LLAMA_CPP, // its size rule, activation and mel floor
    TOWER_OLLAMA,    // its former engine: bilinear, activation, projection before the norm, front end, one key more
};

// A linear whose input and output are clamped to bounds of its own, as E2B and E4B have them.
struct clip_linear {
    struct linear linear;
    struct weight bounds[4]; // descriptions of input_min, input_max, output_min, output_max; the numbers go to `linear`
};

// Enters `name`.weight and its bounds into the plan. A bound that the file lacks is the largest float of its sign.
bool lookup_clip_linear(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, struct clip_linear *out);

// Takes bounds that the file lacks from `packed`, (input min, input max, output min, output max); two zeros mean none.
void clip_linear_take_packed(struct clip_linear *linear, const float packed[4]);

// A tensor of up to 4 dimensions as n_out rows of n_in consecutive elements, n_out being its last dimension. F32, F16 or BF16.
bool lookup_flattened(struct lookup *lookup, const char *name, int32_t n_in, int32_t n_out, struct weight *out);

// The tensor that must exist, for its shape; NULL with the look-up failed otherwise.
const struct gguf_tensor *lookup_required(struct lookup *lookup, const char *name);

// A number of the tower's metadata, from clip.<tower>.<key> or gemma4.<tower>.<key>. Checked to lie in low .. high; `otherwise`
// where the key is absent, an error if that is 0.
bool tower_number(const struct gguf_file *file, const char *tower, const char *key, int32_t low, int32_t high, int32_t otherwise,
    int32_t *out, struct carat_error *err);

// False for files whose alignment is below that of an f32: vectors and convolutions are read in place.
bool tower_check_alignment(const struct gguf_file *file, struct carat_error *err);

// A tensor in a buffer of its own, zeroed. Freed with tensor_free.
bool tensor_new(struct ops *ops, int64_t n_rows, int64_t n_cols, struct tensor *out, struct carat_error *err);
void tensor_free(struct ops *ops, struct tensor *tensor); // no tensor is allowed

// Rows first .. first + n_rows - 1. first is a multiple of 64.
struct tensor tensor_rows(struct tensor tensor, int32_t first, int32_t n_rows);

// The same memory as n_rows x n_cols, which must not need more.
struct tensor tensor_as(struct tensor tensor, int32_t n_rows, int32_t n_cols);

#endif
