// gguf_tools_test.c: carat inspect, quantize and synth, run as programs.

#include "base/json.h" // before cmocka.h, which has a macro called fail
#include "gguf/gguf.h"
#include "gguf/mix.h"
#include "gguf/quants.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUTPUT_BYTES = 4 << 20 };

static char folder[] = "/tmp/carat-tools-XXXXXX";
static char output[OUTPUT_BYTES]; // of the last program, stdout only

__attribute__((format(printf, 1, 2))) static int run(const char *format, ...)
{
    char arguments[1024], command[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(command, sizeof command, "%s %s", CARAT_PROGRAM, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static struct gguf_file *open_out(const char *name)
{
    char path[256];
    struct gguf_file *file = NULL;
    struct carat_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!gguf_open_path(path, &file, &err))
        fail_msg("%s", err.message);
    return file;
}

static void inspect_prints_every_fixture_as_text_and_as_json(void **state)
{
    (void)state;
    static const char *const names[] = {"models/tiny-e2b.Q4_K_M", "models/tiny-26b.Q4_K_M", "models/micro-31b.F16",
        "models/tiny-mm.mmproj-F16", "models/tiny-mm.single-Q4_K_M", "tokenizer/small", "lora/lora-micro-e2b.adapter-F32"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        struct gguf_file *file;
        struct carat_error err = {0};
        snprintf(path, sizeof path, "%s/%s.gguf", CARAT_FIXTURES, names[i]);
        assert_true(gguf_open_path(path, &file, &err));
        assert_int_equal(run("inspect '%s'", path), 0);
        assert_non_null(strstr(output, "general.architecture"));
        assert_int_equal(run("inspect '%s' --json", path), 0);
        struct json_document *document = json_parse(output, strlen(output), &err);
        if (document == NULL)
            fail_msg("%s: %s", names[i], err.message);
        const struct json_value *root = json_root(document);
        assert_int_equal(json_get(root, "tensors")->n_children, gguf_tensor_count(file));
        assert_int_equal(json_get(root, "metadata")->n_children, gguf_entry_count(file));
        json_free(document);
        gguf_close(file);
    }
}

// The classes of weights add up to all tensors of the file.
static void inspect_states_the_memory_of_weights_and_of_keys_and_values(void **state)
{
    (void)state;
    char path[512];
    struct gguf_file *file;
    int64_t layers, embedding, table, kv_global, kv_per_position, context;
    snprintf(path, sizeof path, "%s/models/tiny-e2b.Q4_K_M.gguf", CARAT_FIXTURES);
    assert_true(gguf_open_path(path, &file, NULL));
    assert_int_equal(run("inspect '%s' --json --summary -c 1000", path), 0);
    struct json_document *document = json_parse(output, strlen(output), NULL);
    const struct json_value *memory = json_get(json_root(document), "memory");
    assert_true(json_get_i64(memory, "layers", &layers) && json_get_i64(memory, "embedding", &embedding) &&
                json_get_i64(memory, "per_layer_table", &table) && json_get_i64(memory, "kv_global", &kv_global) &&
                json_get_i64(memory, "kv_per_position", &kv_per_position) && json_get_i64(memory, "context", &context));
    int64_t total = 0;
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
        total += (int64_t)gguf_tensor_at(file, i)->n_bytes;
    assert_int_equal(layers + embedding + table, total);
    assert_int_equal(table, gguf_find_tensor(file, "per_layer_token_embd.weight")->n_bytes);
    // SF+F: one global layer has keys and values of its own, one head of 128, keys and values, 2 bytes each.
    assert_int_equal(kv_per_position, 1 * 128 * 2 * 2);
    assert_int_equal(kv_global, kv_per_position * context);
    assert_int_equal(context, 1000);
    json_free(document);
    // A batch is never larger than the context.
    int64_t working[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run("inspect '%s' --json --summary -c 16 --batch %d", path, i == 0 ? 16 : 512), 0);
        document = json_parse(output, strlen(output), NULL);
        assert_true(json_get_i64(json_get(json_root(document), "memory"), "working", &working[i]));
        json_free(document);
    }
    assert_int_equal(working[0], working[1]);
    gguf_close(file);
}

static void wrong_usage_and_bad_files_have_their_exit_codes(void **state)
{
    (void)state;
    assert_int_equal(run("inspect 2>/dev/null"), 2);
    assert_int_equal(run("inspect a b 2>/dev/null"), 2);
    assert_int_equal(run("inspect --nonsense x 2>/dev/null"), 2);
    assert_int_equal(run("inspect ./absent.gguf 2>/dev/null"), 1);
    assert_int_equal(run("quantize a b 2>/dev/null"), 2);
    assert_int_equal(run("quantize a b Q9_9 2>/dev/null"), 2);
    assert_int_equal(run("quantize ./absent.gguf %s/x.gguf Q8_0 2>/dev/null", folder), 1);
    assert_int_equal(run("quantize '%s/tokenizer/small.gguf' %s/x.gguf Q2_K 2>&1", CARAT_FIXTURES, folder), 1);
    // What is read is never written over.
    assert_int_equal(run("synth e2b %s/same.gguf --vocab 1024 --layers 4 2>/dev/null", folder), 0);
    assert_int_equal(run("quantize %s/same.gguf %s/./same.gguf Q8_0 2>/dev/null", folder, folder), 1);
    assert_int_equal(run("dump logits %s/same.gguf --backend cpu --tokens 2,3 -o %s/same.gguf 2>/dev/null", folder, folder), 1);
    assert_int_equal(run("inspect %s/same.gguf >/dev/null", folder), 0);
    // A server that could not serve does not start.
    assert_int_equal(run("serve ./absent.gguf --port 0 2>/dev/null"), 1);
    assert_int_equal(run("serve --models /no/such/folder --port 0 2>/dev/null"), 1);
    assert_int_equal(run("serve --backend abacus --port 0 2>/dev/null"), 2);
    assert_int_equal(run("synth e3b %s/x.gguf 2>/dev/null", folder), 2);
    assert_int_equal(run("synth e2b 2>/dev/null"), 2);
    assert_int_equal(run("synth e2b /no/such/folder/x.gguf --vocab 1024 --layers 4 2>/dev/null"), 1);
    static const char *const commands[] = {"inspect", "quantize", "synth"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run("%s --help", commands[i]), 0);
        assert_non_null(strstr(output, "usage: carat "));
    }
    char path[256];
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/x.gguf.part", folder);
    assert_int_equal(access(path, F_OK), -1);
}

