// sampler.c: making a sampler, its history and its choice.

#include "text/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/sampler_internal.h"
#include "text/sampler_select.h"

struct sampler_params sampler_defaults(void)
{
    return (struct sampler_params){
        .temperature = 1.0f, .top_k = 64, .top_p = 0.95f, .repetition_penalty = 1.0f, .penalty_window = 64};
}

struct sampler_params sampler_original_defaults(void)
{
    return (struct sampler_params){
        .temperature = 0.7f, .top_k = 40, .top_p = 0.95f, .repetition_penalty = 1.0f, .penalty_window = 64, .raw_seed = true};
}

struct sampler_params sampler_greedy(void)
{
    return (struct sampler_params){.temperature = 0, .top_p = 1.0f, .repetition_penalty = 1.0f, .penalty_window = 64};
}

// --- parameters ---

bool sampler_check_params(const struct sampler_params *params, int32_t n_vocab, struct carat_error *err)
{
    const struct {
        const char *name;
        float value;
        float low;
        float high;
    } ranges[] = {
        {"temperature", params->temperature, -1000.0f, 1000.0f},
        {"top_p", params->top_p, 0.0f, 1000.0f},
        {"min_p", params->min_p, -1.0f, 1.0f},
        {"repetition_penalty", params->repetition_penalty, 1e-3f, 1000.0f},
        {"presence_penalty", params->presence_penalty, -1000.0f, 1000.0f},
        {"frequency_penalty", params->frequency_penalty, -1000.0f, 1000.0f},
        {"penalty_window", (float)params->penalty_window, 0.0f, (float)SAMPLER_MAX_WINDOW},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return fail(err, CARAT_BAD_ARGUMENT, "%s is %g, it must lie between %g and %g", ranges[i].name,
                (double)ranges[i].value, (double)ranges[i].low, (double)ranges[i].high);
    for (size_t i = 0; i < params->n_bias; i++) {
        const struct sampler_bias *bias = &params->bias[i];
        if (bias->id < 0 || bias->id >= n_vocab)
            return fail(
                err, CARAT_BAD_ARGUMENT, "logit_bias names the token %d, the vocabulary has %d", (int)bias->id, (int)n_vocab);
        if (!(bias->value < INFINITY))
            return fail(err, CARAT_BAD_ARGUMENT, "logit_bias of token %d must be a number", (int)bias->id);
    }
    return true;
}

const struct sampler_params *sampler_get(const struct sampler *s)
{
    return &s->params;
}

static bool is_greedy(const struct sampler *s)
{
    return s->params.temperature <= 0;
}

// Room that the selection needs: see select_top.
static int32_t candidates_room(const struct sampler *s, const struct sampler_params *params)
{
    int32_t k = params->top_k > SAMPLER_MAX_TOP ? params->top_k : SAMPLER_MAX_TOP;
    bool all = params->temperature > 0 && params->top_k <= 0;
    return all || k >= s->n_vocab - k ? s->n_vocab : 2 * k;
}

static bool out_of_memory(struct carat_error *err)
{
    fail(err, CARAT_NO_MEMORY, "not enough memory for the sampler");
    return false;
}

bool sampler_replace(
    struct sampler *s, const struct sampler_params *params, const int32_t *history, int32_t n_history, struct carat_error *err)
{
    if (!sampler_check_params(params, s->n_vocab, err))
        return false;
    int32_t room = candidates_room(s, params);
    size_t window = (size_t)params->penalty_window;
    struct sampler_bias *bias = malloc((params->n_bias + 1) * sizeof *bias);
    int32_t *ring = malloc((window + 1) * sizeof *ring);
    float *saved = malloc((window + 1) * sizeof *saved);
    struct sampler_candidate *candidates = malloc((size_t)room * sizeof *candidates);
    if (bias == NULL || ring == NULL || saved == NULL || candidates == NULL) {
        free(bias);
        free(ring);
        free(saved);
        free(candidates);
        return out_of_memory(err);
    }
    if (params->n_bias != 0)
        memcpy(bias, params->bias, params->n_bias * sizeof *bias);
    int32_t kept = n_history < params->penalty_window ? n_history : params->penalty_window;
    memset(s->counts, 0, (size_t)s->n_vocab * sizeof *s->counts);
    for (int32_t i = 0; i < kept; i++) {
        ring[i] = history[n_history - kept + i];
        s->counts[ring[i]]++;
    }
    free(s->bias);
    free(s->history);
    free(s->saved);
    free(s->candidates);
    s->params = *params;
    s->bias = bias;
    s->params.bias = bias;
    s->history = ring;
    s->saved = saved;
    s->n_history = kept;
    s->newest = window == 0 ? 0 : kept % params->penalty_window;
    s->candidates = candidates;
    s->n_candidates = room;
    return true;
}

// The first state of the RNG. A raw small seed would leave the first draws close to multiples of a quarter.
static uint64_t first_state(const struct sampler_params *params)
{
    uint64_t x = params->seed;
    if (x == 0)
        return SAMPLER_START_STATE;
    if (params->raw_seed)
        return x;
    x += 0x9e3779b97f4a7c15u; // the finaliser of SplitMix64
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return x != 0 ? x : SAMPLER_START_STATE;
}

struct sampler *sampler_new(
    int32_t n_vocab, const struct sampler_params *params, const int32_t *suppressed, size_t n_suppressed, struct carat_error *err)
{
    if (n_vocab < 1) {
        fail(err, CARAT_BAD_ARGUMENT, "a sampler needs at least one token, not %d", (int)n_vocab);
        return NULL;
    }
    struct sampler *s = calloc(1, sizeof *s);
    if (s == NULL) {
        out_of_memory(err);
        return NULL;
    }
    s->n_vocab = n_vocab;
    s->n_suppressed = n_suppressed;
    s->suppressed = malloc((n_suppressed + 1) * sizeof *s->suppressed);
    s->counts = calloc((size_t)n_vocab, sizeof *s->counts);
    s->maxima = malloc((size_t)select_blocks(n_vocab) * sizeof *s->maxima);
    bool ok = s->suppressed != NULL && s->counts != NULL && s->maxima != NULL;
    if (!ok)
        out_of_memory(err);
    for (size_t i = 0; ok && i < n_suppressed; i++) {
        s->suppressed[i] = suppressed[i];
        ok = (suppressed[i] >= 0 && suppressed[i] < n_vocab) ||
             fail(err, CARAT_BAD_ARGUMENT, "the suppressed token %d lies outside the vocabulary of %d", (int)suppressed[i],
                 (int)n_vocab);
    }
    if (!ok || !sampler_replace(s, params, NULL, 0, err)) {
        sampler_free(s);
        return NULL;
    }
    s->rng = first_state(params);
    return s;
}

void sampler_free(struct sampler *s)
{
    if (s == NULL)
        return;
    free(s->bias);
    free(s->suppressed);
    free(s->history);
    free(s->saved);
    free(s->counts);
    free(s->maxima);
    free(s->candidates);
    free(s);
}

bool sampler_set(struct sampler *s, const struct sampler_params *params, struct carat_error *err)
{
    int32_t n = s->n_history;
    int32_t *history = malloc(((size_t)n + 1) * sizeof *history);
    if (history == NULL)
        return out_of_memory(err);
    sampler_history(s, history);
    bool ok = sampler_replace(s, params, history, n, err);
    free(history);
    if (ok && params->seed != 0)
        s->rng = first_state(params);
    return ok;
}

void sampler_set_mask(struct sampler *s, sampler_mask *mask, void *context)
{
    s->mask = mask;
    s->mask_context = context;
}

// --- history ---

void sampler_reset(struct sampler *s)
{
    memset(s->counts, 0, (size_t)s->n_vocab * sizeof *s->counts);
    s->n_history = 0;
    s->newest = 0;
}

void sampler_accept(struct sampler *s, int32_t id)
{
    int32_t window = s->params.penalty_window;
    if (window == 0 || id < 0 || id >= s->n_vocab)
        return;
    if (s->n_history == window)
        s->counts[s->history[s->newest]]--;
    else
        s->n_history++;
    s->history[s->newest] = id;
    s->counts[id]++;
    s->newest = (s->newest + 1) % window;
}

int32_t sampler_history(const struct sampler *s, int32_t *ids)
{
    for (int32_t i = 0; i < s->n_history; i++)
        ids[i] = sampler_history_at(s, i);
    return s->n_history;
}

bool sampler_penalises(const struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    return p->penalty_window > 0 && (p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0);
}

static bool has_penalties(const struct sampler *s)
{
    return s->n_history > 0 && sampler_penalises(s);
}

static float penalised(const struct sampler *s, float logit, int32_t count)
{
    float repetition = s->params.repetition_penalty;
    logit = logit > 0 ? logit / repetition : logit * repetition;
    return logit - s->params.presence_penalty - s->params.frequency_penalty * (float)count;
}

// Where the id stands first in the history, or -1.
static int32_t first_place(const struct sampler *s, int32_t id)
{
    for (int32_t i = 0; s->counts[id] != 0 && i < s->n_history; i++)
        if (sampler_history_at(s, i) == id)
            return i;
    return -1;
}

// Each distinct token of the history once: a count that was used is negative until the end.
static void apply_penalties(struct sampler *s, float *logits)
{
    for (int32_t i = 0; i < s->n_history; i++) {
        int32_t id = sampler_history_at(s, i);
        if (s->counts[id] < 0)
            continue;
        s->saved[i] = logits[id];
        logits[id] = penalised(s, logits[id], s->counts[id]);
        s->counts[id] = -s->counts[id];
    }
    for (int32_t i = 0; i < s->n_history; i++) {
        int32_t id = sampler_history_at(s, i);
        s->counts[id] = abs(s->counts[id]);
    }
}

static void penalise_candidates(struct sampler *s, struct sampler_candidate *candidates, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t place = first_place(s, candidates[i].id);
        if (place < 0)
            continue;
        s->saved[place] = candidates[i].value;
        candidates[i].value = penalised(s, candidates[i].value, s->counts[candidates[i].id]);
    }
}

