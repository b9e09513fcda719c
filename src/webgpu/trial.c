// trial.c: what is faster on this device? A product of one row with Q4_K, in integers and in f32.
//
// Integers win where the device has an instruction for them; where its driver makes one of several others, they can lose. A kind
// runs once, to be compiled, then 2, 16 and 128 times until that takes long enough for the clock; the kinds take two turns, and
// the better one of each counts.
//
// On a fast device it goes on to what folding matrices (layer_end.c) depends on: how long a dispatch takes that does next to
// nothing, and how fast memory is read by a product too large for any cache. Each is the difference of two numbers of runs, so
// that the wait for the result does not count. Nothing needs the answer: if that fails, nothing is folded.
//
// What was found out holds for backends that are made later.

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "webgpu/internal.h"

enum {
    TRIAL_IN = 2048,
    TRIAL_OUT = 2048,
    TINY_OUT = 64,
    LARGE_OUT = 200000, // 230 MB
    MOST_RUNS = 128,
    ROW_BYTES = TRIAL_IN / 256 * 144
};
static const double LONG_ENOUGH_MS = 8;
// A device that takes longer for the product gains nothing from fewer dispatches. It takes 7 us on an H200, to which come a share
// of the wait for the result and what recording takes, in Node up to 30 us together.
static const double FAST_MS = 0.06;
// The part of a dispatch's time that reading more may take.
static const double WORTH = 0.7;
// Floats must be that much faster, so that the choice seldom hangs on how busy the machine was.
static const double CLEARLY = 1.5;

enum { INTEGERS, FLOATS, N_KINDS, N_TURNS = 2 * N_KINDS };

// The runs that tell about dispatches and memory. The first of each weight compiles its kernel.
static const struct {
    bool is_large;
    uint32_t n_runs;
} more_runs[] = {{false, 1}, {false, 16}, {false, 528}, {true, 1}, {true, 4}, {true, 20}};
enum { TINY_FEW = 1, TINY_MANY = 2, LARGE_FEW = 4, LARGE_MANY = 5, N_MORE = 6 };

struct trial {
    struct weight weight, tiny, large; // tiny and large: for the runs after the turns
    struct buffer *x, *y;
    float result;
    int turn; // of the kind turn % N_KINDS
    int more; // of more_runs, after the turns
    uint32_t n_runs;
    int32_t ticket;
    double begun, ms[N_KINDS]; // of one run, the best; negative: not measured yet
    double more_ms[N_MORE];    // of all runs
};

static enum { UNKNOWN, SLOWER, FASTER } integers_are;
static double dispatch_ms, bytes_per_ms; // 0: not known, or of no interest

bool webgpu_prefers_floats(void)
{
    return integers_are == SLOWER;
}

bool webgpu_folding_pays(const struct webgpu *gpu, double n_bytes)
{
    if (gpu->options.folding != WEBGPU_FOLDS_WHERE_IT_PAYS || gpu->options.no_autotune)
        return gpu->options.folding == WEBGPU_FOLDS_ALWAYS;
    return n_bytes < WORTH * dispatch_ms * bytes_per_ms;
}

void webgpu_trial_close(struct webgpu *gpu)
{
    struct trial *trial = gpu->trial;
    if (trial == NULL)
        return;
    webgpu_weight_free(&gpu->ops, &trial->weight);
    webgpu_weight_free(&gpu->ops, &trial->tiny);
    webgpu_weight_free(&gpu->ops, &trial->large);
    gpu->ops.buffer_free(&gpu->ops, trial->x);
    gpu->ops.buffer_free(&gpu->ops, trial->y);
    free(trial);
    gpu->trial = NULL;
}

static bool run(struct webgpu *gpu, const struct weight *weight, uint32_t n_runs, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct trial *trial = gpu->trial;
    struct tensor x = {.buffer = trial->x, .n_rows = 1, .n_cols = TRIAL_IN},
                  y = {.buffer = trial->y, .n_rows = 1, .n_cols = weight->n_out};
    trial->n_runs = n_runs;
    trial->begun = clock_ms();
    for (uint32_t i = 0; i < n_runs; i++)
        ops->project(ops, x, &(struct linear){.weight = *weight}, y);
    webgpu_join_all(gpu);
    trial->ticket = ops->read_start(ops, trial->y, 0, sizeof trial->result, &trial->result, err);
    return trial->ticket >= 0;
}

static bool run_turn(struct webgpu *gpu, uint32_t n_runs, struct carat_error *err)
{
    gpu->multiplies_floats = gpu->trial->turn % N_KINDS == FLOATS;
    return run(gpu, &gpu->trial->weight, n_runs, err);
}

