// types.c: the table of tensor types.

#include "gguf/types.h"

#include <stddef.h>
#include <strings.h>

#include "base/number.h"

static const struct gguf_type_info infos[GGUF_TYPE_LIMIT] = {
    [GGUF_TYPE_F32] = {"F32", 1, 4, true},
    [GGUF_TYPE_F16] = {"F16", 1, 2, true},
    [GGUF_TYPE_Q4_0] = {"Q4_0", 32, 18, true},
    [GGUF_TYPE_Q4_1] = {"Q4_1", 32, 20, true},
    [GGUF_TYPE_Q5_0] = {"Q5_0", 32, 22, true},
    [GGUF_TYPE_Q5_1] = {"Q5_1", 32, 24, true},
    [GGUF_TYPE_Q8_0] = {"Q8_0", 32, 34, true},
    [GGUF_TYPE_Q8_1] = {"Q8_1", 32, 36, false},
    [GGUF_TYPE_Q2_K] = {"Q2_K", 256, 84, true},
    [GGUF_TYPE_Q3_K] = {"Q3_K", 256, 110, true},
    [GGUF_TYPE_Q4_K] = {"Q4_K", 256, 144, true},
    [GGUF_TYPE_Q5_K] = {"Q5_K", 256, 176, true},
    [GGUF_TYPE_Q6_K] = {"Q6_K", 256, 210, true},
    [GGUF_TYPE_Q8_K] = {"Q8_K", 256, 292, false},
    [GGUF_TYPE_IQ2_XXS] = {"IQ2_XXS", 256, 66, false},
    [GGUF_TYPE_IQ2_XS] = {"IQ2_XS", 256, 74, false},
    [GGUF_TYPE_IQ3_XXS] = {"IQ3_XXS", 256, 98, false},
    [GGUF_TYPE_IQ1_S] = {"IQ1_S", 256, 50, false},
    [GGUF_TYPE_IQ4_NL] = {"IQ4_NL", 32, 18, true},
    [GGUF_TYPE_IQ3_S] = {"IQ3_S", 256, 110, false},
    [GGUF_TYPE_IQ2_S] = {"IQ2_S", 256, 82, false},
    [GGUF_TYPE_IQ4_XS] = {"IQ4_XS", 256, 136, true},
    [GGUF_TYPE_I8] = {"I8", 1, 1, false},
    [GGUF_TYPE_I16] = {"I16", 1, 2, false},
    [GGUF_TYPE_I32] = {"I32", 1, 4, false},
    [GGUF_TYPE_I64] = {"I64", 1, 8, false},
    [GGUF_TYPE_F64] = {"F64", 1, 8, false},
    [GGUF_TYPE_IQ1_M] = {"IQ1_M", 256, 56, false},
    [GGUF_TYPE_BF16] = {"BF16", 1, 2, true},
    [GGUF_TYPE_TQ1_0] = {"TQ1_0", 256, 54, false},
    [GGUF_TYPE_TQ2_0] = {"TQ2_0", 256, 66, false},
    [GGUF_TYPE_MXFP4] = {"MXFP4", 32, 17, true},
    [GGUF_TYPE_NVFP4] = {"NVFP4", 64, 36, true},
    [GGUF_TYPE_Q1_0] = {"Q1_0", 128, 18, false},
    [GGUF_TYPE_Q2_0] = {"Q2_0", 64, 18, false},
};

const struct gguf_type_info *gguf_type_info(uint32_t type)
{
    return type < GGUF_TYPE_LIMIT && infos[type].name != NULL ? &infos[type] : NULL;
}

const char *gguf_type_name(uint32_t type)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    return info != NULL ? info->name : "unknown";
}

bool gguf_type_from_name(const char *name, enum gguf_type *type)
{
    for (uint32_t i = 0; i < GGUF_TYPE_LIMIT; i++) {
        if (infos[i].name != NULL && strcasecmp(name, infos[i].name) == 0) {
            *type = (enum gguf_type)i;
            return true;
        }
    }
    return false;
}

bool gguf_row_bytes(uint32_t type, uint64_t n_elems, uint64_t *n_bytes)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    if (info == NULL || n_elems % info->block_elems != 0)
        return false;
    return mul_u64(n_elems / info->block_elems, info->block_bytes, n_bytes);
}
