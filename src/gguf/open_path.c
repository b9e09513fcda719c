// open_path.c: opening a model by path, URL or name, with the other parts of a split file.

#ifndef __wasm__

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

enum { DIGITS = 5, SUFFIX_CHARACTERS = 20 }; // "-00001-of-00003.gguf"

// Finds "-NNNNN-of-NNNNN.gguf" at the end of the name (before a URL's query). NULL when it is not there.
static char *find_suffix(char *name, unsigned *part, unsigned *count)
{
    size_t n = strcspn(name, "?");
    unsigned index = 0, total = 0;
    int used = 0;
    if (n < SUFFIX_CHARACTERS)
        return NULL;
    char *suffix = name + n - SUFFIX_CHARACTERS;
    if (sscanf(suffix, "-%5u-of-%5u.gguf%n", &index, &total, &used) != 2 || used != SUFFIX_CHARACTERS)
        return NULL;
    *part = index;
    *count = total;
    return suffix;
}

static bool open_parts(
    char *name, char *suffix, unsigned count, struct gguf_source **parts, unsigned *n_opened, struct carat_error *err)
{
    for (unsigned p = 0; p < count; p++) {
        char digits[16];
        snprintf(digits, sizeof digits, "%05u", p + 1);
        memcpy(suffix + 1, digits, DIGITS);
        parts[p] = gguf_source_open(name, err);
        if (parts[p] == NULL)
            return fail_in(err, "part %u of %u", p + 1, count);
        *n_opened = p + 1;
    }
    return true;
}

static bool open_split(char *name, char *suffix, unsigned count, struct gguf_file **out, struct carat_error *err)
{
    struct gguf_source **parts = (struct gguf_source **)calloc(count, sizeof(struct gguf_source *));
    if (parts == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to open %u files", count);
    unsigned n_opened = 0;
    bool ok = open_parts(name, suffix, count, parts, &n_opened, err) && gguf_open(parts, count, out, err);
    for (unsigned p = 0; !ok && p < n_opened; p++)
        gguf_source_close(parts[p]);
    free((void *)parts);
    return ok;
}

bool gguf_open_path(const char *name, struct gguf_file **out, struct carat_error *err)
{
    *out = NULL;
    char *copy = strdup(name);
    if (copy == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to open %s", name);
    unsigned part = 0, count = 0;
    char *suffix = find_suffix(copy, &part, &count);
    bool ok = false;
    if (suffix == NULL || count <= 1) {
        struct gguf_source *source = gguf_source_open(name, err);
        ok = source != NULL && gguf_open(&source, 1, out, err);
        if (!ok)
            gguf_source_close(source);
    } else if (part != 1) {
        fail(err, CARAT_BAD_ARGUMENT, "%s is part %u of a split model; open part 1", name, part);
    } else if (count > GGUF_MAX_PARTS) {
        fail(err, CARAT_BAD_ARGUMENT, "%s has %u parts, at most %d are allowed", name, count, GGUF_MAX_PARTS);
    } else {
        ok = open_split(copy, suffix, count, out, err);
    }
    free(copy);
    return ok;
}

#endif
