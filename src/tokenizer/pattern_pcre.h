/* Any other pre-tokenizer pattern, by PCRE2 with JIT. Patterns come from files written for Oniguruma, and from
 * strangers: what the two engines read differently is translated or refused, and a match that takes too many steps is
 * an error instead of a hang. */
#ifndef SPRY_TOKENIZER_PATTERN_PCRE_H
#define SPRY_TOKENIZER_PATTERN_PCRE_H

#include "base/error.h"
#include "tokenizer/tokenizer.h"

typedef struct spry_pattern spry_pattern;

/* Compiles a regular expression, or the plain text `regex` when `literal`. */
spry_status spry_pattern_create(spry_pattern **out, spry_view regex, bool literal, spry_error *error);
void spry_pattern_destroy(spry_pattern *pattern);

/* What matching needs besides the pattern; one for each thread, usable with any pattern. Starts zeroed. */
typedef struct spry_pattern_scratch {
    void *match, *context, *stack;
} spry_pattern_scratch;

void spry_pattern_scratch_deinit(spry_pattern_scratch *scratch);

/* The first match in `text` at or after `from`; it may be empty. Bytes that are not UTF-8 match nothing. */
spry_status spry_pattern_find(const spry_pattern *pattern, spry_pattern_scratch *scratch, spry_view text, size_t from,
                              bool *found, spry_text_range *match, spry_error *error);

#endif
