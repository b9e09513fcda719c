// tokenizer_test.c: ids and text against the golden files of Hugging Face's tokeniser, for three vocabularies.

#include "tokenizer_rig.h"

static const char *const names[] = {"nano", "small", "full"};

static void expect_decoded(
    const struct tokenizer *tok, const struct token_list *ids, bool with_specials, const struct json_value *want)
{
    struct text_buffer text = {0};
    decoder_decode(tok, ids->ids, ids->n, with_specials, &text);
    struct text_view got = text_whole(&text);
    if (!text_equal(got, (struct text_view){want->text, want->n_text}))
        fail_msg("decoded %s\n   want %s", got.data, want->text);
    text_free(&text);
}

static void check_string(const struct json_value *line, void *context)
{
    const struct tokenizer *tok = context;
    const struct json_value *text = json_get(line, "text");
    struct token_list want = fixture_ids(json_get(line, "ids"));
    struct token_list got = {0};
    struct carat_error err = {0};
    assert_true(tokenizer_encode(tok, text->text, text->n_text, TOK_PARSE_SPECIAL, &got, &err));
    assert_ids_equal(&got, &want, text->text);
    const struct json_value *back = json_get(line, "back");
    expect_decoded(tok, &got, true, back != NULL ? back : text);
    token_list_free(&got);
    token_list_free(&want);
}

static void check_decoding(const struct json_value *line, void *context)
{
    const struct tokenizer *tok = context;
    struct token_list ids = fixture_ids(json_get(line, "ids"));
    expect_decoded(tok, &ids, true, json_get(line, "text"));
    expect_decoded(tok, &ids, false, json_get(line, "text_no_special"));
    token_list_free(&ids);
}

static void every_golden_string_gives_its_ids_and_comes_back(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABULARIES; v++) {
        char name[100];
        snprintf(name, sizeof name, "tokenizer/tokenizer-%s.strings.jsonl", names[v]);
        assert_int_equal(fixture_each(name, check_string, toks[v]), 315);
    }
}

static void every_golden_id_list_decodes_with_and_without_specials(void **state)
{
    (void)state;
    for (int v = 0; v < N_VOCABULARIES; v++) {
        char name[100];
        snprintf(name, sizeof name, "tokenizer/tokenizer-%s.decode.jsonl", names[v]);
        assert_int_equal(fixture_each(name, check_decoding, toks[v]), 120);
    }
}

// From the published tokeniser (tables of the model's documentation and llama.cpp's own test strings).
static void the_worked_examples_of_the_full_vocabulary_hold(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    expect_ids(tok, "", 0, "");
    expect_ids(tok, "hello", 0, "23391");
    expect_ids(tok, "hello world", 0, "23391 1902");
    expect_ids(tok, "Hello, World!", 0, "9259 236764 4109 236888");
    expect_ids(tok, " hello", 0, "29104");
    expect_ids(tok, "  hello", 0, "138 23391");
    expect_ids(tok, "hello  world", 0, "23391 138 12392");
    expect_ids(tok, "   ", 0, "139");
    expect_ids(tok, "      ", 0, "142");
    expect_ids(tok, "multiple    spaces", 0, "43819 140 35220");
    expect_ids(tok, " leading spaces", 0, "5830 9952");
    expect_ids(tok, "\n\n", 0, "108");
    expect_ids(tok, "\t\t", 0, "255969");
    expect_ids(tok, "12345", 0, "236770 236778 236800 236812 236810");
    expect_ids(tok, "3.14159", 0, "236800 236761 236770 236812 236770 236810 236819");
    expect_ids(tok, "def foo(x): return x + 1", 0, "2063 46293 236769 236781 1473 994 1123 900 236743 236770");
    expect_ids(tok, "{\"key\": \"value\"}", 0, "14937 2478 1083 623 2394 25938");
    expect_ids(tok, "aaaaaa", 0, "50354 9236");
    expect_ids(tok, "café résumé naïve", 0, "123125 236859 118515 120362");
    expect_ids(tok, "über Straße Größe", 0, "28223 80176 112880");
    expect_ids(tok, "L'élève a mangé", 0, "236798 236789 161654 496 14695 236859");
    expect_ids(tok, "ąęśćżźółń", 0, "237198 237202 14732 237277 238992 24875 238041");
    expect_ids(tok, "Zażółć gęślą jaźń", 0, "236953 40512 24875 237289 549 237202 62081 237198 4828 238992 238041");
    expect_ids(tok, "你好世界", 0, "144626 12811");
    expect_ids(tok, "こんにちは", 0, "85141");
    expect_ids(tok, "hello 👋 world", 0, "23391 155818 1902");
    expect_ids(tok, "hello ąęść world café 你好", 0, "23391 236743 237198 237202 14732 1902 33443 43758 237389");
}

