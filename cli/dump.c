// dump.c: carat dump: the numbers of a forward pass, in a GGUF container, for comparing with other implementations.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "dump_media.h"
#include "engine/model.h"
#include "lora/adapter.h"
#include "options.h"
#include "output.h"

static const char help[] =
    "usage: carat dump logits|hidden MODEL --tokens IDS -o FILE.gguf [OPTIONS]\n\n"
    "Runs token ids through the model and writes F32 tensors to a GGUF file (general.architecture = golden):\n"
    "logits: 'logits' [n, vocabulary], after the soft-cap.\n"
    "hidden: 'embed' [n, d] scaled embedding, 'ple' [n, layers, width] per-layer inputs (models that have them), 'layer.N' [n, "
    "d]\n"
    "output of layer N after its scale, 'norm' [n, d] after the final norm.\n\n"
    "('carat dump image --help' explains image, mel and audio.)\n\n"
    "  --tokens 2,9,4        the ids; nothing is put in front\n"
    "  --tokens-file FILE    the ids from a file, separated by commas or white space\n"
    "  -o, --output FILE     where the tensors go\n"
    "  --lora PATH           with this adapter (GGUF, safetensors or PEFT folder); may be repeated\n"
    "  --batch N             rows of a batch (default 64)\n"
    "  --kv-f32, --kv-f16    keys and values in 32 or 16 bits (default: 32 with --exact and for ref, else 16)\n";

enum { MAX_ADAPTERS = 16, MAX_NAMES = GEMMA4_MAX_LAYERS + 3 };

struct dump {
    bool hidden; // else logits
    const char *model_name, *output, *token_text, *token_file;
    const char *adapter_paths[MAX_ADAPTERS];
    int n_adapters;
    int32_t batch;
    bool kv_f32, kv_f16;
    struct carat_model_options model_options;

    int32_t *ids;
    int32_t n_ids;
    struct carat_model *model;
    struct adapter *adapters[MAX_ADAPTERS];
    struct text_context *context;
    struct kv_cache *kv;

    // What was computed so far, whole tensors in memory.
    struct result {
        char name[GGUF_MAX_NAME_BYTES];
        int32_t n_cols;
        float *values; // [n_ids, n_cols]
    } results[MAX_NAMES];
    int n_results;
    int32_t first_row; // of the batch under way
    struct carat_error err;
    bool failed; // inside a pass
};

static bool dump_option(struct arguments *arguments, const char *option, struct dump *dump)
{
    if (strcmp(option, "--tokens") == 0)
        dump->token_text = option_text(arguments, option);
    else if (strcmp(option, "--tokens-file") == 0)
        dump->token_file = option_text(arguments, option);
    else if (strcmp(option, "-o") == 0 || strcmp(option, "--output") == 0)
        dump->output = option_text(arguments, option);
    else if (strcmp(option, "--batch") == 0)
        dump->batch = (int32_t)option_int(arguments, option, 1, 1 << 14);
    else if (strcmp(option, "--kv-f32") == 0)
        dump->kv_f32 = true;
    else if (strcmp(option, "--kv-f16") == 0)
        dump->kv_f16 = true;
    else if (strcmp(option, "--lora") == 0 && dump->n_adapters == MAX_ADAPTERS)
        usage_error("dump", "more than %d adapters", MAX_ADAPTERS);
    else if (strcmp(option, "--lora") == 0)
        dump->adapter_paths[dump->n_adapters++] = option_text(arguments, option);
    else
        return model_option(arguments, option, &dump->model_options);
    return true;
}

