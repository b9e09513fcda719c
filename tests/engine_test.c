// engine_test.c: sessions and generation through the public API, judged by the golden greedy continuations.

#include "model_rig.h"

#include "base/json.h"
#include "engine/reuse.h"
#include "engine/stop.h"
#include "text/tokenizer.h"

static struct carat_session *new_session(struct carat_model *model, int32_t context, int32_t batch)
{
    struct carat_error err = {0};
    struct carat_session_options options = {.context_length = context, .batch = batch};
    struct carat_session *session = NULL;
    require(carat_session_new(model, &options, &session, &err), err);
    return session;
}

static struct carat_generate_options greedy(int32_t max_tokens)
{
    struct carat_generate_options options = {.max_tokens = max_tokens, .ignore_eos = true, .n_logprobs = -1};
    carat_sampling_default(&options.sampling);
    options.sampling.temperature = 0;
    return options;
}

// Generates until the end; the finish event. ids [at least 64] take what was generated.
static struct carat_event finish_generation(struct carat_session *session, int32_t *ids)
{
    struct carat_error err = {0};
    struct carat_event event;
    for (;;) {
        enum carat_status status = carat_generate_next(session, &event, &err);
        require(status != CARAT_FAILED, err);
        if (status == CARAT_PENDING)
            carat_session_wait(session, 1000);
        if (status == CARAT_EVENT && event.kind == CARAT_EVENT_FINISH)
            break;
        assert_int_not_equal(status, CARAT_DONE);
    }
    for (int32_t i = 0; i < event.n_ids && i < 64; i++)
        ids[i] = event.ids[i];
    return event;
}

struct prompt {
    int32_t *ids;
    size_t n;
    int32_t *greedy;
    size_t n_greedy;
};

static struct prompt golden_prompt(const char *name)
{
    struct gguf_file *golden = golden_open("text", name);
    struct prompt prompt;
    prompt.ids = golden_i32(golden, "prompt.ids", &prompt.n);
    prompt.greedy = golden_i32(golden, "greedy.ids", &prompt.n_greedy);
    gguf_close(golden);
    return prompt;
}

static void prompt_free(struct prompt *prompt)
{
    free(prompt->ids);
    free(prompt->greedy);
}

static void every_model_continues_as_the_reference_does(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"text-micro-e2b.F32.gguf", "micro-e2b.F32.gguf"},
        {"text-micro-e2b.F32.gguf", "micro-e2b.F16.gguf"},
        {"text-micro-e2b.F32.gguf", "micro-e2b.BF16.gguf"},
        {"text-micro-31b.F16.gguf", "micro-31b.F16.gguf"},
        {"text-micro-26b.BF16.gguf", "micro-26b.BF16.gguf"},
        {"text-tiny-e2b.Q4_K_M.gguf", "tiny-e2b.Q4_K_M.gguf"},
        {"text-tiny-e2b.Q8_0.gguf", "tiny-e2b.Q8_0.gguf"},
        {"text-tiny-31b.Q4_K_M.gguf", "tiny-31b.Q4_K_M.gguf"},
        {"text-tiny-26b.Q4_K_M.gguf", "tiny-26b.Q4_K_M.gguf"},
        {"text-tiny-quant.Q4_0.gguf", "tiny-quant.Q4_0.gguf"},
    };
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        struct prompt prompt = golden_prompt(files[f][0]);
        for (int b = 0; b < n_backends(); b++) {
            struct carat_model *model = open_model(files[f][1], host_backends[b]);
            struct carat_session *session = new_session(model, 128, 7); // chunks of odd size
            struct carat_generate_options options = greedy((int32_t)prompt.n_greedy);
            struct carat_error err = {0};
            int32_t got[64];
            require(carat_generate_begin(session, prompt.ids, (int32_t)prompt.n, NULL, 0, &options, &err), err);
            struct carat_event end = finish_generation(session, got);
            assert_int_equal(end.n_ids, prompt.n_greedy);
            assert_int_equal(end.finish, CARAT_FINISH_LENGTH);
            assert_memory_equal(got, prompt.greedy, prompt.n_greedy * sizeof *got);
            carat_session_free(session);
            carat_model_free(model);
        }
        prompt_free(&prompt);
    }
}

