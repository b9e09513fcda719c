// synth.c: carat synth: a GGUF file with the shapes and types of a released model and random weights.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "options.h"
#include "output.h"
#include "synth.h"

static const char help[] =
    "usage: carat synth e2b|e4b|12b|26b|31b OUT.gguf [OPTIONS]\n\n"
    "Writes a model file with the real shapes and types and seeded random weights, for tests of scale and speed. Activations "
    "stay of\n"
    "a sane size; what it generates means nothing.\n\n"
    "  --mix MIX        types of the weights (default Q4_K_M): F32 F16 BF16 Q8_0 Q6_K Q5_K_M Q4_K_M Q4_K_S Q4_0 Q3_K_M Q2_K "
    "IQ4_NL IQ4_XS\n"
    "  --ollama         one file with the towers and the per-layer table in BF16, as Ollama's library has it\n"
    "  --mmproj         only the towers, as a projector file in F16\n"
    "  --vocab N        tokens (default 262144, at least 1024)\n"
    "  --vocab-from F   copy the tokenizer of the GGUF file F instead of making one; its size counts unless --vocab is given\n"
    "  --layers N       fewer layers, at least 4\n"
    "  --experts N      fewer experts (26b), at least 8\n"
    "  --seed N         another set of weights (default 0)\n";

enum { MIN_VOCABULARY = 1024, MAX_VOCABULARY = 1 << 20, MIN_LAYERS = 4 };

static bool find_model(const char *name, struct synth_model *model)
{
    for (int i = 0; i < n_synth_models; i++) {
        if (strcmp(synth_models[i].name, name) == 0) {
            *model = synth_models[i];
            return true;
        }
    }
    return false;
}

static void reduce_layers(struct synth_model *model, uint32_t n_layers)
{
    model->n_shared = model->n_shared * n_layers / model->n_layers;
    model->n_layers = n_layers;
}

static bool count_tokens(const char *path, uint32_t *n, struct carat_error *err)
{
    struct gguf_file *file;
    const struct gguf_value *tokens;
    if (!gguf_open_path(path, &file, err))
        return false;
    bool ok = gguf_array(file, "tokenizer.ggml.tokens", GGUF_VALUE_TEXT, &tokens, err);
    if (ok && (tokens->count < 1 || tokens->count > MAX_VOCABULARY))
        ok = fail(err, CARAT_BAD_ARGUMENT, "%s has %llu tokens", path, (unsigned long long)tokens->count);
    if (ok)
        *n = (uint32_t)tokens->count;
    gguf_close(file);
    return ok;
}

static bool write_data(
    const struct synth *synth, const struct synth_list *list, struct gguf_writer *writer, struct carat_error *err)
{
    struct synth_data *data = synth_data_new(synth->seed);
    if (data == NULL)
        return fail(err, CARAT_NO_MEMORY, "no memory for random blocks");
    uint64_t total = 0, done = 0, n_bytes = 0;
    for (size_t i = 0; i < list->n_tensors; i++) {
        const struct synth_tensor *t = &list->tensors[i];
        gguf_row_bytes(t->type, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], &n_bytes);
        total += n_bytes;
    }
    bool ok = true;
    for (size_t i = 0; ok && i < list->n_tensors; i++) {
        const struct synth_tensor *t = &list->tensors[i];
        ok = synth_write_tensor(data, t, writer, err);
        gguf_row_bytes(t->type, t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3], &n_bytes);
        done += n_bytes;
        show_progress(NULL, "writing", done, total);
    }
    hide_progress();
    synth_data_free(data);
    return ok;
}

