/* Global functions, and tests: the names after `is`. */
#include <stdio.h>
#include <time.h>

#include "template/jinja_eval.h"

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Tests: the names after `is`. */

typedef bool test(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args);

static spry_jinja_value operand(const spry_jinja_args *args)
{
    return spry_jinja_arg(args, 0, NULL, SPRY_JINJA_NOTHING);
}

static bool is_defined(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind != SPRY_JINJA_UNDEFINED;
}

static bool is_undefined(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return !is_defined(run, v, args);
}

static bool is_none(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_NONE;
}

static bool is_string(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_STRING;
}

static bool is_number(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return spry_jinja_is_number(v);
}

static bool is_integer(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_INT;
}

static bool is_float(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_FLOAT;
}

static bool is_boolean(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_BOOL;
}

static bool is_true(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return is_boolean(run, v, args) && v.boolean;
}

static bool is_false(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return is_boolean(run, v, args) && !v.boolean;
}

static bool is_mapping(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_DICT;
}

static bool is_iterable(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return spry_jinja_is_iterable(v);
}

/* Has a length and items. */
static bool is_sequence(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_UNDEFINED || v.kind == SPRY_JINJA_STRING || v.kind == SPRY_JINJA_DICT ||
           (spry_jinja_is_sequence(v) && !v.list->lazy);
}

static bool is_callable(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)run, (void)args;
    return v.kind == SPRY_JINJA_CALLABLE;
}

/* v % divisor == rest, for integers. */
static bool leaves(spry_jinja_run *run, spry_jinja_value v, spry_jinja_value divisor, int64_t rest)
{
    spry_jinja_value left = spry_jinja_arithmetic(run, SPRY_JINJA_MOD, v, divisor);
    return spry_jinja_equal(run, left, SPRY_JINJA_INTEGER(rest));
}

static bool is_odd(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return leaves(run, v, SPRY_JINJA_INTEGER(2), 1);
}

static bool is_even(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return leaves(run, v, SPRY_JINJA_INTEGER(2), 0);
}

static bool is_divisible(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return leaves(run, v, operand(args), 0);
}

static bool is_equal(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_EQ, v, operand(args));
}

static bool is_unequal(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_NE, v, operand(args));
}

static bool is_less(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_LT, v, operand(args));
}

static bool is_less_equal(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_LE, v, operand(args));
}

static bool is_greater(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_GT, v, operand(args));
}

static bool is_greater_equal(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_GE, v, operand(args));
}

static bool is_in(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_compare(run, SPRY_JINJA_IN, v, operand(args));
}

/* The same object; for values without identity: an equal value of the same kind. */
static bool is_same(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value other = operand(args);
    return v.kind == other.kind && spry_jinja_equal(run, v, other);
}

static bool has_case(spry_jinja_run *run, spry_jinja_value v, spry_jinja_case how)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    if (run->status)
        return false;
    spry_jinja_case other = how == SPRY_JINJA_UPPER ? SPRY_JINJA_LOWER : SPRY_JINJA_UPPER;
    return spry_jinja_equal(run, text, spry_jinja_change_case(run, text, how)) &&
           !spry_jinja_equal(run, text, spry_jinja_change_case(run, text, other));
}

static bool is_upper(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return has_case(run, v, SPRY_JINJA_UPPER);
}

static bool is_lower(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return has_case(run, v, SPRY_JINJA_LOWER);
}

static bool is_filter(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return is_string(run, v, args) && spry_jinja_has_filter(spry_jinja_view(v));
}

static bool is_test(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return is_string(run, v, args) && spry_jinja_has_test(spry_jinja_view(v));
}

static const struct {
    const char *name;
    test *call;
} tests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_string},
    {"number", is_number},
    {"integer", is_integer},
    {"float", is_float},
    {"boolean", is_boolean},
    {"true", is_true},
    {"false", is_false},
    {"mapping", is_mapping},
    {"iterable", is_iterable},
    {"sequence", is_sequence},
    {"callable", is_callable},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"equalto", is_equal},
    {"eq", is_equal},
    {"==", is_equal},
    {"ne", is_unequal},
    {"!=", is_unequal},
    {"lt", is_less},
    {"lessthan", is_less},
    {"<", is_less},
    {"le", is_less_equal},
    {"<=", is_less_equal},
    {"gt", is_greater},
    {"greaterthan", is_greater},
    {">", is_greater},
    {"ge", is_greater_equal},
    {">=", is_greater_equal},
    {"in", is_in},
    {"sameas", is_same},
    {"upper", is_upper},
    {"lower", is_lower},
    {"filter", is_filter},
    {"test", is_test},
};

static test *find_test(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(tests); i++)
        if (spry_view_is(name, tests[i].name))
            return tests[i].call;
    return NULL;
}