static void a_longer_prompt_computes_only_what_is_new_and_gives_the_same_tokens(void **state)
{
    (void)state;
    struct prompt prompt = golden_prompt("text-tiny-e2b.Q4_K_M.gguf");
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 128, 16);
    struct carat_generate_options options = greedy(20);
    struct carat_error err = {0};
    int32_t first[64], second[64];
    require(carat_generate_begin(session, prompt.ids, (int32_t)prompt.n, NULL, 0, &options, &err), err);
    finish_generation(session, first);
    // The prompt again with its first 8 tokens of answer: 12 more are the rest of the golden answer.
    int32_t longer[64];
    memcpy(longer, prompt.ids, prompt.n * sizeof *longer);
    memcpy(longer + prompt.n, prompt.greedy, 8 * sizeof *longer);
    options.max_tokens = 12;
    require(carat_generate_begin(session, longer, (int32_t)prompt.n + 8, NULL, 0, &options, &err), err);
    struct carat_event end = finish_generation(session, second);
    assert_int_equal(end.usage.n_prompt, prompt.n + 8);
    assert_int_equal(end.usage.n_prompt_cached, prompt.n + 7);
    assert_memory_equal(second, prompt.greedy + 8, 12 * sizeof *second);
    // Another beginning shares nothing.
    longer[0] = prompt.ids[1];
    require(carat_generate_begin(session, longer, (int32_t)prompt.n, NULL, 0, &options, &err), err);
    assert_int_equal(finish_generation(session, second).usage.n_prompt_cached, 0);
    carat_session_free(session);
    carat_model_free(model);
    prompt_free(&prompt);
}

static void an_adapter_changes_the_answer_and_empties_the_cache(void **state)
{
    (void)state;
    struct gguf_file *golden = golden_open("lora", "lora-tiny-e2b.gguf");
    size_t n_ids, n_logits, n_base;
    int32_t *ids = golden_i32(golden, "prompt.ids", &n_ids);
    float *adapted = golden_f32(golden, "prompt.logits", &n_logits);
    float *base = golden_f32(golden, "prompt.logits_base", &n_base);
    gguf_close(golden);
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "ref");
    struct carat_session *session = new_session(model, 64, 16);
    struct carat_generate_options options = greedy(1);
    struct carat_error err = {0};
    size_t n_vocab = n_logits / n_ids;
    const float *last[2] = {base + (n_ids - 1) * n_vocab, adapted + (n_ids - 1) * n_vocab};
    for (int round = 0; round < 2; round++) {
        int32_t best = 0, got[64];
        for (size_t i = 1; i < n_vocab; i++)
            best = last[round][i] > last[round][best] ? (int32_t)i : best;
        require(carat_generate_begin(session, ids, (int32_t)n_ids, NULL, 0, &options, &err), err);
        struct carat_event end = finish_generation(session, got);
        assert_int_equal(got[0], best);
        assert_int_equal(end.usage.n_prompt_cached, 0);
        int32_t n_matched = 0;
        if (round == 0)
            require(carat_adapter_load(model, fixture("lora", "lora-tiny-e2b"), 1, &n_matched, &err), err);
    }
    carat_session_free(session);
    carat_model_free(model);
    free(ids);
    free(adapted);
    free(base);
}

