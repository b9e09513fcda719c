// draw_rig.h: the backends' draws beside the sampler's, for the tests of the operation.

#ifndef CARAT_TESTS_DRAW_RIG_H
#define CARAT_TESTS_DRAW_RIG_H

#include "golden.h"

#include "ref/ref.h"
#include "text/sampler.h"

// A kernel weighs and adds in f32: an exponential is off by some 1e-6 of itself, a sum of 256 weights by as much. So a choice can
// differ where the place drawn, or the end of top-p or min-p, is within about that of a token's border.
#define BOUNDARY 2e-5

enum { N_CHAIN = 3, N_SUPPRESSED = 2, ROOM_IDS = 0, ROOM_WINDOW = 1024, ROOM_BIAS_IDS = 8192, ROOM_BIAS_VALUES = 16384 };

GOLDEN_HELPER uint32_t random_below(uint32_t n)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 32) * n >> 32);
}

GOLDEN_HELPER float random_unit(void)
{
    return (float)random_below(1u << 24) * 0x1p-24f;
}

// A backend with room for everything that a draw takes.
struct drawer {
    struct ops *ops;
    struct tensor logits; // [N_CHAIN, n_vocab]
    struct buffer *room;
};

GOLDEN_HELPER struct drawer drawer_new(struct ops *ops, int32_t n_vocab)
{
    struct carat_error err = {0};
    struct drawer drawer = {.ops = ops, .logits = {.n_rows = N_CHAIN, .n_cols = n_vocab}};
    drawer.logits.buffer = ops->buffer_new(ops, (uint64_t)N_CHAIN * (uint64_t)n_vocab * 4, &err);
    drawer.room = ops->buffer_new(ops, ROOM_BIAS_VALUES + DRAW_MAX_BIASES * 4, &err);
    require(drawer.logits.buffer != NULL && drawer.room != NULL, err);
    return drawer;
}

GOLDEN_HELPER void drawer_free(struct drawer *drawer)
{
    drawer->ops->buffer_free(drawer->ops, drawer->logits.buffer);
    drawer->ops->buffer_free(drawer->ops, drawer->room);
}

GOLDEN_HELPER struct tensor room_at(const struct drawer *drawer, int32_t offset, int32_t n_rows)
{
    return (struct tensor){.buffer = drawer->room, .offset = (uint64_t)offset, .n_rows = n_rows, .n_cols = 1};
}

// --- a case: parameters, history, logits ---------------------------------------------------------------------------------------

struct draw_case {
    int32_t n_vocab;
    float *logits; // [N_CHAIN, n_vocab]
    struct sampler_params params;
    struct sampler_bias biases[DRAW_MAX_BIASES];
    int32_t suppressed[N_SUPPRESSED];
    struct sampler *sampler;
};

#define ONE_OF(...) ((const float[]){__VA_ARGS__})[random_below(sizeof((const float[]){__VA_ARGS__}) / sizeof(float))]

static struct sampler_params random_params(void)
{
    return (struct sampler_params){
        .temperature = ONE_OF(0, 0.3f, 0.7f, 1, 1, 1.5f),
        .top_k = (int32_t)ONE_OF(1, 5, 40, 64, 64, 256),
        .top_p = ONE_OF(0.1f, 0.5f, 0.95f, 0.95f, 1),
        .min_p = ONE_OF(0, 0, 0.05f, 0.3f),
        .repetition_penalty = ONE_OF(1, 1, 1.1f, 1.3f, 0.8f),
        .presence_penalty = ONE_OF(0, 0, 0.5f, -0.5f),
        .frequency_penalty = ONE_OF(0, 0, 0.3f),
        .penalty_window = (int32_t)ONE_OF(0, 2, 8, 64, 64, DRAW_MAX_WINDOW),
        .n_bias = (size_t)ONE_OF(0, 0, 3, 40, DRAW_MAX_BIASES),
        .seed = 1 + random_below(UINT32_MAX),
    };
}

