// request.h: the body of a chat request, in the shape of OpenAI's chat.completions.

#ifndef CARAT_ENGINE_REQUEST_H
#define CARAT_ENGINE_REQUEST_H

#include "base/json.h"
#include "carat.h"
#include "engine/stop.h"
#include "text/chat.h"

// Free with request_free.
struct request {
    struct json_document *document; // owns the texts below
    struct chat chat;
    bool think;             // the model may think first
    bool preserve_thinking; // keep earlier thoughts of messages that called tools
    bool continue_last;     // the last message is an unfinished reply
    struct carat_generate_options generate;
    struct carat_logit_bias *biases; // what generate.sampling.biases points to
    struct stop stop;
};

// defaults: the sampling for what the request leaves open. Fails with CARAT_BAD_ARGUMENT naming the member that is wrong, or
// CARAT_UNSUPPORTED naming one that carat does not honour; nothing is ignored that would change the answer.
bool request_parse(const char *text, const struct carat_sampling *defaults, struct request *request, struct carat_error *err);
void request_free(struct request *request);

#endif