static void a_stopped_generation_leaves_a_usable_session(void **state)
{
    (void)state;
    struct prompt prompt = golden_prompt("text-tiny-e2b.Q4_K_M.gguf");
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 128, 4);
    struct carat_generate_options options = greedy(32);
    struct carat_error err = {0};
    int32_t got[64];
    for (int stop_after = 0; stop_after < 12; stop_after++) {
        require(carat_generate_begin(session, prompt.ids, (int32_t)prompt.n, NULL, 0, &options, &err), err);
        struct carat_event event;
        for (int i = 0; i < stop_after; i++)
            assert_int_equal(carat_generate_next(session, &event, &err), CARAT_EVENT);
        carat_stop(session);
        struct carat_event end = finish_generation(session, got);
        assert_int_equal(end.finish, CARAT_FINISH_CANCELLED);
        assert_memory_equal(got, prompt.greedy, (size_t)end.n_ids * sizeof *got);
        assert_int_equal(carat_generate_next(session, &event, &err), CARAT_DONE); // once
    }
    require(carat_generate_begin(session, prompt.ids, (int32_t)prompt.n, NULL, 0, &options, &err), err);
    finish_generation(session, got);
    assert_memory_equal(got, prompt.greedy, prompt.n_greedy * sizeof *got);
    carat_session_free(session);
    carat_model_free(model);
    prompt_free(&prompt);
}

static void a_full_context_ends_with_length(void **state)
{
    (void)state;
    struct prompt prompt = golden_prompt("text-tiny-e2b.Q4_K_M.gguf");
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 30, 16);
    struct carat_generate_options options = greedy(0);
    struct carat_error err = {0};
    int32_t got[64];
    require(carat_generate_begin(session, prompt.ids, (int32_t)prompt.n, NULL, 0, &options, &err), err);
    struct carat_event end = finish_generation(session, got);
    assert_int_equal(end.finish, CARAT_FINISH_LENGTH);
    // 24 of 30 positions are the prompt; the token chosen after the last position still comes out.
    assert_int_equal(end.n_ids, 30 - (int)prompt.n + 1);
    assert_memory_equal(got, prompt.greedy, (size_t)end.n_ids * sizeof *got);
    int32_t too_long[31] = {2};
    assert_false(carat_generate_begin(session, too_long, 31, NULL, 0, &options, &err));
    assert_int_equal(err.code, CARAT_CONTEXT_FULL);
    carat_session_free(session);
    carat_model_free(model);
    prompt_free(&prompt);
}

static void wrong_arguments_are_named(void **state)
{
    (void)state;
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 64, 16);
    struct carat_generate_options options = greedy(4);
    struct carat_error err = {0};
    int32_t outside[] = {2, 640};
    assert_false(carat_generate_begin(session, outside, 2, NULL, 0, &options, &err));
    assert_non_null(strstr(err.message, "640"));
    assert_false(carat_generate_begin(session, outside, 0, NULL, 0, &options, &err));
    options.sampling.temperature = NAN;
    assert_false(carat_generate_begin(session, outside, 1, NULL, 0, &options, &err));
    assert_non_null(strstr(err.message, "temperature"));
    options = greedy(4);
    options.sampling.n_biases = -1;
    assert_false(carat_generate_begin(session, outside, 1, NULL, 0, &options, &err));
    options.sampling.n_biases = 1; // without a list
    assert_false(carat_generate_begin(session, outside, 1, NULL, 0, &options, &err));
    options = greedy(4);
    static const char plain[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}";
    for (int32_t n_media = -1; n_media <= 1; n_media += 2) { // without a list
        assert_false(carat_generate_begin(session, outside, 1, NULL, n_media, &options, &err));
        assert_non_null(strstr(err.message, "n_media"));
        assert_false(carat_chat_begin(session, plain, NULL, n_media, &err));
        assert_non_null(strstr(err.message, "n_media"));
    }
    char *text;
    size_t n_text;
    assert_false(carat_detokenize(model, outside, 2, true, &text, &n_text, &err));
    assert_non_null(strstr(err.message, "640"));
    assert_null(text);
    static const char *const requests[][2] = {
        {"[1]", "object"},
        {"{\"messages\":[", "request"},
        {"{}", "messages"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":\"hot\"}", "temperature"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":2}", "'n'"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stop\":[\"\"]}", "stop"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"logit_bias\":{\"x\":1}}", "logit_bias"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"response_format\":{\"type\":\"json_object\"}}",
            "response_format"},
        {"{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"media\":0}]}]}", "media"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        assert_false(carat_chat_begin(session, requests[i][0], NULL, 0, &err));
        if (strstr(err.message, requests[i][1]) == NULL)
            give_up("'%s' does not name '%s'", err.message, requests[i][1]);
    }
    struct carat_session *too_large = NULL;
    struct carat_session_options huge = {.context_length = 1 << 20};
    assert_false(carat_session_new(model, &huge, &too_large, &err));
    carat_session_free(session);
    carat_model_free(model);
}

