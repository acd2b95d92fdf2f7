/* The order of the tests below is the order of the alternatives in the patterns. */
#include "tokenizer/pattern_scan.h"

#include "base/compiler.h"

enum { CLASS_MASK = SPRY_CHAR_LETTER | SPRY_CHAR_NUMBER | SPRY_CHAR_SPACE };

#define AFTER_CONTRACTION(digits)                                                                                      \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ANY_CASE    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPELLED_OUT "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT4(digits)                                                                                                   \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}" digits                                               \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

static const struct {
    const char *regex;
    spry_scan scan;
} known_spellings[] = {
    {GPT2 "|\\s+", {SPRY_SCAN_GPT2, 0, false}},
    {GPT2, {SPRY_SCAN_GPT2, 0, false}}, /* unmatched text also becomes a piece */
    {ANY_CASE AFTER_CONTRACTION("{1,3}"), {SPRY_SCAN_LLAMA3, 3, true}},
    {GPT4("{1,3}"), {SPRY_SCAN_LLAMA3, 3, true}},
    {SPELLED_OUT AFTER_CONTRACTION("{1,3}"), {SPRY_SCAN_LLAMA3, 3, false}},
    {ANY_CASE AFTER_CONTRACTION(""), {SPRY_SCAN_LLAMA3, 1, true}},
    {GPT4(""), {SPRY_SCAN_LLAMA3, 1, true}},
    {SPELLED_OUT AFTER_CONTRACTION(""), {SPRY_SCAN_LLAMA3, 1, false}},
};

bool spry_scan_find(spry_scan *scan, spry_view regex)
{
    for (size_t i = 0; i < SPRY_COUNT(known_spellings); i++) {
        if (spry_view_is(regex, known_spellings[i].regex)) {
            *scan = known_spellings[i].scan;
            return true;
        }
    }
    return false;
}

/* Class and length of the character at `at`; no class and length 0 at the end. */
static unsigned classify(const spry_unicode *unicode, spry_view text, size_t at, size_t *length)
{
    if (at >= text.size) {
        *length = 0;
        return 0;
    }
    return spry_unicode_next(unicode, text.data + at, text.size - at, length) & CLASS_MASK;
}

/* The end of a run of at most `most` characters of exactly this class, from `at`. */
static size_t run_end(const spry_unicode *unicode, spry_view text, size_t at, unsigned class, size_t most)
{
    size_t length;
    while (most-- && at < text.size && classify(unicode, text, at, &length) == class)
        at += length;
    return at;
}

static bool is_newline(spry_view text, size_t at)
{
    return at < text.size && (text.data[at] == '\n' || text.data[at] == '\r');
}

/* Length of a contraction ('s 't 're 've 'm 'll 'd) at the apostrophe at `at`; 0: none. */
static size_t contraction(spry_view text, size_t at, bool any_case, bool long_s)
{
    char next[2] = {0, 0};
    for (size_t i = 0; i < 2 && at + 1 + i < text.size; i++) {
        char c = text.data[at + 1 + i];
        next[i] = any_case && c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
    }
    switch (next[0]) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return next[1] == 'e' ? 3 : 0;
    case 'l': return next[1] == 'l' ? 3 : 0;
    case '\xC5': return long_s && next[1] == '\xBF' ? 3 : 0;
    default: return 0;
    }
}

/* \s*[\r\n]+ with `newlines`, else \s+(?!\S), else \s+: `at` is at whitespace. */
static size_t space_end(const spry_unicode *unicode, spry_view text, size_t at, bool newlines)
{
    size_t length = 0, last = at, end = at, after_newline = 0;
    while (end < text.size && classify(unicode, text, end, &length) == SPRY_CHAR_SPACE) {
        last = end;
        end += length;
        if (is_newline(text, last))
            after_newline = end;
    }
    if (newlines && after_newline)
        return after_newline;
    return end == text.size || last == at ? end : last;
}

static size_t next_gpt2(const spry_unicode *unicode, spry_view text, size_t at)
{
    size_t length, next_length;
    unsigned class = classify(unicode, text, at, &length);
    if (text.data[at] == '\'') {
        size_t found = contraction(text, at, false, false);
        if (found)
            return at + found;
    }
    if (text.data[at] == ' ') {
        unsigned next = classify(unicode, text, at + 1, &next_length);
        if (next_length && next != SPRY_CHAR_SPACE)
            return run_end(unicode, text, at + 1 + next_length, next, SIZE_MAX);
    }
    if (class == SPRY_CHAR_SPACE)
        return space_end(unicode, text, at, false);
    return run_end(unicode, text, at + length, class, SIZE_MAX);
}

static size_t next_llama3(const spry_scan *scan, const spry_unicode *unicode, spry_view text, size_t at)
{
    size_t length, next_length;
    unsigned class = classify(unicode, text, at, &length);
    if (class == SPRY_CHAR_LETTER)
        return run_end(unicode, text, at + length, SPRY_CHAR_LETTER, SIZE_MAX);
    if (class == SPRY_CHAR_NUMBER)
        return run_end(unicode, text, at + length, SPRY_CHAR_NUMBER, scan->max_digits - 1);
    if (text.data[at] == '\'') {
        size_t found = contraction(text, at, true, scan->long_s);
        if (found)
            return at + found;
    }
    unsigned next = classify(unicode, text, at + length, &next_length);
    if (next == SPRY_CHAR_LETTER && !is_newline(text, at))
        return run_end(unicode, text, at + length + next_length, SPRY_CHAR_LETTER, SIZE_MAX);
    if (class == 0 || (text.data[at] == ' ' && next == 0 && next_length)) {
        size_t end = run_end(unicode, text, at + length, 0, SIZE_MAX);
        while (is_newline(text, end))
            end++;
        return end;
    }
    return space_end(unicode, text, at, true);
}

size_t spry_scan_next(const spry_scan *scan, const spry_unicode *unicode, spry_view text, size_t begin)
{
    return scan->family == SPRY_SCAN_GPT2 ? next_gpt2(unicode, text, begin) : next_llama3(scan, unicode, text, begin);
}
