// quantize_k.c: K quants by least squares.
//
// Q4_K and Q5_K describe a sub-block of 32 values as scale * q - minimum with minimum >= 0, Q6_K one of 16 values as scale * q.
// Scales and minima are themselves small integers times a 16-bit number of the super-block. The search has two stages:
// 1. Each sub-block alone: for a range of trial scales the codes q follow by rounding, and for given codes the best real scale
// and
//    minimum follow from the normal equations. The trial with the least squared error wins.
// 2. The super-block: the winners are rounded to integers; then in turn the integers are tried one up and one down with the codes
//    rounded anew, and the 16-bit numbers are fitted to the codes, as long as the error falls.

#include "gguf/quantize_k.h"

#include <math.h>
#include <string.h>

#include "base/number.h"

enum { SUPER = 256, LANES = 8, ROUNDS = 2 };

static float round_to_half(float value)
{
    return f32_from_f16(f16_from_f32(fminf(fmaxf(value, -65504.0f), 65504.0f)));
}

static void store_half(uint8_t *bytes, float value)
{
    uint16_t half = f16_from_f32(value);
    bytes[0] = (uint8_t)half;
    bytes[1] = (uint8_t)(half >> 8);
}

static float sum_lanes(const float lanes[LANES])
{
    float sum = 0;
    for (int k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

static int round_and_clamp(float value, int least, int most)
{
    return value <= (float)least ? least : value >= (float)most ? most : (int)lrintf(value);
}

// --- Q4_K and Q5_K ---

enum { SUB = 32, N_SUBS = SUPER / SUB, MAX_CODE_6 = 63, AFFINE_TRIALS = 20 };

struct affine_sums {
    float q, qq, qx; // sums over the sub-block of q, q * q, q * x
};

// The sums for the codes that x gets with this inverse scale and offset.
static struct affine_sums sum_codes(const float *x, float inverse, float offset, float most)
{
    float q_lanes[LANES] = {0}, qq_lanes[LANES] = {0}, qx_lanes[LANES] = {0};
    for (int i = 0; i < SUB; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float scaled = (x[i + k] + offset) * inverse;
            scaled = scaled < 0 ? 0 : scaled;
            scaled = scaled > most ? most : scaled;
            float q = (float)(int)(scaled + 0.5f);
            q_lanes[k] += q;
            qq_lanes[k] += q * q;
            qx_lanes[k] += q * x[i + k];
        }
    }
    return (struct affine_sums){sum_lanes(q_lanes), sum_lanes(qq_lanes), sum_lanes(qx_lanes)};
}

// The best scale and minimum >= 0 for the codes behind the sums; returns the squared error less the constant sum of x * x.
static float solve_affine(const struct affine_sums *s, float sum_x, float *scale, float *minimum)
{
    float determinant = SUB * s->qq - s->q * s->q;
    *scale = 0;
    *minimum = 0;
    if (determinant > 0) {
        *scale = (SUB * s->qx - s->q * sum_x) / determinant;
        *minimum = (s->q * s->qx - s->qq * sum_x) / determinant;
    }
    if (*minimum < 0 || determinant <= 0) {
        *minimum = 0;
        *scale = s->qq > 0 ? s->qx / s->qq : 0;
    }
    if (*scale < 0)
        *scale = 0;
    return *scale * *scale * s->qq - 2 * *scale * s->qx + *minimum * (SUB * *minimum + 2 * sum_x - 2 * *scale * s->q);
}

// Stage 1 for one sub-block.
static void fit_affine(const float *x, int most, float *scale, float *minimum)
{
    float least = x[0], largest = x[0], sum_x = 0;
    for (int i = 0; i < SUB; i++) {
        least = x[i] < least ? x[i] : least;
        largest = x[i] > largest ? x[i] : largest;
        sum_x += x[i];
    }
    least = least > 0 ? 0 : least;
    *scale = 0;
    *minimum = -least;
    if (largest <= least)
        return;
    float best = INFINITY;
    for (int trial = 0; trial < AFFINE_TRIALS; trial++) {
        float inverse = ((float)most - 1.5f + 0.15f * (float)trial) / (largest - least), offset = -least;
        for (int again = 0; again < 2; again++) { // the second time with the scale that the first one found
            struct affine_sums sums = sum_codes(x, inverse, offset, (float)most);
            float s, m, error = solve_affine(&sums, sum_x, &s, &m);
            if (error < best)
                best = error, *scale = s, *minimum = m;
            if (!(s > 0))
                break;
            inverse = 1 / s;
            offset = m;
        }
    }
}

struct affine_block {
    const float *x; // [SUPER]
    int most;       // largest code
    float d, dmin;  // representable in 16 bits
    int scale[N_SUBS], minimum[N_SUBS];
};

// Squared error of one sub-block with these integers.
static float affine_error(const struct affine_block *b, int sub, int scale, int minimum)
{
    const float *x = b->x + sub * SUB;
    float s = b->d * (float)scale, m = b->dmin * (float)minimum, inverse = s > 0 ? 1 / s : 0, most = (float)b->most;
    float lanes[LANES] = {0};
    for (int i = 0; i < SUB; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float scaled = (x[i + k] + m) * inverse;
            scaled = scaled < 0 ? 0 : scaled;
            scaled = scaled > most ? most : scaled;
            float difference = x[i + k] - (s * (float)(int)(scaled + 0.5f) - m);
            lanes[k] += difference * difference;
        }
    }
    return sum_lanes(lanes);
}

