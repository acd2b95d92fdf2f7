/* Drafting without a second model: what followed the last time these words were said?
 *
 * The lookup holds the tokens of one sequence, prompt and answer. It proposes the tokens that followed the longest
 * earlier occurrence of the sequence's end, and of equally long ones the most recent. Matches count from `min_match` to
 * `max_match` tokens; those that agree in more are equals.
 *
 * All memory is taken at creation. Appending and truncating cost max_match - min_match + 1 table operations a token,
 * whatever the tokens are; proposing costs a look at one row of links. */
#ifndef SPRY_DRAFT_PROMPT_LOOKUP_H
#define SPRY_DRAFT_PROMPT_LOOKUP_H

#include "base/error.h"

enum { SPRY_LOOKUP_MATCH_MOST = 16 };

typedef struct spry_lookup_limits {
    size_t capacity;               /* tokens; 1 to 2^30 */
    uint32_t min_match, max_match; /* 1 <= min <= max <= SPRY_LOOKUP_MATCH_MOST; 2 and 8 do well */
} spry_lookup_limits;

typedef struct spry_prompt_lookup spry_prompt_lookup;

spry_status spry_prompt_lookup_create(spry_prompt_lookup **out, const spry_lookup_limits *limits, spry_error *error);
void spry_prompt_lookup_destroy(spry_prompt_lookup *lookup);

/* Bytes a lookup of these limits takes; false when they are out of range or too large. */
bool spry_prompt_lookup_bytes(size_t *bytes, const spry_lookup_limits *limits);

/* Tokens it holds. */
size_t spry_prompt_lookup_count(const spry_prompt_lookup *lookup);

/* Fails, and changes nothing, when there is no room for all. */
spry_status spry_prompt_lookup_append(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error);

/* Forgets all but the first `count` tokens, as if the others had never been appended. Nothing when it holds fewer. */
void spry_prompt_lookup_truncate(spry_prompt_lookup *lookup, size_t count);

/* Makes it hold exactly these tokens: keeps the prefix that agrees, forgets what it had behind it and appends the rest.
 * Without room for the rest it fails and holds the prefix. For a new prompt. */
spry_status spry_prompt_lookup_follow(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error);

/* Writes up to `most` tokens to `draft` and returns how many: `most`, or 0 when the end of the sequence never occurred
 * before. `match` is the number of tokens that agreed (at most max_match), 0 without a draft. Where the copied text
 * runs into the end of the sequence it goes on with what was drafted: a repetition is drafted as going on. */
size_t spry_prompt_lookup_propose(const spry_prompt_lookup *lookup, int32_t *draft, uint32_t *match, size_t most);

#endif
