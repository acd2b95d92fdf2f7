/* A compiled grammar and its matcher. A grammar is immutable and may be used by many matchers, one per sequence.
 *
 * The grammar is a byte-level pushdown automaton. A matcher holds every state the text so far could be in (grammars may
 * be ambiguous); their number is bounded, and exceeding the bound is an error, never a wrong result. */
#ifndef SPRY_GRAMMAR_GRAMMAR_H
#define SPRY_GRAMMAR_GRAMMAR_H

#include "grammar/ir/grammar_ir.h"
#include "tokenizer/tokenizer.h"

typedef struct spry_grammar spry_grammar;
typedef struct spry_matcher spry_matcher;
typedef struct spry_vocabulary spry_vocabulary;

/* What the source text of a grammar is. */
typedef enum spry_grammar_kind {
    SPRY_GRAMMAR_GBNF,
    SPRY_GRAMMAR_JSON_SCHEMA,
    SPRY_GRAMMAR_REGEX,  /* a regular expression for the whole text */
    SPRY_GRAMMAR_CHOICE, /* a JSON array of strings */
    SPRY_GRAMMAR_JSON_OBJECT,
    SPRY_GRAMMAR_TOOL_CALLS, /* see spry_ir_tool_calls */
} spry_grammar_kind;

/* The kind of grammar that a request's constraint needs; false: none. */
bool spry_grammar_kind_of(spry_grammar_kind *kind, spry_constraint constraint);

/* Compiles in bounded time and memory. The error message contains the position; a grammar that matches no text
 * fails. */
spry_status spry_grammar_create(spry_grammar **out, spry_grammar_kind kind, spry_view source, spry_error *error);
/* Compiles a grammar for model output, where JSON is written in a style. Other kinds ignore the style. */
spry_status spry_grammar_create_styled(spry_grammar **out, spry_grammar_kind kind, spry_json_style style,
                                       spry_view source, spry_error *error);
/* Compiles a grammar from a builder, which stays the caller's. */
spry_status spry_grammar_from_ir(spry_grammar **out, spry_ir *ir, spry_ir_node root, spry_error *error);
/* The parts of a lenient schema that are not enforced, one sentence per line; empty if all are. Valid as long as the
 * grammar. */
const char *spry_grammar_warnings(const spry_grammar *grammar);
spry_grammar *spry_grammar_ref(spry_grammar *grammar); /* increments atomically */
void spry_grammar_unref(spry_grammar *grammar);

/* The tokens as bytes, sorted into a trie; created once per tokenizer, immutable. `n_ids` is the number of logits,
 * which may exceed the number of tokens. */
spry_status spry_vocabulary_create(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                   spry_error *error);
/* As above, but control tokens whose spelling `shows` accepts count as text: the marks of tool calls. */
spry_status spry_vocabulary_create_marks(spry_vocabulary **out, const spry_tokenizer *tokenizer, size_t n_ids,
                                         bool (*shows)(const void *user, spry_view spelling), const void *user,
                                         spry_error *error);
void spry_vocabulary_destroy(spry_vocabulary *vocabulary);

/* Creates a matcher at the beginning of the text. `vocabulary` may be NULL when only bytes are matched; otherwise it
 * must outlive the matcher. Masks are computed when they are needed, cached with the grammar, bounded, and shared under
 * a lock. A matcher is used by one thread at a time. */
spry_status spry_matcher_create(spry_matcher **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                spry_error *error);
void spry_matcher_destroy(spry_matcher *matcher);
void spry_matcher_reset(spry_matcher *matcher);

/* Accepts bytes; *taken is the number that match. When not all of them match, the state does not change. For undo, one
 * call counts as one token. */
spry_status spry_matcher_bytes(spry_matcher *matcher, size_t *taken, spry_view bytes, spry_error *error);
/* Accepts a token. SPRY_ERR_INPUT when the grammar does not allow it; then nothing changes. End tokens are allowed when
 * the text may end, and change nothing. */
spry_status spry_matcher_token(spry_matcher *matcher, int32_t id, spry_error *error);
/* Removes the last `count` tokens (refused drafts). */
void spry_matcher_undo(spry_matcher *matcher, size_t count);

bool spry_matcher_may_end(const spry_matcher *matcher);  /* the text so far is complete */
bool spry_matcher_must_end(const spry_matcher *matcher); /* the text is complete and nothing may follow */

/* The bytes allowed next: bit b % 64 of word b / 64. */
void spry_matcher_next_bytes(const spry_matcher *matcher, uint64_t bytes[4]);

/* The tokens allowed next: n_ids bits (bit i % 32 of word i / 32). End tokens are included exactly when the text may
 * end, control tokens never. Valid until the next call on this matcher. Fails when no token is allowed and the text may
 * not end (the vocabulary cannot spell a required text). */
spry_status spry_matcher_mask(spry_matcher *matcher, const uint32_t **mask, spry_error *error);

/* Appends the bytes that must come next to `out` (possibly none; at most 4096 per call). */
spry_status spry_matcher_forced(spry_matcher *matcher, spry_buffer *out, spry_error *error);

/* Appends the forced bytes as the tokens that the tokenizer produces for them, as far as those do not depend on the
 * following text. The tokens are not accepted yet: pass each to spry_matcher_token. */
spry_status spry_matcher_forced_tokens(spry_matcher *matcher, const spry_tokenizer *tokenizer, spry_tokens *out,
                                       spry_error *error);

/* Appends a shortest text that completes the accepted text (none when it is complete). The state does not change. Fails
 * when that takes more than SPRY_COMPLETION_MAX bytes; then nothing is appended. */
spry_status spry_matcher_completion(spry_matcher *matcher, spry_buffer *out, spry_error *error);
/* The length in bytes of that completion, without building it; SIZE_MAX when there is none. */
size_t spry_matcher_completion_bound(spry_matcher *matcher);
/* That completion as the fewest tokens possible, each to be passed to spry_matcher_token. Also fails when the
 * vocabulary cannot spell it. */
spry_status spry_matcher_completion_tokens(spry_matcher *matcher, spry_tokens *out, spry_error *error);

enum { SPRY_COMPLETION_MAX = 1 << 16 };

/* Compiled grammars by source text: requests often repeat a schema. Several threads may use one cache. A request for
 * a source that another thread is compiling waits for that compile; it never waits for other sources. */

typedef struct spry_grammar_cache spry_grammar_cache;

enum {
    SPRY_GRAMMAR_CACHE_ENTRIES = 32,
    SPRY_GRAMMAR_CACHE_SOURCE_MAX = 1 << 20, /* longer sources are compiled on every request */
};

spry_status spry_grammar_cache_create(spry_grammar_cache **out, spry_error *error);
void spry_grammar_cache_destroy(spry_grammar_cache *cache); /* NULL is allowed */

/* Gets the grammar of `source`, compiled if it is not cached; the caller unreferences it. A new grammar replaces the
 * least recently used one. */
spry_status spry_grammar_cache_get(spry_grammar_cache *cache, spry_grammar **out, spry_grammar_kind kind,
                                   spry_json_style style, spry_view source, spry_error *error);

#endif
