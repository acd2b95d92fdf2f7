/* Global functions, and tests: the names after `is`. */
#include <stdio.h>
#include <time.h>

#include "template/jinja_eval.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* The tests for a kind of value; `how` is the spry_jinja_kind. */
static spry_jinja_value is_kind(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(f->self.kind == (spry_jinja_kind)f->how);
}

static spry_jinja_value is_defined(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(f->self.kind != SPRY_JINJA_UNDEFINED);
}

/* The tests true (how: 1) and false (0). */
static spry_jinja_value is_boolean(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(f->self.kind == SPRY_JINJA_BOOL && f->self.boolean == (f->how != 0));
}

static spry_jinja_value is_number(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(spry_jinja_is_number(f->self));
}

static spry_jinja_value is_iterable(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(spry_jinja_is_iterable(f->self));
}

/* The test sequence: the value has a length and items. */
static spry_jinja_value is_sequence(const spry_jinja_frame *f)
{
    spry_jinja_value v = f->self;
    return SPRY_JINJA_BOOLEAN(v.kind == SPRY_JINJA_UNDEFINED || v.kind == SPRY_JINJA_STRING ||
                              v.kind == SPRY_JINJA_DICT || (spry_jinja_is_sequence(v) && !v.list->lazy));
}

static spry_jinja_value operand(const spry_jinja_frame *f)
{
    return spry_jinja_arg(f->args, 0, NULL, SPRY_JINJA_NOTHING);
}

enum { ODD, EVEN, DIVISIBLE };

/* The tests on remainders: self % divisor == rest, for integers. */
static spry_jinja_value leaves_rest(const spry_jinja_frame *f)
{
    spry_jinja_value divisor = f->how == DIVISIBLE ? operand(f) : SPRY_JINJA_INTEGER(2);
    spry_jinja_value left = spry_jinja_arithmetic(f->run, SPRY_JINJA_MOD, f->self, divisor);
    return SPRY_JINJA_BOOLEAN(spry_jinja_equal(f->run, left, SPRY_JINJA_INTEGER(f->how == ODD)));
}

/* The tests that compare; `how` is the spry_jinja_sign. */
static spry_jinja_value compares(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(spry_jinja_compare(f->run, (spry_jinja_sign)f->how, f->self, operand(f)));
}

/* The test sameas: the same object; for values without identity, an equal value of the same kind. */
static spry_jinja_value is_same(const spry_jinja_frame *f)
{
    spry_jinja_value other = operand(f);
    return SPRY_JINJA_BOOLEAN(f->self.kind == other.kind && spry_jinja_equal(f->run, f->self, other));
}

/* The tests upper and lower: conversion to this case does not change the text, and conversion to the other case
 * does. */
static spry_jinja_value has_case(const spry_jinja_frame *f)
{
    spry_jinja_value text = spry_jinja_to_string(f->run, f->self);
    if (f->run->status)
        return SPRY_JINJA_NOTHING;
    spry_jinja_case how = (spry_jinja_case)f->how,
                    other = how == SPRY_JINJA_UPPER ? SPRY_JINJA_LOWER : SPRY_JINJA_UPPER;
    return SPRY_JINJA_BOOLEAN(spry_jinja_equal(f->run, text, spry_jinja_change_case(f->run, text, how)) &&
                              !spry_jinja_equal(f->run, text, spry_jinja_change_case(f->run, text, other)));
}

static const spry_jinja_named *find_test(spry_view name);

static spry_jinja_value is_filter(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(f->self.kind == SPRY_JINJA_STRING && spry_jinja_find_filter(spry_jinja_view(f->self)));
}

static spry_jinja_value is_test(const spry_jinja_frame *f)
{
    return SPRY_JINJA_BOOLEAN(f->self.kind == SPRY_JINJA_STRING && find_test(spry_jinja_view(f->self)));
}

