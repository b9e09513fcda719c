// product_relaxed.h: products in WebAssembly with relaxed SIMD.
//
// V8 has sixteen 16-byte registers on x86, makes constants anew wherever they are used, folds no load into an operation and turns
// i32x4.relaxed_dot_i8x16_i7x16_add into five instructions where the processor lacks AVX-VNNI (or V8 does not know that it has
// AVX-512 VNNI). So there are two ways to multiply:
//   PAIRS  i16x8.relaxed_dot_i8x16_i7x16, one instruction on x86. Its sums of two products stay in 16 bits as long as they fit:
//          eight of them with weights up to 15, four up to 31, two up to 63. Then one multiplication by ones makes 32 bits.
//   QUADS  i32x4.relaxed_dot_i8x16_i7x16_add, one instruction with AVX-VNNI and on ARM.
// cpu_detect.c finds out which one this machine wants.

#ifndef CARAT_CPU_PRODUCT_RELAXED_H
#define CARAT_CPU_PRODUCT_RELAXED_H

#include <wasm_simd128.h>

#include "cpu/body_product.h"
#include "cpu/relaxed_constants.h"

enum style { PAIRS, QUADS };

// What a compiler may not move loads across: that would take more registers than there are.
#define HOLD_MEMORY() __asm__ volatile("" ::: "memory")

// --- few columns ---------------------------------------------------------------------------------------------------------------

// 32 consecutive weights, or two times 16, times activations: four sums.
INLINE v128_t dot_32(enum style style, v128_t u0, v128_t u1, v128_t x0, v128_t x1, v128_t ones)
{
    if (style == QUADS)
        return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(
            x1, u1, wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x0, u0, wasm_i32x4_const_splat(0)));
    // At most 2 * 2 * 127 * 63 in 16 bits
    return wasm_i32x4_dot_i16x8(
        wasm_i16x8_add(wasm_i16x8_relaxed_dot_i8x16_i7x16(x0, u0), wasm_i16x8_relaxed_dot_i8x16_i7x16(x1, u1)), ones);
}

INLINE v128_t dot_16(enum style style, v128_t u, v128_t x, v128_t ones)
{
    if (style == QUADS)
        return wasm_i32x4_relaxed_dot_i8x16_i7x16_add(x, u, wasm_i32x4_const_splat(0));
    return wasm_i32x4_dot_i16x8(wasm_i16x8_relaxed_dot_i8x16_i7x16(x, u), ones);
}

INLINE vf add_scaled(vf sum, v128_t dots, const float *scale)
{
    return vf_fma((vf)wasm_f32x4_convert_i32x4(dots), (vf)wasm_v128_load32_splat(scale), sum);
}

// Four vectors of weights of a stretch of 256, number j = 0 .. 3; see chunk_place.
INLINE void chunk(struct layout layout, const uint8_t *block, const struct unpacked *w, int j, v128_t low, v128_t u[4])
{
    if (layout.type == GGUF_TYPE_Q4_K) {
        v128_t a = wasm_v128_load(block + 16 + 32 * j), b = wasm_v128_load(block + 32 + 32 * j);
        u[0] = wasm_v128_and(a, low);
        u[1] = wasm_v128_and(b, low);
        u[2] = wasm_v128_and(wasm_u16x8_shr(a, 4), low);
        u[3] = wasm_v128_and(wasm_u16x8_shr(b, 4), low);
    } else if (layout.type == GGUF_TYPE_Q6_K) {
        int n = j / 2, half = j % 2;
        v128_t a = wasm_v128_load(block + 64 * n + 16 * half), b = wasm_v128_load(block + 64 * n + 32 + 16 * half),
               top = wasm_v128_load(block + 128 + 32 * n + 16 * half);
        v128_t two = wasm_i16x8_shl(low, 2), fifth = wasm_v128_andnot(two, low); // 0x3c and 0x30
        u[0] = wasm_v128_or(wasm_v128_and(a, low), wasm_v128_and(wasm_i16x8_shl(top, 4), fifth));
        u[1] = wasm_v128_or(wasm_v128_and(b, low), wasm_v128_and(wasm_i16x8_shl(top, 2), fifth));
        u[2] = wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(a, 4), low), wasm_v128_and(top, fifth));
        u[3] = wasm_v128_or(wasm_v128_and(wasm_u16x8_shr(b, 4), low), wasm_v128_and(wasm_u16x8_shr(top, 2), fifth));
    } else {
        for (int i = 0; i < 4; i++)
            u[i] = wasm_v128_load(w->u + 64 * j + 16 * i);
    }
}

