// arena.c: blocks of at least 64 KiB, filled from the front.

#include "base/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64, BLOCK_BYTES = 64 * 1024 };

struct arena_block {
    struct arena_block *next;
    size_t n_bytes; // of data
    size_t n_used;
    unsigned char *data; // aligned to ALIGN, inside this allocation
};

static struct arena_block *block_new(size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - sizeof(struct arena_block) - ALIGN)
        return NULL;
    struct arena_block *block = calloc(1, sizeof *block + ALIGN + n_bytes);
    if (block == NULL)
        return NULL;
    uintptr_t start = (uintptr_t)(block + 1);
    block->data = (unsigned char *)(block + 1) + ((ALIGN - start % ALIGN) % ALIGN);
    block->n_bytes = n_bytes;
    return block;
}

void *arena_take(struct arena *arena, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - ALIGN)
        return NULL;
    size_t need = (n_bytes + ALIGN - 1) / ALIGN * ALIGN;
    struct arena_block *block = arena->blocks;
    if (block == NULL || block->n_bytes - block->n_used < need) {
        block = block_new(need > BLOCK_BYTES ? need : BLOCK_BYTES);
        if (block == NULL)
            return NULL;
        block->next = arena->blocks;
        arena->blocks = block;
    }
    void *result = block->data + block->n_used;
    block->n_used += need;
    arena->n_bytes_taken += n_bytes;
    return result;
}

void *arena_take_array(struct arena *arena, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    return arena_take(arena, count * size);
}

char *arena_copy_text(struct arena *arena, const char *text, size_t n_bytes)
{
    if (n_bytes == SIZE_MAX)
        return NULL;
    char *copy = arena_take(arena, n_bytes + 1);
    if (copy != NULL && n_bytes != 0)
        memcpy(copy, text, n_bytes);
    return copy;
}

void arena_free(struct arena *arena)
{
    for (struct arena_block *block = arena->blocks; block != NULL;) {
        struct arena_block *next = block->next;
        free(block);
        block = next;
    }
    *arena = (struct arena){0};
}
