// serve.c: carat serve: the app and an OpenAI-compatible API on this machine.

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"
#include "options.h"
#ifdef CARAT_HAVE_SERVER
#include "../server/server.h"
#endif

#ifdef CARAT_HAVE_SERVER

static const char help[] =
    "usage: carat serve [MODEL] [OPTIONS]\n\n"
    "Serves the app, the models of this machine (Ollama's store and the folders given) and an OpenAI-compatible API (/v1).\n"
    "MODEL answers the API's requests; without it the model that a request names is opened, or the first one found.\n\n"
    "  --port N              port (default 8088; 0: any free one)\n"
    "  --host ADDRESS        listen on this address instead of localhost only, e.g. 0.0.0.0 for a phone in the same network;\n"
    "                        turns HTTPS on\n"
    "  --tls, --no-tls       HTTPS with a certificate of its own, made on first use, or not\n"
    "  --models FOLDER       offer the .gguf files of this folder; may be repeated\n"
    "  --app FOLDER          the app's files (default: app/dist beside the program's source)\n"
    "  --api-key KEY         ask for this key (or the environment variable CARAT_API_KEY)\n"
    "  --cors ORIGIN         let pages of this origin use the API\n"
    "  -c, --context N       positions in the cache (default 4096)\n";

static volatile sig_atomic_t stop_asked;

static void on_signal(int number)
{
    (void)number;
    stop_asked = 1;
}

static bool serve_option(struct arguments *arguments, const char *option, struct server_options *options, bool *no_tls)
{
    if (strcmp(option, "--port") == 0)
        options->port = (int)option_int(arguments, option, 0, 65535);
    else if (strcmp(option, "--host") == 0)
        options->host = option_text(arguments, option);
    else if (strcmp(option, "--tls") == 0)
        options->tls = true;
    else if (strcmp(option, "--no-tls") == 0)
        *no_tls = true;
    else if (strcmp(option, "--models") == 0 && options->n_folders < SERVER_MAX_FOLDERS)
        options->folders[options->n_folders++] = option_text(arguments, option);
    else if (strcmp(option, "--app") == 0)
        options->app_folder = option_text(arguments, option);
    else if (strcmp(option, "--api-key") == 0)
        options->api_key = option_text(arguments, option);
    else if (strcmp(option, "--cors") == 0)
        options->cors_origin = option_text(arguments, option);
    else if (strcmp(option, "-c") == 0 || strcmp(option, "--context") == 0)
        options->session.context_length = (int32_t)option_int(arguments, option, 1, 1 << 24);
    else
        return false;
    return true;
}

static void parse(struct server_options *options, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option;
    const char *positional;
    bool no_tls = false;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && options->model_name == NULL) {
            options->model_name = positional;
        } else if (positional != NULL) {
            usage_error("serve", "unexpected argument '%s'", positional);
        } else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s", help, model_options_help);
            exit(0);
        } else if (!serve_option(&arguments, option, options, &no_tls) && !model_option(&arguments, option, &options->model)) {
            usage_error("serve", "there is no option '%s'", option);
        }
    }
    bool local = options->host == NULL || strncmp(options->host, "127.", 4) == 0 || strcmp(options->host, "localhost") == 0;
    options->tls = (options->tls || !local) && !no_tls;
}

int command_serve(int argc, char **argv)
{
    struct server_options options = {.port = 8088, .api_key = getenv("CARAT_API_KEY")};
    parse(&options, argc, argv);
    if (options.api_key != NULL && options.api_key[0] == '\0')
        usage_error("serve", "the API key is empty: give --api-key one, or unset CARAT_API_KEY");
    if (options.app_folder == NULL && access(CARAT_APP_FOLDER, R_OK) == 0)
        options.app_folder = CARAT_APP_FOLDER;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    struct server *server;
    struct carat_error err;
    if (!server_start(&options, &server, &err)) {
        fprintf(stderr, "carat: %s\n", err.message);
        return 1;
    }
    printf("%s\n", server_url(server));
    fflush(stdout);
    fprintf(stderr, "Serving at %s (API below /v1). Ctrl-C ends.\n", server_url(server));
    if (options.tls)
        fputs("The certificate is the server's own: the browser warns once, which is to be expected.\n", stderr);
    while (!stop_asked)
        pause();
    server_stop(server);
    return 0;
}

#else

int command_serve(int argc, char **argv)
{
    (void)argc, (void)argv;
    fputs("carat: this build has no server: install libmicrohttpd and gnutls (Debian: libmicrohttpd-dev libgnutls28-dev) and "
          "build again\n",
        stderr);
    return 1;
}

#endif
