// webgpu_attend_test.c: attention, rings of keys and values, and choosing logits on the GPU against the scalar reference.

#include "webgpu_pair.h"

// --- attention ---

struct case_of_attention {
    int32_t n_heads, n_kv_heads, head_dim, window, capacity;
    bool is_f32, v_is_k, sees_ahead;
    int32_t batches[6]; // rows of consecutive calls, 0: the end
};

struct layer {
    struct kv_layer gpu, ref;
};

static struct layer make_layer(const struct case_of_attention *c)
{
    struct carat_error err = {0};
    struct layer l;
    l.gpu = (struct kv_layer){.capacity = c->capacity, .row_elems = c->n_kv_heads * c->head_dim, .is_f32 = c->is_f32};
    l.ref = l.gpu;
    uint64_t n_bytes = (uint64_t)c->capacity * (uint64_t)l.gpu.row_elems * (c->is_f32 ? 4 : 2);
    l.gpu.k = gpu->buffer_new(gpu, n_bytes, &err);
    l.gpu.v = gpu->buffer_new(gpu, n_bytes, &err);
    l.ref.k = ref->buffer_new(ref, n_bytes, &err);
    l.ref.v = ref->buffer_new(ref, n_bytes, &err);
    return l;
}

static void free_layer(struct layer *l)
{
    gpu->buffer_free(gpu, l->gpu.k);
    gpu->buffer_free(gpu, l->gpu.v);
    ref->buffer_free(ref, l->ref.k);
    ref->buffer_free(ref, l->ref.v);
}

static struct twin make_rope(int32_t first, int32_t n, int32_t head_dim)
{
    float *values = malloc((size_t)n * (size_t)head_dim * sizeof *values);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t k = 0; k < head_dim / 2; k++) {
            double angle = (first + i) * pow(10000, -2.0 * k / head_dim);
            values[i * head_dim + k] = (float)cos(angle);
            values[i * head_dim + head_dim / 2 + k] = (float)sin(angle);
        }
    }
    struct twin rope = make_twin_of(gpu, ref, n, head_dim, values);
    free(values);
    return rope;
}

// Attention of the rows of qkv, from `position` on, on both backends; one norm for queries and keys.
static void attend_both(const struct case_of_attention *c, const struct layer *layer, const struct twin_weight *norm,
    int32_t position, const struct twin *qkv, const struct twin *out)
{
    struct twin rope = make_rope(position, qkv->gpu.n_rows, c->head_dim);
    struct attention a = {.n_heads = c->n_heads,
        .n_kv_heads = c->n_kv_heads,
        .head_dim = c->head_dim,
        .q_norm = &norm->gpu,
        .k_norm = &norm->gpu,
        .eps = 1e-6f,
        .writes_kv = true,
        .first_position = position,
        .rope = rope.gpu,
        .kv = &layer->gpu};
    struct attention b = a;
    b.q_norm = b.k_norm = &norm->ref;
    b.rope = rope.ref;
    b.kv = &layer->ref;
    gpu->attend(gpu, qkv->gpu, &a, out->gpu);
    ref->attend(ref, qkv->ref, &b, out->ref);
    free_twin(gpu, ref, &rope);
}

