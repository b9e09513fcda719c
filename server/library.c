// library.c: the models of this machine: Ollama's store and folders with GGUF files.

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "gguf/ollama.h"
#include "internal.h"

// Called for each model; false ends the walk.
typedef bool each_model(
    void *context, const char *name, const char *path, uint64_t n_bytes, const char *digest, int64_t modified_s);

static int is_model_file(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);
    return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".gguf") == 0;
}

static bool walk_folder(const char *folder, each_model *each, void *context)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_model_file, alphasort);
    bool go_on = true;
    for (int i = 0; i < n; i++) {
        char path[PATH_MAX];
        struct stat status;
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (go_on && stat(path, &status) == 0 && S_ISREG(status.st_mode))
            go_on = each(context, entries[i]->d_name, path, (uint64_t)status.st_size, NULL, (int64_t)status.st_mtime);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return go_on;
}

static bool walk_ollama(each_model *each, void *context)
{
    struct ollama_model *models;
    size_t n_models;
    bool go_on = true;
    if (!ollama_list(NULL, &models, &n_models, NULL))
        return true;
    for (size_t i = 0; go_on && i < n_models; i++) {
        struct stat status;
        if (stat(models[i].model_path, &status) == 0)
            go_on = each(
                context, models[i].name, models[i].model_path, (uint64_t)status.st_size, models[i].digest, models[i].modified_s);
    }
    ollama_list_free(models, n_models);
    return go_on;
}

static void walk(const struct server *server, each_model *each, void *context)
{
    bool go_on = true;
    for (int i = 0; go_on && i < server->options.n_folders; i++)
        go_on = walk_folder(server->options.folders[i], each, context);
    if (go_on)
        walk_ollama(each, context);
}

// --- listing
// --------------------------------------------------------------------------------------------------------------------------

static bool write_model(
    void *context, const char *name, const char *path, uint64_t n_bytes, const char *digest, int64_t modified_s)
{
    struct json_writer *out = context;
    (void)path;
    json_write_literal(out, out->bytes[out->n_bytes - 1] == '[' ? "{\"name\":" : ",{\"name\":");
    json_write_string(out, name, strlen(name));
    json_write_format(out, ",\"size\":%llu,\"modified\":%lld", (unsigned long long)n_bytes, (long long)modified_s);
    if (digest != NULL)
        json_write_format(out, ",\"digest\":\"sha256:%s\"", digest);
    json_write_literal(out, "}");
    return true;
}

enum MHD_Result serve_models(struct exchange *exchange)
{
    struct json_writer out = {0};
    if (strcmp(exchange->method, "GET") != 0 && strcmp(exchange->method, "HEAD") != 0)
        return respond_wrong_method(exchange, "GET and HEAD");
    json_write_literal(&out, "{\"models\":[");
    walk(exchange->server, write_model, &out);
    json_write_literal(&out, "]}");
    return respond_json(exchange, MHD_HTTP_OK, &out);
}

const char *model_id(const char *name, size_t *n)
{
    size_t n_name = strlen(name);
    bool is_file = n_name > 5 && strcmp(name + n_name - 5, ".gguf") == 0;
    // Ollama's names may have a slash too (hf.co/someone/model:tag), but no file has their colon at the end.
    const char *slash = strrchr(name, '/'), *start = slash != NULL && (is_file || access(name, F_OK) == 0) ? slash + 1 : name;
    *n = strlen(start) - (is_file ? 5 : 0);
    return start;
}

static bool write_name(
    void *context, const char *name, const char *path, uint64_t n_bytes, const char *digest, int64_t modified_s)
{
    struct json_writer *out = context;
    (void)path, (void)n_bytes, (void)digest;
    size_t n;
    const char *id = model_id(name, &n);
    json_write_literal(out, out->bytes[out->n_bytes - 1] == '[' ? "{\"id\":" : ",{\"id\":");
    json_write_string(out, id, n);
    json_write_format(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"local\"}", (long long)modified_s);
    return true;
}

