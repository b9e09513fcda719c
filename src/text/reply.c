// reply.c: the state machine that takes a reply apart.
//
// Tokens or text are first cut into pieces: markers and plain text. The machine itself sees only pieces. What may still have to
// be dropped (white space before a marker, the name line of a thought) waits in `held`.

#include "text/reply.h"

#include <stdlib.h>
#include <string.h>

#include "text/decoder.h"
#include "text/utf8.h"

enum state { IN_CONTENT, IN_THOUGHT, IN_CALL };

static const struct text_view name_line = {"thought\n", 8};

struct reply {
    const struct tokenizer *tok;
    struct reply_options options;
    reply_sink *sink;
    void *context;

    // cutting
    struct decoder decoder;     // of tokens
    struct text_buffer decoded; // scratch
    struct text_buffer pending; // of text: could be the start of a marker or of a character

    // the machine
    enum state state;
    bool skip_space;         // content: white space is dropped until something else comes
    bool in_name;            // thought: the text so far, in `held`, may be the name line
    bool in_string;          // call: between <|"|> and <|"|>
    struct text_buffer held; // content, thought: white space or the name line; call: an end marker inside a string
    struct text_buffer call; // text of the open call
    int n_calls;

    // events
    struct text_buffer out; // content or thinking not yet reported
    enum reply_event_kind out_kind;
};

static bool out_of_memory(struct carat_error *err)
{
    fail(err, CARAT_NO_MEMORY, "not enough memory to read the reply");
    return false;
}

struct reply *reply_new(
    const struct tokenizer *tok, const struct reply_options *options, reply_sink *sink, void *context, struct carat_error *err)
{
    struct reply *r = calloc(1, sizeof *r);
    if (r == NULL) {
        out_of_memory(err);
        return NULL;
    }
    r->tok = tok;
    r->options = *options;
    r->sink = sink;
    r->context = context;
    r->state = options->in_thought ? IN_THOUGHT : IN_CONTENT;
    decoder_init(&r->decoder, tok, false);
    return r;
}

void reply_free(struct reply *r)
{
    if (r == NULL)
        return;
    text_free(&r->decoded);
    text_free(&r->pending);
    text_free(&r->held);
    text_free(&r->call);
    text_free(&r->out);
    free(r);
}

int reply_call_count(const struct reply *r)
{
    return r->n_calls;
}

bool reply_in_thought(const struct reply *r)
{
    return r->state == IN_THOUGHT;
}

bool reply_in_call(const struct reply *r)
{
    return r->state == IN_CALL;
}

// --- events ---

static void report(struct reply *r)
{
    if (r->out.n_bytes != 0 && !r->out.failed) {
        struct reply_event event = {.kind = r->out_kind, .text = text_whole(&r->out)};
        r->sink(r->context, &event);
        text_clear(&r->out);
    }
}

static void put(struct reply *r, enum reply_event_kind kind, struct text_view text)
{
    if (text.n_bytes == 0 || (kind == REPLY_REASONING && !r->options.thinking))
        return;
    if (kind != r->out_kind)
        report(r);
    r->out_kind = kind;
    text_append_view(&r->out, text);
}

static const struct json_value *parameters_of(const struct reply *r, struct text_view name)
{
    const struct json_value *tools = r->options.tools;
    for (size_t i = 0; json_is(tools, JSON_ARRAY) && i < tools->n_children; i++) {
        const struct json_value *function = json_get(&tools->children[i], "function");
        const struct json_value *known = json_get(function, "name");
        if (json_is(known, JSON_STRING) && text_equal((struct text_view){known->text, known->n_text}, name))
            return json_get(function, "parameters");
    }
    return NULL;
}

// call:NAME{ARGS} to an event. False when the text does not have that form.
static bool report_call(struct reply *r)
{
    struct text_view text = text_trim(text_whole(&r->call));
    const char *brace = text.n_bytes > 5 && memcmp(text.data, "call:", 5) == 0 ? memchr(text.data, '{', text.n_bytes) : NULL;
    if (brace == NULL)
        return false;
    struct text_view name = text_trim((struct text_view){text.data + 5, (size_t)(brace - text.data - 5)});
    struct text_view arguments = {brace, text.n_bytes - (size_t)(brace - text.data)};
    struct text_buffer json = {0};
    struct carat_error reason = {0};
    bool ok = name.n_bytes != 0 && reply_arguments_to_json(arguments, parameters_of(r, name), &json, &reason);
    r->out.failed |= json.failed || reason.code == CARAT_NO_MEMORY;
    if (ok && !r->out.failed) {
        report(r);
        struct reply_event event = {.kind = REPLY_TOOL_CALL, .name = name, .arguments = text_whole(&json), .index = r->n_calls++};
        r->sink(r->context, &event);
    }
    text_free(&json);
    return ok;
}

