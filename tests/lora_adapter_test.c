// lora_adapter_test.c: adapters in every form give the golden logits; what does not fit is refused by name.

#include "text_golden.h"

#include "gguf/writer.h"
#include "lora/adapter.h"
#include "ref/ref.h"

static struct adapter *load(struct rig *rig, const char *name)
{
    struct carat_error err = {0};
    struct adapter *adapter = NULL;
    require(adapter_load_path(rig->ops, rig->text, fixture("lora", name), &adapter, &err), err);
    return adapter;
}

static double deviation_from(struct rig *rig, const struct gguf_file *golden, const char *name)
{
    struct carat_error err = {0};
    size_t n_ids, n;
    int32_t *ids = golden_i32(golden, "prompt.ids", &n_ids);
    float *logits = golden_f32(golden, name, &n), *got = malloc(n * sizeof *got);
    struct deviation deviation = {0};
    require(kv_truncate(rig->kv, 0, &err), err);
    rig_run(rig, ids, (int32_t)n_ids, 0, got);
    deviation_add(&deviation, got, logits, n);
    free(got);
    free(logits);
    free(ids);
    return deviation.largest;
}

// Largest deviation that f32 arithmetic is allowed by the fixtures.
static const double tolerance = 1e-3;

static void every_form_gives_the_golden_logits(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"micro-e2b.F32.gguf", "lora-micro-e2b.gguf", "lora-micro-e2b"},
        {"micro-e2b.BF16.gguf", "lora-micro-e2b.gguf", "lora-micro-e2b/adapter_model.safetensors"},
        {"micro-e2b.F32.gguf", "lora-micro-e2b.gguf", "lora-micro-e2b.adapter-F32.gguf"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig;
        rig_open(&rig, ref_ops_new, cases[i][0], (struct rig_options){.kv_f32 = true});
        struct gguf_file *golden = golden_open("lora", cases[i][1]);
        struct adapter *adapter = load(&rig, cases[i][2]);
        assert_true(deviation_from(&rig, golden, "prompt.logits_base") < tolerance);
        adapter_attach(adapter, 1);
        double with = deviation_from(&rig, golden, "prompt.logits");
        printf("  %-44s logits %.1e\n", cases[i][2], with);
        assert_true(with < tolerance);
        adapter_attach(adapter, 0);
        assert_true(deviation_from(&rig, golden, "prompt.logits_base") < tolerance);
        adapter_attach(adapter, 1);
        adapter_detach(adapter);
        assert_true(deviation_from(&rig, golden, "prompt.logits_base") < tolerance);
        adapter_free(adapter);
        gguf_close(golden);
        rig_close(&rig);
    }
}

// Two adapters of half the strength add up to the whole one; taking the first away leaves the second.
static void adapters_add_up(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    struct gguf_file *golden = golden_open("lora", "lora-micro-e2b.gguf");
    struct adapter *first = load(&rig, "lora-micro-e2b"), *second = load(&rig, "lora-micro-e2b.adapter-F32.gguf");
    assert_int_equal(adapter_pair_count(first), adapter_pair_count(second));
    adapter_attach(first, 0.5f);
    adapter_attach(second, 0.5f);
    assert_true(deviation_from(&rig, golden, "prompt.logits") < tolerance);
    adapter_detach(first);
    adapter_attach(second, 1);
    assert_true(deviation_from(&rig, golden, "prompt.logits") < tolerance);
    adapter_free(first);
    adapter_free(second);
    assert_true(deviation_from(&rig, golden, "prompt.logits_base") < tolerance);
    gguf_close(golden);
    rig_close(&rig);
}

// --- adapters made here ---

struct matrix_spec {
    const char *name;
    uint64_t rows, cols; // as safetensors has them
};