// Every tensor has the type of the mix, and values near the original; what the mix leaves alone has the same bytes.
static void quantize_writes_the_mixes_it_names(void **state)
{
    (void)state;
    static const char *const mixes[] = {"Q8_0", "Q4_0", "Q4_K_M", "Q6_K", "Q5_K_M", "Q4_K_S", "F16"};
    for (size_t m = 0; m < sizeof mixes / sizeof mixes[0]; m++) {
        char path[512];
        struct gguf_file *in, *out;
        enum gguf_mix mix;
        uint32_t file_type;
        int n_changed = 0;
        snprintf(path, sizeof path, "%s/models/micro-26b.BF16.gguf", CARAT_FIXTURES);
        assert_true(gguf_open_path(path, &in, NULL));
        assert_int_equal(run("quantize '%s' %s/q.gguf %s 2>/dev/null", path, folder, mixes[m]), 0);
        out = open_out("q.gguf");
        assert_true(gguf_mix_from_name(mixes[m], &mix));
        assert_true(gguf_u32(out, "general.file_type", &file_type, NULL));
        assert_int_equal(file_type, gguf_mix_file_type(mix));
        assert_int_equal(gguf_tensor_count(in), gguf_tensor_count(out));
        for (uint64_t i = 0; i < gguf_tensor_count(in); i++) {
            const struct gguf_tensor *a = gguf_tensor_at(in, i), *b = gguf_tensor_at(out, i);
            assert_string_equal(a->name, b->name);
            if (a->type == b->type) {
                assert_memory_equal(gguf_tensor_mapped(in, a), gguf_tensor_mapped(out, b), (size_t)a->n_bytes);
                continue;
            }
            size_t n = (size_t)gguf_tensor_elements(a);
            float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
            double error = 0, size = 0;
            gguf_dequantize(a->type, gguf_tensor_mapped(in, a), x, n);
            gguf_dequantize(b->type, gguf_tensor_mapped(out, b), y, n);
            for (size_t k = 0; k < n; k++)
                error += ((double)x[k] - y[k]) * ((double)x[k] - y[k]), size += (double)x[k] * x[k];
            if (!(error < 0.01 * size)) // the coarsest format here loses a tenth of the standard deviation
                fail_msg("%s in %s: relative error %.3f", a->name, mixes[m], sqrt(error / size));
            free(x);
            free(y);
            n_changed++;
        }
        assert_true(n_changed > 20);
        gguf_close(in);
        gguf_close(out);
    }
}