// --- changes of state ---

static void begin_thought(struct reply *r)
{
    text_clear(&r->held);
    r->state = IN_THOUGHT;
    r->in_name = true;
}

// The text so far is no name line: it belongs to the thought.
static void end_name(struct reply *r)
{
    r->in_name = false;
    put(r, REPLY_REASONING, text_whole(&r->held));
    text_clear(&r->held);
}

// White space at the end of a thought goes, and a name whose line never ended.
static void end_thought(struct reply *r)
{
    if (r->in_name && !text_is(text_whole(&r->held), "thought"))
        end_name(r);
    text_clear(&r->held);
    r->in_name = false;
    r->state = IN_CONTENT;
    r->skip_space = true;
}

static void begin_call(struct reply *r)
{
    if (r->state == IN_THOUGHT)
        end_thought(r);
    text_clear(&r->held);
    text_clear(&r->call);
    r->state = IN_CALL;
    r->in_string = false;
}

// A call that cannot be read becomes content, as it came.
static void end_call(struct reply *r, bool closed)
{
    r->state = IN_CONTENT;
    r->skip_space = report_call(r);
    if (!r->skip_space) {
        put(r, REPLY_CONTENT, text_of(tokenizer_marker_text(TOK_TOOL_CALL_BEGIN)));
        put(r, REPLY_CONTENT, text_whole(&r->call));
        if (closed)
            put(r, REPLY_CONTENT, text_of(tokenizer_marker_text(TOK_TOOL_CALL_END)));
    }
    text_clear(&r->held);
    text_clear(&r->call);
}

// --- pieces ---

// Content or thought: all but the white space at the end is final.
static void take_text(struct reply *r, enum reply_event_kind kind, struct text_view text)
{
    if (r->skip_space && kind == REPLY_CONTENT)
        text = text_trim_start(text);
    struct text_view final = text_trim_end(text);
    if (final.n_bytes > 0) {
        put(r, kind, text_whole(&r->held));
        text_clear(&r->held);
        put(r, kind, final);
        r->skip_space = false;
    }
    text_append(&r->held, text.data + final.n_bytes, text.n_bytes - final.n_bytes);
}

static void take_thought(struct reply *r, struct text_view text)
{
    while (r->in_name && text.n_bytes > 0) {
        if (text.data[0] != name_line.data[r->held.n_bytes]) {
            end_name(r);
            break;
        }
        text_append_byte(&r->held, text.data[0]);
        text.data++;
        text.n_bytes--;
        if (r->held.failed)
            return;
        if (r->held.n_bytes == name_line.n_bytes) {
            r->in_name = false;
            text_clear(&r->held);
        }
    }
    take_text(r, REPLY_REASONING, text);
}

static void take_call_text(struct reply *r, struct text_view text)
{
    if (r->held.n_bytes > 0) { // an end marker after which the string goes on was none
        text_append_view(&r->call, text_whole(&r->held));
        text_clear(&r->held);
    }
    text_append_view(&r->call, text);
    if (r->call.n_bytes > REPLY_MAX_CALL_BYTES)
        end_call(r, false);
}

static void take_plain(struct reply *r, struct text_view text)
{
    if (text.n_bytes == 0)
        return;
    if (r->state == IN_CALL)
        take_call_text(r, text);
    else if (r->state == IN_THOUGHT)
        take_thought(r, text);
    else
        take_text(r, REPLY_CONTENT, text);
}

static bool ends_reply(enum tokenizer_marker marker)
{
    return marker == TOK_EOS || marker == TOK_TURN_END || marker == TOK_TOOL_RESPONSE_BEGIN;
}

static void take_marker_in_call(struct reply *r, enum tokenizer_marker marker)
{
    struct text_view text = text_of(tokenizer_marker_text(marker));
    if (marker == TOK_TOOL_CALL_END) {
        text_append_view(&r->call, text_whole(&r->held));
        end_call(r, true);
    } else if (marker == TOK_QUOTE) {
        take_call_text(r, text);
        r->in_string = !r->in_string;
    } else if (r->in_string && ends_reply(marker)) {
        text_append_view(&r->held, text);
    } else if (r->in_string) {
        take_call_text(r, text);
    } else if (marker == TOK_TOOL_CALL_BEGIN) { // the closing marker was left out
        end_call(r, false);
        begin_call(r);
    }
}