static void parse(struct dump *dump, int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional, *what = NULL;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && what == NULL)
            what = positional;
        else if (positional != NULL && dump->model_name == NULL)
            dump->model_name = positional;
        else if (positional != NULL)
            usage_error("dump", "unexpected argument '%s'", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            printf("%s\nModel:\n%s", help, model_options_help);
            exit(0);
        } else if (!dump_option(&arguments, option, dump))
            usage_error("dump", "there is no option '%s'", option);
    }
    if (what == NULL || (strcmp(what, "logits") != 0 && strcmp(what, "hidden") != 0))
        usage_error("dump", "say what to dump: logits, hidden, image, mel or audio");
    if (dump->model_name == NULL || dump->output == NULL)
        usage_error("dump", "a model and an output file (-o) are needed");
    if ((dump->token_text == NULL) == (dump->token_file == NULL))
        usage_error("dump", "give the ids with either --tokens or --tokens-file");
    dump->hidden = strcmp(what, "hidden") == 0;
}

static bool read_ids(struct dump *dump)
{
    struct carat_error *err = &dump->err;
    if (dump->token_text != NULL)
        return parse_ids(dump->token_text, &dump->ids, &dump->n_ids, err);
    struct gguf_source *source = gguf_source_file(dump->token_file, false, err);
    if (source == NULL)
        return false;
    char *text = malloc((size_t)source->n_bytes + 1);
    if (text == NULL) {
        gguf_source_close(source);
        return fail(err, CARAT_NO_MEMORY, "no memory for '%s'", dump->token_file);
    }
    bool done = gguf_source_read(source, 0, text, (size_t)source->n_bytes, err);
    if (done) {
        text[source->n_bytes] = '\0';
        done = parse_ids(text, &dump->ids, &dump->n_ids, err);
    }
    free(text);
    gguf_source_close(source);
    return done;
}

// Adds rows of a batch to the tensor called `name`.
static bool keep_rows(struct dump *dump, const char *name, struct tensor rows)
{
    struct ops *ops = dump->model->ops;
    int i = 0;
    while (i < dump->n_results && strcmp(dump->results[i].name, name) != 0)
        i++;
    struct result *result = &dump->results[i];
    if (i == dump->n_results) {
        dump->n_results++;
        result->n_cols = rows.n_cols;
        snprintf(result->name, sizeof result->name, "%s", name);
        result->values = malloc((size_t)dump->n_ids * (size_t)rows.n_cols * sizeof(float));
    }
    if (result->values == NULL)
        return fail(&dump->err, CARAT_NO_MEMORY, "no memory for '%s' of %d positions", name, dump->n_ids);
    uint64_t n_bytes = (uint64_t)rows.n_rows * (uint64_t)rows.n_cols * sizeof(float);
    float *target = result->values + (size_t)dump->first_row * (size_t)rows.n_cols;
    int32_t ticket = ops->read_start(ops, rows.buffer, rows.offset, n_bytes, target, &dump->err);
    if (ticket < 0)
        return false;
    ops->wait(ops, ticket);
    return ops->poll(ops, ticket, &dump->err) == OPS_DONE;
}

static void capture(void *context, const char *name, int32_t layer, struct tensor rows)
{
    struct dump *dump = context;
    char full[GGUF_MAX_NAME_BYTES];
    if (strcmp(name, "layer") == 0)
        snprintf(full, sizeof full, "layer.%d", layer);
    else
        snprintf(full, sizeof full, "%s", name);
    dump->failed = dump->failed || !keep_rows(dump, full, rows);
}

static bool run(struct dump *dump)
{
    for (dump->first_row = 0; dump->first_row < dump->n_ids; dump->first_row += dump->batch) {
        int32_t rest = dump->n_ids - dump->first_row, n = rest < dump->batch ? rest : dump->batch;
        struct text_batch batch = {.n = n, .ids = dump->ids + dump->first_row, .n_logits = n};
        if (dump->hidden) {
            batch.capture = capture;
            batch.capture_context = dump;
        }
        if (!text_forward(dump->context, dump->kv, &batch, &dump->err) || dump->failed)
            return false;
        if (!dump->hidden && !keep_rows(dump, "logits", dump->context->logits))
            return false;
    }
    return true;
}

