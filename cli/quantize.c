// quantize.c: carat quantize: a model in other types.
//
// Tensors are converted a few rows at a time, so memory does not grow with the model, on several threads. Everything that the mix
// does not touch (norms, routers, towers, metadata) is copied as it is.

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/threads.h"
#include "commands.h"
#include "gguf/gguf.h"
#include "gguf/mix.h"
#include "gguf/quants.h"
#include "options.h"
#include "output.h"

static const char help[] =
    "usage: carat quantize IN OUT.gguf MIX [OPTIONS]\n\n"
    "Writes the model IN (best: one in F32, BF16 or F16) with smaller weights. IN is a GGUF file, a URL, or a name of the local "
    "Ollama\n"
    "store. MIX names the types: Q8_0, Q6_K, Q5_K_M, Q4_K_M, Q4_K_S, Q4_0, or F16, BF16, F32. Norms, routers and towers stay as\n"
    "they are; rows that do not suit a type get the nearest that fits, as in llama.cpp.\n\n"
    "  --allow-requantize  also accept IN whose weights are quantised already (loses quality twice)\n"
    "  --threads N         threads, at most 256 (default: one per core)\n";

enum { PIECE_ELEMS = 4 << 20, MAX_ROW_ELEMS = 1 << 24 };

struct quantize {
    const char *in_path, *out_path;
    bool allow_requantize;
    struct gguf_file *in;
    struct gguf_writer *out;
    struct gguf_mix_model mix;
    enum gguf_type *types; // of each tensor in the new file
    struct threads *pool;
    // one piece: rows [0, n_rows) of n_elems
    void *packed; // as stored
    float *values;
    void *converted;
    uint64_t done, total; // bytes read
};

static bool read_model(struct quantize *q, struct carat_error *err)
{
    uint32_t n_heads = 1;
    int32_t kv_heads[GGUF_MIX_MAX_LAYERS] = {1};
    if (!gguf_text_is(q->in, "general.architecture", "gemma4"))
        return fail(err, CARAT_UNSUPPORTED, "%s is no Gemma 4 text model; only those can be quantised", q->in_path);
    if (!gguf_u32(q->in, "gemma4.block_count", &q->mix.n_layers, err) ||
        !gguf_u32_or(q->in, "gemma4.expert_count", 0, &q->mix.n_experts, err) ||
        !gguf_u32(q->in, "gemma4.attention.head_count", &n_heads, err))
        return false;
    if (q->mix.n_layers == 0 || q->mix.n_layers > GGUF_MIX_MAX_LAYERS)
        return fail(err, CARAT_BAD_FILE, "%s has %u layers; the file is damaged", q->in_path, q->mix.n_layers);
    if (!gguf_per_layer(q->in, "gemma4.attention.head_count_kv", q->mix.n_layers, kv_heads, err))
        return false;
    q->mix.heads_per_kv = kv_heads[0] > 0 ? n_heads / (uint32_t)kv_heads[0] : 1;
    q->mix.has_output = gguf_find_tensor(q->in, "output.weight") != NULL;
    for (uint32_t l = 0; l < q->mix.n_layers; l++) {
        char name[GGUF_MAX_NAME_BYTES];
        snprintf(name, sizeof name, "blk.%u.attn_v.weight", l);
        q->mix.has_attn_v[l] = gguf_find_tensor(q->in, name) != NULL;
    }
    return true;
}

static bool is_tower(const char *name)
{
    return strncmp(name, "v.", 2) == 0 || strncmp(name, "a.", 2) == 0 || strncmp(name, "mm.", 3) == 0;
}

static bool choose_type(struct quantize *q, uint64_t i, struct carat_error *err)
{
    const struct gguf_tensor *t = gguf_tensor_at(q->in, i);
    enum gguf_type type = is_tower(t->name) ? t->type : gguf_mix_type(&q->mix, t->name, t->n_dims, t->ne, t->type);
    q->types[i] = type;
    if (type == t->type)
        return true;
    if (!gguf_type_info(t->type)->supported)
        return fail(
            err, CARAT_UNSUPPORTED, "tensor '%s' has type %s, which carat cannot convert", t->name, gguf_type_name(t->type));
    if (!gguf_can_quantize(type))
        return fail(err, CARAT_UNSUPPORTED, "tensor '%s' would get type %s, which carat cannot write; choose another mix",
            t->name, gguf_type_name(type));
    bool is_quantised = gguf_type_info(t->type)->block_elems != 1;
    if (is_quantised && !q->allow_requantize)
        return fail(err, CARAT_BAD_ARGUMENT,
            "tensor '%s' is quantised already (%s); start from a file in F32, BF16 or F16, or give "
            "--allow-requantize",
            t->name, gguf_type_name(t->type));
    if (t->ne[0] > MAX_ROW_ELEMS)
        return fail(err, CARAT_UNSUPPORTED, "tensor '%s' has rows of %" PRIu64 " elements, at most %d are possible", t->name,
            t->ne[0], MAX_ROW_ELEMS);
    return true;
}

