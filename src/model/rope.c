// rope.c: tables for rotary positions (Gemma 4 text model, RoPE).

#include "model/rope.h"

#include <math.h>

enum { FINE = 64 };

// Below this a pair turns by less than 2^-30 at any position that can occur.
static const double NO_ROTATION = 1e-17;

bool rope_init(struct rope *rope, struct arena *arena, int32_t head_dim, double base, const float *factors, int32_t n_rotating,
    struct carat_error *err)
{
    *rope = (struct rope){.n_pairs = head_dim / 2};
    rope->frequencies = arena_take_array(arena, (size_t)rope->n_pairs, sizeof(double));
    rope->fine = arena_take_array(arena, (size_t)rope->n_pairs * 2 * FINE, sizeof(double));
    if (rope->frequencies == NULL || rope->fine == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for the tables of rotary positions");
    for (int32_t i = 0; i < rope->n_pairs; i++) {
        double factor = factors != NULL ? factors[i] : i < n_rotating ? 1 : INFINITY;
        if (!(factor > 0))
            return fail(err, CARAT_BAD_FILE, "entry %d of tensor 'rope_freqs.weight' is %g, but it must be above 0", i, factor);
        rope->frequencies[i] = pow(base, -2.0 * i / head_dim) / factor;
        if (rope->frequencies[i] > NO_ROTATION)
            rope->n_rotating = i + 1;
    }
    for (int32_t b = 0; b < FINE; b++) {
        for (int32_t i = 0; i < rope->n_rotating; i++) {
            double *pair = rope->fine + 2 * ((int64_t)b * rope->n_rotating + i);
            pair[0] = cos(b * rope->frequencies[i]);
            pair[1] = sin(b * rope->frequencies[i]);
        }
    }
    return true;
}

void rope_fill(const struct rope *rope, int32_t first_position, int32_t n, float *out)
{
    int32_t n_pairs = rope->n_pairs;
    for (int32_t row = 0; row < n; row++) {
        for (int32_t i = rope->n_rotating; i < n_pairs; i++) {
            out[(int64_t)row * 2 * n_pairs + i] = 1;
            out[(int64_t)row * 2 * n_pairs + n_pairs + i] = 0;
        }
    }
    for (int32_t i = 0; i < rope->n_rotating; i++) {
        double c = 0, s = 0;
        for (int32_t row = 0; row < n; row++) {
            int32_t position = first_position + row, b = position % FINE;
            if (row == 0 || b == 0) {
                double angle = (double)(position - b) * rope->frequencies[i];
                c = cos(angle);
                s = sin(angle);
            }
            const double *fine = rope->fine + 2 * ((int64_t)b * rope->n_rotating + i);
            out[(int64_t)row * 2 * n_pairs + i] = (float)(c * fine[0] - s * fine[1]);
            out[(int64_t)row * 2 * n_pairs + n_pairs + i] = (float)(s * fine[0] + c * fine[1]);
        }
    }
}