// Where vector i of chunk j lies in the stretch, in units of 16 weights.
INLINE int chunk_place(struct layout layout, int j, int i)
{
    return layout.type == GGUF_TYPE_Q6_K ? 8 * (j / 2) + 2 * i + j % 2 : 4 * j + i;
}

__attribute__((noinline)) static v128_t floats_of_any_halves(v128_t halves)
{
    return (v128_t)vf_from_halves((vu)halves);
}

struct half_parts {
    _Alignas(16) uint32_t magnitude[4], once[4], twice[4], sign[4];
};
static const struct half_parts half_parts = {.magnitude = {0x0fffe000, 0x0fffe000, 0x0fffe000, 0x0fffe000},
    .once = {0x38000000, 0x38000000, 0x38000000, 0x38000000},  // 112 in the exponent
    .twice = {0x38800000, 0x38800000, 0x38800000, 0x38800000}, // 113, which as a float is 2^-14
    .sign = {0x80000000, 0x80000000, 0x80000000, 0x80000000}};

// Halves as floats. Lanes hold a half each, extended with its sign; `two` the first two of them, in which infinities and NaN,
// which few files have, are noticed. Scales of K-quants are often so small that the half is denormal, and a processor takes over
// a hundred cycles for a denormal float; so none appears on the way: with y = the half's bits in a float's places and 113 added
// to the exponent, normal halves are y / 2, denormal ones y - 2^-14, and either is the smaller of the two.
INLINE v128_t floats_of_halves(v128_t halves, uint32_t two)
{
    if (__builtin_expect((((two & 0x7c007c00u) + 0x04000400u) & 0x80008000u) != 0, 0))
        return floats_of_any_halves(halves);
    v128_t bits = wasm_v128_and(wasm_i32x4_shl(halves, 13), memory_constant(half_parts.magnitude));
    v128_t half = wasm_i32x4_add(bits, memory_constant(half_parts.once)), twice = memory_constant(half_parts.twice);
    v128_t value = wasm_f32x4_pmin(half, wasm_f32x4_sub(wasm_i32x4_add(bits, twice), twice));
    return wasm_v128_or(value, wasm_v128_and(halves, memory_constant(half_parts.sign)));
}

INLINE void store_scaled_bytes(float *to, v128_t low_halves, v128_t high_halves, v128_t factor)
{
    wasm_v128_store(to, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(low_halves), factor));
    wasm_v128_store(to + 4, wasm_f32x4_mul(wasm_f32x4_convert_i32x4(high_halves), factor));
}

INLINE void scales_k4_relaxed(const uint8_t *b, struct unpacked *out)
{
    v128_t halves = wasm_i32x4_extend_low_i16x8(wasm_v128_load32_zero(b));
    v128_t factors = floats_of_halves(halves, load_u32(b));
    v128_t d = wasm_i32x4_shuffle(factors, factors, 0, 0, 0, 0), dmin = wasm_i32x4_shuffle(factors, factors, 1, 1, 1, 1);
    uint32_t low = load_u32(b + 4), middle = load_u32(b + 8), high = load_u32(b + 12);
    uint64_t scales = (uint64_t)((high & 0x0f0f0f0fu) | (low >> 2 & 0x30303030u)) << 32 | (low & 0x3f3f3f3fu);
    uint64_t minima = (uint64_t)((high >> 4 & 0x0f0f0f0fu) | (middle >> 2 & 0x30303030u)) << 32 | (middle & 0x3f3f3f3fu);
    v128_t s = wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)scales)),
           m = wasm_u16x8_extend_low_u8x16(wasm_i64x2_splat((int64_t)minima));
    store_scaled_bytes(out->s, wasm_u32x4_extend_low_u16x8(s), wasm_u32x4_extend_high_u16x8(s), d);
    store_scaled_bytes(out->m, wasm_u32x4_extend_low_u16x8(m), wasm_u32x4_extend_high_u16x8(m), dmin);
}

