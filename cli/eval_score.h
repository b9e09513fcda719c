// eval_score.h: is a reply what an item expects?

#ifndef CARAT_CLI_EVAL_SCORE_H
#define CARAT_CLI_EVAL_SCORE_H

#include "base/error.h"
#include "base/json.h"

struct eval_reply {
    struct json_writer content, reasoning;
    struct json_writer call_name, call_arguments; // of the first call
    int n_calls;
};

void eval_reply_free(struct eval_reply *reply);

// expect has one member: "exact", "contains", "json" or "tool_call". Fails for another rule.
bool eval_score(const struct eval_reply *reply, const struct json_value *expect, bool *passed, struct carat_error *err);

// The same value: numbers by value, members in any order.
bool json_equal(const struct json_value *a, const struct json_value *b);

#endif
