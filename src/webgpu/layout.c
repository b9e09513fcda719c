// layout.c: the planes of every weight type (layout.h). Block layouts: the GGUF formats.

#include "webgpu/layout.h"

#include <string.h>

static const struct layout_type types[] = {
    {GGUF_TYPE_F32, "w_f32", {{0, 4, 0}}, false, false},
    {GGUF_TYPE_F16, "w_f16", {{0, 2, 0}}, false, false},
    {GGUF_TYPE_BF16, "w_bf16", {{0, 2, 0}}, false, false},
    {GGUF_TYPE_Q4_0, "w_q4_0", {{2, 16, 0}, {0, 2, 0}}, false, true},
    {GGUF_TYPE_Q4_1, "w_q4_1", {{4, 16, 0}, {0, 4, 0}}, false, false},
    {GGUF_TYPE_Q5_0, "w_q5_0", {{6, 16, 0}, {2, 4, 0}, {0, 2, 0}}, false, false},
    {GGUF_TYPE_Q5_1, "w_q5_1", {{8, 16, 0}, {4, 4, 0}, {0, 4, 0}}, false, false},
    {GGUF_TYPE_Q8_0, "w_q8_0", {{2, 32, 0}, {0, 2, 0}}, false, true},
    {GGUF_TYPE_Q2_K, "w_q2_k", {{16, 64, 0}, {0, 16, LAYOUT_ORDER_SCALES}, {80, 4, 0}}, false, false},
    {GGUF_TYPE_Q3_K, "w_q3_k", {{32, 64, 0}, {0, 32, 0}, {96, 12, 0}, {108, 2, 0}}, false, false},
    {GGUF_TYPE_Q4_K, "w_q4_k", {{0, 144, 0}}, true, true},
    {GGUF_TYPE_Q5_K, "w_q5_k", {{0, 176, 0}}, true, true},
    {GGUF_TYPE_Q6_K, "w_q6_k", {{0, 128, LAYOUT_ORDER_NIBBLES}, {128, 64, 0}, {192, 16, LAYOUT_ORDER_SCALES}, {208, 2, 0}}, false,
        true},
    {GGUF_TYPE_IQ4_NL, "w_iq4_nl", {{2, 16, 0}, {0, 2, 0}}, false, false},
    {GGUF_TYPE_IQ4_XS, "w_iq4_xs", {{8, 128, 0}, {0, 4, 0}, {4, 4, 0}}, false, false},
    {GGUF_TYPE_MXFP4, "w_mxfp4", {{1, 16, 0}, {0, 1, 0}}, false, false},
    {GGUF_TYPE_NVFP4, "w_nvfp4", {{4, 32, 0}, {0, 4, 0}}, false, false},
};

bool layout_of(enum gguf_type type, int32_t n_in, struct layout *out)
{
    const struct gguf_type_info *info = gguf_type_info((uint32_t)type);
    memset(out, 0, sizeof *out);
    if (info == NULL || n_in <= 0 || n_in > LAYOUT_MAX_COLUMNS || n_in % info->block_elems != 0)
        return false;
    for (uint32_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type) {
            out->type = &types[i];
            out->index = i + 1;
        }
    }
    if (out->type == NULL)
        return false;
    out->n_units = ((uint32_t)n_in + 31) / 32;
    out->n_blocks = (uint32_t)n_in / info->block_elems;
    out->block_bytes = info->block_bytes;
    uint32_t padded = info->block_elems == 1 ? out->n_units * 32 : out->n_blocks; // whole units of single numbers
    for (int k = 0; k < LAYOUT_PLANES && out->type->planes[k].bytes > 0; k++) {
        out->starts[k] = out->row_vectors;
        out->row_vectors += (padded * out->type->planes[k].bytes + 15) / 16;
    }
    out->direct = out->type->as_file || (info->block_elems == 1 && padded == out->n_blocks);
    return true;
}
