// source_http.c: a file on a web server, read by ranges through libcurl.
//
// A server that ignores the range, or answers with other bytes than asked for, would silently corrupt what is read. So an answer
// must be 206 with exactly the Content-Range that was asked for, the total size must stay the same, and so must the entity tag.
//
// A distant server takes longer to answer than to send: reads that follow each other are served from a window, which is fetched
// with one request and doubles while they go on. Reads here and there (rows of a table) fetch what they ask for and no more.

#ifndef __wasm__

#include "gguf/source.h"

#ifndef CARAT_HAVE_CURL

struct gguf_source *gguf_source_http(const char *url, struct carat_error *err)
{
    fail(err, CARAT_UNSUPPORTED, "cannot read %s: this build of carat has no libcurl; download the file and name its path", url);
    return NULL;
}

#else

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <curl/curl.h>

enum {
    MAX_REDIRECTS = 5,
    CONNECT_TIMEOUT_S = 30,
    STALL_TIMEOUT_S = 60,
    MAX_RESUMPTIONS = 8,
    TAG_BYTES = 256,
    FIRST_BYTES = 256 * 1024, // comes with the size when the file is opened: mostly the whole header
    WINDOW_BYTES = 16 << 20,
    GAP_BYTES = 64 * 1024 // reads that leave out no more than this still follow each other
};

struct http_source {
    struct gguf_source source; // first
    CURL *curl;
    char tag[TAG_BYTES]; // ETag of the first answer, "" when it had none
    uint8_t *window;     // n_window bytes from window_begin on
    uint64_t window_begin;
    size_t n_window, capacity; // bytes held, allocated
    uint64_t next;             // where the last read ended
    size_t n_ahead;            // size of the next window
    char message[CURL_ERROR_SIZE];
    char url[];
};

// One request: what was asked for and what came.
struct transfer {
    struct http_source *http;
    uint8_t *dst;
    size_t n_wanted, n_got;
    uint64_t begin, end, total; // Content-Range: first byte, byte after the last, size of the file
    bool has_range, is_encoded, is_first, is_cut;
    char tag[TAG_BYTES];
};

static void close_http(struct gguf_source *source)
{
    struct http_source *http = (struct http_source *)source;
    curl_easy_cleanup(http->curl);
    free(http->window);
    free(http);
}

static size_t on_body(char *bytes, size_t size, size_t n, void *context)
{
    struct transfer *transfer = context;
    size_t n_bytes = size * n;
    long status = 0;
    curl_easy_getinfo(transfer->http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 206)
        return status >= 300 && status < 400 ? n_bytes : 0; // a redirect may have a text, anything else ends the transfer
    if (n_bytes > transfer->n_wanted - transfer->n_got)
        return 0;
    memcpy(transfer->dst + transfer->n_got, bytes, n_bytes);
    transfer->n_got += n_bytes;
    return n_bytes;
}

// The value of header `name` in a line of n bytes, or NULL.
static const char *header_value(const char *line, size_t n, const char *name)
{
    size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':')
        return NULL;
    const char *value = line + n_name + 1;
    while (*value == ' ' || *value == '\t')
        value++;
    return value;
}

static size_t on_header(char *line, size_t size, size_t n, void *context)
{
    struct transfer *transfer = context;
    size_t n_bytes = size * n;
    char text[512];
    if (n_bytes == 0 || n_bytes >= sizeof text)
        return n_bytes;
    memcpy(text, line, n_bytes);
    text[n_bytes] = '\0';
    text[strcspn(text, "\r\n")] = '\0';
    if (strncasecmp(text, "HTTP/", 5) == 0) { // the answer to a redirect's target begins
        transfer->has_range = transfer->is_encoded = false;
        transfer->tag[0] = '\0';
    }
    const char *value = header_value(text, n_bytes, "content-range");
    if (value != NULL) {
        uint64_t first, last, total;
        transfer->has_range = sscanf(value, "bytes %" SCNu64 "-%" SCNu64 "/%" SCNu64, &first, &last, &total) == 3 &&
                              first <= last && last < total && total <= INT64_MAX;
        if (transfer->has_range)
            transfer->begin = first, transfer->end = last + 1, transfer->total = total;
    }
    value = header_value(text, n_bytes, "content-encoding");
    if (value != NULL && strcasecmp(value, "identity") != 0)
        transfer->is_encoded = true;
    value = header_value(text, n_bytes, "etag");
    if (value != NULL && strlen(value) < TAG_BYTES)
        memcpy(transfer->tag, value, strlen(value) + 1);
    return n_bytes;
}

