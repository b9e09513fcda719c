// gguf_source_test.c: byte sources: memory, callback, file, web server (one of a few lines runs here), Ollama store.

#include "gguf/gguf.h" // before cmocka.h, which has a macro called fail
#include "gguf/ollama.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_BYTES = 600000, SMALL_BYTES = 1000, LARGE_BYTES = 64 << 20, REQUEST_BYTES = 8192 };

static uint8_t content[LARGE_BYTES]; // a file has the first bytes of it
static char folder[] = "/tmp/carat-source-XXXXXX";

// --- a web server that can be told to misbehave by the path

static int listener;
static int port;
static pthread_t server_thread;
static int n_requests;
static uint64_t n_sent_bytes;

static void send_all(int connection, const void *bytes, size_t n_bytes)
{
    for (size_t at = 0; at < n_bytes;) {
        ssize_t n = send(connection, (const char *)bytes + at, n_bytes - at, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        at += (size_t)n;
    }
}

static void answer(int connection, const char *request)
{
    char path[128] = "", head[1024];
    unsigned long first = 0, last = 0, total = N_BYTES;
    const char *range = strstr(request, "Range: bytes=");
    n_requests++;
    if (sscanf(request, "GET %100s", path) != 1 || range == NULL || sscanf(range, "Range: bytes=%lu-%lu", &first, &last) != 2)
        return;
    if (strcmp(path, "/small") == 0)
        total = SMALL_BYTES;
    if (strcmp(path, "/large") == 0)
        total = LARGE_BYTES;
    if (strcmp(path, "/changed-size") == 0)
        total = N_BYTES - (unsigned long)n_requests;
    if (last >= total)
        last = total - 1;
    unsigned long shift = strcmp(path, "/other-range") == 0 ? 1 : 0;
    size_t n_body = last - first + 1, n_sent = n_body;
    const char *status = "206 Partial Content", *extra = "";
    if (strcmp(path, "/ignores-ranges") == 0)
        status = "200 OK", first = 0, n_body = n_sent = total;
    else if (strcmp(path, "/missing") == 0)
        status = "404 Not Found";
    else if (strcmp(path, "/forbidden") == 0)
        status = "403 Forbidden";
    else if (strcmp(path, "/broken") == 0)
        status = "500 Internal Server Error";
    else if (strcmp(path, "/redirect") == 0)
        status = "302 Found", extra = "Location: /good\r\n";
    else if (strcmp(path, "/loop") == 0)
        status = "302 Found", extra = "Location: /loop\r\n";
    else if (strcmp(path, "/to-file") == 0)
        status = "302 Found", extra = "Location: file:///etc/hostname\r\n";
    else if (strcmp(path, "/compressed") == 0)
        extra = "Content-Encoding: gzip\r\n";
    else if (strcmp(path, "/short") == 0)
        n_sent = n_body / 2;
    else if (strcmp(path, "/drops") == 0 && first != 0 && n_body > 50000)
        n_sent = 50000;
    else if (strcmp(path, "/longer") == 0)
        n_body = n_sent = n_body + 5;
    char content_range[128];
    snprintf(content_range, sizeof content_range, "Content-Range: bytes %lu-%lu/%lu\r\n", first + shift, last + shift, total);
    if (strcmp(path, "/no-content-range") == 0)
        content_range[0] = '\0';
    int n_head =
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\n%s%sETag: \"%d\"\r\nConnection: close\r\n\r\n", status,
            n_body, content_range, extra, strcmp(path, "/changed-tag") == 0 ? n_requests : 0);
    n_sent_bytes += n_sent;
    send_all(connection, head, (size_t)n_head);
    send_all(connection, content + first, n_sent);
}

static void *serve(void *context)
{
    (void)context;
    for (;;) {
        int connection = accept(listener, NULL, NULL);
        if (connection < 0)
            return NULL;
        char request[REQUEST_BYTES] = "";
        size_t n = 0;
        while (n < sizeof request - 1 && strstr(request, "\r\n\r\n") == NULL) {
            ssize_t got = recv(connection, request + n, sizeof request - 1 - n, 0);
            if (got <= 0)
                break;
            n += (size_t)got;
            request[n] = '\0';
        }
        answer(connection, request);
        shutdown(connection, SHUT_WR);
        close(connection);
    }
}

