// tower_jobs.c: jobs of the towers and the cache of their results.

#include <stdlib.h>
#include <string.h>

#include "model/towers_internal.h"

enum { MAX_QUEUED = 4 }; // steps that a device may be behind

struct tower_job {
    struct towers *towers;
    enum tower_kind kind;
    struct image prepared; // vision: owned
    struct vision_run vision;
    struct audio_run audio;
    bool running;                // one of the two runs has memory
    bool queued_all;             // every step is queued
    int32_t tickets[MAX_QUEUED]; // of steps under way, oldest first
    int32_t n_tickets;
    uint64_t key[2];
    struct soft_tokens *soft; // the result; the job is one of its users
};

// --- hash ---

// Two independent 64-bit multiply-and-mix lanes over words of 8 bytes.
static void hash_bytes(uint64_t key[2], const void *bytes, size_t n_bytes)
{
    static const uint64_t factors[2] = {0x9e3779b97f4a7c15u, 0xc2b2ae3d27d4eb4fu};
    const uint8_t *at = bytes;
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, n_bytes - i < 8 ? n_bytes - i : 8);
        for (int lane = 0; lane < 2; lane++) {
            key[lane] = (key[lane] ^ word) * factors[lane];
            key[lane] ^= key[lane] >> 29;
        }
    }
    for (int lane = 0; lane < 2; lane++)
        key[lane] = (key[lane] ^ n_bytes) * factors[1 - lane];
}

// --- cache ---

static void forget(struct towers *towers, struct soft_tokens **link)
{
    struct soft_tokens *soft = *link;
    *link = soft->next;
    tensor_free(towers->ops->ops, &soft->rows);
    free(soft);
}

static uint64_t bytes_of(const struct soft_tokens *soft)
{
    return 4 * (uint64_t)soft->rows.n_rows * (uint64_t)soft->rows.n_cols;
}

// Frees what nobody uses, from the least recently used on, until the unused rest fits the limit.
static void cache_shrink(struct towers *towers, uint64_t limit)
{
    uint64_t n_bytes = 0;
    for (struct soft_tokens **link = &towers->cache; *link != NULL;) {
        uint64_t size = (*link)->n_users == 0 ? bytes_of(*link) : 0;
        if (size > 0 && n_bytes + size > limit) {
            forget(towers, link);
            continue;
        }
        n_bytes += size;
        link = &(*link)->next;
    }
}

void cache_empty(struct towers *towers)
{
    cache_shrink(towers, 0);
}

// The cached result of this key, moved to the front; NULL when there is none.
static struct soft_tokens *cache_find(struct towers *towers, const uint64_t key[2])
{
    for (struct soft_tokens **link = &towers->cache; *link != NULL; link = &(*link)->next) {
        struct soft_tokens *soft = *link;
        if (memcmp(soft->key, key, sizeof soft->key) == 0) {
            *link = soft->next;
            soft->next = towers->cache;
            return towers->cache = soft;
        }
    }
    return NULL;
}

void towers_drop(struct towers *towers, struct soft_tokens *soft)
{
    if (soft == NULL)
        return;
    soft->n_users--;
    cache_shrink(towers, TOWERS_CACHE_BYTES);
}

// --- jobs ---

// Where nobody can wait, tickets of an abandoned job are left to later jobs to collect.
static void leave_tickets(struct tower_job *job)
{
    struct towers *towers = job->towers;
    for (int32_t i = 0; i < job->n_tickets && towers->n_orphans < MAX_ORPHANS; i++)
        towers->orphans[towers->n_orphans++] = job->tickets[i];
    job->n_tickets = 0;
}

static void collect_orphans(struct towers *towers)
{
    struct ops *ops = towers->ops->ops;
    int32_t n_left = 0;
    for (int32_t i = 0; i < towers->n_orphans; i++) {
        if (ops->poll(ops, towers->orphans[i], NULL) == OPS_PENDING)
            towers->orphans[n_left++] = towers->orphans[i];
    }
    towers->n_orphans = n_left;
}

static struct tower_job *job_new(struct towers *towers, enum tower_kind kind, struct carat_error *err)
{
    if (!towers_has(towers, kind)) {
        fail(err, CARAT_UNSUPPORTED, "this model cannot %s: its files hold no such tower",
            kind == TOWER_VISION ? "see images" : "hear sounds");
        return NULL;
    }
    struct tower_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for looking or listening");
    } else {
        collect_orphans(towers);
        *job = (struct tower_job){.towers = towers, .kind = kind};
    }
    return job;
}

// True when the result is there already.
static bool answer_from_cache(struct tower_job *job)
{
    job->soft = cache_find(job->towers, job->key);
    if (job->soft == NULL)
        return false;
    job->soft->n_users++;
    job->queued_all = true;
    return true;
}

static bool check_loaded(const struct tower_job *job, struct carat_error *err)
{
    return job->towers->loaded[job->kind] ||
           fail(err, CARAT_BAD_ARGUMENT, "the %s tower's weights are not loaded", job->kind == TOWER_VISION ? "vision" : "audio");
}

