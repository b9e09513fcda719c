// output.h: GGUF files that commands write. A command that is stopped leaves nothing half written behind.

#ifndef CARAT_CLI_OUTPUT_H
#define CARAT_CLI_OUTPUT_H

#include "gguf/writer.h"

// As gguf_writer_new. From now on SIGINT, SIGTERM and SIGHUP remove NAME.part before they end the program.
struct gguf_writer *output_new(const char *path, struct carat_error *err);

#endif
