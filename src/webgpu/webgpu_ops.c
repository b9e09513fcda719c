// webgpu_ops.c: the backend's table of operations, its memory, and what its files share.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "webgpu/internal.h"

// --- shared -------------------------------------------------------------------------------------------------------------------

void webgpu_failed(struct webgpu *gpu, const struct carat_error *err)
{
    if (gpu->error.code == CARAT_OK)
        gpu->error = *err;
}

struct gpu_pipeline *webgpu_kernel(struct webgpu *gpu, uint64_t key, const char *file, const char *definitions)
{
    struct gpu_pipeline *pipeline = kernel_find(gpu->kernels, key);
    if (pipeline != NULL)
        return pipeline;
    char all[3700];
    // The kernel's own come first: names of kernels, in a profile and in messages, end where their room does.
    snprintf(all, sizeof all, "%s EXACT_HALF=%d SUBGROUPS=%d SG=%u SG_LOG2=%u", definitions, gpu->exact_half,
        gpu->subgroup_size > 0, gpu->subgroup_size, log2_up(gpu->subgroup_size));
    struct carat_error err = {0};
    pipeline = kernel_make(gpu->kernels, gpu->gpu, key, file, all, &err);
    if (pipeline == NULL)
        webgpu_failed(gpu, &err);
    return pipeline;
}

uint64_t webgpu_key(enum kernel kernel, const uint32_t *values, int n)
{
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a, a word at a time
    for (int i = 0; i < n; i++) {
        hash = (hash ^ values[i]) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    return (uint64_t)kernel | hash << 6;
}

void webgpu_forget_kernels(struct webgpu *gpu)
{
    gpu_submit(gpu->gpu);
    kernel_table_clear(gpu->kernels);
}

struct gpu_binding webgpu_tensor(struct tensor tensor)
{
    uint64_t n_bytes = (uint64_t)tensor.n_rows * (uint64_t)tensor.n_cols * 4;
    return (struct gpu_binding){gpu_buffer_of(tensor.buffer), tensor.offset, n_bytes};
}

struct gpu_binding webgpu_scratch(struct webgpu *gpu, enum scratch which, uint64_t n_bytes)
{
    struct gpu_buffer *have = gpu->scratch[which];
    if (have == NULL || gpu_buffer_bytes(have) < n_bytes) {
        gpu_buffer_free(gpu->gpu, have);
        struct carat_error err = {0};
        gpu->scratch[which] = NULL;
        if (n_bytes > gpu_limits(gpu->gpu)->max_binding_bytes)
            fail(&err, CARAT_NO_MEMORY,
                "the GPU sees at most %llu MiB of a buffer, this batch needs %llu MiB; use a smaller batch",
                (unsigned long long)(gpu_limits(gpu->gpu)->max_binding_bytes >> 20), (unsigned long long)(n_bytes >> 20));
        else
            gpu->scratch[which] = gpu_buffer_new(gpu->gpu, (n_bytes + 255) & ~(uint64_t)255, &err);
        if (gpu->scratch[which] == NULL)
            webgpu_failed(gpu, &err);
    }
    return (struct gpu_binding){gpu->scratch[which], 0, n_bytes};
}

struct tensor webgpu_scratch_tensor(struct webgpu *gpu, enum scratch which, int32_t n_rows, int32_t n_cols)
{
    struct gpu_binding room = webgpu_scratch(gpu, which, (uint64_t)n_rows * (uint64_t)n_cols * 4);
    return (struct tensor){.buffer = (struct buffer *)(void *)room.buffer, .n_rows = n_rows, .n_cols = n_cols};
}

struct gpu_binding webgpu_sums(struct webgpu *gpu, uint32_t n_splits, struct tensor out)
{
    return webgpu_scratch(gpu, SCRATCH_SPLITS, (uint64_t)n_splits * (uint64_t)out.n_rows * (uint64_t)out.n_cols * 4);
}

struct gpu_binding webgpu_vectors(struct webgpu *gpu)
{
    return (struct gpu_binding){gpu->vectors.buffer, 0, gpu->vectors.capacity * 4};
}

struct gpu_binding webgpu_vector(struct webgpu *gpu, const struct weight *weight)
{
    const struct device_weight *w = weight->device;
    return (struct gpu_binding){gpu->vectors.buffer, (uint64_t)w->vector_at * 4, (uint64_t)weight->n_in * 4};
}

float webgpu_first_value(const struct weight *weight)
{
    return ((const struct device_weight *)weight->device)->first_value;
}

uint32_t webgpu_vector_at(const struct weight *weight)
{
    return weight_exists(weight) ? ((const struct device_weight *)weight->device)->vector_at : 0;
}

uint32_t webgpu_grid(const struct webgpu *gpu, uint64_t n, uint32_t *x, uint32_t *y)
{
    uint64_t groups = (n + 63) / 64;
    uint64_t most = gpu_limits(gpu->gpu)->max_workgroups;
    *x = (uint32_t)(groups < most ? groups : most);
    *y = *x > 0 ? (uint32_t)((groups + *x - 1) / *x) : 0;
    return *x * 64;
}

// --- memory -------------------------------------------------------------------------------------------------------------------

static struct buffer *buffer_new(struct ops *ops, uint64_t n_bytes, struct carat_error *err)
{
    if (n_bytes == 0 || n_bytes > UINT64_MAX - 255) {
        fail(err, CARAT_BAD_ARGUMENT, "a GPU buffer of %llu bytes cannot be made", (unsigned long long)n_bytes);
        return NULL;
    }
    struct gpu *gpu = webgpu_of(ops)->gpu;
    if (n_bytes > gpu_limits(gpu)->max_binding_bytes) {
        fail(err, CARAT_NO_MEMORY,
            "the GPU sees at most %llu MiB of a buffer, %llu MiB are needed; use a shorter context or the CPU",
            (unsigned long long)(gpu_limits(gpu)->max_binding_bytes >> 20), (unsigned long long)(n_bytes >> 20));
        return NULL;
    }
    struct gpu_buffer *buffer = gpu_buffer_new(gpu, (n_bytes + 255) & ~(uint64_t)255, err);
    return (struct buffer *)(void *)buffer;
}

static void buffer_free(struct ops *ops, struct buffer *buffer)
{
    struct webgpu *gpu = webgpu_of(ops);
    if (gpu->pieces.out.buffer == buffer)
        gpu->pieces.out.buffer = NULL;
    if (gpu->sums.out.buffer == buffer)
        gpu->sums.out.buffer = NULL;
    const struct late_end *late = &gpu->late;
    if (late->x.buffer == buffer || late->settled.buffer == buffer || late->out.buffer == buffer ||
        late->products.buffer == buffer || late->per_layer.buffer == gpu_buffer_of(buffer))
        gpu->late.end = NULL;
    gpu_buffer_free(gpu->gpu, gpu_buffer_of(buffer));
}

static void write_bytes(struct ops *ops, struct buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    gpu_write(gpu->gpu, gpu_buffer_of(buffer), offset, source, n_bytes);
}

static void copy(struct ops *ops, struct buffer *source, uint64_t source_offset, struct buffer *target, uint64_t target_offset,
    uint64_t n_bytes)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    gpu_copy(gpu->gpu, gpu_buffer_of(source), source_offset, gpu_buffer_of(target), target_offset, n_bytes);
}

