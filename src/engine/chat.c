// chat.c: a chat request: the prompt is rendered and encoded, the reply is read into content, thoughts and calls.

#include "engine/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/session.h"

// --- the queue of events -------------------------------------------------------------------------------------------------------

static void item_free(struct chat_item *item)
{
    text_free(&item->text);
    text_free(&item->name);
    text_free(&item->logprobs);
}

void chat_run_free(struct chat_run *run)
{
    if (run == NULL)
        return;
    for (int i = 0; i < CHAT_MAX_ITEMS; i++)
        item_free(&run->items[i]);
    reply_free(run->reply);
    request_free(&run->request);
    text_free(&run->logprobs);
    free(run);
}

// Text of the same kind as the last waiting item joins it, so one token's events never fill the queue.
static struct chat_item *item_for(struct chat_run *run, enum carat_event_kind kind)
{
    if (run->last > run->first && kind != CARAT_EVENT_TOOL_CALL && run->items[run->last - 1].kind == kind)
        return &run->items[run->last - 1];
    if (run->last == CHAT_MAX_ITEMS) {
        run->failed = true;
        return NULL;
    }
    struct chat_item *item = &run->items[run->last++];
    item->kind = kind;
    text_clear(&item->text);
    text_clear(&item->name);
    text_clear(&item->logprobs);
    return item;
}

static void add_content(struct chat_run *run, struct text_view text)
{
    struct text_buffer safe = {0};
    stop_feed(&run->request.stop, text, &safe);
    run->failed |= safe.failed;
    if (safe.n_bytes > 0) {
        struct chat_item *item = item_for(run, CARAT_EVENT_CONTENT);
        if (item != NULL)
            text_append_view(&item->text, text_whole(&safe));
    }
    text_free(&safe);
}

static void on_reply(void *context, const struct reply_event *event)
{
    struct chat_run *run = context;
    if (event->kind == REPLY_CONTENT) {
        add_content(run, event->text);
        return;
    }
    struct chat_item *item = item_for(run, event->kind == REPLY_TOOL_CALL ? CARAT_EVENT_TOOL_CALL : CARAT_EVENT_REASONING);
    if (item == NULL)
        return;
    text_append_view(&item->text, event->kind == REPLY_TOOL_CALL ? event->arguments : event->text);
    if (event->kind == REPLY_TOOL_CALL)
        text_append_view(&item->name, event->name);
}

// The waiting logprobs go with the first waiting piece of content.
static void attach_logprobs(struct chat_run *run)
{
    for (int i = run->first; i < run->last && run->logprobs.n_bytes > 0; i++) {
        struct chat_item *item = &run->items[i];
        if (item->kind != CARAT_EVENT_CONTENT || item->logprobs.n_bytes > 0)
            continue;
        text_append_byte(&item->logprobs, '[');
        text_append_view(&item->logprobs, text_whole(&run->logprobs));
        text_append_byte(&item->logprobs, ']');
        text_clear(&run->logprobs);
    }
}

static enum carat_status give_item(struct chat_run *run, struct carat_event *event, struct carat_error *err)
{
    struct chat_item *item = &run->items[run->first++];
    if (item->text.failed || item->name.failed || item->logprobs.failed) {
        fail(err, CARAT_NO_MEMORY, "no memory for the reply");
        return CARAT_FAILED;
    }
    struct text_view text = text_whole(&item->text);
    *event = (struct carat_event){
        .kind = item->kind,
        .text = text.data,
        .n_text = text.n_bytes,
        .tool_name = item->kind == CARAT_EVENT_TOOL_CALL ? text_whole(&item->name).data : NULL,
        .logprobs = item->logprobs.n_bytes > 0 ? item->logprobs.data : NULL,
    };
    return CARAT_EVENT;
}

// --- beginning -----------------------------------------------------------------------------------------------------------------

// The media of the request in the order in which the prompt mentions them.
static bool order_media(const struct chat_place *places, size_t n_places, const struct carat_media *media, int32_t n_media,
    struct carat_media *ordered, struct carat_error *err)
{
    for (size_t i = 0; i < n_places; i++) {
        int64_t index;
        if (places[i].kind == CHAT_VIDEO)
            return fail(err, CARAT_UNSUPPORTED, "video is not supported: send its frames as images");
        if (places[i].part == NULL || !json_get_i64(places[i].part->json, "media", &index) || index < 0 || index >= n_media)
            return fail(
                err, CARAT_BAD_ARGUMENT, "an image or sound part of a message needs \"media\": an index below %d", n_media);
        ordered[i] = media[index];
        if ((places[i].kind == CHAT_IMAGE) != (ordered[i].kind == CARAT_IMAGE))
            return fail(err, CARAT_BAD_ARGUMENT, "a message has %s part with \"media\": %lld, which is another kind",
                places[i].kind == CHAT_IMAGE ? "an image" : "a sound", (long long)index);
    }
    return true;
}

static bool encode_prompt(struct carat_session *session, struct chat_run *run, struct token_list *ids, struct chat_place **places,
    size_t *n_places, bool *in_thought, struct carat_error *err)
{
    struct request *request = &run->request;
    struct chat_options options = {
        .large = session->model->text->config.per_layer_width == 0,
        .enable_thinking = request->think,
        .preserve_thinking = request->preserve_thinking,
        .add_generation_prompt = !request->continue_last,
        .continue_last = request->continue_last,
    };
    struct chat_prompt prompt = {0};
    bool ok = chat_render(&request->chat, &options, &prompt, err) &&
              chat_encode(session->model->tok, &prompt, ids, places, n_places, err);
    *in_thought = prompt.in_thought;
    chat_prompt_free(&prompt);
    return ok;
}