static int start(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < LARGE_BYTES; i++)
        content[i] = (uint8_t)(i * 2654435761u >> 24);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_address = sizeof address;
    listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &n_address) != 0 || mkdtemp(folder) == NULL)
        return -1;
    port = ntohs(address.sin_port);
    setenv("no_proxy", "127.0.0.1", 1);
    return pthread_create(&server_thread, NULL, serve, NULL);
}

static int stop(void **state)
{
    (void)state;
    shutdown(listener, SHUT_RDWR);
    close(listener);
    pthread_join(server_thread, NULL);
    char command[256];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

static struct gguf_source *open_url(const char *path, struct carat_error *err)
{
    char url[256];
    snprintf(url, sizeof url, "http://127.0.0.1:%d%s", port, path);
    return gguf_source_open(url, err);
}

// Reads pieces at many places and compares them with the content.
static void assert_reads(struct gguf_source *source, size_t n_bytes)
{
    static uint8_t got[N_BYTES];
    assert_int_equal(source->n_bytes, n_bytes);
    const size_t places[][2] = {{0, 1}, {0, n_bytes}, {n_bytes - 1, 1}, {n_bytes / 2, n_bytes / 3}, {n_bytes, 0}, {7, 100}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct carat_error err = {0};
        if (!gguf_source_read(source, places[i][0], got, places[i][1], &err))
            fail_msg("%s", err.message);
        assert_memory_equal(got, content + places[i][0], places[i][1]);
    }
    const uint64_t beyond[][2] = {{n_bytes, 1}, {n_bytes - 1, 2}, {UINT64_MAX, 1}, {0, n_bytes + 1}};
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        struct carat_error err = {0};
        assert_false(gguf_source_read(source, beyond[i][0], got, (size_t)beyond[i][1], &err));
        assert_int_equal(err.code, CARAT_BAD_FILE);
    }
    gguf_source_close(source);
}

static bool read_content(void *context, uint64_t offset, void *dst, size_t n_bytes, struct carat_error *err)
{
    (void)err;
    memcpy(dst, (uint8_t *)context + offset, n_bytes);
    return true;
}

static void memory_callback_and_file_give_the_same_bytes(void **state)
{
    (void)state;
    char path[128];
    snprintf(path, sizeof path, "%s/content", folder);
    FILE *file = fopen(path, "wb");
    assert_int_equal(fwrite(content, 1, N_BYTES, file), N_BYTES);
    fclose(file);
    assert_reads(gguf_source_memory(content, N_BYTES, "memory", NULL), N_BYTES);
    assert_reads(gguf_source_callback(read_content, content, N_BYTES, "callback", NULL), N_BYTES);
    struct gguf_source *mapped = gguf_source_file(path, true, NULL), *read = gguf_source_file(path, false, NULL);
    assert_non_null(mapped->mapped);
    assert_null(read->mapped);
    assert_reads(mapped, N_BYTES);
    assert_reads(read, N_BYTES);
}

static void what_is_no_file_is_said_clearly(void **state)
{
    (void)state;
    struct carat_error err = {0};
    assert_null(gguf_source_open("./absent.gguf", &err));
    assert_int_equal(err.code, CARAT_NOT_FOUND);
    assert_non_null(strstr(err.message, "./absent.gguf"));
    assert_null(gguf_source_open(folder, &err));
    assert_int_equal(err.code, CARAT_BAD_ARGUMENT);
    assert_null(gguf_source_open("no-such-model:tag", &err));
    assert_int_equal(err.code, CARAT_NOT_FOUND);
    assert_null(gguf_source_open("", &err));
    assert_null(gguf_source_open("ftp://example.org/x", &err));
}

// A file much larger than memory would allow: holes take no space on disk.
static void a_file_larger_than_memory_works(void **state)
{
    (void)state;
    const uint64_t n_bytes = 1ull << 42;
    char path[128];
    snprintf(path, sizeof path, "%s/sparse", folder);
    FILE *file = fopen(path, "wb");
    fclose(file);
    if (truncate(path, (off_t)n_bytes) != 0)
        skip(); // the file system allows no such file
    for (int map = 0; map < 2; map++) {
        struct gguf_source *source = gguf_source_file(path, map, NULL);
        uint8_t got[16];
        assert_non_null(source);
        assert_int_equal(source->n_bytes, n_bytes);
        assert_true(gguf_source_read(source, n_bytes - 16, got, 16, NULL));
        gguf_source_close(source);
    }
    remove(path);
}

