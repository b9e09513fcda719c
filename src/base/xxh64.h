// xxh64.h: XXH64, a quick and well-known 64-bit checksum (seed 0), of bytes that come in pieces. It finds damage, not intent.

#ifndef CARAT_BASE_XXH64_H
#define CARAT_BASE_XXH64_H

#include <stddef.h>
#include <stdint.h>

enum { XXH64_BLOCK_BYTES = 32 };

struct xxh64 {
    uint64_t lanes[4];
    uint64_t n_bytes;
    uint8_t rest[XXH64_BLOCK_BYTES]; // n_bytes % XXH64_BLOCK_BYTES of them
};

void xxh64_begin(struct xxh64 *sum);
void xxh64_add(struct xxh64 *sum, const void *bytes, size_t n_bytes);
// Of what was added so far; more may be added afterwards.
uint64_t xxh64_of(const struct xxh64 *sum);

// Of bytes that are all there.
uint64_t xxh64(const void *bytes, size_t n_bytes);

#endif
