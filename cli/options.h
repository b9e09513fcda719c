// options.h: reading command lines, and what several commands share.

#ifndef CARAT_CLI_OPTIONS_H
#define CARAT_CLI_OPTIONS_H

#include <signal.h>

#include "base/error.h"
#include "carat.h"

// Walks over arguments. Options may be written --name value or --name=value; "--" ends them.
struct arguments {
    int argc;
    char **argv;
    int next;          // index of the next argument
    const char *value; // of --name=value, not yet taken
    bool only_positional;
};

struct arguments arguments_begin(int argc, char **argv);

// The next option's name ("--temp", "-n") in *option, or NULL there and a positional argument in *positional. False at the end.
bool arguments_next(struct arguments *arguments, const char **option, const char **positional);

// The value of the option just returned. Prints what is missing or wrong and exits the program with 2: wrong usage.
const char *option_text(struct arguments *arguments, const char *option);
long option_int(struct arguments *arguments, const char *option, long low, long high);
double option_number(struct arguments *arguments, const char *option, double low, double high);

// Prints a usage error, points to --help and exits with 2.
__attribute__((format(printf, 2, 3), noreturn)) void usage_error(const char *command, const char *format, ...);

// "2,9,4" (commas or white space) to ids; *ids is freed by the caller.
bool parse_ids(const char *text, int32_t **ids, int32_t *n_ids, struct carat_error *err);

// Options of every command that opens a model: --backend, --threads, --exact, --compat, --mmproj, --text-only, --table-on-disk.
// Returns false when the option is another one.
bool model_option(struct arguments *arguments, const char *option, struct carat_model_options *options);
extern const char model_options_help[];

// Options of sampling: --temp, --top-k, --top-p, --min-p, --repeat-penalty, --presence-penalty, --frequency-penalty,
// --penalty-window, --seed, --logit-bias.
bool sampling_option(struct arguments *arguments, const char *option, struct carat_sampling *sampling);
extern const char sampling_options_help[];

// Options --lora and --lora-scale: open_model() adds the adapters they name. Returns false when the option is another one.
bool adapter_option(struct arguments *arguments, const char *option);
extern const char adapter_options_help[];

// From now on Ctrl-C sets `interrupted` instead of ending the program, and ends a read from stdin early. `once`: a second Ctrl-C
// ends the program. Called after the model was opened, so that loading can be broken off at once.
void catch_interrupts(bool once);
extern volatile sig_atomic_t interrupted;
// Waits until a read from the descriptor would not block (true) or Ctrl-C was pressed, now or earlier (false).
bool input_is_ready(int descriptor);
// Whatever Ctrl-C was pressed for is done with.
void forget_interrupts(void);

// A progress bar on stderr for what takes more than a second; nothing when stderr is no terminal.
bool show_progress(void *context, const char *what, uint64_t done, uint64_t total);
// Removes the bar, if one is shown.
void hide_progress(void);

// Opens the model with the progress bar, and adds the adapters of the command line. Prints the error and returns NULL on failure.
struct carat_model *open_model(const char *name, struct carat_model_options *options);

// Whether `output` may be written while `input` is read: not when they are the same file. NULL inputs never are.
bool check_output(const char *output, const char *input, struct carat_error *err);

// "1.2 GB" in a static buffer, of which there are four.
const char *bytes_text(uint64_t n_bytes);

#endif
