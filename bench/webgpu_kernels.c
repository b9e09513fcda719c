// webgpu_kernels.c: time of the GPU backend at the shapes of E2B (Q4_K_M mix, random weights), without a model file.
//
// Built by the target webgpu_kernels. usage: webgpu_kernels [--decode N] [--depth N] [--prefill N] [--profile] [--vocabulary N]
// [--fold | --no-fold]. Prints tokens per second, dispatches per token and, with --profile, the time of every kernel by
// timestamps. Matrices are folded (ops.h) where a trial says that it pays, always, or never.
// webgpu_kernels --upload [MIB] measures instead how fast 2048 or so many MiB get to the device.

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "webgpu/webgpu_ops.h"
#include "webgpu_upload.h"

enum {
    D = 1536,
    LAYERS = 35,
    OWN_KV = 15, // layers before the shared ones
    HEADS = 8,
    WIDTH = 256, // of a per-layer input
    WINDOW = 512,
    MAX_BATCH = 512,
    IN_FLIGHT = 4,
    CHUNK = 1 << 20, // random bytes that fill the weights
};

struct layer {
    struct linear q, k, v, o, gate, up, down, per_layer_gate, per_layer_out;
    const struct linear *qkv[3];
    struct weight attn_norm, q_norm, k_norm, post_attention_norm, ffn_norm, post_ffw_norm, post_norm, scale;
    struct layer_end end;
    int32_t head_dim, n_ff, owner;
    bool is_sliding;
    struct kv_layer kv;
};

struct model {
    struct ops *ops;
    struct layer layers[LAYERS];
    struct linear head, projection;
    struct weight table, projection_norm, output_norm;
    int32_t n_vocabulary, n_context, n_folded;
    struct tensor x, spare, term, qkv, heads, gated, per_layer, injected, logits, hidden, ids, rope_sliding, rope_global;
    uint8_t *random;
};

static void stop(const char *what, const struct carat_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err->message);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// Bytes whose 16-bit scales are small numbers, wherever a block puts them.
static void fill_random(uint8_t *bytes)
{
    uint32_t state = 1;
    for (int i = 0; i < CHUNK; i++) {
        state = state * 1664525u + 1013904223u;
        bytes[i] = (uint8_t)(i % 2 == 1 ? (state >> 24 & 0x83) | 0x10 : state >> 24);
    }
}

static void place_weight(struct model *m, struct weight *w, enum gguf_type type, int32_t n_in, int32_t n_out, uint32_t group)
{
    struct carat_error err = {0};
    *w = (struct weight){.name = "bench", .type = type, .n_in = n_in, .n_out = n_out, .n_slices = 1, .group = group};
    gguf_row_bytes(type, (uint64_t)n_in, &w->row_bytes);
    w->n_bytes = w->row_bytes * (uint64_t)n_out;
    if (!m->ops->weight_place(m->ops, w, NULL, false, &err))
        stop("weight", &err);
}

static void fill_weight(struct model *m, struct weight *w)
{
    struct carat_error err = {0};
    float *ones = NULL;
    if (w->type == GGUF_TYPE_F32) {
        ones = malloc(w->n_bytes);
        for (uint64_t i = 0; i < w->n_bytes / 4; i++)
            ones[i] = 1;
    }
    for (uint64_t at = 0; at < w->n_bytes; at += CHUNK) {
        uint64_t n = w->n_bytes - at < CHUNK ? w->n_bytes - at : CHUNK;
        if (!m->ops->weight_write(m->ops, w, at, ones != NULL ? (uint8_t *)ones + at : m->random, n, &err))
            stop("weight", &err);
    }
    free(ones);
}

static void make_weight(struct model *m, struct weight *w, enum gguf_type type, int32_t n_in, int32_t n_out)
{
    place_weight(m, w, type, n_in, n_out, 0);
    fill_weight(m, w);
}

static struct tensor make_tensor(struct model *m, int32_t n_rows, int32_t n_cols)
{
    struct carat_error err = {0};
    struct buffer *buffer = m->ops->buffer_new(m->ops, (uint64_t)n_rows * (uint64_t)n_cols * 4, &err);
    if (buffer == NULL)
        stop("tensor", &err);
    return (struct tensor){.buffer = buffer, .n_rows = n_rows, .n_cols = n_cols};
}

