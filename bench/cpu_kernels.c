// cpu_kernels.c: how fast the CPU backend's products are, against the memory's speed.
//
//     cpu_kernels [threads [isa [type ...]]]      e.g. kernels 1 AVX2 Q4_K Q6_K; isa "": the best
//
// Decoding: GB/s of weights read by a product with one column, from a buffer larger than the caches; `read` is a plain sum over
// the same bytes. Prefill: billions of multiply-adds a second of a product with 256 columns. Medians of several runs. With one
// thread the processor's time is taken instead of the clock's, so that other programs on the machine disturb less.

#include "cpu/cpu_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <time.h>

#include "base/clock.h"
#include "base/number.h"
#include "base/threads.h"

enum { RUNS = 9, DEPTH = 1536, PREFILL_COLS = 256, PREFILL_ROWS = 6144 };
static const uint64_t BUFFER_BYTES = 400u << 20;

static const enum gguf_type types[] = {GGUF_TYPE_Q4_K, GGUF_TYPE_Q6_K, GGUF_TYPE_Q5_K, GGUF_TYPE_Q8_0, GGUF_TYPE_Q4_0,
    GGUF_TYPE_Q4_1, GGUF_TYPE_Q5_0, GGUF_TYPE_Q5_1, GGUF_TYPE_Q3_K, GGUF_TYPE_Q2_K, GGUF_TYPE_IQ4_NL, GGUF_TYPE_IQ4_XS,
    GGUF_TYPE_MXFP4, GGUF_TYPE_NVFP4, GGUF_TYPE_BF16, GGUF_TYPE_F16, GGUF_TYPE_F32};

static bool alone; // one thread

static double now_ms(void)
{
    struct timespec t;
    if (!alone)
        return clock_ms();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

struct reading {
    const uint8_t *bytes;
    uint64_t n_bytes;
    _Atomic size_t next;
    _Atomic uint64_t sum;
};

static void read_all(void *context, int index, int n_threads)
{
    (void)index, (void)n_threads;
    enum { PIECE = 128 * 1024 };
    typedef uint64_t lanes __attribute__((vector_size(64), aligned(8)));
    struct reading *job = context;
    lanes total = {0};
    for (size_t piece; (piece = cpu_next(&job->next)) < job->n_bytes / PIECE;) {
        const lanes *at = (const void *)(job->bytes + piece * PIECE);
        for (size_t i = 0; i < PIECE / sizeof *at; i += 4)
            total += (at[i] + at[i + 1]) ^ (at[i + 2] + at[i + 3]);
    }
    for (int i = 0; i < 8; i++)
        job->sum += total[i];
}

static double read_speed(struct threads *threads, const uint8_t *bytes)
{
    double speeds[RUNS];
    for (int run = 0; run < RUNS; run++) {
        struct reading job = {.bytes = bytes, .n_bytes = BUFFER_BYTES};
        double start = now_ms();
        threads_run(threads, read_all, &job);
        speeds[run] = (double)BUFFER_BYTES / (now_ms() - start) / 1e6;
    }
    return median(speeds, RUNS);
}

static struct tensor new_tensor(struct ops *ops, int32_t n_rows, int32_t n_cols)
{
    struct tensor tensor = {.n_rows = n_rows, .n_cols = n_cols};
    tensor.buffer = ops->buffer_new(ops, (uint64_t)n_rows * (uint64_t)n_cols * 4, NULL);
    for (int64_t i = 0; tensor.buffer != NULL && i < (int64_t)n_rows * n_cols; i++)
        cpu_floats(tensor)[i] = (float)(rand() % 2001 - 1000) * 1e-3f;
    return tensor;
}

// Seconds of a product, the median of the runs.
static double product_time(
    struct ops *ops, const uint8_t *bytes, enum gguf_type type, int32_t n_in, int32_t n_out, int32_t n_cols)
{
    struct linear linear = {.weight = {.name = "w", .type = type, .n_in = n_in, .n_out = n_out, .n_slices = 1}};
    gguf_row_bytes(type, (uint64_t)n_in, &linear.weight.row_bytes);
    linear.weight.n_bytes = linear.weight.row_bytes * (uint64_t)n_out;
    ops->weight_place(ops, &linear.weight, bytes, false, NULL);
    struct tensor in = new_tensor(ops, n_cols, n_in), out = new_tensor(ops, n_cols, n_out);
    double seconds[RUNS];
    for (int run = 0; run < RUNS; run++) {
        double start = now_ms();
        ops->project(ops, in, &linear, out);
        seconds[run] = (now_ms() - start) / 1e3;
    }
    ops->buffer_free(ops, in.buffer);
    ops->buffer_free(ops, out.buffer);
    return median(seconds, RUNS);
}

// Milliseconds of one attention with n_keys positions in the cache: E2B's 8 query heads on one key head, 16-bit keys and values.
// They come from memory, as in a model, whose weights pass through the processor's caches between two layers: `bytes` do here.
static double attention_time(
    struct ops *ops, const uint8_t *bytes, int32_t head_dim, int32_t n_keys, int32_t window, int32_t n_rows)
{
    enum { HEADS = 8 };
    uint64_t n_bytes = (uint64_t)n_keys * (uint64_t)head_dim * 2;
    struct kv_layer kv = {.k = ops->buffer_new(ops, n_bytes, NULL),
        .v = ops->buffer_new(ops, n_bytes, NULL),
        .capacity = n_keys,
        .row_elems = head_dim};
    memset(kv.k->bytes, 1, n_bytes); // else all pages are the one of zeros
    memset(kv.v->bytes, 1, n_bytes);
    struct tensor qkv = new_tensor(ops, n_rows, (HEADS + 2) * head_dim), out = new_tensor(ops, n_rows, HEADS * head_dim);
    struct tensor rope = new_tensor(ops, n_rows, head_dim), norm = new_tensor(ops, 1, head_dim);
    struct weight weight = {.name = "norm", .type = GGUF_TYPE_F32, .n_in = head_dim, .n_out = 1, .home = WEIGHT_HOST};
    weight.host = cpu_floats(norm);
    struct attention attention = {.n_heads = HEADS,
        .n_kv_heads = 1,
        .head_dim = head_dim,
        .q_norm = &weight,
        .k_norm = &weight,
        .eps = 1e-6f,
        .writes_kv = true,
        .window = window,
        .first_position = n_keys - n_rows,
        .rope = rope,
        .kv = &kv};
    double times[RUNS];
    for (int run = 0; run < RUNS; run++) {
        struct reading weights = {.bytes = bytes, .n_bytes = BUFFER_BYTES};
        threads_run(((struct cpu *)ops)->threads, read_all, &weights);
        double start = now_ms();
        ops->attend(ops, qkv, &attention, out);
        times[run] = now_ms() - start;
    }
    struct buffer *buffers[] = {kv.k, kv.v, qkv.buffer, out.buffer, rope.buffer, norm.buffer};
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++)
        ops->buffer_free(ops, buffers[i]);
    return median(times, RUNS);
}

