// model_edit.h: copies of fixture models with changed metadata and tensors, for tests. Include after golden.h.

#ifndef CARAT_TESTS_MODEL_EDIT_H
#define CARAT_TESTS_MODEL_EDIT_H

#include "gguf/writer.h"
#include "golden.h"

// A change of one key. With no other field set the key is left out of the copy.
struct key_edit {
    const char *key;
    const char *text;       // becomes this text
    bool has_number;        // becomes a number: u32, or f32 when is_f32
    double number;          //
    bool is_f32;            //
    const int32_t *numbers; // becomes an i32 array of n
    uint64_t n;             //
};

// A change of one tensor. name NULL: a new tensor; new_name NULL: left out; bytes NULL: the old bytes.
struct tensor_edit {
    const char *name;
    const char *new_name;
    enum gguf_type type; // the next three with bytes only
    uint64_t ne[GGUF_MAX_DIMS];
    const void *bytes;
};

struct model_edits {
    const struct key_edit *keys;
    size_t n_keys;
    const struct tensor_edit *tensors;
    size_t n_tensors;
};

GOLDEN_HELPER void write_edited_key(struct gguf_writer *writer, const struct key_edit *edit)
{
    if (edit->text != NULL)
        gguf_write_text(writer, edit->key, edit->text);
    else if (edit->has_number && edit->is_f32)
        gguf_write_f32(writer, edit->key, (float)edit->number);
    else if (edit->has_number)
        gguf_write_u32(writer, edit->key, (uint32_t)edit->number);
    else if (edit->numbers != NULL)
        gguf_write_array(writer, edit->key, GGUF_VALUE_I32, edit->numbers, edit->n);
}

GOLDEN_HELPER void write_edited_keys(
    struct gguf_writer *writer, const struct gguf_file *file, const struct key_edit *edits, size_t n_edits)
{
    for (size_t i = 0; i < gguf_entry_count(file); i++) {
        const struct gguf_entry *entry = gguf_entry_at(file, i);
        bool edited = false;
        for (size_t e = 0; e < n_edits; e++)
            edited = edited || strcmp(edits[e].key, entry->key) == 0;
        if (!edited)
            gguf_write_value(writer, entry->key, &entry->value);
    }
    for (size_t e = 0; e < n_edits; e++)
        write_edited_key(writer, &edits[e]);
}

GOLDEN_HELPER const struct tensor_edit *edit_of_tensor(const struct model_edits *edits, const char *name)
{
    for (size_t e = 0; e < edits->n_tensors; e++) {
        if (edits->tensors[e].name != NULL && strcmp(edits->tensors[e].name, name) == 0)
            return &edits->tensors[e];
    }
    return NULL;
}

GOLDEN_HELPER uint32_t count_dims(const uint64_t ne[GGUF_MAX_DIMS])
{
    uint32_t n = GGUF_MAX_DIMS;
    while (n > 1 && ne[n - 1] <= 1)
        n--;
    return n;
}

// Declares (pass 0) or writes (pass 1) one tensor of the copy.
GOLDEN_HELPER void copy_tensor(struct gguf_writer *writer, const struct gguf_file *file, const struct gguf_tensor *tensor,
    const struct tensor_edit *edit, int pass)
{
    struct carat_error err = {0};
    bool replaced = edit != NULL && edit->bytes != NULL;
    const char *name = edit != NULL ? edit->new_name : tensor->name;
    const uint64_t *ne = replaced ? edit->ne : tensor->ne;
    enum gguf_type type = replaced ? edit->type : tensor->type;
    if (name == NULL)
        return;
    if (pass == 0) {
        gguf_declare(writer, name, type, count_dims(ne), ne);
        return;
    }
    uint64_t n_bytes;
    assert_true(gguf_row_bytes(type, ne[0], &n_bytes));
    for (int i = 1; i < GGUF_MAX_DIMS; i++)
        n_bytes *= ne[i] != 0 ? ne[i] : 1;
    if (replaced) {
        gguf_write_data(writer, edit->bytes, (size_t)n_bytes);
        return;
    }
    void *bytes = malloc((size_t)n_bytes);
    assert_non_null(bytes);
    require(gguf_tensor_read(file, tensor, 0, bytes, (size_t)n_bytes, &err), err);
    gguf_write_data(writer, bytes, (size_t)n_bytes);
    free(bytes);
}

// A copy of a fixture model with changes: its path, to be unlinked and freed by the caller.
GOLDEN_HELPER char *edited_model(const char *model, const struct model_edits *edits)
{
    struct carat_error err = {0};
    struct gguf_file *file = golden_open("models", model);
    char *path = temporary_file();
    struct gguf_writer *writer = gguf_writer_new(path, 0, &err);
    require(writer != NULL, err);
    write_edited_keys(writer, file, edits->keys, edits->n_keys);
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
            const struct gguf_tensor *tensor = gguf_tensor_at(file, i);
            copy_tensor(writer, file, tensor, edit_of_tensor(edits, tensor->name), pass);
        }
        for (size_t e = 0; e < edits->n_tensors; e++) {
            if (edits->tensors[e].name == NULL)
                copy_tensor(writer, file, NULL, &edits->tensors[e], pass);
        }
    }
    require(gguf_writer_finish(writer, &err), err);
    gguf_writer_free(writer);
    gguf_close(file);
    return path;
}

// The bytes of a tensor of a fixture model, freed by the caller.
GOLDEN_HELPER void *model_tensor(const char *model, const char *name, uint64_t *n_bytes)
{
    struct carat_error err = {0};
    struct gguf_file *file = golden_open("models", model);
    const struct gguf_tensor *tensor = gguf_find_tensor(file, name);
    assert_non_null(tensor);
    void *bytes = malloc((size_t)tensor->n_bytes);
    assert_non_null(bytes);
    require(gguf_tensor_read(file, tensor, 0, bytes, (size_t)tensor->n_bytes, &err), err);
    *n_bytes = tensor->n_bytes;
    gguf_close(file);
    return bytes;
}

#endif