static void take_marker(struct reply *r, enum tokenizer_marker marker)
{
    if (r->state == IN_CALL) {
        take_marker_in_call(r, marker);
    } else if (marker == TOK_TOOL_CALL_BEGIN) {
        begin_call(r);
    } else if (marker == TOK_CHANNEL_BEGIN) {
        if (r->state == IN_THOUGHT)
            end_thought(r);
        begin_thought(r);
    } else if (marker == TOK_CHANNEL_END && r->state == IN_THOUGHT) {
        end_thought(r);
    }
}

// --- tokens ---

static bool finish_feed(struct reply *r, struct carat_error *err)
{
    report(r);
    bool failed = r->decoded.failed || r->pending.failed || r->held.failed || r->call.failed || r->out.failed;
    return !failed || out_of_memory(err);
}

bool reply_feed(struct reply *r, int32_t id, struct carat_error *err)
{
    enum token_kind kind = tokenizer_kind(r->tok, id);
    text_clear(&r->decoded);
    if (kind == TOKEN_IS_TEXT || kind == TOKEN_IS_BYTE) {
        decoder_feed(&r->decoder, id, &r->decoded);
        take_plain(r, text_whole(&r->decoded));
    } else if (kind != TOKEN_IS_UNUSED) {
        decoder_finish(&r->decoder, &r->decoded);
        take_plain(r, text_whole(&r->decoded));
        enum tokenizer_marker marker = tokenizer_marker_of(r->tok, id);
        if (marker != TOK_N_MARKERS)
            take_marker(r, marker);
    }
    return finish_feed(r, err);
}

// --- text ---

// Whether a marker stands at the start of the text. *partial: the whole text is the start of one.
static enum tokenizer_marker marker_at(struct text_view text, bool *partial)
{
    *partial = false;
    for (int marker = 0; marker < TOK_N_MARKERS; marker++) {
        struct text_view known = text_of(tokenizer_marker_text((enum tokenizer_marker)marker));
        size_t n = known.n_bytes < text.n_bytes ? known.n_bytes : text.n_bytes;
        if (memcmp(known.data, text.data, n) != 0)
            continue;
        if (n == known.n_bytes)
            return (enum tokenizer_marker)marker;
        *partial = true;
    }
    return TOK_N_MARKERS;
}

// Bytes at the end of the text that are the start of an unfinished character.
static size_t unfinished_bytes(struct text_view text)
{
    for (size_t back = 1; back <= 3 && back <= text.n_bytes; back++) {
        uint8_t byte = (uint8_t)text.data[text.n_bytes - back];
        uint8_t min, max;
        if ((byte & 0xc0) != 0x80)
            return utf8_lead(byte, &min, &max) > back ? back : 0;
    }
    return 0;
}

// Takes what is certain of the pending text. at_end: nothing follows, so everything is.
static void take_pending(struct reply *r, bool at_end)
{
    struct text_view text = text_whole(&r->pending);
    size_t done = 0;
    size_t at = 0;
    while (at < text.n_bytes) {
        const char *bracket = memchr(text.data + at, '<', text.n_bytes - at);
        if (bracket == NULL) {
            at = text.n_bytes - (at_end ? 0 : unfinished_bytes((struct text_view){text.data + at, text.n_bytes - at}));
            break;
        }
        at = (size_t)(bracket - text.data);
        bool partial;
        enum tokenizer_marker marker = marker_at((struct text_view){bracket, text.n_bytes - at}, &partial);
        if (marker != TOK_N_MARKERS) {
            take_plain(r, (struct text_view){text.data + done, at - done});
            take_marker(r, marker);
            at += strlen(tokenizer_marker_text(marker));
            done = at;
        } else if (partial && !at_end) {
            break;
        } else {
            at++;
        }
    }
    take_plain(r, (struct text_view){text.data + done, at - done});
    if (at > 0) {
        memmove(r->pending.data, r->pending.data + at, r->pending.n_bytes - at);
        r->pending.n_bytes -= at;
    }
}

bool reply_feed_text(struct reply *r, const char *text, size_t n_bytes, struct carat_error *err)
{
    text_append(&r->pending, text, n_bytes);
    if (!r->pending.failed)
        take_pending(r, false);
    return finish_feed(r, err);
}

bool reply_finish(struct reply *r, struct carat_error *err)
{
    if (r->tok != NULL) {
        text_clear(&r->decoded);
        decoder_finish(&r->decoder, &r->decoded);
        take_plain(r, text_whole(&r->decoded));
    }
    take_pending(r, true);
    if (r->state == IN_CALL)
        end_call(r, false);
    else if (r->state == IN_THOUGHT)
        end_thought(r);
    else if (!r->skip_space)
        put(r, REPLY_CONTENT, text_whole(&r->held));
    text_clear(&r->held);
    return finish_feed(r, err);
}
