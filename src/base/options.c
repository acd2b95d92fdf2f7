/* Reads values from a command line, from variables, or one at a time by JSON key. All end in store(), so they accept
 * the same values and refuse the others with the same message; only the spelling of the name differs. */
#include "base/options.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"

enum { NAME_MAX_SHOWN = 64 };

typedef enum spelling { AS_FLAG, AS_KEY, AS_VARIABLE } spelling;

/* ---- names ----------------------------------------------------------------------------------------------------- */

void spry_options_key(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s", name);
    for (char *c = out; *c; c++)
        if (*c == '-')
            *c = '_';
}

void spry_options_variable(char *out, size_t size, const char *name)
{
    snprintf(out, size, "SPRY_%s", name);
    for (char *c = out; *c; c++)
        *c = *c == '-' ? '_' : *c >= 'a' && *c <= 'z' ? (char)(*c - 'a' + 'A') : *c;
}

static void spell(char out[NAME_MAX_SHOWN], const char *name, spelling how)
{
    if (how == AS_KEY)
        spry_options_key(out, NAME_MAX_SHOWN, name);
    else if (how == AS_VARIABLE)
        spry_options_variable(out, NAME_MAX_SHOWN, name);
    else
        snprintf(out, NAME_MAX_SHOWN, "--%s", name);
}

static bool name_is(const char *name, spry_view given, spelling how)
{
    if (!name || strlen(name) != given.size)
        return false;
    for (size_t i = 0; i < given.size; i++)
        if (given.data[i] != (how == AS_KEY && name[i] == '-' ? '_' : name[i]))
            return false;
    return true;
}

static const spry_option *find(const spry_option_table *table, spry_view given, spelling how)
{
    for (size_t i = 0; i < table->count; i++)
        if (name_is(table->options[i].name, given, how) || name_is(table->options[i].alias, given, how))
            return &table->options[i];
    return NULL;
}

const spry_option *spry_options_find(const spry_option_table *table, const char *key)
{
    return find(table, spry_view_of(key), AS_KEY);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Number of letters to insert, delete, replace or transpose; SIZE_MAX for names too long to compare. Dashes and
 * underscores are equal. */
static size_t edit_distance(spry_view given, const char *name)
{
    size_t rows[3][NAME_MAX_SHOWN + 1], n = strlen(name);
    if (given.size > NAME_MAX_SHOWN || n > NAME_MAX_SHOWN)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= given.size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            char a = given.data[i - 1] == '_' ? '-' : given.data[i - 1];
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (a != name[j - 1]));
            if (i > 1 && j > 1 && a == name[j - 2] && given.data[i - 2] == name[j - 1])
                row[j] = least(row[j], second[j - 2] + 1);
        }
    }
    return rows[given.size % 3][n];
}

const char *spry_options_nearest(const spry_option_table *tables, size_t n_tables, spry_view given)
{
    const char *best = NULL;
    size_t best_distance = least(given.size / 3 + 1, 3) + 1;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < tables[t].count; i++) {
            const char *const names[] = {tables[t].options[i].name, tables[t].options[i].alias};
            for (size_t k = 0; k < SPRY_COUNT(names) && names[k]; k++) {
                size_t distance = edit_distance(given, names[k]);
                if (distance < best_distance && distance < strlen(names[k])) {
                    best = names[k];
                    best_distance = distance;
                }
            }
        }
    }
    return best;
}

spry_status spry_options_unknown(const spry_option_table *table, const char *key, spry_error *error)
{
    const char *near = spry_options_nearest(table, 1, spry_view_of(key));
    if (!near)
        return spry_fail(error, SPRY_ERR_INPUT, "unknown setting \"%.100s\"", key);
    char name[NAME_MAX_SHOWN];
    spell(name, near, AS_KEY);
    return spry_fail(error, SPRY_ERR_INPUT, "unknown setting \"%.100s\"; did you mean \"%s\"?", key, name);
}

