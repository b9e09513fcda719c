// engine.c: one model, one thread that computes, one queue of chat requests.
//
// A job is shared by its connection and the engine's thread, and freed by whoever lets go last. Events are copied into the job,
// from where the connection takes them at its own pace; a connection that goes away cancels its job.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../cli/media.h"
#include "internal.h"

enum { MAX_QUEUED = 64 };

struct event_copy {
    struct event_copy *next;
    struct carat_event event; // its texts are below
    char *text, *tool_name, *logprobs;
};

struct job {
    struct engine *engine;
    struct job *next; // in the queue
    char *request;
    struct carat_media *media;
    int n_media;
    char *model_name; // asked for; NULL: the default
    char *answering;  // name of the model that answers
    struct event_copy *first, **end;
    struct event_copy *given; // freed when the next one is asked for
    bool cancelled, finished, failed;
    int n_owners;
    struct carat_error err;
};

struct engine {
    const struct server *server;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; // for the engine's thread
    pthread_cond_t news; // for connections
    struct job *queue, **queue_end;
    int n_queued;
    bool stopping;
    // The thread's own:
    struct carat_model *model;
    struct carat_session *session;
    char *model_id;
};

// --- jobs
// -------------------------------------------------------------------------------------------------------------------------------

static void event_free(struct event_copy *copy)
{
    if (copy == NULL)
        return;
    free(copy->text);
    free(copy->tool_name);
    free(copy->logprobs);
    free(copy);
}

static void job_free(struct job *job)
{
    event_free(job->given);
    while (job->first != NULL) {
        struct event_copy *next = job->first->next;
        event_free(job->first);
        job->first = next;
    }
    for (int i = 0; i < job->n_media; i++)
        media_unload(&job->media[i]);
    free(job->media);
    free(job->request);
    free(job->model_name);
    free(job->answering);
    free(job);
}

// The lock is held.
static void let_go(struct job *job)
{
    if (--job->n_owners == 0)
        job_free(job);
}

struct job *engine_submit(
    struct engine *engine, char *request, struct carat_media *media, int n_media, const char *model_name, struct carat_error *err)
{
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        for (int i = 0; i < n_media; i++)
            media_unload(&media[i]);
        free(media);
        free(request);
        fail(err, CARAT_NO_MEMORY, "no memory for a request");
        return NULL;
    }
    *job = (struct job){.engine = engine, .request = request, .media = media, .n_media = n_media, .n_owners = 2};
    job->end = &job->first;
    job->model_name = model_name != NULL && *model_name != 0 ? strdup(model_name) : NULL;
    pthread_mutex_lock(&engine->lock);
    bool full = engine->n_queued >= MAX_QUEUED || engine->stopping;
    if (!full) {
        *engine->queue_end = job;
        engine->queue_end = &job->next;
        engine->n_queued++;
        pthread_cond_signal(&engine->work);
    }
    pthread_mutex_unlock(&engine->lock);
    if (!full)
        return job;
    job_free(job);
    fail(err, CARAT_NO_MEMORY, "%d requests are waiting already: try again later", MAX_QUEUED);
    return NULL;
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += timeout_ms / 1000;
    at.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

enum carat_status job_next(struct job *job, struct carat_event *event, int timeout_ms, struct carat_error *err)
{
    struct engine *engine = job->engine;
    struct timespec deadline = deadline_in(timeout_ms);
    enum carat_status status = CARAT_PENDING;
    pthread_mutex_lock(&engine->lock);
    event_free(job->given);
    job->given = NULL;
    while (job->first == NULL && !job->finished && pthread_cond_timedwait(&engine->news, &engine->lock, &deadline) == 0)
        continue;
    if (job->first != NULL) {
        job->given = job->first;
        job->first = job->given->next;
        if (job->first == NULL)
            job->end = &job->first;
        *event = job->given->event;
        status = CARAT_EVENT;
    } else if (job->finished) {
        status = job->failed ? CARAT_FAILED : CARAT_DONE;
        if (job->failed && err != NULL)
            *err = job->err;
    }
    pthread_mutex_unlock(&engine->lock);
    return status;
}

const char *job_model(const struct job *job)
{
    return job->answering != NULL ? job->answering : "carat";
}

void job_release(struct job *job)
{
    if (job == NULL)
        return;
    struct engine *engine = job->engine;
    pthread_mutex_lock(&engine->lock);
    job->cancelled = true;
    let_go(job);
    pthread_mutex_unlock(&engine->lock);
}

// --- the engine's thread
// ------------------------------------------------------------------------------------------------------------------

static char *copy_text(const char *text, size_t n, bool *ok)
{
    if (text == NULL)
        return NULL;
    char *copy = malloc(n + 1);
    if (copy == NULL) {
        *ok = false;
        return NULL;
    }
    memcpy(copy, text, n);
    copy[n] = 0;
    return copy;
}

static bool add_event(struct job *job, const struct carat_event *event)
{
    bool ok = true;
    struct event_copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL)
        return false;
    copy->text = copy_text(event->text, event->n_text, &ok);
    copy->tool_name = copy_text(event->tool_name, event->tool_name != NULL ? strlen(event->tool_name) : 0, &ok);
    copy->logprobs = copy_text(event->logprobs, event->logprobs != NULL ? strlen(event->logprobs) : 0, &ok);
    copy->event = *event;
    copy->event.text = copy->text;
    copy->event.tool_name = copy->tool_name;
    copy->event.logprobs = copy->logprobs;
    copy->event.ids = NULL;
    copy->event.n_ids = 0;
    pthread_mutex_lock(&job->engine->lock);
    *job->end = copy;
    job->end = &copy->next;
    pthread_cond_broadcast(&job->engine->news);
    pthread_mutex_unlock(&job->engine->lock);
    return ok;
}