static void a_chat_ends_with_the_text_of_its_tokens_and_the_same_seed_repeats_it(void **state)
{
    (void)state;
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 256, 32);
    struct carat_error err = {0};
    static const char request[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],\"seed\":7,\"max_tokens\":24,\"logprobs\":true,"
        "\"top_logprobs\":3}";
    char texts[2][4096] = {{0}};
    for (int round = 0; round < 2; round++) {
        require(carat_chat_begin(session, request, NULL, 0, &err), err);
        struct carat_event event;
        enum carat_status status;
        size_t n_logprobs = 0;
        while ((status = carat_chat_next(session, &event, &err)) != CARAT_DONE) {
            require(status != CARAT_FAILED, err);
            if (status == CARAT_PENDING)
                continue;
            if (event.kind == CARAT_EVENT_CONTENT)
                strncat(texts[round], event.text, event.n_text);
            if (event.logprobs != NULL) {
                struct json_document *document = json_parse(event.logprobs, strlen(event.logprobs), &err);
                require(document != NULL, err);
                for (size_t i = 0; i < json_root(document)->n_children; i++)
                    assert_int_equal(json_get(&json_root(document)->children[i], "top_logprobs")->n_children, 3);
                n_logprobs += json_root(document)->n_children;
                json_free(document);
            }
            if (event.kind == CARAT_EVENT_FINISH) {
                assert_true(event.usage.n_generated <= 24);
                break;
            }
        }
        assert_true(n_logprobs > 0);
    }
    assert_string_equal(texts[0], texts[1]);
    carat_session_free(session);
    carat_model_free(model);
}

// <turn|> over and over with the end ignored: a reply of tokens that show nothing, as a long tool call is until it is whole.
static void a_reply_that_shows_nothing_can_be_stopped_at_any_token(void **state)
{
    (void)state;
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 128, 32);
    struct carat_error err = {0};
    int32_t *end;
    int32_t n_end;
    require(carat_tokenize(model, "<turn|>", 7, false, true, &end, &n_end, &err), err);
    assert_int_equal(n_end, 1);
    char request[256];
    snprintf(request, sizeof request,
        "{\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}],\"ignore_eos\":true,\"max_tokens\":40,\"temperature\":0,"
        "\"logit_bias\":{\"%d\":100}}",
        end[0]);
    for (int n_calls = 1; n_calls <= 40; n_calls += 13) {
        require(carat_chat_begin(session, request, NULL, 0, &err), err);
        struct carat_event event = {0};
        for (int i = 0; i < n_calls; i++) {
            enum carat_status status = carat_chat_next(session, &event, &err);
            assert_true(status == CARAT_PENDING || (status == CARAT_EVENT && event.kind == CARAT_EVENT_PROGRESS));
        }
        carat_stop(session);
        assert_int_equal(carat_chat_next(session, &event, &err), CARAT_EVENT);
        assert_int_equal(event.kind, CARAT_EVENT_FINISH);
        assert_int_equal(event.finish, n_calls < 40 ? CARAT_FINISH_CANCELLED : CARAT_FINISH_LENGTH);
        assert_true(event.n_ids <= n_calls);
        assert_int_equal(carat_chat_next(session, &event, &err), CARAT_DONE);
    }
    carat_free(end);
    carat_session_free(session);
    carat_model_free(model);
}

