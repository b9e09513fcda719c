// parse.h: the header of one part of a GGUF file, while it is read (inside src/gguf only).

#ifndef CARAT_GGUF_PARSE_H
#define CARAT_GGUF_PARSE_H

#include "base/arena.h"
#include "gguf/gguf.h"

enum { GGUF_MAX_ENTRIES = 1 << 16, GGUF_MAX_TENSORS = 1 << 16 };

// Open-addressing table from names to indices. A slot holds the index + 1 and the name's hash; 0 = free.
struct name_slot {
    uint32_t hash;
    uint32_t index_plus_1;
};

struct name_table {
    struct name_slot *slots; // n_slots, a power of two at least twice the number of names
    uint32_t n_slots;
};

typedef const char *name_at(const void *items, uint32_t index);

// Fills the table with the names of items[0..n). On a repeated name: false and *twice is its second index; without memory: false
// and *twice is n.
bool name_table_build(struct name_table *table, const void *items, uint32_t n, name_at *name, uint32_t *twice);
uint32_t name_table_find(const struct name_table *table, const void *items, name_at *name, const char *wanted); // or UINT32_MAX
void name_table_free(struct name_table *table);

// What the header of one part holds.
struct gguf_part {
    struct gguf_source *source;
    struct arena arena;         // names
    uint8_t *owned_header;      // the header's bytes, NULL when the source is mapped
    uint64_t n_header_bytes;    // up to the end of the tensor infos
    uint64_t data_start;        // n_header_bytes rounded up to the alignment
    uint32_t version;           // 2 or 3
    uint32_t alignment;         // bytes, a power of two
    struct gguf_entry *entries; // n_entries, in file order; the offsets of text arrays are owned
    uint32_t n_entries;
    struct name_table keys;
    struct gguf_tensor *tensors; // n_tensors, in file order
    uint32_t n_tensors;
    uint64_t n_bytes_held; // memory of all this
};

// Reads and checks the header. On failure the part is empty again. The source stays the caller's.
bool gguf_part_read(struct gguf_part *part, struct gguf_source *source, uint32_t index, struct carat_error *err);
void gguf_part_free(struct gguf_part *part);

const struct gguf_value *gguf_part_find(const struct gguf_part *part, const char *key);

uint32_t gguf_value_bytes(enum gguf_value_type type); // 0 for text and arrays

#endif