static bool more_bits(int i, int n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static void make_cache(struct model *m, struct layer *l)
{
    struct carat_error err = {0};
    l->kv = (struct kv_layer){.capacity = l->is_sliding ? WINDOW - 1 + MAX_BATCH : m->n_context, .row_elems = l->head_dim};
    l->kv.k = m->ops->buffer_new(m->ops, (uint64_t)l->kv.capacity * (uint64_t)l->head_dim * 2, &err);
    l->kv.v = m->ops->buffer_new(m->ops, (uint64_t)l->kv.capacity * (uint64_t)l->head_dim * 2, &err);
    if (l->kv.k == NULL || l->kv.v == NULL)
        stop("cache", &err);
}

static void make_layer(struct model *m, int i)
{
    struct layer *l = &m->layers[i];
    const enum gguf_type f32 = GGUF_TYPE_F32, q4 = GGUF_TYPE_Q4_K;
    l->is_sliding = i % 5 != 4;
    l->head_dim = l->is_sliding ? 256 : 512;
    l->n_ff = i < OWN_KV ? 6144 : 12288;
    l->owner = i < OWN_KV ? i : l->is_sliding ? 13 : 14;
    l->qkv[0] = &l->q, l->qkv[1] = &l->k, l->qkv[2] = &l->v;
    int32_t n_heads = HEADS * l->head_dim;
    uint32_t group = (uint32_t)i + 1;
    place_weight(m, &l->q.weight, q4, D, n_heads, group);
    if (i < OWN_KV) {
        place_weight(m, &l->k.weight, q4, D, l->head_dim, group);
        place_weight(m, &l->v.weight, more_bits(i, OWN_KV) ? GGUF_TYPE_Q6_K : q4, D, l->head_dim, group);
        make_cache(m, l);
    }
    place_weight(m, &l->o.weight, q4, n_heads, D, group);
    place_weight(m, &l->gate.weight, q4, D, l->n_ff, group);
    place_weight(m, &l->up.weight, q4, D, l->n_ff, group);
    place_weight(m, &l->down.weight, more_bits(i, LAYERS) ? GGUF_TYPE_Q6_K : q4, l->n_ff, D, group);
    place_weight(m, &l->per_layer_gate.weight, q4, D, WIDTH, group);
    place_weight(m, &l->per_layer_out.weight, q4, WIDTH, D, group);
    struct linear *all[] = {&l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down, &l->per_layer_gate, &l->per_layer_out};
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (weight_exists(&all[k]->weight))
            fill_weight(m, &all[k]->weight);
    struct weight *norms[] = {&l->attn_norm, &l->post_attention_norm, &l->ffn_norm, &l->post_ffw_norm, &l->post_norm};
    for (size_t k = 0; k < sizeof norms / sizeof norms[0]; k++)
        make_weight(m, norms[k], f32, D, 1);
    make_weight(m, &l->q_norm, f32, l->head_dim, 1);
    make_weight(m, &l->k_norm, f32, l->head_dim, 1);
    make_weight(m, &l->scale, f32, 1, 1);
}

static void make_model(struct model *m)
{
    struct carat_error err = {0};
    m->random = malloc(CHUNK);
    fill_random(m->random);
    for (int i = 0; i < LAYERS; i++)
        make_layer(m, i);
    make_weight(m, &m->head.weight, GGUF_TYPE_Q6_K, D, m->n_vocabulary);
    make_weight(m, &m->table, GGUF_TYPE_Q6_K, LAYERS * WIDTH, 1024);
    make_weight(m, &m->projection.weight, GGUF_TYPE_BF16, D, LAYERS * WIDTH);
    make_weight(m, &m->projection_norm, GGUF_TYPE_F32, WIDTH, 1);
    make_weight(m, &m->output_norm, GGUF_TYPE_F32, D, 1);
    if (!m->ops->weights_ready(m->ops, &err))
        stop("weights", &err);
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &m->layers[i];
        struct layer *next = i + 1 < LAYERS ? l + 1 : NULL;
        l->end = (struct layer_end){.down = &l->down,
            .norm = &l->post_ffw_norm,
            .gate = &l->per_layer_gate,
            .proj = &l->per_layer_out,
            .post_norm = &l->post_norm,
            .next_norm = next != NULL ? &next->attn_norm : NULL,
            .next = next != NULL ? next->qkv : NULL,
            .n_next = next == NULL           ? 0
                      : next->owner == i + 1 ? 3
                                             : 1};
        m->ops->fold(m->ops, &l->end);
        m->n_folded += l->end.folded != NULL;
    }
    m->x = make_tensor(m, MAX_BATCH, D);
    m->spare = make_tensor(m, MAX_BATCH, D);
    m->term = make_tensor(m, MAX_BATCH, D);
    m->qkv = make_tensor(m, MAX_BATCH, (HEADS + 2) * 512);
    m->heads = make_tensor(m, MAX_BATCH, HEADS * 512);
    m->gated = make_tensor(m, MAX_BATCH, 12288);
    m->per_layer = make_tensor(m, MAX_BATCH, LAYERS * WIDTH);
    m->injected = make_tensor(m, MAX_BATCH, WIDTH);
    m->logits = make_tensor(m, 1, m->n_vocabulary);
    m->hidden = make_tensor(m, 1, D);
    m->ids = make_tensor(m, MAX_BATCH, 1);
    m->rope_sliding = make_tensor(m, MAX_BATCH, 256);
    m->rope_global = make_tensor(m, MAX_BATCH, 512);
}

