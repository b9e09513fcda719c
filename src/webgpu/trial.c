// trial.c: what is faster on this device? A product of one row with Q4_K, in integers and in f32.
//
// Integers win where the device has an instruction for them; where its driver makes one of several others, they can lose. A kind
// runs once, to be compiled, then 2, 16 and 128 times until that takes long enough for the clock; the kinds take two turns, and
// the better one of each counts. On a fast device a third kind follows, a product too large for any cache: it tells how fast
// memory is read, beside what a dispatch takes. What was found out holds for backends that are made later.

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "webgpu/internal.h"

enum { TRIAL_IN = 2048, TRIAL_OUT = 2048, LARGE_OUT = 200000, MOST_RUNS = 128, ROW_BYTES = TRIAL_IN / 256 * 144 };
static const double LONG_ENOUGH_MS = 8;
// A device that takes longer for the small product has nothing to gain from fewer dispatches.
static const double FAST_MS = 0.016;
// Floats must be that much faster, so that the choice seldom hangs on how busy the machine was.
static const double CLEARLY = 1.5;

enum { INTEGERS, FLOATS, N_KINDS, N_TURNS = 2 * N_KINDS, LARGE = N_KINDS };

struct trial {
    struct weight weight, large;
    struct buffer *x, *y;
    float result;
    int turn; // of the kind turn % N_KINDS, and at last of LARGE
    uint32_t n_runs;
    int32_t ticket;
    double begun, ms[N_KINDS + 1]; // of one run, the best
};

static enum { UNKNOWN, SLOWER, FASTER } integers_are;
static double dispatch_ms, bytes_per_ms; // bytes_per_ms 0: not known, or of no interest

bool webgpu_prefers_floats(void)
{
    return integers_are == SLOWER;
}

bool webgpu_folding_pays(const struct webgpu *gpu, uint64_t n_bytes)
{
    if (gpu->options.folding != WEBGPU_FOLDS_WHERE_IT_PAYS || gpu->options.no_autotune)
        return gpu->options.folding == WEBGPU_FOLDS_ALWAYS;
    return (double)n_bytes < dispatch_ms * bytes_per_ms / 2;
}

void webgpu_trial_close(struct webgpu *gpu)
{
    struct trial *trial = gpu->trial;
    if (trial == NULL)
        return;
    webgpu_weight_free(&gpu->ops, &trial->weight);
    webgpu_weight_free(&gpu->ops, &trial->large);
    gpu->ops.buffer_free(&gpu->ops, trial->x);
    gpu->ops.buffer_free(&gpu->ops, trial->y);
    free(trial);
    gpu->trial = NULL;
}

static int kind_of(int turn)
{
    return turn < N_TURNS ? turn % N_KINDS : LARGE;
}

static bool run(struct webgpu *gpu, uint32_t n_runs, struct carat_error *err)
{
    struct ops *ops = &gpu->ops;
    struct trial *trial = gpu->trial;
    int kind = kind_of(trial->turn);
    const struct weight *weight = kind == LARGE ? &trial->large : &trial->weight;
    struct tensor x = {.buffer = trial->x, .n_rows = 1, .n_cols = TRIAL_IN},
                  y = {.buffer = trial->y, .n_rows = 1, .n_cols = weight->n_out};
    gpu->multiplies_floats = kind == FLOATS;
    trial->n_runs = n_runs;
    trial->begun = clock_ms();
    for (uint32_t i = 0; i < n_runs; i++)
        ops->project(ops, x, &(struct linear){.weight = *weight}, y);
    webgpu_join_all(gpu);
    trial->ticket = ops->read_start(ops, trial->y, 0, sizeof trial->result, &trial->result, err);
    return trial->ticket >= 0;
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
    trial->x = ops->buffer_new(ops, TRIAL_IN * 4, err);
    trial->y = trial->x != NULL ? ops->buffer_new(ops, LARGE_OUT * 4, err) : NULL;
    if (trial->y == NULL || !place(gpu, &trial->weight, TRIAL_OUT, err))
        return false;
    ops->write(ops, trial->x, 0, zeros, sizeof zeros);
    return run(gpu, 1, err);
}

// Goes on to the large product, if what it tells is of use and there is room for it in one piece.
static bool starts_large(struct webgpu *gpu)
{
    struct trial *trial = gpu->trial;
    bool is_wanted = gpu->options.folding == WEBGPU_FOLDS_WHERE_IT_PAYS && integers_are == FASTER && dispatch_ms <= FAST_MS;
    return is_wanted && place(gpu, &trial->large, LARGE_OUT, NULL) &&
           ((const struct device_weight *)trial->large.device)->n_parts == 1 && run(gpu, 1, NULL);
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
            double *best = &trial->ms[kind_of(trial->turn)], each = ms / trial->n_runs;
            *best = *best == 0 || each < *best ? each : *best;
            trial->turn++;
            next = trial->turn < N_KINDS ? 1 : 2; // compiled already
        }
        if (trial->turn < N_TURNS || (trial->turn == N_TURNS && trial->large.name != NULL))
            return run(gpu, next, err) ? OPS_PENDING : OPS_FAILED;
        if (trial->turn == N_TURNS) {
            integers_are = trial->ms[FLOATS] * CLEARLY < trial->ms[INTEGERS] ? SLOWER : FASTER;
            gpu->multiplies_floats = integers_are == SLOWER;
            dispatch_ms = trial->ms[INTEGERS];
            if (starts_large(gpu))
                return OPS_PENDING;
        } else {
            bytes_per_ms = (double)trial->large.n_bytes / trial->ms[LARGE];
        }
    }
    if (state != OPS_PENDING)
        webgpu_trial_close(gpu);
    return state;
}

int32_t webgpu_trial_ticket(const struct webgpu *gpu)
{
    return gpu->trial != NULL ? gpu->trial->ticket : -1;
}
