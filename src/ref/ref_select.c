// ref_select.c: the largest logits of a row.

#include "ref/ref_internal.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void ref_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id)
{
    (void)ops;
    const float *values = ref_row(ref_matrix(logits), row);
    int32_t best = 0;
    for (int32_t v = 1; v < logits.n_cols; v++) {
        if (values[v] > values[best])
            best = v;
    }
    ref_ints(id)[0] = best;
}

void ref_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out)
{
    (void)ops;
    assert(k >= 1 && k <= 256 && k <= logits.n_cols && out.n_cols == 2 * k + 2);
    const float *values = ref_row(ref_matrix(logits), row);
    int32_t *ids = ref_ints(out);
    float *best = ref_row(ref_matrix(out), 0) + k;
    int32_t n = 0;
    for (int32_t v = 0; v < logits.n_cols; v++) {
        // Insertion into the sorted list; an equal logit of a lower id stays in front.
        int32_t at = n;
        while (at > 0 && values[v] > best[at - 1])
            at--;
        if (at == k)
            continue;
        int32_t n_moved = (n < k ? n : k - 1) - at;
        memmove(best + at + 1, best + at, (size_t)n_moved * sizeof *best);
        memmove(ids + at + 1, ids + at, (size_t)n_moved * sizeof *ids);
        best[at] = values[v];
        ids[at] = v;
        n += n < k;
    }
    double total = 0;
    for (int32_t v = 0; v < logits.n_cols; v++)
        total += exp((double)values[v] - best[0]);
    best[k] = best[0];
    best[k + 1] = (float)log(total);
}
