// value.c: single elements of metadata values, and their kinds.

#include <string.h>

#include "base/number.h"
#include "gguf/parse.h"

const char *gguf_value_type_name(enum gguf_value_type type)
{
    static const char *const names[GGUF_VALUE_TYPES] = {
        "u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "text", "array", "u64", "i64", "f64"};
    return (unsigned)type < GGUF_VALUE_TYPES ? names[type] : "unknown";
}

// The integer element i, sign-extended to 64 bits; *is_negative says whether it is below zero.
static bool integer_at(const struct gguf_value *value, uint64_t i, uint64_t *bits, bool *is_negative)
{
    if (i >= value->count)
        return false;
    const uint8_t *at = value->bytes + i * gguf_value_bytes(value->type);
    int64_t wide = 0;
    switch (value->type) {
    case GGUF_VALUE_U8:
        wide = at[0];
        break;
    case GGUF_VALUE_I8:
        wide = at[0] < 128 ? at[0] : at[0] - 256;
        break;
    case GGUF_VALUE_U16:
        wide = load_u16(at);
        break;
    case GGUF_VALUE_I16:
        wide = (int16_t)load_u16(at);
        break;
    case GGUF_VALUE_U32:
        wide = load_u32(at);
        break;
    case GGUF_VALUE_I32:
        wide = (int32_t)load_u32(at);
        break;
    case GGUF_VALUE_U64:
    case GGUF_VALUE_I64:
        *bits = load_u64(at);
        *is_negative = value->type == GGUF_VALUE_I64 && *bits >> 63 != 0;
        return true;
    default:
        return false;
    }
    *bits = (uint64_t)wide;
    *is_negative = wide < 0;
    return true;
}

bool gguf_value_i64(const struct gguf_value *value, uint64_t i, int64_t *out)
{
    uint64_t bits;
    bool is_negative;
    if (!integer_at(value, i, &bits, &is_negative) || (!is_negative && bits > INT64_MAX))
        return false;
    *out = (int64_t)bits;
    return true;
}

bool gguf_value_u64(const struct gguf_value *value, uint64_t i, uint64_t *out)
{
    bool is_negative;
    uint64_t bits;
    if (!integer_at(value, i, &bits, &is_negative) || is_negative)
        return false;
    *out = bits;
    return true;
}

bool gguf_value_f64(const struct gguf_value *value, uint64_t i, double *out)
{
    if (i >= value->count)
        return false;
    if (value->type == GGUF_VALUE_F32) {
        *out = f32_from_bits(load_u32(value->bytes + 4 * i));
        return true;
    }
    if (value->type == GGUF_VALUE_F64) {
        uint64_t bits = load_u64(value->bytes + 8 * i);
        memcpy(out, &bits, sizeof bits);
        return true;
    }
    uint64_t bits;
    bool is_negative;
    if (!integer_at(value, i, &bits, &is_negative))
        return false;
    *out = is_negative ? (double)(int64_t)bits : (double)bits;
    return true;
}

bool gguf_value_bool(const struct gguf_value *value, uint64_t i, bool *out)
{
    uint64_t bits;
    bool is_negative;
    if (value->type == GGUF_VALUE_BOOL && i < value->count) {
        *out = value->bytes[i] != 0;
        return true;
    }
    if (!integer_at(value, i, &bits, &is_negative) || bits > 1)
        return false;
    *out = bits != 0;
    return true;
}

bool gguf_value_text(const struct gguf_value *value, uint64_t i, struct gguf_text *out)
{
    if (value->type != GGUF_VALUE_TEXT || i >= value->count)
        return false;
    const uint8_t *at = value->bytes + value->offsets[i];
    out->bytes = (const char *)at + 8;
    out->n_bytes = (size_t)load_u64(at);
    return true;
}