INLINE void scales_q6_k_relaxed(const uint8_t *b, struct unpacked *out)
{
    v128_t factor = floats_of_halves(wasm_i32x4_splat((int16_t)load_u16(b + 208)), load_u16(b + 208));
    v128_t bytes = wasm_v128_load(b + 192);
    v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
    store_scaled_bytes(out->s, wasm_i32x4_extend_low_i16x8(low), wasm_i32x4_extend_high_i16x8(low), factor);
    store_scaled_bytes(out->s + 8, wasm_i32x4_extend_low_i16x8(high), wasm_i32x4_extend_high_i16x8(high), factor);
}

// Scales and minima of a stretch of 256, and bytes unless chunk() takes them from the block.
INLINE void unpack_relaxed(struct layout layout, const uint8_t *block, struct unpacked *out)
{
    if (layout.type == GGUF_TYPE_Q4_K)
        scales_k4_relaxed(block, out);
    else if (layout.type == GGUF_TYPE_Q6_K)
        scales_q6_k_relaxed(block, out);
    else
        unpack(layout, block, 8, out);
}

// n_rows rows, r, r + apart, ..., times n_cols columns; n_rows and n_cols are constants, one of them 1.
INLINE void narrow_tile_relaxed(struct layout layout, const struct product *p, int32_t r, int32_t apart, int n_rows, int n_cols,
    enum style style, v128_t ones, v128_t low)
{
    const struct activations *x = p->x;
    const int32_t n_in = x->n_in, whole = n_in / 256 * 256;
    const size_t groups = (size_t)n_in / 32, first = (size_t)p->first_col * groups;
    const int8_t *q = x->q + (size_t)p->first_col * (size_t)n_in;
    const float *d = layout.by_16 ? x->d16 + 2 * first : x->d + first;
    const float *dsum = layout.by_16 ? x->dsum16 + 2 * first : x->dsum32 + first;
    const size_t stride = layout.by_16 ? 2 * groups : groups;
    const int n_scales = layout.by_16 ? 16 : 8;
    const uint8_t *rows = p->rows + (size_t)r * p->row_bytes;
    const size_t step_bytes = (size_t)apart * (size_t)p->row_bytes;
    struct narrow_sum sums[4];
    for (int i = 0; i < n_rows * n_cols; i++)
        sums[i] = narrow_sum_zero();
    for (int32_t k = 0; k < whole; k += 256, d += n_scales, dsum += n_scales) {
        const uint8_t *block = block_at(layout, rows, k);
        struct unpacked w[4];
        float scales[4][16];
        for (int row = 0; row < n_rows; row++) {
            unpack_relaxed(layout, block + (size_t)row * step_bytes, &w[row]);
            for (int c = 0; c < n_cols; c++) {
                for (int i = 0; i < n_scales; i += LANES) {
                    vf s = vf_load(w[row].s + i), *taken = &sums[row + c].taken;
                    vf_store(scales[row + c] + i, s * vf_load(d + (size_t)c * stride + i));
                    if (layout.has_min || layout.zero != 0)
                        *taken =
                            vf_fma(layout.has_min ? vf_load(w[row].m + i) : s, vf_load(dsum + (size_t)c * stride + i), *taken);
                }
            }
        }
#pragma clang loop unroll(disable)
        for (int j = 0; j < 4; j++) {
            for (int row = 0; row < n_rows; row++) {
                v128_t u[4];
                chunk(layout, block + (size_t)row * step_bytes, &w[row], j, low, u);
                for (int c = 0; c < n_cols; c++) {
                    const int8_t *at = q + (size_t)c * (size_t)n_in + (size_t)k;
                    vf sum = sums[row + c].products[0];
                    for (int i = 0; i < 4 && layout.by_16; i++) {
                        int place = chunk_place(layout, j, i);
                        sum =
                            add_scaled(sum, dot_16(style, u[i], wasm_v128_load(at + 16 * place), ones), scales[row + c] + place);
                    }
                    for (int i = 0; i < 4 && !layout.by_16; i += 2)
                        sum = add_scaled(sum,
                            dot_32(style, u[i], u[i + 1], wasm_v128_load(at + 64 * j + 16 * i),
                                wasm_v128_load(at + 64 * j + 16 * i + 16), ones),
                            scales[row + c] + 2 * j + i / 2);
                    sums[row + c].products[0] = sum;
                }
            }
        }
    }
    if (layout.block_elems < 256 && whole < n_in) {
        struct unpacked w;
        int n = groups_at(layout, whole, n_in);
        for (int row = 0; row < n_rows; row++) {
            unpack(layout, block_at(layout, rows + (size_t)row * step_bytes, whole), n, &w);
            for (int c = 0; c < n_cols; c++)
                add_stretch(layout, &w, n, x, (size_t)(p->first_col + c), (size_t)whole / 32, 1, &sums[row + c]);
        }
    }
    for (int row = 0; row < n_rows; row++) {
        for (int c = 0; c < n_cols; c++)
            p->out[(size_t)c * p->out_stride + (size_t)(r + row * apart)] = narrow_total(layout, &sums[row + c]);
    }
}