static const spry_jinja_named tests[] = {
    {"defined", is_defined, 0},
    {"undefined", is_kind, SPRY_JINJA_UNDEFINED},
    {"none", is_kind, SPRY_JINJA_NONE},
    {"string", is_kind, SPRY_JINJA_STRING},
    {"number", is_number, 0},
    {"integer", is_kind, SPRY_JINJA_INT},
    {"float", is_kind, SPRY_JINJA_FLOAT},
    {"boolean", is_kind, SPRY_JINJA_BOOL},
    {"true", is_boolean, 1},
    {"false", is_boolean, 0},
    {"mapping", is_kind, SPRY_JINJA_DICT},
    {"iterable", is_iterable, 0},
    {"sequence", is_sequence, 0},
    {"callable", is_kind, SPRY_JINJA_CALLABLE},
    {"odd", leaves_rest, ODD},
    {"even", leaves_rest, EVEN},
    {"divisibleby", leaves_rest, DIVISIBLE},
    {"equalto", compares, SPRY_JINJA_EQ},
    {"eq", compares, SPRY_JINJA_EQ},
    {"==", compares, SPRY_JINJA_EQ},
    {"ne", compares, SPRY_JINJA_NE},
    {"!=", compares, SPRY_JINJA_NE},
    {"lt", compares, SPRY_JINJA_LT},
    {"lessthan", compares, SPRY_JINJA_LT},
    {"<", compares, SPRY_JINJA_LT},
    {"le", compares, SPRY_JINJA_LE},
    {"<=", compares, SPRY_JINJA_LE},
    {"gt", compares, SPRY_JINJA_GT},
    {"greaterthan", compares, SPRY_JINJA_GT},
    {">", compares, SPRY_JINJA_GT},
    {"ge", compares, SPRY_JINJA_GE},
    {">=", compares, SPRY_JINJA_GE},
    {"in", compares, SPRY_JINJA_IN},
    {"sameas", is_same, 0},
    {"upper", has_case, SPRY_JINJA_UPPER},
    {"lower", has_case, SPRY_JINJA_LOWER},
    {"filter", is_filter, 0},
    {"test", is_test, 0},
};

static const spry_jinja_named *find_test(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(tests); i++)
        if (spry_view_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}