// Keys are half numbers on both sides, but one rounding may fall the other way where the sums before it differ: 2^-11 of a value.
static void check_attention(const struct case_of_attention *c)
{
    struct layer layer = make_layer(c);
    struct twin_weight q_norm = make_vector(gpu, c->head_dim), k_norm = make_vector(gpu, c->head_dim);
    int32_t position = 0;
    int32_t n_qkv = (c->n_heads + (c->v_is_k ? 1 : 2) * c->n_kv_heads) * c->head_dim, n_out = c->n_heads * c->head_dim;
    for (const int32_t *n = c->batches; *n != 0; n++) {
        struct twin qkv = make_twin(gpu, ref, *n, n_qkv, 2), out = make_twin(gpu, ref, *n, n_out, 0);
        struct twin rope = make_rope(position, *n, c->head_dim);
        int32_t *last = malloc((size_t)*n * sizeof *last);
        for (int32_t i = 0; i < *n; i++)
            last[i] = position + (i < *n / 2 ? *n / 2 : i);
        struct twin last_key = make_twin_of(gpu, ref, *n, 1, last);
        struct attention a = {.n_heads = c->n_heads,
            .n_kv_heads = c->n_kv_heads,
            .head_dim = c->head_dim,
            .q_norm = &q_norm.gpu,
            .k_norm = &k_norm.gpu,
            .eps = 1e-6f,
            .writes_kv = true,
            .v_is_k = c->v_is_k,
            .window = c->window,
            .first_position = position,
            .rope = rope.gpu,
            .kv = &layer.gpu};
        struct attention b = a;
        b.q_norm = &q_norm.ref;
        b.k_norm = &k_norm.ref;
        b.rope = rope.ref;
        b.kv = &layer.ref;
        if (c->sees_ahead) {
            a.last_key = last_key.gpu;
            b.last_key = last_key.ref;
        }
        gpu->attend(gpu, qkv.gpu, &a, out.gpu);
        ref->attend(ref, qkv.ref, &b, out.ref);
        double d = difference(gpu, ref, &out);
        if (!(d <= (c->is_f32 ? 3e-5 : 1e-3)))
            fail_msg("relative difference %.3g: heads %d/%d of %d, window %d, f32 %d, batch of %d at %d", d, c->n_heads,
                c->n_kv_heads, c->head_dim, c->window, c->is_f32, *n, position);
        // A layer that shares these keys and values brings only queries.
        struct twin q = make_twin(gpu, ref, *n, n_out, 2);
        a.writes_kv = b.writes_kv = false;
        gpu->attend(gpu, q.gpu, &a, out.gpu);
        ref->attend(ref, q.ref, &b, out.ref);
        assert_true(difference(gpu, ref, &out) <= (c->is_f32 ? 3e-5 : 1e-3));
        position += *n;
        free(last);
        free_twin(gpu, ref, &q);
        free_twin(gpu, ref, &qkv);
        free_twin(gpu, ref, &out);
        free_twin(gpu, ref, &rope);
        free_twin(gpu, ref, &last_key);
    }
    free_layer(&layer);
    free_weight(gpu, &q_norm);
    free_weight(gpu, &k_norm);
}

static void every_head_size_attends(void **state)
{
    (void)state;
    static const int32_t sizes[] = {32, 64, 128, 256, 512};
    for (int i = 0; i < 10; i++) {
        struct case_of_attention c = {.n_heads = 4,
            .n_kv_heads = 2,
            .head_dim = sizes[i / 2],
            .capacity = 64,
            .is_f32 = i % 2 == 0,
            .batches = {1, 5, 1, 33, 1}};
        check_attention(&c);
    }
}

static void rings_wrap_inside_a_window(void **state)
{
    (void)state;
    struct case_of_attention c = {.n_heads = 2,
        .n_kv_heads = 1,
        .head_dim = 64,
        .window = 16,
        .capacity = 47,
        .is_f32 = true,
        .batches = {32, 32, 1, 1, 31}};
    check_attention(&c);
    c.is_f32 = false;
    check_attention(&c);
}

static void values_may_be_raw_keys(void **state)
{
    (void)state;
    struct case_of_attention c = {
        .n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .v_is_k = true, .capacity = 64, .is_f32 = true, .batches = {7, 1, 1, 20}};
    check_attention(&c);
    c.is_f32 = false;
    check_attention(&c);
}

