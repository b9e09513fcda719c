// ref_ops_test.c: the reference's operations against their formulas, written out once more in f64 where the goldens do not reach:
// clipping, biases, other activations, ties, the pending term of the stream, the window of attention.

#include "golden.h"

#include "base/number.h"
#include "ref/ref.h"

static struct ops *ops;

static int set_up(void **state)
{
    (void)state;
    ops = ref_ops_new(NULL);
    return ops == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ops->free(ops);
    return 0;
}

static uint32_t seed = 1;

static float draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 23) - 1;
}

static void fill(float *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        values[i] = draw();
}

static struct tensor tensor_of(const float *values, int32_t n_rows, int32_t n_cols)
{
    struct carat_error err = {0};
    uint64_t n_bytes = (uint64_t)n_rows * (uint64_t)n_cols * 4;
    struct tensor tensor = {.buffer = ops->buffer_new(ops, n_bytes, &err), .n_rows = n_rows, .n_cols = n_cols};
    require(tensor.buffer != NULL, err);
    if (values != NULL)
        ops->write(ops, tensor.buffer, 0, values, n_bytes);
    return tensor;
}

static void drop(struct tensor tensor)
{
    ops->buffer_free(ops, tensor.buffer);
}

// An F32 weight on the caller's values.
static struct weight weight_of(const float *values, int32_t n_in, int32_t n_out)
{
    return (struct weight){.name = "made here",
        .type = GGUF_TYPE_F32,
        .n_in = n_in,
        .n_out = n_out,
        .n_slices = 1,
        .row_bytes = (uint64_t)n_in * 4,
        .n_bytes = (uint64_t)n_in * (uint64_t)n_out * 4,
        .home = WEIGHT_HOST,
        .host = values};
}

static double rms_factor(const float *x, int n, double eps)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum / n + eps);
}

static void a_projection_clips_adds_its_bias_and_its_adapters(void **state)
{
    (void)state;
    enum { N = 3, IN = 8, OUT = 5, RANK = 2 };
    float x[N * IN], w[OUT * IN], bias[OUT], a[RANK * IN], b[OUT * RANK], got[N * OUT];
    fill(x, N * IN), fill(w, OUT * IN), fill(bias, OUT), fill(a, RANK * IN), fill(b, OUT * RANK);
    struct lora_pair second = {.a = tensor_of(a, RANK, IN), .b = tensor_of(b, OUT, RANK), .scale = -0.5f};
    struct lora_pair first = {.a = second.a, .b = second.b, .scale = 2, .next = &second};
    struct linear linear = {.weight = weight_of(w, IN, OUT),
        .bias = weight_of(bias, OUT, 1),
        .clipped = true,
        .in_min = -0.5f,
        .in_max = 0.4f,
        .out_min = -0.6f,
        .out_max = 0.7f,
        .adapters = &first};
    struct tensor in = tensor_of(x, N, IN), out = tensor_of(NULL, N, OUT);
    ops->project(ops, in, &linear, out);
    read_tensor(ops, out, got);
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < OUT; o++) {
            double sum = bias[o], adapted = 0;
            for (int i = 0; i < IN; i++)
                sum += w[o * IN + i] * fmin(fmax(x[n * IN + i], -0.5), 0.4f);
            for (int r = 0; r < RANK; r++) {
                double middle = 0;
                for (int i = 0; i < IN; i++)
                    middle += (double)a[r * IN + i] * x[n * IN + i];
                adapted += 1.5 * b[o * RANK + r] * middle;
            }
            assert_true(fabs(got[n * OUT + o] - (fmin(fmax(sum, -0.6f), 0.7f) + adapted)) < 1e-6);
        }
    }
    drop(second.a), drop(second.b), drop(in), drop(out);
}

