// tokenizer.h: text to token ids, and what is known about each id.
//
// Gemma 4 uses byte-fallback BPE by merge rank over Unicode characters, with the space written as U+2581, whatever the file's
// `tokenizer.ggml.model` says. Tokens of type control or user-defined are *markers*: they are never made by merging, only found
// by their text, and only where the caller allows it, so that outside text cannot forge them.
//
// A tokenizer is read-only after it was made and may be used by several threads at once.

#ifndef CARAT_TEXT_TOKENIZER_H
#define CARAT_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/buffer.h"

struct gguf_file;
struct tokenizer;

// Token types as GGUF numbers them.
enum token_type { TOKEN_NORMAL = 1, TOKEN_UNKNOWN, TOKEN_CONTROL, TOKEN_USER_DEFINED, TOKEN_UNUSED, TOKEN_BYTE };

// What a tokenizer is made of. Nothing is kept; every array may be freed after tokenizer_new.
struct tokenizer_source {
    const struct text_view *tokens; // [n_tokens]
    const int32_t *types;           // [n_tokens] enum token_type; NULL: all normal
    size_t n_tokens;                // at most 2^24
    const struct text_view *merges; // [n_merges] "left right", rank = index
    size_t n_merges;                // at most 2^24
    int32_t bos;                    // -1: find <bos>
    const int32_t *ends;            // ids that end generation, beside the texts that always do (<eos>, <turn|>, <|tool_response>)
    size_t n_ends;
    const int32_t *suppressed; // ids never to be sampled
    size_t n_suppressed;
};

// Builds the tables. Fails with CARAT_BAD_FILE naming the entry that is wrong. Free with tokenizer_free.
struct tokenizer *tokenizer_new(const struct tokenizer_source *source, struct carat_error *err);

// Builds the tables from the metadata of a model file (tokenizer.ggml.*). The file may be closed afterwards.
bool tokenizer_from_gguf(const struct gguf_file *file, struct tokenizer **tokenizer, struct carat_error *err);
void tokenizer_free(struct tokenizer *tok);

// A list of ids that grows. Zero-initialise; free with token_list_free.
struct token_list {
    int32_t *ids;
    size_t n;
    size_t capacity;
};

bool token_list_push(struct token_list *list, int32_t id, struct carat_error *err);
void token_list_free(struct token_list *list);

enum tokenizer_flags {
    TOK_ADD_BOS = 1,       // put <bos> in front, unless the text begins with a recognised one
    TOK_PARSE_SPECIAL = 2, // recognise markers in the text
};

// Appends the ids of n_bytes of text to `out`. Any bytes are accepted: what is no UTF-8 becomes byte tokens. O(n log n) in the
// longest stretch without a boundary that no merge crosses. On failure (CARAT_NO_MEMORY only) `out` keeps its old length.
bool tokenizer_encode(const struct tokenizer *tok, const char *text, size_t n_bytes, unsigned flags, struct token_list *out,
    struct carat_error *err);

// A stretch of a text that is tokenised as one whole; markers are found only where every one of their bytes allows it.
struct tokenizer_span {
    struct text_view text;
    bool parse_special;
};

// Appends the ids of the joined spans. The borders between spans do not matter to the merging. Of flags only TOK_ADD_BOS counts.
bool tokenizer_encode_spans(const struct tokenizer *tok, const struct tokenizer_span *spans, size_t n_spans, unsigned flags,
    struct token_list *out, struct carat_error *err);

int32_t tokenizer_vocab_size(const struct tokenizer *tok);

// The entry as the file has it: U+2581 stays, byte tokens read "<0xHH>". Absent view for an id outside the vocabulary.
// Valid as long as the tokenizer.
struct text_view tokenizer_token_text(const struct tokenizer *tok, int32_t id);

// The id of this exact entry, or -1.
int32_t tokenizer_find(const struct tokenizer *tok, struct text_view text);

// How the id takes part in decoding, after the corrections for wrongly typed files.
enum token_kind { TOKEN_IS_TEXT, TOKEN_IS_BYTE, TOKEN_IS_MARKER, TOKEN_IS_UNKNOWN, TOKEN_IS_UNUSED };
enum token_kind tokenizer_kind(const struct tokenizer *tok, int32_t id); // outside the vocabulary: TOKEN_IS_UNUSED
int tokenizer_byte(const struct tokenizer *tok, int32_t id);             // the value of a byte token, or -1

bool tokenizer_is_end(const struct tokenizer *tok, int32_t id);        // generation stops on it
bool tokenizer_is_suppressed(const struct tokenizer *tok, int32_t id); // never to be sampled
const int32_t *tokenizer_ends(const struct tokenizer *tok, size_t *n);
const int32_t *tokenizer_suppressed(const struct tokenizer *tok, size_t *n);

// Markers with a meaning, found by their text.
enum tokenizer_marker {
    TOK_PAD,                 // <pad>
    TOK_EOS,                 // <eos>
    TOK_BOS,                 // <bos>
    TOK_UNK,                 // <unk>
    TOK_MASK,                // <mask>
    TOK_TOOL_BEGIN,          // <|tool>
    TOK_TOOL_END,            // <tool|>
    TOK_TOOL_CALL_BEGIN,     // <|tool_call>
    TOK_TOOL_CALL_END,       // <tool_call|>
    TOK_TOOL_RESPONSE_BEGIN, // <|tool_response>
    TOK_TOOL_RESPONSE_END,   // <tool_response|>
    TOK_QUOTE,               // <|"|>
    TOK_THINK,               // <|think|>
    TOK_CHANNEL_BEGIN,       // <|channel>
    TOK_CHANNEL_END,         // <channel|>
    TOK_TURN_BEGIN,          // <|turn>
    TOK_TURN_END,            // <turn|>
    TOK_IMAGE_BEGIN,         // <|image>
    TOK_IMAGE,               // <|image|>, the placeholder of a soft token
    TOK_IMAGE_END,           // <image|>
    TOK_AUDIO_BEGIN,         // <|audio>
    TOK_AUDIO,               // <|audio|>
    TOK_AUDIO_END,           // <audio|>
    TOK_VIDEO,               // <|video|>
    TOK_N_MARKERS,
};

// The id, or -1 when the vocabulary has no such marker.
int32_t tokenizer_marker(const struct tokenizer *tok, enum tokenizer_marker marker);

// Which of the known markers the id is, or TOK_N_MARKERS.
enum tokenizer_marker tokenizer_marker_of(const struct tokenizer *tok, int32_t id);

// The text of a known marker, e.g. "<|turn>".
const char *tokenizer_marker_text(enum tokenizer_marker marker);

// Bytes of memory the tables hold.
size_t tokenizer_memory(const struct tokenizer *tok);

#endif