// Scores as models give them: most far below a few; now and then in steps, so that many are equal; some forbidden.
static void random_logits(struct draw_case *c)
{
    float spread = ONE_OF(2, 5, 12), step = ONE_OF(0, 0, 0, 0.5f);
    for (int32_t i = 0; i < N_CHAIN * c->n_vocab; i++) {
        float x = random_unit() + random_unit() + random_unit() + random_unit() - 2;
        c->logits[i] = step > 0 ? step * roundf(x * spread / step) : x * spread;
    }
    for (int32_t row = 0; row < N_CHAIN; row++) {
        float *logits = c->logits + (size_t)row * (size_t)c->n_vocab;
        for (int i = 0; i < N_SUPPRESSED; i++)
            logits[c->suppressed[i]] = -3.0e38f;
        logits[random_below((uint32_t)c->n_vocab)] = -INFINITY;
    }
}

GOLDEN_HELPER struct draw_case *random_case(int32_t n_vocab)
{
    struct carat_error err = {0};
    struct draw_case *c = calloc(1, sizeof *c);
    c->n_vocab = n_vocab;
    c->logits = malloc((size_t)N_CHAIN * (size_t)n_vocab * sizeof *c->logits);
    for (int i = 0; i < N_SUPPRESSED; i++)
        c->suppressed[i] = (int32_t)random_below((uint32_t)n_vocab);
    c->params = random_params();
    c->params.bias = c->biases;
    uint32_t n_near = random_below(2) != 0 ? 16 : (uint32_t)n_vocab; // few ids: the same ones again and again
    for (size_t i = 0; i < c->params.n_bias; i++)
        c->biases[i] = (struct sampler_bias){
            (int32_t)random_below(i % 2 != 0 ? n_near : (uint32_t)n_vocab), ONE_OF(-INFINITY, -2.5f, 0.25f, 1.7f, 4)};
    random_logits(c);
    c->sampler = sampler_new(n_vocab, &c->params, c->suppressed, N_SUPPRESSED, &err);
    require(c->sampler != NULL, err);
    for (uint32_t n = random_below((uint32_t)c->params.penalty_window * 2 + 1); n > 0; n--)
        sampler_accept(c->sampler, (int32_t)random_below(n_near));
    return c;
}

GOLDEN_HELPER void case_free(struct draw_case *c)
{
    sampler_free(c->sampler);
    free(c->logits);
    free(c);
}

// --- the same choices both ways ------------------------------------------------------------------------------------------------

// What the backend needs for the next draw of the case; writes logits, window and biases.
GOLDEN_HELPER struct draw prepare_draw(const struct drawer *d, const struct draw_case *c)
{
    const struct sampler_params *p = &c->params;
    int32_t ids[DRAW_MAX_WINDOW + 1], bias_ids[DRAW_MAX_BIASES];
    float bias_values[DRAW_MAX_BIASES];
    struct draw draw = {
        .temperature = p->temperature,
        .top_k = p->top_k,
        .top_p = p->top_p,
        .min_p = p->min_p,
        .repetition_penalty = p->repetition_penalty,
        .presence_penalty = p->presence_penalty,
        .frequency_penalty = p->frequency_penalty,
        .random = sampler_random(c->sampler, 0),
    };
    d->ops->write(d->ops, d->logits.buffer, 0, c->logits, (uint64_t)N_CHAIN * (uint64_t)c->n_vocab * 4);
    if (sampler_penalises(c->sampler)) {
        draw.n_window = sampler_history(c->sampler, ids);
        draw.window = room_at(d, ROOM_WINDOW, p->penalty_window);
        draw.window_slot = draw.n_window % p->penalty_window;
        if (draw.n_window > 0)
            d->ops->write(d->ops, d->room, ROOM_WINDOW, ids, (uint64_t)draw.n_window * 4);
    }
    for (size_t i = 0; i < p->n_bias; i++) {
        bias_ids[i] = c->biases[i].id;
        bias_values[i] = fmaxf(c->biases[i].value, -3.0e38f);
    }
    if (p->n_bias > 0) {
        draw.bias_ids = room_at(d, ROOM_BIAS_IDS, (int32_t)p->n_bias);
        draw.bias_values = room_at(d, ROOM_BIAS_VALUES, (int32_t)p->n_bias);
        d->ops->write(d->ops, d->room, ROOM_BIAS_IDS, bias_ids, p->n_bias * 4);
        d->ops->write(d->ops, d->room, ROOM_BIAS_VALUES, bias_values, p->n_bias * 4);
    }
    return draw;
}