// Tries the neighbours of each sub-block's integers; returns the error of the whole.
static float improve_affine(struct affine_block *b)
{
    float total = 0;
    for (int sub = 0; sub < N_SUBS; sub++) {
        int scale = b->scale[sub], minimum = b->minimum[sub];
        float best = affine_error(b, sub, scale, minimum);
        for (int s = scale - 1; s <= scale + 1; s++) {
            for (int m = minimum - 1; m <= minimum + 1; m++) {
                if (s < 0 || s > MAX_CODE_6 || m < 0 || m > MAX_CODE_6 || (s == scale && m == minimum))
                    continue;
                float error = affine_error(b, sub, s, m);
                if (error < best)
                    best = error, b->scale[sub] = s, b->minimum[sub] = m;
            }
        }
        total += best;
    }
    return total;
}

static int affine_code(const struct affine_block *b, int i)
{
    int sub = i / SUB;
    float s = b->d * (float)b->scale[sub], m = b->dmin * (float)b->minimum[sub];
    return s > 0 ? round_and_clamp((b->x[i] + m) / s, 0, b->most) : 0;
}

// Fits d and dmin to the codes by the normal equations of x = d * (scale q) - dmin * minimum.
static void refit_affine(struct affine_block *b)
{
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < SUPER; i++) {
        int sub = i / SUB;
        double a = (double)(b->scale[sub] * affine_code(b, i)), c = -(double)b->minimum[sub], x = b->x[i];
        aa += a * a, ab += a * c, bb += c * c, ax += a * x, bx += c * x;
    }
    double determinant = aa * bb - ab * ab;
    if (determinant > 1e-9 * aa * bb) {
        double d = (ax * bb - bx * ab) / determinant, dmin = (bx * aa - ax * ab) / determinant;
        if (d > 0 && dmin >= 0)
            b->d = round_to_half((float)d), b->dmin = round_to_half((float)dmin);
    } else if (aa > 0 && ax > 0) {
        b->d = round_to_half((float)(ax / aa));
    }
}

// Both stages for a super-block.
static void search_affine(struct affine_block *b)
{
    float scale[N_SUBS], minimum[N_SUBS], max_scale = 0, max_minimum = 0;
    for (int sub = 0; sub < N_SUBS; sub++) {
        fit_affine(b->x + sub * SUB, b->most, &scale[sub], &minimum[sub]);
        max_scale = fmaxf(max_scale, scale[sub]);
        max_minimum = fmaxf(max_minimum, minimum[sub]);
    }
    b->d = round_to_half(max_scale / MAX_CODE_6);
    b->dmin = round_to_half(max_minimum / MAX_CODE_6);
    for (int sub = 0; sub < N_SUBS; sub++) {
        b->scale[sub] = b->d > 0 ? round_and_clamp(scale[sub] / b->d, 0, MAX_CODE_6) : 0;
        b->minimum[sub] = b->dmin > 0 ? round_and_clamp(minimum[sub] / b->dmin, 0, MAX_CODE_6) : 0;
    }
    float error = improve_affine(b);
    for (int round = 0; round < ROUNDS; round++) {
        struct affine_block next = *b;
        refit_affine(&next);
        float next_error = improve_affine(&next);
        if (!(next_error < error))
            break;
        *b = next;
        error = next_error;
    }
}