INLINE void narrow_relaxed(struct layout layout, const struct product *p, enum style style)
{
    const v128_t ones = register_constant(0x00010001), low = register_constant(0x0f0f0f0f);
    // Four rows share what they load of the activations. They lie far apart, on pages of their own: within one page the processor
    // follows one stream of addresses, and nothing here can ask for weights ahead.
    enum { TOGETHER = 4 };
    const bool together = layout.type == GGUF_TYPE_Q4_0 || layout.type == GGUF_TYPE_Q4_K || layout.type == GGUF_TYPE_Q5_K ||
                          layout.type == GGUF_TYPE_Q6_K; // others are slower to unpack, and each takes its place in the module
    struct product part = *p;
    while (part.n_cols > 0) {
        int n_cols = part.n_cols >= 4 ? 4 : part.n_cols >= 2 ? 2 : 1;
        int32_t r = 0;
        if (n_cols == 1 && together) {
            const int32_t apart = part.n_rows / TOGETHER;
            for (; r < apart; r++)
                narrow_tile_relaxed(layout, &part, r, apart, TOGETHER, 1, style, ones, low);
            r *= TOGETHER;
        }
        for (; r < part.n_rows; r++) {
            if (n_cols == 4)
                narrow_tile_relaxed(layout, &part, r, 1, 1, 4, style, ones, low);
            else if (n_cols == 2)
                narrow_tile_relaxed(layout, &part, r, 1, 1, 2, style, ones, low);
            else
                narrow_tile_relaxed(layout, &part, r, 1, 1, 1, style, ones, low);
        }
        part.first_col += n_cols;
        part.n_cols -= n_cols;
        part.out += (size_t)n_cols * part.out_stride;
    }
}

// --- many columns: as in body_product.h, with a panel of two vectors of rows ---------------------------------------------------

enum { ROWS = 8, COLS = 4 };

struct panel_relaxed {
    _Alignas(64) uint8_t u[PANEL_GROUPS][8][ROWS][4];
    _Alignas(64) float s[2 * PANEL_GROUPS][ROWS];
    _Alignas(64) float m[2 * PANEL_GROUPS][ROWS];
};

INLINE void pack_row_relaxed(
    struct layout layout, const uint8_t *row, int32_t first_k, int32_t n_k, int32_t n_in, int r, struct panel_relaxed *out)
{
    const int per_32 = layout.by_16 ? 2 : 1;
    for (int32_t k = 0; k < n_k; k += 256) {
        struct unpacked w;
        int n = groups_at(layout, first_k + k, n_in);
        unpack(layout, block_at(layout, row, first_k + k), n, &w);
        uint8_t *to = out->u[k / 32][0][r];
        const uint8_t *from = w.u;
        for (int i = 0; i < 8 * n; i++, to += 4 * ROWS, from += 4)
            memcpy(to, from, 4);
        for (int i = 0; i < n * per_32; i++) {
            out->s[k / 32 * per_32 + i][r] = w.s[i];
            if (layout.has_min)
                out->m[k / 32 * per_32 + i][r] = w.m[i];
        }
    }
}

// What a tile has to know of a type: the largest byte, too.
struct tile_kind {
    bool by_16, has_min, has_zero;
    int largest;
};