static void activations_follow_their_formulas(void **state)
{
    (void)state;
    enum { D = 4 };
    float x[D] = {-3, -0.5f, 0.7f, 4}, unit[D * D] = {0}, got[D];
    for (int i = 0; i < D; i++)
        unit[i * D + i] = 1;
    struct linear linear = {.weight = weight_of(unit, D, D)};
    for (int activation = 0; activation < 3; activation++) {
        struct stream stream = {.x = tensor_of(x, 1, D), .spare = tensor_of(NULL, 1, D)};
        struct tensor out = tensor_of(NULL, 1, D);
        ops->norm_gated(ops, &stream, NULL, &linear, &linear, (enum activation)activation, out);
        read_tensor(ops, out, got);
        for (int i = 0; i < D; i++) {
            double v = x[i], expected = v / (1 + exp(-v));
            if (activation == ACTIVATION_GELU_TANH)
                expected = 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
            else if (activation == ACTIVATION_GELU_QUICK)
                expected = v / (1 + exp(-1.702 * v));
            assert_true(fabs(got[i] - expected * v) < 1e-5);
        }
        drop(stream.x), drop(stream.spare), drop(out);
    }
}

// (x + RMS(term, norm)) * scale, whichever operation settles it.
static void a_pending_term_is_settled_by_the_next_operation(void **state)
{
    (void)state;
    enum { N = 2, D = 6 };
    float x[N * D], term[N * D], norm[D], other[D], scale[1] = {0.75f}, got[N * D], normed[N * D];
    fill(x, N * D), fill(term, N * D), fill(norm, D), fill(other, D);
    struct weight term_norm = weight_of(norm, D, 1), out_norm = weight_of(other, D, 1), factor = weight_of(scale, 1, 1);
    for (int with_norm = 0; with_norm < 2; with_norm++) {
        for (int with_scale = 0; with_scale < 2; with_scale++) {
            struct stream stream = {.x = tensor_of(x, N, D),
                .spare = tensor_of(NULL, N, D),
                .term = tensor_of(term, N, D),
                .term_norm = with_norm ? &term_norm : NULL,
                .scale = with_scale ? &factor : NULL,
                .eps = 0.01f};
            struct tensor pending = stream.term, out = tensor_of(NULL, N, D);
            ops->norm(ops, &stream, &out_norm, out);
            assert_null(stream.term.buffer);
            read_tensor(ops, stream.x, got);
            read_tensor(ops, out, normed);
            for (int n = 0; n < N; n++) {
                double by_term = with_norm ? rms_factor(term + n * D, D, 0.01) : 1, by_row = rms_factor(got + n * D, D, 0.01);
                for (int i = 0; i < D; i++) {
                    int at = n * D + i;
                    double value = (x[at] + term[at] * by_term * (with_norm ? norm[i] : 1)) * (with_scale ? 0.75 : 1);
                    assert_true(fabs(got[at] - value) < 1e-6);
                    assert_true(fabs(normed[at] - got[at] * by_row * other[i]) < 1e-6);
                }
            }
            drop(stream.x), drop(stream.spare), drop(pending), drop(out);
        }
    }
}

