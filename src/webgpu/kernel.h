// kernel.h: makes WGSL from the templates *.wgsl, and keeps the pipelines made of them.
//
// A template is WGSL with lines of directives:
//   #if NAME / #if !NAME / #else / #end   NAME is defined, and not as 0
//   #for V N / #end                       the lines N times with V = 0, 1, ...; N is a number or a name
//   #use FILE [NAME=VALUE ...]            the lines of another template, with more definitions (a value may be ${...})
//   #bind read|write NAME: TYPE           the next storage binding of group 0 (binding 0 is the uniform of parameters)
// Elsewhere ${NAME} becomes the value; ${A${B}} works from the inside out.

#ifndef CARAT_WEBGPU_KERNEL_H
#define CARAT_WEBGPU_KERNEL_H

#include "base/error.h"
#include "webgpu/gpu.h"

enum { KERNEL_MAX_DEFINITIONS = 256 };

struct kernel_source {
    char *wgsl; // allocated
    int n_bindings;
    uint32_t read_only;
};

// definitions: "NAME=VALUE NAME=VALUE ...". On failure err names the file and the directive.
bool kernel_expand(const char *file, const char *definitions, struct kernel_source *out, struct carat_error *err);

// A table of pipelines by a number that the caller chooses so that equal numbers mean equal file and definitions.
struct kernel_table;
struct kernel_table *kernel_table_new(struct carat_error *err);
void kernel_table_free(struct kernel_table *table);
void kernel_table_clear(struct kernel_table *table);
struct gpu_pipeline *kernel_find(struct kernel_table *table, uint64_t key); // NULL: not made yet
struct gpu_pipeline *kernel_make(struct kernel_table *table, struct gpu *gpu, uint64_t key, const char *file,
    const char *definitions, struct carat_error *err);

#endif
