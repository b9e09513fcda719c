// tokenizer_encode.c: text to ids.
//
// The text is walked character by character. Between two characters that no merge joins it is cut, which leaves short pieces
// (mostly words). Within a piece the pair of lowest rank is merged until none is left, by a queue of (rank, position) in which
// entries that are out of date are skipped when they come up.

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/tokenizer_tables.h"
#include "text/utf8.h"

enum { MAX_TEXT_BYTES = INT32_MAX };

struct symbol {
    int32_t id;
    uint32_t rank; // of joining it with its right neighbour
    uint32_t left; // neighbours, or NONE
    uint32_t right;
};

#define NONE UINT32_MAX

struct region { // bytes in which markers are recognised
    size_t start;
    size_t end;
};

struct encoder {
    const struct tokenizer *tok;
    struct symbol *symbols; // [capacity] the open piece
    uint64_t *queue;        // [2 capacity] a heap of rank << 32 | position
    uint32_t n_symbols;
    uint32_t capacity;
    size_t n_queued;
    uint32_t last; // last character of the open piece
    struct token_list *out;
    struct carat_error *err;
};

bool token_list_push(struct token_list *list, int32_t id, struct carat_error *err)
{
    if (list->n == list->capacity) {
        size_t capacity = list->capacity < 64 ? 64 : list->capacity * 2;
        int32_t *ids = capacity <= SIZE_MAX / 2 / sizeof *ids ? realloc(list->ids, capacity * sizeof *ids) : NULL;
        if (ids == NULL)
            return fail(err, CARAT_NO_MEMORY, "not enough memory for a list of %zu tokens", capacity);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return true;
}

void token_list_free(struct token_list *list)
{
    free(list->ids);
    *list = (struct token_list){0};
}

// --- the queue ---

static void queue_down(struct encoder *e, size_t i)
{
    uint64_t entry = e->queue[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= e->n_queued)
            break;
        if (child + 1 < e->n_queued && e->queue[child + 1] < e->queue[child])
            child++;
        if (entry <= e->queue[child])
            break;
        e->queue[i] = e->queue[child];
        i = child;
    }
    e->queue[i] = entry;
}

