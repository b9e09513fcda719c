// names.c: the hash table from names to indices.

#include <stdlib.h>
#include <string.h>

#include "gguf/parse.h"

// FNV-1a with a final mix, so that the low bits depend on all of the name.
static uint32_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name != '\0'; name++)
        hash = (hash ^ (uint8_t)*name) * 0x100000001b3u;
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return (uint32_t)(hash >> 32);
}

bool name_table_build(struct name_table *table, const void *items, uint32_t n, name_at *name, uint32_t *twice)
{
    uint32_t n_slots = 16;
    while (n_slots < 2 * n)
        n_slots *= 2;
    *twice = n;
    table->slots = calloc(n_slots, sizeof *table->slots);
    table->n_slots = n_slots;
    if (table->slots == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const char *wanted = name(items, i);
        uint32_t hash = hash_name(wanted);
        uint32_t at = hash & (n_slots - 1);
        for (; table->slots[at].index_plus_1 != 0; at = (at + 1) & (n_slots - 1)) {
            if (table->slots[at].hash == hash && strcmp(name(items, table->slots[at].index_plus_1 - 1), wanted) == 0) {
                *twice = i;
                return false;
            }
        }
        table->slots[at] = (struct name_slot){.hash = hash, .index_plus_1 = i + 1};
    }
    return true;
}

uint32_t name_table_find(const struct name_table *table, const void *items, name_at *name, const char *wanted)
{
    if (table->slots == NULL)
        return UINT32_MAX;
    uint32_t hash = hash_name(wanted);
    for (uint32_t at = hash & (table->n_slots - 1); table->slots[at].index_plus_1 != 0; at = (at + 1) & (table->n_slots - 1)) {
        uint32_t index = table->slots[at].index_plus_1 - 1;
        if (table->slots[at].hash == hash && strcmp(name(items, index), wanted) == 0)
            return index;
    }
    return UINT32_MAX;
}

void name_table_free(struct name_table *table)
{
    free(table->slots);
    *table = (struct name_table){0};
}