// What a slot held before, even if it was no number, must not show when it is overwritten.
static void stale_slots_do_not_show(void **state)
{
    (void)state;
    static const int32_t sizes[] = {32, 64, 128, 256, 512};
    static const int32_t positions[] = {0, 5, 31, 100};
    for (int i = 0; i < 5 * 4; i++) {
        int32_t d = sizes[i / 4], position = positions[i % 4];
        struct case_of_attention c = {.n_heads = 2, .n_kv_heads = 1, .head_dim = d, .capacity = 128};
        struct layer layer = make_layer(&c);
        uint16_t *halves = malloc((size_t)c.capacity * (size_t)d * 2);
        for (int32_t k = 0; k < c.capacity * d; k++)
            halves[k] = k / d < position ? f16_from_f32(random_float()) : i % 2 == 0 ? 0x7e00 : 0x7c00; // NaN, infinity
        struct kv_layer *both[] = {&layer.gpu, &layer.ref};
        for (int b = 0; b < 2; b++) {
            struct ops *ops = b == 0 ? gpu : ref;
            ops->write(ops, both[b]->k, 0, halves, (uint64_t)c.capacity * (uint64_t)d * 2);
            ops->write(ops, both[b]->v, 0, halves, (uint64_t)c.capacity * (uint64_t)d * 2);
        }
        free(halves);
        struct twin_weight norm = make_vector(gpu, d);
        struct twin qkv = make_twin(gpu, ref, 1, 4 * d, 2), out = make_twin(gpu, ref, 1, 2 * d, 0);
        attend_both(&c, &layer, &norm, position, &qkv, &out);
        double distance = difference(gpu, ref, &out);
        if (!(distance <= 1e-3)) // keys and values in 16 bits
            fail_msg("relative difference %.3g: heads of %d at %d", distance, d, position);
        free_twin(gpu, ref, &qkv);
        free_twin(gpu, ref, &out);
        free_layer(&layer);
        free_weight(gpu, &norm);
    }
}

static void rows_may_see_ahead(void **state)
{
    (void)state;
    struct case_of_attention c = {.n_heads = 4,
        .n_kv_heads = 1,
        .head_dim = 64,
        .window = 16,
        .sees_ahead = true,
        .capacity = 128,
        .is_f32 = true,
        .batches = {24, 40}};
    check_attention(&c);
    c.window = 0;
    check_attention(&c);
}

static void many_keys_are_split_into_pieces(void **state)
{
    (void)state;
    struct case_of_attention c = {
        .n_heads = 4, .n_kv_heads = 1, .head_dim = 32, .capacity = 512, .is_f32 = true, .batches = {200, 150, 1, 3, 1}};
    check_attention(&c);
    c.is_f32 = false;
    check_attention(&c);
    c.window = 128;
    c.capacity = 330;
    check_attention(&c);
}

// Three heads to a key head: a tile of queries begins and ends within a row. Windows begin in the middle of a tile of keys.
static void rows_are_cut_by_tiles_of_queries(void **state)
{
    (void)state;
    struct case_of_attention c = {
        .n_heads = 6, .n_kv_heads = 2, .head_dim = 40, .window = 200, .capacity = 350, .is_f32 = true, .batches = {150, 110, 90}};
    check_attention(&c);
    c.is_f32 = false;
    c.head_dim = 256;
    c.n_heads = 3;
    c.n_kv_heads = 1;
    check_attention(&c);
}

// A single query over many keys is left in pieces; the product that takes it joins them.
static void pieces_of_attention_join_in_the_next_product(void **state)
{
    (void)state;
    struct case_of_attention c = {.n_heads = 4, .n_kv_heads = 1, .head_dim = 64, .capacity = 512};
    struct layer layer = make_layer(&c);
    struct twin_weight norm = make_vector(gpu, 64), w = make_weight(gpu, GGUF_TYPE_Q8_0, 256, 96, 1);
    struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
    for (int32_t position = 0, n = 200; position <= 200; position += n, n = 1) {
        struct twin qkv = make_twin(gpu, ref, n, 6 * 64, 2), out = make_twin(gpu, ref, n, 256, 0),
                    y = make_twin(gpu, ref, n, 96, 0);
        attend_both(&c, &layer, &norm, position, &qkv, &out);
        gpu->project(gpu, out.gpu, &on_gpu, y.gpu);
        ref->project(ref, out.ref, &on_ref, y.ref);
        assert_true(difference(gpu, ref, &y) <= 1e-3); // keys and values in 16 bits, see above
        free_twin(gpu, ref, &qkv);
        free_twin(gpu, ref, &out);
        free_twin(gpu, ref, &y);
    }
    free_layer(&layer);
    free_weight(gpu, &norm);
    free_weight(gpu, &w);
}

// --- logits ---

