/* Drafting without a second model: proposes the tokens that followed an earlier occurrence of the same text.
 *
 * The lookup holds the tokens of one sequence, prompt and answer. It proposes the tokens that followed the longest
 * earlier occurrence of the sequence's end; among equally long ones, the most recent. Matches count from `min_match` to
 * `max_match` tokens; longer matches count as max_match.
 *
 * All memory is allocated at creation. Appending and truncating cost max_match - min_match + 1 table operations per
 * token, for any tokens; proposing reads one row of links. */
#ifndef SPRY_DRAFT_PROMPT_LOOKUP_H
#define SPRY_DRAFT_PROMPT_LOOKUP_H

#include "base/error.h"

enum { SPRY_LOOKUP_MATCH_MOST = 16 };

typedef struct spry_lookup_limits {
    size_t capacity;               /* maximum tokens; 1 to 2^30 */
    uint32_t min_match, max_match; /* 1 <= min <= max <= SPRY_LOOKUP_MATCH_MOST; 2 and 8 work well */
} spry_lookup_limits;

typedef struct spry_prompt_lookup spry_prompt_lookup;

spry_status spry_prompt_lookup_create(spry_prompt_lookup **out, const spry_lookup_limits *limits, spry_error *error);
void spry_prompt_lookup_destroy(spry_prompt_lookup *lookup);

/* Bytes that a lookup with these limits uses; false when the limits are out of range or too large. */
bool spry_prompt_lookup_bytes(size_t *bytes, const spry_lookup_limits *limits);

/* Appends tokens; fails without changes when not all of them fit. */
spry_status spry_prompt_lookup_append(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error);

/* Removes all but the first `count` tokens, as if the others had never been appended. No effect when it holds fewer. */
void spry_prompt_lookup_truncate(spry_prompt_lookup *lookup, size_t count);

/* Replaces the contents with these tokens, for a new prompt: keeps the common prefix, removes the rest and appends the
 * new tokens. If they do not fit, it fails and holds the prefix. */
spry_status spry_prompt_lookup_follow(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error);

/* Writes up to `most` tokens to `draft` and returns how many: `most`, or 0 when the end of the sequence has not
 * occurred before. `match` is the number of matching tokens (at most max_match), 0 without a draft. If copying reaches
 * the end of the sequence, it continues with the draft itself, so a repeated text is drafted as repeating further. */
size_t spry_prompt_lookup_propose(const spry_prompt_lookup *lookup, int32_t *draft, uint32_t *match, size_t most);

#endif