// What a token of E2B spends in attention (28 layers with a window of 512 and heads of 256, 7 global ones with heads of 512).
static void attention_table(struct ops *ops, const uint8_t *bytes)
{
    double window = attention_time(ops, bytes, 256, 512, 512, 1);
    for (int32_t depth = 512; depth <= 8192; depth *= 4)
        printf("decode at depth %4d: %.2f ms of attention a token\n", depth,
            28 * window + 7 * attention_time(ops, bytes, 512, depth, 0, 1));
    printf("prefill of 256 rows: window %.2f ms a layer, global at depth 1024 %.2f ms a layer\n",
        attention_time(ops, bytes, 256, 767, 512, 256), attention_time(ops, bytes, 512, 1024, 0, 256));
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    int n_threads = argc > 1 ? atoi(argv[1]) : 0;
    struct carat_error err = {0};
    struct ops *ops = cpu_ops_new_with(n_threads, false, argc > 2 && argv[2][0] != '\0' ? argv[2] : NULL, &err);
    uint8_t *bytes = aligned_alloc(4096, BUFFER_BYTES);
    if (ops == NULL || bytes == NULL) {
        fprintf(stderr, "%s\n", ops == NULL ? err.message : "no memory");
        return 1;
    }
    for (uint64_t i = 0; i < BUFFER_BYTES; i += 2) { // any bytes that are small halves
        bytes[i] = (uint8_t)rand();
        bytes[i + 1] = (uint8_t)(rand() & 0x2f);
    }
    struct threads *threads = ((struct cpu *)ops)->threads;
    alone = threads_count(threads) == 1;
    printf("%s\n", ops->device);
    attention_table(ops, bytes);
    printf("%-7s %8s %8s %6s %10s %10s\n", "type", "read", "decode", "ratio", "deep", "prefill");
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        bool wanted = argc <= 3;
        for (int i = 3; i < argc; i++)
            wanted |= strcmp(argv[i], gguf_type_name(types[t])) == 0;
        if (!wanted)
            continue;
        uint64_t row, deep_row;
        gguf_row_bytes(types[t], DEPTH, &row);
        gguf_row_bytes(types[t], 8 * DEPTH, &deep_row);
        int32_t n_out = (int32_t)(BUFFER_BYTES / row), n_deep = (int32_t)(BUFFER_BYTES / deep_row);
        double before = read_speed(threads, bytes);
        double decode = (double)row * n_out / product_time(ops, bytes, types[t], DEPTH, n_out, 1) / 1e9;
        double deep = (double)deep_row * n_deep / product_time(ops, bytes, types[t], 8 * DEPTH, n_deep, 1) / 1e9;
        double read = (before + read_speed(threads, bytes)) / 2;
        double prefill = (double)DEPTH * PREFILL_ROWS * PREFILL_COLS /
                         product_time(ops, bytes, types[t], DEPTH, PREFILL_ROWS, PREFILL_COLS) / 1e9;
        printf("%-7s %5.1f GB/s %5.1f %5.0f%% %5.1f %5.0f%% %6.0f GMAC/s\n", gguf_type_name(types[t]), read, decode,
            100 * decode / read, deep, 100 * deep / read, prefill);
    }
    free(bytes);
    ops->free(ops);
    return 0;
}
