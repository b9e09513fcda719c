// arena.h: memory that is taken piece by piece and given back all at once.
//
// An arena owns a list of blocks. Everything taken from it lives until arena_free. Nothing taken is ever moved.

#ifndef CARAT_BASE_ARENA_H
#define CARAT_BASE_ARENA_H

#include <stddef.h>

struct arena_block;

struct arena {
    struct arena_block *blocks; // newest first
    size_t n_bytes_taken;       // sum of all requests
};

// n_bytes of zeroed memory aligned to 64, or NULL when memory is short. A zero-initialised arena is ready for use.
void *arena_take(struct arena *arena, size_t n_bytes);

// The same for `count` elements of `size`; NULL also when the product overflows.
void *arena_take_array(struct arena *arena, size_t count, size_t size);

// A terminated copy of n bytes.
char *arena_copy_text(struct arena *arena, const char *text, size_t n_bytes);

// Gives everything back; the arena is empty and usable afterwards.
void arena_free(struct arena *arena);

#endif