// A safetensors file in memory whose values are small and differ.
static struct gguf_source *make_safetensors(const char *metadata, const struct matrix_spec *specs, size_t n_specs)
{
    static char bytes[1 << 20];
    char header[8192];
    uint64_t at = 0;
    int n = snprintf(header, sizeof header, "{%s", metadata);
    for (size_t i = 0; i < n_specs; i++) {
        uint64_t n_bytes = specs[i].rows * specs[i].cols * 4;
        n += snprintf(header + n, sizeof header - (size_t)n,
            "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}", i > 0 || metadata[0] != '\0' ? "," : "",
            specs[i].name, (int)specs[i].rows, (int)specs[i].cols, (int)at, (int)(at + n_bytes));
        at += n_bytes;
    }
    n += snprintf(header + n, sizeof header - (size_t)n, "}");
    uint64_t n_header = (uint64_t)n;
    memcpy(bytes, &n_header, 8);
    memcpy(bytes + 8, header, (size_t)n);
    for (uint64_t i = 0; i < at / 4; i++) {
        float value = 0.02f * (float)((int)(i * 7919 % 101) - 50) / 50;
        memcpy(bytes + 8 + n + i * 4, &value, 4);
    }
    struct carat_error err = {0};
    struct gguf_source *source = gguf_source_memory(bytes, (size_t)n + 8 + at, "made here", &err);
    require(source != NULL, err);
    return source;
}

#define PEFT(module, half) "base_model.model.model." module ".lora_" half ".weight"
#define CONFIG(rest) "{\"peft_type\":\"LORA\",\"r\":2,\"lora_alpha\":8" rest "}"

static bool try_loading(struct rig *rig, const char *metadata, const char *config, const struct matrix_spec *specs,
    size_t n_specs, struct adapter **adapter, struct carat_error *err)
{
    struct gguf_source *source = make_safetensors(metadata, specs, n_specs);
    bool done = adapter_load(rig->ops, rig->text, source, config, config != NULL ? strlen(config) : 0, adapter, err);
    gguf_source_close(source);
    return done;
}

static void scales_follow_the_configuration(void **state)
{
    (void)state;
    static const struct matrix_spec q[] = {
        {PEFT("layers.0.self_attn.q_proj", "A"), 2, 64}, {PEFT("layers.0.self_attn.q_proj", "B"), 64, 2}};
    static const struct matrix_spec plain[] = {{"lora.blk.0.attn_q.A", 2, 64}, {"lora.blk.0.attn_q.B", 64, 2}};
    static const struct matrix_spec gate[] = {
        {"base_model.model.model.language_model.layers.1.per_layer_input_gate.lora_A.default.weight", 2, 64},
        {"base_model.model.model.language_model.layers.1.per_layer_input_gate.lora_B.default.weight", 32, 2}};
    static const struct matrix_spec global[] = {
        {PEFT("per_layer_model_projection", "A"), 2, 64}, {PEFT("per_layer_model_projection", "B"), 256, 2}};
    const struct {
        const char *metadata, *config;
        const struct matrix_spec *specs;
        double scale;
        const char *target;
    } cases[] = {
        {"", CONFIG(""), q, 4, "blk.0.attn_q.weight"},
        {"", CONFIG(",\"use_rslora\":true"), q, 8 / sqrt(2), "blk.0.attn_q.weight"},
        {"", CONFIG(",\"alpha_pattern\":{\"k_proj\":1,\"self_attn.q_proj\":6,\"q_proj\":10}"), q, 3, "blk.0.attn_q.weight"},
        {"", CONFIG(",\"alpha_pattern\":{\"layers\\\\.0\\\\.self_attn.q_proj\":2}"), q, 1, "blk.0.attn_q.weight"},
        {"", CONFIG(",\"alpha_pattern\":{\"_proj\":2}"), q, 4, "blk.0.attn_q.weight"},
        {"", "{\"peft_type\":\"LORA\",\"r\":16,\"lora_alpha\":8,\"rank_pattern\":{\"q_proj\":2}}", q, 4, "blk.0.attn_q.weight"},
        {"\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"2\",\"alpha\":\"5\",\"target_modules\":\"attn_q\"}", NULL,
            plain, 2.5, "blk.0.attn_q.weight"},
        {"", CONFIG(""), gate, 4, "blk.1.inp_gate.weight"},
        {"", CONFIG(""), global, 4, "per_layer_model_proj.weight"},
    };
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        struct adapter *adapter;
        const char *target;
        require(try_loading(&rig, cases[i].metadata, cases[i].config, cases[i].specs, 2, &adapter, &err), err);
        assert_int_equal(adapter_pair_count(adapter), 1);
        adapter_attach(adapter, 1);
        assert_true(fabs(adapter_pair(adapter, 0, &target)->scale - cases[i].scale) < 1e-6);
        assert_string_equal(target, cases[i].target);
        assert_string_equal(adapter_notice(adapter), "");
        adapter_free(adapter);
    }
    rig_close(&rig);
}

