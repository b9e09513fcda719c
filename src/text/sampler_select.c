// sampler_select.c: top-k in one pass over the logits and a little more.
//
// The maximum of each block of logits is taken first, in lanes that compilers turn into SIMD. A block whose maximum does not beat
// the k-th best so far holds nothing of interest, and after the first few blocks that is nearly all of them.

#include "text/sampler_select.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { LANES = 16 };

// Larger values first, of equal ones the lower id.
static int by_value(const void *a, const void *b)
{
    const struct sampler_candidate *x = a;
    const struct sampler_candidate *y = b;
    if (x->value != y->value)
        return x->value > y->value ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

void select_sort(struct sampler_candidate *candidates, int32_t n)
{
    qsort(candidates, (size_t)n, sizeof *candidates, by_value);
}

static float block_maximum(const float *logits, int32_t n, uint32_t *bad)
{
    float best[LANES];
    uint32_t wrong[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++)
        best[lane] = -INFINITY;
    int32_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            float x = logits[i + lane];
            wrong[lane] |= !(x <= FLT_MAX);
            best[lane] = x > best[lane] ? x : best[lane];
        }
    }
    for (; i < n; i++) {
        wrong[0] |= !(logits[i] <= FLT_MAX);
        best[0] = logits[i] > best[0] ? logits[i] : best[0];
    }
    for (int lane = 0; lane < LANES; lane++) {
        *bad |= wrong[lane];
        best[0] = best[lane] > best[0] ? best[lane] : best[0];
    }
    return best[0];
}

bool select_maxima(const float *logits, int32_t n, float *maxima)
{
    uint32_t bad = 0;
    for (int32_t start = 0; start < n; start += SELECT_BLOCK) {
        int32_t length = n - start < SELECT_BLOCK ? n - start : SELECT_BLOCK;
        maxima[start / SELECT_BLOCK] = block_maximum(logits + start, length, &bad);
    }
    return bad == 0;
}

int32_t select_largest(const float *logits, int32_t n, const float *maxima)
{
    int32_t best = 0;
    for (int32_t block = 1; block < select_blocks(n); block++)
        if (maxima[block] > maxima[best])
            best = block;
    if (n == 0 || maxima[best] == -INFINITY)
        return -1;
    int32_t id = best * SELECT_BLOCK;
    while (logits[id] != maxima[best])
        id++;
    return id;
}

int32_t select_top(const float *logits, int32_t n, const float *maxima, int32_t k, struct sampler_candidate *buffer)
{
    int32_t capacity = k < n - k ? 2 * k : n;
    int32_t n_found = 0;
    float threshold = -INFINITY; // the k-th best so far; later equals have higher ids and lose
    for (int32_t start = 0; start < n; start += SELECT_BLOCK) {
        if (!(maxima[start / SELECT_BLOCK] > threshold))
            continue;
        int32_t end = n - start < SELECT_BLOCK ? n : start + SELECT_BLOCK;
        for (int32_t id = start; id < end; id++) {
            if (!(logits[id] > threshold))
                continue;
            buffer[n_found++] = (struct sampler_candidate){id, logits[id]};
            if (n_found == capacity && capacity > k) {
                select_sort(buffer, n_found);
                n_found = k;
                threshold = buffer[k - 1].value;
            }
        }
    }
    select_sort(buffer, n_found);
    return n_found < k ? n_found : k;
}
