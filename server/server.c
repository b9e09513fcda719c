// server.c: listening, and finding out what a request wants.

#include "server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gguf/gguf.h"
#include "internal.h"

// --- who may ask
// --------------------------------------------------------------------------------------------------------------------------

// The name part of a Host header: "localhost:8088" and "[::1]:8088" without the port.
static bool host_is(const char *header, const char *name)
{
    size_t n = strlen(name);
    return strncasecmp(header, name, n) == 0 && (header[n] == 0 || header[n] == ':');
}

static bool is_local_address(const char *host)
{
    return host == NULL || strncmp(host, "127.", 4) == 0 || strcmp(host, "localhost") == 0 || strcmp(host, "::1") == 0;
}

// While only this machine is served, a request must name it: a page of another site whose name was made to point here does not.
static bool host_is_allowed(const struct exchange *exchange)
{
    if (!is_local_address(exchange->server->options.host))
        return true;
    const char *header = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Host");
    return header == NULL || host_is(header, "localhost") || host_is(header, "127.0.0.1") || host_is(header, "[::1]");
}

// Takes the same time wherever the texts differ.
static bool same_secret(const char *a, const char *b)
{
    size_t n_a = strlen(a);
    size_t n_b = strlen(b);
    unsigned char difference = n_a != n_b;
    for (size_t i = 0; i < n_b; i++)
        difference |= (unsigned char)(a[i < n_a ? i : 0] ^ b[i]);
    return difference == 0;
}

static bool key_is_right(const struct exchange *exchange)
{
    const char *key = exchange->server->options.api_key;
    const char *header = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Authorization");
    return key == NULL || (header != NULL && strncmp(header, "Bearer ", 7) == 0 && same_secret(header + 7, key));
}

// A page of another site may send a POST without asking first, but says where it comes from.
static bool origin_is_allowed(const struct exchange *exchange)
{
    const char *origin = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Host");
    const char *allowed = exchange->server->options.cors_origin;
    if (origin == NULL || (allowed != NULL && strcmp(origin, allowed) == 0))
        return true;
    const char *scheme_end = strstr(origin, "://");
    return scheme_end != NULL && host != NULL && strcmp(scheme_end + 3, host) == 0;
}

// --- routing
// --------------------------------------------------------------------------------------------------------------------------------

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static enum MHD_Result route_api(struct exchange *exchange)
{
    if (!key_is_right(exchange))
        return respond_error(
            exchange, MHD_HTTP_UNAUTHORIZED, "wrong_key", "this server asks for an API key: send Authorization: Bearer KEY");
    if (strcmp(exchange->path, "/v1/models") == 0)
        return serve_v1_models(exchange);
    if (strcmp(exchange->path, "/v1/chat/completions") == 0)
        return serve_completions(exchange);
    if (strcmp(exchange->path, "/api/models") == 0)
        return serve_models(exchange);
    if (starts_with(exchange->path, "/api/blob/"))
        return serve_blob(exchange, exchange->path + strlen("/api/blob/"));
    if (strcmp(exchange->path, "/api/log") == 0)
        return take_log(exchange);
    return respond_error(exchange, MHD_HTTP_NOT_FOUND, "not_found", "there is no %.200s here", exchange->path);
}

static enum MHD_Result preflight(struct exchange *exchange)
{
    return respond(exchange, MHD_HTTP_NO_CONTENT, MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT));
}

static bool is_api_path(const char *path)
{
    return starts_with(path, "/api/") || starts_with(path, "/v1/");
}

// Only a request that will be served may fill memory with its body.
static bool body_is_wanted(const struct exchange *exchange)
{
    return is_api_path(exchange->path) && strcmp(exchange->method, "POST") == 0 && host_is_allowed(exchange) &&
           origin_is_allowed(exchange) && key_is_right(exchange);
}

static enum MHD_Result route(struct exchange *exchange)
{
    bool is_api = is_api_path(exchange->path);
    if (!host_is_allowed(exchange))
        return respond_error(exchange, MHD_HTTP_FORBIDDEN, "wrong_host", "this server answers to localhost only");
    if (is_api && !origin_is_allowed(exchange))
        return respond_error(exchange, MHD_HTTP_FORBIDDEN, "wrong_origin", "pages of other origins may not use this server");
    if (is_api && strcmp(exchange->method, "OPTIONS") == 0)
        return preflight(exchange);
    return is_api ? route_api(exchange) : serve_app(exchange);
}

// --- one request
// ------------------------------------------------------------------------------------------------------------------------------

static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url, const char *method,
    const char *version, const char *body, size_t *n_body, void **state)
{
    (void)version;
    struct exchange *exchange = *state;
    if (exchange == NULL) {
        exchange = calloc(1, sizeof *exchange);
        if (exchange == NULL)
            return MHD_NO;
        *exchange = (struct exchange){.server = context, .connection = connection, .method = method, .path = url};
        exchange->body_unwanted = !body_is_wanted(exchange);
        *state = exchange;
        return MHD_YES;
    }
    if (*n_body > 0) {
        // What is unwanted or too large is read and dropped, so that the client sees the answer instead of a broken connection.
        if (exchange->body_unwanted) {
            *n_body = 0;
            return MHD_YES;
        }
        if (exchange->body.n_bytes + *n_body > SERVER_MAX_BODY_BYTES)
            exchange->body_too_large = true;
        else
            json_write_raw(&exchange->body, body, *n_body);
        *n_body = 0;
        return exchange->body.failed ? MHD_NO : MHD_YES;
    }
    exchange->method = method;
    exchange->path = url;
    return route(exchange);
}