static void a_web_server_with_ranges_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const paths[] = {"/good", "/small", "/redirect"};
    for (size_t i = 0; i < 3; i++) {
        struct carat_error err = {0};
        struct gguf_source *source = open_url(paths[i], &err);
        if (source == NULL && err.code == CARAT_UNSUPPORTED)
            skip(); // built without libcurl
        if (source == NULL)
            fail_msg("%s", err.message);
        assert_reads(source, i == 1 ? SMALL_BYTES : N_BYTES);
    }
}

static void a_server_that_breaks_the_rules_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *path, *message;
        enum carat_code code;
    } cases[] = {{"/ignores-ranges", "ignores ranges", CARAT_IO}, {"/missing", "no such file", CARAT_NOT_FOUND},
        {"/forbidden", "refuses access", CARAT_IO}, {"/broken", "status 500", CARAT_IO}, {"/loop", "redirects", CARAT_IO},
        {"/to-file", "", CARAT_IO}, {"/other-range", "other bytes", CARAT_IO}, {"/short", "", CARAT_IO},
        {"/longer", "", CARAT_IO}, {"/no-content-range", "Content-Range", CARAT_IO}, {"/compressed", "compresses", CARAT_IO}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct carat_error err = {0};
        if (open_url(cases[i].path, &err) != NULL)
            fail_msg("%s was accepted", cases[i].path);
        if (err.code == CARAT_UNSUPPORTED)
            skip();
        if (err.code != cases[i].code || strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s", cases[i].path, err.message);
        assert_non_null(strstr(err.message, cases[i].path));
    }
}

static void a_file_that_changes_on_the_server_is_noticed(void **state)
{
    (void)state;
    static const char *const paths[] = {"/changed-tag", "/changed-size"};
    for (int i = 0; i < 2; i++) {
        struct carat_error err = {0};
        static uint8_t got[1000];
        struct gguf_source *source = open_url(paths[i], &err);
        if (source == NULL && err.code == CARAT_UNSUPPORTED)
            skip();
        assert_non_null(source);
        assert_false(gguf_source_read(source, N_BYTES / 2, got, sizeof got, &err));
        assert_non_null(strstr(err.message, "changed"));
        gguf_source_close(source);
    }
}

static void a_connection_that_breaks_is_resumed_where_it_stopped(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct gguf_source *source = open_url("/drops", &err);
    if (source == NULL && err.code == CARAT_UNSUPPORTED)
        skip();
    assert_non_null(source);
    int before = n_requests;
    static uint8_t got[N_BYTES];
    if (!gguf_source_read(source, 0, got, N_BYTES, &err)) // the first 262144 bytes came when it was opened
        fail_msg("%s", err.message);
    assert_memory_equal(got, content, N_BYTES);
    assert_int_equal(n_requests - before, (N_BYTES - 262144 + 49999) / 50000);
    gguf_source_close(source);
}

// Reads 64 MB as a model is loaded: tensors of many sizes, one after another, with padding and a part that nobody reads.
static void reads_that_follow_each_other_share_requests(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct gguf_source *source = open_url("/large", &err);
    if (source == NULL && err.code == CARAT_UNSUPPORTED)
        skip();
    assert_non_null(source);
    static const size_t sizes[] = {2048, 100000, 64, 3 << 20, 700, 4 << 20, 20 << 20};
    static uint8_t got[20 << 20];
    int before = n_requests, n_reads = 0;
    uint64_t offset = 0;
    for (size_t i = 0; offset + sizes[i % 7] <= LARGE_BYTES; i++, n_reads++) {
        size_t n = sizes[i % 7];
        if (!gguf_source_read(source, offset, got, n, &err))
            fail_msg("%s", err.message);
        assert_memory_equal(got, content + offset, n);
        offset += n + i % 3 * 32;
    }
    assert_true(n_reads > 14);
    assert_in_range(n_requests - before, 1, n_reads / 2);
    gguf_source_close(source);
}