static bool take_failure(struct webgpu *gpu, struct carat_error *err)
{
    if (gpu->error.code == CARAT_OK)
        return true;
    if (err != NULL)
        *err = gpu->error;
    gpu->error.code = CARAT_OK;
    return false;
}

static int32_t read_start(
    struct ops *ops, struct buffer *buffer, uint64_t offset, uint64_t n_bytes, void *target, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    ops->n_dispatches = gpu_dispatch_count(gpu->gpu);
    if (!take_failure(gpu, err))
        return -1;
    return gpu_read_start(gpu->gpu, gpu_buffer_of(buffer), offset, n_bytes, target, err);
}

static enum ops_state poll(struct ops *ops, int32_t ticket, struct carat_error *err)
{
    struct webgpu *gpu = webgpu_of(ops);
    enum gpu_read_state state = gpu_read_poll(gpu->gpu, ticket, err);
    if (state == GPU_READ_DONE && !take_failure(gpu, err))
        state = GPU_READ_FAILED;
    return state == GPU_READ_DONE ? OPS_DONE : state == GPU_READ_PENDING ? OPS_PENDING : OPS_FAILED;
}

#ifndef __wasm__
static void wait_for(struct ops *ops, int32_t ticket)
{
    gpu_wait(webgpu_of(ops)->gpu, ticket);
}
#endif

static void submit(struct ops *ops)
{
    struct webgpu *gpu = webgpu_of(ops);
    webgpu_join_all(gpu);
    gpu_submit(gpu->gpu);
    ops->n_dispatches = gpu_dispatch_count(gpu->gpu);
}

// --- life ---------------------------------------------------------------------------------------------------------------------

static void free_ops(struct ops *ops)
{
    struct webgpu *gpu = webgpu_of(ops);
    if (gpu->gpu != NULL) {
        webgpu_self_test_close(gpu);
        webgpu_trial_close(gpu);
        webgpu_weights_close(gpu);
        for (int i = 0; i < N_SCRATCH; i++)
            gpu_buffer_free(gpu->gpu, gpu->scratch[i]);
    }
    kernel_table_free(gpu->kernels);
    gpu_free(gpu->gpu);
    free(gpu);
}