static void the_head_caps_and_suppresses(void **state)
{
    (void)state;
    for (int n_rows = 1; n_rows <= 5; n_rows += 4) {
        struct twin_weight w = make_weight(gpu, GGUF_TYPE_Q6_K, 256, 300, 1);
        struct twin x = make_twin(gpu, ref, n_rows, 256, 3), logits = make_twin(gpu, ref, n_rows, 300, 0);
        struct linear on_gpu = {.weight = w.gpu}, on_ref = {.weight = w.ref};
        gpu->head(gpu, x.gpu, &on_gpu, 30, NULL, 0, logits.gpu);
        ref->head(ref, x.ref, &on_ref, 30, NULL, 0, logits.ref);
        assert_close(gpu, ref, &logits, "%d rows", n_rows);
        int32_t suppressed[70];
        for (int i = 0; i < 70; i++)
            suppressed[i] = i * 4;
        gpu->head(gpu, x.gpu, &on_gpu, 0, suppressed, 70, logits.gpu);
        float *values = malloc((size_t)n_rows * 300 * 4);
        read_tensor(gpu, logits.gpu, values);
        for (int i = 0; i < 70; i++)
            for (int r = 0; r < n_rows; r++)
                assert_true(values[r * 300 + suppressed[i]] == -3.0e38f);
        free(values);
        free_twin(gpu, ref, &x);
        free_twin(gpu, ref, &logits);
        free_weight(gpu, &w);
    }
}

static struct twin make_logits(int32_t n_rows, int32_t n, int step)
{
    float *values = malloc((size_t)n_rows * (size_t)n * 4);
    for (int32_t i = 0; i < n_rows * n; i++)
        values[i] = step > 0 ? (float)(random_u32() % (uint32_t)step) : random_float() * 30; // few levels make many equals
    struct twin t = make_twin_of(gpu, ref, n_rows, n, values);
    free(values);
    return t;
}

static void argmax_takes_the_lowest_of_equals(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1, 5, 640, 5000, 70001};
    for (int i = 0; i < 5; i++) {
        for (int step = 0; step <= 9; step += 3) {
            struct twin logits = make_logits(2, sizes[i], step), id = make_twin(gpu, ref, 1, 1, 0);
            for (int row = 0; row < 2; row++) {
                gpu->argmax(gpu, logits.gpu, row, id.gpu);
                ref->argmax(ref, logits.ref, row, id.ref);
                int32_t a, b;
                read_tensor(gpu, id.gpu, &a);
                read_tensor(ref, id.ref, &b);
                assert_int_equal(a, b);
            }
            free_twin(gpu, ref, &logits);
            free_twin(gpu, ref, &id);
        }
    }
}

static void top_k_is_sorted_and_knows_the_whole_mass(void **state)
{
    (void)state;
    static const int32_t shapes[][2] = {{300, 1}, {300, 256}, {1024, 64}, {5000, 200}, {70001, 64}};
    for (int i = 0; i < 5; i++) {
        for (int step = 0; step <= 50; step += 50) {
            int32_t n = shapes[i][0], k = shapes[i][1];
            struct twin logits = make_logits(2, n, step), out = make_twin(gpu, ref, 1, 2 * k + 2, 0);
            gpu->top_k(gpu, logits.gpu, 1, k, out.gpu);
            ref->top_k(ref, logits.ref, 1, k, out.ref);
            float *a = malloc((size_t)(2 * k + 2) * 4), *b = malloc((size_t)(2 * k + 2) * 4);
            read_tensor(gpu, out.gpu, a);
            read_tensor(ref, out.ref, b);
            assert_memory_equal(a, b, (size_t)(2 * k + 1) * 4);
            assert_true(fabsf(a[2 * k + 1] - b[2 * k + 1]) < 1e-4f); // a logarithm of a sum of up to 70001 exponentials
            free(a);
            free(b);
            free_twin(gpu, ref, &logits);
            free_twin(gpu, ref, &out);
        }
    }
}

