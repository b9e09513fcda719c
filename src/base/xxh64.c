// xxh64.c: see xxh64.h. Four lanes take 8 bytes of a block each; what is left over at the end is mixed in by 8, 4 and 1 byte.

#include "base/xxh64.h"

#include <string.h>

#include "base/number.h"

static const uint64_t P1 = UINT64_C(0x9e3779b185ebca87), P2 = UINT64_C(0xc2b2ae3d27d4eb4f), P3 = UINT64_C(0x165667b19e3779f9),
                      P4 = UINT64_C(0x85ebca77c2b2ae63), P5 = UINT64_C(0x27d4eb2f165667c5);

static uint64_t turned(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t mixed(uint64_t lane, uint64_t word)
{
    return turned(lane + word * P2, 31) * P1;
}

static void add_block(struct xxh64 *sum, const uint8_t *block)
{
    for (int i = 0; i < 4; i++)
        sum->lanes[i] = mixed(sum->lanes[i], load_u64(block + 8 * i));
}

void xxh64_begin(struct xxh64 *sum)
{
    *sum = (struct xxh64){.lanes = {P1 + P2, P2, 0, 0 - P1}};
}

void xxh64_add(struct xxh64 *sum, const void *bytes, size_t n_bytes)
{
    const uint8_t *at = bytes, *end = at + n_bytes;
    size_t n_rest = sum->n_bytes % XXH64_BLOCK_BYTES;
    sum->n_bytes += n_bytes;
    if (n_rest > 0) {
        size_t n = XXH64_BLOCK_BYTES - n_rest < n_bytes ? XXH64_BLOCK_BYTES - n_rest : n_bytes;
        memcpy(sum->rest + n_rest, at, n);
        at += n;
        if (n_rest + n < XXH64_BLOCK_BYTES)
            return;
        add_block(sum, sum->rest);
    }
    for (; end - at >= XXH64_BLOCK_BYTES; at += XXH64_BLOCK_BYTES)
        add_block(sum, at);
    if (at < end)
        memcpy(sum->rest, at, (size_t)(end - at));
}

uint64_t xxh64_of(const struct xxh64 *sum)
{
    static const int turns[] = {1, 7, 12, 18};
    const uint8_t *at = sum->rest, *end = at + sum->n_bytes % XXH64_BLOCK_BYTES;
    uint64_t hash = P5;
    if (sum->n_bytes >= XXH64_BLOCK_BYTES) {
        hash = 0;
        for (int i = 0; i < 4; i++)
            hash += turned(sum->lanes[i], turns[i]);
        for (int i = 0; i < 4; i++)
            hash = (hash ^ mixed(0, sum->lanes[i])) * P1 + P4;
    }
    hash += sum->n_bytes;
    for (; end - at >= 8; at += 8)
        hash = turned(hash ^ mixed(0, load_u64(at)), 27) * P1 + P4;
    for (; end - at >= 4; at += 4)
        hash = turned(hash ^ load_u32(at) * P1, 23) * P2 + P3;
    for (; at < end; at++)
        hash = turned(hash ^ *at * P5, 11) * P1;
    hash = (hash ^ hash >> 33) * P2;
    hash = (hash ^ hash >> 29) * P3;
    return hash ^ hash >> 32;
}

uint64_t xxh64(const void *bytes, size_t n_bytes)
{
    struct xxh64 sum;
    xxh64_begin(&sum);
    xxh64_add(&sum, bytes, n_bytes);
    return xxh64_of(&sum);
}
