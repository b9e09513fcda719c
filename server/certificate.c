// certificate.c: the server's own certificate, made on first use.
//
// Phones need HTTPS for WebGPU and for storage that lasts. The certificate is self-signed; a browser shows a warning once.

#include <errno.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { VALID_DAYS = 825, MAX_PEM_BYTES = 64 << 10 };

static bool make_folders(const char *path, struct carat_error *err)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *slash = part + 1;; slash++) {
        if (*slash != '/' && *slash != 0)
            continue;
        char saved = *slash;
        *slash = 0;
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return fail(err, CARAT_IO, "cannot make the folder '%s': %s", part, strerror(errno));
        *slash = saved;
        if (saved == 0)
            return true;
    }
}

char *data_folder(struct carat_error *err)
{
    const char *data = getenv("XDG_DATA_HOME");
    const char *home = getenv("HOME");
    char path[PATH_MAX];
    if (data != NULL && data[0] == '/')
        snprintf(path, sizeof path, "%s/carat", data);
    else if (home != NULL && home[0] == '/')
        snprintf(path, sizeof path, "%s/.local/share/carat", home);
    else {
        fail(err, CARAT_NOT_FOUND, "there is no folder for data: set HOME or XDG_DATA_HOME");
        return NULL;
    }
    return make_folders(path, err) ? strdup(path) : NULL;
}

static char *read_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return NULL;
    char *text = malloc(MAX_PEM_BYTES + 1);
    size_t n = text != NULL ? fread(text, 1, MAX_PEM_BYTES, file) : 0;
    fclose(file);
    if (n == 0) {
        free(text);
        return NULL;
    }
    text[n] = 0;
    return text;
}

// Readable by the owner only; in place at once or not at all.
static bool write_text(const char *path, const char *text, struct carat_error *err)
{
    char part[PATH_MAX + 8];
    snprintf(part, sizeof part, "%s.part", path);
    int file = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    size_t n = strlen(text);
    bool ok = file >= 0 && write(file, text, n) == (ssize_t)n;
    if (file >= 0)
        ok = close(file) == 0 && ok;
    ok = ok && rename(part, path) == 0;
    return ok || fail(err, CARAT_IO, "cannot write '%s': %s", path, strerror(errno));
}

static int fill_certificate(gnutls_x509_crt_t certificate, gnutls_x509_privkey_t key, const char *host)
{
    unsigned char serial[8];
    time_t now = time(NULL);
    int code = gnutls_x509_crt_set_version(certificate, 3);
    for (size_t i = 0; i < sizeof serial; i++)
        serial[i] = (unsigned char)((uint64_t)now >> (8 * i));
    serial[0] &= 0x7f;
    serial[0] |= 1;
    code = code < 0 ? code : gnutls_x509_crt_set_serial(certificate, serial, sizeof serial);
    code = code < 0 ? code : gnutls_x509_crt_set_activation_time(certificate, now - 3600);
    code = code < 0 ? code : gnutls_x509_crt_set_expiration_time(certificate, now + VALID_DAYS * 86400l);
    code = code < 0 ? code : gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, "carat", 5);
    code =
        code < 0 ? code : gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, "localhost", 9, GNUTLS_FSAN_SET);
    if (host != NULL)
        code = code < 0 ? code
                        : gnutls_x509_crt_set_subject_alt_name(
                              certificate, GNUTLS_SAN_DNSNAME, host, (unsigned)strlen(host), GNUTLS_FSAN_APPEND);
    code = code < 0 ? code : gnutls_x509_crt_set_key(certificate, key);
    code = code < 0 ? code : gnutls_x509_crt_set_key_usage(certificate, GNUTLS_KEY_DIGITAL_SIGNATURE);
    return code < 0 ? code : gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0);
}

static int make_pem(const char *host, char **certificate_pem, char **key_pem)
{
    gnutls_x509_crt_t certificate = NULL;
    gnutls_x509_privkey_t key = NULL;
    gnutls_datum_t certificate_text = {0};
    gnutls_datum_t key_text = {0};
    int code = gnutls_x509_privkey_init(&key);
    code = code < 0 ? code : gnutls_x509_crt_init(&certificate);
    code =
        code < 0 ? code : gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0);
    code = code < 0 ? code : fill_certificate(certificate, key, host);
    code = code < 0 ? code : gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &certificate_text);
    code = code < 0 ? code : gnutls_x509_privkey_export2(key, GNUTLS_X509_FMT_PEM, &key_text);
    *certificate_pem = code < 0 ? NULL : strdup((const char *)certificate_text.data);
    *key_pem = code < 0 ? NULL : strdup((const char *)key_text.data);
    gnutls_free(certificate_text.data);
    gnutls_free(key_text.data);
    if (certificate != NULL)
        gnutls_x509_crt_deinit(certificate);
    if (key != NULL)
        gnutls_x509_privkey_deinit(key);
    return code;
}

static bool make_certificate(
    const char *host, const char *certificate_path, const char *key_path, char **certificate, char **key, struct carat_error *err)
{
    int code = make_pem(host, certificate, key);
    if (code < 0 || *certificate == NULL || *key == NULL)
        return fail(err, CARAT_IO, "cannot make a certificate: %s", code < 0 ? gnutls_strerror(code) : "no memory");
    return write_text(key_path, *key, err) && write_text(certificate_path, *certificate, err);
}

bool load_certificate(const char *host, char **certificate, char **key, struct carat_error *err)
{
    char certificate_path[PATH_MAX];
    char key_path[PATH_MAX];
    char *folder = data_folder(err);
    *certificate = NULL;
    *key = NULL;
    if (folder == NULL)
        return false;
    snprintf(certificate_path, sizeof certificate_path, "%s/server-certificate.pem", folder);
    snprintf(key_path, sizeof key_path, "%s/server-key.pem", folder);
    free(folder);
    *certificate = read_text(certificate_path);
    *key = read_text(key_path);
    if (*certificate != NULL && *key != NULL)
        return true;
    free(*certificate);
    free(*key);
    if (make_certificate(host, certificate_path, key_path, certificate, key, err))
        return true;
    free(*certificate);
    free(*key);
    *certificate = *key = NULL;
    return false;
}
