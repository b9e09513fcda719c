// adapter_config.c: PEFT's adapter_config.json.

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "lora/adapter_internal.h"

static bool is_empty(const struct json_value *value)
{
    return value == NULL || value->type == JSON_NULL || value->type == JSON_FALSE ||
           ((value->type == JSON_ARRAY || value->type == JSON_OBJECT) && value->n_children == 0);
}

// Whatever makes the adapter compute something else than W x + scale B A x.
static bool refuse_unsupported(const struct json_value *root, struct carat_error *err)
{
    static const char *const features[] = {"use_dora", "lora_bias", "modules_to_save", "trainable_token_indices",
        "target_parameters", "layer_replication", "alora_invocation_tokens", "use_qalora", "use_bdlora"};
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (!is_empty(json_get(root, features[i])))
            return fail(err, CARAT_UNSUPPORTED, "the adapter uses '%s', which is not supported", features[i]);
    }
    const struct json_value *bias = json_get(root, "bias");
    if (json_is(bias, JSON_STRING) && !json_text_is(bias, "none"))
        return fail(err, CARAT_UNSUPPORTED, "the adapter has biases ('bias' is '%s'), which are not supported", bias->text);
    return true;
}

bool peft_config_read(const char *text, size_t n_bytes, struct peft_config *config, struct carat_error *err)
{
    *config = (struct peft_config){.document = json_parse(text, n_bytes, err)};
    if (config->document == NULL)
        return fail_in(err, "adapter_config.json");
    const struct json_value *root = json_root(config->document);
    if (!json_text_is(json_get(root, "peft_type"), "LORA"))
        return fail(err, CARAT_UNSUPPORTED, "'peft_type' in adapter_config.json must be 'LORA'");
    if (!refuse_unsupported(root, err))
        return false;
    if (!json_get_number(root, "r", &config->rank) || !json_get_number(root, "lora_alpha", &config->alpha))
        return fail(err, CARAT_BAD_FILE, "adapter_config.json must hold the numbers 'r' and 'lora_alpha'");
    json_get_bool(root, "use_rslora", &config->rank_stabilised);
    return true;
}

// Does `key` match the end of `path`, beginning at its start or after a dot? Keys are regular expressions; those of names, in
// which a dot stands for any character and a backslash takes a dot literally, are understood.
static bool matches_end(const char *key, const char *path)
{
    size_t n_path = strlen(path), n = 0;
    for (const char *k = key; *k != '\0'; k++)
        n += *k != '\\';
    if (n > n_path || (n < n_path && path[n_path - n - 1] != '.'))
        return false;
    const char *at = path + n_path - n;
    for (const char *k = key; *k != '\0'; k++) {
        bool literal = *k == '\\';
        k += literal;
        if (*k != *at && (literal || *k != '.'))
            return false;
        at++;
    }
    return true;
}

// The first number of the pattern object whose key fits the path replaces *value.
static bool apply_pattern(
    const struct peft_config *config, const char *name, const char *path, double *value, struct carat_error *err)
{
    const struct json_value *pattern = json_get(json_root(config->document), name);
    for (size_t i = 0; json_is(pattern, JSON_OBJECT) && i < pattern->n_children; i++) {
        const struct json_value *entry = &pattern->children[i];
        const char *backslash = strchr(entry->key, '\\');
        for (; backslash != NULL && backslash[1] == '.'; backslash = strchr(backslash + 2, '\\'))
            ;
        if (strpbrk(entry->key, "^$*+?()[]{}|") != NULL || backslash != NULL)
            return fail(err, CARAT_UNSUPPORTED,
                "'%s' in adapter_config.json has the regular expression '%s'; write the module names out", name, entry->key);
        if (!json_is(entry, JSON_NUMBER))
            return fail(err, CARAT_BAD_FILE, "'%s' in adapter_config.json must hold numbers", name);
        if (matches_end(entry->key, path)) {
            *value = entry->number;
            return true;
        }
    }
    return true;
}

bool peft_config_scale(const struct peft_config *config, const char *path, uint64_t rank, double *scale, struct carat_error *err)
{
    double expected = config->rank, alpha = config->alpha;
    if (!apply_pattern(config, "rank_pattern", path, &expected, err) ||
        !apply_pattern(config, "alpha_pattern", path, &alpha, err))
        return false;
    if (expected != (double)rank)
        return fail(err, CARAT_BAD_FILE, "module '%s' of the adapter has rank %llu, but adapter_config.json says %g", path,
            (unsigned long long)rank, expected);
    if (!isfinite(alpha))
        return fail(err, CARAT_BAD_FILE, "'lora_alpha' in adapter_config.json is no finite number");
    *scale = alpha / (config->rank_stabilised ? sqrt((double)rank) : (double)rank);
    return true;
}

void peft_config_free(struct peft_config *config)
{
    json_free(config->document);
    config->document = NULL;
}
