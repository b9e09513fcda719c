// safetensors_fuzz.c: opens any bytes as a safetensors file (and so any text as JSON) and reads what an accepted file promises.

#include <stdlib.h>

#include "gguf/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct gguf_source *source = gguf_source_memory(bytes, n_bytes, "memory", NULL);
    struct safetensors_file *file;
    struct carat_error err = {0};
    if (!safetensors_open(source, &file, &err)) {
        if (err.code == CARAT_OK || err.message[0] == '\0')
            abort();
        gguf_source_close(source);
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_tensor *tensor = safetensors_at(file, i);
        uint64_t n = 1;
        for (uint32_t d = 0; d < tensor->n_dims; d++)
            n *= tensor->shape[d];
        float *values = malloc(n * sizeof *values + 1);
        if (safetensors_find(file, tensor->name) != tensor || tensor->offset + tensor->n_bytes > n_bytes || values == NULL)
            abort();
        safetensors_read_f32(file, tensor, values, n, NULL);
        free(values);
    }
    safetensors_close(file);
    return 0;
}
