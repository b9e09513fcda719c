// reply_test.c: replies taken apart, whole and cut at every place, as text and as tokens.

#include "text_fixtures.h"

static struct tokenizer *tok;

// What a reply gave, joined.
struct result {
    struct text_buffer content;
    struct text_buffer reasoning;
    struct text_buffer calls; // "name arguments;" for each
    int n_events;
};

static void collect(void *context, const struct reply_event *event)
{
    struct result *result = context;
    result->n_events++;
    if (event->kind == REPLY_TOOL_CALL) {
        text_append_view(&result->calls, event->name);
        text_append_byte(&result->calls, ' ');
        text_append_view(&result->calls, event->arguments);
        text_append_byte(&result->calls, ';');
        return;
    }
    assert_true(event->text.n_bytes > 0);
    text_append_view(event->kind == REPLY_CONTENT ? &result->content : &result->reasoning, event->text);
}

static void result_free(struct result *result)
{
    text_free(&result->content);
    text_free(&result->reasoning);
    text_free(&result->calls);
}

static void expect_view(const char *what, const char *reply, struct text_view got, const char *want)
{
    if (!text_is(got, want))
        fail_msg("%s of %s\n got: %.*s\nwant: %s", what, reply, (int)got.n_bytes, got.data, want);
}

static void expect_result(const char *text, struct result *result, const char *content, const char *reasoning, const char *calls)
{
    expect_view("content", text, text_whole(&result->content), content);
    expect_view("reasoning", text, text_whole(&result->reasoning), reasoning);
    expect_view("calls", text, text_whole(&result->calls), calls);
    result_free(result);
}

static const char tools_json[] =
    "[{\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},"
    "\"days\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\"}},"
    "\"o\":{\"type\":\"object\",\"properties\":{\"city\":{\"type\":\"string\"},\"n\":{\"type\":\"number\"}}}}}}}]";
static struct json_document *tools;

// Feeds the text in pieces of n_first, then n_each bytes.
static void read_text(const char *text, struct reply_options options, size_t n_first, size_t n_each, struct result *result)
{
    size_t n = strlen(text);
    *result = (struct result){0};
    struct reply *reply = reply_new(NULL, &options, collect, result, NULL);
    for (size_t at = 0, piece = n_first; at < n; at += piece, piece = n_each) {
        if (piece > n - at)
            piece = n - at;
        assert_true(reply_feed_text(reply, text + at, piece, NULL));
    }
    assert_true(reply_finish(reply, NULL));
    reply_free(reply);
}

static void read_tokens(const char *text, struct reply_options options, struct result *result)
{
    struct token_list ids = {0};
    *result = (struct result){0};
    assert_true(tokenizer_encode(tok, text, strlen(text), TOK_PARSE_SPECIAL, &ids, NULL));
    struct reply *reply = reply_new(tok, &options, collect, result, NULL);
    for (size_t i = 0; i < ids.n; i++)
        assert_true(reply_feed(reply, ids.ids[i], NULL));
    assert_true(reply_finish(reply, NULL));
    reply_free(reply);
    token_list_free(&ids);
}

static void expect_reply(
    const char *text, struct reply_options options, const char *content, const char *reasoning, const char *calls)
{
    struct result result;
    options.tools = json_root(tools);
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++) { // whole, and in two pieces cut at every place
        read_text(text, options, cut > 0 ? cut : n, n > 0 ? n : 1, &result);
        expect_result(text, &result, content, reasoning, calls);
    }
    read_text(text, options, 1, 1, &result);
    expect_result(text, &result, content, reasoning, calls);
    read_tokens(text, options, &result);
    expect_result(text, &result, content, reasoning, calls);
}

#define THINKING ((struct reply_options){.thinking = true})