static void queue_push(struct encoder *e, uint64_t entry)
{
    size_t i = e->n_queued++;
    while (i > 0 && entry < e->queue[(i - 1) / 2]) {
        e->queue[i] = e->queue[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->queue[i] = entry;
}

static uint64_t queue_pop(struct encoder *e)
{
    uint64_t first = e->queue[0];
    e->queue[0] = e->queue[--e->n_queued];
    queue_down(e, 0);
    return first;
}

// --- a piece ---

static uint32_t rank_with_right(const struct encoder *e, uint32_t at)
{
    const struct symbol *s = &e->symbols[at];
    return s->right == NONE ? TOKENIZER_NO_RANK : tokenizer_rank(e->tok, s->id, e->symbols[s->right].id);
}

static void update_rank(struct encoder *e, uint32_t at)
{
    uint32_t rank = rank_with_right(e, at);
    e->symbols[at].rank = rank;
    if (rank != TOKENIZER_NO_RANK)
        queue_push(e, (uint64_t)rank << 32 | at);
}

// The queue never holds more than the first n - 1 entries and one more per merge: a merge removes one and adds at most two.
static void merge_piece(struct encoder *e)
{
    e->n_queued = 0;
    for (uint32_t i = 0; i < e->n_symbols; i++) {
        e->symbols[i].left = i == 0 ? NONE : i - 1;
        e->symbols[i].right = i + 1 == e->n_symbols ? NONE : i + 1;
        e->symbols[i].rank = rank_with_right(e, i);
        if (e->symbols[i].rank != TOKENIZER_NO_RANK)
            e->queue[e->n_queued++] = (uint64_t)e->symbols[i].rank << 32 | i;
    }
    for (size_t i = e->n_queued / 2; i-- > 0;)
        queue_down(e, i);
    while (e->n_queued > 0) {
        uint64_t entry = queue_pop(e);
        uint32_t rank = (uint32_t)(entry >> 32);
        uint32_t at = (uint32_t)entry;
        struct symbol *s = &e->symbols[at];
        if (s->rank != rank)
            continue;
        struct symbol *gone = &e->symbols[s->right];
        s->id = e->tok->merges[rank].result;
        s->right = gone->right;
        gone->rank = TOKENIZER_NO_RANK;
        if (s->right != NONE)
            e->symbols[s->right].left = at;
        update_rank(e, at);
        if (s->left != NONE)
            update_rank(e, s->left);
    }
}

// Ends the open piece: its symbols become ids.
static bool flush(struct encoder *e)
{
    if (e->n_symbols == 0)
        return true;
    if (e->n_symbols > 1)
        merge_piece(e);
    bool ok = true;
    for (uint32_t i = 0; ok && i != NONE; i = e->n_symbols > 1 ? e->symbols[i].right : NONE)
        ok = token_list_push(e->out, e->symbols[i].id, e->err);
    e->n_symbols = 0;
    return ok;
}

static bool add_symbol(struct encoder *e, int32_t id)
{
    if (e->n_symbols == e->capacity) {
        size_t capacity = e->capacity == 0 ? 256 : (size_t)e->capacity * 2;
        struct symbol *symbols = realloc(e->symbols, capacity * sizeof *symbols);
        if (symbols != NULL)
            e->symbols = symbols;
        uint64_t *queue = realloc(e->queue, 2 * capacity * sizeof *queue);
        if (queue != NULL)
            e->queue = queue;
        if (symbols == NULL || queue == NULL)
            return fail(e->err, CARAT_NO_MEMORY, "not enough memory to tokenise a word of %zu characters", capacity);
        e->capacity = (uint32_t)capacity;
    }
    e->symbols[e->n_symbols++].id = id;
    return true;
}

// A character that is no token: its bytes.
static bool push_bytes(struct encoder *e, uint32_t character)
{
    uint8_t bytes[4];
    size_t n = utf8_encode(character, bytes);
    for (size_t i = 0; i < n; i++) {
        int32_t id = e->tok->bytes[bytes[i]];
        if (id < 0)
            id = e->tok->known[TOK_UNK];
        if (id >= 0 && !token_list_push(e->out, id, e->err))
            return false;
    }
    return true;
}

// Text without markers.
static bool encode_plain(struct encoder *e, const char *text, size_t n_bytes)
{
    const struct tokenizer *tok = e->tok;
    for (size_t at = 0, length; at < n_bytes; at += length) {
        uint32_t c = utf8_decode(text + at, n_bytes - at, &length);
        int32_t id = c < 128 ? tok->ascii[c] : tokenizer_find(tok, (struct text_view){text + at, length});
        if (c == ' ')
            c = 0x2581;
        bool joins = id >= 0 && e->n_symbols > 0 && tokenizer_may_join(tok, e->last, c);
        if (!joins && !flush(e))
            return false;
        if (id >= 0 ? !add_symbol(e, id) : !push_bytes(e, c))
            return false;
        e->last = c;
    }
    return flush(e);
}

// --- markers ---

// The longest marker at the start of the text, or -1.
static int32_t marker_at(const struct tokenizer *tok, const char *text, size_t n_bytes, size_t *length)
{
    int32_t found = -1;
    uint32_t node = 1u + (uint8_t)text[0];
    for (size_t i = 1; node != 0; i++) {
        const struct marker_node *m = &tok->markers[node];
        if (m->id >= 0) {
            found = m->id;
            *length = i;
        }
        node = i < n_bytes ? m->child : 0;
        while (node != 0 && tok->markers[node].byte != (uint8_t)text[i])
            node = tok->markers[node].next;
    }
    return found;
}

// regions: in order, apart from each other.
static bool encode_regions(struct encoder *e, struct text_view text, const struct region *regions, size_t n_regions)
{
    size_t done = 0; // encoded so far
    for (size_t r = 0; r < n_regions; r++) {
        for (size_t at = regions[r].start; at < regions[r].end;) {
            size_t length = 1;
            int32_t marker = marker_at(e->tok, text.data + at, regions[r].end - at, &length);
            if (marker >= 0) {
                if (!encode_plain(e, text.data + done, at - done) || !token_list_push(e->out, marker, e->err))
                    return false;
                done = at + length;
            }
            at += length;
        }
    }
    return encode_plain(e, text.data + done, text.n_bytes - done);
}

static bool encode(const struct tokenizer *tok, struct text_view text, const struct region *regions, size_t n_regions,
    unsigned flags, struct token_list *out, struct carat_error *err)
{
    if (text.n_bytes > MAX_TEXT_BYTES)
        return fail(err, CARAT_NO_MEMORY, "a text of %zu bytes is too long to tokenise at once", text.n_bytes);
    struct encoder e = {.tok = tok, .out = out, .err = err};
    size_t n_before = out->n;
    bool ok = true;
    if ((flags & TOK_ADD_BOS) != 0) {
        size_t length;
        bool has_bos = n_regions > 0 && regions[0].start == 0 && regions[0].end > 0 &&
                       marker_at(tok, text.data, regions[0].end, &length) == tok->known[TOK_BOS];
        ok = has_bos || token_list_push(out, tok->known[TOK_BOS], err);
    }
    ok = ok && encode_regions(&e, text, regions, n_regions);
    free(e.symbols);
    free(e.queue);
    if (!ok)
        out->n = n_before;
    return ok;
}

bool tokenizer_encode(const struct tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, struct token_list *out,
    struct carat_error *err)
{
    struct region whole = {0, n_bytes};
    return encode(tok, (struct text_view){text, n_bytes}, &whole, (flags & TOK_PARSE_SPECIAL) != 0 ? 1 : 0, flags, out, err);
}

bool tokenizer_encode_spans(const struct tokenizer *tok, const struct tokenizer_span *spans, size_t n_spans, unsigned flags,
    struct token_list *out, struct carat_error *err)
{
    struct text_buffer joined = {0};
    struct region *regions = calloc(n_spans + 1, sizeof *regions);
    size_t n_regions = 0;
    for (size_t i = 0; i < n_spans && regions != NULL; i++) {
        size_t start = joined.n_bytes;
        text_append_view(&joined, spans[i].text);
        if (!spans[i].parse_special)
            continue;
        if (n_regions > 0 && regions[n_regions - 1].end == start)
            regions[n_regions - 1].end = joined.n_bytes;
        else
            regions[n_regions++] = (struct region){start, joined.n_bytes};
    }
    bool ok = regions != NULL && !joined.failed;
    if (!ok)
        fail(err, CARAT_NO_MEMORY, "not enough memory to join the prompt's parts");
    ok = ok && encode(tok, text_whole(&joined), regions, n_regions, flags, out, err);
    text_free(&joined);
    free(regions);
    return ok;
}
