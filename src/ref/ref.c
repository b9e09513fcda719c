// ref.c: the table of the reference backend's operations.

#include "ref/ref.h"

#include <stdio.h>
#include <stdlib.h>

#include "ref/ref_internal.h"

// No batch is too large for memory that is taken as needed; the bound keeps products of sizes far from overflow.
enum { REF_MAX_BATCH = 1 << 20 };

static void ref_free(struct ops *ops)
{
    free(ops);
}

struct ops *ref_ops_new(struct carat_error *err)
{
    struct ref *ref = calloc(1, sizeof *ref);
    if (ref == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the reference backend");
        return NULL;
    }
    ref->host.ops = (struct ops){
        .name = "ref",
        .max_batch = REF_MAX_BATCH,
        .buffer_new = host_buffer_new,
        .buffer_free = host_buffer_free,
        .write = host_write,
        .copy = host_copy,
        .read_start = host_read_start,
        .poll = host_poll,
        .wait = host_wait,
        .submit = host_submit,
        .weight_place = ref_weight_place,
        .weight_write = host_weight_write,
        .weight_free = host_weight_free,
        .weights_ready = host_weights_ready,
        .embed = ref_embed,
        .copy_rows = ref_copy_rows,
        .per_layer_inputs = ref_per_layer_inputs,
        .norm_project = ref_norm_project,
        .attend = ref_attend,
        .project = ref_project,
        .norm_gated = ref_norm_gated,
        .per_layer_gate = ref_per_layer_gate,
        .experts = ref_experts,
        .add_norms = ref_add_norms,
        .settle = ref_settle,
        .norm = ref_norm,
        .head = ref_head,
        .argmax = ref_argmax,
        .top_k = ref_top_k,
        .draw = ref_draw,
        .free = ref_free,
    };
    snprintf(ref->host.ops.device, sizeof ref->host.ops.device, "scalar reference, 1 thread");
    return &ref->host.ops;
}
