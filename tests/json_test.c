// json_test.c: the JSON tree and writer.

#include "base/json.h" // before cmocka.h, which has a macro called fail

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void assert_parses(const char *text, const char *compact)
{
    struct carat_error err = {0};
    struct json_document *document = json_parse(text, strlen(text), &err);
    if (document == NULL)
        fail_msg("'%s' was refused: %s", text, err.message);
    struct json_writer out = {0};
    json_write_value(&out, json_root(document));
    assert_string_equal(out.bytes, compact);
    json_writer_free(&out);
    json_free(document);
}

static void valid_texts_come_back_in_compact_form(void **state)
{
    (void)state;
    assert_parses("{}", "{}");
    assert_parses(" [ ] ", "[]");
    assert_parses("42", "42");
    assert_parses("-0.5e+10", "-0.5e+10");
    assert_parses("\"a\"", "\"a\"");
    assert_parses("null", "null");
    assert_parses(
        "{\"a\" : [1, 2.50, {\"b\":null}], \"c\":true,\"d\":false }\n", "{\"a\":[1,2.50,{\"b\":null}],\"c\":true,\"d\":false}");
    assert_parses("\"\\u0041\\n\\/\\\\\\\"\\b\\f\\r\\t\"", "\"A\\n/\\\\\\\"\\b\\f\\r\\t\"");
    assert_parses("\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\"");
    assert_parses("\"\\ud83dx\\ude00\"", "\"\xef\xbf\xbdx\xef\xbf\xbd\"");
    assert_parses("\"\\ud83d\\u0041\"", "\"\xef\xbf\xbd\x41\"");
    assert_parses("\"\\u0000\\u001f\"", "\"\\u0000\\u001f\"");
    assert_parses("\"\xe2\x96\x81\"", "\"\xe2\x96\x81\"");
}

static void invalid_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", " ", "{", "}", "[", "]", "[1,]", "[,1]", "[1 2]", "[1,,2]", "{\"a\"}", "{\"a\":}",
        "{\"a\" 1}", "{\"a\":1,}", "{\"a\":1 \"b\":2}", "{a:1}", "{1:2}", "{}{}", "{} x", "nul", "nullx", "True", "01", "-", "1.",
        ".5", "1e", "+1", "0x10", "NaN", "\"", "\"a", "'a'", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"a\nb\"", "\"\x80\"",
        "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "[\"a\":1]", "[1:2]", "{\"a\":1:2}", "{\"a\":\"b\":\"c\"}",
        "[}", "{]", "[1}", "1 2", "{\"a\",\"b\"}", "{[]:1}", "{\"a\":1,2}", "[{]}", "\x01", "[1]]", ",", ":"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct carat_error err = {0};
        struct json_document *document = json_parse(texts[i], strlen(texts[i]), &err);
        if (document != NULL)
            fail_msg("'%s' was accepted", texts[i]);
        assert_int_equal(err.code, CARAT_BAD_FILE);
        assert_non_null(strstr(err.message, "not valid JSON"));
    }
    assert_null(json_parse("[1\0]", 4, NULL));
}

static void every_prefix_of_a_text_is_refused_without_harm(void **state)
{
    (void)state;
    const char *text = "{\"a\":[1,-2.5e3,{\"b\":null,\"c\":\"x\\u00e4\\ud83d\\ude00\"}],\"d\":true}";
    for (size_t n = 0; n < strlen(text); n++) {
        char *exact = malloc(n + 1); // so that a read behind the end is found
        memcpy(exact, text, n);
        assert_null(json_parse(exact, n, NULL));
        free(exact);
    }
}

static void depth_is_limited(void **state)
{
    (void)state;
    char text[2 * 100000];
    for (int depth = 1; depth <= 100000; depth = depth < 100 ? depth + 1 : depth * 10) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        struct json_document *document = json_parse(text, 2 * (size_t)depth, NULL);
        assert_int_equal(document != NULL, depth <= JSON_MAX_DEPTH);
        json_free(document);
    }
}

