/* Hand-written scanners for the patterns of most byte-level BPE tokenizers: GPT-2's, Llama 3's and Qwen2's. Each reads
 * every character once; tests compare them with the regular expressions. */
#ifndef SPRY_TOKENIZER_PATTERN_SCAN_H
#define SPRY_TOKENIZER_PATTERN_SCAN_H

#include "tokenizer/unicode.h"

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

#endif
