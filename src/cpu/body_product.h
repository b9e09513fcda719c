// body_product.h: products of weights with activations: narrow (a few columns), wide (many columns) and f32.

#ifndef CARAT_CPU_BODY_PRODUCT_H
#define CARAT_CPU_BODY_PRODUCT_H

#include "cpu/body_unpack.h"

// --- narrow: each row is unpacked once and multiplied with n_cols (a constant) columns -----------------------------------------

enum { PREFETCH_BYTES = 2048 };

// What a column has gathered: lanes of products, in CHAINS chains of additions so that none waits for the one before, and lanes
// of what zero points and minima take away.
struct narrow_sum {
    vgf products[CHAINS];
    vf taken;
};

INLINE struct narrow_sum narrow_sum_zero(void)
{
    struct narrow_sum sum = {.taken = vf_set1(0)};
    for (int i = 0; i < CHAINS; i++)
        sum.products[i] = vgf_zero();
    return sum;
}

// Adds one unpacked stretch of n groups of 32 (a constant but at the end of a row) times column `col`, in n_chains chains.
INLINE void add_stretch(struct layout layout, const struct unpacked *w, int n, const struct activations *x, size_t col,
    size_t group, int n_chains, struct narrow_sum *sum)
{
    size_t at = col * ((size_t)x->n_in / 32) + group;
    const int8_t *q = x->q + at * 32;
    const float *d = layout.by_16 ? x->d16 + 2 * at : x->d + at, *dsum = layout.by_16 ? x->dsum16 + 2 * at : x->dsum32 + at;
    const float *offsets = layout.has_min ? w->m : w->s;
    const int n_scales = layout.by_16 ? 2 * n : n;
    float scales[16];
    for (int i = 0; i < n_scales; i += LANES) {
        int rest = n_scales - i < LANES ? n_scales - i : LANES;
        vf s = rest < LANES ? vf_load_part(w->s + i, rest) : vf_load(w->s + i);
        vf factor = rest < LANES ? vf_load_part(d + i, rest) : vf_load(d + i);
        vf_store(scales + i, s * factor); // 16 floats are room for whole vectors
        if (layout.has_min || layout.zero != 0)
            sum->taken = vf_fma(rest < LANES ? vf_load_part(offsets + i, rest) : vf_load(offsets + i),
                rest < LANES ? vf_load_part(dsum + i, rest) : vf_load(dsum + i), sum->taken);
    }
    for (int g = 0; g < n; g++) {
        b32 u;
        vgf *products = &sum->products[g % n_chains];
        memcpy(&u, w->u + 32 * g, sizeof u);
        if (layout.by_16)
            *products = vgf_add_dot16x2(*products, u, q + 32 * g, scales + 2 * g, layout.is_signed);
        else
            *products = vgf_add_dot32(*products, u, q + 32 * g, scales[g], layout.is_signed);
    }
}

INLINE float narrow_total(struct layout layout, const struct narrow_sum *sum)
{
    vgf products = sum->products[0];
    for (int i = 1; i < CHAINS; i++)
        products += sum->products[i];
    return vgf_sum(products) - vf_sum(sum->taken) * (layout.has_min ? 1 : (float)layout.zero);
}

