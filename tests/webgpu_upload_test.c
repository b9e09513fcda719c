// webgpu_upload_test.c: uploads through mapped buffers bring every byte to its place, in the order of the queue.

#define _GNU_SOURCE // RTLD_NEXT

#include "webgpu_device.h"

#include "webgpu/gpu_internal.h"

enum { SLOT = UPLOAD_SLOT_BYTES, BEGIN = 8 << 20 }; // more than gpu_upload takes for little

static struct gpu *gpu;

// --- mapping that fails -------------------------------------------------------------------------------------------------------

// These stand in front of the library's functions of the same names.
static int n_ranges_left = INT32_MAX, n_maps_left = INT32_MAX, n_buffers_left = INT32_MAX;

void *wgpuBufferGetMappedRange(WGPUBuffer buffer, size_t offset, size_t size)
{
    void *(*next)(WGPUBuffer, size_t, size_t) = (void *(*)(WGPUBuffer, size_t, size_t))dlsym(RTLD_NEXT, __func__);
    return n_ranges_left-- > 0 ? next(buffer, offset, size) : NULL;
}

WGPUFuture wgpuBufferMapAsync(WGPUBuffer buffer, WGPUMapMode mode, size_t offset, size_t size, WGPUBufferMapCallbackInfo info)
{
    WGPUFuture (*next)(WGPUBuffer, WGPUMapMode, size_t, size_t, WGPUBufferMapCallbackInfo) =
        (WGPUFuture(*)(WGPUBuffer, WGPUMapMode, size_t, size_t, WGPUBufferMapCallbackInfo))dlsym(RTLD_NEXT, __func__);
    if (mode != WGPUMapMode_Write || n_maps_left-- > 0)
        return next(buffer, mode, offset, size, info);
    info.callback(WGPUMapAsyncStatus_Error, (WGPUStringView){0}, info.userdata1, info.userdata2);
    return (WGPUFuture){0};
}

WGPUBuffer wgpuDeviceCreateBuffer(WGPUDevice device, WGPUBufferDescriptor const *desc)
{
    WGPUBuffer (*next)(WGPUDevice, WGPUBufferDescriptor const *) =
        (WGPUBuffer(*)(WGPUDevice, WGPUBufferDescriptor const *))dlsym(RTLD_NEXT, __func__);
    if ((desc->usage & WGPUBufferUsage_MapWrite) == 0 || n_buffers_left-- > 0)
        return next(device, desc);
    gpu_note_error(gpu, CARAT_NO_MEMORY, "test", 4);
    return NULL;
}

static void repair(void)
{
    n_ranges_left = n_maps_left = n_buffers_left = INT32_MAX;
}

// --- a buffer and what should be in it ----------------------------------------------------------------------------------------

struct shadow {
    struct gpu_buffer *buffer;
    uint8_t *bytes;
    uint64_t n_bytes;
};

static struct shadow new_shadow(uint64_t n_bytes)
{
    struct carat_error err = {0};
    struct shadow s = {.buffer = gpu_buffer_new(gpu, n_bytes, &err), .bytes = calloc(1, n_bytes), .n_bytes = n_bytes};
    if (s.buffer == NULL)
        fail_msg("%s", err.message);
    return s;
}

static void free_shadow(struct shadow *s)
{
    gpu_buffer_free(gpu, s->buffer);
    free(s->bytes);
}

typedef void write_function(struct gpu *, struct gpu_buffer *, uint64_t, const void *, uint64_t);

// Writes new random bytes. Where they came from is overwritten at once: it may be used again.
static void put(struct shadow *s, write_function *write, uint64_t offset, uint64_t n_bytes)
{
    assert_true(offset + n_bytes <= s->n_bytes);
    uint8_t *source = malloc(n_bytes);
    for (uint64_t i = 0; i < n_bytes; i += 4) {
        uint32_t word = random_u32();
        memcpy(source + i, &word, 4);
    }
    memcpy(s->bytes + offset, source, n_bytes);
    write(gpu, s->buffer, offset, source, n_bytes);
    memset(source, 0xee, n_bytes);
    free(source);
}

static void check(const struct shadow *s)
{
    struct carat_error err = {0};
    uint8_t *seen = malloc(s->n_bytes);
    int32_t ticket = gpu_read_start(gpu, s->buffer, 0, s->n_bytes, seen, &err);
    if (ticket < 0)
        fail_msg("%s", err.message);
    gpu_wait(gpu, ticket);
    if (gpu_read_poll(gpu, ticket, &err) != GPU_READ_DONE)
        fail_msg("%s", err.message);
    assert_memory_equal(seen, s->bytes, s->n_bytes);
    free(seen);
}

static int open_device(void **state)
{
    (void)state;
    use_software_driver();
    struct carat_error err = {0};
    gpu = gpu_new(false, &err);
    if (gpu == NULL)
        fail_msg("%s", err.message);
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_free(gpu);
    return 0;
}

