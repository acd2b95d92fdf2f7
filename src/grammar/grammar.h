/* A compiled grammar, and walking it. A grammar is immutable and may be used by many matchers, each of one sequence.
 *
 * A byte-level automaton with a stack. A matcher holds every state the text so far could be in (grammars may be
 * ambiguous); its number is bounded, and passing the bound is an error, never a wrong answer. */
#ifndef SPRY_GRAMMAR_GRAMMAR_H
#define SPRY_GRAMMAR_GRAMMAR_H

#include "grammar/ir/grammar_ir.h"
#include "tokenizer/tokenizer.h"

typedef struct spry_grammar spry_grammar;
typedef struct spry_matcher spry_matcher;
typedef struct spry_vocabulary spry_vocabulary;

/* What a grammar is made from. */
typedef enum spry_grammar_kind {
    SPRY_GRAMMAR_GBNF,
    SPRY_GRAMMAR_JSON_SCHEMA,
    SPRY_GRAMMAR_REGEX,  /* the whole text */
    SPRY_GRAMMAR_CHOICE, /* a JSON array of strings */
    SPRY_GRAMMAR_JSON_OBJECT,
} spry_grammar_kind;

/* The kind of a request's constraint; false: there is none. */
bool spry_grammar_kind_of(spry_grammar_kind *kind, spry_constraint constraint);

/* Compiles in bounded time and memory. Fails with the place of what is wrong, also when no text at all can match. */
spry_status spry_grammar_create(spry_grammar **out, spry_grammar_kind kind, spry_view source, spry_error *error);
/* The same from a builder, which the caller keeps. */
spry_status spry_grammar_from_ir(spry_grammar **out, spry_ir *ir, spry_ir_node root, spry_error *error);
spry_grammar *spry_grammar_ref(spry_grammar *grammar); /* counts atomically */
void spry_grammar_unref(spry_grammar *grammar);

/* The tokens as bytes, sorted into a trie; made once for a tokenizer, immutable. `n_ids`: length of logits, which may
 * be more than the tokenizer has. */
spry_status spry_vocabulary_create(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                   spry_error *error);
void spry_vocabulary_destroy(spry_vocabulary *vocabulary);

/* A matcher at the beginning of the text. `vocabulary` may be NULL when only bytes are matched; otherwise it must
 * outlive the matcher. The first matcher of a grammar for a vocabulary finds out about the states that take longest,
 * some milliseconds; what is found out is kept with the grammar, bounded, and shared under a lock. A matcher itself is
 * used by one thread at a time. */
spry_status spry_matcher_create(spry_matcher **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                spry_error *error);
void spry_matcher_destroy(spry_matcher *matcher);
void spry_matcher_reset(spry_matcher *matcher);

/* Takes bytes; *taken says how many fit. All or nothing is kept: when not all of them fit, nothing changes. One call
 * counts as one token for undo. */
spry_status spry_matcher_bytes(spry_matcher *matcher, size_t *taken, spry_view bytes, spry_error *error);
/* Takes a token. SPRY_ERR_INPUT when the grammar does not allow it; then nothing changes. End tokens are allowed when
 * the text may end, and change nothing. */
spry_status spry_matcher_token(spry_matcher *matcher, int32_t id, spry_error *error);
/* Goes back `count` tokens (rejected drafts). */
void spry_matcher_undo(spry_matcher *matcher, size_t count);

bool spry_matcher_may_end(const spry_matcher *matcher);  /* the text so far is a whole */
bool spry_matcher_must_end(const spry_matcher *matcher); /* and nothing can follow */

/* Which bytes may come next: bit b % 64 of word b / 64. */
void spry_matcher_next_bytes(const spry_matcher *matcher, uint64_t bytes[4]);

/* Which tokens may come next: n_ids bits (bit i % 32 of word i / 32). End tokens are in it exactly when the text may
 * end. Control tokens never are. Valid until the next call on this matcher. Fails when no token can go on and the text
 * may not end (a vocabulary that cannot spell what is required). */
spry_status spry_matcher_mask(spry_matcher *matcher, const uint32_t **mask, spry_error *error);

/* The bytes that must come next, whatever is chosen, appended to `out` (may be none; at most 4096 at a time). */
spry_status spry_matcher_forced(spry_matcher *matcher, spry_buffer *out, spry_error *error);

/* The same as tokens: those the tokenizer writes the forced bytes with, as far as they do not depend on what comes
 * behind them. They are appended to `out` and not taken yet: hand each to spry_matcher_token. */
spry_status spry_matcher_forced_tokens(spry_matcher *matcher, const spry_tokenizer *tokenizer, spry_tokens *out,
                                       spry_error *error);

/* Appends a shortest text that makes what was taken so far whole (none when it is whole). Nothing is taken. Fails when
 * that takes more than SPRY_COMPLETION_MAX bytes; then nothing is appended. */
spry_status spry_matcher_completion(spry_matcher *matcher, spry_buffer *out, spry_error *error);
/* How many bytes the completion has, without making it; SIZE_MAX when it cannot be made. */
size_t spry_matcher_completion_bound(spry_matcher *matcher);
/* The completion as tokens, as few as the vocabulary allows, each to be handed to spry_matcher_token. Fails also when
 * the vocabulary cannot spell it. */
spry_status spry_matcher_completion_tokens(spry_matcher *matcher, spry_tokens *out, spry_error *error);

enum { SPRY_COMPLETION_MAX = 1 << 16 };

#endif