static bool check_answer(struct transfer *transfer, CURLcode code, long status, struct carat_error *err)
{
    struct http_source *http = transfer->http;
    const char *url = http->url;
    if (status == 404 || status == 410)
        return fail(err, CARAT_NOT_FOUND, "%s: the server has no such file (status %ld); check the address", url, status);
    if (status == 401 || status == 403)
        return fail(err, CARAT_IO,
            "%s: the server refuses access (status %ld); download the file with your account and name its path", url, status);
    if (status == 200)
        return fail(err, CARAT_IO, "%s: the server ignores ranges (status 200); download the file and name its path", url);
    if (status == 416)
        return fail(
            err, CARAT_IO, "%s: the server has no such range (status 416): the file is empty or changed; open it again", url);
    if (status >= 300 && status < 400)
        return fail(
            err, CARAT_IO, "%s: the server redirects too often or to an address that is not allowed; check the address", url);
    if (status != 206 && status != 0)
        return fail(err, CARAT_IO, "%s: the server answers with status %ld instead of 206; try again later", url, status);
    if (code == CURLE_WRITE_ERROR)
        return fail(
            err, CARAT_IO, "%s: the server sends more bytes than it was asked for; download the file and name its path", url);
    if (code != CURLE_OK)
        return fail(err, CARAT_IO, "%s: %s; check the connection and try again", url,
            http->message[0] != '\0' ? http->message : curl_easy_strerror(code));
    if (transfer->is_encoded)
        return fail(
            err, CARAT_IO, "%s: the server compresses although it was not asked to; download the file and name its path", url);
    if (!transfer->has_range)
        return fail(
            err, CARAT_IO, "%s: the server's answer has no valid Content-Range; download the file and name its path", url);
    return true;
}

static bool is_same_file(const struct transfer *transfer)
{
    return transfer->total == transfer->http->source.n_bytes && strcmp(transfer->tag, transfer->http->tag) == 0;
}

// Fetches n_bytes from offset on into transfer->dst. On failure transfer->is_cut says that the first n_got bytes are good, the
// connection having broken.
static bool fetch(struct transfer *transfer, uint64_t offset, struct carat_error *err)
{
    struct http_source *http = transfer->http;
    char range[64];
    snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, offset, offset + transfer->n_wanted - 1);
    http->message[0] = '\0';
    curl_easy_setopt(http->curl, CURLOPT_RANGE, range);
    curl_easy_setopt(http->curl, CURLOPT_WRITEDATA, transfer);
    curl_easy_setopt(http->curl, CURLOPT_HEADERDATA, transfer);
    CURLcode code = curl_easy_perform(http->curl);
    long status = 0;
    curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &status);
    if (!check_answer(transfer, code, status, err)) {
        bool right_bytes = status == 206 && transfer->has_range && !transfer->is_encoded && transfer->begin == offset &&
                           transfer->end == offset + transfer->n_wanted && is_same_file(transfer);
        transfer->is_cut =
            right_bytes && code != CURLE_WRITE_ERROR && transfer->n_got != 0 && transfer->n_got < transfer->n_wanted;
        return false;
    }
    uint64_t end = offset + transfer->n_wanted;
    if (transfer->is_first && end > transfer->total)
        end = transfer->total; // the first request does not know the size yet
    if (transfer->begin != offset || transfer->end != end || transfer->n_got != end - offset)
        return fail(err, CARAT_IO,
            "%s: the server sent other bytes (%" PRIu64 " to %" PRIu64 ") than those asked for (%" PRIu64 " to %" PRIu64
            "); download the file and name its path",
            http->url, transfer->begin, transfer->end, offset, end);
    return true;
}