// --- tests --------------------------------------------------------------------------------------------------------------------

static void every_size_arrives(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {4, 252, 256, 260, (128 << 10) - 4, 128 << 10, (128 << 10) + 4, 1000 * 1000, SLOT - 4, SLOT,
        SLOT + 4, 4, 2 * SLOT, 3 * SLOT + 20, 8};
    enum { N_SIZES = sizeof sizes / sizeof sizes[0] };
    struct shadow s = new_shadow(BEGIN + 10 * (uint64_t)SLOT);
    put(&s, gpu_upload, 0, BEGIN);
    assert_true(gpu->upload.n_slots > 0);
    uint64_t at = BEGIN;
    for (int i = 0; i < N_SIZES; i++) {
        put(&s, gpu_upload, at, sizes[i]);
        at += sizes[i] + 4;
    }
    assert_true(gpu->upload.n_slots <= UPLOAD_MOST_SLOTS);
    gpu_upload_end(gpu);
    assert_int_equal(gpu->upload.n_slots, 0);
    check(&s);
    free_shadow(&s);
}

static void little_does_without_slots(void **state)
{
    (void)state;
    struct shadow s = new_shadow(1 << 20);
    put(&s, gpu_upload, 0, 1 << 20);
    put(&s, gpu_upload, 400, 40);
    assert_int_equal(gpu->upload.n_slots, 0);
    gpu_upload_end(gpu);
    check(&s);
    free_shadow(&s);
}

static void many_small_ones_arrive(void **state)
{
    (void)state;
    struct shadow s = new_shadow(BEGIN + 4000 * 5120);
    put(&s, gpu_upload, 0, BEGIN);
    for (uint64_t at = BEGIN; at < s.n_bytes; at += 5120)
        put(&s, gpu_upload, at, 4 + 4 * (random_u32() % 1280));
    check(&s); // before the end, too
    put(&s, gpu_upload, 12, 4000);
    gpu_upload_end(gpu);
    check(&s);
    free_shadow(&s);
}

// Copies and writes between uploads see what was there before them and are seen by those after.
static void the_order_of_the_queue_is_kept(void **state)
{
    (void)state;
    enum { N = 3 * SLOT };
    struct shadow s = new_shadow(N), copies[3] = {new_shadow(N), new_shadow(N), new_shadow(N)};
    for (int i = 0; i < 3; i++) {
        put(&s, gpu_upload, 0, N);
        put(&s, gpu_upload, 4, 400);
        put(&s, gpu_write, 200, 4000);
        put(&s, gpu_upload, 1000, 1000);
        gpu_copy(gpu, s.buffer, 0, copies[i].buffer, 0, N);
        memcpy(copies[i].bytes, s.bytes, N);
        put(&s, gpu_upload, SLOT, SLOT);
        put(&copies[i], gpu_upload, 8000, 1 << 20);
        gpu_submit(gpu);
    }
    gpu_upload_end(gpu);
    check(&s);
    for (int i = 0; i < 3; i++) {
        check(&copies[i]);
        free_shadow(&copies[i]);
    }
    free_shadow(&s);
}

static void uploads_follow_each_other(void **state)
{
    (void)state;
    struct shadow s = new_shadow(BEGIN + 2 * SLOT);
    for (int i = 0; i < 3; i++) {
        put(&s, gpu_upload, 4 * (uint64_t)i, BEGIN + SLOT);
        gpu_upload_end(gpu);
        gpu_upload_end(gpu);
        check(&s);
    }
    free_shadow(&s);
}

// The buffers go away first, the device with slots under way.
static void a_device_may_be_freed_in_the_middle(void **state)
{
    (void)state;
    struct gpu *kept = gpu;
    open_device(NULL);
    struct shadow s = new_shadow(BEGIN + 2 * SLOT);
    put(&s, gpu_upload, 0, BEGIN + SLOT + 1000);
    free_shadow(&s);
    gpu_free(gpu);
    gpu = kept;
}

// After a number of successes each.
static void what_cannot_be_mapped_is_written(void **state)
{
    (void)state;
    struct shadow s = new_shadow(BEGIN + 12 * (uint64_t)SLOT);
    int *const counts[] = {&n_ranges_left, &n_maps_left, &n_buffers_left};
    for (int i = 0; i < 3; i++) {
        for (int n = 0; n <= 5; n += n == 0 ? 1 : 4) {
            *counts[i] = n;
            put(&s, gpu_upload, 4, BEGIN + 10 * SLOT + 100);
            put(&s, gpu_upload, 400, 4000);
            gpu_upload_end(gpu);
            struct carat_error err = {0};
            if (!gpu_take_error(gpu, &err))
                fail_msg("%s", err.message);
            repair();
            check(&s);
        }
    }
    free_shadow(&s);
}

// --- weights ------------------------------------------------------------------------------------------------------------------