// A matrix of zeros.
static bool place(struct webgpu *gpu, struct weight *weight, int32_t n_out, struct carat_error *err)
{
    *weight = (struct weight){.name = "trial",
        .type = GGUF_TYPE_Q4_K,
        .n_in = TRIAL_IN,
        .n_out = n_out,
        .n_slices = 1,
        .row_bytes = ROW_BYTES,
        .n_bytes = (uint64_t)n_out * ROW_BYTES};
    return webgpu_weight_place(&gpu->ops, weight, NULL, false, err);
}

static bool start(struct webgpu *gpu, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct trial *trial = gpu->trial = calloc(1, sizeof *trial);
    if (trial == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory to try the GPU");
    static const float zeros[TRIAL_IN];
    trial->ms[INTEGERS] = trial->ms[FLOATS] = -1;
    trial->x = ops->buffer_new(ops, TRIAL_IN * 4, err);
    trial->y = trial->x != NULL ? ops->buffer_new(ops, LARGE_OUT * 4, err) : NULL;
    if (trial->y == NULL || !place(gpu, &trial->weight, TRIAL_OUT, err))
        return false;
    ops->write(ops, trial->x, 0, zeros, sizeof zeros);
    return run_turn(gpu, 1, err);
}

// Is it of use to know about dispatches and memory, and is there room for the large product in one piece?
static bool goes_on(const struct webgpu *gpu)
{
    const struct gpu_limits *limits = gpu_limits(gpu->gpu);
    uint64_t large = (uint64_t)LARGE_OUT * ROW_BYTES;
    return gpu->options.folding == WEBGPU_FOLDS_WHERE_IT_PAYS && integers_are == FASTER && gpu->trial->ms[INTEGERS] <= FAST_MS &&
           large <= limits->max_binding_bytes && large <= limits->max_buffer_bytes;
}

static bool run_more(struct webgpu *gpu)
{
    struct trial *trial = gpu->trial;
    bool is_large = more_runs[trial->more].is_large;
    struct weight *weight = is_large ? &trial->large : &trial->tiny;
    return (weight->name != NULL || place(gpu, weight, is_large ? LARGE_OUT : TINY_OUT, NULL)) &&
           run(gpu, weight, more_runs[trial->more].n_runs, NULL);
}

// Ends the trial, whatever failed in the runs about dispatches and memory.
static enum ops_state end_more(struct webgpu *gpu)
{
    const double *ms = gpu->trial->more_ms;
    double dispatch = (ms[TINY_MANY] - ms[TINY_FEW]) / (more_runs[TINY_MANY].n_runs - more_runs[TINY_FEW].n_runs);
    double large = (ms[LARGE_MANY] - ms[LARGE_FEW]) / (more_runs[LARGE_MANY].n_runs - more_runs[LARGE_FEW].n_runs);
    if (gpu->trial->more == N_MORE && dispatch > 0 && large > 0) {
        dispatch_ms = dispatch;
        bytes_per_ms = (double)gpu->trial->large.n_bytes / large;
    }
    webgpu_trial_close(gpu);
    gpu_take_error(gpu->gpu, NULL);
    gpu->error.code = CARAT_OK;
    return OPS_DONE;
}

static enum ops_state poll_more(struct webgpu *gpu, enum ops_state state, double ms)
{
    struct trial *trial = gpu->trial;
    if (state == OPS_FAILED)
        return end_more(gpu);
    trial->more_ms[trial->more++] = ms;
    return trial->more < N_MORE && run_more(gpu) ? OPS_PENDING : end_more(gpu);
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
    double ms = clock_ms() - trial->begun;
    if (state == OPS_PENDING)
        return state;
    if (trial->turn == N_TURNS)
        return poll_more(gpu, state, ms);
    if (state == OPS_DONE) {
        bool was_compiled = trial->n_runs > 1, ends = was_compiled && (ms >= LONG_ENOUGH_MS || trial->n_runs >= MOST_RUNS);
        uint32_t next = was_compiled ? trial->n_runs * 8 : 2;
        if (ends) {
            double *best = &trial->ms[trial->turn % N_KINDS], each = ms / trial->n_runs;
            *best = *best < 0 || each < *best ? each : *best;
            trial->turn++;
            next = trial->turn < N_KINDS ? 1 : 2; // compiled already
        }
        if (trial->turn < N_TURNS)
            return run_turn(gpu, next, err) ? OPS_PENDING : OPS_FAILED;
        integers_are = trial->ms[FLOATS] * CLEARLY < trial->ms[INTEGERS] ? SLOWER : FASTER;
        gpu->multiplies_floats = integers_are == SLOWER;
        if (goes_on(gpu))
            return run_more(gpu) ? OPS_PENDING : end_more(gpu);
    }
    webgpu_trial_close(gpu);
    return state;
}

int32_t webgpu_trial_ticket(const struct webgpu *gpu)
{
    return gpu->trial != NULL ? gpu->trial->ticket : -1;
}
