// ollama.h: models in the local store of Ollama (manifests and blobs under OLLAMA_MODELS or ~/.ollama/models).

#ifndef CARAT_GGUF_OLLAMA_H
#define CARAT_GGUF_OLLAMA_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct ollama_model {
    char *name;             // as users write it: "gemma4:e2b", with host and namespace where they are not the defaults
    char *digest;           // 64 hexadecimal digits of the model blob
    uint64_t n_bytes;       // sum of all layers
    int64_t modified_s;     // modification time of the manifest, seconds since 1970
    char *model_path;       // the GGUF, never NULL
    char **projector_paths; // n_projectors mmproj files
    size_t n_projectors;
    char *adapter_path; // LoRA GGUF or NULL
    char *draft_path;   // drafter GGUF or NULL
    char *params_path;  // JSON object of default options, or NULL
    char *system_path;  // default system text, or NULL
};

// The folder of the store: OLLAMA_MODELS or ~/.ollama/models. Allocated; NULL when there is no home either.
char *ollama_store_path(void);

// Finds `name` ([HOST/][NAMESPACE/]MODEL[:TAG]) in the store at `store` (NULL = the default). Only the manifest is read, and the
// blobs' existence is checked. CARAT_NOT_FOUND when there is no such model, CARAT_UNSUPPORTED when it is not a GGUF model.
bool ollama_find(const char *store, const char *name, struct ollama_model *out, struct carat_error *err);
void ollama_model_free(struct ollama_model *model);

// Every usable model of the store, sorted by name; manifests that cannot be used are left out. An absent store gives 0 models.
bool ollama_list(const char *store, struct ollama_model **out, size_t *n_models, struct carat_error *err);
void ollama_list_free(struct ollama_model *models, size_t n_models);

#endif