static void sessions_of_different_batches_take_turns_on_one_model(void **state)
{
    (void)state;
    struct prompt prompt = golden_prompt("text-tiny-e2b.Q4_K_M.gguf");
    struct carat_model *model = open_model("tiny-e2b.Q4_K_M.gguf", "cpu");
    struct carat_error err = {0};
    static const struct carat_session_options options[] = {
        {.context_length = 64, .batch = 24}, {.context_length = 64, .batch = 5, .no_prefill_skip = true}, {.context_length = 96}};
    struct carat_session *sessions[3];
    for (int s = 0; s < 3; s++)
        require(carat_session_new(model, &options[s], &sessions[s], &err), err);
    struct carat_generate_options generate = greedy((int32_t)prompt.n_greedy);
    struct carat_event event;
    int n_finished = 0;
    for (int s = 0; s < 3; s++)
        require(carat_generate_begin(sessions[s], prompt.ids, (int32_t)prompt.n, NULL, 0, &generate, &err), err);
    // One call for each in turn: their chunks and tokens interleave.
    for (int s = 0; n_finished < 3; s = (s + 1) % 3) {
        enum carat_status status = carat_generate_next(sessions[s], &event, &err);
        require(status != CARAT_FAILED, err);
        if (status == CARAT_EVENT && event.kind == CARAT_EVENT_FINISH) {
            assert_int_equal(event.n_ids, prompt.n_greedy);
            assert_memory_equal(event.ids, prompt.greedy, prompt.n_greedy * sizeof *event.ids);
            n_finished++;
        }
    }
    for (int s = 0; s < 3; s++)
        carat_session_free(sessions[s]);
    carat_model_free(model);
    prompt_free(&prompt);
}

