// bench_profile.c: kernels are timed by the GPU backend itself; operations by standing in for each of them.

#include "bench_profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "webgpu/webgpu_ops.h"

enum { MAX_ENTRIES = 64, MAX_NAME = 64 };

struct entry {
    char name[MAX_NAME];
    double ms;
    long n;
};

static struct {
    struct ops plain; // the backend's own functions
    struct entry entries[MAX_ENTRIES];
    int n_entries;
} timed;

// The operation took the time since start_ms. weight: what it multiplied with, or NULL; its layer's number is left out.
static void add(const char *operation, const struct weight *weight, double start_ms)
{
    double ms = clock_ms() - start_ms;
    char name[MAX_NAME];
    const char *of = weight_exists(weight) ? weight->name : "";
    if (strncmp(of, "blk.", 4) == 0) {
        of += 4;
        while (isdigit((unsigned char)*of) || *of == '.')
            of++;
    }
    snprintf(name, sizeof name, "%s%s%.*s", operation, *of != 0 ? " " : "", (int)strcspn(of, "."), of);
    int i = 0;
    while (i < timed.n_entries && strcmp(timed.entries[i].name, name) != 0)
        i++;
    if (i == MAX_ENTRIES)
        return;
    if (i == timed.n_entries)
        memcpy(timed.entries[timed.n_entries++].name, name, sizeof name);
    timed.entries[i].ms += ms;
    timed.entries[i].n++;
}

// --- stand-ins, in the order of ops.h ------------------------------------------------------------------------------------------

static void embed(struct ops *ops, const struct weight *table, const struct token_ids *ids, float scale, struct tensor out)
{
    double start = clock_ms();
    timed.plain.embed(ops, table, ids, scale, out);
    add("embed", table, start);
}

static void copy_rows(struct ops *ops, struct tensor src, int32_t first_src, struct tensor dst, int32_t first_dst, int32_t n_rows)
{
    double start = clock_ms();
    timed.plain.copy_rows(ops, src, first_src, dst, first_dst, n_rows);
    add("copy_rows", NULL, start);
}

static void per_layer_inputs(struct ops *ops, struct tensor x, struct tensor rows, const struct linear *projection,
    const struct weight *norm, float eps, int32_t n_layers, struct tensor out)
{
    double start = clock_ms();
    timed.plain.per_layer_inputs(ops, x, rows, projection, norm, eps, n_layers, out);
    add("per_layer_inputs", NULL, start);
}

static void norm_project(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *const *parts,
    int n_parts, struct tensor out)
{
    double start = clock_ms();
    timed.plain.norm_project(ops, stream, norm, parts, n_parts, out);
    add(n_parts > 1 ? "norm_project q, k and v" : "norm_project", n_parts > 1 ? NULL : &parts[0]->weight, start);
}

static void attend(struct ops *ops, struct tensor qkv, const struct attention *attention, struct tensor out)
{
    double start = clock_ms();
    timed.plain.attend(ops, qkv, attention, out);
    add(attention->window > 0 ? "attend in a window" : "attend everywhere", NULL, start);
}

static void project(struct ops *ops, struct tensor in, const struct linear *linear, struct tensor out)
{
    double start = clock_ms();
    timed.plain.project(ops, in, linear, out);
    add("project", &linear->weight, start);
}

static void norm_gated(struct ops *ops, struct stream *stream, const struct weight *norm, const struct linear *gate,
    const struct linear *up, enum activation activation, struct tensor out)
{
    double start = clock_ms();
    timed.plain.norm_gated(ops, stream, norm, gate, up, activation, out);
    add("norm_gated, gate and up", NULL, start);
}

static void per_layer_gate(
    struct ops *ops, struct stream *stream, const struct linear *gate, struct tensor per_layer, int32_t layer, struct tensor out)
{
    double start = clock_ms();
    timed.plain.per_layer_gate(ops, stream, gate, per_layer, layer, out);
    add("per_layer_gate", NULL, start);
}

static void experts(struct ops *ops, struct tensor h, const struct experts *branch, struct tensor out)
{
    double start = clock_ms();
    timed.plain.experts(ops, h, branch, out);
    add("experts", NULL, start);
}

static void add_norms(struct ops *ops, struct tensor a, const struct weight *a_norm, struct tensor b, const struct weight *b_norm,
    float eps, struct tensor out)
{
    double start = clock_ms();
    timed.plain.add_norms(ops, a, a_norm, b, b_norm, eps, out);
    add("add_norms", NULL, start);
}

static void settle(struct ops *ops, struct stream *stream)
{
    double start = clock_ms();
    timed.plain.settle(ops, stream);
    add("settle", NULL, start);
}

static void norm(struct ops *ops, struct stream *stream, const struct weight *weight, struct tensor out)
{
    double start = clock_ms();
    timed.plain.norm(ops, stream, weight, out);
    add("norm", NULL, start);
}

static void head(struct ops *ops, struct tensor in, const struct linear *table, float cap, const int32_t *suppressed,
    int n_suppressed, struct tensor logits)
{
    double start = clock_ms();
    timed.plain.head(ops, in, table, cap, suppressed, n_suppressed, logits);
    add("head", NULL, start);
}

static void argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id)
{
    double start = clock_ms();
    timed.plain.argmax(ops, logits, row, id);
    add("argmax", NULL, start);
}

// --- starting and ending -------------------------------------------------------------------------------------------------------

static bool is_gpu(const struct ops *ops)
{
    return strcmp(ops->name, "webgpu") == 0;
}

bool profile_start(struct ops *ops)
{
    if (is_gpu(ops))
        return webgpu_profile_start(ops);
    timed.n_entries = 0;
    memset(timed.entries, 0, sizeof timed.entries);
    timed.plain = *ops;
    ops->embed = embed;
    ops->copy_rows = copy_rows;
    ops->per_layer_inputs = per_layer_inputs;
    ops->norm_project = norm_project;
    ops->attend = attend;
    ops->project = project;
    ops->norm_gated = norm_gated;
    ops->per_layer_gate = per_layer_gate;
    ops->experts = experts;
    ops->add_norms = add_norms;
    ops->settle = settle;
    ops->norm = norm;
    ops->head = head;
    ops->argmax = argmax;
    return true;
}

static int dearer_first(const void *a, const void *b)
{
    double x = ((const struct entry *)a)->ms;
    double y = ((const struct entry *)b)->ms;
    return (x < y) - (x > y);
}

bool profile_end(struct ops *ops, char *text, size_t capacity)
{
    if (is_gpu(ops))
        return webgpu_profile_end(ops, text, capacity);
    *ops = timed.plain;
    qsort(timed.entries, (size_t)timed.n_entries, sizeof *timed.entries, dearer_first);
    size_t used = 0;
    for (int i = 0; i < timed.n_entries && used < capacity; i++) {
        const struct entry *e = &timed.entries[i];
        used += (size_t)snprintf(text + used, capacity - used, "%10.1f us %6ld x %8.2f us  %s\n", e->ms * 1e3, e->n,
            e->ms * 1e3 / (double)e->n, e->name);
    }
    return timed.n_entries > 0;
}
