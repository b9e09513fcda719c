// text_internal.h: what the files of the text model's forward pass share.

#ifndef CARAT_MODEL_TEXT_INTERNAL_H
#define CARAT_MODEL_TEXT_INTERNAL_H

#include "model/text.h"

// Rounded up to where the next tensor of a buffer may begin.
uint64_t text_padded(uint64_t n_bytes);

// What the positions of some rows of a batch are to the layers.
struct text_positions {
    int32_t first_position;
    struct tensor rope_sliding; // [n, head_dim_sliding]
    struct tensor rope_global;  // [n, head_dim_global]
    struct tensor last_key;     // i32 [n, 1]; none without images that attend both ways
};

struct text_inputs {
    struct token_ids ids;
    struct text_positions all;  // of all rows
    struct text_positions tail; // of the rows with logits, where they are fewer
};

// Writes what the host knows about a batch to the backend. Fails when the batch breaks a rule.
bool text_stage_inputs(struct text_context *context, int32_t first_position, const struct text_batch *batch, bool with_tail,
    struct text_inputs *inputs, struct carat_error *err);

// Brings rows of the per-layer table, scaled, into `rows` [n, P L], when the table stays on disk.
bool text_read_table_rows(struct text_context *context, const struct token_ids *ids, struct tensor rows, struct carat_error *err);

#endif
