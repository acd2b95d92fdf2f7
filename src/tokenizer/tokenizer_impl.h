/* Internals of a tokenizer. A loader creates one, fills in the fields down to `eos` and completes it; after that
 * nothing changes except `whole`, a cache.
 *
 * Encoding: the text is split at control and added tokens; the parts between them are changed by `normalizer` and split
 * at added tokens that match normalised text; the rest is changed by `prepare`, split by `splitter`, and each word is
 * merged. */
#ifndef SPRY_TOKENIZER_TOKENIZER_IMPL_H
#define SPRY_TOKENIZER_TOKENIZER_IMPL_H

#include <stdatomic.h>

#include "base/buffer.h"
#include "base/json.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/symbols.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

/* Tokens matched literally in the text, before any pattern: control tokens and added tokens. The leftmost, then longest
 * match among the tokens allowed at that place wins. */

typedef struct spry_added_token {
    spry_view text;
    int32_t id;
    bool special;        /* matched only on request */
    bool lstrip, rstrip; /* includes adjacent whitespace */
    bool single_word;    /* not inside a word */
    bool normalized;     /* matched in the normalised text */
} spry_added_token;

enum { SPRY_ADDED_BYTES_MAX = 512 }; /* bounds the work at each place of the text */

/* A trie: children of a node are a list. */
typedef struct spry_added_tokens {
    spry_added_token *tokens;
    size_t count;
    struct spry_added_node *nodes;
    size_t n_nodes;
    uint32_t roots[256]; /* node by first byte, 0: none */
    bool starts[2][256]; /* whether a token may start with this byte; [1]: including control tokens */
} spry_added_tokens;

/* Stores the tokens whose `normalized` equals the argument. Their texts must outlive it. */
spry_status spry_added_tokens_init(spry_added_tokens *added, spry_arena *arena, const spry_added_token *tokens,
                                   size_t count, bool normalized, spry_error *error);

/* Where control tokens may be matched. */
typedef struct spry_added_filter {
    bool special;
    const spry_text_range *literal; /* ascending; a control token that overlaps one is ordinary text */
    size_t n_literal;
} spry_added_filter;

typedef struct spry_added_match {
    size_t begin, end; /* including the stripped whitespace */
    int32_t id;
} spry_added_match;

enum {
    SPRY_FRAME_MAX = 8,               /* tokens that a post-processor adds before or after a text */
    SPRY_TOKENIZER_TEXT_MAX = 1 << 30 /* bytes of a text */
};

/* Tokens added around a text. */
typedef struct spry_frame {
    int32_t ids[SPRY_FRAME_MAX];
    size_t count;
} spry_frame;

/* How decoding treats the space that the encoder added first. */
typedef enum spry_lead {
    SPRY_LEAD_KEEP,
    SPRY_LEAD_STRIP_ONE, /* remove one space from the text */
    SPRY_LEAD_STRIP_ALL, /* remove all spaces from the first token */
} spry_lead;

struct spry_tokenizer {
    spry_arena arena;
    spry_unicode unicode;

    spry_vocab vocab;
    spry_word_model model;
    spry_wordpiece wordpiece;
    spry_unigram unigram;
    bool by_byte; /* spelled in the byte-level alphabet */
    bool byte_fallback, fuse_unknown;
    bool ignore_merges; /* a word that is a token becomes that token, even if merging gives another result */
    bool by_score;      /* merges come from scores, not from a list */
    spry_merges merges;
    spry_added_token *added; /* [n_added] */
    size_t n_added;
    spry_changes normalizer, prepare;
    spry_splitter splitter;
    spry_frame before, after; /* added by SPRY_ENCODE_BOS_EOS */
    spry_lead lead;
    int32_t bos, eos, end_of_turn, unknown, padding; /* -1: none */
    spry_view pattern_name;                          /* the pattern's name in GGUF; empty: it has none */
    spry_view settings; /* tokenizer.json without its vocabulary; empty: from another source */

    spry_symbols symbols;
    spry_added_tokens raw, normalized;
    spry_view *bytes;    /* [vocab.size] text of an id */
    spry_map words;      /* by_byte: from bytes to NORMAL ids */
    atomic_uchar *whole; /* [vocab.size] whether merging a token's text gives the token; see encode.c */
    bool *ends;          /* [vocab.size] */
    char algorithm[64];
};

/* An empty tokenizer: no vocabulary yet, ids -1. NULL when memory is short. */
spry_tokenizer *spry_tokenizer_create(void);

/* Ends loading: on success derives the remaining fields and returns the tokenizer; on failure destroys it (NULL is
 * allowed) and prepends `name` to the message. */
spry_status spry_tokenizer_complete(spry_tokenizer **out, spry_tokenizer *tokenizer, spry_status status,
                                    const char *name, spry_error *error);

/* Fill an empty tokenizer from a file's bytes. `added` is "added_tokens_decoder" of tokenizer_config.json, with the
 * tokens added to a tokenizer.model; NULL: none. */
spry_status spry_tokenizer_load_json(spry_tokenizer *tokenizer, spry_view text, spry_error *error);
spry_status spry_tokenizer_load_spm(spry_tokenizer *tokenizer, spry_view model, json_t *added, spry_error *error);

/* Adds the merge with rank `rank` of a file; tokenizer->merges has room. Merges of spellings that are not tokens, which
 * never apply, and merges that produce a control token are skipped. */
spry_status spry_tokenizer_add_merge(spry_tokenizer *tokenizer, spry_buffer *scratch, spry_view left, spry_view right,
                                     size_t rank, spry_error *error);

/* Splits "left right" at its one space. */
bool spry_tokenizer_split_merge(spry_view text, spry_view *left, spry_view *right);

/* Marks an id of the vocabulary as an added token: sets its kind and appends it to `added`, which has room. */
void spry_tokenizer_mark_added(spry_tokenizer *tokenizer, spry_added_token token);

/* Lists the control, unknown and user-defined tokens of a vocabulary with token kinds, with room for `more` that the
 * caller marks. SentencePiece matches user-defined tokens in the normalised text. */
spry_status spry_tokenizer_list_added(spry_tokenizer *tokenizer, size_t more, spry_error *error);

/* Sets SentencePiece's normaliser and decoder. */
void spry_tokenizer_set_spm_rules(spry_tokenizer *tokenizer, bool add_prefix, bool squeeze, bool escape);

/* Parts of tokenizer.json that several loaders read. */

/* Parses bounded text; on failure NULL, with line and column in the message. */
json_t *spry_json_parse(spry_view text, spry_error *error);

/* A member; NULL when `object` is not an object, or the member is missing or null. */
const json_t *spry_json_member(const json_t *object, const char *key);

/* A boolean member; `otherwise` when it is missing. */
bool spry_json_flag(const json_t *object, const char *key, bool otherwise);

/* Reads an element of "added_tokens", except its id. */
spry_added_token spry_json_added_token(const json_t *entry);

/* Sets normalizer, pre-tokenizer, post-processor, decoder and the model's flags from a tokenizer.json; its vocabulary
 * and merges are ignored. The tokenizer's vocabulary must be set. */
spry_status spry_json_pipeline(spry_tokenizer *tokenizer, const json_t *root, spry_error *error);

#endif