static void quantised_files_are_not_quantised_again_unless_asked(void **state)
{
    (void)state;
    assert_int_equal(run("quantize '%s/models/tiny-e2b.Q8_0.gguf' %s/again.gguf Q4_K_M 2>&1", CARAT_FIXTURES, folder), 1);
    assert_non_null(strstr(output, "--allow-requantize"));
    assert_int_equal(run("quantize '%s/models/tiny-e2b.Q8_0.gguf' %s/again.gguf Q4_K_M --allow-requantize 2>/dev/null",
                         CARAT_FIXTURES, folder),
        0);
    struct gguf_file *ours = open_out("again.gguf"), *theirs;
    char path[512];
    snprintf(path, sizeof path, "%s/models/tiny-e2b.Q4_K_M.gguf", CARAT_FIXTURES);
    assert_true(gguf_open_path(path, &theirs, NULL));
    for (uint64_t i = 0; i < gguf_tensor_count(theirs); i++)
        assert_int_equal(gguf_find_tensor(ours, gguf_tensor_at(theirs, i)->name)->type, gguf_tensor_at(theirs, i)->type);
    gguf_close(ours);
    gguf_close(theirs);
    assert_int_equal(run("quantize '%s/again.gguf' %s/again.gguf Q8_0 --allow-requantize 2>/dev/null", folder, folder), 1);
}

static void assert_shape(const struct gguf_file *file, const char *name, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    const struct gguf_tensor *t = gguf_find_tensor(file, name);
    if (t == NULL)
        fail_msg("there is no tensor %s", name);
    else if (t->ne[0] != ne0 || t->ne[1] != ne1 || t->ne[2] != ne2)
        fail_msg("%s is [%llu, %llu, %llu]", name, (unsigned long long)t->ne[0], (unsigned long long)t->ne[1],
            (unsigned long long)t->ne[2]);
}

// Shapes of the released models, cut to few layers so that the files are small.
static void synth_writes_the_shapes_of_the_released_models(void **state)
{
    (void)state;
    assert_int_equal(run("synth e2b %s/s.gguf --layers 6 --vocab 1024", folder), 0);
    struct gguf_file *file = open_out("s.gguf");
    assert_shape(file, "token_embd.weight", 1536, 1024, 1);
    assert_shape(file, "per_layer_token_embd.weight", 256 * 6, 1024, 1);
    assert_shape(file, "blk.0.attn_q.weight", 1536, 8 * 256, 1);
    assert_shape(file, "blk.5.attn_q.weight", 1536, 8 * 512, 1);
    assert_shape(file, "blk.0.ffn_down.weight", 6144, 1536, 1);
    assert_shape(file, "blk.5.ffn_down.weight", 12288, 1536, 1);
    assert_int_equal(gguf_tensor_count(file), 17 * 6 + 6);
    gguf_close(file);
    assert_int_equal(run("synth 26b %s/s.gguf --layers 4 --vocab 1024 --experts 16", folder), 0);
    file = open_out("s.gguf");
    assert_shape(file, "blk.0.ffn_gate_up_exps.weight", 2816, 1408, 16);
    assert_shape(file, "blk.0.ffn_down_exps.weight", 704, 2816, 16);
    assert_shape(file, "blk.0.attn_k.weight", 2816, 8 * 256, 1);
    assert_shape(file, "blk.3.attn_k.weight", 2816, 2 * 512, 1);
    assert_null(gguf_find_tensor(file, "blk.3.attn_v.weight"));
    assert_int_equal(gguf_find_tensor(file, "blk.0.ffn_down.weight")->type, GGUF_TYPE_Q5_0); // 2112 is no multiple of 256
    gguf_close(file);
}

static void synth_repeats_itself_with_the_same_seed_only(void **state)
{
    (void)state;
    const char *const arguments = "--layers 4 --vocab 1024 --mix Q4_0";
    char command[1024];
    assert_int_equal(run("synth e2b %s/a.gguf %s", folder, arguments), 0);
    assert_int_equal(run("synth e2b %s/b.gguf %s", folder, arguments), 0);
    assert_int_equal(run("synth e2b %s/c.gguf %s --seed 1", folder, arguments), 0);
    snprintf(command, sizeof command, "cmp -s %s/a.gguf %s/b.gguf", folder, folder);
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "cmp -s %s/a.gguf %s/c.gguf", folder, folder);
    assert_int_not_equal(system(command), 0);
}