INLINE void narrow_cols(struct layout layout, const struct product *p, int n_cols)
{
    const struct activations *x = p->x;
    const int32_t whole = x->n_in / 256 * 256;
    const int n_chains = n_cols == 1 ? CHAINS : 1; // several columns are chains enough
    struct unpacked w;
    for (int32_t r = 0; r < p->n_rows; r++) {
        const uint8_t *row = p->rows + (size_t)r * p->row_bytes;
        struct narrow_sum sums[CPU_NARROW_ROWS];
        for (int c = 0; c < n_cols; c++)
            sums[c] = narrow_sum_zero();
        for (int32_t k = 0; k < whole; k += 256) {
            const uint8_t *block = block_at(layout, row, k);
            for (int i = 0; i < 256 / layout.block_elems * layout.block_bytes; i += 64)
                __builtin_prefetch(block + PREFETCH_BYTES + i);
            unpack(layout, block, 8, &w);
            for (int c = 0; c < n_cols; c++)
                add_stretch(layout, &w, 8, x, (size_t)(p->first_col + c), (size_t)k / 32, n_chains, &sums[c]);
        }
        if (whole < x->n_in) {
            int n = groups_at(layout, whole, x->n_in);
            unpack(layout, block_at(layout, row, whole), n, &w);
            for (int c = 0; c < n_cols; c++)
                add_stretch(layout, &w, n, x, (size_t)(p->first_col + c), (size_t)whole / 32, 1, &sums[c]);
        }
        for (int c = 0; c < n_cols; c++)
            p->out[(size_t)c * p->out_stride + (size_t)r] = narrow_total(layout, &sums[c]);
    }
}

INLINE void narrow(struct layout layout, const struct product *p)
{
    struct product part = *p;
    while (part.n_cols > 0) {
        int n_cols = part.n_cols >= 4 ? 4 : part.n_cols >= 2 ? 2 : 1;
        if (n_cols == 4)
            narrow_cols(layout, &part, 4);
        else if (n_cols == 2)
            narrow_cols(layout, &part, 2);
        else
            narrow_cols(layout, &part, 1);
        part.first_col += n_cols;
        part.n_cols -= n_cols;
        part.out += (size_t)n_cols * part.out_stride;
    }
}

// --- wide: a panel of rows is unpacked once and multiplied with all columns ----------------------------------------------------

enum { PANEL_ROWS = TILE_VECTORS * LANES, PANEL_GROUPS = CPU_PANEL_DEPTH / 32 };

// Rows side by side, so that one vector holds four consecutive weights of LANES rows. Unused rows have scale 0.
struct panel {
    _Alignas(64) uint8_t u[PANEL_GROUPS][8][PANEL_ROWS][4];
    _Alignas(64) float s[2 * PANEL_GROUPS][PANEL_ROWS];
    _Alignas(64) float m[2 * PANEL_GROUPS][PANEL_ROWS];
};

// Where a panel lies in its weight.
struct place {
    int32_t first_row, n_rows, first_k;
    int n_groups; // of 32
};

INLINE void pack_row(
    struct layout layout, const uint8_t *row, int32_t first_k, int32_t n_k, int32_t n_in, int r, struct panel *out)
{
    struct unpacked w;
    const int per_32 = layout.by_16 ? 2 : 1;
    for (int32_t k = 0; k < n_k; k += 256) {
        int n = groups_at(layout, first_k + k, n_in);
        unpack(layout, block_at(layout, row, first_k + k), n, &w);
        for (int g = 0; g < n; g++) {
            for (int i = 0; i < 8; i++)
                memcpy(out->u[k / 32 + g][i][r], w.u + 32 * g + 4 * i, 4);
        }
        for (int i = 0; i < n * per_32; i++) {
            out->s[k / 32 * per_32 + i][r] = w.s[i];
            if (layout.has_min)
                out->m[k / 32 * per_32 + i][r] = w.m[i];
        }
    }
}

