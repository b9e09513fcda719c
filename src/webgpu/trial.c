// trial.c: which of two kinds of products is faster on this device? A product of one row with Q4_K, in integers and in f32.
//
// Integers win where the device has an instruction for them; where its driver makes one of several others, they can lose. A kind
// runs once, to be compiled, then 2, 16 and 128 times until that takes long enough for the clock; the kinds take two turns, and
// the better one of each counts. What was found out holds for backends that are made later.

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "webgpu/internal.h"

enum { TRIAL_IN = 2048, TRIAL_OUT = 2048, MOST_RUNS = 128 };
static const double LONG_ENOUGH_MS = 8;
// Floats must be that much faster, so that the choice seldom hangs on how busy the machine was.
static const double CLEARLY = 1.5;

enum { INTEGERS, FLOATS, N_KINDS, N_TURNS = 2 * N_KINDS };

struct trial {
    struct weight weight;
    struct buffer *x, *y;
    float result;
    int turn; // of the kind turn % N_KINDS
    uint32_t n_runs;
    int32_t ticket;
    double begun, ms[N_KINDS]; // of one run, the best
};

static enum { UNKNOWN, SLOWER, FASTER } integers_are;

bool webgpu_prefers_floats(void)
{
    return integers_are == SLOWER;
}

void webgpu_trial_close(struct webgpu *gpu)
{
    struct trial *trial = gpu->trial;
    if (trial == NULL)
        return;
    webgpu_weight_free(&gpu->ops, &trial->weight);
    gpu->ops.buffer_free(&gpu->ops, trial->x);
    gpu->ops.buffer_free(&gpu->ops, trial->y);
    free(trial);
    gpu->trial = NULL;
}

static bool run(struct webgpu *gpu, uint32_t n_runs, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct trial *trial = gpu->trial;
    struct tensor x = {.buffer = trial->x, .n_rows = 1, .n_cols = TRIAL_IN},
                  y = {.buffer = trial->y, .n_rows = 1, .n_cols = TRIAL_OUT};
    gpu->multiplies_floats = trial->turn % N_KINDS == FLOATS;
    trial->n_runs = n_runs;
    trial->begun = clock_ms();
    for (uint32_t i = 0; i < n_runs; i++)
        ops->project(ops, x, &(struct linear){.weight = trial->weight}, y);
    webgpu_join_all(gpu);
    trial->ticket = ops->read_start(ops, trial->y, 0, sizeof trial->result, &trial->result, err);
    return trial->ticket >= 0;
}

static bool start(struct webgpu *gpu, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct trial *trial = gpu->trial = calloc(1, sizeof *trial);
    uint64_t row_bytes = TRIAL_IN / 256 * 144, n_bytes = row_bytes * TRIAL_OUT;
    void *zeros = calloc(1, n_bytes);
    bool started = trial != NULL && zeros != NULL;
    if (!started)
        fail(err, CARAT_NO_MEMORY, "no memory to try the GPU");
    if (started) {
        trial->weight = (struct weight){.name = "trial",
            .type = GGUF_TYPE_Q4_K,
            .n_in = TRIAL_IN,
            .n_out = TRIAL_OUT,
            .n_slices = 1,
            .row_bytes = row_bytes,
            .n_bytes = n_bytes};
        trial->x = ops->buffer_new(ops, TRIAL_IN * 4, err);
        trial->y = ops->buffer_new(ops, TRIAL_OUT * 4, err);
        started = trial->x != NULL && trial->y != NULL && webgpu_weight_place(ops, &trial->weight, NULL, false, err) &&
                  webgpu_weight_write(ops, &trial->weight, 0, zeros, n_bytes, err);
    }
    if (started) {
        ops->write(ops, trial->x, 0, zeros, TRIAL_IN * 4);
        started = run(gpu, 1, err);
    }
    free(zeros);
    return started;
}

enum ops_state webgpu_trial_poll(struct webgpu *gpu, struct carat_error *err)
{
    struct trial *trial = gpu->trial;
    bool is_wanted = !gpu->multiplies_floats && !gpu->options.no_autotune && gpu_limits(gpu->gpu)->has_integer_dot;
    if (trial == NULL && (integers_are != UNKNOWN || !is_wanted))
        return OPS_DONE;
    if (trial == NULL) {
        if (start(gpu, err))
            return OPS_PENDING;
        webgpu_trial_close(gpu);
        return OPS_FAILED;
    }
    enum ops_state state = gpu->ops.poll(&gpu->ops, trial->ticket, err);
    if (state == OPS_DONE) {
        double ms = clock_ms() - trial->begun;
        bool was_compiled = trial->n_runs > 1, ends = was_compiled && (ms >= LONG_ENOUGH_MS || trial->n_runs >= MOST_RUNS);
        uint32_t next = was_compiled ? trial->n_runs * 8 : 2;
        if (ends) {
            double *best = &trial->ms[trial->turn % N_KINDS], each = ms / trial->n_runs;
            *best = trial->turn < N_KINDS || each < *best ? each : *best;
            trial->turn++;
            next = trial->turn < N_KINDS ? 1 : 2; // compiled already
        }
        if (trial->turn < N_TURNS)
            return run(gpu, next, err) ? OPS_PENDING : OPS_FAILED;
        integers_are = trial->ms[FLOATS] * CLEARLY < trial->ms[INTEGERS] ? SLOWER : FASTER;
        gpu->multiplies_floats = integers_are == SLOWER;
    }
    if (state != OPS_PENDING)
        webgpu_trial_close(gpu);
    return state;
}

int32_t webgpu_trial_ticket(const struct webgpu *gpu)
{
    return gpu->trial != NULL ? gpu->trial->ticket : -1;
}
