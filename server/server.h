// server.h: carat serve: the app, the models of this machine, and an OpenAI-compatible API, over HTTP(S).
//
// By default it listens on this machine only. Nothing is sent to strangers: no CORS unless an origin is named, requests for
// another host name are refused while only localhost is served (a page cannot reach it by rebinding its own name), and an API key
// can be asked for.

#ifndef CARAT_SERVER_SERVER_H
#define CARAT_SERVER_SERVER_H

#include "base/error.h"
#include "carat.h"

enum { SERVER_MAX_FOLDERS = 16 };

struct server_options {
    const char *host;                        // address to listen on; NULL: 127.0.0.1
    int port;                                // 0: any free one
    bool tls;                                // HTTPS with a certificate of its own
    const char *app_folder;                  // files of the app; NULL: none
    const char *folders[SERVER_MAX_FOLDERS]; // searched for .gguf files
    int n_folders;
    const char *model_name;  // served by /v1; NULL: the first one found
    const char *api_key;     // wanted as "Authorization: Bearer KEY" by /v1 and /api; NULL: none
    const char *cors_origin; // may call from a page of its own; NULL: none
    struct carat_model_options model;
    struct carat_session_options session;
};

struct server;

// Starts serving in threads of its own. The options' texts must stay.
bool server_start(const struct server_options *options, struct server **server, struct carat_error *err);
int server_port(const struct server *server);
const char *server_url(const struct server *server); // "http://127.0.0.1:8088/"
void server_stop(struct server *server);             // waits for its threads; NULL is allowed

#endif
