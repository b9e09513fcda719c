// chat_encode.c: a rendered prompt to token ids.
//
// Text of the template and text from outside that stand side by side are tokenised as one, as the references do with the finished
// string; only the recognition of markers is limited to the template's bytes. Media cut the text.

#include <stdlib.h>

#include "text/chat.h"

static enum tokenizer_marker placeholder(enum chat_segment_kind kind)
{
    return kind == CHAT_IMAGE ? TOK_IMAGE : kind == CHAT_AUDIO ? TOK_AUDIO : TOK_VIDEO;
}

static bool is_media(const struct chat_segment *segment)
{
    return segment->kind != CHAT_TEMPLATE && segment->kind != CHAT_OUTSIDE;
}

static size_t count_media(const struct chat_prompt *prompt)
{
    size_t n = 0;
    for (size_t i = 0; i < prompt->n_segments; i++)
        n += is_media(&prompt->segments[i]);
    return n;
}

static bool encode(const struct tokenizer *tok, const struct chat_prompt *prompt, struct tokenizer_span *spans,
    struct token_list *ids, struct chat_place *places, struct carat_error *err)
{
    size_t n_spans = 0;
    size_t n_places = 0;
    for (size_t i = 0; i <= prompt->n_segments; i++) {
        const struct chat_segment *segment = i < prompt->n_segments ? &prompt->segments[i] : NULL;
        if (segment != NULL && !is_media(segment)) {
            spans[n_spans++] =
                (struct tokenizer_span){{prompt->text.data + segment->start, segment->n_bytes}, segment->kind == CHAT_TEMPLATE};
            continue;
        }
        if (!tokenizer_encode_spans(tok, spans, n_spans, 0, ids, err))
            return false;
        n_spans = 0;
        if (segment == NULL)
            break;
        int32_t id = tokenizer_marker(tok, placeholder(segment->kind));
        if (id < 0)
            return fail(err, CARAT_UNSUPPORTED, "this model's vocabulary has no %s, so it cannot take this kind of media",
                tokenizer_marker_text(placeholder(segment->kind)));
        places[n_places++] = (struct chat_place){segment->kind, ids->n, segment->part};
        if (!token_list_push(ids, id, err))
            return false;
    }
    return true;
}

bool chat_encode(const struct tokenizer *tok, const struct chat_prompt *prompt, struct token_list *ids,
    struct chat_place **places, size_t *n_places, struct carat_error *err)
{
    size_t n_media = count_media(prompt);
    size_t n_before = ids->n;
    struct tokenizer_span *spans = calloc(prompt->n_segments + 1, sizeof *spans);
    struct chat_place *found = calloc(n_media + 1, sizeof *found);
    bool ok = spans != NULL && found != NULL;
    if (!ok)
        fail(err, CARAT_NO_MEMORY, "not enough memory to tokenise the prompt");
    ok = ok && encode(tok, prompt, spans, ids, found, err);
    free(spans);
    if (!ok)
        ids->n = n_before;
    bool wanted = ok && places != NULL && n_media > 0;
    if (!wanted)
        free(found);
    if (places != NULL)
        *places = wanted ? found : NULL;
    if (n_places != NULL)
        *n_places = ok ? n_media : 0;
    return ok;
}
