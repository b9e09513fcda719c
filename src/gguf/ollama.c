// ollama.c: manifests and blobs of the local Ollama store.
//
// A manifest is JSON under manifests/HOST/NAMESPACE/MODEL/TAG; it lists layers by digest, and a digest is a file under blobs/.
// Names and digests are checked before they become part of a path, so neither can lead out of the store.

#ifndef __wasm__

#include "gguf/ollama.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"

enum { MAX_MANIFEST_BYTES = 4 << 20, MAX_PART_BYTES = 128, DIGEST_CHARACTERS = 64, MAX_LAYERS = 256 };

static const char default_host[] = "registry.ollama.ai", default_namespace[] = "library", default_tag[] = "latest";
static const char layer_prefix[] = "application/vnd.ollama.image.";

// The four parts of a model's name.
struct model_name {
    char host[MAX_PART_BYTES], space[MAX_PART_BYTES], model[MAX_PART_BYTES], tag[MAX_PART_BYTES];
};

__attribute__((format(printf, 1, 2))) static char *format_text(const char *format, ...);

static char *format_text(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    char *text = n < 0 ? NULL : malloc((size_t)n + 1);
    if (text != NULL)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}

char *ollama_store_path(void)
{
    const char *store = getenv("OLLAMA_MODELS");
    const char *home = getenv("HOME");
    if (store != NULL && store[0] != '\0')
        return format_text("%s", store);
    return home != NULL ? format_text("%s/.ollama/models", home) : NULL;
}

// Copies n bytes of one part of a name. Only characters that Ollama allows, never a leading dot, so no part is "..".
static bool copy_part(char part[MAX_PART_BYTES], const char *text, size_t n)
{
    if (n == 0 || n >= MAX_PART_BYTES || text[0] == '.')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.' || c == ':';
        if (!ok)
            return false;
    }
    memcpy(part, text, n);
    part[n] = '\0';
    return true;
}

// [HOST/][NAMESPACE/]MODEL[:TAG]
static bool parse_name(const char *text, struct model_name *name)
{
    const char *parts[3];
    size_t lengths[3], n = 0;
    for (const char *at = text;; at++) {
        size_t length = strcspn(at, "/");
        if (n == 3)
            return false;
        parts[n] = at;
        lengths[n++] = length;
        at += length;
        if (*at == '\0')
            break;
    }
    const char *model = parts[n - 1];
    size_t n_model = strcspn(model, ":");
    const char *tag = model[n_model] == ':' ? model + n_model + 1 : default_tag;
    const char *space = n >= 2 ? parts[n - 2] : default_namespace;
    const char *host = n >= 3 ? parts[0] : default_host;
    return copy_part(name->host, host, n >= 3 ? lengths[0] : strlen(host)) &&
           copy_part(name->space, space, n >= 2 ? lengths[n - 2] : strlen(space)) && copy_part(name->model, model, n_model) &&
           copy_part(name->tag, tag, strlen(tag)) && strchr(name->tag, ':') == NULL && strchr(name->space, ':') == NULL;
}

// The name as users write it: defaults left out.
static char *short_name(const struct model_name *name)
{
    if (strcmp(name->host, default_host) != 0)
        return format_text("%s/%s/%s:%s", name->host, name->space, name->model, name->tag);
    if (strcmp(name->space, default_namespace) != 0)
        return format_text("%s/%s:%s", name->space, name->model, name->tag);
    return format_text("%s:%s", name->model, name->tag);
}

// "sha256:<64 hex>" (or with '-') to the 64 digits.
static const char *digest_digits(const char *digest)
{
    if (strncmp(digest, "sha256", 6) != 0 || (digest[6] != ':' && digest[6] != '-') || strlen(digest) != 7 + DIGEST_CHARACTERS)
        return NULL;
    return strspn(digest + 7, "0123456789abcdefABCDEF") == DIGEST_CHARACTERS ? digest + 7 : NULL;
}

