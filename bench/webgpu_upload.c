// webgpu_upload.c: how fast bytes get to the device, beside how fast its copies are (webgpu_kernels --upload).

#include "webgpu_upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/ops.h"
#include "webgpu/gpu_internal.h"
#include "webgpu/webgpu_ops.h"

enum {
    ROUNDS = 3,
    MIB = 1 << 20,
    TARGET_BYTES = 256 * MIB,
    RESIDENT_BYTES = 256 * MIB,
    HOST_BYTES = 64 * MIB,
    PIECE_BYTES = 16 * MIB
};

struct rig {
    struct gpu *gpu;
    struct gpu_buffer **targets; // [n_targets] of TARGET_BYTES
    uint64_t n_targets;
    FILE *file;        // as long as all of them
    double copy_speed; // GB/s; 0: not measured yet
};

static void stop(const char *what, const struct carat_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err != NULL ? err->message : "failed");
    exit(1);
}

static uint64_t total_bytes(const struct rig *rig)
{
    return rig->n_targets * TARGET_BYTES;
}

static void finish(struct rig *rig)
{
    struct carat_error err;
    gpu_submit(rig->gpu);
    wgpuDevicePoll(rig->gpu->device, true, NULL);
    if (!gpu_take_error(rig->gpu, &err))
        stop("upload", &err);
}

// The best of some rounds of a way to bring or fetch all bytes.
static double measure(struct rig *rig, const char *name, void (*way)(struct rig *rig, void *context), void *context)
{
    double best = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double start = clock_ms();
        way(rig, context);
        finish(rig);
        double rate = (double)total_bytes(rig) / (clock_ms() - start) * 1e-6;
        best = rate > best ? rate : best;
    }
    printf("%-58s %7.2f GB/s", name, best);
    if (rig->copy_speed > 0)
        printf("  %4.0f %%", 100 * best / rig->copy_speed);
    printf("\n");
    return best;
}

// --- the device's own copies --------------------------------------------------------------------------------------------------

static struct gpu_buffer host_buffer(struct rig *rig, WGPUBufferUsage usage)
{
    bool is_filled = (usage & WGPUBufferUsage_MapWrite) != 0;
    WGPUBufferDescriptor desc = {.usage = usage, .size = HOST_BYTES, .mappedAtCreation = is_filled};
    struct gpu_buffer buffer = {.handle = wgpuDeviceCreateBuffer(rig->gpu->device, &desc), .n_bytes = HOST_BYTES};
    void *bytes = is_filled && buffer.handle != NULL ? wgpuBufferGetMappedRange(buffer.handle, 0, HOST_BYTES) : NULL;
    if (buffer.handle == NULL || (is_filled && bytes == NULL))
        stop("a buffer that the processor sees", NULL);
    if (is_filled) {
        memset(bytes, 0x5a, HOST_BYTES);
        wgpuBufferUnmap(buffer.handle);
    }
    return buffer;
}

static void copy_there(struct rig *rig, void *host)
{
    for (uint64_t at = 0; at < total_bytes(rig); at += HOST_BYTES)
        gpu_copy(rig->gpu, host, 0, rig->targets[at / TARGET_BYTES], at % TARGET_BYTES, HOST_BYTES);
}

static void copy_back(struct rig *rig, void *host)
{
    for (uint64_t at = 0; at < total_bytes(rig); at += HOST_BYTES)
        gpu_copy(rig->gpu, rig->targets[at / TARGET_BYTES], at % TARGET_BYTES, host, 0, HOST_BYTES);
}

// A buffer to be written may lie in the device's own memory, behind a window of the bus; then copies out of it say nothing of the
// bus, but those into a buffer to be read do. So the slower of both counts.
static void measure_copies(struct rig *rig)
{
    struct gpu_buffer source = host_buffer(rig, WGPUBufferUsage_MapWrite | WGPUBufferUsage_CopySrc);
    struct gpu_buffer sink = host_buffer(rig, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst);
    double there = measure(rig, "(a) copies out of a filled buffer that is mapped to write", copy_there, &source);
    double back = measure(rig, "    copies into a buffer that is mapped to read", copy_back, &sink);
    rig->copy_speed = there < back ? there : back;
    gpu_release_handle(source.handle);
    gpu_release_handle(sink.handle);
}

// --- uploads ------------------------------------------------------------------------------------------------------------------

typedef void write_function(struct gpu *gpu, struct gpu_buffer *buffer, uint64_t offset, const void *source, uint64_t n_bytes);

struct source {
    write_function *write;
    uint8_t *bytes;
    uint64_t n_bytes;
};

static void write_pieces(struct rig *rig, void *context)
{
    const struct source *source = context;
    for (uint64_t at = 0; at < total_bytes(rig); at += PIECE_BYTES)
        source->write(
            rig->gpu, rig->targets[at / TARGET_BYTES], at % TARGET_BYTES, source->bytes + at % source->n_bytes, PIECE_BYTES);
    gpu_upload_end(rig->gpu);
}

static uint8_t *map_file(const struct rig *rig)
{
    void *mapped = mmap(NULL, total_bytes(rig), PROT_READ, MAP_SHARED, fileno(rig->file), 0);
    if (mapped == MAP_FAILED)
        stop("mapping the file", NULL);
    return mapped;
}