// The logit that the id had before penalties, given the one it has now.
static float unpenalised(const struct sampler *s, int32_t id, float logit)
{
    int32_t place = has_penalties(s) ? first_place(s, id) : -1;
    return place < 0 ? logit : s->saved[place];
}

// --- the choice ---

// Moves the RNG on by one draw.
static uint32_t next_random(uint64_t *rng)
{
    *rng ^= *rng << 13;
    *rng ^= *rng >> 7;
    *rng ^= *rng << 17;
    return (uint32_t)*rng;
}

uint32_t sampler_random(const struct sampler *s, int32_t n_ahead)
{
    uint64_t rng = s->rng;
    for (int32_t i = 0; i < n_ahead; i++)
        next_random(&rng);
    return next_random(&rng);
}

void sampler_skip(struct sampler *s)
{
    next_random(&s->rng);
}

// Uniform in [0, 1), 32 bits fine.
static double draw(struct sampler *s)
{
    return (double)next_random(&s->rng) / 4294967296.0;
}

// sum of exp((x - largest) / temperature); at 1 the argument of a log-sum-exp.
static double sum_exp(const float *logits, int32_t n, float largest, float temperature)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)expf((logits[i] - largest) / temperature);
    return sum;
}

// Draws from the sorted candidates, given the sum of the weights exp((value - first) / temperature) that top-p refers to.
// False when the candidates do not reach as far as top-p and min-p would allow; complete: there are no more.
static bool draw_sorted(
    struct sampler *s, const struct sampler_candidate *candidates, int32_t n, double total, bool complete, int32_t *id)
{
    float temperature = s->params.temperature;
    double mass = 0;
    int32_t kept = 0;
    bool cut = complete;
    for (; kept < n; kept++) {
        float weight = expf((candidates[kept].value - candidates[0].value) / temperature);
        bool too_small = s->params.min_p > 0 && weight < s->params.min_p;
        bool enough = s->params.top_p < 1 && mass >= (double)s->params.top_p * total;
        if (kept > 0 && (too_small || enough)) {
            cut = true;
            break;
        }
        mass += (double)weight;
    }
    if (!cut)
        return false;
    double target = draw(s) * mass;
    int32_t chosen = 0;
    for (; chosen + 1 < kept; chosen++) {
        target -= (double)expf((candidates[chosen].value - candidates[0].value) / temperature);
        if (target < 0)
            break;
    }
    *id = candidates[chosen].id;
    return true;
}

