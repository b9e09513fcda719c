// stdin_text.h: standard input as a whole and line by line, for the commands that transform text.

#ifndef CARAT_CLI_STDIN_TEXT_H
#define CARAT_CLI_STDIN_TEXT_H

#include "base/error.h"
#include "base/json.h"
#include "gguf/gguf.h"
#include "text/buffer.h"
#include "text/tokenizer.h"

// Everything up to the end of stdin, any bytes.
bool read_stdin(struct text_buffer *text, struct carat_error *err);

// Called with the parsed value of each line that is not blank, in order.
typedef bool json_line(void *context, const struct json_value *value, struct carat_error *err);

// Parses every line as JSON; an error names the line.
bool each_json_line(struct text_view text, json_line *each, void *context, struct carat_error *err);

// Prints "carat COMMAND: message" to stderr and returns the exit code 1.
int report_failure(const char *command, const struct carat_error *err);

// Opens a model file and builds its tokenizer. Free with tokenizer_free.
struct tokenizer *open_tokenizer(const char *name, struct carat_error *err);

#endif
