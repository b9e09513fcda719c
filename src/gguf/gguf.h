// gguf.h: reading a GGUF file: metadata and the table of tensors (GGUF versions 2 and 3, little-endian).
//
// Opening reads only the header, with reads that grow as the header turns out to be longer, and checks all of it: after
// gguf_open every tensor lies inside its file, has a known type and a size that fits 63 bits, and overlaps no other tensor.
// What a model needs beyond that (which keys, which shapes) is for the model to check.
//
// Everything returned points into the file's own memory and lives until gguf_close. An open file is read-only: any number of
// threads may use it.

#ifndef CARAT_GGUF_GGUF_H
#define CARAT_GGUF_GGUF_H

#include <stdint.h>

#include "base/error.h"
#include "gguf/source.h"
#include "gguf/types.h"

enum { GGUF_MAX_DIMS = 4, GGUF_MAX_NAME_BYTES = 64, GGUF_MAX_PARTS = 1024, GGUF_DEFAULT_ALIGNMENT = 32 };
enum { GGUF_MAX_HEADER_BYTES = 128 << 20 }; // of one part; published Gemma 4 files have 16 MiB

enum gguf_value_type {
    GGUF_VALUE_U8,
    GGUF_VALUE_I8,
    GGUF_VALUE_U16,
    GGUF_VALUE_I16,
    GGUF_VALUE_U32,
    GGUF_VALUE_I32,
    GGUF_VALUE_F32,
    GGUF_VALUE_BOOL,
    GGUF_VALUE_TEXT,
    GGUF_VALUE_ARRAY,
    GGUF_VALUE_U64,
    GGUF_VALUE_I64,
    GGUF_VALUE_F64,
    GGUF_VALUE_TYPES,
};

struct gguf_text {
    const char *bytes; // not terminated; may hold any byte
    size_t n_bytes;
};

// A value of the metadata. A scalar is read like an array of one element.
struct gguf_value {
    bool is_array;
    enum gguf_value_type type; // of the scalar or of the array's elements, never GGUF_VALUE_ARRAY
    uint64_t count;            // elements; 1 for a scalar
    const uint8_t *bytes;      // the first element as it stands in the file, unaligned
    const uint32_t *offsets;   // text only: where element i's u64 length stands, relative to bytes
};

struct gguf_entry {
    const char *key; // terminated
    struct gguf_value value;
};

struct gguf_tensor {
    const char *name; // terminated, shorter than GGUF_MAX_NAME_BYTES
    enum gguf_type type;
    uint32_t n_dims;            // as stored
    uint64_t ne[GGUF_MAX_DIMS]; // elements per dimension, ne[0] fastest; 1 beyond n_dims
    uint64_t offset;            // of the first byte, from the start of its part
    uint64_t n_bytes;
    uint32_t part; // which source, see gguf_file_source
};

struct gguf_file;

// Opens a file of n_parts >= 1 parts in order. On success the file owns the sources and closes them; on failure they stay the
// caller's, and *out is NULL.
bool gguf_open(struct gguf_source *const *parts, uint32_t n_parts, struct gguf_file **out, struct carat_error *err);

#ifndef __wasm__
// Opens what gguf_source_open understands; the first part of a split file ("...-00001-of-00003.gguf") brings the others along.
bool gguf_open_path(const char *name, struct gguf_file **out, struct carat_error *err);
#endif

void gguf_close(struct gguf_file *file); // NULL is allowed

uint32_t gguf_file_version(const struct gguf_file *file);
uint32_t gguf_part_count(const struct gguf_file *file);
struct gguf_source *gguf_file_source(const struct gguf_file *file, uint32_t part);
uint64_t gguf_header_bytes(const struct gguf_file *file, uint32_t part); // = where the part's data section starts
// Of the headers of all parts: metadata and table of tensors. Files whose headers agree are not told apart by their weights.
uint64_t gguf_header_digest(const struct gguf_file *file);
uint64_t gguf_memory_bytes(const struct gguf_file *file); // held by the open file, for tests and reports