static void control_tokens_have_their_published_ids(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    static const struct {
        enum tokenizer_marker marker;
        int32_t id;
    } want[] = {{TOK_PAD, 0}, {TOK_EOS, 1}, {TOK_BOS, 2}, {TOK_UNK, 3}, {TOK_MASK, 4}, {TOK_TOOL_BEGIN, 46}, {TOK_TOOL_END, 47},
        {TOK_TOOL_CALL_BEGIN, 48}, {TOK_TOOL_CALL_END, 49}, {TOK_TOOL_RESPONSE_BEGIN, 50}, {TOK_TOOL_RESPONSE_END, 51},
        {TOK_QUOTE, 52}, {TOK_THINK, 98}, {TOK_CHANNEL_BEGIN, 100}, {TOK_CHANNEL_END, 101}, {TOK_TURN_BEGIN, 105},
        {TOK_TURN_END, 106}, {TOK_IMAGE_BEGIN, 255999}, {TOK_AUDIO_BEGIN, 256000}, {TOK_IMAGE, 258880}, {TOK_AUDIO, 258881},
        {TOK_IMAGE_END, 258882}, {TOK_AUDIO_END, 258883}, {TOK_VIDEO, 258884}};
    assert_int_equal(sizeof want / sizeof want[0], TOK_N_MARKERS);
    for (size_t i = 0; i < TOK_N_MARKERS; i++) {
        assert_int_equal(tokenizer_marker(tok, want[i].marker), want[i].id);
        assert_int_equal(tokenizer_marker_of(tok, want[i].id), want[i].marker);
        assert_int_equal(tokenizer_kind(tok, want[i].id), TOKEN_IS_MARKER);
    }
    assert_int_equal(tokenizer_marker_of(tok, 23391), TOK_N_MARKERS);
    assert_int_equal(tokenizer_kind(tok, 212), TOKEN_IS_TEXT); // </s> is an HTML tag here
    assert_false(tokenizer_is_end(tok, 212));
    assert_true(tokenizer_is_end(tok, 1));
    assert_true(tokenizer_is_end(tok, 106));
    assert_true(tokenizer_is_end(tok, 50));
    assert_int_equal(tokenizer_find(tok, text_of("thought")), 45518);
    assert_int_equal(tokenizer_find(tok, text_of("\xe2\x96\x81")), 236743);
    assert_int_equal(tokenizer_find(tok, text_of("no such token at all")), -1);
    assert_true(text_is(tokenizer_token_text(tok, 1902), "\xe2\x96\x81world"));
    assert_null(tokenizer_token_text(tok, 262144).data);
    assert_null(tokenizer_token_text(tok, -1).data);
    assert_int_equal(tokenizer_vocab_size(tok), 262144);
}

static void bos_is_added_once_and_never_twice(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    expect_ids(tok, "hello", TOK_ADD_BOS, "2 23391");
    expect_ids(tok, "<bos>hello", TOK_ADD_BOS | TOK_PARSE_SPECIAL, "2 23391");
    expect_ids(tok, "", TOK_ADD_BOS, "2");
    struct token_list ids = {0};
    assert_true(tokenizer_encode(tok, "<bos>", 5, TOK_ADD_BOS, &ids, NULL)); // not recognised here, so it is text
    assert_true(ids.n > 2);
    assert_int_equal(ids.ids[0], 2);
    assert_int_not_equal(ids.ids[1], 2);
    token_list_free(&ids);
}

static void texts_of_tokens_that_merging_never_makes_stay_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t n_tokens;
    } cases[] = {{"<table>", 3}, {"<0x41>", 6}, {"</s>", 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct token_list ids = {0};
        assert_true(tokenizer_find(toks[FULL], text_of(cases[i].text)) >= 0);
        assert_true(tokenizer_encode(toks[FULL], cases[i].text, strlen(cases[i].text), TOK_PARSE_SPECIAL, &ids, NULL));
        assert_int_equal(ids.n, cases[i].n_tokens);
        token_list_free(&ids);
    }
}

// --- random text ---

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((random_state >> 33) % n);
}

static size_t random_character(char *out)
{
    uint32_t c;
    do {
        uint32_t kind = random_below(8);
        c = kind < 3   ? 32 + random_below(95)
            : kind < 4 ? random_below(32)
            : kind < 5 ? ' '
            : kind < 6 ? 0x80 + random_below(0x700)
            : kind < 7 ? 0x800 + random_below(0xf800)
                       : 0x10000 + random_below(0x100000);
    } while ((c >= 0xd800 && c < 0xe000) || c == 0x2581);
    if (c < 0x80)
        return out[0] = (char)c, 1;
    int n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00 >> n & 0xf0) | (int)c);
    return (size_t)n;
}

