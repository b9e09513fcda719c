// model_config_test.c: what the metadata and the tensor table must agree on, and the sentence that says what is wrong.

#include "text_golden.h"

#include "model_edit.h"
#include "ref/ref.h"

#define NUMBER(name, value) {.key = name, .has_number = true, .number = (value)}
#define FRACTION(name, value) {.key = name, .has_number = true, .number = (value), .is_f32 = true}
#define NUMBERS(name, values) {.key = name, .numbers = (values), .n = sizeof(values) / sizeof(values)[0]}

static bool opens(const char *path, struct carat_error *err)
{
    struct gguf_file *file = NULL;
    struct plan plan = {0};
    struct gemma4_text *text = NULL;
    require(gguf_open_path(path, &file, err), *err);
    bool opened = gemma4_open(file, COMPAT_NONE, &plan, &text, err);
    assert_true(opened == (text != NULL));
    if (!opened)
        assert_int_equal(plan.n_items, 0);
    gemma4_free(text);
    plan_free(&plan);
    gguf_close(file);
    return opened;
}

// Opens the edited copy and demands that the error says `says`; NULL: that it opens.
static void expect(const char *model, const struct model_edits *edits, const char *says)
{
    struct carat_error err = {0};
    char *path = edited_model(model, edits);
    bool opened = opens(path, &err);
    unlink(path);
    free(path);
    if (says == NULL && !opened)
        give_up("a file that is good is refused: %s", err.message);
    if (says != NULL && (opened || strstr(err.message, says) == NULL))
        give_up("expected '%s', got '%s'", says, opened ? "no error" : err.message);
}