bool spry_jinja_test(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args)
{
    const spry_jinja_named *test = find_test(name);
    if (run->status)
        return false;
    if (test)
        return spry_jinja_truth(test->call(&(spry_jinja_frame){run, v, args, test->name, test->how, NULL}));
    spry_jinja_fail(run, "there is no test '%.*s'", SPRY_VIEW_ARG(name));
    return false;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

enum { MAX_RANGE = 100000 };

static spry_jinja_value call_range(const spry_jinja_frame *f)
{
    int64_t n[3] = {0, 0, 1};
    for (size_t i = 0; i < f->args->count && i < SPRY_COUNT(n); i++)
        if (!spry_jinja_to_int(f->args->items[i], &n[i]))
            spry_jinja_fail(f->run, "range() takes whole numbers, not a %s", spry_jinja_kind_name(f->args->items[i]));
    if (f->args->count < 1 || f->args->count > SPRY_COUNT(n) || n[2] == 0)
        spry_jinja_fail(f->run, "range() takes one to three numbers, the third not 0");
    if (f->args->count == 1) {
        n[1] = n[0];
        n[0] = 0;
    }
    spry_jinja_list *list = spry_jinja_list_create(f->run, 0);
    for (int64_t i = n[0]; (n[2] > 0 ? i < n[1] : i > n[1]) && !f->run->status;) {
        if (list->count >= MAX_RANGE)
            spry_jinja_fail(f->run, "range() gives more than %d numbers", MAX_RANGE);
        spry_jinja_list_push(f->run, list, SPRY_JINJA_INTEGER(i));
        if (n[2] > 0 ? i > INT64_MAX - n[2] : i < INT64_MIN - n[2])
            break;
        i += n[2];
    }
    return SPRY_JINJA_SEQUENCE(list);
}

/* The functions dict and namespace: the pairs of a dict, or of a list of pairs, then the named arguments. `how` is the
 * kind of the result. */
static spry_jinja_value call_dict(const spry_jinja_frame *f)
{
    spry_jinja_run *run = f->run;
    const spry_jinja_args *args = f->args;
    spry_jinja_dict *dict = spry_jinja_dict_create(run, args->named->count);
    if (args->count && args->items[0].kind == SPRY_JINJA_DICT) {
        const spry_jinja_dict *from = args->items[0].dict;
        for (size_t i = 0; i < from->count && !run->status; i++)
            spry_jinja_dict_set(run, dict, from->entries[i].key, from->entries[i].value);
    } else if (args->count) {
        const spry_jinja_list *pairs = spry_jinja_items(run, args->items[0]);
        for (size_t i = 0; i < pairs->count && !run->status; i++) {
            const spry_jinja_list *pair = spry_jinja_items(run, pairs->items[i]);
            if (pair->count == 2)
                spry_jinja_dict_set(run, dict, pair->items[0], pair->items[1]);
            else
                spry_jinja_fail(run, "a dict is made of pairs");
        }
    }
    for (size_t i = 0; i < args->named->count && !run->status; i++)
        spry_jinja_dict_set(run, dict, args->named->entries[i].key, args->named->entries[i].value);
    return (spry_jinja_value){.kind = (spry_jinja_kind)f->how, .dict = dict};
}

static spry_jinja_value call_raise(const spry_jinja_frame *f)
{
    f->run->refused = true;
    spry_jinja_value text = spry_jinja_to_string(f->run, spry_jinja_arg(f->args, 0, "message", SPRY_JINJA_NOTHING));
    if (text.kind == SPRY_JINJA_STRING)
        spry_jinja_fail(f->run, "%.*s", (int)(text.string->size < 400 ? text.string->size : 400), text.string->data);
    return SPRY_JINJA_NOTHING;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* One conversion of strftime, always in English; false when it is unknown. */
static bool format_time(char *out, size_t size, char letter, const struct tm *t)
{
    static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January", "February", "March",     "April",   "May",      "June",
                                         "July",    "August",   "September", "October", "November", "December"};
    int hour12 = t->tm_hour % 12 ? t->tm_hour % 12 : 12;
    switch (letter) {
    case 'Y': snprintf(out, size, "%d", t->tm_year + 1900); break;
    case 'y': snprintf(out, size, "%02d", t->tm_year % 100); break;
    case 'm': snprintf(out, size, "%02d", t->tm_mon + 1); break;
    case 'd': snprintf(out, size, "%02d", t->tm_mday); break;
    case 'e': snprintf(out, size, "%2d", t->tm_mday); break;
    case 'H': snprintf(out, size, "%02d", t->tm_hour); break;
    case 'I': snprintf(out, size, "%02d", hour12); break;
    case 'M': snprintf(out, size, "%02d", t->tm_min); break;
    case 'S': snprintf(out, size, "%02d", t->tm_sec); break;
    case 'j': snprintf(out, size, "%03d", t->tm_yday + 1); break;
    case 'p': snprintf(out, size, "%s", t->tm_hour < 12 ? "AM" : "PM"); break;
    case 'A': snprintf(out, size, "%s", days[t->tm_wday]); break;
    case 'a': snprintf(out, size, "%.3s", days[t->tm_wday]); break;
    case 'B': snprintf(out, size, "%s", months[t->tm_mon]); break;
    case 'b': snprintf(out, size, "%.3s", months[t->tm_mon]); break;
    case 'w': snprintf(out, size, "%d", t->tm_wday); break;
    case 'F': snprintf(out, size, "%d-%02d-%02d", t->tm_year + 1900, t->tm_mon + 1, t->tm_mday); break;
    case 'T': snprintf(out, size, "%02d:%02d:%02d", t->tm_hour, t->tm_min, t->tm_sec); break;
    case '%': snprintf(out, size, "%%"); break;
    default: return false;
    }
    return true;
}

spry_jinja_value spry_jinja_date(spry_jinja_run *run, spry_view text, const spry_jinja_string *source)
{
    time_t now = (time_t)run->now;
    struct tm t;
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    if (!gmtime_r(&now, &t))
        spry_jinja_fail(run, "the time has no form");
    for (size_t i = 0; i < text.size && !run->status; i++) {
        char piece[64];
        bool bare = text.data[i] == '%' && i + 2 < text.size &&
                    text.data[i + 1] == '-'; /* the conversion has no leading zero */
        size_t letter = i + 1 + bare;
        if (text.data[i] == '%' && letter < text.size && format_time(piece, sizeof piece, text.data[letter], &t)) {
            spry_jinja_append_text(&b, piece + (bare && piece[0] == '0' && piece[1]));
            i = letter;
        } else if (source) {
            spry_jinja_append_part(&b, source, i, i + 1);
        } else {
            spry_jinja_append_text(&b, (char[]){text.data[i], 0});
        }
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value call_strftime_now(const spry_jinja_frame *f)
{
    spry_jinja_value format = spry_jinja_arg(f->args, 0, "format", SPRY_JINJA_NOTHING);
    if (format.kind != SPRY_JINJA_STRING) {
        spry_jinja_fail(f->run, "strftime_now() takes a format");
        return SPRY_JINJA_NOTHING;
    }
    return spry_jinja_date(f->run, spry_jinja_view(format), format.string);
}

spry_jinja_value spry_jinja_global(spry_view name)
{
    static const spry_jinja_callable table[] = {
        {.name = "range", .call = call_range},
        {.name = "dict", .call = call_dict, .how = SPRY_JINJA_DICT},
        {.name = "namespace", .call = call_dict, .how = SPRY_JINJA_NAMESPACE},
        {.name = "raise_exception", .call = call_raise},
        {.name = "strftime_now", .call = call_strftime_now},
    };
    for (size_t i = 0; i < SPRY_COUNT(table); i++)
        if (spry_view_is(name, table[i].name))
            return (spry_jinja_value){.kind = SPRY_JINJA_CALLABLE, .callable = &table[i]};
    return SPRY_JINJA_NOTHING;
}