GOLDEN_HELPER void read_room(const struct drawer *d, int32_t offset, uint64_t n_bytes, void *target)
{
    struct carat_error err = {0};
    int32_t ticket = d->ops->read_start(d->ops, d->room, (uint64_t)offset, n_bytes, target, &err);
    require(ticket >= 0, err);
    d->ops->wait(d->ops, ticket);
    require(d->ops->poll(d->ops, ticket, &err) == OPS_DONE, err);
}

// N_CHAIN tokens, all drawn before the host sees the first.
GOLDEN_HELPER void draw_chain(const struct drawer *d, const struct draw_case *c, int32_t ids[N_CHAIN])
{
    struct draw draw = prepare_draw(d, c);
    for (int32_t i = 0; i < N_CHAIN; i++) {
        draw.random = sampler_random(c->sampler, c->params.temperature > 0 ? i : 0);
        d->ops->draw(d->ops, d->logits, i, &draw, room_at(d, ROOM_IDS + 256 * i, 1));
        if (draw.window.buffer == NULL)
            continue;
        draw.n_window += draw.n_window < draw.window.n_rows;
        draw.window_slot = (draw.window_slot + 1) % draw.window.n_rows;
    }
    for (int32_t i = 0; i < N_CHAIN; i++)
        read_room(d, ROOM_IDS + 256 * i, sizeof ids[i], &ids[i]);
}

// May rounding have made the backend take `id` as the first token? Then the reference takes it too when the random number, top-p
// or min-p are a little different.
GOLDEN_HELPER bool is_near_a_boundary(const struct drawer *judge, const struct draw_case *c, int32_t id)
{
    static const double shifts[] = {0, -BOUNDARY, BOUNDARY};
    for (int i = 0; i < 27; i++) {
        struct draw draw = prepare_draw(judge, c);
        int32_t other;
        double random = draw.random + 0x1p32 * shifts[i % 3];
        draw.random = (uint32_t)fmin(fmax(random, 0), UINT32_MAX);
        draw.top_p *= (float)(1 + shifts[i / 3 % 3]);
        draw.min_p *= (float)(1 + shifts[i / 9]);
        judge->ops->draw(judge->ops, judge->logits, 0, &draw, room_at(judge, ROOM_IDS, 1));
        read_room(judge, ROOM_IDS, sizeof other, &other);
        if (other == id)
            return true;
    }
    return false;
}

// What the sampler takes one after the other.
static void sample_chain(const struct draw_case *c, int32_t ids[N_CHAIN])
{
    struct carat_error err = {0};
    for (int32_t i = 0; i < N_CHAIN; i++) {
        float *logits = malloc((size_t)c->n_vocab * sizeof *logits); // the sampler changes them
        memcpy(logits, c->logits + (size_t)i * (size_t)c->n_vocab, (size_t)c->n_vocab * sizeof *logits);
        require(sampler_sample(c->sampler, logits, &ids[i], NULL, &err), err);
        sampler_accept(c->sampler, ids[i]);
        free(logits);
    }
}