static void reads_here_and_there_bring_only_what_they_ask_for(void **state)
{
    (void)state;
    struct carat_error err = {0};
    struct gguf_source *source = open_url("/large", &err);
    if (source == NULL && err.code == CARAT_UNSUPPORTED)
        skip();
    assert_non_null(source);
    uint64_t before = n_sent_bytes;
    uint8_t got[256];
    for (uint64_t i = 1; i <= 20; i++) {
        uint64_t offset = i * 7919 * 256 % (LARGE_BYTES - 300000) + 300000;
        assert_true(gguf_source_read(source, offset, got, sizeof got, &err));
        assert_memory_equal(got, content + offset, sizeof got);
    }
    assert_int_equal(n_sent_bytes - before, 20 * sizeof got);
    gguf_source_close(source);
}

static void a_server_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    struct carat_error err = {0};
    assert_null(gguf_source_open("http://127.0.0.1:1/x.gguf", &err));
    assert_true(err.code == CARAT_IO || err.code == CARAT_UNSUPPORTED);
    assert_non_null(strstr(err.message, "127.0.0.1:1"));
}

// --- the Ollama store

static const char digest_a[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
static const char digest_b[] = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
static const char digest_c[] = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";

static void write_text(const char *path, const char *text)
{
    char full[512], command[600];
    snprintf(full, sizeof full, "%s/store/%s", folder, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(full, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

// layers: pairs of suffix and digest, separated by blanks.
static void write_manifest(const char *path, const char *layers)
{
    char text[4096] = "{\"schemaVersion\":2,\"layers\":[", suffix[32], digest[160];
    int used;
    for (const char *at = layers; sscanf(at, "%30s %150s%n", suffix, digest, &used) == 2; at += used) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof text - n, "%s{\"mediaType\":\"application/vnd.ollama.image.%s\",\"digest\":\"%s\",\"size\":5}",
            at == layers ? "" : ",", suffix, digest);
    }
    strcat(text, "]}");
    write_text(path, text);
}

static int make_store(void **state)
{
    (void)state;
    char path[512], layers[512];
    const char *const digests[] = {digest_a, digest_b, digest_c};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "blobs/sha256-%s", digests[i]);
        write_text(path, i == 2 ? "{\"temperature\":1}" : "GGUF-");
    }
    snprintf(layers, sizeof layers, "model sha256:%s projector sha256:%s params sha256:%s license sha256:%s", digest_a, digest_b,
        digest_c, digest_c);
    write_manifest("manifests/registry.ollama.ai/library/gemma4/e2b", layers);
    snprintf(layers, sizeof layers, "model sha256:%s", digest_b);
    write_manifest("manifests/registry.ollama.ai/library/gemma4/latest", layers);
    write_manifest("manifests/registry.ollama.ai/someone/tuned/v1", layers);
    write_manifest("manifests/hf.co/org/repo/Q4_K_M", layers);
    write_manifest("manifests/registry.ollama.ai/library/tensors/latest", "tensor sha256:00");
    snprintf(layers, sizeof layers, "model sha256:%064d", 0);
    write_manifest("manifests/registry.ollama.ai/library/lost/latest", layers);
    write_manifest("manifests/registry.ollama.ai/library/escape/latest", "model sha256:../../../../../../etc/hostname");
    write_manifest("manifests/registry.ollama.ai/library/short/latest", "model sha256:abcd");
    write_text("manifests/registry.ollama.ai/library/broken/latest", "{\"layers\":[");
    write_text("manifests/registry.ollama.ai/library/empty/latest", "{}");
    write_text("manifests/registry.ollama.ai/library/.DS_Store", "x");
    return 0;
}

static void models_of_the_store_are_found_by_the_names_that_users_write(void **state)
{
    (void)state;
    static const struct {
        const char *name, *short_name, *digest;
    } cases[] = {{"gemma4:e2b", "gemma4:e2b", digest_a}, {"gemma4", "gemma4:latest", digest_b},
        {"library/gemma4:e2b", "gemma4:e2b", digest_a}, {"someone/tuned:v1", "someone/tuned:v1", digest_b},
        {"hf.co/org/repo:Q4_K_M", "hf.co/org/repo:Q4_K_M", digest_b},
        {"registry.ollama.ai/library/gemma4:e2b", "gemma4:e2b", digest_a}};
    char store[128];
    snprintf(store, sizeof store, "%s/store", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ollama_model model;
        struct carat_error err = {0};
        if (!ollama_find(store, cases[i].name, &model, &err))
            fail_msg("%s", err.message);
        assert_string_equal(model.name, cases[i].short_name);
        assert_string_equal(model.digest, cases[i].digest);
        assert_non_null(strstr(model.model_path, cases[i].digest));
        ollama_model_free(&model);
    }
    struct ollama_model model;
    assert_true(ollama_find(store, "gemma4:e2b", &model, NULL));
    assert_int_equal(model.n_projectors, 1);
    assert_non_null(strstr(model.projector_paths[0], digest_b));
    assert_non_null(strstr(model.params_path, digest_c));
    assert_null(model.adapter_path);
    assert_int_equal(model.n_bytes, 20);
    ollama_model_free(&model);
}