// --- metadata ---

size_t gguf_entry_count(const struct gguf_file *file);
const struct gguf_entry *gguf_entry_at(const struct gguf_file *file, size_t index); // in file order

const struct gguf_value *gguf_find(const struct gguf_file *file, const char *key); // NULL when absent

// Element i of a value; false when i is out of range or the kind is wrong (any integer type is an integer if it fits; a float is
// F32, F64 or an integer; a bool is BOOL or an integer 0 or 1).
bool gguf_value_i64(const struct gguf_value *value, uint64_t i, int64_t *out);
bool gguf_value_u64(const struct gguf_value *value, uint64_t i, uint64_t *out);
bool gguf_value_f64(const struct gguf_value *value, uint64_t i, double *out);
bool gguf_value_bool(const struct gguf_value *value, uint64_t i, bool *out);
bool gguf_value_text(const struct gguf_value *value, uint64_t i, struct gguf_text *out);

const char *gguf_value_type_name(enum gguf_value_type type); // "u32", "text"

// Scalars by key. CARAT_NOT_FOUND when the key is absent, CARAT_BAD_FILE when it has the wrong kind; the message names the key.
bool gguf_u64(const struct gguf_file *file, const char *key, uint64_t *out, struct carat_error *err);
bool gguf_u32(const struct gguf_file *file, const char *key, uint32_t *out, struct carat_error *err);
bool gguf_f32(const struct gguf_file *file, const char *key, float *out, struct carat_error *err);
bool gguf_bool(const struct gguf_file *file, const char *key, bool *out, struct carat_error *err);
bool gguf_text(const struct gguf_file *file, const char *key, struct gguf_text *out, struct carat_error *err);

// The same for keys that may be absent: *out becomes `otherwise`. A key of the wrong kind is still an error.
bool gguf_u32_or(const struct gguf_file *file, const char *key, uint32_t otherwise, uint32_t *out, struct carat_error *err);
bool gguf_f32_or(const struct gguf_file *file, const char *key, float otherwise, float *out, struct carat_error *err);
bool gguf_bool_or(const struct gguf_file *file, const char *key, bool otherwise, bool *out, struct carat_error *err);

// True when the key holds exactly this text.
bool gguf_text_is(const struct gguf_file *file, const char *key, const char *text);

// An array by key, its elements of kind `kind`: GGUF_VALUE_I64 for any integers, GGUF_VALUE_F32 for F32 or F64, GGUF_VALUE_BOOL
// or GGUF_VALUE_TEXT. Errors as above.
bool gguf_array(const struct gguf_file *file, const char *key, enum gguf_value_type kind, const struct gguf_value **out,
    struct carat_error *err);

// One integer per layer from a scalar (the same for all) or from an array of exactly n_layers integers or bools.
bool gguf_per_layer(const struct gguf_file *file, const char *key, uint32_t n_layers, int32_t *out, struct carat_error *err);

// --- tensors ---

uint64_t gguf_tensor_count(const struct gguf_file *file);                                   // of all parts
const struct gguf_tensor *gguf_tensor_at(const struct gguf_file *file, uint64_t index);     // in file order
const struct gguf_tensor *gguf_find_tensor(const struct gguf_file *file, const char *name); // NULL when absent

uint64_t gguf_tensor_elements(const struct gguf_tensor *tensor);

// The tensor's bytes when its source is mapped, else NULL.
const void *gguf_tensor_mapped(const struct gguf_file *file, const struct gguf_tensor *tensor);

// Reads n_bytes of the tensor from byte `offset` of it on.
bool gguf_tensor_read(const struct gguf_file *file, const struct gguf_tensor *tensor, uint64_t offset, void *dst, size_t n_bytes,
    struct carat_error *err);

#endif
