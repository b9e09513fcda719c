// sampler_select.h: the largest of many logits. For the sampler's own files only.

#ifndef CARAT_TEXT_SAMPLER_SELECT_H
#define CARAT_TEXT_SAMPLER_SELECT_H

#include "text/sampler.h"

enum { SELECT_BLOCK = 256 }; // logits that share one entry of the block maxima

static inline int32_t select_blocks(int32_t n)
{
    return (n + SELECT_BLOCK - 1) / SELECT_BLOCK;
}

// The largest logit of each block into maxima [select_blocks(n)]. False when a logit is NaN or +infinity.
bool select_maxima(const float *logits, int32_t n, float *maxima);

// The id of the first largest logit, -1 when all are -infinity.
int32_t select_largest(const float *logits, int32_t n, const float *maxima);

// The k largest logits above -infinity, sorted: larger first, of equal ones the lower id. buffer has room for min(2 k, n) and
// holds the result. Returns their number.
int32_t select_top(const float *logits, int32_t n, const float *maxima, int32_t k, struct sampler_candidate *buffer);

void select_sort(struct sampler_candidate *candidates, int32_t n);

#endif