static void on_completed(void *context, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code)
{
    (void)context, (void)connection, (void)code;
    struct exchange *exchange = *state;
    if (exchange == NULL)
        return;
    json_writer_free(&exchange->body);
    free(exchange);
    *state = NULL;
}

// --- listening
// --------------------------------------------------------------------------------------------------------------------------------

static int listen_on(const char *host, int port, struct carat_error *err)
{
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *addresses;
    snprintf(service, sizeof service, "%d", port);
    int code = getaddrinfo(host != NULL ? host : "127.0.0.1", service, &hints, &addresses);
    if (code != 0) {
        fail(err, CARAT_BAD_ARGUMENT, "'%s' is no address of this machine: %s", host, gai_strerror(code));
        return -1;
    }
    int handle = -1;
    for (struct addrinfo *address = addresses; address != NULL && handle < 0; address = address->ai_next) {
        int on = 1;
        handle = socket(address->ai_family, address->ai_socktype, address->ai_protocol);
        if (handle < 0)
            continue;
        setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(handle, address->ai_addr, address->ai_addrlen) != 0 || listen(handle, SERVER_MAX_CONNECTIONS) != 0) {
            close(handle);
            handle = -1;
        }
    }
    freeaddrinfo(addresses);
    if (handle < 0)
        fail(err, CARAT_IO, "cannot listen on %s port %d: %s", host != NULL ? host : "127.0.0.1", port, strerror(errno));
    return handle;
}

static int port_of(int handle)
{
    struct sockaddr_storage address;
    socklen_t n = sizeof address;
    if (getsockname(handle, (struct sockaddr *)&address, &n) != 0)
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

static bool start_daemon(struct server *server, struct carat_error *err)
{
    const struct server_options *options = &server->options;
    int handle = listen_on(options->host, options->port, err);
    if (handle < 0)
        return false;
    server->port = port_of(handle);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, server->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, server->key},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem *more = options->tls ? tls : tls + 2;
    unsigned flags =
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL | (options->tls ? MHD_USE_TLS : 0);
    server->daemon =
        MHD_start_daemon(flags, 0, NULL, NULL, on_request, server, MHD_OPTION_LISTEN_SOCKET, handle, MHD_OPTION_CONNECTION_LIMIT,
            SERVER_MAX_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, SERVER_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)SERVER_HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_ARRAY, more, MHD_OPTION_END);
    if (server->daemon == NULL) {
        close(handle);
        return fail(err, CARAT_IO, "the HTTP server does not start on port %d", server->port);
    }
    const char *host = is_local_address(options->host) ? "localhost" : options->host;
    snprintf(server->url, sizeof server->url, "%s://%s:%d/", options->tls ? "https" : "http", host, server->port);
    return true;
}

static bool prepare(struct server *server, struct carat_error *err)
{
    const struct server_options *options = &server->options;
    if (options->app_folder != NULL) {
        server->app_folder = realpath(options->app_folder, NULL);
        if (server->app_folder == NULL)
            return fail(err, CARAT_NOT_FOUND, "the app's folder '%s' cannot be found: build it, or name it with --app",
                options->app_folder);
    }
    for (int i = 0; i < options->n_folders; i++)
        if (access(options->folders[i], R_OK | X_OK) != 0)
            return fail(
                err, CARAT_NOT_FOUND, "the folder of models '%s' cannot be read: %s", options->folders[i], strerror(errno));
    if (options->model_name != NULL) { // loaded with the first request; whether it can be is said now
        struct gguf_file *file;
        if (!gguf_open_path(options->model_name, &file, err))
            return false;
        gguf_close(file);
    }
    if (options->tls && !load_certificate(options->host, &server->certificate, &server->key, err))
        return false;
    server->engine = engine_new(server, err);
    return server->engine != NULL;
}

bool server_start(const struct server_options *options, struct server **out, struct carat_error *err)
{
    struct server *server = calloc(1, sizeof *server);
    *out = NULL;
    if (server == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the server");
    server->options = *options;
    if (!prepare(server, err) || !start_daemon(server, err)) {
        server_stop(server);
        return false;
    }
    *out = server;
    return true;
}

int server_port(const struct server *server)
{
    return server->port;
}

const char *server_url(const struct server *server)
{
    return server->url;
}

void server_stop(struct server *server)
{
    if (server == NULL)
        return;
    if (server->daemon != NULL)
        close(MHD_quiesce_daemon(server->daemon));
    engine_stop(server->engine);
    if (server->daemon != NULL)
        MHD_stop_daemon(server->daemon);
    engine_free(server->engine);
    free(server->certificate);
    free(server->key);
    free(server->app_folder);
    free(server);
}