static struct tensor view(struct tensor t, int32_t n_rows, int32_t n_cols)
{
    t.n_rows = n_rows;
    t.n_cols = n_cols;
    return t;
}

static void forward_layer(struct model *m, int i, struct stream *stream, int32_t n, int32_t position)
{
    struct ops *ops = m->ops;
    struct layer *l = &m->layers[i];
    int32_t n_heads = HEADS * l->head_dim;
    bool owns = l->owner == i;
    struct tensor qkv = view(m->qkv, n, n_heads + (owns ? 2 * l->head_dim : 0)), heads = view(m->heads, n, n_heads);
    struct tensor gated = view(m->gated, n, l->n_ff), term = view(m->term, n, D), injected = view(m->injected, n, WIDTH);
    struct attention attention = {
        .n_heads = HEADS,
        .n_kv_heads = 1,
        .head_dim = l->head_dim,
        .q_norm = &l->q_norm,
        .k_norm = &l->k_norm,
        .eps = 1e-6f,
        .writes_kv = owns,
        .window = l->is_sliding ? WINDOW : 0,
        .first_position = position,
        .rope = view(l->is_sliding ? m->rope_sliding : m->rope_global, n, l->head_dim),
        .kv = &m->layers[l->owner].kv,
    };
    ops->norm_project(ops, stream, &l->attn_norm, l->qkv, owns ? 3 : 1, qkv);
    ops->attend(ops, qkv, &attention, heads);
    ops->project(ops, heads, &l->o, term);
    stream->term = term;
    stream->term_norm = &l->post_attention_norm;
    ops->norm_gated(ops, stream, &l->ffn_norm, &l->gate, &l->up, ACTIVATION_GELU_TANH, gated);
    struct tensor per_layer = view(m->per_layer, n, LAYERS * WIDTH);
    if (n == 1 && l->end.folded != NULL) {
        ops->finish_layer(ops, stream, &l->end, gated, per_layer, i, term);
    } else {
        ops->project(ops, gated, &l->down, term);
        stream->term = term;
        stream->term_norm = &l->post_ffw_norm;
        ops->per_layer_gate(ops, stream, &l->per_layer_gate, per_layer, i, injected);
        ops->project(ops, injected, &l->per_layer_out, term);
    }
    stream->term = term;
    stream->term_norm = &l->post_norm;
    stream->scale = &l->scale;
}

// n positions through the layers that store keys, the last one through all: one step of prefill, or a decoded token.
static void forward(struct model *m, int32_t n, int32_t position)
{
    struct ops *ops = m->ops;
    struct token_ids ids = {.device = view(m->ids, n, 1)};
    struct stream stream = {.x = view(m->x, n, D), .spare = view(m->spare, n, D), .eps = 1e-6f};
    struct tensor per_layer = view(m->per_layer, n, LAYERS * WIDTH);
    float angles[512] = {1};
    ops->write(ops, m->rope_global.buffer, 0, angles, sizeof angles);
    ops->embed(ops, &m->head.weight, &ids, 39.19f, stream.x);
    ops->embed(ops, &m->table, &ids, 16, per_layer);
    ops->per_layer_inputs(ops, stream.x, per_layer, &m->projection, &m->projection_norm, 1e-6f, LAYERS, per_layer);
    for (int i = 0; i < LAYERS; i++) {
        if (i == OWN_KV && n > 1) {
            ops->settle(ops, &stream);
            struct tensor last = view(stream.spare, 1, D);
            ops->copy_rows(ops, stream.x, n - 1, last, 0, 1);
            stream.spare = view(stream.x, 1, D);
            stream.x = last;
            position += n - 1;
            n = 1;
        }
        forward_layer(m, i, &stream, n, position);
    }
    ops->norm(ops, &stream, &m->output_norm, m->hidden);
    ops->head(ops, m->hidden, &m->head, 30, NULL, 0, m->logits);
    ops->argmax(ops, m->logits, 0, m->hidden);
}