bool spry_jinja_has_test(spry_view name)
{
    return find_test(name) != NULL;
}

bool spry_jinja_test(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args)
{
    test *call = find_test(name);
    if (run->status)
        return false;
    if (call)
        return call(run, v, args);
    spry_jinja_fail(run, "there is no test '%.*s'", SPRY_VIEW_ARG(name));
    return false;
}

/* ---- functions --------------------------------------------------------------------------------------------------- */

/* Global functions. */

enum { MAX_RANGE = 100000 };

static spry_jinja_value call_range(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    int64_t n[3] = {0, 0, 1};
    (void)callee;
    for (size_t i = 0; i < args->count && i < SPRY_COUNT(n); i++)
        if (!spry_jinja_to_int(args->items[i], &n[i]))
            spry_jinja_fail(run, "range() takes whole numbers, not a %s", spry_jinja_kind_name(args->items[i]));
    if (args->count < 1 || args->count > SPRY_COUNT(n) || n[2] == 0)
        spry_jinja_fail(run, "range() takes one to three numbers, the third not 0");
    if (args->count == 1) {
        n[1] = n[0];
        n[0] = 0;
    }
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    for (int64_t i = n[0]; (n[2] > 0 ? i < n[1] : i > n[1]) && !run->status;) {
        if (list->count >= MAX_RANGE)
            spry_jinja_fail(run, "range() gives more than %d numbers", MAX_RANGE);
        spry_jinja_list_push(run, list, SPRY_JINJA_INTEGER(i));
        if (n[2] > 0 ? i > INT64_MAX - n[2] : i < INT64_MIN - n[2])
            break;
        i += n[2];
    }
    return SPRY_JINJA_SEQUENCE(list);
}

/* The pairs of a dict, or of a list of pairs, then the named arguments. */
static spry_jinja_dict *gather(spry_jinja_run *run, const spry_jinja_args *args)
{
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
    return dict;
}

static spry_jinja_value call_dict(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    (void)callee;
    return SPRY_JINJA_DICT_OF(gather(run, args));
}

static spry_jinja_value call_namespace(spry_jinja_run *run, const spry_jinja_callable *callee,
                                       const spry_jinja_args *args)
{
    (void)callee;
    return (spry_jinja_value){.kind = SPRY_JINJA_NAMESPACE, .dict = gather(run, args)};
}

static spry_jinja_value call_raise(spry_jinja_run *run, const spry_jinja_callable *callee, const spry_jinja_args *args)
{
    (void)callee;
    spry_jinja_value text = spry_jinja_to_string(run, spry_jinja_arg(args, 0, "message", SPRY_JINJA_NOTHING));
    if (text.kind == SPRY_JINJA_STRING)
        spry_jinja_fail(run, "%.*s", (int)(text.string->size < 400 ? text.string->size : 400), text.string->data);
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

/* The time of the run in a format. */
static spry_jinja_value format_now(spry_jinja_run *run, spry_view text, const spry_jinja_string *source)
{
    time_t now = (time_t)run->now;
    struct tm t;
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    if (!gmtime_r(&now, &t))
        spry_jinja_fail(run, "the time has no form");
    for (size_t i = 0; i < text.size && !run->status; i++) {
        char piece[64];
        bool bare = text.data[i] == '%' && i + 2 < text.size && text.data[i + 1] == '-'; /* no leading zero */
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

spry_jinja_value spry_jinja_date(spry_jinja_run *run, spry_view format)
{
    return format_now(run, format, NULL);
}

static spry_jinja_value call_strftime_now(spry_jinja_run *run, const spry_jinja_callable *callee,
                                          const spry_jinja_args *args)
{
    spry_jinja_value format = spry_jinja_arg(args, 0, "format", SPRY_JINJA_NOTHING);
    (void)callee;
    if (format.kind != SPRY_JINJA_STRING) {
        spry_jinja_fail(run, "strftime_now() takes a format");
        return SPRY_JINJA_NOTHING;
    }
    return format_now(run, spry_jinja_view(format), format.string);
}

spry_jinja_value spry_jinja_global(spry_view name)
{
    static const spry_jinja_callable table[] = {
        {.name = "range", .call = call_range},
        {.name = "dict", .call = call_dict},
        {.name = "namespace", .call = call_namespace},
        {.name = "raise_exception", .call = call_raise},
        {.name = "strftime_now", .call = call_strftime_now},
    };
    for (size_t i = 0; i < SPRY_COUNT(table); i++)
        if (spry_view_is(name, table[i].name))
            return (spry_jinja_value){.kind = SPRY_JINJA_CALLABLE, .callable = &table[i]};
    return SPRY_JINJA_NOTHING;
}