// Multiplies a panel of n_groups groups of 32 with n_cols columns (a constant <= TILE_COLS) from column `col` on.
INLINE void tile(struct layout layout, const struct panel *panel, const struct activations *x, size_t col, size_t first_group,
    int n_groups, int n_cols, bool add, float *out, size_t stride)
{
    vf sums[TILE_COLS][TILE_VECTORS];
    const int8_t *q[TILE_COLS];
    const float *d[TILE_COLS], *dsum[TILE_COLS];
    const int32_t *sum[TILE_COLS];
    const int per_32 = layout.by_16 ? 2 : 1;
    for (int c = 0; c < n_cols; c++) {
        size_t at = (col + (size_t)c) * ((size_t)x->n_in / 32) + first_group;
        q[c] = x->q + at * 32;
        d[c] = x->d + at;
        dsum[c] = layout.by_16 ? x->dsum16 + 2 * at : x->dsum32 + at;
        sum[c] = x->sum16 + 2 * at;
        for (int v = 0; v < TILE_VECTORS; v++)
            sums[c][v] = add ? vf_load(out + (size_t)c * stride + (size_t)(v * LANES)) : vf_set1(0);
    }
    for (int g = 0; g < n_groups; g++) {
        for (int h = 0; h < per_32; h++) {
            vacc acc[TILE_COLS][TILE_VECTORS];
            for (int c = 0; c < n_cols; c++) {
                int32_t q_sum = layout.by_16 ? sum[c][2 * g + h] : sum[c][2 * g] + sum[c][2 * g + 1];
                for (int v = 0; v < TILE_VECTORS; v++)
                    acc[c][v] = vacc_set(-layout.zero * q_sum, layout.is_signed);
            }
            for (int i = h * 4; i < (layout.by_16 ? h * 4 + 4 : 8); i++) {
                vb w[TILE_VECTORS];
                for (int v = 0; v < TILE_VECTORS; v++)
                    w[v] = vb_load(panel->u[g][i][v * LANES]);
                for (int c = 0; c < n_cols; c++) {
                    vb four = vb_splat4(q[c] + 32 * g + 4 * i);
                    for (int v = 0; v < TILE_VECTORS; v++)
                        acc[c][v] = vacc_dot(acc[c][v], w[v], four, layout.is_signed);
                }
            }
            for (int v = 0; v < TILE_VECTORS; v++) {
                vf s = vf_load(&panel->s[g * per_32 + h][v * LANES]);
                for (int c = 0; c < n_cols; c++)
                    sums[c][v] = vf_fma(vacc_to_vf(acc[c][v], layout.is_signed), s * vf_set1(d[c][g]), sums[c][v]);
                if (layout.has_min) {
                    vf m = -vf_load(&panel->m[g * per_32 + h][v * LANES]);
                    for (int c = 0; c < n_cols; c++)
                        sums[c][v] = vf_fma(m, vf_set1(dsum[c][g * per_32 + h]), sums[c][v]);
                }
            }
        }
    }
    for (int c = 0; c < n_cols; c++) {
        for (int v = 0; v < TILE_VECTORS; v++)
            vf_store(out + (size_t)c * stride + (size_t)(v * LANES), sums[c][v]);
    }
}

// n_cols columns (a constant <= TILE_COLS) times one panel. The last rows of a weight may fill only a part of it; they go through
// a buffer.
INLINE void panel_times_tile(struct layout layout, const struct product *p, const struct panel *panel, const struct place *place,
    int32_t first_col, int n_cols)
{
    float buffer[TILE_COLS * PANEL_ROWS];
    float *out = p->out + (size_t)first_col * p->out_stride + (size_t)place->first_row;
    size_t col = (size_t)(p->first_col + first_col), group = (size_t)place->first_k / 32;
    bool add = place->first_k > 0;
    if (place->n_rows == PANEL_ROWS) {
        tile(layout, panel, p->x, col, group, place->n_groups, n_cols, add, out, p->out_stride);
        return;
    }
    tile(layout, panel, p->x, col, group, place->n_groups, n_cols, false, buffer, PANEL_ROWS);
    for (int i = 0; i < n_cols; i++) {
        for (int32_t r = 0; r < place->n_rows; r++) {
            float *value = out + (size_t)i * p->out_stride + (size_t)r;
            *value = (add ? *value : 0) + buffer[i * PANEL_ROWS + r];
        }
    }
}

