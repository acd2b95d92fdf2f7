/* Converts a JSON value to the text a command line would contain, so that both are validated by the same code. */
#include "base/options_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "true or false";
    case JSON_NULL: return "null";
    }
    return "unknown";
}

static bool fits(const spry_option *option, const json_t *value)
{
    switch (option->kind) {
    case SPRY_OPTION_FLAG: return json_is_boolean(value);
    case SPRY_OPTION_U32:
    case SPRY_OPTION_FLOAT: return json_is_number(value);
    case SPRY_OPTION_U64:
    case SPRY_OPTION_SIZE: return json_is_number(value) || json_is_string(value);
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE:
    case SPRY_OPTION_LIST: return json_is_string(value);
    }
    return false;
}

static spry_status wrong_type(const spry_option *option, const char *key, const json_t *value, spry_error *error)
{
    char values[SPRY_OPTION_VALUES_MAX];
    spry_options_values(values, sizeof values, option);
    return spry_fail(error, SPRY_ERR_INPUT, "%.100s is %s, but must be %s", key, type_name(value), values);
}

static spry_status set_scalar(const spry_option_table *table, const spry_option *option, const char *key,
                              const json_t *value, spry_error *error)
{
    if (!fits(option, value))
        return wrong_type(option, key, value, error);
    char number[SPRY_NUMBER_TEXT];
    const char *text = number;
    if (json_is_string(value)) {
        text = json_string_value(value);
        if (strlen(text) != json_string_length(value))
            return spry_fail(error, SPRY_ERR_INPUT, "%.100s has a zero byte in its text", key);
    } else if (json_is_boolean(value)) {
        text = json_is_true(value) ? "true" : "false";
    } else if (json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else {
        spry_number_print(number, json_real_value(value));
    }
    return spry_options_set(table, key, text, error);
}

static spry_status set_list(const spry_option_table *table, const spry_option *option, const char *key,
                            const json_t *value, spry_error *error)
{
    ((spry_option_list *)((char *)table->target + option->offset))->count = 0;
    if (!json_is_array(value))
        return set_scalar(table, option, key, value, error);
    size_t i;
    json_t *item;
    json_array_foreach(value, i, item)
    {
        spry_status status = set_scalar(table, option, key, item, error);
        if (status != SPRY_OK)
            return status;
    }
    return SPRY_OK;
}

spry_status spry_options_set_json(const spry_option_table *table, const char *key, const json_t *value,
                                  spry_error *error)
{
    const spry_option *option = spry_options_find(table, key);
    if (!option)
        return spry_options_unknown(table, key, error);
    if (json_is_null(value))
        return SPRY_OK;
    if (option->kind == SPRY_OPTION_LIST)
        return set_list(table, option, key, value, error);
    return set_scalar(table, option, key, value, error);
}
