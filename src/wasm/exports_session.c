// exports_session.c: exported functions of sessions: generation, chat, events. See exports.c.

#include <stddef.h>

#include "carat.h"
#include "engine/request.h"
#include "wasm/exports.h"

// --- sessions -----------------------------------------------------------------------------------------------------------------

// flags: 1 keys and values in 32 bits, 2 all layers for every position of a prompt. context and batch: 0 = the default.
EXPORT(wasm_session_new) struct carat_session *wasm_session_new(struct carat_model *model, int context, int batch, int flags);
struct carat_session *wasm_session_new(struct carat_model *model, int context, int batch, int flags)
{
    struct carat_session_options options = {
        .context_length = context, .batch = batch, .kv_f32 = (flags & 1) != 0, .no_prefill_skip = (flags & 2) != 0};
    struct carat_session *session;
    return carat_session_new(model, &options, &session, &error) ? session : NULL;
}

EXPORT(wasm_session_free) void wasm_session_free(struct carat_session *session);
void wasm_session_free(struct carat_session *session)
{
    carat_session_free(session);
}

EXPORT(wasm_session_position) int wasm_session_position(const struct carat_session *session);
int wasm_session_position(const struct carat_session *session)
{
    return carat_session_position(session);
}

EXPORT(wasm_session_context) int wasm_session_context(const struct carat_session *session);
int wasm_session_context(const struct carat_session *session)
{
    return carat_session_context(session);
}

EXPORT(wasm_session_bytes) double wasm_session_bytes(const struct carat_session *session);
double wasm_session_bytes(const struct carat_session *session)
{
    return (double)carat_session_bytes(session);
}

EXPORT(wasm_session_truncate) int wasm_session_truncate(struct carat_session *session, int n);
int wasm_session_truncate(struct carat_session *session, int n)
{
    return carat_session_truncate(session, n);
}

EXPORT(wasm_stop) void wasm_stop(struct carat_session *session);
void wasm_stop(struct carat_session *session)
{
    carat_stop(session);
}

// --- generation ---------------------------------------------------------------------------------------------------------------

// struct carat_event with fields of one size, which EngineSession.readEvent of web/src/engine.ts reads.
static struct flat_event {
    int32_t kind, id;
    const char *text;
    int32_t n_text;
    const char *tool_name;
    const char *logprobs;
    int32_t n_done, n_total, finish;
    int32_t n_prompt, n_prompt_cached, n_generated;
    const int32_t *ids;
    int32_t n_ids;
    double prompt_ms, generate_ms, encode_ms, dispatches_per_token;
} flat;

_Static_assert(offsetof(struct flat_event, prompt_ms) == 56, "readEvent reads the doubles from here");

// The order that engine.ts knows.
_Static_assert(CARAT_EVENT_ENCODING == 0 && CARAT_EVENT_PROGRESS == 1 && CARAT_EVENT_TOKEN == 2 && CARAT_EVENT_CONTENT == 3 &&
                   CARAT_EVENT_REASONING == 4 && CARAT_EVENT_TOOL_CALL == 5 && CARAT_EVENT_FINISH == 6,
    "enum Kind of engine.ts must follow");
_Static_assert(CARAT_DONE == 0 && CARAT_EVENT == 1 && CARAT_PENDING == 2 && CARAT_FAILED == 3, "enum Status likewise");
_Static_assert(
    CARAT_FINISH_STOP == 1 && CARAT_FINISH_CANCELLED == 4 && CARAT_BAD_NUMBER == 11, "the lists of engine.ts, errors.ts");

static void flatten(const struct carat_event *event)
{
    flat = (struct flat_event){
        .kind = event->kind,
        .id = event->id,
        .text = event->text,
        .n_text = (int32_t)event->n_text,
        .tool_name = event->tool_name,
        .logprobs = event->logprobs,
        .n_done = event->n_done,
        .n_total = event->n_total,
        .finish = event->finish,
        .n_prompt = event->usage.n_prompt,
        .n_prompt_cached = event->usage.n_prompt_cached,
        .n_generated = event->usage.n_generated,
        .ids = event->ids,
        .n_ids = event->n_ids,
        .prompt_ms = event->usage.prompt_ms,
        .generate_ms = event->usage.generate_ms,
        .encode_ms = event->usage.encode_ms,
        .dispatches_per_token = event->usage.dispatches_per_token,
    };
}

EXPORT(wasm_event) const struct flat_event *wasm_event(void);
const struct flat_event *wasm_event(void)
{
    return &flat;
}

// request: see carat_chat_begin, terminated.
EXPORT(wasm_chat_begin)
int wasm_chat_begin(struct carat_session *session, const char *request, const struct carat_media *media, int n_media);
int wasm_chat_begin(struct carat_session *session, const char *request, const struct carat_media *media, int n_media)
{
    return carat_chat_begin(session, request, media, n_media, &error);
}

// enum carat_status; the event is at wasm_event.
EXPORT(wasm_chat_next) int wasm_chat_next(struct carat_session *session);
int wasm_chat_next(struct carat_session *session)
{
    struct carat_event event = {0};
    enum carat_status status = carat_chat_next(session, &event, &error);
    if (status == CARAT_EVENT)
        flatten(&event);
    return status;
}

// text: a chat request (JSON) whose sampling and limits count, and with_special beside them; its messages are not looked at.
EXPORT(wasm_generate_begin)
int wasm_generate_begin(
    struct carat_session *session, const int32_t *ids, int n, const char *text, const struct carat_media *media, int n_media);
int wasm_generate_begin(
    struct carat_session *session, const int32_t *ids, int n, const char *text, const struct carat_media *media, int n_media)
{
    struct carat_sampling defaults;
    carat_sampling_default(&defaults);
    struct request request;
    if (!request_parse(text, &defaults, &request, &error))
        return 0;
    json_get_bool(json_root(request.document), "with_special", &request.generate.with_special);
    bool ok = carat_generate_begin(session, ids, n, media, n_media, &request.generate, &error);
    request_free(&request);
    return ok;
}

EXPORT(wasm_generate_next) int wasm_generate_next(struct carat_session *session);
int wasm_generate_next(struct carat_session *session)
{
    struct carat_event event = {0};
    enum carat_status status = carat_generate_next(session, &event, &error);
    if (status == CARAT_EVENT)
        flatten(&event);
    return status;
}