bool spry_options_misspelt(char *out, size_t size, const spry_option_table *tables, size_t n_tables,
                           const char *variable)
{
    enum { SHORTEST = 5, LONG = 8 }; /* letters: shorter names are close to others by chance */
    static const char prefix[] = "SPRY_";
    char name[NAME_MAX_SHOWN];
    if (strncmp(variable, prefix, sizeof prefix - 1) != 0)
        return false;
    snprintf(name, sizeof name, "%s", variable + sizeof prefix - 1);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c >= 'A' && *c <= 'Z' ? (char)(*c - 'A' + 'a') : *c;
    const spry_view given = spry_view_of(name);
    const char *near = spry_options_nearest(tables, n_tables, given);
    if (!near || given.size < SHORTEST || near[0] != name[0] ||
        edit_distance(given, near) > (given.size < LONG ? 1 : 2))
        return false;
    const spry_option *option = NULL;
    for (size_t t = 0; t < n_tables && !option; t++)
        option = find(&tables[t], spry_view_of(near), AS_FLAG);
    spry_options_variable(out, size, option->name);
    return !option->flag_only && strcmp(out, variable) != 0;
}

/* ---- values ---------------------------------------------------------------------------------------------------- */

static bool is_bounded(const spry_option *option)
{
    return option->min != 0 || option->max != 0;
}

static uint64_t largest_whole(const spry_option *option)
{
    return option->kind == SPRY_OPTION_U32 ? UINT32_MAX : option->kind == SPRY_OPTION_SIZE ? SIZE_MAX : UINT64_MAX;
}

static void list_choices(char *out, size_t size, const spry_option *option)
{
    int used = snprintf(out, size, "one of");
    for (const char *const *choice = option->choices; *choice && used >= 0 && (size_t)used < size; choice++)
        used += snprintf(out + used, size - (size_t)used, "%s %s", choice == option->choices ? "" : ",", *choice);
}

static void print_bound(char out[SPRY_NUMBER_TEXT], const spry_option *option, double bound)
{
    if (option->kind == SPRY_OPTION_SIZE && bound >= 0 && bound < 0x1p63)
        spry_number_print_bytes(out, (uint64_t)bound);
    else
        spry_number_print(out, bound);
}

static void name_range(char *out, size_t size, const spry_option *option, const char *what)
{
    char low[SPRY_NUMBER_TEXT], high[SPRY_NUMBER_TEXT];
    print_bound(low, option, option->min);
    print_bound(high, option, option->max);
    if (is_bounded(option))
        snprintf(out, size, "%s from %s to %s", what, low, high);
    else if (option->kind == SPRY_OPTION_FLOAT)
        snprintf(out, size, "%s", what);
    else
        snprintf(out, size, "%s up to %" PRIu64, what, largest_whole(option));
}

void spry_options_values(char *out, size_t size, const spry_option *option)
{
    switch (option->kind) {
    case SPRY_OPTION_FLAG: snprintf(out, size, "true or false"); break;
    case SPRY_OPTION_U32:
    case SPRY_OPTION_U64: name_range(out, size, option, "a whole number"); break;
    case SPRY_OPTION_SIZE: name_range(out, size, option, "a size in bytes, or with K, M, G or T,"); break;
    case SPRY_OPTION_FLOAT: name_range(out, size, option, "a number"); break;
    case SPRY_OPTION_STRING: snprintf(out, size, "text"); break;
    case SPRY_OPTION_CHOICE: list_choices(out, size, option); break;
    case SPRY_OPTION_LIST: snprintf(out, size, "text, any number of times"); break;
    }
}

static spry_status refuse(const spry_option *option, const char *text, spelling how, spry_error *error)
{
    char name[NAME_MAX_SHOWN], values[SPRY_OPTION_VALUES_MAX];
    spell(name, option->name, how);
    spry_options_values(values, sizeof values, option);
    return spry_fail(error, SPRY_ERR_INPUT, "%s is '%.100s', but must be %s", name, text, values);
}