// d, dmin and the twelve bytes of 6-bit scales and minima.
static void store_affine(const struct affine_block *b, uint8_t *block)
{
    store_half(block, b->d);
    store_half(block + 2, b->dmin);
    uint8_t *packed = block + 4;
    for (int j = 0; j < 4; j++) {
        packed[j] = (uint8_t)(b->scale[j] | (b->scale[j + 4] >> 4) << 6);
        packed[j + 4] = (uint8_t)(b->minimum[j] | (b->minimum[j + 4] >> 4) << 6);
        packed[j + 8] = (uint8_t)((b->scale[j + 4] & 15) | (b->minimum[j + 4] & 15) << 4);
    }
}

void gguf_quantize_q4_k(const float *values, uint8_t *block)
{
    struct affine_block b = {.x = values, .most = 15};
    search_affine(&b);
    store_affine(&b, block);
    for (int g = 0; g < 4; g++) {
        for (int l = 0; l < 32; l++)
            block[16 + 32 * g + l] = (uint8_t)(affine_code(&b, 64 * g + l) | affine_code(&b, 64 * g + 32 + l) << 4);
    }
}

void gguf_quantize_q5_k(const float *values, uint8_t *block)
{
    struct affine_block b = {.x = values, .most = 31};
    search_affine(&b);
    store_affine(&b, block);
    uint8_t *high = block + 16, *low = block + 48;
    memset(high, 0, 32);
    for (int g = 0; g < 4; g++) {
        for (int l = 0; l < 32; l++) {
            int even = affine_code(&b, 64 * g + l), odd = affine_code(&b, 64 * g + 32 + l);
            low[32 * g + l] = (uint8_t)((even & 15) | (odd & 15) << 4);
            high[l] |= (uint8_t)((even >> 4) << 2 * g | (odd >> 4) << (2 * g + 1));
        }
    }
}

// --- Q6_K ---

enum { SUB_6 = 16, N_SUBS_6 = SUPER / SUB_6, HALF_6 = 32, SYMMETRIC_TRIALS = 19 };

// The value of largest magnitude, with its sign. The magnitude is kept apart because clang 19 drops the inner fabsf of
// `fabsf(x) > fabsf(extreme) ? x : extreme` in the second round when extreme starts as 0.
static float largest_magnitude(const float *x, int n)
{
    float extreme = 0, magnitude = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > magnitude)
            extreme = x[i], magnitude = fabsf(x[i]);
    }
    return extreme;
}

// Stage 1: the scale of one sub-block.
static float fit_symmetric(const float *x)
{
    float extreme = largest_magnitude(x, SUB_6);
    if (extreme == 0)
        return 0;
    float best = 0, scale = 0;
    for (int trial = 0; trial < SYMMETRIC_TRIALS; trial++) {
        float inverse = -((float)HALF_6 - 2 + 0.2f * (float)trial) / extreme; // the extreme gets about -32
        float qq_lanes[LANES] = {0}, qx_lanes[LANES] = {0};
        for (int i = 0; i < SUB_6; i += LANES) {
            for (int k = 0; k < LANES; k++) {
                float scaled = x[i + k] * inverse + HALF_6;
                scaled = scaled < 0 ? 0 : scaled;
                scaled = scaled > 2 * HALF_6 - 1 ? 2 * HALF_6 - 1 : scaled;
                float q = (float)((int)(scaled + 0.5f) - HALF_6);
                qq_lanes[k] += q * q;
                qx_lanes[k] += q * x[i + k];
            }
        }
        float qq = sum_lanes(qq_lanes), qx = sum_lanes(qx_lanes);
        if (qq > 0 && qx * qx > best * qq) // the error falls by qx^2 / qq
            best = qx * qx / qq, scale = qx / qq;
    }
    return scale;
}

