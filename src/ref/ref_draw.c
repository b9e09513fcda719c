// ref_draw.c: drawing a token, step by step as the sampler's header lists them.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>

static const float forbidden = -1e38f; // and all below

static void add_biases(struct matrix logits, int32_t row, const struct draw *draw)
{
    float *values = ref_row(logits, row);
    const int32_t *ids = ref_ints(draw->bias_ids);
    const float *biases = ref_matrix(draw->bias_values).data;
    for (int32_t i = 0; i < draw->bias_ids.n_rows; i++) {
        if (values[ids[i]] > forbidden)
            values[ids[i]] += biases[i];
    }
}

static int32_t count_of(const int32_t *ids, int32_t n, int32_t id)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += ids[i] == id;
    return count;
}

static void penalise(struct matrix logits, int32_t row, const struct draw *draw)
{
    float *values = ref_row(logits, row);
    const int32_t *window = ref_ints(draw->window);
    for (int32_t i = 0; i < draw->n_window; i++) {
        float *value = &values[window[i]];
        if (count_of(window, i, window[i]) > 0 || *value <= forbidden)
            continue; // each token once
        *value = *value > 0 ? *value / draw->repetition_penalty : *value * draw->repetition_penalty;
        *value -= draw->presence_penalty;
        *value -= draw->frequency_penalty * (float)count_of(window, draw->n_window, window[i]);
    }
}

// From the n largest logits, descending, none of them forbidden.
static int32_t choose(const float *largest, const int32_t *ids, int32_t n, const struct draw *draw)
{
    double weights[DRAW_MAX_TOP_K];
    double total = 0, mass = 0;
    for (int32_t i = 0; i < n; i++) {
        weights[i] = exp(((double)largest[i] - largest[0]) / draw->temperature);
        total += weights[i];
    }
    int32_t n_kept = 0;
    while (n_kept < n) {
        bool enough = draw->top_p < 1 && mass >= draw->top_p * total;
        if (n_kept > 0 && (enough || weights[n_kept] < draw->min_p))
            break;
        mass += weights[n_kept++];
    }
    double place = draw->random * 0x1p-32 * mass;
    int32_t chosen = 0;
    while (chosen + 1 < n_kept && place >= weights[chosen])
        place -= weights[chosen++];
    return ids[chosen];
}

void ref_draw(struct ops *ops, struct tensor logits, int32_t row, const struct draw *draw, struct tensor id)
{
    struct ref *ref = (struct ref *)ops;
    struct matrix rows = ref_matrix(logits);
    bool greedy = draw->temperature <= 0;
    int32_t k = greedy ? 1 : draw->top_k < logits.n_cols ? draw->top_k : logits.n_cols;
    assert(k >= 1 && k <= DRAW_MAX_TOP_K);
    if (draw->bias_ids.buffer != NULL)
        add_biases(rows, row, draw);
    if (draw->window.buffer != NULL)
        penalise(rows, row, draw);
    float values[DRAW_MAX_TOP_K];
    int32_t ids[DRAW_MAX_TOP_K], chosen = 0;
    if (ref_largest(ref, ref_row(rows, row), logits.n_cols, k, ids, values)) {
        while (k > 0 && values[k - 1] <= forbidden)
            k--;
        if (k == 0)
            fail(&ref->host.failure, CARAT_BAD_NUMBER, "every token is forbidden, so none can be chosen");
        else
            chosen = greedy ? ids[0] : choose(values, ids, k, draw);
    }
    ref_ints(id)[0] = chosen;
    if (draw->window.buffer != NULL)
        ref_ints(draw->window)[draw->window_slot] = chosen;
}