static bool whole_in_range(const spry_option *option, uint64_t value)
{
    return value <= largest_whole(option) &&
           (!is_bounded(option) || ((double)value >= option->min && (double)value <= option->max));
}

/* Bounds are rounded to float like the value, so that 0.1 is not above 0.1. */
static bool float_in_range(const spry_option *option, float value)
{
    return isfinite(value) && (!is_bounded(option) || (value >= (float)option->min && value <= (float)option->max));
}

/* `digits`: 0 and 1 count, too, as is usual in variables. */
static bool read_bool(bool *out, const char *text, bool digits)
{
    static const char *const words[] = {"false", "true", "off", "on", "no", "yes", "0", "1"};
    for (size_t i = 0; i < SPRY_COUNT(words) - (digits ? 0 : 2); i++) {
        if (strcmp(text, words[i]) == 0) {
            *out = i % 2 != 0;
            return true;
        }
    }
    return false;
}

static bool store_whole(void *field, const spry_option *option, const char *text)
{
    uint64_t value;
    spry_view view = spry_view_of(text);
    bool read = option->kind == SPRY_OPTION_SIZE ? spry_number_bytes(&value, view) : spry_number_u64(&value, view);
    if (!read || !whole_in_range(option, value))
        return false;
    uint32_t narrow = (uint32_t)value;
    size_t bytes = (size_t)value;
    switch (option->kind) {
    case SPRY_OPTION_U32: memcpy(field, &narrow, sizeof narrow); break;
    case SPRY_OPTION_SIZE: memcpy(field, &bytes, sizeof bytes); break;
    default: memcpy(field, &value, sizeof value); break;
    }
    return true;
}

static bool store_float(void *field, const spry_option *option, const char *text)
{
    double value;
    if (!spry_number_double(&value, spry_view_of(text)) || fabs(value) > (double)FLT_MAX)
        return false;
    float narrow = (float)value;
    if (!float_in_range(option, narrow))
        return false;
    memcpy(field, &narrow, sizeof narrow);
    return true;
}

static bool store_choice(void *field, const spry_option *option, const char *text)
{
    for (const char *const *choice = option->choices; *choice; choice++) {
        if (strcmp(*choice, text) == 0) {
            memcpy(field, choice, sizeof *choice);
            return true;
        }
    }
    return false;
}

static bool append(spry_option_list *list, const char *text)
{
    if (list->count >= list->capacity)
        return false;
    list->items[list->count++] = text;
    return true;
}

static spry_status store(const spry_option_table *table, const spry_option *option, const char *text, spelling how,
                         spry_error *error)
{
    void *field = (char *)table->target + option->offset;
    bool stored = false;
    switch (option->kind) {
    case SPRY_OPTION_FLAG: {
        bool value;
        if ((stored = read_bool(&value, text, how == AS_VARIABLE)))
            memcpy(field, &value, sizeof value);
        break;
    }
    case SPRY_OPTION_U32:
    case SPRY_OPTION_U64:
    case SPRY_OPTION_SIZE: stored = store_whole(field, option, text); break;
    case SPRY_OPTION_FLOAT: stored = store_float(field, option, text); break;
    case SPRY_OPTION_CHOICE: stored = store_choice(field, option, text); break;
    case SPRY_OPTION_STRING:
        memcpy(field, &text, sizeof text);
        stored = true;
        break;
    case SPRY_OPTION_LIST:
        if (!(stored = append(field, text))) {
            char name[NAME_MAX_SHOWN];
            spell(name, option->name, how);
            return spry_fail(error, SPRY_ERR_INPUT, "%s may be given at most %zu times", name,
                             ((const spry_option_list *)field)->capacity);
        }
        break;
    }
    return stored ? SPRY_OK : refuse(option, text, how, error);
}

size_t spry_option_bytes(const spry_option *option)
{
    switch (option->kind) {
    case SPRY_OPTION_FLAG: return sizeof(bool);
    case SPRY_OPTION_U32: return sizeof(uint32_t);
    case SPRY_OPTION_U64: return sizeof(uint64_t);
    case SPRY_OPTION_SIZE: return sizeof(size_t);
    case SPRY_OPTION_FLOAT: return sizeof(float);
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE: return sizeof(const char *);
    case SPRY_OPTION_LIST: return sizeof(spry_option_list);
    }
    return 0;
}