// The output's share is added before the soft-cap: logits = cap tanh((W n + s B (A n)) / cap).
static void lm_head_adapts_the_output_product_only(void **state)
{
    (void)state;
    static const struct matrix_spec forms[2][2] = {
        {{"base_model.model.lm_head.lora_A.weight", 2, 64}, {"base_model.model.lm_head.lora_B.weight", 640, 2}},
        {{"lora.blk.0.lm_head.A", 2, 64}, {"lora.blk.0.lm_head.B", 640, 2}}};
    static const char plain[] = "\"__metadata__\":{\"format\":\"rullama-lora-v0\",\"rank\":\"2\",\"alpha\":\"8\"}";
    static float base[640], adapted[640], hidden[64], a[2 * 64], b[640 * 2];
    const int32_t ids[] = {2, 40, 41};
    for (int form = 0; form < 2; form++) {
        struct carat_error err = {0};
        struct adapter *adapter;
        struct rig rig;
        rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
        require(try_loading(&rig, form == 1 ? plain : "", form == 1 ? NULL : CONFIG(""), forms[form], 2, &adapter, &err), err);
        rig_run(&rig, ids, 3, 0, NULL);
        read_tensor(rig.ops, rig.context->logits, base);
        read_tensor(rig.ops, rig.context->hidden, hidden);
        adapter_attach(adapter, 100);
        require(kv_truncate(rig.kv, 0, &err), err);
        rig_run(&rig, ids, 3, 0, NULL);
        read_tensor(rig.ops, rig.context->logits, adapted);
        read_tensor(rig.ops, adapter_pair(adapter, 0, NULL)->a, a);
        read_tensor(rig.ops, adapter_pair(adapter, 0, NULL)->b, b);
        double largest = 0;
        for (int v = 0; v < 640; v++) {
            double raw = 30 * atanh(base[v] / 30.0);
            for (int r = 0; r < 2; r++) {
                double middle = 0;
                for (int i = 0; i < 64; i++)
                    middle += (double)a[r * 64 + i] * hidden[i];
                raw += 400 * b[v * 2 + r] * middle;
            }
            assert_true(fabs(adapted[v] - 30 * tanh(raw / 30)) < 1e-4);
            largest = fmax(largest, fabs(adapted[v] - base[v]));
        }
        assert_true(largest > 0.1);
        adapter_free(adapter);
        rig_close(&rig);
    }
}