struct symmetric_block {
    const float *x; // [SUPER]
    float d;        // representable in 16 bits
    int scale[N_SUBS_6];
};

static float symmetric_error(const struct symmetric_block *b, int sub, int scale)
{
    const float *x = b->x + sub * SUB_6;
    float s = b->d * (float)scale, inverse = s != 0 ? 1 / s : 0;
    float lanes[LANES] = {0};
    for (int i = 0; i < SUB_6; i += LANES) {
        for (int k = 0; k < LANES; k++) {
            float scaled = x[i + k] * inverse + HALF_6;
            scaled = scaled < 0 ? 0 : scaled;
            scaled = scaled > 2 * HALF_6 - 1 ? 2 * HALF_6 - 1 : scaled;
            float difference = x[i + k] - s * (float)((int)(scaled + 0.5f) - HALF_6);
            lanes[k] += difference * difference;
        }
    }
    return sum_lanes(lanes);
}

static float improve_symmetric(struct symmetric_block *b)
{
    float total = 0;
    for (int sub = 0; sub < N_SUBS_6; sub++) {
        int scale = b->scale[sub];
        float best = symmetric_error(b, sub, scale);
        for (int s = scale - 1; s <= scale + 1; s += 2) {
            float error = s >= -128 && s <= 127 ? symmetric_error(b, sub, s) : INFINITY;
            if (error < best)
                best = error, b->scale[sub] = s;
        }
        total += best;
    }
    return total;
}

static int symmetric_code(const struct symmetric_block *b, int i)
{
    int sub = i / SUB_6;
    float s = b->d * (float)b->scale[sub];
    return s != 0 ? round_and_clamp(b->x[i] / s, -HALF_6, HALF_6 - 1) : 0;
}

static void refit_symmetric(struct symmetric_block *b)
{
    double aa = 0, ax = 0;
    for (int i = 0; i < SUPER; i++) {
        int sub = i / SUB_6;
        double a = (double)(b->scale[sub] * symmetric_code(b, i));
        aa += a * a, ax += a * b->x[i];
    }
    if (aa > 0 && ax != 0)
        b->d = round_to_half((float)(ax / aa));
}

static void search_symmetric(struct symmetric_block *b)
{
    float scale[N_SUBS_6];
    for (int sub = 0; sub < N_SUBS_6; sub++)
        scale[sub] = fit_symmetric(b->x + sub * SUB_6);
    b->d = round_to_half(largest_magnitude(scale, N_SUBS_6) / -128); // the extreme scale gets -128, which has no positive twin
    for (int sub = 0; sub < N_SUBS_6; sub++)
        b->scale[sub] = b->d != 0 ? round_and_clamp(scale[sub] / b->d, -128, 127) : 0;
    float error = improve_symmetric(b);
    for (int round = 0; round < ROUNDS; round++) {
        struct symmetric_block next = *b;
        refit_symmetric(&next);
        float next_error = improve_symmetric(&next);
        if (!(next_error < error))
            break;
        *b = next;
        error = next_error;
    }
}

void gguf_quantize_q6_k(const float *values, uint8_t *block)
{
    struct symmetric_block b = {.x = values};
    search_symmetric(&b);
    memset(block, 0, 192);
    for (int i = 0; i < SUPER; i++) { // i = 128 n + 32 j + l
        int n = i >> 7, j = i >> 5 & 3, l = i & 31, q = symmetric_code(&b, i) + HALF_6;
        block[64 * n + l + 32 * (j & 1)] |= (uint8_t)((q & 15) << 4 * (j >> 1));
        block[128 + 32 * n + l] |= (uint8_t)((q >> 4) << 2 * j);
    }
    for (int sub = 0; sub < N_SUBS_6; sub++)
        block[192 + sub] = (uint8_t)(int8_t)b.scale[sub];
    store_half(block + 208, b.d);
}