// Fetches [offset, offset + n_bytes) of the file, going on where a connection breaks.
static bool fetch_all(struct http_source *http, uint64_t offset, uint8_t *dst, size_t n_bytes, struct carat_error *err)
{
    for (int i = 0;; i++) {
        struct transfer transfer = {.http = http, .dst = dst, .n_wanted = n_bytes};
        bool ok = fetch(&transfer, offset, err);
        if (ok && !is_same_file(&transfer))
            return fail(err, CARAT_IO, "%s: the file changed on the server while it was read; open it again", http->url);
        if (ok || !transfer.is_cut || i == MAX_RESUMPTIONS)
            return ok;
        dst += transfer.n_got; // what came before the connection broke is kept
        offset += transfer.n_got;
        n_bytes -= transfer.n_got;
    }
}

// Makes the window begin at offset and hold at least n_bytes, no more than WINDOW_BYTES of them.
static bool move_window(struct http_source *http, uint64_t offset, size_t n_bytes, struct carat_error *err)
{
    uint64_t n_rest = http->source.n_bytes - offset;
    size_t n_wanted = n_bytes > http->n_ahead ? n_bytes : http->n_ahead;
    if (n_wanted > n_rest)
        n_wanted = (size_t)n_rest;
    http->n_window = 0;
    if (n_wanted > http->capacity) {
        uint8_t *grown = realloc(http->window, n_wanted);
        if (grown == NULL)
            return fail(err, CARAT_NO_MEMORY, "no memory to read %zu bytes of %s ahead", n_wanted, http->url);
        http->window = grown;
        http->capacity = n_wanted;
    }
    if (!fetch_all(http, offset, http->window, n_wanted, err))
        return false;
    http->window_begin = offset;
    http->n_window = n_wanted;
    http->n_ahead = http->n_ahead < WINDOW_BYTES / 2 ? http->n_ahead * 2 : WINDOW_BYTES;
    return true;
}

static bool read_http(struct gguf_source *source, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    struct http_source *http = (struct http_source *)source;
    bool follows = offset >= http->next && offset - http->next <= GAP_BYTES;
    if (!follows)
        http->n_ahead = FIRST_BYTES;
    http->next = offset + n_bytes;
    for (;;) {
        if (offset >= http->window_begin && offset - http->window_begin < http->n_window) {
            size_t at = (size_t)(offset - http->window_begin);
            size_t n = http->n_window - at < n_bytes ? http->n_window - at : n_bytes;
            memcpy(dst, http->window + at, n);
            dst = (uint8_t *)dst + n;
            offset += n;
            n_bytes -= n;
        }
        if (n_bytes == 0)
            return true;
        if (!follows || n_bytes > WINDOW_BYTES)
            return fetch_all(http, offset, dst, n_bytes, err);
        if (!move_window(http, offset, n_bytes, err))
            return false;
    }
}

static bool open_http(struct http_source *http, struct carat_error *err)
{
    bool is_https = strncasecmp(http->url, "https:", 6) == 0;
    CURL *curl = http->curl;
    curl_easy_setopt(curl, CURLOPT_URL, http->source.name);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, is_https ? "https" : "http,https"); // never from https back to http
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)MAX_REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "carat");
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->message);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
    http->window = malloc(FIRST_BYTES);
    if (http->window == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to open %s", http->url);
    http->capacity = http->n_ahead = FIRST_BYTES;
    struct transfer transfer = {.http = http, .dst = http->window, .n_wanted = FIRST_BYTES, .is_first = true};
    if (!fetch(&transfer, 0, err))
        return false;
    http->n_window = transfer.n_got;
    http->source.n_bytes = transfer.total;
    memcpy(http->tag, transfer.tag, sizeof http->tag);
    return true;
}

static pthread_once_t curl_started = PTHREAD_ONCE_INIT;

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

struct gguf_source *gguf_source_http(const char *url, struct carat_error *err)
{
    pthread_once(&curl_started, start_curl);
    size_t n_url = strlen(url) + 1;
    struct http_source *http = calloc(1, sizeof *http + n_url);
    if (http == NULL || (http->curl = curl_easy_init()) == NULL) {
        free(http);
        fail(err, CARAT_NO_MEMORY, "no memory to open %s", url);
        return NULL;
    }
    memcpy(http->url, url, n_url);
    http->source = (struct gguf_source){.read = read_http, .close = close_http, .name = http->url};
    if (!open_http(http, err)) {
        close_http(&http->source);
        return NULL;
    }
    return &http->source;
}

#endif
#endif
