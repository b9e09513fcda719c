// internal.h: what the parts of the server share.

#ifndef CARAT_SERVER_INTERNAL_H
#define CARAT_SERVER_INTERNAL_H

#include <microhttpd.h>

#include "base/json.h"
#include "server.h"

enum {
    SERVER_MAX_CONNECTIONS = 128,
    SERVER_TIMEOUT_S = 60,            // a connection that neither sends nor takes anything is closed
    SERVER_HEADER_BYTES = 64 << 10,   // memory of a connection: line, headers and buffers
    SERVER_MAX_BODY_BYTES = 64 << 20, // of a chat request, images and sounds included
    SERVER_MAX_LOG_BYTES = 8 << 10,   // of one POST /api/log
    SERVER_MAX_LOG_FILE_BYTES = 4 << 20,
};

struct engine;

struct server {
    struct server_options options;
    struct MHD_Daemon *daemon;
    struct engine *engine;
    char *certificate, *key; // PEM
    char *app_folder;        // resolved
    char url[128];
    int port;
};

// One request while its body arrives.
struct exchange {
    struct server *server;
    struct MHD_Connection *connection;
    const char *method;
    const char *path;        // decoded, begins with '/'
    struct json_writer body; // POST
    bool body_unwanted;      // dropped as it comes
    bool body_too_large;
    struct job *job; // a chat request under way
};

// --- respond.c
// ----------------------------------------------------------------------------------------------------------------------

enum MHD_Result respond_json(struct exchange *exchange, unsigned status, struct json_writer *json); // frees json's memory
// {"error":{"message":...,"type":...,"code":...}}
__attribute__((format(printf, 4, 5))) enum MHD_Result respond_error(
    struct exchange *exchange, unsigned status, const char *code, const char *format, ...);
enum MHD_Result respond_carat_error(struct exchange *exchange, const struct carat_error *err);
// Queues a response with the headers that every answer has, and forgets it.
enum MHD_Result respond(struct exchange *exchange, unsigned status, struct MHD_Response *response);
// For a path this method does not fit.
enum MHD_Result respond_wrong_method(struct exchange *exchange, const char *allowed);

// --- files.c
// ------------------------------------------------------------------------------------------------------------------------

// A file with byte ranges. etag may be NULL: size and time make one. GET and HEAD.
enum MHD_Result serve_file(struct exchange *exchange, const char *path, const char *mime, const char *etag);
// A file of the app; "/" is index.html.
enum MHD_Result serve_app(struct exchange *exchange);

struct byte_range {
    uint64_t first, n; // n > 0
};

// Reads a Range header for a file of n_bytes. 1: *range holds the one range; 0: no range that is understood, send the whole file;
// -1: cannot be satisfied (416).
int parse_range(const char *header, uint64_t n_bytes, struct byte_range *range);

// --- library.c
// ----------------------------------------------------------------------------------------------------------------------

enum MHD_Result serve_models(struct exchange *exchange);                 // GET /api/models
enum MHD_Result serve_blob(struct exchange *exchange, const char *name); // GET /api/blob/NAME
// The model of that name, or id; NULL: the first one.
bool library_find(const struct server *server, const char *name, char **path, char **digest);
// What /v1 calls a model that is listed or opened under this name: a file's name without folder and extension, a name of Ollama's
// store as it is. n bytes within the name.
const char *model_id(const char *name, size_t *n);
void library_write_names(const struct server *server, struct json_writer *out); // for /v1/models
enum MHD_Result take_log(struct exchange *exchange);                            // POST /api/log

// --- engine.c: one model, one queue
// ---------------------------------------------------------------------------------------------------

struct job;

struct engine *engine_new(const struct server *server, struct carat_error *err);
void engine_stop(struct engine *engine); // cancels what is queued and under way, and ends the thread; NULL is allowed
void engine_free(struct engine *engine); // after engine_stop, when no job is left; NULL is allowed

// A chat request. `request` (JSON as carat_chat_begin wants it) and the media are taken over.
struct job *engine_submit(struct engine *engine, char *request, struct carat_media *media, int n_media, const char *model_name,
    struct carat_error *err);

// The next event of a job, as a copy that stays valid until the next call; waits at most timeout_ms. Returns CARAT_PENDING when
// nothing came in that time, CARAT_FAILED with err, CARAT_DONE after the finish event.
enum carat_status job_next(struct job *job, struct carat_event *event, int timeout_ms, struct carat_error *err);
// The name of the model that answers; valid after the first event.
const char *job_model(const struct job *job);
// The client is gone or has everything.
void job_release(struct job *job); // NULL is allowed

// --- completions.c
// --------------------------------------------------------------------------------------------------------------------

enum MHD_Result serve_v1_models(struct exchange *exchange);
enum MHD_Result serve_completions(struct exchange *exchange); // POST /v1/chat/completions

// --- certificate.c
// --------------------------------------------------------------------------------------------------------------------

// carat's folder for data of its own (XDG_DATA_HOME or ~/.local/share, then "carat"), made if it is missing. Allocated; NULL with
// err.
char *data_folder(struct carat_error *err);
// The server's self-signed certificate and key, made on first use. Allocated PEM texts.
bool load_certificate(const char *host, char **certificate, char **key, struct carat_error *err);

#endif