// One head, keys and values told apart by their position: which ones a query sees.
static void attention_sees_exactly_its_window(void **state)
{
    (void)state;
    enum { HD = 4, WINDOW = 3, N = 10 };
    float qkv[3 * HD], ones[HD] = {1, 1, 1, 1}, rope[HD] = {1, 1, 0, 0}, got[HD];
    struct weight norm = weight_of(ones, HD, 1);
    struct kv_layer kv = {.capacity = WINDOW, .row_elems = HD, .is_f32 = true};
    kv.k = ops->buffer_new(ops, WINDOW * HD * 4, NULL);
    kv.v = ops->buffer_new(ops, WINDOW * HD * 4, NULL);
    struct tensor in = tensor_of(NULL, 1, 3 * HD), out = tensor_of(NULL, 1, HD), angles = tensor_of(rope, 1, HD);
    double values[N][HD];
    for (int p = 0; p < N; p++) {
        // Equal keys: every visible position counts alike, so the result is the mean of the visible values.
        for (int i = 0; i < HD; i++) {
            qkv[i] = qkv[HD + i] = 1;
            qkv[2 * HD + i] = draw();
        }
        for (int i = 0; i < HD; i++)
            values[p][i] = qkv[2 * HD + i] * rms_factor(qkv + 2 * HD, HD, 1e-6);
        ops->write(ops, in.buffer, 0, qkv, sizeof qkv);
        struct attention attention = {.n_heads = 1,
            .n_kv_heads = 1,
            .head_dim = HD,
            .q_norm = &norm,
            .k_norm = &norm,
            .eps = 1e-6f,
            .writes_kv = true,
            .window = WINDOW,
            .first_position = p,
            .rope = angles,
            .kv = &kv};
        ops->attend(ops, in, &attention, out);
        read_tensor(ops, out, got);
        for (int i = 0; i < HD; i++) {
            double sum = 0;
            int n_seen = 0;
            for (int s = 0; s <= p; s++) {
                if (p - s < WINDOW) {
                    sum += values[s][i];
                    n_seen++;
                }
            }
            assert_int_equal(n_seen, p < WINDOW ? p + 1 : WINDOW);
            assert_true(fabs(got[i] - sum / n_seen) < 1e-6);
        }
    }
    ops->buffer_free(ops, kv.k);
    ops->buffer_free(ops, kv.v);
    drop(in), drop(out), drop(angles);
}

static void sixteen_bit_keys_and_values_are_rounded_to_even(void **state)
{
    (void)state;
    enum { HD = 2 };
    float qkv[3 * HD] = {1, 1, 1.5f, -0.3f, 0.1f, 0.7f}, ones[HD] = {1, 1}, rope[HD] = {1, 0};
    uint16_t stored[HD];
    struct weight norm = weight_of(ones, HD, 1);
    struct kv_layer kv = {
        .capacity = 4, .row_elems = HD, .k = ops->buffer_new(ops, 16, NULL), .v = ops->buffer_new(ops, 16, NULL)};
    struct tensor in = tensor_of(qkv, 1, 3 * HD), out = tensor_of(NULL, 1, HD), angles = tensor_of(rope, 1, HD);
    struct attention attention = {.n_heads = 1,
        .n_kv_heads = 1,
        .head_dim = HD,
        .q_norm = &norm,
        .k_norm = &norm,
        .eps = 1e-6f,
        .writes_kv = true,
        .first_position = 2,
        .rope = angles,
        .kv = &kv};
    // A query at position 2 sees the zeros of positions 0 and 1 too; only what is stored is of interest.
    ops->attend(ops, in, &attention, out);
    const float *rows[2] = {qkv + HD, qkv + 2 * HD};
    struct buffer *buffers[2] = {kv.k, kv.v};
    for (int b = 0; b < 2; b++) {
        assert_int_equal(ops->read_start(ops, buffers[b], 2 * HD * 2, sizeof stored, stored, NULL), 0);
        for (int i = 0; i < HD; i++)
            assert_int_equal(stored[i], f16_from_f32((float)(rows[b][i] * rms_factor(rows[b], HD, 1e-6f))));
    }
    ops->buffer_free(ops, kv.k);
    ops->buffer_free(ops, kv.v);
    drop(in), drop(out), drop(angles);
}