// acc[c][v] = four weights of each row times the same four activations of n_cols columns, summed over the pairs of n_steps steps.
INLINE void multiply_steps(
    enum style style, const uint8_t *u, const int8_t *const q[COLS], size_t at, int n_steps, int n_cols, v128_t acc[COLS][2])
{
    for (int i = 0; i < n_steps; i++) {
        v128_t w[2] = {wasm_v128_load(u + 32 * i), wasm_v128_load(u + 32 * i + 16)};
        for (int c = 0; c < n_cols; c++) {
            v128_t four = wasm_v128_load32_splat(q[c] + at + 4 * i);
            for (int v = 0; v < 2; v++) {
                if (style == QUADS) {
                    acc[c][v] =
                        wasm_i32x4_relaxed_dot_i8x16_i7x16_add(four, w[v], i == 0 ? wasm_i32x4_const_splat(0) : acc[c][v]);
                } else {
                    v128_t pairs = wasm_i16x8_relaxed_dot_i8x16_i7x16(four, w[v]);
                    acc[c][v] = i == 0 ? pairs : wasm_i16x8_add(acc[c][v], pairs);
                }
            }
        }
        HOLD_MEMORY();
    }
}

// The same with weights up to 63, whose sums fit 16 bits for two steps only: sums in 32 bits.
INLINE void multiply_pairs_of_steps(
    const uint8_t *u, const int8_t *const q[COLS], size_t at, int n_steps, int n_cols, v128_t ones, v128_t acc[COLS][2])
{
    for (int i = 0; i < n_steps; i += 2) {
        v128_t w[2][2] = {{wasm_v128_load(u + 32 * i), wasm_v128_load(u + 32 * i + 16)},
            {wasm_v128_load(u + 32 * i + 32), wasm_v128_load(u + 32 * i + 48)}};
        for (int c = 0; c < n_cols; c++) {
            v128_t first = wasm_v128_load32_splat(q[c] + at + 4 * i), second = wasm_v128_load32_splat(q[c] + at + 4 * i + 4);
            for (int v = 0; v < 2; v++) {
                v128_t four = wasm_i32x4_dot_i16x8(wasm_i16x8_add(wasm_i16x8_relaxed_dot_i8x16_i7x16(first, w[0][v]),
                                                       wasm_i16x8_relaxed_dot_i8x16_i7x16(second, w[1][v])),
                    ones);
                acc[c][v] = i == 0 ? four : wasm_i32x4_add(acc[c][v], four);
            }
        }
        HOLD_MEMORY();
    }
}

// Adds the panel's minima (or zero points) times the activations' sums.
INLINE void take_minima(struct tile_kind kind, const struct panel_relaxed *panel, const float *const dsum[COLS], int n_scales,
    int n_cols, float zero, float *sums)
{
    vf taken[COLS][2];
    for (int c = 0; c < n_cols; c++)
        taken[c][0] = taken[c][1] = vf_set1(0);
    for (int i = 0; i < n_scales; i++) {
        const float *m = kind.has_min ? panel->m[i] : panel->s[i];
        vf m0 = vf_load(m), m1 = vf_load(m + 4);
        for (int c = 0; c < n_cols; c++) {
            vf factor = (vf)wasm_v128_load32_splat(dsum[c] + i);
            taken[c][0] = vf_fma(m0, factor, taken[c][0]);
            taken[c][1] = vf_fma(m1, factor, taken[c][1]);
        }
    }
    for (int c = 0; c < n_cols; c++) {
        for (int v = 0; v < 2; v++) {
            float *sum = sums + c * ROWS + v * LANES;
            vf_store(sum, vf_load(sum) - taken[c][v] * vf_set1(kind.has_min ? 1 : zero));
        }
    }
}

