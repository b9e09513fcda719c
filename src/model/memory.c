// memory.c: sums of what plan, cache and context will take.

#include "model/memory.h"

struct model_memory model_memory(const struct plan *plan, const struct gemma4_text *text, const struct text_options *text_options,
    const struct kv_options *kv_options)
{
    struct model_memory memory = {.scratch = text_context_bytes(text, text_options)};
    for (size_t i = 0; i < plan->n_items; i++)
        memory.weights[plan->items[i].class] += plan->items[i].weight->n_bytes;
    kv_cache_bytes(&text->config, kv_options, &memory.kv_sliding, &memory.kv_global);
    memory.total = memory.scratch + memory.kv_sliding + memory.kv_global;
    for (int i = 0; i < PLAN_CLASSES; i++)
        memory.total += memory.weights[i];
    return memory;
}