static void the_worked_examples_hold(void **state)
{
    (void)state;
    expect_reply("<|channel>thought\nthink\nmore\n<channel|>Answer", THINKING, "Answer", "think\nmore", "");
    expect_reply("<|channel>thoughtful words\n<channel|>\nA", THINKING, "A", "thoughtful words", "");
    expect_reply("<|channel>thought\nT", THINKING, "", "T", "");
    expect_reply("stray<channel|> x", THINKING, "stray x", "", "");
    expect_reply("Look.\n<|tool_call>call:f{a:<|\"|>x\"y},{:<|\"|>,b:1}<tool_call|>\n<|tool_call>call:g{l:[1,-2.5e3,true,null]}"
                 "<tool_call|>",
        THINKING, "Look.", "", "f {\"a\":\"x\\\"y},{:\",\"b\":1};g {\"l\":[1,-2.5e3,true,null]};");
    expect_reply("<|channel>thought\nT<|tool_call>call:f{}<tool_call|>", THINKING, "", "T", "f {};");
    expect_reply("<|tool_call>call:f{a:<|\"|>unfinished}<tool_call|>", THINKING, "", "", "f {\"a\":\"unfinished\"};");
    expect_reply("<|tool_call>call:f{a:[1,{b:2", THINKING, "", "", "f {\"a\":[1,{\"b\":2}]};");
    expect_reply("<|tool_call>call:f{city:New York, NY,days:3}<tool_call|>", THINKING, "", "",
        "f {\"city\":\"New York, NY\",\"days\":3};");
    expect_reply("<|tool_call>nonsense<tool_call|>done", THINKING, "<|tool_call>nonsense<tool_call|>done", "", "");
}

static void white_space_is_kept_or_dropped_as_specified(void **state)
{
    (void)state;
    expect_reply("", THINKING, "", "", "");
    expect_reply(" a \n", THINKING, " a \n", "", ""); // at the end of the reply it stays
    expect_reply("a \n<turn|>", THINKING, "a \n", "", "");
    expect_reply("a \xe3\x80\x80<|channel>thought\n\n T \n <channel|> \xc2\xa0 b ", THINKING, "ab ", "\n T", "");
    expect_reply("a <|tool_call>call:f{}<tool_call|> \n b", THINKING, "ab", "", "f {};");
    expect_reply("<|channel>thought\nx<channel|>\n\n", THINKING, "", "x", "");
    expect_reply("a\xe2\x80\x8b<|channel>thought\nx<channel|>", THINKING, "a\xe2\x80\x8b", "x", ""); // U+200B is no white space
}

static void thoughts_begin_and_end_in_every_way(void **state)
{
    (void)state;
    expect_reply("<|channel>thought\n<channel|>A", THINKING, "A", "", "");
    expect_reply("<|channel>thought<channel|>A", THINKING, "A", "", "");
    expect_reply("<|channel><channel|>A", THINKING, "A", "", "");
    expect_reply("<|channel>thou<channel|>A", THINKING, "A", "thou", "");
    expect_reply("<|channel>thought\nA \n<|channel>thought\nB<channel|>C", THINKING, "C", "AB", "");
    expect_reply("<|channel>thought\nA<channel|>B<|channel>thought\nC<channel|>D", THINKING, "BD", "AC", "");
    expect_reply("<|channel>analysis\nA<channel|>B", THINKING, "B", "analysis\nA", "");
    expect_reply("<|channel>thought\na<|\"|>b<|turn>c<channel|>d", THINKING, "d", "abc", "");
    struct reply_options off = {.thinking = false};
    expect_reply("a<|channel>thought\nsecret<channel|>b", off, "ab", "", "");
    struct reply_options inside = {.thinking = true, .in_thought = true};
    expect_reply("still\n<channel|>A", inside, "A", "still", "");
    expect_reply("thought\nx<channel|>A", inside, "A", "thought\nx", ""); // no name is expected here
}

static void calls_are_found_in_every_state_and_finished_at_the_end(void **state)
{
    (void)state;
    expect_reply("<|tool_call> call: f {a:1} <tool_call|><|tool_response>", THINKING, "", "", "f {\"a\":1};");
    expect_reply("<|tool_call>call:f{a:1}<turn|>", THINKING, "", "", "f {\"a\":1};");
    expect_reply("<|tool_call>call:f{a:<|\"|>x<turn|>", THINKING, "", "", "f {\"a\":\"x\"};");
    expect_reply(
        "<|tool_call>call:f{a:<|\"|>x<turn|>y<|tool>z<|\"|>}<tool_call|>", THINKING, "", "", "f {\"a\":\"x<turn|>y<|tool>z\"};");
    expect_reply("<|tool_call>call:f{a:1}<|tool_call>call:g{}<tool_call|>", THINKING, "", "", "f {\"a\":1};g {};");
    expect_reply(
        "<|tool_call>call:f{a:1}<tool_call|>x<|tool_call>call:g{}<tool_call|>y", THINKING, "xy", "", "f {\"a\":1};g {};");
    expect_reply("<|tool_call>call:f", THINKING, "<|tool_call>call:f", "", "");
    expect_reply("<|tool_call>call:{a:1}<tool_call|>", THINKING, "<|tool_call>call:{a:1}<tool_call|>", "", "");
    expect_reply("<|tool_call>call:f{a:1}}<tool_call|>", THINKING, "<|tool_call>call:f{a:1}}<tool_call|>", "", "");
    expect_reply("<|tool_call>call:f{a:}<tool_call|>ok", THINKING, "<|tool_call>call:f{a:}<tool_call|>ok", "", "");
    expect_reply("<tool_call|><|\"|>a<tool_response|>", THINKING, "a", "", "");
}

