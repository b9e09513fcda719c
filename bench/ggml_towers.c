// ggml_towers.c: what the matrix products and the attention of a vision tower of E2B's size cost in ggml, llama.cpp's library,
// for comparison with bench/towers.c. Norms, rotations, clamps and the rest of the graph are left out, so this is a lower bound.
//
// Build it against a ggml of your own: cc -O2 bench/ggml_towers.c LIBGGML_CPU LIBGGML_BASE -lm
// usage: ggml_towers [PATCHES] [f16|bf16]
// Prints processor seconds of one thread, which hardly depend on what else the machine is doing.

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// The few declarations of ggml.h that are needed.
struct ggml_init_params {
    size_t mem_size;
    void *mem_buffer;
    bool no_alloc;
};
struct ggml_context;
struct ggml_tensor;
struct ggml_cgraph;
struct ggml_context *ggml_init(struct ggml_init_params params);
void ggml_free(struct ggml_context *context);
struct ggml_tensor *ggml_new_tensor_3d(struct ggml_context *context, int type, int64_t ne0, int64_t ne1, int64_t ne2);
struct ggml_tensor *ggml_mul_mat(struct ggml_context *context, struct ggml_tensor *a, struct ggml_tensor *b);
struct ggml_tensor *ggml_flash_attn_ext(struct ggml_context *context, struct ggml_tensor *q, struct ggml_tensor *k,
    struct ggml_tensor *v, struct ggml_tensor *mask, float scale, float max_bias, float logit_softcap);
struct ggml_cgraph *ggml_new_graph(struct ggml_context *context);
void ggml_build_forward_expand(struct ggml_cgraph *graph, struct ggml_tensor *tensor);
int ggml_graph_compute_with_ctx(struct ggml_context *context, struct ggml_cgraph *graph, int n_threads);
void *ggml_get_data(const struct ggml_tensor *tensor);
size_t ggml_nbytes(const struct ggml_tensor *tensor);
void ggml_cpu_init(void);

enum { F32 = 0, F16 = 1, BF16 = 30, LAYERS = 16, WIDTH = 768, FF = 3072, HEADS = 12, REPEAT = 3 };

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

// Small positive numbers of either kind.
static struct ggml_tensor *filled(struct ggml_context *context, int type, int64_t ne0, int64_t ne1, int64_t ne2)
{
    struct ggml_tensor *tensor = ggml_new_tensor_3d(context, type, ne0, ne1, ne2);
    size_t n_bytes = ggml_nbytes(tensor);
    uint16_t *halves = ggml_get_data(tensor);
    float *floats = ggml_get_data(tensor);
    for (size_t i = 0; type != F32 && i < n_bytes / 2; i++)
        halves[i] = (uint16_t)((type == F16 ? 0x2c00 : 0x3d00) + i * 7919 % 200);
    for (size_t i = 0; type == F32 && i < n_bytes / 4; i++)
        floats[i] = (float)(i * 7919 % 1000) / 1000 - 0.5f;
    return tensor;
}

static struct ggml_context *new_context(void)
{
    struct ggml_context *context = ggml_init((struct ggml_init_params){.mem_size = (size_t)1 << 30});
    if (context == NULL)
        exit(1);
    return context;
}

static double best_of(struct ggml_context *context, struct ggml_tensor *result)
{
    struct ggml_cgraph *graph = ggml_new_graph(context);
    double best = 1e9;
    ggml_build_forward_expand(graph, result);
    for (int i = 0; i < REPEAT; i++) {
        double begin = cpu_seconds();
        ggml_graph_compute_with_ctx(context, graph, 1);
        double took = cpu_seconds() - begin;
        best = took < best ? took : best;
    }
    return best;
}

static double product(int type, int64_t n_in, int64_t n_out, int64_t n)
{
    struct ggml_context *context = new_context();
    struct ggml_tensor *weights = filled(context, type, n_in, n_out, 1), *rows = filled(context, F32, n_in, n, 1);
    double took = best_of(context, ggml_mul_mat(context, weights, rows));
    printf("product %d -> %d: %.3f s, %.1f GMAC/s\n", (int)n_in, (int)n_out, took, 1e-9 * (double)(n_in * n_out * n) / took);
    ggml_free(context);
    return took;
}

static double attention(int64_t n)
{
    struct ggml_context *context = new_context();
    int64_t head = WIDTH / HEADS;
    struct ggml_tensor *q = filled(context, F32, head, n, HEADS), *k = filled(context, F16, head, n, HEADS),
                       *v = filled(context, F16, head, n, HEADS);
    double took = best_of(context, ggml_flash_attn_ext(context, q, k, v, NULL, 1, 0, 0));
    printf("attention: %.3f s, %.1f GMAC/s\n", took, 1e-9 * (double)(2 * n * n * WIDTH) / took);
    ggml_free(context);
    return took;
}

int main(int argc, char **argv)
{
    int64_t n = argc > 1 ? atoi(argv[1]) : 2304; // 768 x 768 pixels
    int type = argc > 2 && strcmp(argv[2], "bf16") == 0 ? BF16 : F16;
    if (n < 1 || n > 20000)
        return 2;
    ggml_cpu_init();
    double layer =
        4 * product(type, WIDTH, WIDTH, n) + 2 * product(type, WIDTH, FF, n) + product(type, FF, WIDTH, n) + attention(n);
    printf("%d layers: %.2f s\n", LAYERS, LAYERS * layer);
    return 0;
}