// Weights of standard deviation 1 / sqrt(inputs) keep the size of what passes through; every mix has them, within a tenth.
static void synth_keeps_activations_at_their_size_in_every_mix(void **state)
{
    (void)state;
    for (int mix = GGUF_MIX_BF16; mix < GGUF_MIXES; mix++) {
        assert_int_equal(
            run("synth e2b %s/s.gguf --layers 4 --vocab 1024 --mix %s", folder, gguf_mix_name((enum gguf_mix)mix)), 0);
        struct gguf_file *file = open_out("s.gguf");
        static const char *const names[] = {
            "blk.0.ffn_up.weight", "blk.0.attn_output.weight", "blk.0.ffn_down.weight", "blk.0.attn_v.weight"};
        for (int i = 0; i < 4; i++) {
            const struct gguf_tensor *t = gguf_find_tensor(file, names[i]);
            size_t n = (size_t)(t->ne[0] * 64);
            float *values = malloc(n * sizeof *values);
            double sum = 0;
            assert_true(gguf_dequantize(t->type, gguf_tensor_mapped(file, t), values, n));
            for (size_t k = 0; k < n; k++)
                sum += (double)values[k] * values[k];
            double gain = sqrt(sum / 64);
            if (!(gain > 0.9 && gain < 1.1))
                fail_msg("%s in %s: a gain of %.3f", names[i], gguf_mix_name((enum gguf_mix)mix), gain);
            free(values);
        }
        gguf_close(file);
    }
}

static uint64_t find_text(const struct gguf_value *texts, struct gguf_text wanted)
{
    struct gguf_text text;
    for (uint64_t i = 0; gguf_value_text(texts, i, &text); i++) {
        if (text.n_bytes == wanted.n_bytes && memcmp(text.bytes, wanted.bytes, text.n_bytes) == 0)
            return i;
    }
    return UINT64_MAX;
}

// In the real vocabulary every left part, every right part and every whole of a merge is a token.
static void the_merges_of_a_made_vocabulary_are_consistent(void **state)
{
    (void)state;
    assert_int_equal(run("synth e2b %s/s.gguf --layers 4 --vocab 2000", folder), 0);
    struct gguf_file *file = open_out("s.gguf");
    const struct gguf_value *tokens, *merges, *types;
    assert_true(gguf_array(file, "tokenizer.ggml.tokens", GGUF_VALUE_TEXT, &tokens, NULL));
    assert_true(gguf_array(file, "tokenizer.ggml.merges", GGUF_VALUE_TEXT, &merges, NULL));
    assert_true(gguf_array(file, "tokenizer.ggml.token_type", GGUF_VALUE_I64, &types, NULL));
    assert_int_equal(tokens->count, 2000);
    assert_int_equal(types->count, 2000);
    for (uint64_t i = 0; i < merges->count; i++) {
        struct gguf_text merge;
        char whole[256];
        assert_true(gguf_value_text(merges, i, &merge));
        const char *blank = memchr(merge.bytes + 1, ' ', merge.n_bytes - 1);
        assert_non_null(blank);
        size_t n_left = (size_t)(blank - merge.bytes), n_right = merge.n_bytes - n_left - 1;
        memcpy(whole, merge.bytes, n_left);
        memcpy(whole + n_left, blank + 1, n_right);
        assert_int_not_equal(find_text(tokens, (struct gguf_text){merge.bytes, n_left}), UINT64_MAX);
        assert_int_not_equal(find_text(tokens, (struct gguf_text){blank + 1, n_right}), UINT64_MAX);
        assert_int_not_equal(find_text(tokens, (struct gguf_text){whole, n_left + n_right}), UINT64_MAX);
    }
    static const char *const markers[] = {
        "<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>", "<|image|>", "<|audio|>", "<0x00>", "<0xFF>", "\n"};
    for (size_t i = 0; i < sizeof markers / sizeof markers[0]; i++)
        assert_int_not_equal(find_text(tokens, (struct gguf_text){markers[i], strlen(markers[i])}), UINT64_MAX);
    for (uint64_t i = 0; i < tokens->count; i++) { // no token is empty, none appears twice
        struct gguf_text text;
        assert_true(gguf_value_text(tokens, i, &text) && text.n_bytes > 0);
        assert_int_equal(find_text(tokens, text), i);
    }
    gguf_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inspect_prints_every_fixture_as_text_and_as_json),
        cmocka_unit_test(inspect_states_the_memory_of_weights_and_of_keys_and_values),
        cmocka_unit_test(wrong_usage_and_bad_files_have_their_exit_codes),
        cmocka_unit_test(quantize_writes_the_mixes_it_names),
        cmocka_unit_test(quantised_files_are_not_quantised_again_unless_asked),
        cmocka_unit_test(synth_writes_the_shapes_of_the_released_models),
        cmocka_unit_test(synth_repeats_itself_with_the_same_seed_only),
        cmocka_unit_test(synth_keeps_activations_at_their_size_in_every_mix),
        cmocka_unit_test(the_merges_of_a_made_vocabulary_are_consistent),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