spry_status spry_options_set(const spry_option_table *table, const char *key, const char *text, spry_error *error)
{
    const spry_option *option = spry_options_find(table, key);
    return option ? store(table, option, text, AS_KEY, error) : spry_options_unknown(table, key, error);
}

spry_status spry_options_variables(const spry_option_table *tables, size_t n_tables, spry_options_lookup lookup,
                                   spry_error *error)
{
    spry_status status = SPRY_OK;
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; !status && i < tables[t].count; i++) {
            const spry_option *option = &tables[t].options[i];
            char name[NAME_MAX_SHOWN];
            spry_options_variable(name, sizeof name, option->name);
            const char *value = option->flag_only ? NULL : lookup(name);
            if (value)
                status = store(&tables[t], option, value, AS_VARIABLE, error);
        }
    }
    return status;
}

static bool field_in_range(const spry_option *option, const void *field)
{
    uint32_t narrow;
    uint64_t wide;
    size_t bytes;
    float real;
    switch (option->kind) {
    case SPRY_OPTION_U32: memcpy(&narrow, field, sizeof narrow); return whole_in_range(option, narrow);
    case SPRY_OPTION_U64: memcpy(&wide, field, sizeof wide); return whole_in_range(option, wide);
    case SPRY_OPTION_SIZE: memcpy(&bytes, field, sizeof bytes); return whole_in_range(option, bytes);
    case SPRY_OPTION_FLOAT: memcpy(&real, field, sizeof real); return float_in_range(option, real);
    default: return true;
    }
}

spry_status spry_options_check(const spry_option_table *table, spry_error *error)
{
    for (size_t i = 0; i < table->count; i++) {
        const spry_option *option = &table->options[i];
        if (field_in_range(option, (const char *)table->target + option->offset))
            continue;
        char text[SPRY_NUMBER_TEXT];
        spry_options_print(text, sizeof text, table, option);
        return refuse(option, text, AS_KEY, error);
    }
    return SPRY_OK;
}

/* ---- the command line ------------------------------------------------------------------------------------------ */

/* An option as written on the command line. */
typedef struct found_option {
    const spry_option_table *table;
    const spry_option *option;
    bool negated; /* --no-name */
} found_option;

static bool find_long(found_option *out, const spry_option_table *tables, size_t n_tables, spry_view name)
{
    const spry_view no = SPRY_VIEW("no-");
    for (size_t i = 0; i < n_tables; i++) {
        const spry_option *option = find(&tables[i], name, AS_FLAG);
        bool negated = !option && spry_view_starts(name, no);
        if (negated)
            option = find(&tables[i], (spry_view){name.data + no.size, name.size - no.size}, AS_FLAG);
        if (option && (!negated || option->kind == SPRY_OPTION_FLAG)) {
            *out = (found_option){&tables[i], option, negated};
            return true;
        }
    }
    return false;
}

/* -n, or with its value -n5 or -n=5; a flag has no value attached. */
static bool find_letter(found_option *out, const char **value, const spry_option_table *tables, size_t n_tables,
                        const char *argument)
{
    for (size_t i = 0; i < n_tables; i++)
        for (size_t k = 0; k < tables[i].count; k++) {
            const spry_option *option = &tables[i].options[k];
            if (option->letter != argument[1] || (argument[2] && option->kind == SPRY_OPTION_FLAG))
                continue;
            *out = (found_option){&tables[i], option, false};
            *value = argument[2] ? argument + 2 + (argument[2] == '=') : NULL;
            return true;
        }
    return false;
}