static bool begin(struct carat_session *session, struct chat_run *run, const struct carat_media *media, int32_t n_media,
    struct carat_error *err)
{
    struct token_list ids = {0};
    struct chat_place *places = NULL;
    size_t n_places = 0;
    bool in_thought = false;
    bool ok = encode_prompt(session, run, &ids, &places, &n_places, &in_thought, err);
    if (ok) {
        struct reply_options options = {
            .thinking = run->request.think, .in_thought = in_thought, .tools = run->request.chat.tools};
        run->reply = reply_new(session->model->tok, &options, on_reply, run, err);
        session->chat_media = calloc(n_places + 1, sizeof *session->chat_media);
        ok = run->reply != NULL;
        if (ok && session->chat_media == NULL)
            ok = fail(err, CARAT_NO_MEMORY, "no memory for the list of images and sounds");
    }
    ok = ok && session->chat_media != NULL && order_media(places, n_places, media, n_media, session->chat_media, err) &&
         carat_generate_begin(
             session, ids.ids, (int32_t)ids.n, session->chat_media, (int32_t)n_places, &run->request.generate, err);
    token_list_free(&ids);
    free(places);
    return ok;
}

bool carat_chat_begin(
    struct carat_session *session, const char *request, const struct carat_media *media, int32_t n_media, struct carat_error *err)
{
    if (!session_is_idle(session, err))
        return false;
    if (n_media < 0 || (n_media > 0 && media == NULL))
        return fail(err, CARAT_BAD_ARGUMENT, "n_media says %d, which is not the length of a list", n_media);
    session_end_chat(session);
    struct chat_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a chat request");
    session->chat = run;
    struct carat_sampling defaults;
    carat_sampling_default(&defaults);
    defaults.seed = (uint64_t)(clock_ms() * 1e3);
    if (request_parse(request, &defaults, &run->request, err) && begin(session, run, media, n_media, err))
        return true;
    session_end_chat(session);
    return false;
}

void session_end_chat(struct carat_session *session)
{
    chat_run_free(session->chat);
    session->chat = NULL;
    free(session->chat_media);
    session->chat_media = NULL;
}

// --- going on ------------------------------------------------------------------------------------------------------------------

static void note_logprobs(struct chat_run *run, const char *entry)
{
    if (entry == NULL)
        return;
    if (run->logprobs.n_bytes > 0)
        text_append_byte(&run->logprobs, ',');
    text_append_string(&run->logprobs, entry);
}

static bool take_finish(struct chat_run *run, const struct carat_event *event, struct carat_error *err)
{
    if (!reply_finish(run->reply, err))
        return false;
    struct text_buffer rest = {0};
    stop_finish(&run->request.stop, &rest);
    struct chat_item *item = rest.n_bytes > 0 ? item_for(run, CARAT_EVENT_CONTENT) : NULL;
    if (item != NULL)
        text_append_view(&item->text, text_whole(&rest));
    text_free(&rest);
    run->finish = *event;
    run->finish.text = NULL;
    run->finish.n_text = 0;
    run->finished = true;
    if (run->request.stop.found)
        run->finish.finish = CARAT_FINISH_STOP;
    else if (reply_call_count(run->reply) > 0 && event->finish == CARAT_FINISH_STOP)
        run->finish.finish = CARAT_FINISH_TOOL_CALLS;
    return true;
}

static bool take_event(
    struct carat_session *session, struct chat_run *run, const struct carat_event *event, struct carat_error *err)
{
    if (event->kind == CARAT_EVENT_FINISH)
        return take_finish(run, event, err);
    note_logprobs(run, event->logprobs);
    if (!reply_feed(run->reply, event->id, err))
        return false;
    if (run->request.stop.found)
        carat_stop(session);
    return true;
}

enum carat_status carat_chat_next(struct carat_session *session, struct carat_event *event, struct carat_error *err)
{
    struct chat_run *run = session->chat;
    if (run == NULL)
        return CARAT_DONE;
    for (;;) {
        if (run->first < run->last)
            return give_item(run, event, err);
        run->first = run->last = 0;
        if (run->finished) {
            *event = run->finish;
            session_end_chat(session);
            return CARAT_EVENT;
        }
        struct carat_event token;
        enum carat_status status = carat_generate_next(session, &token, err);
        if (status == CARAT_EVENT && (token.kind == CARAT_EVENT_PROGRESS || token.kind == CARAT_EVENT_ENCODING)) {
            *event = token;
            return CARAT_EVENT;
        }
        if (status == CARAT_EVENT && !take_event(session, run, &token, err))
            status = CARAT_FAILED;
        if (run->failed) {
            fail(err, CARAT_NO_MEMORY, "no memory for the reply");
            status = CARAT_FAILED;
        }
        if (status == CARAT_FAILED) {
            session_abort(session);
            session_end_chat(session);
        }
        if (status != CARAT_EVENT)
            return status;
        // A token that shows nothing yet, as inside a tool call: the caller gets its turn all the same, or could not stop.
        if (run->first == run->last && !run->finished)
            return CARAT_PENDING;
        attach_logprobs(run);
    }
}