static void close_model(struct engine *engine)
{
    carat_session_free(engine->session);
    carat_model_free(engine->model);
    free(engine->model_id);
    engine->session = NULL;
    engine->model = NULL;
    engine->model_id = NULL;
}

// Where a model's files are: one of the library's, or, for the name given on the command line, whatever carat can open.
static char *model_path(const struct engine *engine, const char *name)
{
    const char *given = engine->server->options.model_name;
    char *path;
    if (given != NULL && (name == NULL || strcmp(name, given) == 0))
        return strdup(given);
    return library_find(engine->server, name, &path, NULL) ? path : NULL;
}

// Keeps the open model when it is the one that is wanted. A server that was given one model answers with that, whatever name a
// client sends.
static bool use_model(struct engine *engine, const char *name, struct carat_error *err)
{
    const struct server_options *options = &engine->server->options;
    size_t n_id = 0;
    if (options->model_name != NULL)
        name = options->model_name;
    const char *id = name != NULL ? model_id(name, &n_id) : NULL;
    if (engine->session != NULL && (id == NULL || (strlen(engine->model_id) == n_id && memcmp(engine->model_id, id, n_id) == 0)))
        return true;
    char *path = model_path(engine, name);
    if (path == NULL)
        return name != NULL ? fail(err, CARAT_NOT_FOUND, "there is no model '%.100s' here; /v1/models lists them", name)
                            : fail(err, CARAT_NOT_FOUND, "this server has no model: start it with --model or --models FOLDER");
    close_model(engine);
    if (id == NULL)
        id = model_id(path, &n_id);
    engine->model_id = strndup(id, n_id);
    bool ok = (engine->model_id != NULL || fail(err, CARAT_NO_MEMORY, "no memory for a model's name")) &&
              carat_model_open(path, &options->model, &engine->model, err) &&
              carat_session_new(engine->model, &options->session, &engine->session, err);
    free(path);
    if (!ok)
        close_model(engine);
    return ok;
}

static bool is_cancelled(struct job *job)
{
    pthread_mutex_lock(&job->engine->lock);
    bool cancelled = job->cancelled || job->engine->stopping;
    pthread_mutex_unlock(&job->engine->lock);
    return cancelled;
}

static bool run_job(struct engine *engine, struct job *job, struct carat_error *err)
{
    if (!use_model(engine, job->model_name, err))
        return false;
    struct carat_model_info info;
    carat_model_info(engine->model, &info);
    job->answering = strdup(engine->model_id);
    if (!carat_chat_begin(engine->session, job->request, job->media, job->n_media, err)) {
        // Images or sounds that this model cannot take are wrong in this request, not missing in this server.
        if (job->n_media > 0 && err->code == CARAT_UNSUPPORTED)
            err->code = CARAT_BAD_ARGUMENT;
        return false;
    }
    for (;;) {
        struct carat_event event;
        enum carat_status status = carat_chat_next(engine->session, &event, err);
        if (status == CARAT_FAILED)
            return false;
        if (is_cancelled(job))
            carat_stop(engine->session);
        if (status == CARAT_PENDING)
            carat_session_wait(engine->session, 100);
        if (status != CARAT_EVENT)
            continue;
        bool added = add_event(job, &event);
        if (!added)
            carat_stop(engine->session);
        if (event.kind == CARAT_EVENT_FINISH)
            return added || fail(err, CARAT_NO_MEMORY, "no memory for the reply");
    }
}

static struct job *next_job(struct engine *engine)
{
    pthread_mutex_lock(&engine->lock);
    while (engine->queue == NULL && !engine->stopping)
        pthread_cond_wait(&engine->work, &engine->lock);
    struct job *job = engine->queue;
    if (job != NULL) {
        engine->queue = job->next;
        if (engine->queue == NULL)
            engine->queue_end = &engine->queue;
        engine->n_queued--;
    }
    pthread_mutex_unlock(&engine->lock);
    return job;
}

static void *engine_main(void *context)
{
    struct engine *engine = context;
    struct job *job;
    while ((job = next_job(engine)) != NULL) {
        struct carat_error err = {.code = CARAT_CANCELLED, .message = "the request was cancelled"};
        bool ok = !is_cancelled(job) && run_job(engine, job, &err);
        pthread_mutex_lock(&engine->lock);
        job->finished = true;
        job->failed = !ok;
        job->err = err;
        pthread_cond_broadcast(&engine->news);
        let_go(job);
        pthread_mutex_unlock(&engine->lock);
    }
    close_model(engine);
    return NULL;
}

struct engine *engine_new(const struct server *server, struct carat_error *err)
{
    struct engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the server");
        return NULL;
    }
    engine->server = server;
    engine->queue_end = &engine->queue;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_cond_init(&engine->work, NULL);
    pthread_cond_init(&engine->news, NULL);
    if (pthread_create(&engine->thread, NULL, engine_main, engine) == 0)
        return engine;
    free(engine);
    fail(err, CARAT_NO_MEMORY, "cannot start the thread that computes");
    return NULL;
}

void engine_stop(struct engine *engine)
{
    if (engine == NULL)
        return;
    pthread_mutex_lock(&engine->lock);
    engine->stopping = true;
    pthread_cond_broadcast(&engine->work);
    pthread_mutex_unlock(&engine->lock);
    pthread_join(engine->thread, NULL);
}

void engine_free(struct engine *engine)
{
    if (engine == NULL)
        return;
    pthread_cond_destroy(&engine->work);
    pthread_cond_destroy(&engine->news);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}
