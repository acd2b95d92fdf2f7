/* Oniguruma and PCRE2 differ in three features used by published patterns: \s (PCRE2 adds U+180E to White_Space), a
 * bracket inside a character class (a nested set there, a plain character here), and && inside a class (intersection,
 * which PCRE2 10.42 lacks). */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "tokenizer/pattern_pcre.h"

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

/* The state of a translation between characters. */
typedef struct translation {
    spry_buffer *out;
    size_t depth; /* of brackets */
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

/* Translates a '[' outside any class, including a '^' and a literal ']' that may follow. */
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
        status = spry_fail(error, SPRY_ERR_FORMAT, "the pattern \"%.*s\" cannot be compiled: %s", SPRY_VIEW_ARG(regex),
                           reason);
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
    *found = ends[0] >= from && ends[1] >= ends[0]; /* \K could move the start */
    return SPRY_OK;
}
