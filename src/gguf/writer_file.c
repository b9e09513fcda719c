// writer_file.c: a writer's target on disk: NAME.part, renamed to NAME when everything is written and synchronised.

#ifndef __wasm__

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gguf/writer_internal.h"

enum { BUFFER_BYTES = 1 << 20 };

struct file_target {
    struct gguf_writer_target target; // first
    FILE *file;                       // NULL once committed
    char *path, *part_path;
};

static bool write_file(void *context, const void *bytes, size_t n_bytes, struct carat_error *err)
{
    struct file_target *file = context;
    if (fwrite(bytes, 1, n_bytes, file->file) == n_bytes)
        return true;
    return fail(err, CARAT_IO, "cannot write %s: %s; free some space and try again", file->part_path, strerror(errno));
}

static bool commit_file(struct gguf_writer_target *target, struct carat_error *err)
{
    struct file_target *file = (struct file_target *)target;
    bool ok = fflush(file->file) == 0 && fsync(fileno(file->file)) == 0;
    int reason = errno;
    if (fclose(file->file) != 0 && ok) {
        ok = false;
        reason = errno;
    }
    file->file = NULL;
    if (ok && rename(file->part_path, file->path) == 0)
        return true;
    reason = ok ? errno : reason;
    unlink(file->part_path);
    return fail(err, CARAT_IO, "cannot complete %s: %s; free some space and try again", file->path, strerror(reason));
}

static void close_file(struct gguf_writer_target *target)
{
    struct file_target *file = (struct file_target *)target;
    if (file->file != NULL) {
        fclose(file->file);
        unlink(file->part_path);
    }
    free(file->path);
    free(file->part_path);
    free(file);
}

// Renaming would put a file in the place of a device: /dev/null would be gone for the whole system.
static bool may_replace(const char *path, struct carat_error *err)
{
    struct stat status;
    return stat(path, &status) != 0 || S_ISREG(status.st_mode) ||
           fail(err, CARAT_BAD_ARGUMENT, "%s is not a regular file; name a file to write", path);
}

static struct file_target *file_target_new(const char *path, struct carat_error *err)
{
    if (!may_replace(path, err))
        return NULL;
    struct file_target *file = calloc(1, sizeof *file);
    size_t n = strlen(path);
    if (file != NULL) {
        file->target = (struct gguf_writer_target){.commit = commit_file, .close = close_file};
        file->path = strdup(path);
        file->part_path = malloc(n + sizeof ".part");
    }
    if (file == NULL || file->path == NULL || file->part_path == NULL) {
        if (file != NULL)
            close_file(&file->target);
        fail(err, CARAT_NO_MEMORY, "no memory to write %s", path);
        return NULL;
    }
    snprintf(file->part_path, n + sizeof ".part", "%s.part", path);
    file->file = fopen(file->part_path, "wb");
    if (file->file == NULL) {
        fail(err, CARAT_IO, "cannot create %s: %s", file->part_path, strerror(errno));
        close_file(&file->target);
        return NULL;
    }
    setvbuf(file->file, NULL, _IOFBF, BUFFER_BYTES);
    return file;
}

struct gguf_writer *gguf_writer_new(const char *path, uint32_t alignment, struct carat_error *err)
{
    struct file_target *file = file_target_new(path, err);
    if (file == NULL)
        return NULL;
    struct gguf_writer *writer = gguf_writer_new_sink(write_file, file, alignment, err);
    if (writer == NULL)
        close_file(&file->target);
    else
        gguf_writer_set_target(writer, &file->target);
    return writer;
}

#endif
