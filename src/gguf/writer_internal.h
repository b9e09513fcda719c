// writer_internal.h: what the writer needs of a target that it must complete or discard (inside src/gguf only).

#ifndef CARAT_GGUF_WRITER_INTERNAL_H
#define CARAT_GGUF_WRITER_INTERNAL_H

#include "gguf/writer.h"

struct gguf_writer_target {
    bool (*commit)(struct gguf_writer_target *target, struct carat_error *err); // everything is written: make it appear
    void (*close)(struct gguf_writer_target *target); // frees the target; what was not committed disappears
};

void gguf_writer_set_target(struct gguf_writer *writer, struct gguf_writer_target *target);

#endif