// From candidates that top-k has already cut.
static void choose_from_few(struct sampler *s, const struct sampler_candidate *candidates, int32_t n, int32_t *id)
{
    double total = 0;
    for (int32_t i = 0; i < n; i++)
        total += (double)expf((candidates[i].value - candidates[0].value) / s->params.temperature);
    draw_sorted(s, candidates, n, total, true, id);
}

// Without top-k: sorting everything is avoided by trying with the largest few first.
static void choose_from_all(struct sampler *s, const float *logits, int32_t *id)
{
    float largest = logits[select_largest(logits, s->n_vocab, s->maxima)];
    double total = sum_exp(logits, s->n_vocab, largest, s->params.temperature);
    bool no_cut = s->params.top_p >= 1 && s->params.min_p <= 0;
    for (int32_t k = no_cut || s->n_vocab < 256 ? s->n_vocab : 256;; k = k < s->n_vocab / 8 ? k * 8 : s->n_vocab) {
        int32_t n = select_top(logits, s->n_vocab, s->maxima, k, s->candidates);
        if (draw_sorted(s, s->candidates, n, total, k == s->n_vocab, id))
            return;
    }
}

static bool choose(struct sampler *s, const float *logits, int32_t *id, struct carat_error *err)
{
    int32_t n = s->n_vocab;
    if (!select_maxima(logits, n, s->maxima))
        return fail(err, CARAT_BAD_NUMBER, "the model's logits hold a NaN or an infinity");
    *id = select_largest(logits, n, s->maxima);
    if (*id < 0)
        return fail(err, CARAT_BAD_NUMBER, "every token is forbidden, so none can be chosen");
    if (is_greedy(s))
        return true;
    if (s->params.top_k <= 0)
        choose_from_all(s, logits, id);
    else
        choose_from_few(
            s, s->candidates, select_top(logits, n, s->maxima, s->params.top_k < n ? s->params.top_k : n, s->candidates), id);
    return true;
}