static void every_inconsistent_key_is_refused_by_name(void **state)
{
    (void)state;
    static const int32_t seven[7] = {1, 1, 1, 1, 1, 1, 1}, threes[8] = {1, 1, 1, 3, 1, 1, 1, 1},
                         zero_width[8] = {96, 0, 96, 96, 96, 192, 192, 192}, all_sliding[8] = {1, 1, 1, 1, 1, 1, 1, 0},
                         no_bools[8] = {1, 2, 0, 1, 0, 1, 1, 0}, widths[8] = {96, 96, 96, 96, 96, 192, 192, 96},
                         heads[8] = {2, 2, 2, 2, 2, 2, 2, 4}, far[1] = {640}, below[1] = {-1};
    const struct {
        struct key_edit edit;
        const char *says;
    } cases[] = {
        {{.key = "general.architecture", .text = "llama"}, "architecture is 'llama'"},
        {{.key = "general.architecture", .text = "clip"}, "projector"},
        {{.key = "general.architecture", .text = "gemma4-assistant"}, "drafter"},
        {{.key = "general.architecture"}, "general.architecture"},
        {{.key = "general.architecture", .text = "a\x1b[31m"}, "architecture is 'a?[31m'"},
        {{.key = "gemma4.block_count"}, "gemma4.block_count"},
        {{.key = "gemma4.embedding_length_per_layer_input"}, "'blk.0.inp_gate.weight' is there"},
        {NUMBER("gemma4.embedding_length_per_layer_input", 0), "'blk.0.inp_gate.weight' is there"},
        {NUMBER("gemma4.block_count", 0), "'gemma4.block_count' is 0"},
        {NUMBER("gemma4.block_count", 1025), "'gemma4.block_count' is 1025"},
        {NUMBER("gemma4.block_count", 4e9), "'gemma4.block_count' is 4000000000"},
        {NUMBER("gemma4.block_count", 7), "gemma4.attention.sliding_window_pattern"},
        {{.key = "gemma4.block_count", .text = "eight"}, "gemma4.block_count"},
        {NUMBER("gemma4.context_length", 0), "gemma4.context_length"},
        {NUMBER("gemma4.embedding_length", 0), "gemma4.embedding_length"},
        {NUMBER("gemma4.embedding_length", 1 << 30), "gemma4.embedding_length"},
        {NUMBER("gemma4.embedding_length", 128), "token_embd.weight"},
        {NUMBER("gemma4.feed_forward_length", 0), "gemma4.feed_forward_length"},
        {NUMBERS("gemma4.feed_forward_length", seven), "gemma4.feed_forward_length"},
        {NUMBERS("gemma4.feed_forward_length", zero_width), "'gemma4.feed_forward_length' is 0 for layer 1"},
        {NUMBERS("gemma4.feed_forward_length", widths), "blk.7.ffn_gate.weight"},
        {NUMBER("gemma4.attention.head_count", 0), "gemma4.attention.head_count"},
        {NUMBER("gemma4.attention.head_count", 1 << 20), "gemma4.attention.head_count"},
        {NUMBERS("gemma4.attention.head_count", heads), "'gemma4.attention.head_count' differs between layers"},
        {NUMBER("gemma4.attention.head_count_kv", 0), "gemma4.attention.head_count_kv"},
        {NUMBER("gemma4.attention.head_count_kv", 3), "gemma4.attention.head_count_kv"},
        {NUMBERS("gemma4.attention.head_count_kv", threes), "gemma4.attention.head_count_kv"},
        {NUMBERS("gemma4.attention.head_count_kv", seven), "gemma4.attention.head_count_kv"},
        {{.key = "gemma4.attention.key_length"}, "gemma4.attention.key_length"},
        {NUMBER("gemma4.attention.key_length", 63), "'gemma4.attention.key_length' is 63, but it must be even"},
        {NUMBER("gemma4.attention.value_length", 32), "gemma4.attention.value_length"},
        {NUMBER("gemma4.attention.value_length_swa", 64), "gemma4.attention.value_length_swa"},
        {NUMBER("gemma4.rope.dimension_count", 16), "gemma4.rope.dimension_count"},
        {NUMBER("gemma4.rope.dimension_count_swa", 64), "gemma4.rope.dimension_count_swa"},
        {{.key = "gemma4.rope.freq_base"}, "gemma4.rope.freq_base"},
        {FRACTION("gemma4.rope.freq_base", 0), "gemma4.rope.freq_base"},
        {FRACTION("gemma4.rope.freq_base", INFINITY), "gemma4.rope.freq_base"},
        {FRACTION("gemma4.rope.freq_base_swa", NAN), "gemma4.rope.freq_base_swa"},
        {FRACTION("gemma4.attention.layer_norm_rms_epsilon", 0), "gemma4.attention.layer_norm_rms_epsilon"},
        {FRACTION("gemma4.attention.layer_norm_rms_epsilon", NAN), "gemma4.attention.layer_norm_rms_epsilon"},
        {FRACTION("gemma4.final_logit_softcapping", -1), "gemma4.final_logit_softcapping"},
        {NUMBER("gemma4.attention.sliding_window", 0), "gemma4.attention.sliding_window"},
        {{.key = "gemma4.attention.sliding_window_pattern"}, "gemma4.attention.sliding_window_pattern"},
        {NUMBER("gemma4.attention.sliding_window_pattern", 5), "gemma4.attention.sliding_window_pattern"},
        {NUMBERS("gemma4.attention.sliding_window_pattern", no_bools), "entry 1 of 'gemma4.attention.sliding_window_pattern'"},
        {NUMBERS("gemma4.attention.sliding_window_pattern", all_sliding), "gemma4.attention.shared_kv_layers"},
        {NUMBER("gemma4.attention.shared_kv_layers", 9), "gemma4.attention.shared_kv_layers"},
        {NUMBER("gemma4.attention.shared_kv_layers", 8), "gemma4.attention.shared_kv_layers"},
        {NUMBER("gemma4.attention.shared_kv_layers", 2), "blk.5.attn_k.weight"},
        {NUMBER("gemma4.embedding_length_per_layer_input", 64), "per_layer_token_embd.weight"},
        {NUMBER("gemma4.embedding_length_per_layer_input", 4e9), "gemma4.embedding_length_per_layer_input"},
        {NUMBER("gemma4.expert_count", 5000), "gemma4.expert_count"},
        {NUMBER("gemma4.expert_count", 8), "gemma4.expert_used_count"},
        {NUMBER("gemma4.vocab_size", 639), "'gemma4.vocab_size' is 639, but 'token_embd.weight' has 640 rows"},
        {{.key = "tokenizer.ggml.tokens", .text = "one"}, "tokenizer.ggml.tokens"},
        {NUMBERS("tokenizer.ggml.suppress_tokens", far), "tokenizer.ggml.suppress_tokens"},
        {NUMBERS("tokenizer.ggml.suppress_tokens", below), "tokenizer.ggml.suppress_tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect("micro-e2b.F16.gguf", &(struct model_edits){.keys = &cases[i].edit, .n_keys = 1}, cases[i].says);
}

static void layers_that_the_metadata_do_not_count_are_refused(void **state)
{
    (void)state;
    static const int32_t pattern[4] = {1, 1, 0, 1}, kv_heads[4] = {2, 2, 1, 2};
    const struct key_edit keys[] = {
        NUMBER("gemma4.block_count", 4),
        {.key = "gemma4.attention.sliding_window_pattern", .numbers = pattern, .n = 4},
        {.key = "gemma4.attention.head_count_kv", .numbers = kv_heads, .n = 4},
    };
    expect("micro-31b.F16.gguf", &(struct model_edits){.keys = keys, .n_keys = 3}, "'blk.4.attn_norm.weight' is there");
}

static void experts_need_consistent_counts(void **state)
{
    (void)state;
    const struct {
        struct key_edit edit;
        const char *says;
    } cases[] = {
        {NUMBER("gemma4.expert_used_count", 17), "gemma4.expert_used_count"},
        {NUMBER("gemma4.expert_used_count", 0), "gemma4.expert_used_count"},
        {NUMBER("gemma4.expert_count", 8), "blk.0.ffn_gate_inp.weight"},
        {NUMBER("gemma4.expert_count", 0), "blk.0.ffn_gate_inp.weight"},
        {{.key = "gemma4.expert_count"}, "blk.0.ffn_gate_inp.weight"},
        {NUMBER("gemma4.expert_feed_forward_length", 16), "blk.0.ffn_gate_up_exps.weight"},
        {{.key = "gemma4.expert_feed_forward_length"}, "gemma4.expert_feed_forward_length"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect("micro-26b.BF16.gguf", &(struct model_edits){.keys = &cases[i].edit, .n_keys = 1}, cases[i].says);
}

static void keys_may_be_scalars_arrays_or_absent_where_they_say_nothing_new(void **state)
{
    (void)state;
    static const int32_t ones[8] = {1, 1, 1, 1, 1, 1, 1, 1}, twos[8] = {2, 2, 2, 2, 2, 2, 2, 2},
                         pattern[8] = {1, 1, 0, 1, 0, 1, 1, 0};
    const struct key_edit edits[] = {
        NUMBERS("gemma4.attention.head_count_kv", ones),
        NUMBERS("gemma4.attention.head_count", twos),
        NUMBERS("gemma4.attention.sliding_window_pattern", pattern),
        NUMBER("gemma4.feed_forward_length", 96), // the sharing layers are twice as wide: their tensors say so
        {.key = "gemma4.attention.value_length"},
        {.key = "gemma4.attention.value_length_swa"},
        {.key = "gemma4.rope.dimension_count"},
        {.key = "gemma4.rope.dimension_count_swa"},
        {.key = "gemma4.rope.freq_base_swa"},
        {.key = "gemma4.final_logit_softcapping"},
        NUMBER("gemma4.vocab_size", 640),
    };
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
        expect("micro-e2b.F16.gguf", &(struct model_edits){.keys = &edits[i], .n_keys = 1}, NULL);
}

static void every_tensor_must_exist_with_its_shape(void **state)
{
    (void)state;
    static const char zeros[1 << 18];
    static const char *const names[] = {"token_embd.weight", "output_norm.weight", "per_layer_token_embd.weight",
        "per_layer_model_proj.weight", "per_layer_proj_norm.weight", "blk.0.attn_norm.weight", "blk.0.attn_q.weight",
        "blk.0.attn_k.weight", "blk.0.attn_v.weight", "blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
        "blk.0.attn_output.weight", "blk.0.post_attention_norm.weight", "blk.0.ffn_norm.weight", "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight", "blk.0.ffn_down.weight", "blk.0.post_ffw_norm.weight", "blk.0.inp_gate.weight",
        "blk.0.proj.weight", "blk.0.post_norm.weight", "blk.2.attn_v.weight", "blk.7.attn_q.weight"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tensor_edit gone = {.name = names[i]};
        expect("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &gone, .n_tensors = 1}, names[i]);
        struct tensor_edit shapes[] = {
            {names[i], names[i], GGUF_TYPE_F32, {31, 3, 1, 1}, zeros},
            {names[i], names[i], GGUF_TYPE_F32, {64, 64, 2, 2}, zeros},
        };
        for (int s = 0; s < 2; s++)
            expect("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &shapes[s], .n_tensors = 1}, names[i]);
    }
    struct tensor_edit freqs = {"rope_freqs.weight", "rope_freqs.weight", GGUF_TYPE_F32, {16, 1, 1, 1}, zeros};
    expect("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &freqs, .n_tensors = 1}, "rope_freqs.weight");
    struct tensor_edit scale = {
        "blk.3.layer_output_scale.weight", "blk.3.layer_output_scale.weight", GGUF_TYPE_F32, {2, 1, 1, 1}, zeros};
    expect("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &scale, .n_tensors = 1}, "blk.3.layer_output_scale.weight");
}

static void types_that_cannot_be_computed_are_refused_by_name(void **state)
{
    (void)state;
    static const char zeros[1 << 18];
    struct tensor_edit edits[] = {
        {"blk.0.attn_norm.weight", "blk.0.attn_norm.weight", GGUF_TYPE_F16, {64, 1, 1, 1}, zeros},
        {"blk.0.attn_q.weight", "blk.0.attn_q.weight", GGUF_TYPE_I32, {64, 64, 1, 1}, zeros},
        {NULL, "blk.0.attn_q.scale", GGUF_TYPE_F32, {1, 1, 1, 1}, zeros},
    };
    static const char *const says[] = {"'blk.0.attn_norm.weight' has the type F16; vectors must be F32",
        "'blk.0.attn_q.weight' has the type I32, which is not supported", "blk.0.attn_q.scale"};
    for (int i = 0; i < 3; i++)
        expect("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &edits[i], .n_tensors = 1}, says[i]);
    struct tensor_edit router = {"blk.0.ffn_gate_inp.weight", "blk.0.ffn_gate_inp.weight", GGUF_TYPE_F16, {64, 16, 1, 1}, zeros};
    expect("micro-26b.BF16.gguf", &(struct model_edits){.tensors = &router, .n_tensors = 1}, "a router must be F32");
}

// --- forms of the same model ---

enum { N_IDS = 24 };

static void prompt_logits(const char *path, enum gemma4_compat compat, float logits[N_IDS * 640])
{
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 131 + 2) % 640;
    require(gguf_open_path(path, &file, &err), err);
    struct rig rig;
    rig_open_file(&rig, ref_ops_new, file, (struct rig_options){.kv_f32 = true, .compat = compat});
    rig_run(&rig, ids, N_IDS, 0, logits);
    rig_close(&rig);
}

static float *logits_of(const char *model, const struct model_edits *edits)
{
    float *logits = malloc(N_IDS * 640 * sizeof *logits);
    assert_non_null(logits);
    char *path = edited_model(model, edits);
    prompt_logits(path, COMPAT_NONE, logits);
    unlink(path);
    free(path);
    return logits;
}

static void expect_same_logits(const char *model, const struct model_edits *edits)
{
    float *plain = logits_of(model, &(struct model_edits){0}), *edited = logits_of(model, edits);
    assert_memory_equal(plain, edited, N_IDS * 640 * sizeof *plain);
    free(edited);
    free(plain);
}

static void older_names_mean_the_same_tensors(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"post_attention_norm.weight", "attn_post_norm.weight"},
        {"ffn_norm.weight", "ffn_pre_norm.weight"}, {"post_ffw_norm.weight", "ffn_post_norm.weight"},
        {"layer_output_scale.weight", "layer_scalar"}, {"pre_ffw_norm_2.weight", "ffn_pre_norm_2.weight"},
        {"post_ffw_norm_1.weight", "ffn_post_norm_1.weight"}, {"post_ffw_norm_2.weight", "ffn_post_norm_2.weight"},
        {"ffn_down_exps.scale", "ffn_gate_inp.per_expert_scale"}};
    enum { N = sizeof pairs / sizeof pairs[0] };
    char names[3 * N][2][64];
    struct tensor_edit edits[3 * N];
    for (int i = 0; i < 3 * N; i++) {
        for (int side = 0; side < 2; side++)
            snprintf(names[i][side], 64, "blk.%d.%s", i / N, pairs[i % N][side]);
        edits[i] = (struct tensor_edit){.name = names[i][0], .new_name = names[i][1]};
    }
    expect_same_logits("micro-26b.BF16.gguf", &(struct model_edits){.tensors = edits, .n_tensors = 3 * N});
}

static void a_missing_scale_is_one(void **state)
{
    (void)state;
    float ones[16];
    for (int i = 0; i < 16; i++)
        ones[i] = 1;
    struct tensor_edit set[] = {
        {"blk.1.layer_output_scale.weight", "blk.1.layer_output_scale.weight", GGUF_TYPE_F32, {1, 1, 1, 1}, ones},
        {"blk.0.ffn_down_exps.scale", "blk.0.ffn_down_exps.scale", GGUF_TYPE_F32, {16, 1, 1, 1}, ones}};
    struct tensor_edit gone[] = {{.name = "blk.1.layer_output_scale.weight"}, {.name = "blk.0.ffn_down_exps.scale"}};
    float *with = logits_of("micro-26b.BF16.gguf", &(struct model_edits){.tensors = set, .n_tensors = 2});
    float *without = logits_of("micro-26b.BF16.gguf", &(struct model_edits){.tensors = gone, .n_tensors = 2});
    assert_memory_equal(with, without, N_IDS * 640 * sizeof *with);
    free(without);
    free(with);
}

static void rotary_factors_may_be_missing(void **state)
{
    (void)state;
    struct tensor_edit gone = {.name = "rope_freqs.weight"};
    expect_same_logits("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &gone, .n_tensors = 1});
}

static void an_output_matrix_of_its_own_is_used(void **state)
{
    (void)state;
    uint64_t n_bytes;
    uint16_t *table = model_tensor("micro-e2b.F16.gguf", "token_embd.weight", &n_bytes);
    struct tensor_edit same = {NULL, "output.weight", GGUF_TYPE_F16, {64, 640, 1, 1}, table};
    expect_same_logits("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &same, .n_tensors = 1});
    memset(table, 0, n_bytes);
    float *zero = logits_of("micro-e2b.F16.gguf", &(struct model_edits){.tensors = &same, .n_tensors = 1});
    for (int i = 0; i < N_IDS * 640; i++)
        assert_true(zero[i] == 0);
    free(zero);
    free(table);
}

static void fused_q_k_v_are_the_three_matrices(void **state)
{
    (void)state;
    static const char *const parts[] = {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"};
    char *fused = malloc(1 << 16);
    uint64_t n = 0;
    struct tensor_edit edits[4];
    for (int i = 0; i < 3; i++) {
        uint64_t n_bytes;
        char *bytes = model_tensor("micro-e2b.F16.gguf", parts[i], &n_bytes);
        memcpy(fused + n, bytes, n_bytes);
        n += n_bytes;
        free(bytes);
        edits[i] = (struct tensor_edit){.name = parts[i]};
    }
    edits[3] = (struct tensor_edit){NULL, "blk.0.attn_qkv.weight", GGUF_TYPE_F16, {64, n / 128, 1, 1}, fused};
    assert_int_equal(n / 128, 32 * (2 + 2));
    expect_same_logits("micro-e2b.F16.gguf", &(struct model_edits){.tensors = edits, .n_tensors = 4});
    free(fused);
}

static void split_expert_matrices_are_the_fused_one(void **state)
{
    (void)state;
    uint64_t n_bytes, half = 64 * 32 * 2;
    char *fused = model_tensor("micro-26b.BF16.gguf", "blk.0.ffn_gate_up_exps.weight", &n_bytes);
    char *gate = malloc(16 * half), *up = malloc(16 * half);
    for (int e = 0; e < 16; e++) {
        memcpy(gate + (size_t)e * half, fused + (size_t)(2 * e) * half, half);
        memcpy(up + (size_t)e * half, fused + (size_t)(2 * e + 1) * half, half);
    }
    struct tensor_edit edits[] = {{.name = "blk.0.ffn_gate_up_exps.weight"},
        {NULL, "blk.0.ffn_gate_exps.weight", GGUF_TYPE_BF16, {64, 32, 16, 1}, gate},
        {NULL, "blk.0.ffn_up_exps.weight", GGUF_TYPE_BF16, {64, 32, 16, 1}, up}};
    expect_same_logits("micro-26b.BF16.gguf", &(struct model_edits){.tensors = edits, .n_tensors = 3});
    free(up);
    free(gate);
    free(fused);
}

static void poisoned_keys_and_values_of_sharing_layers_change_nothing(void **state)
{
    (void)state;
    uint16_t poison[64 * 64];
    float nan[64];
    memset(poison, 0x7e, sizeof poison);
    memset(nan, 0xff, sizeof nan);
    struct tensor_edit edits[] = {{NULL, "blk.5.attn_k.weight", GGUF_TYPE_F16, {64, 32, 1, 1}, poison},
        {NULL, "blk.5.attn_v.weight", GGUF_TYPE_F16, {64, 32, 1, 1}, poison},
        {NULL, "blk.5.attn_k_norm.weight", GGUF_TYPE_F32, {32, 1, 1, 1}, nan},
        {NULL, "blk.7.attn_k.weight", GGUF_TYPE_F16, {64, 64, 1, 1}, poison},
        {NULL, "blk.7.attn_v.weight", GGUF_TYPE_F16, {3, 5, 1, 1}, poison}};
    expect_same_logits("micro-e2b.F16.gguf", &(struct model_edits){.tensors = edits, .n_tensors = 5});
}

static void suppressed_tokens_get_the_least_logit(void **state)
{
    (void)state;
    static const int32_t ids[2] = {3, 639};
    struct key_edit edit = NUMBERS("tokenizer.ggml.suppress_tokens", ids);
    float *plain = logits_of("micro-e2b.F16.gguf", &(struct model_edits){0});
    float *edited = logits_of("micro-e2b.F16.gguf", &(struct model_edits){.keys = &edit, .n_keys = 1});
    for (int i = 0; i < N_IDS * 640; i++) {
        bool suppressed = i % 640 == 3 || i % 640 == 639;
        assert_true(suppressed ? edited[i] == -3.0e38f : edited[i] == plain[i]);
    }
    free(edited);
    free(plain);
}

// Ollama's former engine saw one key more. With a window of 17 in the file the definition does the same.
static void compat_ollama_sees_one_key_more(void **state)
{
    (void)state;
    static float compat[N_IDS * 640];
    struct key_edit wider = NUMBER("gemma4.attention.sliding_window", 17);
    float *plain = logits_of("micro-e2b.F16.gguf", &(struct model_edits){0});
    float *wide = logits_of("micro-e2b.F16.gguf", &(struct model_edits){.keys = &wider, .n_keys = 1});
    prompt_logits(fixture("models", "micro-e2b.F16.gguf"), COMPAT_OLLAMA, compat);
    assert_memory_equal(compat, wide, sizeof compat);
    // Row 16 is the first that sees a difference.
    assert_memory_equal(plain, wide, 16 * 640 * sizeof *plain);
    assert_memory_not_equal(plain + 16 * 640, wide + 16 * 640, 640 * sizeof *plain);
    free(wide);
    free(plain);
}

// --- damage ---

// Opens bytes as a model and, if they are accepted, runs three ids. True when that was possible.
static bool runs(const char *bytes, size_t n_bytes)
{
    struct carat_error err = {0};
    struct gguf_file *file = NULL;
    struct plan plan = {0};
    struct gemma4_text *text = NULL;
    struct text_context *context = NULL;
    struct kv_cache *kv = NULL;
    struct gguf_source *source = gguf_source_memory(bytes, n_bytes, "damaged", &err);
    require(source != NULL, err);
    if (!gguf_open(&source, 1, &file, &err)) {
        gguf_source_close(source);
        return false;
    }
    struct ops *ops = ref_ops_new(&err);
    bool done = gemma4_open(file, COMPAT_NONE, &plan, &text, &err) && plan_load(&plan, ops, NULL, NULL, &err);
    if (done && gemma4_ready(text, &err)) {
        int32_t ids[3] = {0, 0, text->config.n_vocab - 1};
        struct text_batch batch = {.n = 3, .ids = ids, .n_logits = 1};
        context = text_context_new(ops, text, &(struct text_options){.max_batch = 3, .max_logits = 1}, &err);
        kv =
            context != NULL ? kv_cache_new(ops, &text->config, &(struct kv_options){.n_context = 8, .max_batch = 3}, &err) : NULL;
        done = kv != NULL && text_forward(context, kv, &batch, &err);
    }
    assert_true(done || err.message[0] != '\0');
    kv_cache_free(kv);
    text_context_free(context);
    plan_unload(&plan, ops);
    gemma4_free(text);
    plan_free(&plan);
    ops->free(ops);
    gguf_close(file);
    return done;
}

// Bytes of the header are changed at random. Whatever comes out either is refused with a sentence or runs within its bounds
// (which the sanitizers watch); a name or number that matters is hit often enough.
static void damaged_headers_are_refused_or_harmless(void **state)
{
    (void)state;
    static const char *const models[] = {"micro-e2b.BF16.gguf", "micro-26b.BF16.gguf"};
    uint32_t seed = 7;
    for (int m = 0; m < 2; m++) {
        struct carat_error err = {0};
        struct gguf_source *source = gguf_source_file(fixture("models", models[m]), false, &err);
        require(source != NULL, err);
        size_t n_bytes = (size_t)source->n_bytes;
        char *bytes = malloc(n_bytes);
        require(gguf_source_read(source, 0, bytes, n_bytes, &err), err);
        gguf_source_close(source);
        struct gguf_file *file = golden_open("models", models[m]);
        uint32_t n_header = (uint32_t)gguf_header_bytes(file, 0);
        gguf_close(file);
        int n_run = 0, n_tries = 1500;
        for (int i = 0; i < n_tries; i++) {
            // The keys of the model come first, the table of tensors last; between them lies the tokenizer.
            seed = seed * 1664525u + 1013904223u;
            uint32_t at = (seed >> 4) % 2500;
            at = seed >> 31 ? at : n_header - 1 - at % (n_header / 2);
            char before = bytes[at];
            bytes[at] = (char)(seed >> 16 & 1 ? 1 << (seed >> 17 & 7) ^ before : (int)(seed >> 20));
            n_run += runs(bytes, n_bytes);
            bytes[at] = before;
        }
        assert_true(n_run > 0 && n_run < n_tries);
        assert_true(runs(bytes, n_bytes));
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_inconsistent_key_is_refused_by_name),
        cmocka_unit_test(layers_that_the_metadata_do_not_count_are_refused),
        cmocka_unit_test(experts_need_consistent_counts),
        cmocka_unit_test(keys_may_be_scalars_arrays_or_absent_where_they_say_nothing_new),
        cmocka_unit_test(every_tensor_must_exist_with_its_shape),
        cmocka_unit_test(types_that_cannot_be_computed_are_refused_by_name),
        cmocka_unit_test(older_names_mean_the_same_tensors),
        cmocka_unit_test(a_missing_scale_is_one),
        cmocka_unit_test(rotary_factors_may_be_missing),
        cmocka_unit_test(an_output_matrix_of_its_own_is_used),
        cmocka_unit_test(fused_q_k_v_are_the_three_matrices),
        cmocka_unit_test(split_expert_matrices_are_the_fused_one),
        cmocka_unit_test(poisoned_keys_and_values_of_sharing_layers_change_nothing),
        cmocka_unit_test(suppressed_tokens_get_the_least_logit),
        cmocka_unit_test(compat_ollama_sees_one_key_more),
        cmocka_unit_test(damaged_headers_are_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
