// snapshot.h: a session's contents as bytes. What the two forms look like byte by byte stands in docs/state.md.
//
// Both begin with a head: everything but keys and values. It is made, and read and checked, as a whole, before a single key is
// read from the device or written to it. The payload follows: for each section the keys, then the values, a row a position. It
// passes through two buffers of PIECE_BYTES, so that neither this module nor a GPU's read-back ever holds much of it.
//
// A section holds the last n positions of a layer. Global layers are written and read with all positions. Sliding layers are
// written with what their ring holds, but no more than window - 1 + SESSION_REWIND positions: what the next query sees and what
// truncating afterwards may go back by. Files of the original system hold all positions of them; those that the ring has no room
// for are read over. A section with less than the next query sees is refused.

#ifndef CARAT_ENGINE_SNAPSHOT_H
#define CARAT_ENGINE_SNAPSHOT_H

#include "base/xxh64.h"
#include "engine/session.h"

enum {
    MAGIC_BYTES = 4,
    RLMS_HEAD_BYTES = 16,
    RLKV_HEAD_BYTES = 16,
    RLKV_SECTION_BYTES = 12,
    CRTS_HEAD_BYTES = 64,
    CRTS_SECTION_BYTES = 16,
    CRTS_SUMMED_BYTES = 60, // of the head, which the 4 bytes after them check
    CRTS_SUM_BYTES = 8,     // at the end of the head and at the end of the payload
    RLMS_VERSION = 1,
    CRTS_VERSION = 2,     // 1 had no checksums
    MAX_NAME_BYTES = 255, // of the model's name
    MAX_SAMPLER_BYTES = 16 << 20,
    PIECE_BYTES = 512 << 10, // or one row, if that is longer
};

struct snapshot_section {
    int32_t layer;
    int32_t n; // positions, the last ones
};

// What stands in a head, and where.
struct snapshot_head {
    int32_t position;
    int elem_bytes; // of keys and values: 4 or 2
    int32_t n_sections;
    uint64_t n_bytes;             // of the head; what the fields that are known so far say, while it is being read
    size_t sampler_at, n_sampler; // the sampler's state; n_sampler 0: none
    size_t ids_at, keys_at;       // [position] each; 0: the form has none
    size_t sections_at;           // [n_sections]
    size_t n_sum;                 // bytes of a checksum: CRTS_SUM_BYTES, or 0 where the form has none
};

// A state that is being saved or restored.
struct snapshot {
    enum carat_state_form form;
    bool restoring;
    struct sampler *sampler; // the caller's, whose state goes along; NULL: none
    struct snapshot_head head;
    uint8_t *bytes; // [head.n_bytes] of the head
    // When restoring: how far the head has been read
    size_t n_have; // bytes
    int n_steps;
    bool complete;
    struct snapshot_section *sections; // [head.n_sections]
    uint64_t n_total, n_done;
    // The next rows of the payload
    int32_t section;
    bool in_values;
    int32_t row;
    // On their way between the cache and the file
    uint8_t *cache_rows, *file_rows;
    size_t n_filled;  // bytes of file_rows, when restoring
    struct xxh64 sum; // of the payload so far
    uint8_t sum_bytes[CRTS_SUM_BYTES];
    size_t n_sum_done; // of sum_bytes, given or taken
    int32_t ticket;    // of the read-back under way, -1: none
    bool emptied;      // the session's former contents are gone
};

// Rows of one section that lie beside each other in the cache and fit the buffers.
struct stretch {
    const struct kv_layer *layer;
    struct buffer *buffer;
    int32_t slot; // of the first row; -1: rows that the cache has no room for
    int32_t n_rows;
};

// NULL with err when there is no memory.
struct snapshot *snapshot_new(struct carat_session *session, struct carat_error *err);
void snapshot_end(struct carat_session *session); // frees it; the session is idle again
bool snapshot_take_buffers(struct snapshot *snapshot, const struct kv_cache *kv, struct carat_error *err);

// FNV-1a over heads and width of the keys of every layer, as the original has it.
uint32_t snapshot_layout_hash(const struct gemma4_config *config);
// Bytes of the payload.
uint64_t snapshot_payload_bytes(const struct snapshot *snapshot, const struct gemma4_config *config);
// The next rows; false at the end of the payload.
bool snapshot_next_stretch(const struct snapshot *snapshot, const struct kv_cache *kv, struct stretch *stretch);
void snapshot_advance(struct snapshot *snapshot, int32_t n_rows);

// n numbers from one width to another, 2 or 4 bytes. False when one of them is not finite in the end.
bool snapshot_convert(const uint8_t *from, int from_bytes, uint8_t *to, int to_bytes, size_t n);

// Reads the head as far as the n_have bytes of it allow: asks for more by raising head.n_bytes, until it is complete. Fails
// naming what is wrong.
bool snapshot_read_head(const struct carat_session *session, struct snapshot *snapshot, struct carat_error *err);

// carat_state_save_begin and carat_state_restore_begin with a sampler whose state goes along: it must stay until the end.
bool session_save_begin(struct carat_session *session, enum carat_state_form form, struct sampler *sampler, uint64_t *n_bytes,
    struct carat_error *err);
bool session_restore_begin(struct carat_session *session, struct sampler *sampler, uint64_t n_bytes, struct carat_error *err);

#endif