static void random_text_comes_back_as_it_was(void **state)
{
    (void)state;
    for (int round = 0; round < 600; round++) {
        const struct tokenizer *tok = toks[round % N_VOCABULARIES];
        char text[1200];
        size_t n = 0;
        for (uint32_t left = random_below(200); left > 0; left--)
            n += random_character(text + n);
        struct token_list ids = {0};
        struct text_buffer back = {0};
        assert_true(tokenizer_encode(tok, text, n, 0, &ids, NULL));
        decoder_decode(tok, ids.ids, ids.n, true, &back);
        assert_int_equal(back.n_bytes, n);
        if (n > 0)
            assert_memory_equal(back.data, text, n);
        token_list_free(&ids);
        text_free(&back);
    }
}

static bool is_continuation(char c)
{
    return ((uint8_t)c & 0xc0) == 0x80;
}

// The plain algorithm: merge the leftmost pair of lowest rank until none is left. Ranks come from the file, not from the
// tokenizer.
static void encode_plainly(
    const struct tokenizer *tok, const struct gguf_value *merges, struct text_view text, struct token_list *out)
{
    struct {
        char text[64];
    } parts[256];
    size_t n = 0;
    for (size_t i = 0; i < text.n_bytes;) {
        size_t length = 1;
        while (i + length < text.n_bytes && is_continuation(text.data[i + length]))
            length++;
        snprintf(parts[n++].text, 64, "%.*s", (int)length, text.data[i] == ' ' ? "\xe2\x96\x81" : text.data + i);
        if (text.data[i] == ' ')
            strcpy(parts[n - 1].text, "\xe2\x96\x81");
        i += length;
    }
    for (;;) {
        uint64_t best = UINT64_MAX;
        size_t at = 0;
        for (size_t i = 0; i + 1 < n; i++) {
            char pair[160];
            int length = snprintf(pair, sizeof pair, "%s %s", parts[i].text, parts[i + 1].text);
            for (uint64_t rank = 0; rank < merges->count && rank < best; rank++) {
                struct gguf_text merge;
                gguf_value_text(merges, rank, &merge);
                if (merge.n_bytes == (size_t)length && memcmp(merge.bytes, pair, merge.n_bytes) == 0) {
                    best = rank;
                    at = i;
                }
            }
        }
        if (best == UINT64_MAX)
            break;
        strcat(parts[at].text, parts[at + 1].text);
        memmove(&parts[at + 1], &parts[at + 2], (n - at - 2) * sizeof parts[0]);
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        int32_t id = tokenizer_find(tok, text_of(parts[i].text));
        if (id >= 0) {
            token_list_push(out, id, NULL);
            continue;
        }
        for (const char *byte = parts[i].text; *byte != '\0'; byte++) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", (uint8_t)*byte);
            token_list_push(out, tokenizer_find(tok, text_of(name)), NULL);
        }
    }
}

static void the_queue_gives_what_plain_merging_gives(void **state)
{
    (void)state;
    struct gguf_file *file;
    assert_true(gguf_open_path(CARAT_FIXTURES "/models/micro-e2b.F32.gguf", &file, NULL));
    const struct gguf_value *merges = gguf_find(file, "tokenizer.ggml.merges");
    for (int round = 0; round < 200; round++) {
        char text[400];
        size_t n = 0;
        for (uint32_t left = random_below(60); left > 0; left--) {
            if (random_below(3) != 0)
                text[n++] = " etaoinshrdlu\n"[random_below(14)];
            else
                n += random_character(text + n);
        }
        for (size_t i = 0; i < n; i++)
            if (text[i] == '\0')
                text[i] = 'x';
        struct token_list got = {0}, want = {0};
        assert_true(tokenizer_encode(toks[NANO], text, n, 0, &got, NULL));
        encode_plainly(toks[NANO], merges, (struct text_view){text, n}, &want);
        text[n] = '\0';
        assert_ids_equal(&got, &want, text);
        token_list_free(&got);
        token_list_free(&want);
    }
    gguf_close(file);
}

