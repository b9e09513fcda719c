// respond.c: answers, and the headers that all of them have.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum MHD_Result respond(struct exchange *exchange, unsigned status, struct MHD_Response *response)
{
    if (response == NULL)
        return MHD_NO;
    const char *origin = exchange->server->options.cors_origin;
    // Cross-origin isolation, which threads in WebAssembly need.
    MHD_add_response_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    MHD_add_response_header(response, "Cross-Origin-Embedder-Policy", "require-corp");
    MHD_add_response_header(response, "Cross-Origin-Resource-Policy", origin != NULL ? "cross-origin" : "same-origin");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    if (origin != NULL) {
        MHD_add_response_header(response, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(response, "Access-Control-Allow-Headers", "authorization, content-type, range");
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, HEAD, POST");
        MHD_add_response_header(response, "Access-Control-Expose-Headers", "content-range, content-length, etag, x-total-size");
    }
    enum MHD_Result result = MHD_queue_response(exchange->connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result respond_json(struct exchange *exchange, unsigned status, struct json_writer *json)
{
    if (json->failed || json->bytes == NULL) {
        json_writer_free(json);
        return MHD_NO;
    }
    struct MHD_Response *response = MHD_create_response_from_buffer(json->n_bytes, json->bytes, MHD_RESPMEM_MUST_FREE);
    if (response == NULL) {
        json_writer_free(json);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    return respond(exchange, status, response);
}

enum MHD_Result respond_error(struct exchange *exchange, unsigned status, const char *code, const char *format, ...)
{
    char message[CARAT_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    struct json_writer json = {0};
    json_write_literal(&json, "{\"error\":{\"message\":");
    json_write_string(&json, message, strlen(message));
    json_write_format(&json, ",\"type\":\"%s\",\"code\":\"%s\"}}", status < 500 ? "invalid_request_error" : "server_error", code);
    return respond_json(exchange, status, &json);
}

static unsigned status_of(enum carat_code code)
{
    switch (code) {
    case CARAT_BAD_ARGUMENT:
    case CARAT_CONTEXT_FULL:
        return MHD_HTTP_BAD_REQUEST;
    case CARAT_NOT_FOUND:
        return MHD_HTTP_NOT_FOUND;
    case CARAT_UNSUPPORTED:
        return MHD_HTTP_NOT_IMPLEMENTED;
    case CARAT_NO_MEMORY:
        return MHD_HTTP_SERVICE_UNAVAILABLE;
    default:
        return MHD_HTTP_INTERNAL_SERVER_ERROR;
    }
}

enum MHD_Result respond_carat_error(struct exchange *exchange, const struct carat_error *err)
{
    return respond_error(exchange, status_of(err->code), carat_code_name(err->code), "%s", err->message);
}

enum MHD_Result respond_wrong_method(struct exchange *exchange, const char *allowed)
{
    return respond_error(exchange, MHD_HTTP_METHOD_NOT_ALLOWED, "wrong_method", "%s does not take %s, only %s", exchange->path,
        exchange->method, allowed);
}
