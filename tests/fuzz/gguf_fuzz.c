// gguf_fuzz.c: opens any bytes as a GGUF file, mapped and through a callback; both must come to the same result, and everything
// that an accepted file promises must hold.

#include <stdlib.h>
#include <string.h>

#include "gguf/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

struct input {
    const uint8_t *bytes;
};

static bool read_input(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    memcpy(dst, ((const struct input *)context)->bytes + offset, n_bytes);
    return true;
}

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void touch_metadata(const struct gguf_file *file)
{
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < gguf_entry_count(file); i++) {
        const struct gguf_entry *entry = gguf_entry_at(file, i);
        require(gguf_find(file, entry->key) == &entry->value);
        for (uint64_t k = 0; k < entry->value.count; k++) {
            struct gguf_text text;
            double number;
            bool is_text = gguf_value_text(&entry->value, k, &text);
            bool is_number = gguf_value_f64(&entry->value, k, &number);
            bool flag, is_bool = gguf_value_bool(&entry->value, k, &flag);
            require(is_text || is_number || is_bool);
            if (is_text && text.n_bytes != 0)
                sum += (uint8_t)text.bytes[0] + (uint8_t)text.bytes[text.n_bytes - 1];
        }
    }
}

static void touch_tensors(const struct gguf_file *file)
{
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *tensor = gguf_tensor_at(file, i);
        uint8_t byte;
        require(gguf_find_tensor(file, tensor->name) == tensor);
        require(tensor->n_bytes > 0 && gguf_tensor_read(file, tensor, tensor->n_bytes - 1, &byte, 1, NULL));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    struct input input = {bytes};
    struct gguf_source *sources[2] = {
        gguf_source_memory(bytes, n_bytes, "memory", NULL), gguf_source_callback(read_input, &input, n_bytes, "callback", NULL)};
    bool opened[2];
    for (int i = 0; i < 2; i++) {
        struct gguf_file *file;
        struct carat_error err = {0};
        opened[i] = gguf_open(&sources[i], 1, &file, &err);
        require(opened[i] || (err.code != CARAT_OK && err.message[0] != '\0'));
        if (opened[i]) {
            require(gguf_memory_bytes(file) < 64 * n_bytes + (1 << 16));
            touch_metadata(file);
            touch_tensors(file);
            gguf_close(file);
        } else {
            gguf_source_close(sources[i]);
        }
    }
    require(opened[0] == opened[1]);
    return 0;
}
