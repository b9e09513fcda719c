// reuse.h: how much of the cache a new prompt can keep.
//
// A reply that was generated token by token need not be the tokenisation that encoding its text would give. When the conversation
// comes back as text, its ids would differ from those in the cache although nothing was said differently. So stretches between
// markers whose text is the same keep the ids they were generated with: history is never tokenised again.

#ifndef CARAT_ENGINE_REUSE_H
#define CARAT_ENGINE_REUSE_H

#include "text/tokenizer.h"

// Replaces in `prompt` the stretches that read the same as in the cached ids by the cached ids, up to the first real difference.
// cached [n_cached]. Both begin at position 0. Fails only with CARAT_NO_MEMORY, leaving prompt as it was.
bool reuse_align(
    const struct tokenizer *tok, const int32_t *cached, size_t n_cached, struct token_list *prompt, struct carat_error *err);

#endif