static void members_are_found_by_name_and_kind(void **state)
{
    (void)state;
    const char *text =
        "{\"n\":9007199254740993,\"f\":1.5,\"i\":1e3,\"t\":\"x\",\"b\":true,\"z\":null,\"t\":\"last\",\"k\\u0000\":1,"
        "\"high\":9223372036854775807,\"low\":-9223372036854775808,\"over\":9223372036854775808}";
    struct json_document *document = json_parse(text, strlen(text), NULL);
    const struct json_value *root = json_root(document);
    int64_t i = 0;
    double f = 0;
    bool b = false;
    const char *t = NULL;
    assert_true(json_get_i64(root, "n", &i));
    assert_true(i == 9007199254740993);
    assert_true(json_get_i64(root, "i", &i));
    assert_int_equal(i, 1000);
    assert_true(json_get_i64(root, "high", &i) && i == INT64_MAX);
    assert_true(json_get_i64(root, "low", &i) && i == INT64_MIN);
    assert_false(json_get_i64(root, "over", &i));
    assert_false(json_get_i64(root, "f", &i));
    assert_true(json_get_number(root, "f", &f));
    assert_true(f == 1.5);
    assert_true(json_get_bool(root, "b", &b));
    assert_true(b);
    assert_true(json_get_text(root, "t", &t));
    assert_string_equal(t, "last");
    assert_false(json_get_text(root, "z", &t));
    assert_false(json_get_text(root, "absent", &t));
    assert_null(json_get(root, "k"));
    assert_null(json_get(NULL, "k"));
    assert_int_equal(json_get(root, "f")->n_source, 3);
    assert_memory_equal(json_get(root, "f")->source, "1.5", 3);
    json_free(document);
}

static void strings_are_written_as_valid_json_whatever_their_bytes(void **state)
{
    (void)state;
    struct json_writer out = {0};
    json_write_string(&out, "a\"\\\n\x01\x80z\xe2\x96", 9);
    assert_string_equal(out.bytes, "\"a\\\"\\\\\\n\\u0001\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\"");
    json_writer_free(&out);
    for (int seed = 0; seed < 300; seed++) {
        char bytes[64];
        uint32_t x = (uint32_t)seed * 2654435761u + 1;
        for (size_t i = 0; i < sizeof bytes; i++) {
            x = x * 1664525u + 1013904223u;
            bytes[i] = (char)(x >> 24);
        }
        json_write_string(&out, bytes, sizeof bytes);
        struct json_document *document = json_parse(out.bytes, out.n_bytes, NULL);
        assert_non_null(document);
        json_free(document);
        json_writer_free(&out);
    }
}

static void numbers_read_back_equal(void **state)
{
    (void)state;
    static const double numbers[] = {0, -0.0, 1, 0.1, 1.0 / 3, 1e300, 5e-324, 9007199254740991.0, 123456789012345680.0, -2.5};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct json_writer out = {0};
        json_write_number(&out, numbers[i]);
        assert_true(strtod(out.bytes, NULL) == numbers[i]);
        json_writer_free(&out);
    }
}

static void a_long_text_takes_linear_time(void **state)
{
    (void)state;
    size_t n = 4000000;
    char *text = malloc(n);
    memset(text, '[', n); // never closed: a quadratic search for parents would take hours
    assert_null(json_parse(text, n, NULL));
    for (size_t i = 0; i < n; i += 2)
        memcpy(text + i, ",1", 2);
    text[0] = '[';
    struct json_document *document = json_parse(text, n, NULL);
    assert_null(document); // the closing bracket is missing
    memcpy(text + n - 2, " ]", 2);
    document = json_parse(text, n, NULL);
    assert_non_null(document);
    assert_int_equal(json_root(document)->n_children, n / 2 - 1);
    json_free(document);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_texts_come_back_in_compact_form),
        cmocka_unit_test(invalid_texts_are_refused),
        cmocka_unit_test(every_prefix_of_a_text_is_refused_without_harm),
        cmocka_unit_test(depth_is_limited),
        cmocka_unit_test(members_are_found_by_name_and_kind),
        cmocka_unit_test(strings_are_written_as_valid_json_whatever_their_bytes),
        cmocka_unit_test(numbers_read_back_equal),
        cmocka_unit_test(a_long_text_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