// --- arguments ---

static void expect_arguments(const char *arguments, const char *want)
{
    struct text_buffer out = {0};
    struct carat_error err = {0};
    const struct json_value *schema = json_get(json_get(&json_root(tools)->children[0], "function"), "parameters");
    bool ok = reply_arguments_to_json(text_of(arguments), schema, &out, &err);
    if (want == NULL) {
        if (ok)
            fail_msg("%s was accepted as %s", arguments, out.data);
        assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
        assert_int_equal(out.n_bytes, 0);
    } else {
        if (!ok)
            fail_msg("%s: %s", arguments, err.message);
        assert_string_equal(out.data, want);
    }
    text_free(&out);
}

static void well_formed_arguments_become_json(void **state)
{
    (void)state;
    expect_arguments("{}", "{}");
    expect_arguments(" { } ", "{}");
    expect_arguments("{ a : 1 , b c : [ ] , d : { } }", "{\"a\":1,\"b c\":[],\"d\":{}}");
    expect_arguments("{<|\"|>k:<|\"|>:1,\"q\\n\":2}", "{\"k:\":1,\"q\\n\":2}");
    expect_arguments("{a:<|\"|><|\"|>,b:<|\"|>\\ \"\t\n<|\"|>}", "{\"a\":\"\",\"b\":\"\\\\ \\\"\\t\\n\"}");
    expect_arguments(
        "{a:123456789012345678901234567890,b:1E+5,c:-0}", "{\"a\":123456789012345678901234567890,\"b\":1E+5,\"c\":-0}");
    expect_arguments("{a:1,b:2,a:3}", "{\"a\":3,\"b\":2}"); // of equal keys the last counts
    expect_arguments(
        "{a:{x:[[],[1]],y:null},b:[{c:true},false]}", "{\"a\":{\"x\":[[],[1]],\"y\":null},\"b\":[{\"c\":true},false]}");
}

static void clear_mistakes_are_repaired(void **state)
{
    (void)state;
    expect_arguments("{a:\"x\\\"y\\u00e9\\ud83d\\ude00\\q\"}", "{\"a\":\"x\\\"y\xc3\xa9\xf0\x9f\x98\x80\\\\q\"}");
    expect_arguments("{'a':1,\"b\" :2,'c:3}", "{\"a\":1,\"b\":2,\"'c\":3}");
    expect_arguments("{a:'it\\'s \\n'}", "{\"a\":\"it\\\\'s \\\\n\"}");
    expect_arguments("{a:2024-01-01,b:01,c:1.,d:truely,e:.5}",
        "{\"a\":\"2024-01-01\",\"b\":\"01\",\"c\":\"1.\",\"d\":\"truely\",\"e\":\".5\"}");
    expect_arguments("{a: two words , b:x}", "{\"a\":\"two words\",\"b\":\"x\"}");
    expect_arguments("{a:<|\"|>x, y}]} \n", "{\"a\":\"x, y\"}");
    expect_arguments("{a:\"open]}", "{\"a\":\"open\"}");
    expect_arguments("{a:'open", "{\"a\":\"open\"}");
    expect_arguments("{a:[1,[2", "{\"a\":[1,[2]]}");
    expect_arguments("{a:{b:{", "{\"a\":{\"b\":{}}}");
    expect_arguments("{", "{}");
}