static void media_that_cannot_be_are_refused_before_they_are_read(void **state)
{
    (void)state;
    struct carat_model *model = open_model("tiny-mm.single-Q4_K_M.gguf", "cpu");
    struct carat_session *session = new_session(model, 512, 64);
    static const uint8_t rgb[64 * 64 * 3];
    static const float samples[1600], odd_samples[1600] = {[40] = NAN};
    const struct {
        struct carat_media media;
        const char *says;
    } cases[] = {
        {{.kind = CARAT_IMAGE, .width = 64, .height = 64}, "rgb"},
        {{.kind = CARAT_IMAGE, .rgb = rgb, .height = 64}, "empty"},
        {{.kind = CARAT_IMAGE, .rgb = rgb, .width = -64, .height = 64}, "pixels"},
        {{.kind = CARAT_IMAGE, .rgb = rgb, .width = 1 << 30, .height = 1 << 30}, "pixels"},
        {{.kind = CARAT_IMAGE, .rgb = rgb, .width = 64, .height = 64, .image_tokens = 71}, "71"},
        {{.kind = CARAT_AUDIO, .n_samples = 1600}, "samples"},
        {{.kind = CARAT_AUDIO, .samples = samples, .n_samples = -1}, "n_samples"},
        {{.kind = CARAT_AUDIO, .samples = odd_samples, .n_samples = 1600}, "sample 40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        const char *part = cases[i].media.kind == CARAT_IMAGE ? "image" : "audio";
        char request[128];
        snprintf(
            request, sizeof request, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"%s\",\"media\":0}]}]}", part);
        assert_false(carat_chat_begin(session, request, &cases[i].media, 1, &err));
        if (strstr(err.message, cases[i].says) == NULL)
            give_up("'%s' does not name '%s'", err.message, cases[i].says);
    }
    carat_session_free(session);
    carat_model_free(model);
}

static void a_file_without_towers_is_no_projector(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct carat_model *model = NULL;
    static const char *const wrong[][2] = {
        {"models", "tiny-e2b.Q8_0.gguf"}, {"lora", "lora-micro-e2b.adapter-F32.gguf"}, {"tokenizer", "small.gguf"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct carat_model_options options = {.backend = "cpu", .projector = fixture(wrong[i][0], wrong[i][1])};
        assert_false(carat_model_open(fixture("models", "tiny-mm.single-Q4_K_M.gguf"), &options, &model, &err));
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_non_null(strstr(err.message, wrong[i][1]));
        assert_null(model);
    }
}

static void history_keeps_the_ids_it_was_generated_with(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct gguf_file *file = golden_open("tokenizer", "small.gguf");
    struct tokenizer *tok;
    require(tokenizer_from_gguf(file, &tok, &err), err);
    gguf_close(file);
    // "hello" spelled letter by letter between two markers, as a model might, against its usual tokens.
    struct token_list cached = {0}, prompt = {0}, letters = {0};
    require(tokenizer_encode(tok, "<|turn>model\n", 13, TOK_PARSE_SPECIAL, &cached, &err), err);
    require(tokenizer_encode(tok, "<|turn>model\nhello<turn|>\n<|turn>user\nx", 39, TOK_PARSE_SPECIAL, &prompt, &err), err);
    for (const char *c = "hello"; *c != 0; c++)
        require(tokenizer_encode(tok, c, 1, 0, &letters, &err), err);
    for (size_t i = 0; i < letters.n; i++)
        token_list_push(&cached, letters.ids[i], &err);
    size_t n_before = prompt.n;
    require(reuse_align(tok, cached.ids, cached.n, &prompt, &err), err);
    assert_true(prompt.n > n_before);
    assert_memory_equal(prompt.ids, cached.ids, cached.n * sizeof *cached.ids);
    assert_int_equal(prompt.ids[cached.n], tokenizer_marker(tok, TOK_TURN_END));
    // Different text keeps its own ids.
    struct token_list other = {0};
    require(tokenizer_encode(tok, "<|turn>model\nhellx<turn|>", 25, TOK_PARSE_SPECIAL, &other, &err), err);
    size_t n_other = other.n;
    require(reuse_align(tok, cached.ids, cached.n, &other, &err), err);
    assert_int_equal(other.n, n_other);
    token_list_free(&cached);
    token_list_free(&prompt);
    token_list_free(&letters);
    token_list_free(&other);
    tokenizer_free(tok);
}

// Feeds a text cut at every place; what comes out must not depend on the cut.
static void stop_strings_are_found_across_any_cut(void **state)
{
    (void)state;
    static const char text[] = "one, two, thr three four";
    for (size_t cut = 0; cut < sizeof text; cut++) {
        struct stop stop = {0};
        struct text_buffer out = {0};
        assert_true(stop_add(&stop, text_of("three"), NULL));
        assert_true(stop_add(&stop, text_of("twoo"), NULL));
        stop_feed(&stop, (struct text_view){text, cut}, &out);
        bool found =
            stop_feed(&stop, (struct text_view){text + cut, strlen(text) - (cut < strlen(text) ? cut : strlen(text))}, &out);
        assert_true(found);
        assert_true(text_is(text_whole(&out), "one, two, thr "));
        text_free(&out);
        stop_free(&stop);
    }
    struct stop stop = {0};
    struct text_buffer out = {0};
    assert_true(stop_add(&stop, text_of("never"), NULL));
    assert_false(stop_feed(&stop, text_of("nev"), &out));
    assert_int_equal(out.n_bytes, 0);
    stop_finish(&stop, &out);
    assert_true(text_is(text_whole(&out), "nev"));
    text_free(&out);
    stop_free(&stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_continues_as_the_reference_does),
        cmocka_unit_test(a_longer_prompt_computes_only_what_is_new_and_gives_the_same_tokens),
        cmocka_unit_test(an_adapter_changes_the_answer_and_empties_the_cache),
        cmocka_unit_test(a_stopped_generation_leaves_a_usable_session),
        cmocka_unit_test(a_full_context_ends_with_length),
        cmocka_unit_test(wrong_arguments_are_named),
        cmocka_unit_test(a_chat_ends_with_the_text_of_its_tokens_and_the_same_seed_repeats_it),
        cmocka_unit_test(a_reply_that_shows_nothing_can_be_stopped_at_any_token),
        cmocka_unit_test(sessions_of_different_batches_take_turns_on_one_model),
        cmocka_unit_test(media_that_cannot_be_are_refused_before_they_are_read),
        cmocka_unit_test(a_file_without_towers_is_no_projector),
        cmocka_unit_test(history_keeps_the_ids_it_was_generated_with),
        cmocka_unit_test(stop_strings_are_found_across_any_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
