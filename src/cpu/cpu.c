// cpu.c: the table of the CPU backend's operations.

#include "cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/cpu_internal.h"

// Larger batches read no less memory per token: the panels of a product are already used 512 times.
enum { CPU_MAX_BATCH = 512 };

static void cpu_free(struct ops *ops)
{
    struct cpu *cpu = (struct cpu *)ops;
    threads_free(cpu->threads);
    free(cpu->room.bytes);
    free(cpu);
}

static const struct ops operations = {
    .name = "cpu",
    .max_batch = CPU_MAX_BATCH,
    .buffer_new = host_buffer_new,
    .buffer_free = host_buffer_free,
    .write = host_write,
    .copy = host_copy,
    .read_start = host_read_start,
    .poll = host_poll,
    .wait = host_wait,
    .submit = host_submit,
    .weight_place = cpu_weight_place,
    .weight_write = host_weight_write,
    .weight_free = host_weight_free,
    .weights_ready = host_weights_ready,
    .embed = cpu_embed,
    .copy_rows = cpu_copy_rows,
    .per_layer_inputs = cpu_per_layer_inputs,
    .norm_project = cpu_norm_project,
    .attend = cpu_attend,
    .project = cpu_project,
    .norm_gated = cpu_norm_gated,
    .per_layer_gate = cpu_per_layer_gate,
    .experts = cpu_experts,
    .add_norms = cpu_add_norms,
    .settle = cpu_settle,
    .norm = cpu_norm,
    .head = cpu_head,
    .argmax = cpu_argmax,
    .top_k = cpu_top_k,
    .free = cpu_free,
};

#ifdef __linux__
// Copies a name as vendors write it, "Intel(R) Xeon(R) CPU @ 2.20GHz", without what is in brackets and without the clock rate.
static void tidy_name(const char *from, char *name, size_t n_bytes)
{
    size_t n = 0;
    for (const char *at = from + strspn(from, " \t"); *at != '\0' && *at != '\n' && *at != '@' && n + 1 < n_bytes; at++) {
        if (*at == '(' && strchr(at, ')') != NULL)
            at = strchr(at, ')');
        else if (*at != ' ' || (n > 0 && name[n - 1] != ' '))
            name[n++] = *at;
    }
    while (n > 0 && name[n - 1] == ' ')
        n--;
    name[n] = '\0';
}

// The processor's name; "" when the system does not tell.
static void processor_name(char *name, size_t n_bytes)
{
    name[0] = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL)
            tidy_name(colon + 1, name, n_bytes);
    }
    if (file != NULL)
        fclose(file);
}
#else
static void processor_name(char *name, size_t n_bytes)
{
    (void)n_bytes;
    name[0] = '\0';
}
#endif

static const struct cpu_kernels *find_kernels(const char *name)
{
    const struct cpu_kernels *tables[CPU_MAX_KERNELS];
    int n = cpu_kernels_available(tables);
    for (int i = 0; i < n; i++) {
        if (name == NULL || strcmp(tables[i]->name, name) == 0)
            return tables[i];
    }
    return NULL;
}

struct ops *cpu_ops_new_with(int32_t n_threads, bool exact, const char *kernels_name, struct carat_error *err)
{
    const struct cpu_kernels *kernels = find_kernels(kernels_name);
    if (kernels == NULL) {
        fail(err, CARAT_UNSUPPORTED, "this machine has no kernels called '%s'", kernels_name);
        return NULL;
    }
    struct cpu *cpu = calloc(1, sizeof *cpu);
    if (cpu == NULL) {
        fail(err, CARAT_NO_MEMORY, "no memory for the CPU backend");
        return NULL;
    }
    cpu->host.ops = operations;
    cpu->kernels = kernels;
    cpu->exact = exact;
    cpu->threads = threads_new(n_threads, err);
    if (cpu->threads == NULL) {
        free(cpu);
        return NULL;
    }
    cpu->n_threads = threads_count(cpu->threads);
    char name[64];
    processor_name(name, sizeof name);
    snprintf(cpu->host.ops.device, sizeof cpu->host.ops.device, "%s%s%s, %d thread%s%s", name, name[0] != '\0' ? ", " : "",
        kernels->name, cpu->n_threads, cpu->n_threads == 1 ? "" : "s", exact ? ", f32 activations" : "");
    return &cpu->host.ops;
}

struct ops *cpu_ops_new(const struct cpu_options *options, struct carat_error *err)
{
    return cpu_ops_new_with(options->n_threads, options->exact, NULL, err);
}
