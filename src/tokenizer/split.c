/* Splits text in steps. A step first divides a piece into matches and gaps, in order; then the behavior determines
 * which of them are kept separate, merged or removed. */
#include "tokenizer/split.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "base/interrupt.h"

/* ---- patterns matched by PCRE2 ----------------------------------------------------------------------------------- */

/* Oniguruma and PCRE2 differ in three features used by published patterns: \s (PCRE2 adds U+180E to White_Space), a
 * bracket inside a character class (a nested set there, a plain character here), and && inside a class (intersection,
 * which PCRE2 10.42 lacks). */

#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>
#include <stdlib.h>

enum {
    PATTERN_BYTES_MAX = 1 << 16,
    MATCH_STEPS_MAX = 10000000,
    HEAP_KIB_MAX = 64 << 10,
    STACK_BYTES_MAX = 32 << 20,
};

struct spry_pattern {
    pcre2_code *code;
};

/* The state of a translation from Oniguruma's syntax to PCRE2's, between two characters. */
typedef struct translation {
    spry_buffer *out;
    size_t depth; /* nesting depth of brackets */
    const char *problem;
} translation;

static void translate_escape(translation *state, char escaped)
{
    char text[2] = {'\\', escaped};
    if (escaped == 's')
        spry_buffer_text(state->out, "\\p{White_Space}");
    else if (escaped == 'S')
        spry_buffer_text(state->out, "\\P{White_Space}");
    else
        spry_buffer_append(state->out, text, 2);
}

/* Translates the next part inside a class; returns its length in bytes. */
static size_t translate_in_class(translation *state, spry_view rest)
{
    if (rest.data[0] == ']') {
        state->depth--;
        if (state->depth == 0)
            spry_buffer_text(state->out, "]");
    } else if (rest.data[0] == '[' && rest.size > 1 && rest.data[1] == ':') {
        const char *end = memmem(rest.data, rest.size, ":]", 2);
        size_t length = end ? (size_t)(end - rest.data) + 2 : 2;
        spry_buffer_append(state->out, rest.data, length);
        return length;
    } else if (rest.data[0] == '[') {
        state->depth++; /* the nested set's characters are added to the outer set */
        if (rest.size > 1 && rest.data[1] == '^')
            state->problem = "a negated set inside a character class";
    } else if (rest.size > 1 && rest.data[0] == '&' && rest.data[1] == '&') {
        state->problem = "an intersection (&&) inside a character class";
    } else {
        spry_buffer_append(state->out, rest.data, 1);
    }
    return 1;
}

/* Translates a '[' outside any class, with a '^' and a literal ']' that may follow it. */
static size_t translate_class_start(translation *state, spry_view rest)
{
    size_t length = 1;
    state->depth = 1;
    if (rest.size > length && rest.data[length] == '^')
        length++;
    spry_buffer_append(state->out, rest.data, length);
    if (rest.size > length && rest.data[length] == ']') {
        spry_buffer_text(state->out, "\\]");
        length++;
    }
    return length;
}

static spry_status translate(spry_buffer *out, spry_view regex, spry_error *error)
{
    translation state = {.out = out};
    size_t used;
    for (size_t i = 0; i < regex.size && !state.problem; i += used) {
        spry_view rest = {regex.data + i, regex.size - i};
        used = 1;
        if (rest.data[0] == '\\' && rest.size > 1) {
            translate_escape(&state, rest.data[1]);
            used = 2;
        } else if (state.depth) {
            used = translate_in_class(&state, rest);
        } else if (rest.data[0] == '[') {
            used = translate_class_start(&state, rest);
        } else {
            spry_buffer_append(out, rest.data, 1);
        }
    }
    if (state.problem)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the pattern \"%.*s\" has %s, which is not supported",
                         SPRY_VIEW_ARG(regex), state.problem);
    return out->failed ? spry_fail_memory(error, "a pattern", regex.size) : SPRY_OK;
}

