/* Arithmetic, comparisons, indexes and slices with Python's semantics. Integers have 64 bits; overflow is an error. */
#include <math.h>

#include "template/jinja_eval.h"

/* ---- arithmetic -------------------------------------------------------------------------------------------------- */

static spry_jinja_value too_large(spry_jinja_run *run)
{
    spry_jinja_fail(run, "a whole number does not fit 64 bits");
    return SPRY_JINJA_NOTHING;
}

static bool fits_add(int64_t a, int64_t b)
{
    return b >= 0 ? a <= INT64_MAX - b : a >= INT64_MIN - b;
}

static bool fits_mul(int64_t a, int64_t b)
{
    if (a == 0 || b == 0)
        return true;
    if ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN))
        return false;
    return a > 0 ? (b > 0 ? a <= INT64_MAX / b : b >= INT64_MIN / a)
                 : (b > 0 ? a >= INT64_MIN / b : b >= INT64_MAX / a);
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

static spry_jinja_value power(spry_jinja_run *run, int64_t base, int64_t exponent)
{
    int64_t result = 1;
    if (exponent < 0)
        return SPRY_JINJA_REAL(pow((double)base, (double)exponent));
    for (; exponent; exponent >>= 1) {
        if ((exponent & 1) && !fits_mul(result, base))
            return too_large(run);
        result = exponent & 1 ? result * base : result;
        if (exponent > 1 && !fits_mul(base, base))
            return too_large(run);
        base = exponent > 1 ? base * base : base;
    }
    return SPRY_JINJA_INTEGER(result);
}

static spry_jinja_value divided_by_zero(spry_jinja_run *run)
{
    spry_jinja_fail(run, "division by zero");
    return SPRY_JINJA_NOTHING;
}

static spry_jinja_value whole_arithmetic(spry_jinja_run *run, spry_jinja_sign sign, int64_t a, int64_t b)
{
    switch (sign) {
    case SPRY_JINJA_ADD: return fits_add(a, b) ? SPRY_JINJA_INTEGER(a + b) : too_large(run);
    case SPRY_JINJA_SUB:
        if (b == INT64_MIN)
            return a < 0 ? SPRY_JINJA_INTEGER(a - b) : too_large(run);
        return fits_add(a, -b) ? SPRY_JINJA_INTEGER(a - b) : too_large(run);
    case SPRY_JINJA_MUL: return fits_mul(a, b) ? SPRY_JINJA_INTEGER(a * b) : too_large(run);
    case SPRY_JINJA_POW: return power(run, a, b);
    default: break;
    }
    if (b == 0)
        return divided_by_zero(run);
    if (sign == SPRY_JINJA_DIV)
        return SPRY_JINJA_REAL((double)a / (double)b);
    if (b == -1)
        return sign == SPRY_JINJA_MOD ? SPRY_JINJA_INTEGER(0) : whole_arithmetic(run, SPRY_JINJA_SUB, 0, a);
    return SPRY_JINJA_INTEGER(sign == SPRY_JINJA_MOD ? a - floor_div(a, b) * b : floor_div(a, b));
}

static spry_jinja_value real_arithmetic(spry_jinja_run *run, spry_jinja_sign sign, double a, double b)
{
    switch (sign) {
    case SPRY_JINJA_ADD: return SPRY_JINJA_REAL(a + b);
    case SPRY_JINJA_SUB: return SPRY_JINJA_REAL(a - b);
    case SPRY_JINJA_MUL: return SPRY_JINJA_REAL(a * b);
    case SPRY_JINJA_POW: return SPRY_JINJA_REAL(pow(a, b));
    default: break;
    }
    if (b == 0)
        return divided_by_zero(run);
    if (sign == SPRY_JINJA_DIV)
        return SPRY_JINJA_REAL(a / b);
    return SPRY_JINJA_REAL(sign == SPRY_JINJA_MOD ? a - floor(a / b) * b : floor(a / b));
}

static spry_jinja_value add_strings(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    bool escaped = a.string->escaped || b.string->escaped;
    void (*append)(spry_jinja_builder *, const spry_jinja_string *) =
        escaped ? spry_jinja_append_escaped : spry_jinja_append_string;
    spry_jinja_builder out;
    spry_jinja_builder_init(&out, run);
    append(&out, a.string);
    append(&out, b.string);
    spry_jinja_value v = spry_jinja_builder_string(&out);
    if (escaped && v.kind == SPRY_JINJA_STRING)
        ((spry_jinja_string *)(uintptr_t)v.string)->escaped = true; /* created above */
    return v;
}

