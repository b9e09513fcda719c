// ref_select.c: the largest logits of a row.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool ref_largest(struct ref *ref, const float *logits, int32_t n_logits, int32_t k, int32_t *ids, float *values)
{
    int32_t n = 0;
    for (int32_t v = 0; v < n_logits; v++) {
        if (!(logits[v] < INFINITY)) {
            memset(ids, 0, (size_t)k * sizeof *ids);
            return fail(&ref->host.failure, CARAT_BAD_NUMBER, "the logit of token %d is %g", v, (double)logits[v]);
        }
        // Insertion into the sorted list; an equal logit of a lower id stays in front.
        int32_t at = n;
        while (at > 0 && logits[v] > values[at - 1])
            at--;
        if (at == k)
            continue;
        int32_t n_moved = (n < k ? n : k - 1) - at;
        memmove(values + at + 1, values + at, (size_t)n_moved * sizeof *values);
        memmove(ids + at + 1, ids + at, (size_t)n_moved * sizeof *ids);
        values[at] = logits[v];
        ids[at] = v;
        n += n < k;
    }
    return true;
}

void ref_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id)
{
    float largest;
    ref_largest((struct ref *)ops, ref_row(ref_matrix(logits), row), logits.n_cols, 1, ref_ints(id), &largest);
}

void ref_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out)
{
    assert(k >= 1 && k <= 256 && k <= logits.n_cols && out.n_cols == 2 * k + 2);
    const float *values = ref_row(ref_matrix(logits), row);
    float *best = ref_row(ref_matrix(out), 0) + k;
    if (!ref_largest((struct ref *)ops, values, logits.n_cols, k, ref_ints(out), best))
        return;
    double total = 0;
    for (int32_t v = 0; v < logits.n_cols; v++)
        total += exp((double)values[v] - best[0]);
    best[k] = best[0];
    best[k + 1] = (float)log(total);
}