// Chains of random cases, beside what the sampler takes. A chain is left after a difference, since its window differs from there
// on; a first token that differs must lie at a boundary. Returns the number of chains with a difference.
GOLDEN_HELPER int compare_draws(struct ops *ops, int32_t n_vocab, int n_cases)
{
    struct carat_error err = {0};
    int n_different = 0;
    struct ops *ref = ref_ops_new(&err);
    struct drawer drawer = drawer_new(ops, n_vocab), judge = drawer_new(ref, n_vocab);
    for (int n = 0; n < n_cases; n++) {
        struct draw_case *c = random_case(n_vocab);
        int32_t ids[N_CHAIN], expected[N_CHAIN];
        uint8_t before[1 << 14];
        size_t n_before = sampler_dump(c->sampler, true, before, sizeof before);
        draw_chain(&drawer, c, ids);
        sample_chain(c, expected);
        n_different += memcmp(ids, expected, sizeof ids) != 0;
        if (ids[0] != expected[0]) {
            require(sampler_restore(c->sampler, before, n_before, &err), err);
            if (!is_near_a_boundary(&judge, c, ids[0]))
                give_up("case %d of %d tokens: %d instead of %d", n, n_vocab, ids[0], expected[0]);
        }
        case_free(c);
    }
    drawer_free(&drawer);
    drawer_free(&judge);
    ref->free(ref);
    return n_different;
}

// --- what is no number ---------------------------------------------------------------------------------------------------------

// Is the choice refused: by an error at the next read or poll, or by a negative id?
GOLDEN_HELPER bool is_refused(const struct drawer *d)
{
    struct carat_error err = {0};
    int32_t id = 0;
    int32_t ticket = d->ops->read_start(d->ops, d->room, ROOM_IDS, sizeof id, &id, &err);
    if (ticket >= 0) {
        d->ops->wait(d->ops, ticket);
        if (d->ops->poll(d->ops, ticket, &err) == OPS_DONE)
            return id < 0;
    }
    return err.code == CARAT_BAD_NUMBER;
}

// One bad logit at the start, in the middle or at the end, or nothing that may be chosen.
GOLDEN_HELPER void check_bad_numbers(struct ops *ops, int32_t n_vocab)
{
    static const float bad[] = {NAN, INFINITY, -NAN};
    struct drawer d = drawer_new(ops, n_vocab);
    float *logits = calloc((size_t)n_vocab, sizeof *logits);
    const int32_t places[] = {0, n_vocab / 2, n_vocab - 1};
    struct tensor ids = room_at(&d, ROOM_IDS, 1), best = ids;
    best.n_cols = 2 * 5 + 2;
    struct draw draw = {.temperature = 1, .top_k = 40, .top_p = 0.95f, .repetition_penalty = 1};
    for (int i = 0; i < 9; i++) {
        logits[places[i / 3]] = bad[i % 3];
        ops->write(ops, d.logits.buffer, 0, logits, (uint64_t)n_vocab * 4);
        ops->argmax(ops, d.logits, 0, ids);
        assert_true(is_refused(&d));
        ops->top_k(ops, d.logits, 0, 5, best);
        assert_true(is_refused(&d));
        draw.temperature = (float)(i % 2);
        if (ops->draw != NULL) {
            ops->draw(ops, d.logits, 0, &draw, ids);
            assert_true(is_refused(&d));
        }
        logits[places[i / 3]] = 0;
    }
    ops->write(ops, d.logits.buffer, 0, logits, (uint64_t)n_vocab * 4);
    ops->argmax(ops, d.logits, 0, ids);
    assert_false(is_refused(&d));
    for (int32_t v = 0; v < n_vocab; v++)
        logits[v] = -3.0e38f;
    ops->write(ops, d.logits.buffer, 0, logits, (uint64_t)n_vocab * 4);
    if (ops->draw != NULL) {
        ops->draw(ops, d.logits, 0, &draw, ids);
        assert_true(is_refused(&d));
    }
    free(logits);
    drawer_free(&d);
}

#endif
