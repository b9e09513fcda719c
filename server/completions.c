// completions.c: OpenAI's chat completions, whole or streamed as server-sent events.

#define _GNU_SOURCE // POLLRDHUP

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chat_media.h"
#include "internal.h"

#ifndef POLLRDHUP // elsewhere than on Linux only a connection closed both ways is noticed
#define POLLRDHUP POLLHUP
#endif

enum {
    PATIENCE_MS = 5000, // a stream that has nothing to say sends a comment this often, which also finds clients that are gone
    GLANCE_MS = 250,    // before anything is sent, the connection is looked at this often
};

struct answer {
    struct job *job;
    char id[32];
    long long created;
    bool include_usage;
    struct json_writer out; // what the client has not taken yet
    size_t n_sent;          // of out
    bool opened, finished;
    int n_calls;
};

enum MHD_Result serve_v1_models(struct exchange *exchange)
{
    struct json_writer out = {0};
    if (strcmp(exchange->method, "GET") != 0 && strcmp(exchange->method, "HEAD") != 0)
        return respond_wrong_method(exchange, "GET and HEAD");
    json_write_literal(&out, "{\"object\":\"list\",\"data\":[");
    const char *given = exchange->server->options.model_name;
    if (given != NULL) {
        size_t n;
        const char *id = model_id(given, &n);
        json_write_literal(&out, "{\"id\":");
        json_write_string(&out, id, n);
        json_write_literal(&out, ",\"object\":\"model\",\"created\":0,\"owned_by\":\"local\"}");
    } else {
        library_write_names(exchange->server, &out);
    }
    json_write_literal(&out, "]}");
    return respond_json(exchange, MHD_HTTP_OK, &out);
}

// --- pieces of answers
// --------------------------------------------------------------------------------------------------------------------

static const char *finish_reason(enum carat_finish finish)
{
    return finish == CARAT_FINISH_LENGTH ? "length" : finish == CARAT_FINISH_TOOL_CALLS ? "tool_calls" : "stop";
}

static void write_usage(struct json_writer *out, const struct carat_usage *usage)
{
    double prompt_rate = usage->prompt_ms > 0 ? (usage->n_prompt - usage->n_prompt_cached) * 1e3 / usage->prompt_ms : 0;
    double rate = usage->generate_ms > 0 ? (usage->n_generated - 1) * 1e3 / usage->generate_ms : 0;
    json_write_format(out,
        "\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_"
        "tokens\":%d}},"
        "\"timings\":{\"prompt_ms\":%.3f,\"prompt_per_second\":%.3f,\"predicted_ms\":%.3f,\"predicted_per_second\":%.3f,"
        "\"encode_ms\":%.3f}",
        usage->n_prompt, usage->n_generated, usage->n_prompt + usage->n_generated, usage->n_prompt_cached, usage->prompt_ms,
        prompt_rate, usage->generate_ms, rate, usage->encode_ms);
}

