// select.c: the largest logit, the k largest, and drawing one of them.

#include "webgpu/internal.h"

enum { SORTED = 1024, ARGMAX_STRETCH = 1024, ARGMAX_MOST_GROUPS = 128 };

void webgpu_argmax(struct ops *ops, struct tensor logits, int32_t row, struct tensor id)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    struct gpu_pipeline *first = webgpu_kernel(gpu, KERNEL_ARGMAX, "argmax", "FIRST=1");
    struct gpu_pipeline *second = webgpu_kernel(gpu, KERNEL_ARGMAX | 1 << 8, "argmax", "FIRST=0");
    uint32_t n = (uint32_t)logits.n_cols, n_groups = divide_up(n, ARGMAX_STRETCH);
    n_groups = n_groups < ARGMAX_MOST_GROUPS ? n_groups : ARGMAX_MOST_GROUPS;
    struct gpu_binding values = webgpu_scratch(gpu, SCRATCH_VALUES_A, ARGMAX_MOST_GROUPS * 4);
    struct gpu_binding indices = webgpu_scratch(gpu, SCRATCH_IDS_A, ARGMAX_MOST_GROUPS * 4);
    if (first == NULL || second == NULL || values.buffer == NULL || indices.buffer == NULL)
        return;
    struct {
        uint32_t first, n, stretch;
    } p = {(uint32_t)row * n, n, divide_up(n, n_groups)};
    struct gpu_binding from[] = {webgpu_tensor(logits), values, indices};
    gpu_dispatch(gpu->gpu, first, from, &p, sizeof p, n_groups, 1, 1);
    p.n = n_groups;
    struct gpu_binding to[] = {values, indices, webgpu_tensor(id)};
    gpu_dispatch(gpu->gpu, second, to, &p, sizeof p, 1, 1, 1);
}

struct top_k_params {
    uint32_t first, n, k, n_sums, wanted;
};

static struct gpu_pipeline *top_k_kernel(struct webgpu *gpu, bool is_first, bool is_last)
{
    static const char *const definitions[] = {"FIRST=0 LAST=0", "FIRST=1 LAST=0", "FIRST=0 LAST=1"};
    uint32_t which = (uint32_t)is_first | (uint32_t)is_last << 1;
    return webgpu_kernel(gpu, KERNEL_TOP_K | (uint64_t)which << 8, "top_k", definitions[which]);
}

void webgpu_top_k(struct ops *ops, struct tensor logits, int32_t row, int32_t k, struct tensor out)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    uint32_t n_logits = (uint32_t)logits.n_cols, n_sums = divide_up(n_logits, SORTED);
    uint64_t room = (uint64_t)n_sums * (uint64_t)k * 4;
    struct gpu_binding values[2] = {webgpu_scratch(gpu, SCRATCH_VALUES_A, room), webgpu_scratch(gpu, SCRATCH_VALUES_B, room)};
    struct gpu_binding ids[2] = {webgpu_scratch(gpu, SCRATCH_IDS_A, room), webgpu_scratch(gpu, SCRATCH_IDS_B, room)};
    struct gpu_binding sums = webgpu_scratch(gpu, SCRATCH_SUMS, (uint64_t)n_sums * 8);
    if (values[0].buffer == NULL || values[1].buffer == NULL || ids[0].buffer == NULL || ids[1].buffer == NULL ||
        sums.buffer == NULL)
        return;
    struct top_k_params p = {
        .first = (uint32_t)row * n_logits, .n = n_logits, .k = (uint32_t)k, .n_sums = n_sums, .wanted = (uint32_t)k};
    for (int pass = 0;; pass++) {
        uint32_t n_groups = divide_up(p.n, SORTED);
        bool is_first = pass == 0, is_last = !is_first && n_groups == 1; // the sums of the first pass must be there
        struct gpu_pipeline *kernel = top_k_kernel(gpu, is_first, is_last);
        if (kernel == NULL)
            return;
        struct gpu_binding bindings[6];
        int n = 0;
        if (is_first)
            bindings[n++] = webgpu_tensor(logits);
        else {
            bindings[n++] = values[pass & 1];
            bindings[n++] = ids[pass & 1];
        }
        bindings[n++] = sums;
        if (is_last)
            bindings[n++] = webgpu_tensor(out);
        else {
            bindings[n++] = values[(pass + 1) & 1];
            bindings[n++] = ids[(pass + 1) & 1];
        }
        gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, n_groups, 1, 1);
        if (is_last)
            return;
        p.n = n_groups * (uint32_t)k;
    }
}

static bool adjust(struct webgpu *gpu, struct tensor logits, int32_t row, const struct draw *draw)
{
    bool has_biases = draw->bias_ids.buffer != NULL, has_window = draw->window.buffer != NULL;
    static const char *const definitions[] = {NULL, "BIASES=1 WINDOW=0", "BIASES=0 WINDOW=1", "BIASES=1 WINDOW=1"};
    uint32_t which = (uint32_t)has_biases | (uint32_t)has_window << 1;
    if (which == 0)
        return true;
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_ADJUST | (uint64_t)which << 8, "adjust", definitions[which]);
    if (kernel == NULL)
        return false;
    struct {
        uint32_t first, n, n_biases, n_window;
        float repetition, presence, frequency;
    } p = {(uint32_t)row * (uint32_t)logits.n_cols, (uint32_t)logits.n_cols, (uint32_t)draw->bias_ids.n_rows,
        (uint32_t)draw->n_window, draw->repetition_penalty, draw->presence_penalty, draw->frequency_penalty};
    struct gpu_binding bindings[4] = {webgpu_tensor(logits)};
    int n = 1;
    if (has_biases) {
        bindings[n++] = webgpu_tensor(draw->bias_ids);
        bindings[n++] = webgpu_tensor(draw->bias_values);
    }
    if (has_window)
        bindings[n++] = webgpu_tensor(draw->window);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, 1, 1, 1);
    return true;
}

void webgpu_draw(struct ops *ops, struct tensor logits, int32_t row, const struct draw *draw, struct tensor id)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    bool greedy = draw->temperature <= 0, has_window = draw->window.buffer != NULL;
    int32_t k = greedy ? 1 : draw->top_k < logits.n_cols ? draw->top_k : logits.n_cols;
    struct tensor best = webgpu_scratch_tensor(gpu, SCRATCH_BEST, 1, 2 * k + 2);
    struct gpu_pipeline *kernel =
        webgpu_kernel(gpu, KERNEL_DRAW | (uint64_t)has_window << 8, "draw", has_window ? "WINDOW=1" : "WINDOW=0");
    if (best.buffer == NULL || kernel == NULL || !adjust(gpu, logits, row, draw))
        return;
    webgpu_top_k(ops, logits, row, k, best);
    struct {
        uint32_t k;
        float temperature, top_p, min_p;
        uint32_t random, window_slot;
    } p = {(uint32_t)k, greedy ? 1 : draw->temperature, draw->top_p < 1 ? draw->top_p : 2, draw->min_p, draw->random,
        (uint32_t)draw->window_slot};
    struct gpu_binding bindings[3] = {webgpu_tensor(best), webgpu_tensor(id)};
    if (has_window)
        bindings[2] = webgpu_tensor(draw->window);
    gpu_dispatch(gpu->gpu, kernel, bindings, &p, sizeof p, 1, 1, 1);
}