static void adapters_of_shared_keys_are_left_out_with_a_notice(void **state)
{
    (void)state;
    static const struct matrix_spec specs[] = {{PEFT("layers.7.self_attn.k_proj", "A"), 2, 64},
        {PEFT("layers.7.self_attn.k_proj", "B"), 64, 2}, {PEFT("layers.7.self_attn.q_proj", "A"), 2, 64},
        {PEFT("layers.7.self_attn.q_proj", "B"), 128, 2}};
    struct carat_error err = {0};
    struct adapter *adapter;
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    require(try_loading(&rig, "", CONFIG(""), specs, 4, &adapter, &err), err);
    assert_int_equal(adapter_pair_count(adapter), 1);
    assert_non_null(strstr(adapter_notice(adapter), "1 pairs"));
    adapter_free(adapter);
    assert_false(try_loading(&rig, "", CONFIG(""), specs, 2, &adapter, &err));
    assert_non_null(strstr(err.message, "changes nothing in this model"));
    rig_close(&rig);
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    static const struct matrix_spec q[] = {
        {PEFT("layers.0.self_attn.q_proj", "A"), 2, 64}, {PEFT("layers.0.self_attn.q_proj", "B"), 64, 2}};
    static const struct matrix_spec unequal[] = {
        {PEFT("layers.0.self_attn.q_proj", "A"), 2, 64}, {PEFT("layers.0.self_attn.q_proj", "B"), 64, 3}};
    static const struct matrix_spec wide[] = {
        {PEFT("layers.0.self_attn.q_proj", "A"), 2, 128}, {PEFT("layers.0.self_attn.q_proj", "B"), 64, 2}};
    static const struct matrix_spec deep[] = {
        {PEFT("layers.8.self_attn.q_proj", "A"), 2, 64}, {PEFT("layers.8.self_attn.q_proj", "B"), 64, 2}};
    static const struct matrix_spec tower[] = {{PEFT("vision_tower.encoder.layers.0.self_attn.q_proj.linear", "A"), 2, 64},
        {PEFT("vision_tower.encoder.layers.0.self_attn.q_proj.linear", "B"), 64, 2}};
    static const struct matrix_spec router[] = {
        {PEFT("layers.0.router.proj", "A"), 2, 64}, {PEFT("layers.0.router.proj", "B"), 16, 2}};
    static const struct matrix_spec table[] = {{"base_model.model.model.embed_tokens.lora_embedding_A", 2, 640},
        {"base_model.model.model.embed_tokens.lora_embedding_B", 64, 2}};
    static const struct matrix_spec dora[] = {
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector.weight", 1, 64}};
    const struct {
        const char *config;
        const struct matrix_spec *specs;
        size_t n_specs;
        const char *says;
    } cases[] = {
        {NULL, q, 2, "adapter_config.json is missing"},
        {"{", q, 2, "adapter_config.json"},
        {"{\"peft_type\":\"IA3\"}", q, 2, "'peft_type'"},
        {"{\"peft_type\":\"LORA\"}", q, 2, "'r' and 'lora_alpha'"},
        {CONFIG(",\"use_dora\":true"), q, 2, "'use_dora'"},
        {CONFIG(",\"bias\":\"all\""), q, 2, "'bias' is 'all'"},
        {CONFIG(",\"modules_to_save\":[\"embed_tokens\"]"), q, 2, "'modules_to_save'"},
        {CONFIG(",\"layer_replication\":[[0,2]]"), q, 2, "'layer_replication'"},
        {CONFIG(",\"trainable_token_indices\":[1]"), q, 2, "'trainable_token_indices'"},
        {CONFIG(",\"alpha_pattern\":{\"layers.[0-3].q_proj\":2}"), q, 2, "regular expression"},
        {"{\"peft_type\":\"LORA\",\"r\":3,\"lora_alpha\":8}", q, 2, "has rank 2, but adapter_config.json says 3"},
        {CONFIG(""), q, 1, "no matrix B for 'blk.0.attn_q.weight'"},
        {CONFIG(",\"rank_pattern\":{}"), unequal, 2, "has rank 3"},
        {CONFIG(""), wide, 2, "maps 128 to 64 elements, but the model's projection maps 64 to 64"},
        {CONFIG(""), deep, 2, "'blk.8.attn_q.weight', which this model does not have"},
        {CONFIG(""), tower, 2, "vision_tower"},
        {CONFIG(""), router, 2, "router.proj"},
        {CONFIG(""), table, 2, "embed_tokens"},
        {CONFIG(""), dora, 1, "lora_magnitude_vector"},
        {CONFIG(""), q, 0, "changes nothing"},
    };
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        struct adapter *adapter;
        assert_false(try_loading(&rig, "", cases[i].config, cases[i].specs, cases[i].n_specs, &adapter, &err));
        if (strstr(err.message, cases[i].says) == NULL)
            give_up("case %zu says '%s' instead of '%s'", i, err.message, cases[i].says);
    }
    rig_close(&rig);
}

static void a_model_is_no_adapter_and_a_missing_file_is_named(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    struct carat_error err = {0};
    struct adapter *adapter;
    assert_false(adapter_load_path(rig.ops, rig.text, fixture("models", "micro-e2b.F32.gguf"), &adapter, &err));
    assert_non_null(strstr(err.message, "is no LoRA adapter"));
    assert_false(adapter_load_path(rig.ops, rig.text, fixture("lora", "nothing"), &adapter, &err));
    assert_int_equal(err.code, CARAT_NOT_FOUND);
    assert_false(adapter_load_path(rig.ops, rig.text, CARAT_FIXTURES, &adapter, &err));
    assert_non_null(strstr(err.message, "adapter_model.safetensors"));
    assert_false(adapter_load_path(rig.ops, rig.text, fixture("lora", "lora-tiny-e2b"), &adapter, &err));
    assert_non_null(strstr(err.message, "made for another model"));
    rig_close(&rig);
}