// A weight that comes in pieces as large as those of a mapped file.
static struct twin_weight large_weight(struct ops *ops, enum gguf_type type, int32_t n_in, int32_t n_out, uint32_t group)
{
    struct carat_error err = {0};
    struct twin_weight w = {.ref = {.name = "w", .type = type, .n_in = n_in, .n_out = n_out, .n_slices = 1, .home = WEIGHT_HOST}};
    assert_true(gguf_row_bytes(type, (uint64_t)n_in, &w.ref.row_bytes));
    w.ref.n_bytes = w.ref.row_bytes * (uint64_t)n_out;
    w.bytes = malloc(w.ref.n_bytes);
    random_blocks(type, w.bytes, (uint64_t)n_in * (uint64_t)n_out);
    w.ref.host = w.bytes;
    w.gpu = w.ref;
    w.gpu.group = group;
    w.gpu.home = WEIGHT_UNPLACED;
    w.gpu.host = NULL;
    if (!ops->weight_place(ops, &w.gpu, NULL, false, &err))
        fail_msg("%s", err.message);
    return w;
}

static void fill(struct ops *ops, struct twin_weight *w)
{
    struct carat_error err = {0};
    for (uint64_t at = 0; at < w->ref.n_bytes; at += 16 << 20) {
        uint64_t n = w->ref.n_bytes - at < 16 << 20 ? w->ref.n_bytes - at : 16 << 20;
        if (!ops->weight_write(ops, &w->gpu, at, w->bytes + at, n, &err))
            fail_msg("%s", err.message);
    }
}

// Rows come back as what their bytes mean.
static void check_rows(struct ops *ops, struct ops *ref, const struct twin_weight *w)
{
    enum { N = 64 };
    int32_t ids[N];
    for (int i = 0; i < N; i++)
        ids[i] = i < 8 ? i : i < 16 ? w->ref.n_out - 1 - (i - 8) : (int32_t)(random_u32() % (uint32_t)w->ref.n_out);
    for (int i = 0; i < N; i++)
        ids[i] = ids[i] < 0 ? 0 : ids[i] % w->ref.n_out;
    struct twin ids_of = make_twin_of(ops, ref, N, 1, ids), rows = make_twin(ops, ref, N, w->ref.n_in, 0);
    struct token_ids on_gpu = {.device = ids_of.gpu}, on_ref = {.device = ids_of.ref};
    ops->embed(ops, &w->gpu, &on_gpu, 1, rows.gpu);
    ref->embed(ref, &w->ref, &on_ref, 1, rows.ref);
    assert_close(ops, ref, &rows, "rows of %s", gguf_type_name(w->ref.type));
    free_twin(ops, ref, &ids_of);
    free_twin(ops, ref, &rows);
}

static void weights_arrive(void **state)
{
    (void)state;
    static const struct {
        enum gguf_type type;
        int32_t n_in, n_out;
        uint32_t group;
    } shapes[] = {
        {GGUF_TYPE_Q4_K, 1536, 14000, 0}, // 12 MB as they come
        {GGUF_TYPE_Q6_K, 1536, 9000, 0},  // 11 MB in planes
        {GGUF_TYPE_F32, 1536, 1, 1},
        {GGUF_TYPE_Q8_0, 96, 501, 1},
        {GGUF_TYPE_BF16, 33, 7, 1}, // ends within a word
        {GGUF_TYPE_Q4_0, 32, 3, 1},
        {GGUF_TYPE_F32, 3, 1, 0},
        {GGUF_TYPE_Q6_K, 256, 77, 1},
        {GGUF_TYPE_F16, 512, 1000, 0},
    };
    enum { N = sizeof shapes / sizeof shapes[0] };
    struct webgpu_options options = {.no_autotune = true};
    struct ops *ops = open_gpu(&options), *ref = ref_ops_new(NULL);
    for (int round = 0; round < 2; round++) {
        struct twin_weight weights[N];
        struct carat_error err = {0};
        for (int i = 0; i < N; i++)
            weights[i] = large_weight(ops, shapes[i].type, shapes[i].n_in, shapes[i].n_out, shapes[i].group);
        for (int i = 0; i < N; i++)
            fill(ops, &weights[i]);
        if (!ops->weights_ready(ops, &err))
            fail_msg("%s", err.message);
        for (int i = 0; i < N; i++)
            check_rows(ops, ref, &weights[i]);
        for (int i = 0; i < N; i++)
            free_weight(ops, &weights[i]);
    }
    ops->free(ops);
    ref->free(ref);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(little_does_without_slots),
        cmocka_unit_test(every_size_arrives),
        cmocka_unit_test(many_small_ones_arrive),
        cmocka_unit_test(the_order_of_the_queue_is_kept),
        cmocka_unit_test(uploads_follow_each_other),
        cmocka_unit_test(a_device_may_be_freed_in_the_middle),
        cmocka_unit_test(what_cannot_be_mapped_is_written),
        cmocka_unit_test(weights_arrive),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
