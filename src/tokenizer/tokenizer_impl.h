/* A tokenizer from the inside. A loader creates one, fills in what its file says (everything down to `eos` below),
 * and finishes it; from then on nothing changes except `whole`, which only remembers.
 *
 * Encoding: control and added tokens are cut out; what lies between is changed by `normalizer`; added tokens that ask
 * for normalised text are cut out; the rest is changed by `prepare`, split by `splitter`, and each word is merged. */
#ifndef SPRY_TOKENIZER_TOKENIZER_IMPL_H
#define SPRY_TOKENIZER_TOKENIZER_IMPL_H

#include <jansson.h>
#include <stdatomic.h>

#include "tokenizer/added_tokens.h"
#include "tokenizer/normalize.h"
#include "tokenizer/split.h"
#include "tokenizer/spm.h"

enum {
    SPRY_FRAME_MAX = 8,               /* tokens a post-processor puts before or behind a text */
    SPRY_TOKENIZER_TEXT_MAX = 1 << 30 /* bytes of a text */
};

/* Tokens put around a text. */
typedef struct spry_frame {
    int32_t ids[SPRY_FRAME_MAX];
    size_t count;
} spry_frame;

/* What decoding does with the space the encoder put first. */
typedef enum spry_lead {
    SPRY_LEAD_KEEP,
    SPRY_LEAD_STRIP_ONE, /* one space off the text */
    SPRY_LEAD_STRIP_ALL, /* every space off the first token */
} spry_lead;

struct spry_tokenizer {
    spry_arena arena;
    spry_unicode unicode;

    spry_vocab vocab;
    bool by_byte; /* spelled in the byte-level alphabet */
    bool byte_fallback, fuse_unknown;
    bool ignore_merges; /* a word that is a token is that token, whatever merging says */
    bool by_score;      /* merges come from scores, not from a list */
    spry_merges merges;
    spry_added_token *added; /* [n_added] */
    size_t n_added;
    spry_changes normalizer, prepare;
    spry_splitter splitter;
    spry_frame before, behind; /* what SPRY_ENCODE_BOS_EOS adds */
    spry_lead lead;
    int32_t bos, eos, end_of_turn, unknown, padding; /* -1: none */
    spry_view pattern_name;                          /* the pattern's name in GGUF; empty: it has none */
    spry_view settings; /* tokenizer.json without its vocabulary; empty: not made from one */

    spry_symbols symbols;
    spry_added_tokens raw, normalized;
    spry_view *bytes;    /* [vocab.size] what an id decodes to */
    spry_map words;      /* by_byte: from bytes to NORMAL ids */
    atomic_uchar *whole; /* [vocab.size] does merging a token's own text give the token? See encode.c. */
    bool *ends;          /* [vocab.size] */
    char algorithm[64];
};

/* An empty tokenizer: no vocabulary yet, ids -1. NULL when memory is short. */
spry_tokenizer *spry_tokenizer_create(void);

/* Ends loading: when `status` is ok, derives the rest from what the loader filled in and hands the tokenizer over;
 * else, or when that fails, destroys it (NULL is fine) and puts `name` before the sentence. */
spry_status spry_tokenizer_complete(spry_tokenizer **out, spry_tokenizer *tokenizer, spry_status status,
                                    const char *name, spry_error *error);

/* Fill an empty tokenizer from a file's bytes. `added` is tokenizer_config.json's "added_tokens_decoder", which a
 * tokenizer.model needs where a model's makers added tokens to it; NULL: none. */
spry_status spry_tokenizer_load_json(spry_tokenizer *tokenizer, spry_view text, spry_error *error);
spry_status spry_tokenizer_load_spm(spry_tokenizer *tokenizer, spry_view model, json_t *added, spry_error *error);

/* Adds the merge that a file lists at place `rank`; tokenizer->merges has room. Left out are merges of what is no
 * token, which can never apply, and merges that would make a control token. */
spry_status spry_tokenizer_add_merge(spry_tokenizer *tokenizer, spry_buffer *scratch, spry_view left, spry_view right,
                                     size_t rank, spry_error *error);

/* Splits "left right" at its one space. */
bool spry_tokenizer_split_merge(spry_view text, spry_view *left, spry_view *right);

/* Marks an id of the vocabulary as added token: it gets its kind and its place in `added`, which has room. */
void spry_tokenizer_mark_added(spry_tokenizer *tokenizer, spry_added_token token);

/* Lists the control, unknown and user-defined tokens of a vocabulary that says of each what it is, with room for `more`
 * that the caller marks. SentencePiece looks for user-defined ones in the normalised text. */
spry_status spry_tokenizer_list_added(spry_tokenizer *tokenizer, size_t more, spry_error *error);

/* SentencePiece's normaliser and decoder. */
void spry_tokenizer_set_spm_rules(spry_tokenizer *tokenizer, bool add_prefix, bool squeeze, bool escape);

#endif