// A GGUF adapter with the given tensors, alpha 8.
static void write_gguf(const char *path, const char *architecture, const char *const *names, uint64_t shapes[][2], size_t n)
{
    struct carat_error err = {0};
    struct gguf_writer *writer = gguf_writer_new(path, 0, &err);
    require(writer != NULL, err);
    gguf_write_text(writer, "general.architecture", architecture);
    gguf_write_text(writer, "general.type", "adapter");
    gguf_write_text(writer, "adapter.type", "lora");
    gguf_write_f32(writer, "adapter.lora.alpha", 8);
    for (size_t i = 0; i < n; i++)
        gguf_declare(writer, names[i], GGUF_TYPE_F32, 2, shapes[i]);
    for (size_t i = 0; i < n; i++) {
        float *zeros = calloc(shapes[i][0] * shapes[i][1], sizeof *zeros);
        gguf_write_data(writer, zeros, shapes[i][0] * shapes[i][1] * sizeof *zeros);
        free(zeros);
    }
    require(gguf_writer_finish(writer, &err), err);
    gguf_writer_free(writer);
}

static void gguf_adapters_are_checked_by_name(void **state)
{
    (void)state;
    const struct {
        const char *architecture, *names[2];
        uint64_t shapes[2][2];
        const char *says; // NULL: it loads
    } cases[] = {
        {"gemma4", {"blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"}, {{64, 2}, {2, 64}}, NULL},
        {"llama", {"blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"}, {{64, 2}, {2, 64}}, "another architecture"},
        {"gemma4", {"blk.0.attn_q.weight.lora_a", "blk.0.attn_q.weight.lora_b"}, {{64, 2}, {3, 64}}, "ranks 2 and 3"},
        {"gemma4", {"blk.0.attn_q.weight.lora_a", "blk.0.attn_k.weight.lora_b"}, {{64, 2}, {2, 32}}, "no matrix"},
        {"gemma4", {"token_embd.weight.lora_a", "token_embd.weight.lora_b"}, {{2, 640}, {2, 64}}, "embedding table"},
        {"gemma4", {"blk.0.attn_q.weight", "blk.0.attn_norm.weight"}, {{64, 2}, {64, 1}}, "no half of a low-rank pair"},
    };
    char *path = temporary_file();
    struct rig rig;
    rig_open(&rig, ref_ops_new, "micro-e2b.F32.gguf", (struct rig_options){.kv_f32 = true});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        struct adapter *adapter;
        uint64_t shapes[2][2];
        memcpy(shapes, cases[i].shapes, sizeof shapes);
        write_gguf(path, cases[i].architecture, cases[i].names, shapes, 2);
        bool loaded = adapter_load_path(rig.ops, rig.text, path, &adapter, &err);
        if (loaded != (cases[i].says == NULL) || (!loaded && strstr(err.message, cases[i].says) == NULL))
            give_up("case %zu says '%s' instead of '%s'", i, err.message, cases[i].says);
        if (loaded) {
            adapter_attach(adapter, 1);
            assert_true(fabs(adapter_pair(adapter, 0, NULL)->scale - 4) < 1e-6);
            assert_true(adapter_bytes(adapter) == (2 * 64 + 64 * 2) * 4);
        }
        adapter_free(adapter);
    }
    rig_close(&rig);
    unlink(path);
    free(path);
}

static void tiny_quantised_model_with_its_adapter(void **state)
{
    (void)state;
    struct gguf_file *golden = golden_open("lora", "lora-tiny-e2b.gguf");
    char model[64];
    golden_word(golden, "golden.file", 0, model, sizeof model);
    struct rig rig;
    rig_open(&rig, ref_ops_new, model, (struct rig_options){.kv_f32 = true});
    struct adapter *adapter = load(&rig, "lora-tiny-e2b");
    adapter_attach(adapter, 1);
    double with = deviation_from(&rig, golden, "prompt.logits");
    printf("  lora-tiny-e2b on %s: logits %.1e\n", model, with);
    assert_true(with < tolerance);
    adapter_free(adapter);
    rig_close(&rig);
    gguf_close(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_gives_the_golden_logits),
        cmocka_unit_test(tiny_quantised_model_with_its_adapter),
        cmocka_unit_test(adapters_add_up),
        cmocka_unit_test(scales_follow_the_configuration),
        cmocka_unit_test(lm_head_adapts_the_output_product_only),
        cmocka_unit_test(adapters_of_shared_keys_are_left_out_with_a_notice),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(a_model_is_no_adapter_and_a_missing_file_is_named),
        cmocka_unit_test(gguf_adapters_are_checked_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