static void finish(struct model *m, int32_t ticket)
{
    struct carat_error err = {0};
    m->ops->wait(m->ops, ticket);
    if (m->ops->poll(m->ops, ticket, &err) != OPS_DONE)
        stop("run", &err);
}

static int32_t start_read(struct model *m, int32_t *id)
{
    struct carat_error err = {0};
    int32_t ticket = m->ops->read_start(m->ops, m->hidden.buffer, 0, 4, id, &err);
    if (ticket < 0)
        stop("run", &err);
    return ticket;
}

static double decode(struct model *m, int n, int depth)
{
    int32_t ids[IN_FLIGHT], tickets[IN_FLIGHT];
    double start = now(), encoding = 0;
    for (int i = 0; i < n; i++) {
        if (i >= IN_FLIGHT)
            finish(m, tickets[i % IN_FLIGHT]);
        double before = now();
        forward(m, 1, depth + i);
        tickets[i % IN_FLIGHT] = start_read(m, &ids[i % IN_FLIGHT]);
        encoding += now() - before;
    }
    for (int i = n > IN_FLIGHT ? n - IN_FLIGHT : 0; i < n; i++)
        finish(m, tickets[i % IN_FLIGHT]);
    double seconds = now() - start;
    printf("decode %d at depth %d: %.1f tokens/s (encoding %.0f us a token)\n", n, depth, n / seconds, encoding / n * 1e6);
    return seconds;
}

static void prefill(struct model *m, int n, int depth)
{
    int32_t id;
    double start = now();
    for (int at = 0; at < n; at += MAX_BATCH)
        forward(m, n - at < MAX_BATCH ? n - at : MAX_BATCH, depth + at);
    finish(m, start_read(m, &id));
    double seconds = now() - start;
    printf("prefill %d at depth %d: %.1f tokens/s (%.2f ms)\n", n, depth, n / seconds, seconds * 1e3);
}

static void profile(struct model *m, bool is_prefill, int n, int depth)
{
    static char table[1 << 14];
    int32_t id;
    if (!webgpu_profile_start(m->ops))
        return;
    forward(m, is_prefill ? n : 1, depth);
    finish(m, start_read(m, &id));
    if (webgpu_profile_end(m->ops, table, sizeof table))
        printf("-- kernels of %s --\n%s", is_prefill ? "prefill" : "one token", table);
}

static int number_after(int argc, char **argv, const char *name, int otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return atoi(argv[i + 1]);
    return otherwise;
}

static bool has(int argc, char **argv, const char *name)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    struct carat_error err = {0};
    struct webgpu_options options = {.max_batch = MAX_BATCH};
    if (has(argc, argv, "--upload")) {
        int n_mib = number_after(argc, argv, "--upload", 0);
        bench_upload(n_mib > 0 ? n_mib : 2048);
        return 0;
    }
    options.folding = has(argc, argv, "--fold")      ? WEBGPU_FOLDS_ALWAYS
                      : has(argc, argv, "--no-fold") ? WEBGPU_FOLDS_NEVER
                                                     : WEBGPU_FOLDS_WHERE_IT_PAYS;
    static struct model m;
    m.ops = webgpu_ops_new(&options, &err);
    if (m.ops == NULL)
        stop("device", &err);
    int n_decode = number_after(argc, argv, "--decode", 128), depth = number_after(argc, argv, "--depth", 0);
    int n_prefill = number_after(argc, argv, "--prefill", 512);
    m.n_vocabulary = number_after(argc, argv, "--vocabulary", 262144);
    m.n_context = depth + 4096 + n_prefill;
    double start = now();
    make_model(&m);
    printf("%s, weights made in %.1f s, %d of %d layers folded\n", m.ops->device, now() - start, m.n_folded, LAYERS);
    decode(&m, 8, depth); // kernels are made
    int64_t before = m.ops->n_dispatches;
    for (int i = 0; i < 3 && n_decode > 0; i++)
        decode(&m, n_decode, depth);
    if (n_decode > 0)
        printf("%.1f dispatches a token\n", (double)(m.ops->n_dispatches - before) / (3.0 * n_decode));
    if (n_prefill > 1) {
        prefill(&m, n_prefill, 0);
        for (int i = 0; i < 3; i++)
            prefill(&m, n_prefill, 0);
    }
    if (has(argc, argv, "--profile")) {
        profile(&m, false, 1, depth);
        if (n_prefill > 1)
            profile(&m, true, n_prefill < MAX_BATCH ? n_prefill : MAX_BATCH, 0);
    }
    return 0;
}
