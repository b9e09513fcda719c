// cpu_product_test.c: the CPU backend's products with weights of every type, against the formulas and the reference.

#include "cpu_rig.h"

// Shapes: a multiple of 32 that is none of 256, odd numbers of rows, more than one panel deep, one row, every tile remainder.
static const struct shape {
    int32_t n_in, n_out, n;
} shapes[] = {{32, 1, 1}, {64, 7, 3}, {96, 33, 4}, {256, 40, 1}, {256, 17, 2}, {512, 35, 5}, {704, 9, 6}, {1536, 70, 7},
    {1792, 64, 8}, {256, 32, 13}, {2304, 19, 33}, {4352, 33, 10}, {160, 128, 23}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

// x as the 8-bit mode sees it: groups of 32 rounded to multiples of (largest magnitude) / 127, ties to even.
static void round_activations(float *x, size_t n)
{
    for (size_t g = 0; g < n; g += 32) {
        float largest = 0;
        for (size_t i = g; i < g + 32; i++)
            largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        for (size_t i = g; i < g + 32 && largest > 0; i++)
            x[i] = nearbyintf(x[i] * (127 / largest)) * (largest / 127);
    }
}

// Compares out [n, n_out] with sums in f64. Any order of n_in f32 additions of products errs by at most n_in 2^-24 times the sum
// of magnitudes; scales and zero points add a handful of roundings of terms that may be 20 times larger than their sum.
static void check_products(const struct weight *weight, const float *x, const float *out, int32_t n, const char *kernels)
{
    float *row = malloc((size_t)weight->n_in * sizeof *row);
    assert_non_null(row);
    for (int32_t o = 0; o < weight->n_out; o++) {
        const uint8_t *blocks = (const uint8_t *)weight->host + (uint64_t)o * weight->row_bytes;
        assert_true(gguf_dequantize(weight->type, blocks, row, (size_t)weight->n_in));
        for (int32_t i = 0; i < n; i++) {
            const float *column = x + (size_t)i * (size_t)weight->n_in;
            double sum = 0, magnitude = 1e-20;
            for (int32_t k = 0; k < weight->n_in; k++) {
                sum += (double)row[k] * column[k];
                magnitude += fabs((double)row[k] * column[k]);
            }
            double got = out[(size_t)i * (size_t)weight->n_out + (size_t)o];
            if (!(fabs(got - sum) <= magnitude * (weight->n_in + 40) * 0x1p-24))
                give_up("%s, %s, [%d -> %d], %d rows: output %d of row %d is %.9g, not %.9g (magnitude %.3g)", kernels,
                    gguf_type_name(weight->type), weight->n_in, weight->n_out, n, o, i, got, sum, magnitude);
        }
    }
    free(row);
}

static void products_with(const char *kernels, bool exact)
{
    struct carat_error err = {0};
    struct ops *cpu = cpu_ops_new_with(2, exact, kernels, &err);
    require(cpu != NULL, err);
    for (int t = 0; t < WEIGHT_TYPES; t++) {
        bool rounds = !exact && gguf_type_info(weight_types[t])->block_elems > 1;
        for (int s = 0; s < SHAPES; s++) {
            struct shape shape = shapes[s];
            if (!type_fits(weight_types[t], shape.n_in))
                continue;
            struct linear linear = linear_new(weight_types[t], shape.n_in, shape.n_out);
            size_t n_x = (size_t)shape.n * (size_t)shape.n_in;
            float *x = random_floats(n_x);
            struct tensor in = tensor_new(cpu, shape.n, shape.n_in, x), out = tensor_new(cpu, shape.n, shape.n_out, NULL);
            cpu->project(cpu, in, &linear, out);
            float *got = values_of(cpu, out);
            if (rounds)
                round_activations(x, n_x);
            check_products(&linear.weight, x, got, shape.n, kernels);
            free(got);
            free(x);
            cpu->buffer_free(cpu, in.buffer);
            cpu->buffer_free(cpu, out.buffer);
            weight_drop(&linear.weight);
        }
    }
    cpu->free(cpu);
}

static void exact_with(const char *kernels)
{
    products_with(kernels, true);
}

static void eight_bits_with(const char *kernels)
{
    products_with(kernels, false);
}

static void exact_products_of_every_type_and_shape_err_by_f32_rounding_only(void **state)
{
    (void)state;
    for_every_isa(exact_with);
}

static void eight_bit_products_are_those_of_rounded_activations(void **state)
{
    (void)state;
    for_every_isa(eight_bits_with);
}

// F32, F16 and BF16 rows need no multiple of 32.
static void odd_lengths_with(const char *kernels)
{
    struct carat_error err = {0};
    struct ops *cpu = cpu_ops_new_with(3, false, kernels, &err);
    require(cpu != NULL, err);
    static const int32_t lengths[] = {1, 3, 17, 31, 100, 129};
    for (int t = 0; t < 3; t++) {
        for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            for (int32_t n = 1; n < 8; n += 2) {
                struct linear linear = linear_new(weight_types[t], lengths[l], 11);
                float *x = random_floats((size_t)(n * lengths[l]));
                struct tensor in = tensor_new(cpu, n, lengths[l], x), out = tensor_new(cpu, n, 11, NULL);
                cpu->project(cpu, in, &linear, out);
                float *got = values_of(cpu, out);
                check_products(&linear.weight, x, got, n, kernels);
                free(got);
                free(x);
                cpu->buffer_free(cpu, in.buffer);
                cpu->buffer_free(cpu, out.buffer);
                weight_drop(&linear.weight);
            }
        }
    }
    cpu->free(cpu);
}

