// tokenizer_tables.h: how a tokenizer lies in memory. For the tokenizer's own files only.
//
// Everything is a flat array. The two hash tables use open addressing; a slot of 32 bits holds an index + 1 in its low bits and
// as many bits of the hash as are left above it, so that a probe seldom has to look at the entry itself. 0 is an empty slot.

#ifndef CARAT_TEXT_TOKENIZER_TABLES_H
#define CARAT_TEXT_TOKENIZER_TABLES_H

#include "text/tokenizer.h"

enum { TOKENIZER_MAX_ENTRIES = 1 << 24, TOKENIZER_JOINT_BITS = 20 };

enum {
    TOKEN_KIND_MASK = 7, // enum token_kind
    TOKEN_ENDS = 8,
    TOKEN_SUPPRESSED = 16,
};

struct slot_table {
    uint32_t *slots; // [mask + 1]
    uint32_t mask;
    int index_bits;
};

struct merge {
    int32_t left; // -1: no such pair
    int32_t right;
    int32_t result;
};

// Markers as a tree of bytes: children of a node are linked by next.
struct marker_node {
    uint32_t child; // 0: none
    uint32_t next;  // 0: none
    int32_t id;     // the marker that ends here, or -1
    uint8_t byte;
};

struct tokenizer {
    int32_t n_tokens;
    char *texts;         // all entries, one after the other
    uint32_t *offsets;   // [n_tokens + 1] into texts
    uint8_t *attributes; // [n_tokens]
    struct slot_table by_text;

    uint32_t n_merges;
    struct merge *merges; // [n_merges] by rank
    struct slot_table by_pair;
    uint8_t *joints; // a bit per hash of (last character, first character) of two parts that some merge joins

    struct marker_node *markers; // markers[1 + b]: those that start with byte b
    int32_t known[TOK_N_MARKERS];
    int32_t bytes[256];  // byte tokens, or -1
    int32_t ascii[128];  // entries of one ASCII character, or -1; the space stands for U+2581
    int32_t *ends;       // [n_ends]
    int32_t *suppressed; // [n_suppressed]
    size_t n_ends;
    size_t n_suppressed;
    size_t n_memory_bytes;
};

#define TOKENIZER_NO_RANK UINT32_MAX

static inline uint64_t tokenizer_mix(uint64_t x)
{
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static inline uint64_t tokenizer_hash_pair(int32_t left, int32_t right)
{
    return tokenizer_mix(tokenizer_mix((uint64_t)(uint32_t)left << 32 | (uint32_t)right));
}

// The rank of joining two entries (ids >= 0), or TOKENIZER_NO_RANK.
static inline uint32_t tokenizer_rank(const struct tokenizer *tok, int32_t left, int32_t right)
{
    const struct slot_table *table = &tok->by_pair;
    uint64_t hash = tokenizer_hash_pair(left, right);
    uint32_t tag = (uint32_t)hash >> table->index_bits << table->index_bits;
    uint32_t index_mask = ((uint32_t)1 << table->index_bits) - 1;
    for (uint32_t i = (uint32_t)(hash >> 32) & table->mask; table->slots[i] != 0; i = (i + 1) & table->mask) {
        uint32_t slot = table->slots[i];
        if ((slot & ~index_mask) != tag)
            continue;
        const struct merge *merge = &tok->merges[(slot & index_mask) - 1];
        if (merge->left == left && merge->right == right)
            return (slot & index_mask) - 1;
    }
    return TOKENIZER_NO_RANK;
}

static inline uint32_t tokenizer_joint(uint32_t last, uint32_t first)
{
    return (uint32_t)(tokenizer_mix((uint64_t)last << 32 | first) >> (64 - TOKENIZER_JOINT_BITS));
}

// False: no merge has a left part that ends in `last` and a right part that begins with `first`.
static inline bool tokenizer_may_join(const struct tokenizer *tok, uint32_t last, uint32_t first)
{
    uint32_t bit = tokenizer_joint(last, first);
    return (tok->joints[bit >> 3] >> (bit & 7) & 1) != 0;
}

#endif
