// adapter_path.c: adapters in the file system.

#ifndef __wasm__

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lora/adapter.h"

enum { MAX_CONFIG_BYTES = 1 << 20, MAX_PATH_BYTES = 4096 };

// The whole text of a small file; NULL without an error when there is no such file.
static bool read_config(const char *path, char **text, size_t *n_bytes, struct carat_error *err)
{
    *text = NULL;
    *n_bytes = 0;
    struct stat status;
    if (stat(path, &status) != 0)
        return true;
    struct gguf_source *source = gguf_source_file(path, false, err);
    if (source == NULL)
        return false;
    bool done =
        source->n_bytes <= MAX_CONFIG_BYTES || fail(err, CARAT_BAD_FILE, "'%s' is larger than a configuration can be", path);
    if (done) {
        *n_bytes = (size_t)source->n_bytes;
        *text = malloc(*n_bytes + 1);
        done = *text != NULL || fail(err, CARAT_NO_MEMORY, "no memory for '%s'", path);
    }
    done = done && gguf_source_read(source, 0, *text, *n_bytes, err);
    gguf_source_close(source);
    if (!done) {
        free(*text);
        *text = NULL;
    }
    return done;
}

// The weights' file and the configuration beside it.
static bool find_files(const char *path, char *weights, char *config, struct carat_error *err)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return fail(err, CARAT_NOT_FOUND, "there is no adapter '%s'", path);
    const char *slash = strrchr(path, '/');
    int n_folder = S_ISDIR(status.st_mode) ? (int)strlen(path) : slash != NULL ? (int)(slash - path) : 0;
    if (strlen(path) > MAX_PATH_BYTES - 64)
        return fail(err, CARAT_BAD_ARGUMENT, "the path of the adapter is too long");
    snprintf(weights, MAX_PATH_BYTES, S_ISDIR(status.st_mode) ? "%s/adapter_model.safetensors" : "%s", path);
    snprintf(config, MAX_PATH_BYTES, "%.*s%sadapter_config.json", n_folder, path, n_folder > 0 ? "/" : "");
    if (stat(weights, &status) != 0)
        return fail(
            err, CARAT_NOT_FOUND, "folder '%s' holds no adapter_model.safetensors (pickled .bin files are not read)", path);
    return true;
}

bool adapter_load_path(struct ops *ops, struct gemma4_text *text, const char *path, struct adapter **out, struct carat_error *err)
{
    char weights_path[MAX_PATH_BYTES], config_path[MAX_PATH_BYTES], *config;
    size_t n_config;
    *out = NULL;
    if (!find_files(path, weights_path, config_path, err) || !read_config(config_path, &config, &n_config, err))
        return false;
    struct gguf_source *source = gguf_source_file(weights_path, true, err);
    bool done = source != NULL && adapter_load(ops, text, source, config, n_config, out, err);
    gguf_source_close(source);
    free(config);
    return done || fail_in(err, "adapter '%s'", path);
}

#endif
