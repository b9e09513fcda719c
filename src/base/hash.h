// hash.h: a quick 64-bit hash for telling contents apart. It resists accidents, not attackers.

#ifndef CARAT_BASE_HASH_H
#define CARAT_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)

// The hash of what went before and these bytes. Cutting the bytes elsewhere gives another hash.
static inline uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n_bytes)
{
    // FNV-1a over 8 bytes at a time would be weak; a multiply and a shift per word mixes well enough.
    const uint8_t *at = bytes;
    for (; n_bytes >= 8; at += 8, n_bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        hash ^= hash >> 29;
    }
    for (; n_bytes > 0; at++, n_bytes--)
        hash = (hash ^ *at) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

#endif