void library_write_names(const struct server *server, struct json_writer *out)
{
    walk(server, write_name, out);
}

// --- finding
// --------------------------------------------------------------------------------------------------------------------------

struct wanted {
    const char *name; // NULL: any
    char *path;
    char *digest; // NULL: none known
};

static bool is_id_of(const char *id, const char *name)
{
    size_t n;
    const char *own = model_id(name, &n);
    return strlen(id) == n && memcmp(id, own, n) == 0;
}

static bool take_wanted(
    void *context, const char *name, const char *path, uint64_t n_bytes, const char *digest, int64_t modified_s)
{
    struct wanted *wanted = context;
    (void)n_bytes, (void)modified_s;
    if (wanted->name != NULL && strcmp(wanted->name, name) != 0 && !is_id_of(wanted->name, name))
        return true;
    wanted->path = strdup(path);
    wanted->digest = digest != NULL ? strdup(digest) : NULL;
    return false;
}

bool library_find(const struct server *server, const char *name, char **path, char **digest)
{
    struct wanted wanted = {.name = name};
    walk(server, take_wanted, &wanted);
    *path = wanted.path;
    if (digest != NULL)
        *digest = wanted.digest;
    else
        free(wanted.digest);
    return wanted.path != NULL;
}

// Only listed models are served: the name is compared, never used as a path.
enum MHD_Result serve_blob(struct exchange *exchange, const char *name)
{
    char *path;
    char *digest;
    char etag[96];
    if (!library_find(exchange->server, name, &path, &digest))
        return respond_error(
            exchange, MHD_HTTP_NOT_FOUND, "not_found", "there is no model '%.100s' here; /api/models lists them", name);
    snprintf(etag, sizeof etag, "\"sha256:%s\"", digest != NULL ? digest : "");
    enum MHD_Result result = serve_file(exchange, path, "application/octet-stream", digest != NULL ? etag : NULL);
    free(path);
    free(digest);
    return result;
}

// --- the log for phones
// -----------------------------------------------------------------------------------------------------------------

enum MHD_Result take_log(struct exchange *exchange)
{
    struct carat_error err;
    struct stat status;
    char path[PATH_MAX];
    if (strcmp(exchange->method, "POST") != 0)
        return respond_wrong_method(exchange, "POST");
    if (exchange->body_too_large || exchange->body.n_bytes > SERVER_MAX_LOG_BYTES)
        return respond_error(
            exchange, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", "a log entry may have %d bytes", SERVER_MAX_LOG_BYTES);
    char *folder = data_folder(&err);
    if (folder == NULL)
        return respond_carat_error(exchange, &err);
    snprintf(path, sizeof path, "%s/client.log", folder);
    free(folder);
    if (stat(path, &status) == 0 && status.st_size > SERVER_MAX_LOG_FILE_BYTES)
        return respond_error(exchange, MHD_HTTP_INSUFFICIENT_STORAGE, "log_full", "the log has reached %d bytes: delete %s",
            SERVER_MAX_LOG_FILE_BYTES, path);
    FILE *log = fopen(path, "a");
    if (log == NULL)
        return respond_error(exchange, MHD_HTTP_INTERNAL_SERVER_ERROR, "io", "cannot write %s: %s", path, strerror(errno));
    fprintf(log, "%lld ", (long long)time(NULL));
    for (size_t i = 0; i < exchange->body.n_bytes; i++) {
        unsigned char c = (unsigned char)exchange->body.bytes[i];
        fputc(c < 32 || c == 127 ? ' ' : c, log); // one line an entry, no control characters
    }
    fputc('\n', log);
    bool ok = fclose(log) == 0;
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    return respond(exchange, ok ? MHD_HTTP_NO_CONTENT : MHD_HTTP_INTERNAL_SERVER_ERROR, response);
}
