/* JSON in C strings, with ' for ". Include after cmocka.h. */
#ifndef SPRY_TESTS_QUOTED_JSON_H
#define SPRY_TESTS_QUOTED_JSON_H

#include <jansson.h>
#include <string.h>

static inline json_t *quoted_json(const char *text)
{
    char copy[4096];
    size_t size = strlen(text);
    assert_true(size < sizeof copy);
    for (size_t i = 0; i <= size; i++)
        copy[i] = (char)(text[i] == '\'' ? '"' : text[i]);
    json_error_t why;
    json_t *json = json_loads(copy, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, &why);
    if (!json)
        fail_msg("%s in %s", why.text, text);
    return json;
}

/* Sets the members of `changes` in `json`; the string "-" takes one out. */
static inline void quoted_json_change(json_t *json, const char *changes)
{
    json_t *edits = quoted_json(changes), *value;
    const char *key;
    json_object_foreach(edits, key, value)
    {
        if (json_is_string(value) && !strcmp(json_string_value(value), "-"))
            json_object_del(json, key);
        else
            json_object_set(json, key, value);
    }
    json_decref(edits);
}

#endif