// --- reports ---

static void report_top(struct sampler_report *report, const struct sampler_candidate *sorted, int32_t n, double log_sum)
{
    if (report->n_top > n)
        report->n_top = n;
    for (int32_t i = 0; i < report->n_top; i++)
        report->top[i] = (struct sampler_candidate){sorted[i].id, (float)((double)sorted[i].value - log_sum)};
}

static int32_t wanted_top(const struct sampler_report *report)
{
    int32_t n = report->top == NULL || report->n_top < 0 ? 0 : report->n_top;
    return n < SAMPLER_MAX_TOP ? n : SAMPLER_MAX_TOP;
}

// Fills the report's top and gives the logarithm of the sum of exp.
static bool report_all(
    struct sampler *s, const float *logits, struct sampler_report *report, double *log_sum, struct carat_error *err)
{
    if (!select_maxima(logits, s->n_vocab, s->maxima))
        return fail(err, CARAT_BAD_NUMBER, "the model's logits hold a NaN or an infinity");
    int32_t best = select_largest(logits, s->n_vocab, s->maxima);
    if (best < 0)
        return fail(err, CARAT_BAD_NUMBER, "every token is forbidden, so none can be chosen");
    *log_sum = (double)logits[best] + log(sum_exp(logits, s->n_vocab, logits[best], 1.0f));
    report->n_top = wanted_top(report);
    if (report->n_top > 0)
        report_top(report, s->candidates, select_top(logits, s->n_vocab, s->maxima, report->n_top, s->candidates), *log_sum);
    return true;
}

// --- entry points ---

