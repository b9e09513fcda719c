// chat.h: what a session keeps for a chat request under way.

#ifndef CARAT_ENGINE_CHAT_H
#define CARAT_ENGINE_CHAT_H

#include "carat.h"
#include "engine/request.h"
#include "text/reply.h"

// One event that waits to be given out. Its texts are the item's own.
struct chat_item {
    enum carat_event_kind kind;
    struct text_buffer text;
    struct text_buffer name;
    struct text_buffer logprobs;
};

enum { CHAT_MAX_ITEMS = 64 };

struct chat_run {
    struct request request;
    struct reply *reply;
    struct chat_item items[CHAT_MAX_ITEMS]; // first to last: waiting
    int first, last;
    struct text_buffer logprobs; // entries, separated by commas, that go with the next piece of content
    bool failed;                 // no memory while items were added
    struct carat_event finish;   // held until the items are given out
    bool finished;
};

void chat_run_free(struct chat_run *run); // NULL is allowed

#endif