static bool declare(struct quantize *q, struct carat_error *err)
{
    static const char *const replaced[] = {"general.file_type", "general.quantization_version", "general.alignment", "split.no",
        "split.count", "split.tensors.count"};
    for (size_t i = 0; i < gguf_entry_count(q->in); i++) {
        const struct gguf_entry *entry = gguf_entry_at(q->in, i);
        bool skip = false;
        for (size_t k = 0; k < sizeof replaced / sizeof replaced[0]; k++)
            skip = skip || strcmp(entry->key, replaced[k]) == 0;
        if (!skip)
            gguf_write_value(q->out, entry->key, &entry->value);
    }
    gguf_write_u32(q->out, "general.quantization_version", 2);
    gguf_write_u32(q->out, "general.file_type", gguf_mix_file_type(q->mix.mix));
    for (uint64_t i = 0; i < gguf_tensor_count(q->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->in, i);
        if (!choose_type(q, i, err))
            return false;
        gguf_declare(q->out, t->name, q->types[i], t->n_dims, t->ne);
        q->total += t->n_bytes;
    }
    return gguf_writer_error(q->out)->code == CARAT_OK ||
           fail(err, gguf_writer_error(q->out)->code, "%s", gguf_writer_error(q->out)->message);
}

struct job {
    const struct quantize *q;
    enum gguf_type from, to;
    uint64_t n_rows, n_elems;      // of this piece; per row
    uint64_t from_bytes, to_bytes; // of a row
};

static void convert_rows(void *context, int index, int n_threads)
{
    const struct job *job = context;
    for (uint64_t row = (uint64_t)index; row < job->n_rows; row += (uint64_t)n_threads) {
        float *values = job->q->values + row * job->n_elems;
        gguf_dequantize(job->from, (const char *)job->q->packed + row * job->from_bytes, values, job->n_elems);
        gguf_quantize(job->to, values, (char *)job->q->converted + row * job->to_bytes, job->n_elems);
    }
}

static bool check_finite(const struct quantize *q, const struct gguf_tensor *t, uint64_t n, struct carat_error *err)
{
    for (uint64_t i = 0; i < n; i++) {
        float value = q->values[i];
        if (!(value - value == 0)) // NaN or an infinity
            return fail(err, CARAT_BAD_NUMBER, "tensor '%s' holds a NaN or an infinity; the file is damaged", t->name);
    }
    return true;
}

static bool copy_tensor(struct quantize *q, const struct gguf_tensor *t, struct carat_error *err)
{
    for (uint64_t at = 0; at < t->n_bytes;) {
        uint64_t left = t->n_bytes - at;
        size_t n = left < (uint64_t)PIECE_ELEMS ? (size_t)left : PIECE_ELEMS;
        if (!gguf_tensor_read(q->in, t, at, q->converted, n, err) || !gguf_write_data(q->out, q->converted, n))
            return false;
        at += n;
        q->done += n;
        show_progress(NULL, "quantising", q->done, q->total);
    }
    return true;
}

static bool convert_tensor(struct quantize *q, const struct gguf_tensor *t, enum gguf_type type, struct carat_error *err)
{
    uint64_t n_rows = t->ne[1] * t->ne[2] * t->ne[3], at_once = PIECE_ELEMS / t->ne[0];
    struct job job = {.q = q, .from = t->type, .to = type, .n_elems = t->ne[0]};
    if (!gguf_row_bytes(t->type, t->ne[0], &job.from_bytes) || !gguf_row_bytes(type, t->ne[0], &job.to_bytes))
        return fail(err, CARAT_BAD_FILE, "tensor '%s': its rows do not suit type %s", t->name, gguf_type_name(type));
    at_once = at_once == 0 ? 1 : at_once;
    for (uint64_t row = 0; row < n_rows; row += at_once) {
        job.n_rows = n_rows - row < at_once ? n_rows - row : at_once;
        size_t n_bytes = (size_t)(job.n_rows * job.from_bytes);
        if (!gguf_tensor_read(q->in, t, row * job.from_bytes, q->packed, n_bytes, err))
            return false;
        threads_run(q->pool, convert_rows, &job);
        if (!check_finite(q, t, job.n_rows * job.n_elems, err) ||
            !gguf_write_data(q->out, q->converted, (size_t)(job.n_rows * job.to_bytes)))
            return false;
        q->done += n_bytes;
        show_progress(NULL, "quantising", q->done, q->total);
    }
    return true;
}