bool sampler_sample(struct sampler *s, float *logits, int32_t *id, struct sampler_report *report, struct carat_error *err)
{
    for (size_t i = 0; i < s->params.n_bias; i++)
        logits[s->bias[i].id] += s->bias[i].value;
    for (size_t i = 0; i < s->n_suppressed; i++)
        logits[s->suppressed[i]] = -INFINITY;
    if (s->mask != NULL && !s->mask(s->mask_context, logits, s->n_vocab, err))
        return false;
    double log_sum = 0;
    if (report != NULL && !report_all(s, logits, report, &log_sum, err))
        return false;
    if (has_penalties(s))
        apply_penalties(s, logits);
    if (!choose(s, logits, id, err))
        return false;
    if (report != NULL)
        report->logprob = (float)((double)unpenalised(s, *id, logits[*id]) - log_sum);
    return true;
}

// Applies bias and suppression; drops what is forbidden. Returns how many are left, -1 for a value that is no number.
static int32_t filter_candidates(const struct sampler *s, struct sampler_candidate *candidates, int32_t n)
{
    int32_t n_left = 0;
    for (int32_t i = 0; i < n; i++) {
        struct sampler_candidate c = candidates[i];
        if (c.id < 0 || c.id >= s->n_vocab || !(c.value < INFINITY))
            return -1;
        for (size_t b = 0; b < s->params.n_bias; b++)
            if (s->bias[b].id == c.id)
                c.value += s->bias[b].value;
        bool forbidden = c.value == -INFINITY;
        for (size_t j = 0; j < s->n_suppressed; j++)
            forbidden |= s->suppressed[j] == c.id;
        if (!forbidden)
            candidates[n_left++] = c;
    }
    return n_left;
}

static double candidates_log_sum(const struct sampler_candidate *sorted, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)(sorted[i].value - sorted[0].value));
    return (double)sorted[0].value + log(sum);
}

bool sampler_sample_candidates(struct sampler *s, struct sampler_candidate *candidates, int32_t n, float log_sum_exp, int32_t *id,
    struct sampler_report *report, struct carat_error *err)
{
    if (s->mask != NULL)
        return fail(err, CARAT_BAD_ARGUMENT, "a mask needs the logits of all tokens");
    n = filter_candidates(s, candidates, n);
    if (n <= 0)
        return fail(err, CARAT_BAD_NUMBER,
            n < 0 ? "the model's logits hold a NaN or an infinity" : "every token is forbidden, so none can be chosen");
    select_sort(candidates, n);
    double log_sum = 0;
    if (report != NULL) {
        log_sum = isnan(log_sum_exp) ? candidates_log_sum(candidates, n) : (double)log_sum_exp;
        report->n_top = wanted_top(report);
        report_top(report, candidates, n, log_sum);
    }
    if (has_penalties(s)) {
        penalise_candidates(s, candidates, n);
        select_sort(candidates, n);
    }
    int32_t kept = s->params.top_k > 0 && s->params.top_k < n ? s->params.top_k : n;
    *id = candidates[0].id;
    if (!is_greedy(s))
        choose_from_few(s, candidates, kept, id);
    if (report != NULL) {
        int32_t at = 0;
        while (candidates[at].id != *id)
            at++;
        report->logprob = (float)((double)unpenalised(s, *id, candidates[at].value) - log_sum);
    }
    return true;
}

int32_t sampler_candidates_needed(const struct sampler *s)
{
    const struct sampler_params *p = &s->params;
    bool raises = has_penalties(s) && (p->repetition_penalty < 1 || p->presence_penalty < 0 || p->frequency_penalty < 0);
    for (size_t i = 0; i < p->n_bias; i++)
        raises |= s->bias[i].value > 0;
    if (s->mask != NULL || raises || (!is_greedy(s) && p->top_k <= 0))
        return s->n_vocab;
    int64_t needed = is_greedy(s) ? 1 : p->top_k;
    needed += (int64_t)s->n_suppressed + (int64_t)p->n_bias + (has_penalties(s) ? s->n_history : 0);
    return needed < s->n_vocab ? (int32_t)needed : s->n_vocab;
}