static bool write_file(const struct synth *synth, struct gguf_writer *writer, struct carat_error *err)
{
    struct synth_list list = {0};
    bool ok = true;
    if (!synth->towers_only) {
        synth_write_text_keys(synth, writer);
        ok = synth_write_vocabulary(synth, writer, err);
        synth_list_text(synth, &list);
    }
    if (synth->towers_only || synth->ollama) {
        synth_write_tower_keys(synth, writer);
        synth_list_towers(synth, &list);
    }
    if (list.out_of_memory)
        ok = fail(err, CARAT_NO_MEMORY, "no memory for a list of tensors");
    for (size_t i = 0; ok && i < list.n_tensors; i++)
        gguf_declare(writer, list.tensors[i].name, list.tensors[i].type, list.tensors[i].n_dims, list.tensors[i].ne);
    ok = ok && write_data(synth, &list, writer, err);
    free(list.tensors);
    return ok;
}

static bool synthesise(const struct synth *synth, const char *path, struct carat_error *err)
{
    struct gguf_writer *writer = output_new(path, err);
    if (writer == NULL)
        return false;
    bool ok = write_file(synth, writer, err);
    if (gguf_writer_error(writer)->code != CARAT_OK || ok)
        ok = gguf_writer_finish(writer, err);
    gguf_writer_free(writer);
    return ok;
}

int command_synth(int argc, char **argv)
{
    struct synth synth = {.mix = GGUF_MIX_Q4_K_M};
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional, *names[2] = {NULL, NULL};
    int n_names = 0;
    uint32_t n_layers = 0, n_experts = 0;
    while (arguments_next(&arguments, &option, &positional)) {
        if (positional != NULL && n_names < 2)
            names[n_names++] = positional;
        else if (positional != NULL)
            usage_error(argv[0], "'%s' is one argument too many", positional);
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)
            return fputs(help, stdout) < 0;
        else if (strcmp(option, "--ollama") == 0)
            synth.ollama = true;
        else if (strcmp(option, "--mmproj") == 0)
            synth.towers_only = true;
        else if (strcmp(option, "--mix") == 0) {
            const char *mix = option_text(&arguments, option);
            if (!gguf_mix_from_name(mix, &synth.mix))
                usage_error(argv[0], "there is no mix '%s'", mix);
        } else if (strcmp(option, "--vocab") == 0)
            synth.n_vocab = (uint32_t)option_int(&arguments, option, MIN_VOCABULARY, MAX_VOCABULARY);
        else if (strcmp(option, "--vocab-from") == 0)
            synth.vocabulary_from = option_text(&arguments, option);
        else if (strcmp(option, "--layers") == 0)
            n_layers = (uint32_t)option_int(&arguments, option, MIN_LAYERS, GGUF_MIX_MAX_LAYERS);
        else if (strcmp(option, "--experts") == 0)
            n_experts = (uint32_t)option_int(&arguments, option, 8, 1024);
        else if (strcmp(option, "--seed") == 0)
            synth.seed = (uint64_t)option_int(&arguments, option, 0, INT32_MAX);
        else
            usage_error(argv[0], "there is no option '%s'", option);
    }
    if (n_names != 2 || !find_model(names[0], &synth.model))
        usage_error(argv[0], "name a model (e2b, e4b, 12b, 26b or 31b) and a file to write");
    if (synth.ollama && synth.model.unified)
        usage_error(argv[0], "12b has no towers that fit one file; use --mmproj");
    if (n_layers > synth.model.n_layers)
        usage_error(argv[0], "%s has %u layers", names[0], synth.model.n_layers);
    if (n_experts > synth.model.n_experts)
        usage_error(argv[0], "%s has %u experts", names[0], synth.model.n_experts);
    if (n_experts != 0)
        synth.model.n_experts = n_experts;
    if (n_layers != 0)
        reduce_layers(&synth.model, n_layers);
    struct carat_error err = {0};
    bool ok = synth.vocabulary_from == NULL || synth.n_vocab != 0 || count_tokens(synth.vocabulary_from, &synth.n_vocab, &err);
    if (synth.n_vocab == 0)
        synth.n_vocab = SYNTH_VOCABULARY;
    ok = ok && synthesise(&synth, names[1], &err);
    if (!ok)
        fprintf(stderr, "carat synth: %s\n", err.message);
    return ok ? 0 : 1;
}