INLINE void panel_times_cols(struct layout layout, const struct product *p, const struct panel *panel, const struct place *place)
{
    int32_t c = 0;
    for (; c + TILE_COLS <= p->n_cols; c += TILE_COLS)
        panel_times_tile(layout, p, panel, place, c, TILE_COLS);
    for (; c + 2 <= p->n_cols; c += 2)
        panel_times_tile(layout, p, panel, place, c, 2);
    if (c < p->n_cols)
        panel_times_tile(layout, p, panel, place, c, 1);
}

// What a tile does depends on few properties of the type. Each combination is compiled once, not once per type.
typedef void panel_function(const struct product *p, const struct panel *panel, const struct place *place, int zero);

#define DEFINE_PANEL(NAME, BY_16, HAS_MIN, IS_SIGNED)                                                                            \
    __attribute__((noinline, unused)) static void NAME(                                                                          \
        const struct product *p, const struct panel *panel, const struct place *place, int zero)                                 \
    {                                                                                                                            \
        panel_times_cols(                                                                                                        \
            (struct layout){.by_16 = BY_16, .has_min = HAS_MIN, .is_signed = IS_SIGNED, .zero = zero}, p, panel, place);         \
    }
DEFINE_PANEL(panel_32, false, false, false)
DEFINE_PANEL(panel_32_min, false, true, false)
DEFINE_PANEL(panel_16, true, false, false)
DEFINE_PANEL(panel_16_min, true, true, false)
DEFINE_PANEL(panel_signed, false, false, true)
#undef DEFINE_PANEL

INLINE panel_function *panel_for(struct layout layout)
{
    if (layout.is_signed && SIGNED_BIAS == 0)
        return panel_signed;
    if (layout.by_16)
        return layout.has_min ? panel_16_min : panel_16;
    return layout.has_min ? panel_32_min : panel_32;
}

INLINE void wide(struct layout layout, const struct product *p)
{
    struct panel *panel = p->scratch;
    int32_t n_in = p->x->n_in;
    for (int32_t k = 0; k < n_in; k += CPU_PANEL_DEPTH) {
        int32_t n_k = n_in - k < CPU_PANEL_DEPTH ? n_in - k : CPU_PANEL_DEPTH;
        for (int32_t r = 0; r < p->n_rows; r += PANEL_ROWS) {
            int32_t n_rows = p->n_rows - r < PANEL_ROWS ? p->n_rows - r : PANEL_ROWS;
            if (n_rows < PANEL_ROWS) {
                memset(panel->s, 0, sizeof panel->s);
                memset(panel->m, 0, sizeof panel->m);
            }
            for (int32_t i = 0; i < n_rows; i++)
                pack_row(layout, p->rows + (size_t)(r + i) * p->row_bytes, k, n_k, n_in, i, panel);
            struct place place = {.first_row = r, .n_rows = n_rows, .first_k = k, .n_groups = n_k / 32};
            panel_for(layout)(p, panel, &place, layout.zero);
        }
    }
}

#define DEFINE_PRODUCTS(NAME, TYPE, LAYOUT)                                                                                      \
    __attribute__((unused)) static void narrow_##NAME(const struct product *p)                                                   \
    {                                                                                                                            \
        narrow(LAYOUT, p);                                                                                                       \
    }                                                                                                                            \
    __attribute__((unused)) static void wide_##NAME(const struct product *p)                                                     \
    {                                                                                                                            \
        wide(LAYOUT, p);                                                                                                         \
    }
FOR_EACH_QUANTISED_TYPE(DEFINE_PRODUCTS)
#undef DEFINE_PRODUCTS

// --- f32 ----------------------------------------------------------------------------------------------------------------------

INLINE void dequantize_as(struct layout layout, const uint8_t *row, int32_t n, float *out)
{
    struct unpacked w;
    for (int32_t k = 0; k < n; k += 256) {
        int n_groups = groups_at(layout, k, n);
        unpack(layout, block_at(layout, row, k), n_groups, &w);
        for (int i = 0; i < n_groups * 32; i += LANES) {
            int scale = i / (layout.by_16 ? 16 : 32);
            vf value = (vf_load_u8(w.u + i) - vf_set1((float)layout.zero)) * vf_set1(w.s[scale]);
            if (layout.has_min)
                value = value - vf_set1(w.m[scale]);
            vf_store(out + k + i, value);
        }
    }
}