static const struct ops table = {
    .name = "webgpu",
    .buffer_new = buffer_new,
    .buffer_free = buffer_free,
    .write = write_bytes,
    .copy = copy,
    .read_start = read_start,
    .poll = poll,
#ifndef __wasm__
    .wait = wait_for,
#endif
    .submit = submit,
    .weight_place = webgpu_weight_place,
    .weight_write = webgpu_weight_write,
    .weight_free = webgpu_weight_free,
    .weights_ready = webgpu_weights_ready,
    .embed = webgpu_embed,
    .copy_rows = webgpu_copy_rows,
    .per_layer_inputs = webgpu_per_layer_inputs,
    .norm_project = webgpu_norm_project,
    .attend = webgpu_attend,
    .project = webgpu_project,
    .norm_gated = webgpu_norm_gated,
    .per_layer_gate = webgpu_per_layer_gate,
    .fold = webgpu_fold,
    .unfold = webgpu_unfold,
    .finish_layer = webgpu_finish_layer,
    .experts = webgpu_experts,
    .add_norms = webgpu_add_norms,
    .settle = webgpu_settle,
    .norm = webgpu_norm,
    .head = webgpu_head,
    .argmax = webgpu_argmax,
    .top_k = webgpu_top_k,
    .draw = webgpu_draw,
    .free = free_ops,
};

// The size of all subgroups, when they are stretches of neighbours and worth it; else 0, and kernels do without. (Software
// renderers have subgroups of 4, and are slower with them.)
#ifdef __wasm__
static uint32_t usable_subgroup_size(struct webgpu *gpu)
{
    const struct gpu_limits *limits = gpu_limits(gpu->gpu);
    uint32_t size = limits->subgroup_min;
    bool fits = limits->has_subgroups && size == limits->subgroup_max && size >= 8 && size <= 64 && (size & (size - 1)) == 0;
    return fits ? size : 0;
}
#else
static uint32_t usable_subgroup_size(struct webgpu *gpu)
{
    if (!gpu_limits(gpu->gpu)->has_subgroups)
        return 0;
    uint32_t seen[256][2], unused = 0;
    struct gpu_pipeline *kernel = webgpu_kernel(gpu, KERNEL_PROBE, "probe", "");
    struct gpu_binding out = webgpu_scratch(gpu, SCRATCH_SUMS, sizeof seen);
    if (kernel == NULL || out.buffer == NULL)
        return 0;
    gpu_dispatch(gpu->gpu, kernel, &out, &unused, sizeof unused, 1, 1, 1);
    int32_t ticket = gpu_read_start(gpu->gpu, out.buffer, 0, sizeof seen, seen, NULL);
    gpu_wait(gpu->gpu, ticket);
    if (gpu_read_poll(gpu->gpu, ticket, NULL) != GPU_READ_DONE)
        return 0;
    uint32_t size = seen[0][0];
    bool fits = size >= 8 && size <= 64 && (size & (size - 1)) == 0;
    for (uint32_t t = 0; fits && t < 256; t++)
        fits = seen[t][0] == size && seen[t][1] == t % size;
    return fits ? size : 0;
}
#endif

struct ops *webgpu_ops_new(const struct webgpu_options *options, struct carat_error *err)
{
    struct webgpu *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the GPU backend");
        return NULL;
    }
    gpu->ops = table;
    if (options != NULL)
        gpu->options = *options;
    gpu->ops.max_batch = gpu->options.max_batch > 0 ? gpu->options.max_batch : 512;
    gpu->gpu = gpu_new(gpu->options.hardware_only, err);
    gpu->kernels = gpu->gpu != NULL ? kernel_table_new(err) : NULL;
    if (gpu->kernels == NULL) {
        free_ops(&gpu->ops);
        return NULL;
    }
    snprintf(gpu->ops.device, sizeof gpu->ops.device, "%s", gpu_name(gpu->gpu));
    gpu->subgroup_size = usable_subgroup_size(gpu);
    gpu->error.code = CARAT_OK; // a probe that fails means no subgroups
    gpu->exact_half = webgpu_flushes_halves();
    gpu->multiplies_floats =
        gpu->options.exact || webgpu_confuses_integers() || (!gpu->options.no_autotune && webgpu_prefers_floats());
#ifndef __wasm__ // in the browser the host runs the test, which must wait
    if (!webgpu_self_test(&gpu->ops, err)) {
        free_ops(&gpu->ops);
        return NULL;
    }
#endif
    return &gpu->ops;
}

#ifndef __wasm__
bool webgpu_profile_start(struct ops *ops)
{
    submit(ops);
    return gpu_profile_start(webgpu_of(ops)->gpu);
}

bool webgpu_profile_end(struct ops *ops, char *text, size_t capacity)
{
    struct gpu_timing timings[64];
    webgpu_join_all(webgpu_of(ops));
    int n = gpu_profile_end(webgpu_of(ops)->gpu, timings, 64);
    size_t used = 0;
    for (int i = 0; i < n && used < capacity; i++)
        used += (size_t)snprintf(text + used, capacity - used, "%10.1f us %6lld x %8.2f us  %s\n", timings[i].total_us,
            (long long)timings[i].n, timings[i].total_us / (double)timings[i].n, timings[i].name);
    return n > 0;
}
#endif