// Reads the manifest file. NULL on failure; *modified_s is its modification time.
static struct json_document *read_manifest(const char *path, int64_t *modified_s, struct carat_error *err)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail(err, errno == ENOENT || errno == ENOTDIR ? CARAT_NOT_FOUND : CARAT_IO, "cannot open %s: %s", path, strerror(errno));
        return NULL;
    }
    struct json_document *document = NULL;
    struct stat status;
    char *text = NULL;
    if (fstat(fileno(file), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size > MAX_MANIFEST_BYTES) {
        fail(err, CARAT_BAD_FILE, "%s is not a manifest; remove it or pull the model again", path);
    } else if ((text = malloc((size_t)status.st_size + 1)) == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory to read %s", path);
    } else {
        size_t n = fread(text, 1, (size_t)status.st_size, file);
        document = json_parse(text, n, err);
        if (document == NULL)
            fail_in(err, "%s", path);
        *modified_s = (int64_t)status.st_mtime;
    }
    free(text);
    fclose(file);
    return document;
}

// The path of the blob with this digest if it exists. Allocated.
static bool blob_path(const char *store, const char *digest, char **path, struct carat_error *err)
{
    const char *digits = digest_digits(digest);
    if (digits == NULL)
        return fail(err, CARAT_BAD_FILE, "a layer's digest is '%.80s', not a SHA-256; pull the model again", digest);
    *path = format_text("%s/blobs/sha256-%s", store, digits);
    if (*path == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a path");
    struct stat status;
    if (stat(*path, &status) == 0 && S_ISREG(status.st_mode))
        return true;
    fail(err, CARAT_NOT_FOUND, "the file %s is missing; pull the model again", *path);
    free(*path);
    *path = NULL;
    return false;
}

// Puts one layer of the manifest in its place in the model.
static bool take_layer(const char *store, const struct json_value *layer, struct ollama_model *model, struct carat_error *err)
{
    const char *media_type, *digest;
    int64_t size = 0;
    if (!json_get_text(layer, "mediaType", &media_type) || !json_get_text(layer, "digest", &digest))
        return fail(err, CARAT_BAD_FILE, "a layer without type or digest; pull the model again");
    if (json_get_i64(layer, "size", &size) && size > 0)
        model->n_bytes += (uint64_t)size;
    if (strncmp(media_type, layer_prefix, strlen(layer_prefix)) != 0)
        return true;
    const char *kind = media_type + strlen(layer_prefix);
    if (strcmp(kind, "tensor") == 0)
        return fail(err, CARAT_UNSUPPORTED, "the model is stored as single tensors, not as GGUF; pull a GGUF variant");
    if (strcmp(kind, "projector") == 0) {
        char **grown = (char **)realloc((void *)model->projector_paths, (model->n_projectors + 1) * sizeof *grown);
        if (grown == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory for a path");
        model->projector_paths = grown;
        if (!blob_path(store, digest, &grown[model->n_projectors], err))
            return false;
        model->n_projectors++;
        return true;
    }
    char **place = strcmp(kind, "model") == 0     ? &model->model_path
                   : strcmp(kind, "adapter") == 0 ? &model->adapter_path
                   : strcmp(kind, "draft") == 0   ? &model->draft_path
                   : strcmp(kind, "params") == 0  ? &model->params_path
                   : strcmp(kind, "system") == 0  ? &model->system_path
                                                  : NULL;
    if (place == NULL || *place != NULL) // templates and licences; of several models the first counts
        return true;
    if (place == &model->model_path && digest_digits(digest) != NULL &&
        (model->digest = format_text("%s", digest_digits(digest))) == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a digest");
    return blob_path(store, digest, place, err);
}

static bool take_layers(const char *store, const struct json_value *manifest, struct ollama_model *model, struct carat_error *err)
{
    const struct json_value *layers = json_get(manifest, "layers");
    if (!json_is(layers, JSON_ARRAY) || layers->n_children > MAX_LAYERS)
        return fail(err, CARAT_BAD_FILE, "not a manifest: its list of layers is missing; pull the model again");
    for (size_t i = 0; i < layers->n_children; i++) {
        if (!take_layer(store, &layers->children[i], model, err))
            return false;
    }
    return model->model_path != NULL || fail(err, CARAT_UNSUPPORTED, "no layer holds a GGUF model; pull a GGUF variant");
}

static bool load_model(const char *store, const struct model_name *name, struct ollama_model *out, struct carat_error *err)
{
    *out = (struct ollama_model){0};
    char *path = format_text("%s/manifests/%s/%s/%s/%s", store, name->host, name->space, name->model, name->tag);
    out->name = short_name(name);
    if (path == NULL || out->name == NULL) {
        free(path);
        ollama_model_free(out);
        return fail(err, CARAT_NO_MEMORY, "no memory for a path");
    }
    struct json_document *document = read_manifest(path, &out->modified_s, err);
    bool ok = document != NULL && (take_layers(store, json_root(document), out, err) || fail_in(err, "%s", path));
    json_free(document);
    free(path);
    if (!ok)
        ollama_model_free(out);
    return ok;
}

bool ollama_find(const char *store, const char *name, struct ollama_model *out, struct carat_error *err)
{
    *out = (struct ollama_model){0};
    struct model_name parsed;
    if (!parse_name(name, &parsed))
        return fail(err, CARAT_NOT_FOUND, "'%.200s' is neither a file nor a URL nor the name of a model", name);
    char *folder = store != NULL ? format_text("%s", store) : ollama_store_path();
    if (folder == NULL)
        return fail(
            err, CARAT_NOT_FOUND, "'%.200s' is no file, and there is no model store: set OLLAMA_MODELS or name a path", name);
    struct carat_error local = {0};
    bool ok = load_model(folder, &parsed, out, &local);
    if (!ok && local.code == CARAT_NOT_FOUND && strstr(local.message, "/manifests/") != NULL &&
        strstr(local.message, "cannot open") != NULL)
        fail(err, CARAT_NOT_FOUND,
            "'%.160s' is no file and no model in the store %.160s; name a .gguf file, or pull the model with Ollama", name,
            folder);
    else if (!ok)
        fail(err, local.code, "%s", local.message);
    free(folder);
    return ok;
}

void ollama_model_free(struct ollama_model *model)
{
    for (size_t i = 0; i < model->n_projectors; i++)
        free(model->projector_paths[i]);
    free((void *)model->projector_paths);
    free(model->name);
    free(model->digest);
    free(model->model_path);
    free(model->adapter_path);
    free(model->draft_path);
    free(model->params_path);
    free(model->system_path);
    *model = (struct ollama_model){0};
}

struct listing {
    const char *store;
    struct ollama_model *models;
    size_t n_models;
    bool out_of_memory;
};

static void list_model(struct listing *listing, const struct model_name *name)
{
    struct ollama_model model;
    if (!load_model(listing->store, name, &model, NULL))
        return; // not usable: left out
    struct ollama_model *grown = realloc(listing->models, (listing->n_models + 1) * sizeof *grown);
    if (grown == NULL) {
        ollama_model_free(&model);
        listing->out_of_memory = true;
        return;
    }
    grown[listing->n_models++] = model;
    listing->models = grown;
}

// Visits manifests/HOST/NAMESPACE/MODEL/TAG; `level` parts of the name are known.
static void list_folder(struct listing *listing, struct model_name *name, const char *path, int level)
{
    char *parts[4] = {name->host, name->space, name->model, name->tag};
    DIR *folder = opendir(path);
    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        if (!copy_part(parts[level], entry->d_name, strlen(entry->d_name)))
            continue;
        if (level == 3) {
            list_model(listing, name);
            continue;
        }
        char *below = format_text("%s/%s", path, entry->d_name);
        if (below == NULL)
            listing->out_of_memory = true;
        else
            list_folder(listing, name, below, level + 1);
        free(below);
    }
    closedir(folder);
}

static int compare_models(const void *a, const void *b)
{
    return strcmp(((const struct ollama_model *)a)->name, ((const struct ollama_model *)b)->name);
}

bool ollama_list(const char *store, struct ollama_model **out, size_t *n_models, struct carat_error *err)
{
    *out = NULL;
    *n_models = 0;
    char *folder = store != NULL ? format_text("%s", store) : ollama_store_path();
    if (folder == NULL)
        return true;
    struct listing listing = {.store = folder};
    struct model_name name;
    char *manifests = format_text("%s/manifests", folder);
    if (manifests != NULL)
        list_folder(&listing, &name, manifests, 0);
    bool ok = manifests != NULL && !listing.out_of_memory;
    free(manifests);
    free(folder);
    if (!ok) {
        ollama_list_free(listing.models, listing.n_models);
        return fail(err, CARAT_NO_MEMORY, "no memory to list the models");
    }
    if (listing.n_models != 0)
        qsort(listing.models, listing.n_models, sizeof *listing.models, compare_models);
    *out = listing.models;
    *n_models = listing.n_models;
    return true;
}

void ollama_list_free(struct ollama_model *models, size_t n_models)
{
    for (size_t i = 0; i < n_models; i++)
        ollama_model_free(&models[i]);
    free(models);
}

#endif