// Room for the longest piece: PIECE_ELEMS, or one row where a row is longer.
static bool take_memory(struct quantize *q, struct carat_error *err)
{
    uint64_t n_elems = PIECE_ELEMS;
    for (uint64_t i = 0; i < gguf_tensor_count(q->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->in, i);
        if (q->types[i] != t->type && t->ne[0] > n_elems)
            n_elems = t->ne[0];
    }
    size_t n_bytes = (size_t)n_elems * sizeof(float); // no type takes more than 4 bytes an element
    q->packed = malloc(n_bytes);
    q->values = malloc(n_bytes);
    q->converted = malloc(n_bytes);
    return (q->packed != NULL && q->values != NULL && q->converted != NULL) ||
           fail(err, CARAT_NO_MEMORY, "no memory for pieces of %zu bytes; close other programs", 3 * n_bytes);
}

static bool convert_all(struct quantize *q, struct carat_error *err)
{
    q->types = calloc(gguf_tensor_count(q->in) + 1, sizeof *q->types);
    if (q->types == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for a list of tensors");
    if (!read_model(q, err) || !declare(q, err) || !take_memory(q, err))
        return false;
    for (uint64_t i = 0; i < gguf_tensor_count(q->in); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(q->in, i);
        bool ok = q->types[i] == t->type ? copy_tensor(q, t, err) : convert_tensor(q, t, q->types[i], err);
        if (!ok && gguf_writer_error(q->out)->code != CARAT_OK)
            return gguf_writer_finish(q->out, err);
        if (!ok)
            return false;
    }
    return gguf_writer_finish(q->out, err);
}

static bool quantize(struct quantize *q, int n_threads, struct carat_error *err)
{
    if (!gguf_open_path(q->in_path, &q->in, err))
        return false;
    if (!check_output(q->out_path, gguf_file_source(q->in, 0)->name, err))
        return false;
    q->out = output_new(q->out_path, err);
    q->pool = q->out != NULL ? threads_new(n_threads, err) : NULL;
    return q->pool != NULL && convert_all(q, err);
}

static void print_result(const struct quantize *q)
{
    struct stat status;
    if (stat(q->out_path, &status) == 0)
        fprintf(stderr, "%s: %s of weights in, a file of %s out (%s)\n", q->out_path, bytes_text(q->total),
            bytes_text((uint64_t)status.st_size), gguf_mix_name(q->mix.mix));
}

int command_quantize(int argc, char **argv)
{
    struct quantize q = {0};
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional, *names[3];
    int n_names = 0, n_threads = 0;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && n_names < 3)
            names[n_names++] = positional;
        else if (positional != NULL)
            usage_error(argv[0], "'%s' is one argument too many", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)
            return fputs(help, stdout) < 0;
        else if (strcmp(option, "--allow-requantize") == 0)
            q.allow_requantize = true;
        else if (strcmp(option, "--threads") == 0)
            n_threads = (int)option_int(&arguments, option, 1, THREADS_MAX);
        else
            usage_error(argv[0], "there is no option '%s'", option);
    }
    if (n_names != 3)
        usage_error(argv[0], "name a model, a file to write and a mix");
    if (!gguf_mix_from_name(names[2], &q.mix.mix))
        usage_error(argv[0], "there is no mix '%s'", names[2]);
    q.in_path = names[0];
    q.out_path = names[1];
    struct carat_error err = {0};
    bool ok = quantize(&q, n_threads, &err);
    hide_progress();
    if (ok)
        print_result(&q);
    else
        fprintf(stderr, "carat quantize: %s\n", err.message);
    gguf_writer_free(q.out);
    if (q.pool != NULL)
        threads_free(q.pool);
    gguf_close(q.in);
    free(q.types);
    free(q.packed);
    free(q.values);
    free(q.converted);
    return ok ? 0 : 1;
}