struct tower_job *towers_begin_image(
    struct towers *towers, const uint8_t *rgb, int32_t width, int32_t height, int32_t budget, struct carat_error *err)
{
    struct tower_job *job = job_new(towers, TOWER_VISION, err);
    if (job == NULL)
        return NULL;
    budget = budget != 0 ? budget : IMAGE_DEFAULT_TOKENS;
    struct image image = {.width = width, .height = height, .rgb = (uint8_t *)rgb}; // only read
    int32_t how[4] = {TOWER_VISION, width, height, budget};
    bool sane = width >= 1 && height >= 1 && width <= IMAGE_MAX_SIDE && height <= IMAGE_MAX_SIDE;
    if (!sane)
        fail(err, CARAT_BAD_ARGUMENT, "an image of %d x %d pixels: sides of 1 to %d are possible", (int)width, (int)height,
            IMAGE_MAX_SIDE);
    if (sane) {
        hash_bytes(job->key, how, sizeof how);
        hash_bytes(job->key, rgb, 3 * (size_t)width * (size_t)height);
        if (answer_from_cache(job))
            return job;
    }
    job->running = sane && check_loaded(job, err) &&
                   image_prepare(&image, budget, vision_image_rule(towers->vision), &job->prepared, err) &&
                   vision_start(towers->vision, towers->ops, &job->prepared, &job->vision, err);
    if (job->running)
        return job;
    towers_end(job);
    return NULL;
}

struct tower_job *towers_begin_audio(
    struct towers *towers, const float *samples, int64_t n_samples, int32_t piece, struct carat_error *err)
{
    struct tower_job *job = job_new(towers, TOWER_AUDIO, err);
    if (job == NULL)
        return NULL;
    int64_t first = towers->audio->encoder_free ? 0 : (int64_t)piece * SOUND_PIECE_SAMPLES;
    int64_t n = towers->audio->encoder_free ? n_samples : sound_piece_samples(n_samples, piece);
    hash_bytes(job->key, &(int32_t){TOWER_AUDIO}, sizeof(int32_t));
    if (n > 0)
        hash_bytes(job->key, samples + first, (size_t)n * sizeof(float));
    if (answer_from_cache(job))
        return job;
    job->running = check_loaded(job, err) && audio_start(towers->audio, towers->ops, samples + first, n, &job->audio, err);
    if (job->running)
        return job;
    towers_end(job);
    return NULL;
}

// Takes the oldest ticket off when it has arrived.
static enum ops_state collect(struct tower_job *job, struct carat_error *err)
{
    struct ops *ops = job->towers->ops->ops;
    enum ops_state state = ops->poll(ops, job->tickets[0], err);
    if (state == OPS_PENDING)
        return state;
    memmove(job->tickets, job->tickets + 1, (size_t)--job->n_tickets * sizeof job->tickets[0]);
    return state;
}

// Queues one step and a read-back that tells when it is done.
static bool queue_step(struct tower_job *job, struct carat_error *err)
{
    struct ops *ops = job->towers->ops->ops;
    job->queued_all = job->kind == TOWER_VISION ? vision_step(&job->vision) : audio_step(&job->audio);
    struct tensor soft = job->kind == TOWER_VISION ? job->vision.soft : job->audio.soft;
    int32_t ticket = ops->read_start(ops, soft.buffer, soft.offset, sizeof(uint32_t), &job->towers->probe, err);
    if (ticket < 0)
        return false;
    job->tickets[job->n_tickets++] = ticket;
    return true;
}

static void end_run(struct tower_job *job)
{
    if (!job->running)
        return;
    if (job->kind == TOWER_VISION)
        vision_end(&job->vision);
    else
        audio_end(&job->audio);
    job->running = false;
}

// Everything has arrived: the soft tokens become an entry of the cache.
static bool store_result(struct tower_job *job, struct carat_error *err)
{
    struct tensor *rows = job->kind == TOWER_VISION ? &job->vision.soft : &job->audio.soft;
    struct soft_tokens *soft = calloc(1, sizeof *soft);
    if (soft == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for soft tokens");
    *soft = (struct soft_tokens){.rows = *rows, .key = {job->key[0], job->key[1]}, .n_users = 1, .next = job->towers->cache};
    *rows = (struct tensor){0};
    job->towers->cache = job->soft = soft;
    end_run(job);
    return true;
}

enum ops_state towers_step(struct tower_job *job, int32_t *done, int32_t *total, struct carat_error *err)
{
    *done = job->kind == TOWER_VISION ? job->vision.step : job->audio.step;
    *total = job->kind == TOWER_VISION ? job->vision.n_steps : job->audio.n_steps;
    if (job->soft != NULL)
        return OPS_DONE;
    if (job->n_tickets > 0) {
        enum ops_state state = collect(job, err);
        if (state == OPS_FAILED)
            return state;
        if (state == OPS_PENDING && (job->queued_all || job->n_tickets == MAX_QUEUED))
            return state;
    }
    if (!job->queued_all && job->n_tickets < MAX_QUEUED)
        return queue_step(job, err) ? OPS_PENDING : OPS_FAILED;
    if (!job->queued_all || job->n_tickets > 0)
        return OPS_PENDING;
    return store_result(job, err) ? OPS_DONE : OPS_FAILED;
}

int32_t towers_ticket(const struct tower_job *job)
{
    bool waits = job->n_tickets > 0 && (job->queued_all || job->n_tickets == MAX_QUEUED);
    return waits ? job->tickets[0] : -1;
}

struct soft_tokens *towers_result(struct tower_job *job)
{
    if (job->soft != NULL)
        job->soft->n_users++;
    return job->soft;
}

void towers_end(struct tower_job *job)
{
    if (job == NULL)
        return;
    struct ops *ops = job->towers->ops->ops;
    while (job->n_tickets > 0 && ops->wait != NULL) {
        ops->wait(ops, job->tickets[0]);
        collect(job, NULL);
    }
    leave_tickets(job);
    end_run(job);
    tensor_free(ops, &job->vision.soft);
    tensor_free(ops, &job->audio.soft);
    image_free(&job->prepared);
    towers_drop(job->towers, job->soft);
    free(job);
}