INLINE void tile_relaxed(enum style style, struct tile_kind kind, const struct panel_relaxed *panel, const struct activations *x,
    size_t col, size_t first_group, int n_groups, int n_cols, float zero, v128_t ones, float *sums)
{
    const int8_t *q[COLS];
    const float *d[COLS], *dsum[COLS];
    for (int c = 0; c < n_cols; c++) {
        size_t at = (col + (size_t)c) * ((size_t)x->n_in / 32) + first_group;
        q[c] = x->q + at * 32;
        d[c] = x->d + at;
        dsum[c] = kind.by_16 ? x->dsum16 + 2 * at : x->dsum32 + at;
    }
    if (kind.has_min || kind.has_zero)
        take_minima(kind, panel, dsum, kind.by_16 ? 2 * n_groups : n_groups, n_cols, zero, sums);
    // Steps of four weights that share a scale, and those whose sums of pairs fit 16 bits.
    const int steps = kind.by_16 ? 4 : 8, fits = style == QUADS || kind.largest <= 15 ? 8 : kind.largest <= 31 ? 4 : steps;
    const int span = fits < steps ? fits : steps;
    const uint8_t *u = panel->u[0][0][0];
    const float *s = panel->s[0];
    for (int g = 0; g < n_groups; g++) {
        for (int i = 0; i < 8; i += span) {
            v128_t acc[COLS][2];
            if (style == PAIRS && kind.largest > 31)
                multiply_pairs_of_steps(u, q, (size_t)(32 * g + 4 * i), span, n_cols, ones, acc);
            else
                multiply_steps(style, u, q, (size_t)(32 * g + 4 * i), span, n_cols, acc);
            u += 32 * span;
            vf s0 = vf_load(s), s1 = vf_load(s + 4);
            if ((i + span) % steps == 0)
                s += ROWS;
            for (int c = 0; c < n_cols; c++) {
                vf factor = (vf)wasm_v128_load32_splat(d[c] + g);
                for (int v = 0; v < 2; v++) {
                    float *sum = sums + c * ROWS + v * LANES;
                    v128_t dots = style == PAIRS && kind.largest <= 31 ? wasm_i32x4_dot_i16x8(acc[c][v], ones) : acc[c][v];
                    vf_store(sum, vf_fma((vf)wasm_f32x4_convert_i32x4(dots), (v == 0 ? s0 : s1) * factor, vf_load(sum)));
                }
                HOLD_MEMORY();
            }
        }
    }
}

// n_cols columns (a constant <= COLS) times one panel.
INLINE void panel_times_tile_relaxed(enum style style, struct tile_kind kind, const struct product *p,
    const struct panel_relaxed *panel, const struct place *place, int32_t first_col, int n_cols, float zero, v128_t ones)
{
    _Alignas(16) float sums[COLS * ROWS];
    float *out = p->out + (size_t)first_col * p->out_stride + (size_t)place->first_row;
    for (int c = 0; c < n_cols; c++) {
        for (int r = 0; r < ROWS; r++)
            sums[c * ROWS + r] = place->first_k > 0 && r < place->n_rows ? out[(size_t)c * p->out_stride + (size_t)r] : 0;
    }
    tile_relaxed(style, kind, panel, p->x, (size_t)(p->first_col + first_col), (size_t)place->first_k / 32, place->n_groups,
        n_cols, zero, ones, sums);
    for (int c = 0; c < n_cols; c++) {
        for (int r = 0; r < place->n_rows; r++)
            out[(size_t)c * p->out_stride + (size_t)r] = sums[c * ROWS + r];
    }
}

typedef void panel_function_relaxed(
    const struct product *p, const struct panel_relaxed *panel, const struct place *place, float zero);

INLINE void panel_times_cols_relaxed(enum style style, struct tile_kind kind, const struct product *p,
    const struct panel_relaxed *panel, const struct place *place, float zero)
{
    const v128_t ones = register_constant(0x00010001);
    int32_t c = 0;
    for (; c + COLS <= p->n_cols; c += COLS)
        panel_times_tile_relaxed(style, kind, p, panel, place, c, COLS, zero, ones);
    for (; c < p->n_cols; c++)
        panel_times_tile_relaxed(style, kind, p, panel, place, c, 1, zero, ones);
}

// Each kind of tile is compiled once, not once per type.
#define DEFINE_PANEL(NAME, STYLE, BY_16, HAS_MIN, HAS_ZERO, LARGEST)                                                             \
    __attribute__((noinline)) static void NAME(                                                                                  \
        const struct product *p, const struct panel_relaxed *panel, const struct place *place, float zero)                       \
    {                                                                                                                            \
        panel_times_cols_relaxed(STYLE, (struct tile_kind){BY_16, HAS_MIN, HAS_ZERO, LARGEST}, p, panel, place, zero);           \
    }
