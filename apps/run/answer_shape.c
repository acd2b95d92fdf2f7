/* Converts one of four flags to a constraint and its text. */
#include "run/answer_shape.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "platform/file.h"

/* "a,b,c" as a JSON array of strings. */
static spry_status choices(spry_buffer *text, const char *list, spry_error *error)
{
    json_t *array = json_array();
    while (array) {
        size_t length = strcspn(list, ",");
        if (json_array_append_new(array, json_stringn(list, length)))
            break;
        list += length;
        if (!*list++)
            break;
    }
    char *dumped = json_dumps(array, 0);
    spry_buffer_text(text, dumped ? dumped : "");
    free(dumped);
    json_decref(array);
    return text->size ? SPRY_OK : spry_fail(error, SPRY_ERR_INPUT, "--choice is not valid UTF-8, or memory is short");
}

spry_status spry_answer_shape(spry_constraint *constraint, spry_buffer *text, const spry_answer_flags *flags,
                              spry_error *error)
{
    const struct {
        const char *value;
        spry_constraint kind;
        bool is_file;
    } ways[] = {{flags->schema_file, SPRY_JSON_SCHEMA, true},
                {flags->grammar_file, SPRY_GBNF, true},
                {flags->regex, SPRY_REGEX, false},
                {flags->choice, SPRY_CHOICE, false}};
    const char *value = NULL;
    bool is_file = false;
    *constraint = SPRY_ANY_TEXT;
    for (size_t i = 0; i < SPRY_COUNT(ways); i++) {
        if (ways[i].value && value)
            return spry_fail(error, SPRY_ERR_INPUT,
                             "--json-schema, --grammar, --regex and --choice: only one of them can be given");
        if (!ways[i].value)
            continue;
        *constraint = ways[i].kind;
        value = ways[i].value;
        is_file = ways[i].is_file;
    }
    if (!value)
        return SPRY_OK;
    if (*constraint == SPRY_CHOICE)
        return choices(text, value, error);
    if (is_file)
        return spry_file_read(text, value, error);
    spry_buffer_text(text, value);
    return text->failed ? spry_fail_memory(error, "a pattern", strlen(value)) : SPRY_OK;
}