static void choices_prefer_the_lower_id_among_equals(void **state)
{
    (void)state;
    enum { V = 300, K = 7 };
    float logits[2 * V], out[2 * K + 2];
    for (int v = 0; v < 2 * V; v++)
        logits[v] = (float)((v * 7919) % 13) / 4;
    struct tensor rows = tensor_of(logits, 2, V), top = tensor_of(NULL, 1, 2 * K + 2), id = tensor_of(NULL, 1, 1);
    int32_t ids[K], best;
    for (int row = 0; row < 2; row++) {
        const float *values = logits + row * V;
        ops->argmax(ops, rows, row, id);
        read_tensor(ops, id, &best);
        ops->top_k(ops, rows, row, K, top);
        read_tensor(ops, top, out);
        memcpy(ids, out, sizeof ids);
        assert_int_equal(best, ids[0]);
        double total = 0;
        for (int v = 0; v < V; v++)
            total += exp((double)values[v] - values[best]);
        for (int k = 0; k < K; k++) {
            // As many ids come before it as have a larger logit, or an equal one and a lower id.
            int n_before = 0;
            for (int v = 0; v < V; v++)
                n_before += values[v] > values[ids[k]] || (values[v] == values[ids[k]] && v < ids[k]);
            assert_int_equal(n_before, k);
            assert_true(out[K + k] == values[ids[k]]);
        }
        assert_true(out[2 * K] == values[best]);
        assert_true(fabs(out[2 * K + 1] - log(total)) < 1e-6);
    }
    drop(rows), drop(top), drop(id);
}

static void the_soft_cap_bounds_logits_and_suppressed_ones_are_least(void **state)
{
    (void)state;
    enum { D = 3, V = 4 };
    float x[D] = {100, -50, 2}, w[V * D], got[V];
    static const int32_t suppressed[] = {2};
    fill(w, V * D);
    struct linear table = {.weight = weight_of(w, D, V)};
    struct tensor in = tensor_of(x, 1, D), logits = tensor_of(NULL, 1, V);
    for (int capped = 0; capped < 2; capped++) {
        ops->head(ops, in, &table, capped ? 30 : 0, suppressed, 1, logits);
        read_tensor(ops, logits, got);
        for (int v = 0; v < V; v++) {
            double raw = 0;
            for (int i = 0; i < D; i++)
                raw += (double)w[v * D + i] * x[i];
            double expected = capped ? 30 * tanh(raw / 30) : raw;
            assert_true(v == 2 ? got[v] == -3.0e38f : fabs(got[v] - expected) < 1e-4);
            assert_true(!capped || v == 2 || fabsf(got[v]) <= 30);
        }
    }
    drop(in), drop(logits);
}

static void parts_of_a_projection_lie_side_by_side(void **state)
{
    (void)state;
    enum { N = 2, D = 4 };
    float x[N * D], w[3 * D], got[N * 3];
    fill(x, N * D), fill(w, 3 * D);
    struct linear two = {.weight = weight_of(w, D, 2)}, one = {.weight = weight_of(w + 2 * D, D, 1)};
    const struct linear *parts[] = {&two, &one};
    struct stream stream = {.x = tensor_of(x, N, D), .spare = tensor_of(NULL, N, D)};
    struct tensor out = tensor_of(NULL, N, 3);
    ops->norm_project(ops, &stream, NULL, parts, 2, out);
    read_tensor(ops, out, got);
    for (int n = 0; n < N; n++) {
        for (int o = 0; o < 3; o++) {
            double sum = 0;
            for (int i = 0; i < D; i++)
                sum += (double)w[o * D + i] * x[n * D + i];
            assert_true(fabs(got[n * 3 + o] - sum) < 1e-6);
        }
    }
    drop(stream.x), drop(stream.spare), drop(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_projection_clips_adds_its_bias_and_its_adapters),
        cmocka_unit_test(activations_follow_their_formulas),
        cmocka_unit_test(a_pending_term_is_settled_by_the_next_operation),
        cmocka_unit_test(attention_sees_exactly_its_window),
        cmocka_unit_test(sixteen_bit_keys_and_values_are_rounded_to_even),
        cmocka_unit_test(choices_prefer_the_lower_id_among_equals),
        cmocka_unit_test(the_soft_cap_bounds_logits_and_suppressed_ones_are_least),
        cmocka_unit_test(parts_of_a_projection_lie_side_by_side),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
