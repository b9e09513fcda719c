// files.c: files, whole or by byte range.

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

static bool parse_number(const char **at, uint64_t *out)
{
    if (**at < '0' || **at > '9')
        return false;
    char *end;
    errno = 0;
    *out = strtoull(*at, &end, 10);
    *at = end;
    return errno == 0;
}

int parse_range(const char *header, uint64_t n_bytes, struct byte_range *range)
{
    if (header == NULL || strncmp(header, "bytes=", 6) != 0 || strchr(header, ',') != NULL)
        return 0; // several ranges at once may be answered with the whole file
    const char *at = header + 6;
    uint64_t first = 0;
    uint64_t last = n_bytes - 1; // not used when the file is empty
    if (*at == '-') {
        uint64_t n;
        at++;
        if (!parse_number(&at, &n) || *at != 0)
            return 0;
        if (n == 0 || n_bytes == 0)
            return -1;
        *range = (struct byte_range){n < n_bytes ? n_bytes - n : 0, n < n_bytes ? n : n_bytes};
        return 1;
    }
    if (!parse_number(&at, &first) || *at++ != '-')
        return 0;
    if (*at != 0 && (!parse_number(&at, &last) || *at != 0 || last < first))
        return 0;
    if (first >= n_bytes)
        return -1;
    if (last >= n_bytes)
        last = n_bytes - 1;
    *range = (struct byte_range){first, last - first + 1};
    return 1;
}

static enum MHD_Result not_satisfiable(struct exchange *exchange, uint64_t n_bytes)
{
    char text[64];
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    snprintf(text, sizeof text, "bytes */%" PRIu64, n_bytes);
    MHD_add_response_header(response, "Content-Range", text);
    return respond(exchange, MHD_HTTP_RANGE_NOT_SATISFIABLE, response);
}

// True when the client's If-Range, if any, still holds.
static bool range_is_valid(struct exchange *exchange, const char *etag)
{
    const char *if_range = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "If-Range");
    return if_range == NULL || strcmp(if_range, etag) == 0;
}

static enum MHD_Result not_modified(struct exchange *exchange, const char *etag)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response == NULL)
        return MHD_NO;
    MHD_add_response_header(response, "ETag", etag);
    return respond(exchange, MHD_HTTP_NOT_MODIFIED, response);
}

static enum MHD_Result send_open_file(struct exchange *exchange, int file, uint64_t n_bytes, const char *mime, const char *etag)
{
    const char *header = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "Range");
    struct byte_range range = {0, n_bytes};
    int ranged = range_is_valid(exchange, etag) ? parse_range(header, n_bytes, &range) : 0;
    if (ranged < 0) {
        close(file);
        return not_satisfiable(exchange, n_bytes);
    }
    char text[96];
    struct MHD_Response *response = MHD_create_response_from_fd_at_offset64(range.n, file, range.first);
    if (response == NULL) {
        close(file);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", mime);
    MHD_add_response_header(response, "Accept-Ranges", "bytes");
    MHD_add_response_header(response, "ETag", etag);
    MHD_add_response_header(response, "Cache-Control", "no-cache");
    snprintf(text, sizeof text, "%" PRIu64, n_bytes);
    MHD_add_response_header(response, "X-Total-Size", text);
    if (ranged > 0) {
        snprintf(text, sizeof text, "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, range.first, range.first + range.n - 1, n_bytes);
        MHD_add_response_header(response, "Content-Range", text);
    }
    return respond(exchange, ranged > 0 ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK, response);
}

enum MHD_Result serve_file(struct exchange *exchange, const char *path, const char *mime, const char *etag)
{
    char own_etag[64];
    struct stat status;
    if (strcmp(exchange->method, "GET") != 0 && strcmp(exchange->method, "HEAD") != 0)
        return respond_wrong_method(exchange, "GET and HEAD");
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (file < 0 || fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
        if (file >= 0)
            close(file);
        return respond_error(exchange, MHD_HTTP_NOT_FOUND, "not_found", "there is no %s here", exchange->path);
    }
    if (etag == NULL) {
        snprintf(own_etag, sizeof own_etag, "\"%" PRIx64 "-%" PRIx64 "\"", (uint64_t)status.st_size, (uint64_t)status.st_mtime);
        etag = own_etag;
    }
    const char *known = MHD_lookup_connection_value(exchange->connection, MHD_HEADER_KIND, "If-None-Match");
    if (known != NULL && strcmp(known, etag) == 0) {
        close(file);
        return not_modified(exchange, etag);
    }
    return send_open_file(exchange, file, (uint64_t)status.st_size, mime, etag);
}

static const char *mime_of(const char *path)
{
    static const char *const types[][2] = {
        {".html", "text/html; charset=utf-8"},
        {".js", "text/javascript; charset=utf-8"},
        {".mjs", "text/javascript; charset=utf-8"},
        {".css", "text/css; charset=utf-8"},
        {".json", "application/json"},
        {".webmanifest", "application/manifest+json"},
        {".wasm", "application/wasm"},
        {".svg", "image/svg+xml"},
        {".png", "image/png"},
        {".ico", "image/x-icon"},
        {".woff2", "font/woff2"},
        {".txt", "text/plain; charset=utf-8"},
    };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot != NULL && i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(dot, types[i][0]) == 0)
            return types[i][1];
    }
    return "application/octet-stream";
}

// The file must lie inside the app's folder after all links are resolved.
static bool resolve(const char *folder, const char *path, char *out)
{
    char joined[PATH_MAX];
    int n = snprintf(joined, sizeof joined, "%s%s", folder, path);
    if (n < 0 || (size_t)n >= sizeof joined || realpath(joined, out) == NULL)
        return false;
    size_t n_folder = strlen(folder);
    return strncmp(out, folder, n_folder) == 0 && (out[n_folder] == '/' || out[n_folder] == 0);
}

enum MHD_Result serve_app(struct exchange *exchange)
{
    const char *folder = exchange->server->app_folder;
    const char *path = strcmp(exchange->path, "/") == 0 ? "/index.html" : exchange->path;
    char resolved[PATH_MAX];
    if (folder == NULL)
        return respond_error(exchange, MHD_HTTP_NOT_FOUND, "not_found", "this server has no app: start it with --app FOLDER");
    if (!resolve(folder, path, resolved))
        return respond_error(exchange, MHD_HTTP_NOT_FOUND, "not_found", "there is no %s here", path);
    return serve_file(exchange, resolved, mime_of(resolved), NULL);
}