static void rows_copy_between_and_within_tensors(void **state)
{
    (void)state;
    struct twin src = make_twin(gpu, ref, 9, 37, 1), dst = make_twin(gpu, ref, 12, 37, 1);
    gpu->copy_rows(gpu, src.gpu, 2, dst.gpu, 5, 6);
    ref->copy_rows(ref, src.ref, 2, dst.ref, 5, 6);
    assert_true(difference(gpu, ref, &dst) == 0);
    gpu->copy_rows(gpu, dst.gpu, 8, dst.gpu, 0, 3);
    ref->copy_rows(ref, dst.ref, 8, dst.ref, 0, 3);
    assert_true(difference(gpu, ref, &dst) == 0);
    free_twin(gpu, ref, &src);
    free_twin(gpu, ref, &dst);
}

static void several_reads_may_be_under_way(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct twin t = make_twin(gpu, ref, 4, 64, 1);
    float values[4][64], again[4][64];
    int32_t tickets[4];
    for (int i = 0; i < 4; i++) {
        tickets[i] = gpu->read_start(gpu, t.gpu.buffer, (uint64_t)i * 256, 256, values[i], &err);
        assert_true(tickets[i] >= 0);
    }
    for (int i = 3; i >= 0; i--) {
        gpu->wait(gpu, tickets[i]);
        assert_int_equal(gpu->poll(gpu, tickets[i], &err), OPS_DONE);
    }
    read_tensor(ref, t.ref, again);
    assert_memory_equal(values, again, sizeof values);
    assert_int_equal(gpu->poll(gpu, tickets[0], &err), OPS_FAILED); // a spent ticket
    free_twin(gpu, ref, &t);
}

static void too_large_a_buffer_is_refused_in_words(void **state)
{
    (void)state;
    struct carat_error err = {0};
    assert_null(gpu->buffer_new(gpu, (uint64_t)1 << 40, &err));
    assert_int_equal(err.code, CARAT_NO_MEMORY);
    assert_non_null(strstr(err.message, "MiB"));
    struct twin t = make_twin(gpu, ref, 1, 64, 1); // the device goes on
    assert_true(difference(gpu, ref, &t) == 0);
    free_twin(gpu, ref, &t);
}

static void weights_without_kernels_are_refused_by_name(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct weight w = {
        .name = "blk.7.odd", .type = GGUF_TYPE_I32, .n_in = 64, .n_out = 2, .n_slices = 1, .row_bytes = 256, .n_bytes = 512};
    assert_false(gpu->weight_place(gpu, &w, NULL, false, &err));
    assert_int_equal(err.code, CARAT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "blk.7.odd"));
    struct weight ok = {
        .name = "w", .type = GGUF_TYPE_F32, .n_in = 64, .n_out = 2, .n_slices = 1, .row_bytes = 256, .n_bytes = 512};
    float values[128] = {0};
    assert_true(gpu->weight_place(gpu, &ok, NULL, false, &err));
    assert_false(gpu->weight_write(gpu, &ok, 256, values, 256, &err)); // not in order
    assert_true(gpu->weight_write(gpu, &ok, 0, values, 256, &err));
    assert_false(gpu->weight_write(gpu, &ok, 256, values, 512, &err)); // beyond the end
    gpu->weight_free(gpu, &ok);
    assert_int_equal(ok.home, WEIGHT_UNPLACED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_head_size_attends),
        cmocka_unit_test(rings_wrap_inside_a_window),
        cmocka_unit_test(values_may_be_raw_keys),
        cmocka_unit_test(stale_slots_do_not_show),
        cmocka_unit_test(rows_may_see_ahead),
        cmocka_unit_test(many_keys_are_split_into_pieces),
        cmocka_unit_test(rows_are_cut_by_tiles_of_queries),
        cmocka_unit_test(pieces_of_attention_join_in_the_next_product),
        cmocka_unit_test(the_head_caps_and_suppresses),
        cmocka_unit_test(argmax_takes_the_lowest_of_equals),
        cmocka_unit_test(top_k_is_sorted_and_knows_the_whole_mass),
        cmocka_unit_test(rows_copy_between_and_within_tensors),
        cmocka_unit_test(several_reads_may_be_under_way),
        cmocka_unit_test(too_large_a_buffer_is_refused_in_words),
        cmocka_unit_test(weights_without_kernels_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, open_both, close_both);
}
