/* All other pre-tokenizer patterns, matched by PCRE2 with JIT. Patterns come from untrusted files written for
 * Oniguruma: syntax that the two engines interpret differently is translated or refused, and a match that takes too
 * many steps is an error instead of a hang. */
#ifndef SPRY_TOKENIZER_PATTERN_PCRE_H
#define SPRY_TOKENIZER_PATTERN_PCRE_H

#include "base/error.h"
#include "tokenizer/tokenizer.h"

typedef struct spry_pattern spry_pattern;

/* Compiles a regular expression, or with `literal` the plain text `regex`. */
spry_status spry_pattern_create(spry_pattern **out, spry_view regex, bool literal, spry_error *error);
void spry_pattern_destroy(spry_pattern *pattern);

/* Scratch memory for matching; one per thread, usable with any pattern. Starts zeroed. */
typedef struct spry_pattern_scratch {
    void *match, *context, *stack;
} spry_pattern_scratch;

void spry_pattern_scratch_deinit(spry_pattern_scratch *scratch);

/* The first match in `text` at or after `from`; it may be empty. Invalid UTF-8 matches nothing. */
spry_status spry_pattern_find(const spry_pattern *pattern, spry_pattern_scratch *scratch, spry_view text, size_t from,
                              bool *found, spry_text_range *match, spry_error *error);

#endif
