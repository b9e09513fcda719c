// sample.c: the largest logits of a row.
//
// A NaN among the logits makes the next poll or read fail with CARAT_BAD_NUMBER: no token can be chosen from rubbish.

#include <assert.h>
#include <math.h>
#include <string.h>

#include "cpu/cpu_internal.h"

enum { CHUNK = 512 };

struct scan {
    struct cpu *cpu;
    const float *values;
    int32_t n, n_chunks;
    float *tops; // [n_chunks], the largest of each chunk
    float *sums; // [n_chunks], sum of exp(x - top), or NULL
    float top;
    _Atomic size_t next_top, next_sum;
};

static int32_t chunk_length(const struct scan *scan, size_t chunk)
{
    int32_t left = scan->n - (int32_t)chunk * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

static void run_tops(void *context, int index, int n_threads)
{
    (void)index, (void)n_threads;
    struct scan *scan = context;
    enum { STEP = 32 };
    for (size_t first; (first = cpu_next(&scan->next_top) * STEP) < (size_t)scan->n_chunks;) {
        for (size_t c = first; c < first + STEP && c < (size_t)scan->n_chunks; c++)
            scan->tops[c] = scan->cpu->kernels->largest(scan->values + c * CHUNK, chunk_length(scan, c));
    }
}

static void run_sums(void *context, int index, int n_threads)
{
    (void)index, (void)n_threads;
    struct scan *scan = context;
    enum { STEP = 16 };
    for (size_t first; (first = cpu_next(&scan->next_sum) * STEP) < (size_t)scan->n_chunks;) {
        for (size_t c = first; c < first + STEP && c < (size_t)scan->n_chunks; c++)
            scan->sums[c] = scan->cpu->kernels->sum_exp(scan->values + c * CHUNK, scan->top, chunk_length(scan, c));
    }
}

// Finds the largest value of every chunk and of all. False when memory is short or a value is NaN.
static bool scan_row(struct cpu *cpu, struct tensor logits, int32_t row, struct scan *scan)
{
    *scan = (struct scan){.cpu = cpu,
        .values = cpu_floats(logits) + (size_t)row * (size_t)logits.n_cols,
        .n = logits.n_cols,
        .n_chunks = (logits.n_cols + CHUNK - 1) / CHUNK,
        .top = -INFINITY};
    scan->tops = (float *)(void *)cpu_room(cpu, 2 * (size_t)scan->n_chunks * sizeof *scan->tops);
    if (scan->tops == NULL)
        return false;
    scan->sums = scan->tops + scan->n_chunks;
    threads_run(cpu->threads, run_tops, scan);
    for (int32_t c = 0; c < scan->n_chunks; c++) {
        if (isnan(scan->tops[c]))
            return fail(&cpu->host.failure, CARAT_BAD_NUMBER,
                "a logit near token %d is not a number; the model file or a layer's result is damaged", c * CHUNK);
        scan->top = scan->tops[c] > scan->top ? scan->tops[c] : scan->top;
    }
    return true;
}

void cpu_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id)
{
    struct scan scan;
    int32_t best = 0;
    if (scan_row((struct cpu *)ops, logits, row, &scan)) {
        int32_t c = 0;
        while (scan.tops[c] != scan.top)
            c++;
        best = c * CHUNK;
        while (scan.values[best] != scan.top)
            best++;
    }
    cpu_ints(id)[0] = best;
}

// The k-th largest of the chunks' largest values: at least k logits are not below it. -infinity when there are fewer chunks.
static float threshold(const struct scan *scan, int32_t k, float *best)
{
    if (scan->n_chunks < k)
        return -INFINITY;
    int32_t n = 0;
    for (int32_t c = 0; c < scan->n_chunks; c++) {
        int32_t at = n;
        while (at > 0 && scan->tops[c] > best[at - 1])
            at--;
        if (at == k)
            continue;
        memmove(best + at + 1, best + at, (size_t)((n < k ? n : k - 1) - at) * sizeof *best);
        best[at] = scan->tops[c];
        n += n < k;
    }
    return best[k - 1];
}

void cpu_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out)
{
    struct cpu *cpu = (struct cpu *)ops;
    assert(k >= 1 && k <= 256 && k <= logits.n_cols && out.n_cols == 2 * k + 2);
    struct scan scan;
    int32_t *ids = cpu_ints(out);
    float *best = cpu_floats(out) + k;
    memset(ids, 0, (size_t)out.n_cols * sizeof *ids);
    if (!scan_row(cpu, logits, row, &scan))
        return;
    float least = threshold(&scan, k, best);
    int32_t n = 0;
    for (int32_t c = 0; c < scan.n_chunks; c++) {
        if (scan.tops[c] < least || (n == k && scan.tops[c] <= best[k - 1]))
            continue;
        for (int32_t v = c * CHUNK, end = v + chunk_length(&scan, (size_t)c); v < end; v++) {
            // Insertion into the sorted list; an equal logit of a lower id stays in front.
            float value = scan.values[v];
            if (n == k && value <= best[k - 1])
                continue;
            int32_t at = n < k ? n : k - 1, n_moved;
            while (at > 0 && value > best[at - 1])
                at--;
            n_moved = (n < k ? n : k - 1) - at;
            memmove(best + at + 1, best + at, (size_t)n_moved * sizeof *best);
            memmove(ids + at + 1, ids + at, (size_t)n_moved * sizeof *ids);
            best[at] = value;
            ids[at] = v;
            n += n < k;
        }
    }
    threads_run(cpu->threads, run_sums, &scan);
    double total = 0;
    for (int32_t c = 0; c < scan.n_chunks; c++)
        total += scan.sums[c];
    best[k] = scan.top;
    best[k + 1] = (float)log(total);
}