static void write_head(const struct answer *answer, const char *object, struct json_writer *out)
{
    const char *model = job_model(answer->job);
    json_write_format(out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", answer->id, object, answer->created);
    json_write_string(out, model, strlen(model));
}

static void write_call(const struct carat_event *event, int index, bool with_index, struct json_writer *out)
{
    json_write_literal(out, "{");
    if (with_index)
        json_write_format(out, "\"index\":%d,", index);
    json_write_format(out, "\"id\":\"call_%d\",\"type\":\"function\",\"function\":{\"name\":", index);
    json_write_string(out, event->tool_name, strlen(event->tool_name));
    json_write_literal(out, ",\"arguments\":");
    json_write_string(out, event->text, event->n_text);
    json_write_literal(out, "}}");
}

// --- before anything is sent
// ----------------------------------------------------------------------------------------------------------------

// Whether the client has closed its side. What it may still have sent stays unread.
static bool client_is_gone(const struct exchange *exchange)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(exchange->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct pollfd handle = {.fd = info != NULL ? info->connect_fd : -1, .events = POLLRDHUP};
    return poll(&handle, 1, 0) > 0 && (handle.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

// The job's next event while the client waits for it. CARAT_FAILED as cancelled when it does not.
static enum carat_status next_for(
    const struct exchange *exchange, struct job *job, struct carat_event *event, struct carat_error *err)
{
    for (;;) {
        enum carat_status status = job_next(job, event, GLANCE_MS, err);
        if (status == CARAT_DONE || status == CARAT_FAILED)
            return status;
        if (client_is_gone(exchange)) {
            fail(err, CARAT_CANCELLED, "the client is gone");
            return CARAT_FAILED;
        }
        if (status == CARAT_EVENT)
            return status;
    }
}

// --- whole answers
// --------------------------------------------------------------------------------------------------------------------------

struct parts {
    struct json_writer content, reasoning, calls, logprobs;
    int n_calls;
};

static void parts_free(struct parts *parts)
{
    json_writer_free(&parts->content);
    json_writer_free(&parts->reasoning);
    json_writer_free(&parts->calls);
    json_writer_free(&parts->logprobs);
}

static void collect(struct parts *parts, const struct carat_event *event)
{
    if (event->kind == CARAT_EVENT_CONTENT)
        json_write_raw(&parts->content, event->text, event->n_text);
    if (event->kind == CARAT_EVENT_REASONING)
        json_write_raw(&parts->reasoning, event->text, event->n_text);
    if (event->kind == CARAT_EVENT_TOOL_CALL) {
        json_write_literal(&parts->calls, parts->n_calls > 0 ? "," : "");
        write_call(event, parts->n_calls++, false, &parts->calls);
    }
    if (event->logprobs != NULL) { // a list in brackets: the lists of all pieces are joined
        json_write_literal(&parts->logprobs, parts->logprobs.n_bytes > 0 ? "," : "");
        json_write_raw(&parts->logprobs, event->logprobs + 1, strlen(event->logprobs) - 2);
    }
}

static void write_whole(
    const struct answer *answer, const struct parts *parts, const struct carat_event *finish, struct json_writer *out)
{
    write_head(answer, "chat.completion", out);
    json_write_literal(out, ",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":");
    if (parts->content.n_bytes == 0 && parts->n_calls > 0)
        json_write_literal(out, "null");
    else
        json_write_string(out, parts->content.bytes != NULL ? parts->content.bytes : "", parts->content.n_bytes);
    if (parts->reasoning.n_bytes > 0) {
        json_write_literal(out, ",\"reasoning_content\":");
        json_write_string(out, parts->reasoning.bytes, parts->reasoning.n_bytes);
    }
    if (parts->n_calls > 0)
        json_write_format(out, ",\"tool_calls\":[%s]", parts->calls.bytes);
    json_write_literal(out, "},\"logprobs\":");
    if (parts->logprobs.n_bytes > 0)
        json_write_format(out, "{\"content\":[%s]}", parts->logprobs.bytes);
    else
        json_write_literal(out, "null");
    json_write_format(out, ",\"finish_reason\":\"%s\"}],", finish_reason(finish->finish));
    write_usage(out, &finish->usage);
    json_write_literal(out, "}");
}

static enum MHD_Result answer_whole(struct exchange *exchange, struct answer *answer)
{
    struct parts parts = {0};
    struct json_writer out = {0};
    struct carat_error err = {0};
    enum carat_status status;
    struct carat_event event;
    while ((status = next_for(exchange, answer->job, &event, &err)) == CARAT_EVENT) {
        collect(&parts, &event);
        if (event.kind == CARAT_EVENT_FINISH)
            write_whole(answer, &parts, &event, &out);
    }
    parts_free(&parts);
    job_release(answer->job);
    free(answer);
    if (status == CARAT_DONE)
        return respond_json(exchange, MHD_HTTP_OK, &out);
    json_writer_free(&out);
    return respond_carat_error(exchange, &err);
}

// --- streams
// --------------------------------------------------------------------------------------------------------------------------------

static void open_chunk(struct answer *answer)
{
    json_write_literal(&answer->out, "data: ");
    write_head(answer, "chat.completion.chunk", &answer->out);
    json_write_literal(&answer->out, ",\"choices\":[{\"index\":0,\"delta\":{");
}

static void close_chunk(struct answer *answer, const char *logprobs, const char *finish)
{
    struct json_writer *out = &answer->out;
    json_write_literal(out, "},\"logprobs\":");
    if (logprobs != NULL)
        json_write_format(out, "{\"content\":%s}", logprobs);
    else
        json_write_literal(out, "null");
    if (finish != NULL)
        json_write_format(out, ",\"finish_reason\":\"%s\"}]", finish);
    else
        json_write_literal(out, ",\"finish_reason\":null}]");
}

static void end_event(struct answer *answer)
{
    json_write_literal(&answer->out, "}\n\n");
}

static void stream_finish(struct answer *answer, const struct carat_event *event)
{
    struct json_writer *out = &answer->out;
    open_chunk(answer);
    close_chunk(answer, NULL, finish_reason(event->finish));
    if (!answer->include_usage) {
        json_write_literal(out, ",");
        write_usage(out, &event->usage);
    }
    end_event(answer);
    if (answer->include_usage) {
        json_write_literal(out, "data: ");
        write_head(answer, "chat.completion.chunk", out);
        json_write_literal(out, ",\"choices\":[],");
        write_usage(out, &event->usage);
        end_event(answer);
    }
}

static void stream_event(struct answer *answer, const struct carat_event *event)
{
    struct json_writer *out = &answer->out;
    if (event->kind == CARAT_EVENT_PROGRESS || event->kind == CARAT_EVENT_ENCODING)
        return;
    if (!answer->opened) {
        open_chunk(answer);
        json_write_literal(out, "\"role\":\"assistant\",\"content\":\"\"");
        close_chunk(answer, NULL, NULL);
        end_event(answer);
        answer->opened = true;
    }
    if (event->kind == CARAT_EVENT_FINISH) {
        stream_finish(answer, event);
        return;
    }
    open_chunk(answer);
    if (event->kind == CARAT_EVENT_TOOL_CALL) {
        json_write_literal(out, "\"tool_calls\":[");
        write_call(event, answer->n_calls++, true, out);
        json_write_literal(out, "]");
    } else {
        json_write_format(out, "\"%s\":", event->kind == CARAT_EVENT_CONTENT ? "content" : "reasoning_content");
        json_write_string(out, event->text, event->n_text);
    }
    close_chunk(answer, event->logprobs, NULL);
    end_event(answer);
}

static void stream_error(struct answer *answer, const struct carat_error *err)
{
    json_write_literal(&answer->out, "data: {\"error\":{\"message\":");
    json_write_string(&answer->out, err->message, strlen(err->message));
    json_write_format(&answer->out, ",\"type\":\"server_error\",\"code\":\"%s\"}}\n\n", carat_code_name(err->code));
}

// Fills out with the next piece; waits for it.
static void stream_more(struct answer *answer)
{
    struct carat_event event;
    struct carat_error err;
    enum carat_status status = job_next(answer->job, &event, PATIENCE_MS, &err);
    if (status == CARAT_EVENT) {
        stream_event(answer, &event);
    } else if (status == CARAT_PENDING) {
        json_write_literal(&answer->out, ": still there\n\n");
    } else {
        if (status == CARAT_FAILED)
            stream_error(answer, &err);
        json_write_literal(&answer->out, "data: [DONE]\n\n");
        answer->finished = true;
    }
}

static ssize_t read_stream(void *context, uint64_t position, char *buffer, size_t capacity)
{
    struct answer *answer = context;
    (void)position;
    while (answer->n_sent == answer->out.n_bytes) {
        if (answer->finished)
            return MHD_CONTENT_READER_END_OF_STREAM;
        answer->out.n_bytes = 0;
        answer->n_sent = 0;
        stream_more(answer);
        if (answer->out.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    size_t n = answer->out.n_bytes - answer->n_sent < capacity ? answer->out.n_bytes - answer->n_sent : capacity;
    memcpy(buffer, answer->out.bytes + answer->n_sent, n);
    answer->n_sent += n;
    return (ssize_t)n;
}

static void free_stream(void *context)
{
    struct answer *answer = context;
    job_release(answer->job);
    json_writer_free(&answer->out);
    free(answer);
}

// Waits for the first event, so that a request that fails at once gets its status code instead of a broken stream.
static enum MHD_Result answer_stream(struct exchange *exchange, struct answer *answer)
{
    struct carat_event event;
    struct carat_error err;
    enum carat_status status;
    do {
        status = next_for(exchange, answer->job, &event, &err);
    } while (status == CARAT_EVENT && (event.kind == CARAT_EVENT_PROGRESS || event.kind == CARAT_EVENT_ENCODING));
    if (status == CARAT_FAILED) {
        free_stream(answer);
        return respond_carat_error(exchange, &err);
    }
    if (status == CARAT_EVENT)
        stream_event(answer, &event);
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream, answer, free_stream);
    if (response == NULL) {
        free_stream(answer);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "text/event-stream");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    return respond(exchange, MHD_HTTP_OK, response);
}

// --- the request
// ------------------------------------------------------------------------------------------------------------------------------

static struct job *submit(struct exchange *exchange, const struct json_value *root, struct carat_error *err)
{
    struct chat_media media = {0};
    struct json_writer request = {0};
    const char *model = NULL;
    json_get_text(root, "model", &model);
    if (!chat_media_take(root, &media, &request, err)) {
        chat_media_free(&media);
        json_writer_free(&request);
        // A picture or a sound that cannot be read is no fault of this server.
        if (err->code != CARAT_NO_MEMORY)
            err->code = CARAT_BAD_ARGUMENT;
        return NULL;
    }
    return engine_submit(exchange->server->engine, request.bytes, media.items, media.n, model, err);
}

enum MHD_Result serve_completions(struct exchange *exchange)
{
    struct carat_error err = {0};
    if (strcmp(exchange->method, "POST") != 0)
        return respond_wrong_method(exchange, "POST");
    if (exchange->body_too_large)
        return respond_error(
            exchange, MHD_HTTP_CONTENT_TOO_LARGE, "too_large", "a request may have %d bytes", SERVER_MAX_BODY_BYTES);
    struct json_document *document =
        json_parse(exchange->body.bytes != NULL ? exchange->body.bytes : "", exchange->body.n_bytes, &err);
    if (document == NULL)
        return respond_error(exchange, MHD_HTTP_BAD_REQUEST, "bad_json", "the request is no JSON: %s", err.message);
    const struct json_value *root = json_root(document);
    bool stream = false;
    json_get_bool(root, "stream", &stream);
    struct answer *answer = calloc(1, sizeof *answer);
    if (answer != NULL) {
        json_get_bool(json_get(root, "stream_options"), "include_usage", &answer->include_usage);
        answer->created = (long long)time(NULL);
        snprintf(
            answer->id, sizeof answer->id, "chatcmpl-%llx", (unsigned long long)(uintptr_t)answer ^ (unsigned long long)clock());
        answer->job = submit(exchange, root, &err);
    }
    json_free(document);
    if (answer == NULL)
        return MHD_NO;
    if (answer->job == NULL) {
        free(answer);
        return respond_carat_error(exchange, &err);
    }
    return stream ? answer_stream(exchange, answer) : answer_whole(exchange, answer);
}