static void unquantised_rows_may_have_any_length(void **state)
{
    (void)state;
    for_every_isa(odd_lengths_with);
}

// Every value of a type: dequantised rows are bit for bit what the format says.
static void dequantize_with(const char *kernels)
{
    struct carat_error err = {0};
    struct ops *cpu = cpu_ops_new_with(1, true, kernels, &err);
    require(cpu != NULL, err);
    enum { N = 2048, ROWS = 20 };
    for (int t = 0; t < WEIGHT_TYPES; t++) {
        struct weight table = weight_new(weight_types[t], N, ROWS, 1);
        int32_t ids[ROWS];
        for (int32_t i = 0; i < ROWS; i++)
            ids[i] = ROWS - 1 - i;
        struct tensor out = tensor_new(cpu, ROWS, N, NULL);
        cpu->embed(cpu, &table, &(struct token_ids){.host = ids}, 1, out);
        float *got = values_of(cpu, out), wanted[N];
        for (int32_t i = 0; i < ROWS; i++) {
            gguf_dequantize(table.type, (const uint8_t *)table.host + (uint64_t)ids[i] * table.row_bytes, wanted, N);
            for (int k = 0; k < N; k++) {
                if (got[i * N + k] != wanted[k])
                    give_up("%s, %s: element %d is %.9g, not %.9g", kernels, gguf_type_name(table.type), k, got[i * N + k],
                        wanted[k]);
            }
        }
        free(got);
        cpu->buffer_free(cpu, out.buffer);
        weight_drop(&table);
    }
    cpu->free(cpu);
}

static void embedded_rows_are_the_dequantised_ones_bit_for_bit(void **state)
{
    (void)state;
    for_every_isa(dequantize_with);
}

// Results of a fresh backend with so many threads, for n rows in pieces of `step`.
static float *project_in_pieces(const struct linear *linear, const float *x, int32_t n, int32_t step, int n_threads, bool exact)
{
    struct carat_error err = {0};
    struct ops *cpu = cpu_ops_new_with(n_threads, exact, NULL, &err);
    require(cpu != NULL, err);
    size_t n_in = (size_t)linear->weight.n_in, n_out = (size_t)linear->weight.n_out;
    float *all = malloc((size_t)n * n_out * sizeof *all);
    assert_non_null(all);
    for (int32_t first = 0; first < n; first += step) {
        int32_t rows = n - first < step ? n - first : step;
        struct tensor in = tensor_new(cpu, rows, linear->weight.n_in, x + (size_t)first * n_in);
        struct tensor out = tensor_new(cpu, rows, linear->weight.n_out, NULL);
        cpu->project(cpu, in, linear, out);
        float *got = values_of(cpu, out);
        memcpy(all + (size_t)first * n_out, got, (size_t)rows * n_out * sizeof *all);
        free(got);
        cpu->buffer_free(cpu, in.buffer);
        cpu->buffer_free(cpu, out.buffer);
    }
    cpu->free(cpu);
    return all;
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    for (int t = 0; t < WEIGHT_TYPES; t++) {
        struct linear linear = linear_new(weight_types[t], 768, 333);
        float *x = random_floats(23 * 768);
        for (int exact = 0; exact < 2; exact++) {
            for (int32_t n = 1; n < 24; n += 11) {
                float *one = project_in_pieces(&linear, x, n, n, 1, exact),
                      *three = project_in_pieces(&linear, x, n, n, 3, exact);
                assert_memory_equal(one, three, (size_t)n * 333 * sizeof *one);
                free(three);
                free(one);
            }
        }
        free(x);
        weight_drop(&linear.weight);
    }
}

static void exact_products_do_not_depend_on_how_the_batch_is_cut(void **state)
{
    (void)state;
    for (int t = 0; t < WEIGHT_TYPES; t++) {
        struct linear linear = linear_new(weight_types[t], 768, 131);
        float *x = random_floats(23 * 768), *whole = project_in_pieces(&linear, x, 23, 23, 2, true);
        for (int32_t step = 1; step < 12; step += 3) {
            float *pieces = project_in_pieces(&linear, x, 23, step, 2, true);
            assert_memory_equal(whole, pieces, 23 * 131 * sizeof *whole);
            free(pieces);
        }
        free(whole);
        free(x);
        weight_drop(&linear.weight);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_products_of_every_type_and_shape_err_by_f32_rounding_only),
        cmocka_unit_test(eight_bit_products_are_those_of_rounded_activations),
        cmocka_unit_test(unquantised_rows_may_have_any_length),
        cmocka_unit_test(embedded_rows_are_the_dequantised_ones_bit_for_bit),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(exact_products_do_not_depend_on_how_the_batch_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
