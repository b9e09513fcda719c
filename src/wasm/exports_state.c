// exports_state.c: exported functions that save, restore and copy sessions. See exports.c.

#include "engine/snapshot.h"
#include "wasm/exports.h"
#include "wasm/step.h"

EXPORT(wasm_session_copy) struct carat_session *wasm_session_copy(struct carat_session *session);
struct carat_session *wasm_session_copy(struct carat_session *session)
{
    struct carat_session *copy;
    return carat_session_copy(session, &copy, &error) ? copy : NULL;
}

static struct {
    const void *bytes;
    size_t n;
} piece;

static struct sampler *sampler_of(struct stepper *stepper)
{
    return stepper != NULL ? stepper_sampler(stepper) : NULL;
}

// stepper: the token loop whose sampler goes along, or NULL. form: enum carat_state_form. The number of bytes, or -1.
EXPORT(wasm_state_save_begin)
double wasm_state_save_begin(struct carat_session *session, struct stepper *stepper, int form);
double wasm_state_save_begin(struct carat_session *session, struct stepper *stepper, int form)
{
    uint64_t n_bytes;
    bool ok = session_save_begin(session, (enum carat_state_form)form, sampler_of(stepper), &n_bytes, &error);
    return ok ? (double)n_bytes : -1;
}

// enum carat_status; with CARAT_EVENT the bytes are at wasm_state_piece until the next call.
EXPORT(wasm_state_save_next) int wasm_state_save_next(struct carat_session *session);
int wasm_state_save_next(struct carat_session *session)
{
    return carat_state_save_next(session, &piece.bytes, &piece.n, &error);
}

EXPORT(wasm_state_piece) const void *wasm_state_piece(void);
const void *wasm_state_piece(void)
{
    return piece.bytes;
}

EXPORT(wasm_state_piece_size) size_t wasm_state_piece_size(void);
size_t wasm_state_piece_size(void)
{
    return piece.n;
}

EXPORT(wasm_state_restore_begin)
int wasm_state_restore_begin(struct carat_session *session, struct stepper *stepper, double n_bytes);
int wasm_state_restore_begin(struct carat_session *session, struct stepper *stepper, double n_bytes)
{
    return session_restore_begin(session, sampler_of(stepper), (uint64_t)n_bytes, &error);
}

EXPORT(wasm_state_restore_write) int wasm_state_restore_write(struct carat_session *session, const void *bytes, size_t n_bytes);
int wasm_state_restore_write(struct carat_session *session, const void *bytes, size_t n_bytes)
{
    return carat_state_restore_write(session, bytes, n_bytes, &error);
}

EXPORT(wasm_state_restore_end) int wasm_state_restore_end(struct carat_session *session);
int wasm_state_restore_end(struct carat_session *session)
{
    return carat_state_restore_end(session, &error);
}

EXPORT(wasm_state_end) void wasm_state_end(struct carat_session *session);
void wasm_state_end(struct carat_session *session)
{
    carat_state_end(session);
}
