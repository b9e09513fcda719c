// synth_data.c: tensor data at the speed of the disk.
//
// Quantising gigabytes of random numbers would take minutes. Instead a pool of a few hundred blocks is made once per type and
// spread, and a tensor is a random sequence of its blocks, each with its 16-bit scales multiplied by a random factor, so that no
// two rows are alike.

#include "synth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "gguf/quants.h"

enum { POOL_BLOCKS = 256, MAX_POOLS = 256, PIECE_BYTES = 4 << 20, HALF_RUN = 256 };

struct pool {
    enum gguf_type type;
    float spread;         // standard deviation of the values
    uint32_t block_bytes; // of one unit: a block, or HALF_RUN elements of an unquantised type
    uint8_t *blocks;
};

struct synth_data {
    uint64_t state;
    struct pool pools[MAX_POOLS];
    int n_pools;
    uint8_t *piece; // [PIECE_BYTES]
};

// xorshift64*
static uint64_t next_random(struct synth_data *data)
{
    data->state ^= data->state >> 12;
    data->state ^= data->state << 25;
    data->state ^= data->state >> 27;
    return data->state * 0x2545f4914f6cdd1du;
}

static float next_uniform(struct synth_data *data)
{
    return (float)(next_random(data) >> 40) * 0x1p-24f;
}

static float next_normal(struct synth_data *data)
{
    float radius = sqrtf(-2 * logf(next_uniform(data) + 0x1p-25f));
    return radius * cosf(6.2831853f * next_uniform(data));
}

struct synth_data *synth_data_new(uint64_t seed)
{
    struct synth_data *data = calloc(1, sizeof *data);
    if (data != NULL && (data->piece = malloc(PIECE_BYTES)) == NULL) {
        free(data);
        return NULL;
    }
    if (data != NULL)
        data->state = (seed + 1) * 0x9e3779b97f4a7c15u | 1;
    return data;
}

void synth_data_free(struct synth_data *data)
{
    if (data == NULL)
        return;
    for (int i = 0; i < data->n_pools; i++)
        free(data->pools[i].blocks);
    free(data->piece);
    free(data);
}

// Where the 16-bit scales stand in a block; n_scales = 0 for types without.
struct scales {
    int n_scales, offsets[2];
};

static struct scales find_scales(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_Q4_0:
    case GGUF_TYPE_Q5_0:
    case GGUF_TYPE_Q8_0:
    case GGUF_TYPE_IQ4_NL:
    case GGUF_TYPE_IQ4_XS:
        return (struct scales){1, {0}};
    case GGUF_TYPE_Q4_1:
    case GGUF_TYPE_Q5_1:
    case GGUF_TYPE_Q4_K:
    case GGUF_TYPE_Q5_K:
        return (struct scales){2, {0, 2}};
    case GGUF_TYPE_Q2_K:
        return (struct scales){2, {80, 82}};
    case GGUF_TYPE_Q3_K:
        return (struct scales){1, {108}};
    case GGUF_TYPE_Q6_K:
        return (struct scales){1, {208}};
    default:
        return (struct scales){0};
    }
}

static void store_half(uint8_t *bytes, float value)
{
    uint16_t half = f16_from_f32(value);
    bytes[0] = (uint8_t)half;
    bytes[1] = (uint8_t)(half >> 8);
}

// A block of a type that cannot be quantised to: random bits, with scales that give the values the wanted spread.
static void random_block(struct synth_data *data, enum gguf_type type, float spread, uint8_t *block)
{
    const struct gguf_type_info *info = gguf_type_info(type);
    struct scales scales = find_scales(type);
    float values[256];
    for (int i = 0; i < info->block_bytes; i++)
        block[i] = (uint8_t)(next_random(data) >> 56);
    for (int i = 0; i < scales.n_scales; i++)
        store_half(block + scales.offsets[i], 1);
    if (type == GGUF_TYPE_Q2_K) {
        for (int i = 0; i < 16; i++) // a minimum of 1.5 scales centres the codes 0 .. 3
            block[i] = (uint8_t)((block[i] & 7) + 2) | (uint8_t)((3 * ((block[i] & 7) + 2) / 2) << 4);
    }
    gguf_dequantize(type, block, values, info->block_elems);
    double sum = 0;
    for (int i = 0; i < info->block_elems; i++)
        sum += (double)values[i] * values[i];
    for (int i = 0; i < scales.n_scales; i++)
        store_half(block + scales.offsets[i], spread / (float)sqrt(sum / info->block_elems + 1e-9));
}

