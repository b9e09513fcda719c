// webgpu_stream.h: a residual stream on both backends, for tests.

#ifndef CARAT_TESTS_WEBGPU_STREAM_H
#define CARAT_TESTS_WEBGPU_STREAM_H

#include "webgpu_pair.h"

struct stream_case {
    int32_t n_rows, d;
    bool has_term, has_term_norm, has_scale, has_norm;
};

struct twin_stream {
    struct twin x, spare, term;
    struct twin_weight term_norm, scale, norm;
    struct stream gpu, ref;
};

// The streams point into *s, which must stay where it is.
static inline void make_stream(const struct stream_case *c, struct twin_stream *s)
{
    *s = (struct twin_stream){0};
    s->x = make_twin(gpu, ref, c->n_rows, c->d, 2);
    s->spare = make_twin(gpu, ref, c->n_rows, c->d, 0);
    s->term = make_twin(gpu, ref, c->n_rows, c->d, 3);
    s->term_norm = make_vector(gpu, c->d);
    s->scale = make_vector(gpu, 1);
    s->norm = make_vector(gpu, c->d);
    s->gpu = (struct stream){.x = s->x.gpu, .spare = s->spare.gpu, .eps = 1e-6f};
    s->ref = (struct stream){.x = s->x.ref, .spare = s->spare.ref, .eps = 1e-6f};
    if (c->has_term) {
        s->gpu.term = s->term.gpu;
        s->ref.term = s->term.ref;
    }
    s->gpu.term_norm = c->has_term && c->has_term_norm ? &s->term_norm.gpu : NULL;
    s->ref.term_norm = c->has_term && c->has_term_norm ? &s->term_norm.ref : NULL;
    s->gpu.scale = c->has_scale ? &s->scale.gpu : NULL;
    s->ref.scale = c->has_scale ? &s->scale.ref : NULL;
}

static inline void check_settled(struct twin_stream *s, const char *what)
{
    struct twin settled = {s->gpu.x, s->ref.x};
    assert_close(gpu, ref, &settled, "settled stream after %s", what);
    assert_null(s->gpu.term.buffer);
}

static inline void free_stream(struct twin_stream *s)
{
    free_twin(gpu, ref, &s->x);
    free_twin(gpu, ref, &s->spare);
    free_twin(gpu, ref, &s->term);
    free_weight(gpu, &s->term_norm);
    free_weight(gpu, &s->scale);
    free_weight(gpu, &s->norm);
}

#endif
