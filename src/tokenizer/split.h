/* Splits text into words for BPE: the Split, Digits, Punctuation... steps of tokenizer.json's pre-tokenizers, each
 * splitting the pieces of the previous one. Offsets refer to the original text. */
#ifndef SPRY_TOKENIZER_SPLIT_H
#define SPRY_TOKENIZER_SPLIT_H

#include "base/buffer.h"
#include "base/error.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

/* Patterns of pre-tokenizers without a scanner, matched by PCRE2 with JIT. They come from untrusted files that were
 * written for Oniguruma: syntax that the two engines interpret differently is translated or refused, and a match that
 * takes too many steps is an error and not a hang. */

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

/* Hand-written scanners for the patterns of most byte-level BPE tokenizers: GPT-2's, Llama 3's and Qwen2's. Each reads
 * every character once; tests compare them with the regular expressions. */

typedef enum spry_scan_family {
    /* 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+ */
    SPRY_SCAN_GPT2,
    /* (?i:'s|'t|...)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+ */
    SPRY_SCAN_LLAMA3,
} spry_scan_family;

typedef struct spry_scan {
    spry_scan_family family;
    unsigned max_digits; /* LLAMA3: k above; Llama 3 has 3, Qwen2 has 1 */
    bool long_s;         /* LLAMA3: the contraction 's may be spelled with U+017F, as (?i:...) allows */
} spry_scan;

/* Recognises a pattern by its exact source. */
bool spry_scan_find(spry_scan *scan, spry_view regex);

/* The end of the piece that starts at `begin` (< text.size). Pieces cover every text; an invalid UTF-8 byte counts as a
 * character that is neither letter, number nor space. */
size_t spry_scan_next(const spry_scan *scan, const spry_unicode *unicode, spry_view text, size_t begin);

/* The patterns that GGUF names (tokenizer.ggml.pre), each with its other settings. */

enum { SPRY_NAMED_REGEXES_MAX = 8, SPRY_PATTERN_NAMES_MAX = 12 };

/* GPT-2's pattern, which a ByteLevel pre-tokenizer also uses. */
extern const char spry_gpt2_regex[];

typedef struct spry_named_pattern {
    const char *names[SPRY_PATTERN_NAMES_MAX];   /* the first name is the one that is written; NULL after the last */
    const char *regexes[SPRY_NAMED_REGEXES_MAX]; /* each splits the pieces of the previous one; matches are isolated */
    bool nfc, ignore_merges, add_bos;
} spry_named_pattern;

/* NULL: the name is unknown. */
const spry_named_pattern *spry_named_pattern_find(spry_view name);

/* The entry with the same expressions; if there are several, one with the same normalisation and merging. NULL:
 * none. */
const spry_named_pattern *spry_named_pattern_of(const spry_view *regexes, size_t count, bool nfc, bool ignore_merges);

/* The first name of each entry, separated by ", ". */
void spry_named_pattern_list(spry_buffer *out);

/* What a step does with the matches of its pattern. */
typedef enum spry_split_behavior {
    SPRY_SPLIT_ISOLATED,
    SPRY_SPLIT_REMOVED,
    SPRY_SPLIT_WITH_PREVIOUS,
    SPRY_SPLIT_WITH_NEXT,
    SPRY_SPLIT_CONTIGUOUS,
} spry_split_behavior;

typedef struct spry_split_step {
    bool scanned; /* matched by `scan`, otherwise by `pattern` */
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