static spry_jinja_value add_lists(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    spry_jinja_list *list = spry_jinja_list_create(run, a.list->count + b.list->count);
    for (size_t i = 0; i < a.list->count; i++)
        spry_jinja_list_push(run, list, a.list->items[i]);
    for (size_t i = 0; i < b.list->count; i++)
        spry_jinja_list_push(run, list, b.list->items[i]);
    return (spry_jinja_value){.kind = a.kind, .list = list};
}

static spry_jinja_value repeat(spry_jinja_run *run, spry_jinja_value v, int64_t times)
{
    if (v.kind == SPRY_JINJA_STRING) {
        spry_jinja_builder b;
        spry_jinja_builder_init(&b, run);
        for (int64_t i = 0; i < times && v.string->size && !run->status; i++)
            spry_jinja_append_string(&b, v.string);
        return spry_jinja_builder_string(&b);
    }
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    for (int64_t i = 0; i < times && v.list->count && spry_jinja_spend(run, 0); i++)
        for (size_t k = 0; k < v.list->count; k++)
            spry_jinja_list_push(run, list, v.list->items[k]);
    return (spry_jinja_value){.kind = v.kind, .list = list};
}

static bool is_repeatable(spry_jinja_value v)
{
    return v.kind == SPRY_JINJA_STRING || spry_jinja_is_sequence(v);
}

spry_jinja_value spry_jinja_arithmetic(spry_jinja_run *run, spry_jinja_sign sign, spry_jinja_value a,
                                       spry_jinja_value b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    int64_t i, k;
    if (!spry_jinja_spend(run, 0))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_to_int(a, &i) && spry_jinja_to_int(b, &k))
        return whole_arithmetic(run, sign, i, k);
    if (spry_jinja_is_number(a) && spry_jinja_is_number(b))
        return real_arithmetic(run, sign, spry_jinja_to_real(a), spry_jinja_to_real(b));
    if (sign == SPRY_JINJA_ADD && a.kind == SPRY_JINJA_STRING && b.kind == SPRY_JINJA_STRING)
        return add_strings(run, a, b);
    if (sign == SPRY_JINJA_ADD && spry_jinja_is_sequence(a) && a.kind == b.kind && !a.list->lazy && !b.list->lazy)
        return add_lists(run, a, b);
    if (sign == SPRY_JINJA_MUL && is_repeatable(a) && spry_jinja_to_int(b, &k))
        return repeat(run, a, k);
    if (sign == SPRY_JINJA_MUL && is_repeatable(b) && spry_jinja_to_int(a, &i))
        return repeat(run, b, i);
    if (sign == SPRY_JINJA_MOD && a.kind == SPRY_JINJA_STRING) {
        spry_jinja_list one = {.items = &b, .count = 1};
        return spry_jinja_format_percent(run, a, b.kind == SPRY_JINJA_TUPLE ? b.list : &one);
    }
    spry_jinja_value wrong = a.kind == SPRY_JINJA_UNDEFINED ? a : b;
    if (wrong.kind == SPRY_JINJA_UNDEFINED && wrong.name)
        spry_jinja_fail(run, "'%.*s' is undefined", SPRY_VIEW_ARG(*wrong.name));
    else
        spry_jinja_fail(run, "a %s and a %s have no '%s'", spry_jinja_kind_name(a), spry_jinja_kind_name(b),
                        names[sign]);
    return SPRY_JINJA_NOTHING;
}

bool spry_jinja_compare(spry_jinja_run *run, spry_jinja_sign sign, spry_jinja_value a, spry_jinja_value b)
{
    if (run->status)
        return false;
    switch (sign) {
    case SPRY_JINJA_EQ: return spry_jinja_equal(run, a, b);
    case SPRY_JINJA_NE: return !spry_jinja_equal(run, a, b);
    case SPRY_JINJA_LT: return spry_jinja_order(run, a, b, false) < 0;
    case SPRY_JINJA_LE: return spry_jinja_order(run, a, b, false) <= 0;
    case SPRY_JINJA_GT: return spry_jinja_order(run, a, b, false) > 0;
    case SPRY_JINJA_GE: return spry_jinja_order(run, a, b, false) >= 0;
    case SPRY_JINJA_NOT_IN: return !spry_jinja_contains(run, b, a);
    default: return spry_jinja_contains(run, b, a);
    }
}