// Mapped anew, so that its pages have to be brought in.
static void write_mapped(struct rig *rig, void *context)
{
    struct source source = {.write = (write_function *)context, .bytes = map_file(rig), .n_bytes = total_bytes(rig)};
    write_pieces(rig, &source);
    munmap(source.bytes, total_bytes(rig));
}

static FILE *make_file(const uint8_t *bytes, uint64_t n_bytes)
{
    FILE *file = tmpfile();
    for (uint64_t at = 0; file != NULL && at < n_bytes; at += RESIDENT_BYTES)
        if (fwrite(bytes, 1, RESIDENT_BYTES, file) != RESIDENT_BYTES)
            stop("writing a temporary file", NULL);
    if (file == NULL || fflush(file) != 0)
        stop("writing a temporary file", NULL);
    return file;
}

// The way of a model's weights, on a device of its own: placed, written from the mapped file, rearranged where the type needs it.
static void measure_weights(const struct rig *rig, enum gguf_type type, const char *name)
{
    enum { N_IN = 4096, MOST = 64 };
    struct carat_error err = {0};
    struct webgpu_options options = {.no_autotune = true};
    struct ops *ops = webgpu_ops_new(&options, &err);
    static struct weight weights[MOST];
    uint64_t row_bytes = 0, n_weights = 0;
    if (ops == NULL || !gguf_row_bytes(type, N_IN, &row_bytes))
        stop("device", &err);
    uint64_t n_out = 128 * MIB / row_bytes, n_bytes = n_out * row_bytes;
    double start = clock_ms();
    uint8_t *bytes = map_file(rig);
    for (; n_weights < MOST && (n_weights + 1) * n_bytes <= total_bytes(rig); n_weights++) {
        struct weight *w = &weights[n_weights];
        *w = (struct weight){.name = name, .type = type, .n_in = N_IN, .n_out = (int32_t)n_out, .n_slices = 1};
        w->row_bytes = row_bytes;
        w->n_bytes = n_bytes;
        bool ok = ops->weight_place(ops, w, NULL, false, &err);
        for (uint64_t at = 0; ok && at < n_bytes; at += PIECE_BYTES) {
            uint64_t n = n_bytes - at < PIECE_BYTES ? n_bytes - at : PIECE_BYTES;
            ok = ops->weight_write(ops, w, at, bytes + n_weights * n_bytes + at, n, &err);
        }
        if (!ok)
            stop("weight", &err);
    }
    if (!ops->weights_ready(ops, &err))
        stop("weights", &err);
    double rate = (double)(n_weights * n_bytes) / (clock_ms() - start) * 1e-6;
    printf("(d) weights of %-5s from the mapped file, room included     %7.2f GB/s  %4.0f %%\n", name, rate,
        100 * rate / rig->copy_speed);
    munmap(bytes, total_bytes(rig));
    for (uint64_t i = 0; i < n_weights; i++)
        ops->weight_free(ops, &weights[i]);
    ops->free(ops);
}

static void make_targets(struct rig *rig)
{
    struct carat_error err = {0};
    double start = clock_ms();
    rig->targets = calloc(rig->n_targets, sizeof *rig->targets);
    for (uint64_t i = 0; rig->targets != NULL && i < rig->n_targets; i++)
        if ((rig->targets[i] = gpu_buffer_new(rig->gpu, TARGET_BYTES, &err)) == NULL)
            stop("a buffer", &err);
    printf("%s: room for %llu MiB made in %.1f ms; the best of %d rounds\n", gpu_name(rig->gpu),
        (unsigned long long)(total_bytes(rig) / MIB), clock_ms() - start, ROUNDS);
}

void bench_upload(int n_mib)
{
    struct carat_error err = {0};
    struct rig rig = {.gpu = gpu_new(false, &err), .n_targets = ((uint64_t)n_mib * MIB + TARGET_BYTES - 1) / TARGET_BYTES};
    struct source resident = {.bytes = malloc(RESIDENT_BYTES), .n_bytes = RESIDENT_BYTES};
    if (rig.gpu == NULL || resident.bytes == NULL)
        stop("device", &err);
    memset(resident.bytes, 0x11, RESIDENT_BYTES);
    make_targets(&rig);
    measure_copies(&rig);
    resident.write = gpu_write;
    measure(&rig, "(b) resident memory by queue.writeBuffer", write_pieces, &resident);
    resident.write = gpu_upload;
    measure(&rig, "    resident memory by gpu_upload", write_pieces, &resident);
    rig.file = make_file(resident.bytes, total_bytes(&rig));
    measure(&rig, "(c) a mapped file by queue.writeBuffer", write_mapped, (void *)gpu_write);
    measure(&rig, "    a mapped file by gpu_upload", write_mapped, (void *)gpu_upload);
    for (uint64_t i = 0; i < rig.n_targets; i++)
        gpu_buffer_free(rig.gpu, rig.targets[i]);
    gpu_free(rig.gpu);
    measure_weights(&rig, GGUF_TYPE_Q4_K, "Q4_K");
    measure_weights(&rig, GGUF_TYPE_Q6_K, "Q6_K");
    measure_weights(&rig, GGUF_TYPE_Q8_0, "Q8_0");
    fclose(rig.file);
    free((void *)rig.targets);
    free(resident.bytes);
}
