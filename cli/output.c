// output.c: see output.h.

#include "output.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static char part_path[4096];

// Removes the file and lets the signal do what it would have done.
static void on_end(int number)
{
    unlink(part_path);
    raise(number); // SA_RESETHAND: ends the program when this function returns
}

struct gguf_writer *output_new(const char *path, struct carat_error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };
    sigset_t stops, before;
    sigemptyset(&stops);
    for (size_t i = 0; i < N_NUMBERS; i++)
        sigaddset(&stops, numbers[i]);
    sigprocmask(SIG_BLOCK, &stops, &before);
    struct gguf_writer *writer = gguf_writer_new(path, 0, err);
    size_t n = (size_t)snprintf(part_path, sizeof part_path, "%s.part", path);
    for (size_t i = 0; writer != NULL && n < sizeof part_path && i < N_NUMBERS; i++) {
        struct sigaction old, action = {.sa_handler = on_end, .sa_flags = (int)SA_RESETHAND};
        // What is ignored (nohup) stays ignored.
        if (sigaction(numbers[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return writer;
}