static void the_environment_says_where_the_store_is(void **state)
{
    (void)state;
    char store[128];
    struct carat_error err = {0};
    snprintf(store, sizeof store, "%s/store", folder);
    setenv("OLLAMA_MODELS", store, 1);
    struct gguf_source *source = gguf_source_open("gemma4:e2b", &err);
    assert_non_null(source);
    assert_int_equal(source->n_bytes, 5);
    gguf_source_close(source);
    unsetenv("OLLAMA_MODELS");
    setenv("HOME", "/nowhere", 1);
    char *path = ollama_store_path();
    assert_string_equal(path, "/nowhere/.ollama/models");
    free(path);
}

static void names_and_digests_cannot_lead_out_of_the_store(void **state)
{
    (void)state;
    static const char *const names[] = {"../gemma4:e2b", "gemma4:../e2b", "..:e2b", "a/b/c/d", "/etc/passwd", "gemma4:", ":e2b",
        "", "gemma4/", "gem ma", "x:y:z", ".hidden", "a//b", "gemma4:.."};
    static const struct {
        const char *name;
        enum carat_code code;
    } bad[] = {{"tensors", CARAT_UNSUPPORTED}, {"lost", CARAT_NOT_FOUND}, {"escape", CARAT_BAD_FILE}, {"short", CARAT_BAD_FILE},
        {"broken", CARAT_BAD_FILE}, {"empty", CARAT_BAD_FILE}, {"absent", CARAT_NOT_FOUND}};
    char store[128];
    struct ollama_model model;
    snprintf(store, sizeof store, "%s/store", folder);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct carat_error err = {0};
        if (ollama_find(store, names[i], &model, &err))
            fail_msg("'%s' was accepted", names[i]);
        assert_int_equal(err.code, CARAT_NOT_FOUND);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct carat_error err = {0};
        assert_false(ollama_find(store, bad[i].name, &model, &err));
        if (err.code != bad[i].code)
            fail_msg("%s: %s", bad[i].name, err.message);
    }
}

static void the_list_holds_every_usable_model(void **state)
{
    (void)state;
    static const char *const wanted[] = {"gemma4:e2b", "gemma4:latest", "hf.co/org/repo:Q4_K_M", "someone/tuned:v1"};
    char store[128];
    struct ollama_model *models;
    size_t n;
    snprintf(store, sizeof store, "%s/store", folder);
    assert_true(ollama_list(store, &models, &n, NULL));
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(models[i].name, wanted[i]);
    ollama_list_free(models, n);
    assert_true(ollama_list("/no/such/store", &models, &n, NULL));
    assert_int_equal(n, 0);
    ollama_list_free(models, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_callback_and_file_give_the_same_bytes),
        cmocka_unit_test(what_is_no_file_is_said_clearly),
        cmocka_unit_test(a_file_larger_than_memory_works),
        cmocka_unit_test(a_web_server_with_ranges_gives_the_same_bytes),
        cmocka_unit_test(a_server_that_breaks_the_rules_is_refused),
        cmocka_unit_test(a_file_that_changes_on_the_server_is_noticed),
        cmocka_unit_test(a_connection_that_breaks_is_resumed_where_it_stopped),
        cmocka_unit_test(reads_that_follow_each_other_share_requests),
        cmocka_unit_test(reads_here_and_there_bring_only_what_they_ask_for),
        cmocka_unit_test(a_server_that_is_not_there_is_an_error),
        cmocka_unit_test_setup(models_of_the_store_are_found_by_the_names_that_users_write, make_store),
        cmocka_unit_test(the_environment_says_where_the_store_is),
        cmocka_unit_test(names_and_digests_cannot_lead_out_of_the_store),
        cmocka_unit_test(the_list_holds_every_usable_model),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