static void the_schema_tells_strings_from_numbers(void **state)
{
    (void)state;
    expect_arguments("{city:12345,days:12345}", "{\"city\":\"12345\",\"days\":12345}");
    expect_arguments("{city:true,days:true}", "{\"city\":\"true\",\"days\":true}");
    expect_arguments("{city:null}", "{\"city\":null}");
    expect_arguments("{city:nullable}", "{\"city\":\"nullable\"}");
    expect_arguments("{days:1,city:a, b: c}, [d] }", "{\"days\":1,\"city\":\"a, b: c}, [d]\"}");
    expect_arguments("{city:a, <|\"|>days<|\"|>:2}", "{\"city\":\"a\",\"days\":2}");
    expect_arguments("{city:a, \"days\" : 2}", "{\"city\":\"a\",\"days\":2}");
    expect_arguments("{city:\"Hello\" he said,days:1}", "{\"city\":\"\\\"Hello\\\" he said\",\"days\":1}");
    expect_arguments("{city:'tis so, isn't it,days:1}", "{\"city\":\"'tis so, isn't it\",\"days\":1}");
    expect_arguments("{city:\"New York}", "{\"city\":\"New York\"}");
    expect_arguments("{city:{\"a\":1}}", "{\"city\":\"{\\\"a\\\":1}\"}");
    expect_arguments("{tags:[2024,x y,null]}", "{\"tags\":[\"2024\",\"x y\",null]}");
    expect_arguments("{o:{city:New York, NY,n:5},days:2}", "{\"o\":{\"city\":\"New York, NY\",\"n\":5},\"days\":2}");
    expect_arguments("{city:New Yo", "{\"city\":\"New Yo\"}");
}

static void malformed_arguments_are_refused(void **state)
{
    (void)state;
    expect_arguments("", NULL);
    expect_arguments("x", NULL);
    expect_arguments("[]", NULL);
    expect_arguments("{a}", NULL);
    expect_arguments("{:1}", NULL);
    expect_arguments("{a:1 b:2}{", NULL);
    expect_arguments("{a:<|\"|>x<|\"|>y}", NULL);
    expect_arguments("{a:[1}", NULL);
    expect_arguments("{a:[1,]}", NULL);
    expect_arguments("{a:1,}", NULL);
    expect_arguments("{a:1} x", NULL);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    char text[400], want[400];
    for (int depth = REPLY_MAX_NESTING - 1; depth <= REPLY_MAX_NESTING; depth++) {
        int n = snprintf(text, sizeof text, "{a:"), m = snprintf(want, sizeof want, "{\"a\":");
        for (int i = 0; i < depth; i++)
            text[n++] = want[m++] = '[';
        for (int i = 0; i < depth; i++)
            want[m++] = ']';
        want[m++] = '}';
        text[n] = want[m] = '\0';
        expect_arguments(text, depth < REPLY_MAX_NESTING ? want : NULL);
    }
    size_t n_bytes = 1000000;
    char *deep = malloc(n_bytes + 1);
    memset(deep, '{', n_bytes);
    deep[n_bytes] = '\0';
    expect_arguments(deep, NULL);
    for (size_t i = 0; i + 2 < n_bytes; i += 3)
        memcpy(deep + i, "{a:", 3);
    expect_arguments(deep, NULL);
    free(deep);
}

static void markers_spelled_by_ordinary_tokens_are_text(void **state)
{
    (void)state;
    struct token_list ids = {0};
    struct result result = {0};
    struct reply_options options = {.thinking = true};
    const char *text = "Write <|channel>thought and <|tool_call>call:f{}<tool_call|> like this.";
    assert_true(tokenizer_encode(tok, text, strlen(text), 0, &ids, NULL));
    struct reply *reply = reply_new(tok, &options, collect, &result, NULL);
    for (size_t i = 0; i < ids.n; i++)
        assert_true(reply_feed(reply, ids.ids[i], NULL));
    assert_true(reply_finish(reply, NULL));
    assert_int_equal(reply_call_count(reply), 0);
    reply_free(reply);
    token_list_free(&ids);
    expect_result(text, &result, text, "", "");
}

