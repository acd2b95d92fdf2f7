/* Splits text into words for BPE: the Split, Digits, Punctuation... steps of tokenizer.json's pre-tokenizers, each
 * splitting the pieces of the previous one. Offsets refer to the original text. */
#ifndef SPRY_TOKENIZER_SPLIT_H
#define SPRY_TOKENIZER_SPLIT_H

#include "tokenizer/pattern_pcre.h"
#include "tokenizer/pattern_scan.h"

/* What happens to the matches of a step's pattern. */
typedef enum spry_split_behavior {
    SPRY_SPLIT_ISOLATED,
    SPRY_SPLIT_REMOVED,
    SPRY_SPLIT_WITH_PREVIOUS,
    SPRY_SPLIT_WITH_NEXT,
    SPRY_SPLIT_CONTIGUOUS,
} spry_split_behavior;

typedef struct spry_split_step {
    bool scanned; /* by `scan`, else by `pattern` */
    spry_scan scan;
    spry_pattern *pattern; /* owned */
    spry_split_behavior behavior;
    bool invert; /* exchanges matches and gaps */
} spry_split_step;

enum { SPRY_SPLIT_STEPS_MAX = 16 };

typedef struct spry_splitter {
    spry_split_step steps[SPRY_SPLIT_STEPS_MAX];
    size_t count;
} spry_splitter;

void spry_splitter_deinit(spry_splitter *splitter);

/* Adds a step for a regular expression (or plain text). Common patterns with isolated matches use a scanner. */
spry_status spry_splitter_add(spry_splitter *splitter, spry_view regex, bool literal, spry_split_behavior behavior,
                              bool invert, spry_error *error);

/* Scratch lists of ranges and pattern state: one per thread. Starts zeroed. */
typedef struct spry_split_scratch {
    struct spry_ranges {
        spry_text_range *items;
        size_t count, capacity;
    } lists[2];
    spry_pattern_scratch pattern;
} spry_split_scratch;

void spry_split_scratch_deinit(spry_split_scratch *scratch);

/* The pieces of `text`, in order, none empty. They are in `scratch` until the next call. */
spry_status spry_splitter_run(const spry_splitter *splitter, spry_split_scratch *scratch, const spry_unicode *unicode,
                              spry_view text, const spry_text_range **pieces, size_t *count, spry_error *error);

#endif
