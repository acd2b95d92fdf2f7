/* The patterns that GGUF names (tokenizer.ggml.pre), each with its other settings. */
#ifndef SPRY_TOKENIZER_PATTERN_NAMES_H
#define SPRY_TOKENIZER_PATTERN_NAMES_H

#include "base/buffer.h"

enum { SPRY_NAMED_REGEXES_MAX = 8, SPRY_PATTERN_NAMES_MAX = 12 };

/* GPT-2's pattern, which a ByteLevel pre-tokenizer also uses. */
extern const char spry_gpt2_regex[];

typedef struct spry_named_pattern {
    const char *names[SPRY_PATTERN_NAMES_MAX];   /* the first one is written; NULL after the last */
    const char *regexes[SPRY_NAMED_REGEXES_MAX]; /* each splits the pieces of the previous one; matches are isolated */
    bool nfc, ignore_merges, add_bos;
} spry_named_pattern;

/* NULL: no such name. */
const spry_named_pattern *spry_named_pattern_find(spry_view name);

/* The entry with the same expressions, preferably with the same normalisation and merging; NULL: none. */
const spry_named_pattern *spry_named_pattern_of(const spry_view *regexes, size_t count, bool nfc, bool ignore_merges);

/* The first name of each entry, separated by ", ". */
void spry_named_pattern_list(spry_buffer *out);

#endif
