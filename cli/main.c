// main.c: finds the command and runs it.

#include "commands.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int command_version(int argc, char **argv)
{
    (void)argc, (void)argv;
    puts("carat " CARAT_VERSION);
    return 0;
}

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"run", command_run, "answer one prompt"},
    {"chat", command_chat, "a conversation in the terminal"},
    {"dump", command_dump, "write the logits or hidden states of token ids to a file"},
    {"serve", command_serve, "serve the app and an OpenAI-compatible API"},
    {"eval", command_eval, "measure a model's accuracy on held-out items"},
    {"transcribe", command_transcribe, "write down what is said in a sound file"},
    {"bench", command_bench, "measure tokens per second"},
    {"tokenize", command_tokenize, "print the token ids of a text"},
    {"detokenize", command_detokenize, "print the text of token ids"},
    {"template", command_template, "print the prompt a conversation becomes"},
    {"inspect", command_inspect, "print metadata, tensors and memory of a GGUF file"},
    {"quantize", command_quantize, "write a model with smaller weights"},
    {"synth", command_synth, "write a model of real size with random weights"},
    {"version", command_version, "print the version"},
};

static void print_usage(FILE *out)
{
    fputs("usage: carat COMMAND [ARGUMENTS]\n\n", out);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        fprintf(out, "  %-12s %s\n", commands[i].name, commands[i].summary);
    fputs("\n'carat COMMAND --help' explains a command.\n", out);
}

// A descriptor that was closed at the start would be given to the next file that is opened: a model would be read as the prompt,
// messages written into a result.
static void hold_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
            _exit(1);
    }
}

// Results that could not be written (a full disk) are a failure, whatever the command returned.
static void check_output(void)
{
    bool failed = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !failed)
        return;
    fputs("carat: standard output could not be written\n", stderr);
    _exit(1);
}

// Without a desktop session Mesa's Vulkan layer that asks the compositor for its GPU complains on stderr. carat looks for the
// fastest GPU by itself.
static void quiet_device_layer(void)
{
    if (getenv("XDG_RUNTIME_DIR") == NULL)
        setenv("NODEVICE_SELECT", "1", 0);
}

int main(int argc, char **argv)
{
    quiet_device_layer();
    hold_descriptors();
    atexit(check_output);
    if (argc >= 2 && strcmp(argv[1], "--version") == 0)
        return command_version(argc - 1, argv + 1);
    if (argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0)) {
        print_usage(stdout);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    if (argc >= 2)
        fprintf(stderr, "carat: there is no command '%s'\n\n", argv[1]);
    print_usage(stderr);
    return 2;
}