#define DEFINE_PANELS(STYLE)                                                                                                     \
    DEFINE_PANEL(panel_32_##STYLE, STYLE, false, false, true, 31)                                                                \
    DEFINE_PANEL(panel_32_min_15_##STYLE, STYLE, false, true, false, 15)                                                         \
    DEFINE_PANEL(panel_32_min_31_##STYLE, STYLE, false, true, false, 31)                                                         \
    DEFINE_PANEL(panel_16_31_##STYLE, STYLE, true, false, true, 31)                                                              \
    DEFINE_PANEL(panel_16_63_##STYLE, STYLE, true, false, true, 63)                                                              \
    DEFINE_PANEL(panel_16_min_##STYLE, STYLE, true, true, false, 15)                                                             \
    INLINE panel_function_relaxed *panel_for_##STYLE(struct layout layout)                                                       \
    {                                                                                                                            \
        if (layout.by_16)                                                                                                        \
            return layout.has_min                  ? panel_16_min_##STYLE                                                        \
                   : layout.type == GGUF_TYPE_Q6_K ? panel_16_63_##STYLE                                                         \
                                                   : panel_16_31_##STYLE;                                                        \
        if (!layout.has_min)                                                                                                     \
            return panel_32_##STYLE;                                                                                             \
        return layout.type == GGUF_TYPE_Q5_1 || layout.type == GGUF_TYPE_Q5_K ? panel_32_min_31_##STYLE                          \
                                                                              : panel_32_min_15_##STYLE;                         \
    }
DEFINE_PANELS(PAIRS)
DEFINE_PANELS(QUADS)
#undef DEFINE_PANELS
#undef DEFINE_PANEL

INLINE void wide_relaxed(struct layout layout, const struct product *p, enum style style)
{
    struct panel_relaxed *panel = p->scratch;
    int32_t n_in = p->x->n_in;
    for (int32_t k = 0; k < n_in; k += CPU_PANEL_DEPTH) {
        int32_t n_k = n_in - k < CPU_PANEL_DEPTH ? n_in - k : CPU_PANEL_DEPTH;
        for (int32_t r = 0; r < p->n_rows; r += ROWS) {
            int32_t n_rows = p->n_rows - r < ROWS ? p->n_rows - r : ROWS;
            if (n_rows < ROWS) {
                memset(panel->s, 0, sizeof panel->s);
                memset(panel->m, 0, sizeof panel->m);
            }
            for (int32_t i = 0; i < n_rows; i++)
                pack_row_relaxed(layout, p->rows + (size_t)(r + i) * p->row_bytes, k, n_k, n_in, i, panel);
            struct place place = {.first_row = r, .n_rows = n_rows, .first_k = k, .n_groups = n_k / 32};
            (style == PAIRS ? panel_for_PAIRS(layout) : panel_for_QUADS(layout))(p, panel, &place, (float)layout.zero);
        }
    }
}

#define DEFINE_RELAXED(NAME, TYPE, LAYOUT)                                                                                       \
    static void narrow_pairs_##NAME(const struct product *p)                                                                     \
    {                                                                                                                            \
        if ((LAYOUT).is_signed)                                                                                                  \
            narrow(LAYOUT, p);                                                                                                   \
        else                                                                                                                     \
            narrow_relaxed(LAYOUT, p, PAIRS);                                                                                    \
    }                                                                                                                            \
    static void wide_pairs_##NAME(const struct product *p)                                                                       \
    {                                                                                                                            \
        if ((LAYOUT).is_signed)                                                                                                  \
            wide(LAYOUT, p);                                                                                                     \
        else                                                                                                                     \
            wide_relaxed(LAYOUT, p, PAIRS);                                                                                      \
    }                                                                                                                            \
    static void narrow_quads_##NAME(const struct product *p)                                                                     \
    {                                                                                                                            \
        if ((LAYOUT).is_signed)                                                                                                  \
            narrow(LAYOUT, p);                                                                                                   \
        else                                                                                                                     \
            narrow_relaxed(LAYOUT, p, QUADS);                                                                                    \
    }                                                                                                                            \
    static void wide_quads_##NAME(const struct product *p)                                                                       \
    {                                                                                                                            \
        if ((LAYOUT).is_signed)                                                                                                  \
            wide(LAYOUT, p);                                                                                                     \
        else                                                                                                                     \
            wide_relaxed(LAYOUT, p, QUADS);                                                                                      \
    }
FOR_EACH_QUANTISED_TYPE(DEFINE_RELAXED)
#undef DEFINE_RELAXED

#define NARROW_PAIRS_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = narrow_pairs_##NAME,
#define WIDE_PAIRS_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = wide_pairs_##NAME,
#define NARROW_QUADS_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = narrow_quads_##NAME,
#define WIDE_QUADS_ENTRY(NAME, TYPE, LAYOUT) [TYPE] = wide_quads_##NAME,

#endif