static void bytes_that_are_no_utf8_become_byte_tokens_and_replacement_characters(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    struct token_list ids = {0};
    assert_true(tokenizer_encode(tok, "a\xff\xc3z\xe2\x96", 6, 0, &ids, NULL));
    const char *want[] = {"a", "<0xFF>", "<0xC3>", "z", "<0xE2>", "<0x96>"};
    assert_int_equal(ids.n, 6);
    for (size_t i = 0; i < 6; i++)
        assert_true(text_is(tokenizer_token_text(tok, ids.ids[i]), want[i]));
    struct text_buffer text = {0};
    decoder_decode(tok, ids.ids, ids.n, true, &text);
    assert_string_equal(text.data, "a\xef\xbf\xbd\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd");
    text_free(&text);
    token_list_free(&ids);
    for (int round = 0; round < 300; round++) { // any bytes at all: no failure, and valid UTF-8 comes out
        char bytes[64];
        size_t n = random_below(64);
        for (size_t i = 0; i < n; i++)
            bytes[i] = (char)random_below(256);
        ids = (struct token_list){0};
        text = (struct text_buffer){0};
        assert_true(tokenizer_encode(tok, bytes, n, TOK_PARSE_SPECIAL, &ids, NULL));
        decoder_decode(tok, ids.ids, ids.n, true, &text);
        struct json_writer writer = {0}; // writes U+FFFD for what is no UTF-8: nothing must change
        json_write_string(&writer, text_whole(&text).data, text.n_bytes);
        struct json_document *document = json_parse(writer.bytes, writer.n_bytes, NULL);
        assert_non_null(document);
        assert_true(text_equal(text_whole(&text), (struct text_view){json_root(document)->text, json_root(document)->n_text}));
        json_free(document);
        json_writer_free(&writer);
        token_list_free(&ids);
        text_free(&text);
    }
}

// --- decoding ---

static int32_t byte_id(const struct tokenizer *tok, int byte)
{
    char name[8];
    snprintf(name, sizeof name, "<0x%02X>", byte);
    return tokenizer_find(tok, text_of(name));
}

static void a_run_of_bytes_is_shown_only_when_it_cannot_be_spoilt(void **state)
{
    (void)state;
    const struct tokenizer *tok = toks[FULL];
    struct decoder decoder;
    struct text_buffer out = {0};
    decoder_init(&decoder, tok, false);
    decoder_feed(&decoder, byte_id(tok, 'A'), &out);
    assert_int_equal(out.n_bytes, 0); // a bad byte may follow
    decoder_feed(&decoder, tokenizer_marker(tok, TOK_TURN_END), &out);
    assert_int_equal(out.n_bytes, 0); // gives no text, so the run goes on
    decoder_feed(&decoder, byte_id(tok, 0xc3), &out);
    decoder_feed(&decoder, byte_id(tok, 'b'), &out);
    assert_string_equal(out.data, "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"); // spoilt: one for each byte
    decoder_feed(&decoder, byte_id(tok, 'c'), &out);
    assert_int_equal(out.n_bytes, 12); // at once from here on
    decoder_feed(&decoder, 23391, &out);
    decoder_feed(&decoder, byte_id(tok, 0xc3), &out);
    decoder_feed(&decoder, byte_id(tok, 0xa9), &out);
    assert_int_equal(out.n_bytes, 17);
    decoder_feed(&decoder, 1902, &out);
    assert_string_equal(out.data + 12, "hello\xc3\xa9 world");
    decoder_feed(&decoder, byte_id(tok, 0xe2), &out);
    decoder_finish(&decoder, &out);
    assert_string_equal(out.data + 12, "hello\xc3\xa9 world\xef\xbf\xbd");
    decoder_feed(&decoder, 999999, &out);
    decoder_feed(&decoder, -5, &out);
    assert_string_equal(out.data + 12, "hello\xc3\xa9 world\xef\xbf\xbd");
    text_free(&out);
}

static void a_long_valid_run_of_bytes_comes_out_whole(void **state)
{
    (void)state;
    enum { N = 10000 }; // characters of three bytes that the smallest vocabulary spells in byte tokens
    char *text = malloc(3 * N);
    for (int i = 0; i < 3 * N; i += 3)
        memcpy(text + i, "\xe9\xbe\x98", 3);
    struct token_list ids = {0};
    struct text_buffer back = {0};
    assert_true(tokenizer_encode(toks[NANO], text, 3 * N, 0, &ids, NULL));
    assert_int_equal(ids.n, 3 * N);
    decoder_decode(toks[NANO], ids.ids, ids.n, false, &back);
    assert_int_equal(back.n_bytes, 3 * N);
    assert_memory_equal(back.data, text, 3 * N);
    text_free(&back);
    token_list_free(&ids);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_golden_string_gives_its_ids_and_comes_back),
        cmocka_unit_test(every_golden_id_list_decodes_with_and_without_specials),
        cmocka_unit_test(the_worked_examples_of_the_full_vocabulary_hold),
        cmocka_unit_test(control_tokens_have_their_published_ids),
        cmocka_unit_test(bos_is_added_once_and_never_twice),
        cmocka_unit_test(texts_of_tokens_that_merging_never_makes_stay_text),
        cmocka_unit_test(random_text_comes_back_as_it_was),
        cmocka_unit_test(the_queue_gives_what_plain_merging_gives),
        cmocka_unit_test(bytes_that_are_no_utf8_become_byte_tokens_and_replacement_characters),
        cmocka_unit_test(a_run_of_bytes_is_shown_only_when_it_cannot_be_spoilt),
        cmocka_unit_test(a_long_valid_run_of_bytes_comes_out_whole),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
