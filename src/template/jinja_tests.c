/* Tests: the names after `is`. */
#include "template/jinja_eval.h"

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