static bool prepare(struct dump *dump)
{
    struct carat_error *err = &dump->err;
    if (!read_ids(dump))
        return false;
    if (dump->n_ids == 0)
        return fail(err, CARAT_BAD_ARGUMENT, "there are no token ids to run");
    dump->model_options.text_only = true;
    dump->model = open_model(dump->model_name, &dump->model_options);
    if (dump->model == NULL)
        return false; // already reported
    if (!check_output(dump->output, gguf_file_source(dump->model->file, 0)->name, err))
        return false;
    struct ops *ops = dump->model->ops;
    struct gemma4_text *text = dump->model->text;
    for (int i = 0; i < dump->n_adapters; i++) {
        if (!adapter_load_path(ops, text, dump->adapter_paths[i], &dump->adapters[i], err))
            return false;
        if (adapter_notice(dump->adapters[i])[0] != '\0')
            fprintf(stderr, "carat dump: %s\n", adapter_notice(dump->adapters[i]));
        adapter_attach(dump->adapters[i], 1);
    }
    dump->batch = dump->batch == 0 ? 64 : dump->batch;
    dump->batch = dump->batch < ops->max_batch ? dump->batch : ops->max_batch;
    dump->batch = dump->batch < dump->n_ids ? dump->batch : dump->n_ids;
    bool exact = dump->model_options.exact || strcmp(ops->name, "ref") == 0;
    struct text_options sizes = {.max_batch = dump->batch, .max_logits = dump->batch};
    struct kv_options room = {
        .n_context = dump->n_ids, .max_batch = dump->batch, .is_f32 = dump->kv_f32 || (exact && !dump->kv_f16)};
    dump->context = text_context_new(ops, text, &sizes, err);
    dump->kv = dump->context != NULL ? kv_cache_new(ops, &text->config, &room, err) : NULL;
    return dump->kv != NULL;
}

static void declare(struct gguf_writer *writer, const struct dump *dump, const struct result *result)
{
    uint64_t ne[3] = {(uint64_t)result->n_cols, (uint64_t)dump->n_ids, 1};
    bool by_layer = strcmp(result->name, "ple") == 0;
    if (by_layer) {
        ne[0] = (uint64_t)dump->model->text->config.per_layer_width;
        ne[1] = (uint64_t)dump->model->text->config.n_layers;
        ne[2] = (uint64_t)dump->n_ids;
    }
    gguf_declare(writer, result->name, GGUF_TYPE_F32, by_layer ? 3 : 2, ne);
}

static bool save(struct dump *dump)
{
    struct gguf_writer *writer = output_new(dump->output, &dump->err);
    if (writer == NULL)
        return false;
    gguf_write_text(writer, "general.architecture", "golden");
    gguf_write_text(writer, "golden.kind", "text");
    gguf_write_text(writer, "golden.file", dump->model_name);
    gguf_write_text(writer, "golden.backend", dump->model->ops->name);
    for (int i = 0; i < dump->n_results; i++)
        declare(writer, dump, &dump->results[i]);
    for (int i = 0; i < dump->n_results; i++)
        gguf_write_data(writer, dump->results[i].values, (size_t)dump->n_ids * (size_t)dump->results[i].n_cols * sizeof(float));
    bool done = gguf_writer_finish(writer, &dump->err);
    gguf_writer_free(writer);
    return done;
}

static void clean_up(struct dump *dump)
{
    for (int i = 0; i < dump->n_results; i++)
        free(dump->results[i].values);
    kv_cache_free(dump->kv);
    text_context_free(dump->context);
    for (int i = 0; i < dump->n_adapters; i++)
        adapter_free(dump->adapters[i]);
    carat_model_free(dump->model);
    free(dump->ids);
    free(dump);
}

int command_dump(int argc, char **argv)
{
    if (argc >= 2 && dump_is_media(argv[1]))
        return dump_media(argc, argv);
    struct dump *dump = calloc(1, sizeof *dump);
    if (dump == NULL) {
        fputs("carat dump: no memory\n", stderr);
        return 1;
    }
    parse(dump, argc, argv);
    bool done = prepare(dump) && run(dump) && save(dump);
    if (!done && dump->err.code != CARAT_OK)
        fprintf(stderr, "carat dump: %s\n", dump->err.message);
    clean_up(dump);
    return done ? 0 : 1;
}