/* ---- indexes ----------------------------------------------------------------------------------------------------- */

static spry_jinja_value undefined(const spry_view *name)
{
    return (spry_jinja_value){.kind = SPRY_JINJA_UNDEFINED, .name = name};
}

static spry_jinja_value no_parts(spry_jinja_run *run, spry_jinja_value of)
{
    if (of.name)
        spry_jinja_fail(run, "'%.*s' is undefined", SPRY_VIEW_ARG(*of.name));
    else
        spry_jinja_fail(run, "an undefined value has no parts");
    return SPRY_JINJA_NOTHING;
}

/* The character at an index; negative indexes count from the end. */
static spry_jinja_value character_at(spry_jinja_run *run, spry_jinja_value string, int64_t index)
{
    spry_view text = spry_jinja_view(string);
    uint32_t character;
    size_t at = 0;
    if (index < 0)
        index += (int64_t)spry_jinja_count_characters(run, text);
    for (; index > 0 && at < text.size; index--)
        at += spry_jinja_character(&character, text, at);
    if (!spry_jinja_spend(run, SPRY_JINJA_DECODED * at) || index != 0 || at >= text.size)
        return SPRY_JINJA_NOTHING;
    return spry_jinja_substring(run, string, at, at + spry_jinja_character(&character, text, at));
}

static spry_jinja_value item_at(spry_jinja_run *run, const spry_jinja_list *list, int64_t index)
{
    if (list->lazy)
        return SPRY_JINJA_NOTHING;
    run->parts_used |= list->parts;
    if (index < 0)
        index += (int64_t)list->count;
    return index >= 0 && index < (int64_t)list->count ? list->items[index] : SPRY_JINJA_NOTHING;
}

spry_jinja_value spry_jinja_index(spry_jinja_run *run, spry_jinja_value a, spry_jinja_value b)
{
    int64_t index;
    const spry_jinja_value *found = NULL;
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (a.kind == SPRY_JINJA_UNDEFINED)
        return no_parts(run, a);
    if (a.kind == SPRY_JINJA_DICT || a.kind == SPRY_JINJA_NAMESPACE)
        found = spry_jinja_dict_find(run, a.dict, b);
    else if (spry_jinja_is_sequence(a) && spry_jinja_to_int(b, &index))
        return item_at(run, a.list, index);
    else if (a.kind == SPRY_JINJA_STRING && spry_jinja_to_int(b, &index))
        return character_at(run, a, index);
    if (found)
        return *found;
    return b.kind == SPRY_JINJA_STRING ? spry_jinja_method(run, a, spry_jinja_view(b)) : SPRY_JINJA_NOTHING;
}

static spry_jinja_value loop_attribute(const spry_jinja_loop *loop, spry_view name)
{
    size_t count = loop->items->count, i = loop->index;
    const spry_jinja_value *items = loop->items->items;
    const struct {
        const char *name;
        spry_jinja_value value;
    } table[] = {
        {"index", SPRY_JINJA_INTEGER((int64_t)i + 1)},
        {"index0", SPRY_JINJA_INTEGER((int64_t)i)},
        {"revindex", SPRY_JINJA_INTEGER((int64_t)(count - i))},
        {"revindex0", SPRY_JINJA_INTEGER((int64_t)(count - i) - 1)},
        {"first", SPRY_JINJA_BOOLEAN(i == 0)},
        {"last", SPRY_JINJA_BOOLEAN(i + 1 >= count)},
        {"length", SPRY_JINJA_INTEGER((int64_t)count)},
        {"previtem", i > 0 ? items[i - 1] : SPRY_JINJA_NOTHING},
        {"nextitem", i + 1 < count ? items[i + 1] : SPRY_JINJA_NOTHING},
        {"depth", SPRY_JINJA_INTEGER(1)},
        {"depth0", SPRY_JINJA_INTEGER(0)},
    };
    for (size_t k = 0; k < SPRY_COUNT(table); k++)
        if (spry_view_is(name, table[k].name))
            return table[k].value;
    return SPRY_JINJA_NOTHING;
}