spry_status spry_pattern_create(spry_pattern **out, spry_view regex, bool literal, spry_error *error)
{
    spry_buffer translated;
    spry_buffer_init(&translated, 16 * PATTERN_BYTES_MAX);
    spry_status status = SPRY_OK;
    spry_pattern *pattern = NULL;
    if (regex.size == 0 || regex.size > PATTERN_BYTES_MAX) {
        status = spry_fail(error, SPRY_ERR_FORMAT, "a pattern of %zu bytes: it must have 1 to %d", regex.size,
                           PATTERN_BYTES_MAX);
        goto fail;
    }
    if (literal)
        spry_buffer_append(&translated, regex.data, regex.size);
    else
        status = translate(&translated, regex, error);
    if (status)
        goto fail;
    pattern = calloc(1, sizeof *pattern);
    if (!pattern || translated.failed) {
        status = spry_fail_memory(error, "a pattern", regex.size);
        goto fail;
    }
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF;
    options = literal ? PCRE2_LITERAL | PCRE2_UTF | PCRE2_MATCH_INVALID_UTF : options | PCRE2_NEVER_BACKSLASH_C;
    int code;
    PCRE2_SIZE offset;
    pattern->code = pcre2_compile((PCRE2_SPTR)translated.data, translated.size, options, &code, &offset, NULL);
    if (!pattern->code) {
        char reason[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof reason);
        bool is_short = code == PCRE2_ERROR_HEAP_FAILED;
        status = spry_fail(error, is_short ? SPRY_ERR_MEMORY : SPRY_ERR_FORMAT,
                           "the pattern \"%.*s\" cannot be compiled: %s", SPRY_VIEW_ARG(regex), reason);
        goto fail;
    }
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter is used */
    spry_buffer_deinit(&translated);
    *out = pattern;
    return SPRY_OK;
fail:
    spry_buffer_deinit(&translated);
    free(pattern);
    return status;
}

void spry_pattern_destroy(spry_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_code_free(pattern->code);
    free(pattern);
}

static bool scratch_ready(spry_pattern_scratch *scratch)
{
    if (!scratch->match)
        scratch->match = pcre2_match_data_create(1, NULL);
    if (!scratch->stack)
        scratch->stack = pcre2_jit_stack_create(1 << 15, STACK_BYTES_MAX, NULL);
    if (!scratch->context) {
        scratch->context = pcre2_match_context_create(NULL);
        if (scratch->context && scratch->stack) {
            pcre2_jit_stack_assign(scratch->context, NULL, scratch->stack);
            pcre2_set_match_limit(scratch->context, MATCH_STEPS_MAX);
            pcre2_set_heap_limit(scratch->context, HEAP_KIB_MAX);
        }
    }
    return scratch->match && scratch->stack && scratch->context;
}

void spry_pattern_scratch_deinit(spry_pattern_scratch *scratch)
{
    pcre2_match_data_free(scratch->match);
    pcre2_match_context_free(scratch->context);
    pcre2_jit_stack_free(scratch->stack);
    *scratch = (spry_pattern_scratch){0};
}

spry_status spry_pattern_find(const spry_pattern *pattern, spry_pattern_scratch *scratch, spry_view text, size_t from,
                              bool *found, spry_text_range *match, spry_error *error)
{
    *found = false;
    if (!scratch_ready(scratch))
        return spry_fail_memory(error, "matching a pattern", STACK_BYTES_MAX);
    int matched =
        pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size, from, 0, scratch->match, scratch->context);
    if (matched == PCRE2_ERROR_NOMATCH)
        return SPRY_OK;
    if (matched < 0) {
        char reason[128] = "";
        pcre2_get_error_message(matched, (PCRE2_UCHAR *)reason, sizeof reason);
        return spry_fail(error, SPRY_ERR_INPUT, "the tokenizer's pattern cannot be matched against this text: %s",
                         reason);
    }
    const PCRE2_SIZE *ends = pcre2_get_ovector_pointer(scratch->match);
    *match = (spry_text_range){ends[0], ends[1]};
    *found = ends[0] >= from && ends[1] >= ends[0]; /* \K can move the start of a match */
    return SPRY_OK;
}

/* ---- scanners ---------------------------------------------------------------------------------------------------- */

/* Hand-written scanners. The order of the tests below is the order of the alternatives in the patterns. */

enum { CLASS_MASK = SPRY_CHAR_LETTER | SPRY_CHAR_NUMBER | SPRY_CHAR_SPACE };

#define AFTER_CONTRACTION(digits)                                                                                      \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ANY_CASE    "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPELLED_OUT "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
#define GPT4(digits)                                                                                                   \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}" digits                                               \
    "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SCANNED_GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"

static const struct {
    const char *regex;
    spry_scan scan;
} known_spellings[] = {
    {SCANNED_GPT2 "|\\s+", {SPRY_SCAN_GPT2, 0, false}},
    {SCANNED_GPT2, {SPRY_SCAN_GPT2, 0, false}}, /* unmatched text also becomes a piece */
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

/* The class of the character at `at`, and its length; at the end of the text both are 0. */
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

/* ---- named patterns ---------------------------------------------------------------------------------------------- */

/* The table of patterns of published tokenizers. */

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SLASH_TAIL  "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER       "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER       "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix)                                                                                                  \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix
#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}" TAIL
#define QWEN2  CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" TAIL
#define QWEN35                                                                                                         \
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"     \
                "|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?…。，、।۔،)]+"
#define DEEPSEEK3_WORD                                                                                                 \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                \
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const char spry_gpt2_regex[] = GPT2;