static bool fill_pool(struct synth_data *data, struct pool *pool)
{
    const struct gguf_type_info *info = gguf_type_info(pool->type);
    uint32_t n_elems = info->block_elems == 1 ? HALF_RUN : info->block_elems;
    float values[HALF_RUN];
    pool->block_bytes = info->block_elems == 1 ? HALF_RUN * info->block_bytes : info->block_bytes;
    pool->blocks = malloc((size_t)POOL_BLOCKS * pool->block_bytes);
    if (pool->blocks == NULL)
        return false;
    for (int b = 0; b < POOL_BLOCKS; b++) {
        uint8_t *block = pool->blocks + (size_t)b * pool->block_bytes;
        for (uint32_t i = 0; i < n_elems; i++)
            values[i] = pool->spread * next_normal(data);
        if (!gguf_quantize(pool->type, values, block, n_elems))
            random_block(data, pool->type, pool->spread, block);
    }
    return true;
}

static const struct pool *find_pool(struct synth_data *data, enum gguf_type type, float spread)
{
    for (int i = 0; i < data->n_pools; i++) {
        if (data->pools[i].type == type && data->pools[i].spread == spread)
            return &data->pools[i];
    }
    if (data->n_pools == MAX_POOLS)
        return NULL;
    struct pool *pool = &data->pools[data->n_pools];
    *pool = (struct pool){.type = type, .spread = spread};
    if (!fill_pool(data, pool))
        return NULL;
    data->n_pools++;
    return pool;
}

static bool write_matrix(struct synth_data *data, const struct synth_tensor *tensor, uint64_t n_bytes, struct gguf_writer *writer,
    struct carat_error *err)
{
    const struct pool *pool = find_pool(data, tensor->type, tensor->value);
    if (pool == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the blocks of tensor '%s'", tensor->name);
    struct scales scales = find_scales(tensor->type);
    size_t at_once = PIECE_BYTES / pool->block_bytes * pool->block_bytes;
    while (n_bytes != 0) {
        size_t n = n_bytes < at_once ? (size_t)n_bytes : at_once;
        for (size_t at = 0; at < n; at += pool->block_bytes) {
            uint64_t random = next_random(data);
            const uint8_t *block = pool->blocks + (random >> 56) * pool->block_bytes;
            uint8_t *copy = data->piece + at;
            memcpy(copy, block, n - at < pool->block_bytes ? n - at : pool->block_bytes);
            float factor = 0.75f + 0.5f * (float)(random >> 32 & 0xffffff) * 0x1p-24f;
            for (int i = 0; i < scales.n_scales; i++)
                store_half(copy + scales.offsets[i], f32_from_f16(load_u16(block + scales.offsets[i])) * factor);
        }
        if (!gguf_write_data(writer, data->piece, n))
            return false;
        n_bytes -= n;
    }
    return true;
}

static float element(struct synth_data *data, const struct synth_tensor *tensor, uint64_t i)
{
    switch (tensor->kind) {
    case SYNTH_NORM:
        return tensor->value * (0.9f + 0.2f * next_uniform(data));
    case SYNTH_ROPE_FREQS:
        return i < tensor->ne[0] / 4 ? 1 : 1e30f;
    default:
        return tensor->value;
    }
}

bool synth_write_tensor(
    struct synth_data *data, const struct synth_tensor *tensor, struct gguf_writer *writer, struct carat_error *err)
{
    uint64_t n_elems = tensor->ne[0] * tensor->ne[1] * tensor->ne[2] * tensor->ne[3], n_bytes;
    gguf_row_bytes(tensor->type, n_elems, &n_bytes); // the declaration has checked the shape
    if (tensor->kind == SYNTH_MATRIX)
        return write_matrix(data, tensor, n_bytes, writer, err);
    for (uint64_t i = 0; i < n_elems; i++) {
        float value = element(data, tensor, i);
        uint8_t bytes[4];
        gguf_quantize(tensor->type, &value, bytes, 1); // one of the unquantised types
        if (!gguf_write_data(writer, bytes, gguf_type_info(tensor->type)->block_bytes))
            return false;
    }
    return true;
}
