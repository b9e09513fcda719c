// template.c: carat template, the prompt a conversation becomes.

#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "options.h"
#include "stdin_text.h"
#include "text/chat.h"

static const char help[] =
    "usage: carat template MODEL [--json] < CONVERSATION\n"
    "\n"
    "Prints the prompt that a conversation becomes. Standard input holds one JSON object:\n"
    "\n"
    "  messages               list of messages in the form of OpenAI's chat API\n"
    "  tools                  list of tools, or null\n"
    "  enable_thinking        true: the model may think before it answers\n"
    "  preserve_thinking      true: keep the thinking of earlier messages that called tools\n"
    "  add_generation_prompt  true: open the model's turn\n"
    "  continue_final_message true: the last message is an unfinished reply and stays open\n"
    "\n"
    "MODEL is a GGUF file, a URL, or a model of the local Ollama store such as gemma4:e2b; it decides between the\n"
    "template of the small models and that of the large ones.\n"
    "\n"
    "  --json   write {\"prompt\":\"...\"} instead of the bare prompt\n";

// 12B and larger have no per-layer embeddings, and another template.
static bool is_large(const char *model, bool *large, struct carat_error *err)
{
    struct gguf_file *file;
    uint32_t width = 0;
    if (!gguf_open_path(model, &file, err))
        return false;
    bool ok = gguf_u32_or(file, "gemma4.embedding_length_per_layer_input", 0, &width, err);
    *large = width == 0;
    gguf_close(file);
    return ok;
}

// An optional switch of the request; false with err when it is no switch.
static bool read_switch(const struct json_value *request, const char *name, bool *out, struct carat_error *err)
{
    const struct json_value *value = json_get(request, name);
    return value == NULL || value->type == JSON_NULL || json_get_bool(request, name, out) ||
           fail(err, CARAT_BAD_ARGUMENT, "'%s' must be true, false or null", name);
}

static bool read_switches(const struct json_value *request, struct chat_options *options, struct carat_error *err)
{
    return read_switch(request, "enable_thinking", &options->enable_thinking, err) &&
           read_switch(request, "preserve_thinking", &options->preserve_thinking, err) &&
           read_switch(request, "add_generation_prompt", &options->add_generation_prompt, err) &&
           read_switch(request, "continue_final_message", &options->continue_last, err);
}

static bool print_prompt(const struct json_value *request, bool large, bool as_json, struct carat_error *err)
{
    struct chat chat = {.tools = json_get(request, "tools")};
    struct chat_options options = {.large = large};
    struct chat_prompt prompt = {0};
    bool ok = read_switches(request, &options, err) && chat_add_json(&chat, json_get(request, "messages"), false, err) &&
              chat_render(&chat, &options, &prompt, err);
    struct text_view text = text_whole(&prompt.text);
    struct json_writer json = {0};
    if (ok && as_json) {
        json_write_literal(&json, "{\"prompt\":");
        json_write_string(&json, text.data, text.n_bytes);
        json_write_literal(&json, "}\n");
        text = (struct text_view){json.bytes, json.n_bytes};
        ok = !json.failed || fail(err, CARAT_NO_MEMORY, "not enough memory for the prompt");
    }
    if (ok && (fwrite(text.data, 1, text.n_bytes, stdout) != text.n_bytes || fflush(stdout) != 0))
        ok = fail(err, CARAT_IO, "standard output could not be written");
    json_writer_free(&json);
    chat_prompt_free(&prompt);
    chat_free(&chat);
    return ok;
}

int command_template(int argc, char **argv)
{
    struct arguments arguments = arguments_begin(argc, argv);
    const char *option, *positional;
    const char *model = NULL;
    bool as_json = false;
    while (arguments_next(&arguments, &option, &positional)) {
        if (option == NULL && model != NULL)
            usage_error(argv[0], "one MODEL is enough, '%s' is too much", positional);
        else if (option == NULL)
            model = positional;
        else if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0)
            return fputs(help, stdout) >= 0 ? 0 : 1;
        else if (strcmp(option, "--json") == 0)
            as_json = true;
        else
            usage_error(argv[0], "there is no option '%s'", option);
    }
    if (model == NULL)
        usage_error(argv[0], "MODEL is missing");

    struct carat_error err = {0};
    struct text_buffer input = {0};
    bool large = false;
    bool ok = is_large(model, &large, &err) && read_stdin(&input, &err);
    struct json_document *request = ok ? json_parse(text_whole(&input).data, input.n_bytes, &err) : NULL;
    if (ok && request == NULL)
        ok = fail_in(&err, "the conversation on standard input");
    ok = ok && print_prompt(json_root(request), large, as_json, &err);
    json_free(request);
    text_free(&input);
    return ok ? 0 : report_failure(argv[0], &err);
}