static const spry_named_pattern patterns[] = {
    {.names = {"gpt-2", "default", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "gigachat", "mellum",
               "modern-bert"},
     .regexes = {GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
     .regexes = {LLAMA3},
     .ignore_merges = true,
     .add_bos = true},
    {.names = {"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"}, .regexes = {LLAMA3}},
    {.names = {"qwen2"}, .regexes = {QWEN2}, .nfc = true},
    {.names = {"deepseek-r1-qwen", "stablelm2", "hunyuan", "kormo", "grok-2", "solar-open"}, .regexes = {QWEN2}},
    {.names = {"qwen35"}, .regexes = {QWEN35}, .nfc = true},
    {.names = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"},
     .regexes = {"\\p{N}", GPT2}},
    {.names = {"tekken"}, .regexes = {CASED("") "|\\p{N}" SLASH_TAIL}, .ignore_merges = true, .add_bos = true},
    {.names = {"gpt-4o", "llama4", "kanana2", "minimax-m2"},
     .regexes = {CASED(CONTRACTION "?") "|\\p{N}{1,3}" SLASH_TAIL}},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm"},
     .regexes = {"\\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3_WORD}},
    {.names = {"deepseek-coder"},
     .regexes = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[一-龥ࠀ-一가-퟿]+", "\\p{N}"}},
    {.names = {"falcon"}, .regexes = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.names = {"bloom", "poro-chat", "gpt3-finnish"}, .regexes = {BLOOM}},
    {.names = {"viking"}, .regexes = {BLOOM, "\\p{N}"}},
};

const spry_named_pattern *spry_named_pattern_find(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++)
        for (size_t k = 0; k < SPRY_PATTERN_NAMES_MAX && patterns[i].names[k]; k++)
            if (spry_view_is(name, patterns[i].names[k]))
                return &patterns[i];
    return NULL;
}

/* True if two expressions split every text in the same way: they have the same source, or are spellings of one
 * scanner's pattern. Whether 's may have a long s is ignored, because GGUF has one name for both. */
static bool same_regex(spry_view a, spry_view b)
{
    spry_scan x, y;
    if (spry_view_equal(a, b))
        return true;
    return spry_scan_find(&x, a) && spry_scan_find(&y, b) && x.family == y.family && x.max_digits == y.max_digits;
}

static bool splits_alike(const spry_named_pattern *pattern, const spry_view *regexes, size_t count)
{
    if (count > SPRY_NAMED_REGEXES_MAX || (count < SPRY_NAMED_REGEXES_MAX && pattern->regexes[count]))
        return false;
    for (size_t i = 0; i < count; i++)
        if (!pattern->regexes[i] || !same_regex(regexes[i], spry_view_of(pattern->regexes[i])))
            return false;
    return true;
}

const spry_named_pattern *spry_named_pattern_of(const spry_view *regexes, size_t count, bool nfc, bool ignore_merges)
{
    const spry_named_pattern *best = NULL;
    int best_agreement = -1;
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++) {
        int agreement = (patterns[i].nfc == nfc) + (patterns[i].ignore_merges == ignore_merges);
        if (agreement > best_agreement && splits_alike(&patterns[i], regexes, count)) {
            best = &patterns[i];
            best_agreement = agreement;
        }
    }
    return best;
}

void spry_named_pattern_list(spry_buffer *out)
{
    for (size_t i = 0; i < SPRY_COUNT(patterns); i++) {
        spry_buffer_text(out, i ? ", " : "");
        spry_buffer_text(out, patterns[i].names[0]);
    }
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

void spry_splitter_deinit(spry_splitter *splitter)
{
    for (size_t i = 0; i < splitter->count; i++)
        spry_pattern_destroy(splitter->steps[i].pattern);
    splitter->count = 0;
}

spry_status spry_splitter_add(spry_splitter *splitter, spry_view regex, bool literal, spry_split_behavior behavior,
                              bool invert, spry_error *error)
{
    if (splitter->count == SPRY_SPLIT_STEPS_MAX)
        return spry_fail(error, SPRY_ERR_UNSUPPORTED, "the pre-tokenizer has more than %d steps", SPRY_SPLIT_STEPS_MAX);
    spry_split_step step = {.behavior = behavior, .invert = invert};
    /* Every text is covered by matches of these patterns, so exchanging matches and gaps has no effect; removing
     * matches would have one. */
    step.scanned = !literal && behavior == SPRY_SPLIT_ISOLATED && spry_scan_find(&step.scan, regex);
    if (!step.scanned) {
        spry_status status = spry_pattern_create(&step.pattern, regex, literal, error);
        if (status)
            return status;
    }
    splitter->steps[splitter->count++] = step;
    return SPRY_OK;
}

void spry_split_scratch_deinit(spry_split_scratch *scratch)
{
    free(scratch->lists[0].items);
    free(scratch->lists[1].items);
    spry_pattern_scratch_deinit(&scratch->pattern);
    *scratch = (spry_split_scratch){0};
}

static bool push(struct spry_ranges *ranges, size_t begin, size_t end)
{
    if (begin == end)
        return true;
    if (ranges->count == ranges->capacity) {
        size_t capacity = ranges->capacity ? ranges->capacity * 2 : 256;
        spry_text_range *items = realloc(ranges->items, capacity * sizeof *items);
        if (!items)
            return false;
        ranges->items = items;
        ranges->capacity = capacity;
    }
    ranges->items[ranges->count++] = (spry_text_range){begin, end};
    return true;
}

/* The output of a step, and what behaviors need to know about the previous piece. */
typedef struct cutter {
    struct spry_ranges *out;
    const spry_split_step *step;
    size_t first;      /* pieces of the current range start here in `out` */
    bool last_matched; /* the previous piece of this range was a match */
} cutter;

/* Adds a match or a gap, which is the next part of a range. */
static bool cut(cutter *state, size_t begin, size_t end, bool match)
{
    if (begin == end)
        return true;
    match ^= state->step->invert;
    bool has_previous = state->out->count > state->first;
    spry_text_range *previous = has_previous ? &state->out->items[state->out->count - 1] : NULL;
    bool join = false;
    switch (state->step->behavior) {
    case SPRY_SPLIT_ISOLATED: break;
    case SPRY_SPLIT_REMOVED:
        if (match)
            return true;
        break;
    case SPRY_SPLIT_WITH_PREVIOUS: join = match && has_previous && !state->last_matched; break;
    case SPRY_SPLIT_WITH_NEXT: join = !match && has_previous && state->last_matched; break;
    case SPRY_SPLIT_CONTIGUOUS: join = has_previous && match == state->last_matched; break;
    }
    state->last_matched = match;
    if (join) {
        previous->end = end;
        return true;
    }
    return push(state->out, begin, end);
}

static bool scan_range(cutter *state, const spry_unicode *unicode, spry_view text, spry_text_range range)
{
    spry_view part = {text.data, range.end};
    for (size_t at = range.begin; at < range.end;) {
        size_t end = spry_scan_next(&state->step->scan, unicode, part, at);
        if (!push(state->out, at, end))
            return false;
        at = end;
    }
    return true;
}

/* Finds matches like Oniguruma's iterator: an empty match counts unless it directly follows the previous match. */
static spry_status match_range(cutter *state, spry_pattern_scratch *scratch, spry_view text, spry_text_range range,
                               spry_error *error)
{
    spry_view part = {text.data + range.begin, range.end - range.begin};
    size_t done = 0, from = 0, last_match = SIZE_MAX;
    bool ok = true;
    while (ok && from <= part.size) {
        if (spry_interrupted(8))
            return spry_fail(error, SPRY_ERR_CANCELLED, "interrupted while splitting text");
        bool found;
        spry_text_range match;
        spry_status status = spry_pattern_find(state->step->pattern, scratch, part, from, &found, &match, error);
        if (status)
            return status;
        if (!found)
            break;
        if (match.begin == match.end && match.end == last_match) {
            uint32_t character;
            size_t length = spry_utf8_decode(&character, part.data + from, part.size - from);
            from += length ? length : 1;
            continue;
        }
        ok = cut(state, range.begin + done, range.begin + match.begin, false) &&
             cut(state, range.begin + match.begin, range.begin + match.end, true);
        done = from = last_match = match.end;
    }
    ok = ok && cut(state, range.begin + done, range.end, false);
    return ok ? SPRY_OK : spry_fail_memory(error, "splitting text", text.size);
}

spry_status spry_splitter_run(const spry_splitter *splitter, spry_split_scratch *scratch, const spry_unicode *unicode,
                              spry_view text, const spry_text_range **pieces, size_t *count, spry_error *error)
{
    struct spry_ranges *in = &scratch->lists[0], *out = &scratch->lists[1];
    out->count = 0;
    if (!push(out, 0, text.size))
        return spry_fail_memory(error, "splitting text", text.size);
    for (size_t s = 0; s < splitter->count; s++) {
        struct spry_ranges *swap = in;
        in = out;
        out = swap;
        out->count = 0;
        cutter state = {.out = out, .step = &splitter->steps[s]};
        for (size_t i = 0; i < in->count; i++) {
            state.first = out->count;
            state.last_matched = false;
            spry_status status = SPRY_OK;
            if (!state.step->scanned)
                status = match_range(&state, &scratch->pattern, text, in->items[i], error);
            else if (!scan_range(&state, unicode, text, in->items[i]))
                status = spry_fail_memory(error, "splitting text", text.size);
            if (status)
                return status;
        }
    }
    *pieces = out->items;
    *count = out->count;
    return SPRY_OK;
}