spry_jinja_value spry_jinja_attribute(spry_jinja_run *run, spry_jinja_value a, const spry_view *name)
{
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (a.kind == SPRY_JINJA_UNDEFINED)
        return no_parts(run, a);
    spry_jinja_value v = a.kind == SPRY_JINJA_LOOP ? loop_attribute(a.loop, *name) : SPRY_JINJA_NOTHING;
    if (v.kind == SPRY_JINJA_UNDEFINED)
        v = spry_jinja_method(run, a, *name);
    if (v.kind == SPRY_JINJA_UNDEFINED && (a.kind == SPRY_JINJA_DICT || a.kind == SPRY_JINJA_NAMESPACE)) {
        const spry_jinja_string key = {.data = name->data, .size = name->size};
        const spry_jinja_value *found =
            spry_jinja_dict_find(run, a.dict, (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = &key});
        v = found ? *found : v;
    }
    return v.kind == SPRY_JINJA_UNDEFINED ? undefined(name) : v;
}

/* ---- slices ------------------------------------------------------------------------------------------------------ */

/* Evaluates a bound and limits it to [low, high]; negative ones count from the end. */
static bool slice_bound(spry_jinja_run *run, int64_t *out, spry_jinja_value v, int64_t missing, int64_t count,
                        int64_t low, int64_t high)
{
    int64_t value;
    *out = missing;
    if (v.kind == SPRY_JINJA_NONE)
        return true;
    if (!spry_jinja_to_int(v, &value)) {
        spry_jinja_fail(run, "a %s cannot be the bound of a slice", spry_jinja_kind_name(v));
        return false;
    }
    if (value < 0)
        value = value < -count ? -1 - count : value + count;
    *out = value < low ? low : value > high ? high : value;
    return true;
}

/* Byte offsets of all characters, for slicing by characters. */
static size_t *character_places(spry_jinja_run *run, spry_view text, size_t *count)
{
    size_t *places = spry_jinja_alloc(run, text.size + 1, sizeof *places);
    uint32_t character;
    *count = 0;
    for (size_t at = 0; places && at < text.size; at += spry_jinja_character(&character, text, at))
        places[(*count)++] = at;
    if (places)
        places[*count] = text.size;
    return places;
}

static spry_jinja_value slice_string(spry_jinja_run *run, spry_jinja_value a, int64_t start, int64_t stop, int64_t step,
                                     const size_t *places)
{
    spry_jinja_builder b;
    if (step == 1)
        return spry_jinja_substring(run, a, places[start], places[stop > start ? stop : start]);
    spry_jinja_builder_init(&b, run);
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && !run->status; i += step)
        spry_jinja_append_part(&b, a.string, places[i], places[i + 1]);
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value slice_list(spry_jinja_run *run, spry_jinja_value a, int64_t start, int64_t stop, int64_t step)
{
    spry_jinja_list *list = spry_jinja_list_create(run, 0);
    run->parts_used |= a.list->parts;
    for (int64_t i = start; (step > 0 ? i < stop : i > stop) && spry_jinja_spend(run, 0); i += step)
        spry_jinja_list_push(run, list, a.list->items[i]);
    return (spry_jinja_value){.kind = a.kind, .list = list};
}

spry_jinja_value spry_jinja_slice(spry_jinja_run *run, spry_jinja_value a, const spry_jinja_value bounds[3])
{
    size_t *places = NULL, size = 0;
    int64_t step = 1, start, stop;
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (a.kind == SPRY_JINJA_UNDEFINED)
        return no_parts(run, a);
    if (a.kind == SPRY_JINJA_STRING)
        places = character_places(run, spry_jinja_view(a), &size);
    else if (spry_jinja_is_sequence(a) && !a.list->lazy)
        size = a.list->count;
    else
        spry_jinja_fail(run, "a %s has no slices", spry_jinja_kind_name(a));
    if (bounds[2].kind != SPRY_JINJA_NONE && (!spry_jinja_to_int(bounds[2], &step) || step == 0))
        spry_jinja_fail(run, "the step of a slice must be a whole number other than 0");
    int64_t count = (int64_t)size, limit = count + 1;
    step = step > limit    ? limit
           : step < -limit ? -limit
                           : step; /* a larger step has the same effect, and could overflow */
    int64_t low = step < 0 ? -1 : 0, high = step < 0 ? count - 1 : count;
    if (run->status || !slice_bound(run, &start, bounds[0], step < 0 ? high : low, count, low, high) ||
        !slice_bound(run, &stop, bounds[1], step < 0 ? low : high, count, low, high))
        return SPRY_JINJA_NOTHING;
    return places ? slice_string(run, a, start, stop, step, places) : slice_list(run, a, start, stop, step);
}