// The signed types without a bias need signed loads.
INLINE void dequantize_signed(struct layout layout, const uint8_t *row, int32_t n, float *out)
{
    struct unpacked w;
    for (int32_t k = 0; k < n; k += 256) {
        int n_groups = groups_at(layout, k, n);
        unpack(layout, block_at(layout, row, k), n_groups, &w);
        for (int g = 0; g < n_groups; g++) {
            b32 u;
            memcpy(&u, w.u + 32 * g, sizeof u);
            u ^= (uint8_t)(SIGNED_BIAS ^ 128); // signed plus 128
            memcpy(w.u + 32 * g, &u, sizeof u);
            for (int i = 32 * g; i < 32 * g + 32; i += LANES)
                vf_store(out + k + i, (vf_load_u8(w.u + i) - vf_set1(128)) * vf_set1(w.s[g]));
        }
    }
}

static void dequantize(enum gguf_type type, const void *row, int32_t n, float *out)
{
    int32_t i = 0;
    for (int32_t end = (n + 15) / 16 * 16, j = n; j < end; j++)
        out[j] = 0;
    switch (type) {
    case GGUF_TYPE_F32:
        memcpy(out, row, (size_t)n * sizeof *out);
        return;
    case GGUF_TYPE_F16:
        for (; i + LANES <= n; i += LANES)
            vf_store(out + i, vf_load_f16((const uint16_t *)row + i));
        for (; i < n; i++)
            out[i] = f32_from_f16(load_u16((const uint8_t *)row + 2 * i));
        return;
    case GGUF_TYPE_BF16:
        for (; i + LANES <= n; i += LANES)
            vf_store(out + i, vf_load_bf16((const uint16_t *)row + i));
        for (; i < n; i++)
            out[i] = f32_from_bf16(load_u16((const uint8_t *)row + 2 * i));
        return;
#define DEQUANTIZE_CASE(NAME, TYPE, LAYOUT)                                                                                      \
    case TYPE:                                                                                                                   \
        if ((LAYOUT).is_signed)                                                                                                  \
            dequantize_signed(LAYOUT, row, n, out);                                                                              \
        else                                                                                                                     \
            dequantize_as(LAYOUT, row, n, out);                                                                                  \
        return;
        FOR_EACH_QUANTISED_TYPE(DEQUANTIZE_CASE)
#undef DEQUANTIZE_CASE
    default:
        return; // weight_place let no other type in
    }
}

// Elements k .. k + LANES - 1 of a row of F32, F16 or BF16, zeros beyond its n elements.
INLINE vf load_weights(enum gguf_type type, const uint8_t *row, int32_t k, int32_t n)
{
    if (n - k >= LANES) {
        if (type == GGUF_TYPE_F32)
            return vf_load((const float *)(const void *)row + k);
        return type == GGUF_TYPE_F16 ? vf_load_f16((const uint16_t *)(const void *)row + k)
                                     : vf_load_bf16((const uint16_t *)(const void *)row + k);
    }
    float part[LANES] = {0};
    for (int32_t i = 0; i < n - k; i++) {
        if (type == GGUF_TYPE_F32)
            memcpy(&part[i], row + 4 * (k + i), 4);
        else
            part[i] =
                type == GGUF_TYPE_F16 ? f32_from_f16(load_u16(row + 2 * (k + i))) : f32_from_bf16(load_u16(row + 2 * (k + i)));
    }
    return vf_load(part);
}