static void events_come_as_soon_as_they_are_certain(void **state)
{
    (void)state;
    struct result result = {0};
    struct reply_options options = {.thinking = true};
    struct reply *reply = reply_new(NULL, &options, collect, &result, NULL);
    reply_feed_text(reply, "Hello ", 6, NULL);
    assert_string_equal(result.content.data, "Hello"); // the space might have to go
    reply_feed_text(reply, "<|chan", 6, NULL);
    assert_string_equal(result.content.data, "Hello");
    reply_feed_text(reply, "ge", 2, NULL);
    assert_string_equal(result.content.data, "Hello <|change");
    reply_feed_text(reply, "<|channel>tho", 13, NULL);
    assert_true(reply_in_thought(reply));
    reply_feed_text(reply, "ught\nhm", 7, NULL);
    assert_string_equal(result.reasoning.data, "hm");
    reply_feed_text(reply, "<|tool_call>call:", 17, NULL);
    assert_true(reply_in_call(reply));
    assert_false(reply_in_thought(reply));
    reply_feed_text(reply, "f{}<tool_call|>", 15, NULL);
    assert_string_equal(result.calls.data, "f {};");
    assert_int_equal(reply_call_count(reply), 1);
    reply_feed_text(reply, "\xc3", 1, NULL);
    assert_string_equal(result.content.data, "Hello <|change");
    reply_feed_text(reply, "\xa9", 1, NULL);
    assert_string_equal(result.content.data, "Hello <|change\xc3\xa9");
    reply_finish(reply, NULL);
    reply_free(reply);
    result_free(&result);
}

// --- random replies: whatever the model writes, cutting changes nothing ---

static uint64_t random_state = 11;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static void random_replies_read_alike_however_they_are_cut(void **state)
{
    (void)state;
    static const char *const words[] = {"<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>", "<|tool_response>",
        "<turn|>", "thought\n", "thought", "call:f{", "call:", "{", "}", "[", "]", ",", ":", "a", "city", "days", "1", "-2.5",
        "true", " ", "\n", "<", "<|", "|>", "\xc3\xa9", "\xe3\x80\x80", "\"", "'", "\\", "hello"};
    for (int round = 0; round < 3000; round++) {
        char text[600] = "";
        for (uint32_t left = random_below(40); left > 0; left--)
            strcat(text, words[random_below(sizeof words / sizeof words[0])]);
        struct reply_options options = {
            .thinking = random_below(2) == 0, .in_thought = random_below(4) == 0, .tools = json_root(tools)};
        struct result whole, cut;
        read_text(text, options, strlen(text), 1000, &whole);
        for (int i = 0; i < 8; i++) {
            if (i < 7)
                read_text(text, options, 1 + random_below(10), 1 + random_below(10), &cut);
            else
                read_tokens(text, options, &cut);
            expect_result(
                text, &cut, text_whole(&whole.content).data, text_whole(&whole.reasoning).data, text_whole(&whole.calls).data);
        }
        result_free(&whole);
    }
}

static void long_replies_take_time_in_proportion(void **state)
{
    (void)state;
    static const char *const units[] = {
        "<|tool_call>call:f{city:,,,,", "<", " ", "<|channel>", "{a:'x,", ",", "a:1,", "a:<|\"|>,"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        size_t n_bytes = 1000000, n_unit = strlen(units[u]);
        char *text = malloc(n_bytes + 1);
        for (size_t i = 0; i < n_bytes; i++)
            text[i] = units[u][i % n_unit];
        text[n_bytes] = '\0';
        if (u >= 4)
            memcpy(text, "<|tool_call>call:f{city:", 24);
        if (u >= 6)
            memcpy(text, "<|tool_call>call:f{aaaa:", 24);
        struct result result;
        read_text(text, (struct reply_options){.thinking = true, .tools = json_root(tools)}, 4096, 4096, &result);
        result_free(&result);
        free(text);
    }
}

static int load(void **state)
{
    (void)state;
    tok = fixture_tokenizer("tokenizer/small.gguf");
    tools = json_parse(tools_json, strlen(tools_json), NULL);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    tokenizer_free(tok);
    json_free(tools);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_worked_examples_hold),
        cmocka_unit_test(white_space_is_kept_or_dropped_as_specified),
        cmocka_unit_test(thoughts_begin_and_end_in_every_way),
        cmocka_unit_test(calls_are_found_in_every_state_and_finished_at_the_end),
        cmocka_unit_test(well_formed_arguments_become_json),
        cmocka_unit_test(clear_mistakes_are_repaired),
        cmocka_unit_test(the_schema_tells_strings_from_numbers),
        cmocka_unit_test(malformed_arguments_are_refused),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(markers_spelled_by_ordinary_tokens_are_text),
        cmocka_unit_test(events_come_as_soon_as_they_are_certain),
        cmocka_unit_test(random_replies_read_alike_however_they_are_cut),
        cmocka_unit_test(long_replies_take_time_in_proportion),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
