// source_file.c: a local file, mapped or read by position, and gguf_source_open.

#ifndef __wasm__

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/ollama.h"
#include "gguf/source.h"

struct file_source {
    struct gguf_source source; // first
    int descriptor;
    char name[];
};

static void close_file(struct gguf_source *source)
{
    struct file_source *file = (struct file_source *)source;
    if (source->mapped != NULL)
        munmap((void *)(uintptr_t)source->mapped, (size_t)source->n_bytes);
    close(file->descriptor);
    free(file);
}

static bool read_file(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    struct file_source *file = (struct file_source *)source;
    if (source->mapped != NULL) {
        memcpy(dst, (const char *)source->mapped + offset, n_bytes);
        return true;
    }
    while (n_bytes != 0) {
        size_t at_once = n_bytes < (size_t)1 << 30 ? n_bytes : (size_t)1 << 30;
        ssize_t n = pread(file->descriptor, dst, at_once, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(
                err, CARAT_IO, "%s: cannot read at byte %llu: %s", source->name, (unsigned long long)offset, strerror(errno));
        if (n == 0)
            return fail(err, CARAT_IO, "%s: it became shorter while it was read", source->name);
        dst = (char *)dst + n;
        n_bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

static struct file_source *file_new(const char *path, struct carat_error *err)
{
    size_t n_name = strlen(path) + 1;
    struct file_source *file = calloc(1, sizeof *file + n_name);
    if (file == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to open %s", path);
        return NULL;
    }
    memcpy(file->name, path, n_name);
    file->source = (struct gguf_source){.read = read_file, .close = close_file, .name = file->name};
    file->descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (file->descriptor < 0) {
        fail(err, errno == ENOENT ? CARAT_NOT_FOUND : CARAT_IO, "cannot open %s: %s", path, strerror(errno));
        free(file);
        return NULL;
    }
    return file;
}

struct gguf_source *gguf_source_file(const char *path, bool map, struct carat_error *err)
{
    struct file_source *file = file_new(path, err);
    if (file == NULL)
        return NULL;
    struct stat status;
    bool ok = fstat(file->descriptor, &status) == 0 || fail(err, CARAT_IO, "cannot open %s: %s", path, strerror(errno));
    ok = ok && (S_ISREG(status.st_mode) || fail(err, CARAT_BAD_ARGUMENT, "%s is not a regular file; name a model file", path));
    if (!ok) {
        close_file(&file->source);
        return NULL;
    }
    file->source.n_bytes = (uint64_t)status.st_size;
    if (map && status.st_size > 0 && (uint64_t)status.st_size <= SIZE_MAX / 2) {
        void *mapped = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file->descriptor, 0);
        if (mapped != MAP_FAILED) // else the file is read by position
            file->source.mapped = mapped;
    }
    return &file->source;
}

struct gguf_source *gguf_source_open(const char *name, struct carat_error *err)
{
    if (strncasecmp(name, "http://", 7) == 0 || strncasecmp(name, "https://", 8) == 0)
        return gguf_source_http(name, err);
    struct stat status;
    if (stat(name, &status) == 0)
        return gguf_source_file(name, true, err);
    size_t n = strlen(name);
    bool like_path = name[0] == '/' || name[0] == '.' || name[0] == '~' || (n > 5 && strcasecmp(name + n - 5, ".gguf") == 0);
    if (like_path) {
        fail(err, CARAT_NOT_FOUND, "there is no file '%s'; check the path", name);
        return NULL;
    }
    struct ollama_model model;
    if (!ollama_find(NULL, name, &model, err))
        return NULL;
    struct gguf_source *source = gguf_source_file(model.model_path, true, err);
    ollama_model_free(&model);
    return source;
}

#endif