// n_rows (<= CPU_F32_ROWS) rows of F32, F16 or BF16 times n_cols (<= 4) columns; both constants. Each sum is formed in the same
// order whatever the two are.
INLINE void f32_tile(enum gguf_type type, const uint8_t *w, size_t row_bytes, const float *x, size_t x_stride, int32_t n,
    int n_rows, int n_cols, float *out, size_t out_stride)
{
    vf sums[4][CPU_F32_ROWS];
    for (int c = 0; c < n_cols; c++) {
        for (int r = 0; r < n_rows; r++)
            sums[c][r] = vf_set1(0);
    }
    for (int32_t k = 0; k < n; k += LANES) {
        vf rows[CPU_F32_ROWS];
        for (int r = 0; r < n_rows; r++)
            rows[r] = load_weights(type, w + (size_t)r * row_bytes, k, n);
        for (int c = 0; c < n_cols; c++) {
            vf column = vf_load(x + (size_t)c * x_stride + k);
            for (int r = 0; r < n_rows; r++)
                sums[c][r] = vf_fma(rows[r], column, sums[c][r]);
        }
    }
    for (int c = 0; c < n_cols; c++) {
        for (int r = 0; r < n_rows; r++)
            out[(size_t)c * out_stride + (size_t)r] = vf_sum(sums[c][r]);
    }
}

// Up to CPU_F32_ROWS rows times all columns.
INLINE void f32_rows(
    enum gguf_type type, const uint8_t *rows, size_t row_bytes, int32_t n, int32_t n_rows, const struct product *p, float *out)
{
    size_t stride = (size_t)p->x->f32_stride;
    int32_t step;
    for (int32_t c = 0; c < p->n_cols; c += step, out += (size_t)step * p->out_stride) {
        const float *cols = p->x->f32 + (size_t)(p->first_col + c) * stride;
        step = p->n_cols - c >= 4 ? 4 : 1;
        if (n_rows == CPU_F32_ROWS && step == 4)
            f32_tile(type, rows, row_bytes, cols, stride, n, CPU_F32_ROWS, 4, out, p->out_stride);
        else if (n_rows == CPU_F32_ROWS)
            f32_tile(type, rows, row_bytes, cols, stride, n, CPU_F32_ROWS, 1, out, p->out_stride);
        else
            for (int32_t i = 0; i < n_rows * step; i++)
                f32_tile(type, rows + (size_t)(i % n_rows) * row_bytes, row_bytes, cols + (size_t)(i / n_rows) * stride, stride,
                    n, 1, 1, out + (size_t)(i / n_rows) * p->out_stride + (size_t)(i % n_rows), 1);
    }
}

static void product_f32(const struct product *p)
{
    size_t stride = (size_t)p->x->f32_stride;
    int32_t n = p->x->n_in;
    bool direct = p->n_cols <= CPU_NARROW_ROWS; // otherwise rows are expanded once for all columns
    float *expanded = p->scratch;
    for (int32_t r = 0; r < p->n_rows; r += CPU_F32_ROWS) {
        int32_t n_rows = p->n_rows - r < CPU_F32_ROWS ? p->n_rows - r : CPU_F32_ROWS;
        const uint8_t *rows = p->rows + (size_t)r * p->row_bytes;
        if (p->type == GGUF_TYPE_F32) {
            f32_rows(GGUF_TYPE_F32, rows, p->row_bytes, n, n_rows, p, p->out + r);
        } else if (direct && p->type == GGUF_TYPE_F16) {
            f32_rows(GGUF_TYPE_F16, rows, p->row_bytes, n, n_rows, p, p->out + r);
        } else if (direct && p->type == GGUF_TYPE_BF16) {
            f32_rows(GGUF_TYPE_BF16, rows, p->row_bytes, n, n_rows, p, p->out + r);
        } else {
            for (int32_t i = 0; i < n_rows; i++)
                dequantize(p->type, rows + (size_t)i * p->row_bytes, n, expanded + (size_t)i * stride);
            f32_rows(GGUF_TYPE_F32, (const uint8_t *)expanded, stride * sizeof *expanded, n, n_rows, p, p->out + r);
        }
    }
}

#endif