static spry_status unknown_flag(const spry_option_table *tables, size_t n_tables, spry_view name, spry_error *error)
{
    const char *near = spry_options_nearest(tables, n_tables, name);
    if (near)
        return spry_fail(error, SPRY_ERR_INPUT, "unknown option --%.*s; did you mean --%s?", SPRY_VIEW_ARG(name), near);
    return spry_fail(error, SPRY_ERR_INPUT, "unknown option --%.*s", SPRY_VIEW_ARG(name));
}

/* Parses the option at argv[*at] and its value; *at becomes the index of the last argument used. */
static spry_status parse_option(const spry_option_table *tables, size_t n_tables, int *at, int argc, char *const *argv,
                                spry_error *error)
{
    const char *argument = argv[*at], *value = NULL;
    found_option found;
    if (argument[1] != '-') {
        if (!find_letter(&found, &value, tables, n_tables, argument))
            return spry_fail(error, SPRY_ERR_INPUT, "unknown option %.100s", argument);
    } else {
        const char *equals = strchr(argument, '=');
        spry_view name = {argument + 2, equals ? (size_t)(equals - argument - 2) : strlen(argument + 2)};
        if (!find_long(&found, tables, n_tables, name))
            return unknown_flag(tables, n_tables, name, error);
        value = equals ? equals + 1 : NULL;
    }
    const spry_option *option = found.option;
    if (found.negated && value)
        return spry_fail(error, SPRY_ERR_INPUT, "--no-%s takes no value", option->name);
    if (option->kind == SPRY_OPTION_FLAG && !value)
        value = found.negated ? "false" : "true";
    if (!value && *at + 1 < argc && strncmp(argv[*at + 1], "--", 2) != 0)
        value = argv[++*at];
    if (!value) {
        char values[SPRY_OPTION_VALUES_MAX];
        spry_options_values(values, sizeof values, option);
        return spry_fail(error, SPRY_ERR_INPUT, "--%s needs a value: %s", option->name, values);
    }
    return store(found.table, option, value, AS_FLAG, error);
}

spry_status spry_options_parse(const spry_option_table *tables, size_t n_tables, spry_option_list *positionals,
                               int argc, char *const *argv, spry_error *error)
{
    bool options_ended = false;
    for (int i = 1; i < argc; i++) {
        if (options_ended || argv[i][0] != '-' || argv[i][1] == 0) {
            if (!positionals || !append(positionals, argv[i]))
                return spry_fail(error, SPRY_ERR_INPUT, "unexpected argument '%.100s'", argv[i]);
        } else if (strcmp(argv[i], "--") == 0) {
            options_ended = true;
        } else {
            spry_status status = parse_option(tables, n_tables, &i, argc, argv, error);
            if (status != SPRY_OK)
                return status;
        }
    }
    return SPRY_OK;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* A JSON value is converted to the text a command line would contain, so that both are validated by the same code. */

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

json_t *spry_options_get_json(const spry_option_table *table, const spry_option *option)
{
    const void *field = (const char *)table->target + option->offset;
    const spry_option_list *list = field;
    char text[SPRY_NUMBER_TEXT];
    const char *string;
    json_t *array;
    uint64_t whole;
    double real;
    switch (option->kind) {
    case SPRY_OPTION_STRING:
    case SPRY_OPTION_CHOICE: memcpy(&string, field, sizeof string); return string ? json_string(string) : json_null();
    case SPRY_OPTION_LIST:
        array = json_array();
        for (size_t i = 0; array && i < list->count; i++)
            json_array_append_new(array, json_string(list->items[i]));
        return array;
    default: break;
    }
    spry_options_print(text, sizeof text, table, option);
    if (option->kind == SPRY_OPTION_FLAG)
        return json_boolean(strcmp(text, "true") == 0);
    if (option->kind == SPRY_OPTION_FLOAT)
        return spry_number_double(&real, spry_view_of(text)) ? json_real(real) : json_null();
    if (option->kind == SPRY_OPTION_SIZE)
        return json_string(text);
    if (!spry_number_u64(&whole, spry_view_of(text)))
        return json_null();
    return whole <= INT64_MAX ? json_integer((json_int_t)whole) : json_string(text);
}
