/* Filters for texts, numbers and single values. */
#include "template/jinja_filters.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "template/jinja_json.h"

/* ---- texts ------------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_trim(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value set = spry_jinja_arg(args, 0, "chars", SPRY_JINJA_NULL);
    spry_jinja_value text = spry_jinja_to_string(run, v);
    if (text.kind != SPRY_JINJA_STRING)
        return text;
    spry_view characters = {"", 0};
    if (set.kind == SPRY_JINJA_STRING)
        characters = spry_jinja_view(set);
    return spry_jinja_strip(run, text, set.kind == SPRY_JINJA_STRING ? &characters : NULL,
                            SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
}

static spry_jinja_value with_case(spry_jinja_run *run, spry_jinja_value v, spry_jinja_case how)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    return text.kind == SPRY_JINJA_STRING ? spry_jinja_change_case(run, text, how) : text;
}

static spry_jinja_value filter_upper(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_UPPER);
}

static spry_jinja_value filter_lower(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_LOWER);
}

static spry_jinja_value filter_capitalize(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_CAPITALIZE);
}

static spry_jinja_value filter_title(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return with_case(run, v, SPRY_JINJA_WORDS);
}

static spry_jinja_value filter_string(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return spry_jinja_to_string(run, v);
}

static spry_jinja_value filter_replace(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    spry_jinja_value old = spry_jinja_to_string(run, spry_jinja_arg(args, 0, "old", SPRY_JINJA_NOTHING));
    spry_jinja_value with = spry_jinja_to_string(run, spry_jinja_arg(args, 1, "new", SPRY_JINJA_NOTHING));
    int64_t limit = -1;
    spry_jinja_to_int(spry_jinja_arg(args, 2, "count", SPRY_JINJA_NULL), &limit);
    return run->status ? SPRY_JINJA_NOTHING : spry_jinja_replace(run, text, old, with, limit);
}

static void append_many(spry_jinja_builder *b, char c, int64_t count)
{
    for (int64_t i = 0; i < count && !b->run->status; i++)
        spry_jinja_append(b, (spry_view){&c, 1}, false);
}

/* Indents all lines except the first; the first and blank lines only on request. */
static spry_jinja_value filter_indent(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value width = spry_jinja_arg(args, 0, "width", SPRY_JINJA_INTEGER(4));
    bool first = spry_jinja_truth(spry_jinja_arg(args, 1, "first", SPRY_JINJA_BOOLEAN(false)));
    bool blank = spry_jinja_truth(spry_jinja_arg(args, 2, "blank", SPRY_JINJA_BOOLEAN(false)));
    int64_t spaces = 0;
    if (v.kind != SPRY_JINJA_STRING)
        spry_jinja_fail(run, "indent takes a str, not a %s", spry_jinja_kind_name(v));
    if (width.kind != SPRY_JINJA_STRING && !spry_jinja_to_int(width, &spaces))
        spry_jinja_fail(run, "indent() takes a width, not a %s", spry_jinja_kind_name(width));
    spry_jinja_builder b;
    spry_jinja_builder_init(&b, run);
    for (size_t at = 0; !run->status && at <= v.string->size;) {
        const char *newline = v.string->size > at ? memchr(v.string->data + at, '\n', v.string->size - at) : NULL;
        size_t end = newline ? (size_t)(newline - v.string->data) : v.string->size;
        if (at == 0 ? first : blank || end > at) {
            if (width.kind == SPRY_JINJA_STRING)
                spry_jinja_append_string(&b, width.string);
            else
                append_many(&b, ' ', spaces);
        }
        spry_jinja_append_part(&b, v.string, at, newline ? end + 1 : end);
        at = end + 1;
    }
    return spry_jinja_builder_string(&b);
}

static spry_jinja_value escaped_copy(spry_jinja_run *run, spry_jinja_value v,
                                     void (*append)(spry_jinja_builder *, const spry_jinja_string *))
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    spry_jinja_string *copy = spry_jinja_alloc(run, 1, sizeof *copy);
    spry_jinja_builder b;
    if (run->status)
        return SPRY_JINJA_NOTHING;
    spry_jinja_builder_init(&b, run);
    append(&b, text.string);
    spry_jinja_value made = spry_jinja_builder_string(&b);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    *copy = *made.string;
    copy->escaped = true;
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = copy};
}

static spry_jinja_value filter_escape(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return escaped_copy(run, v, spry_jinja_append_escaped);
}

static spry_jinja_value filter_safe(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return escaped_copy(run, v, spry_jinja_append_string);
}

static spry_jinja_value filter_format(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_list values = {.items = args->items, .count = args->count};
    spry_jinja_value text = spry_jinja_to_string(run, v);
    return run->status ? text : spry_jinja_format_percent(run, text, &values);
}

static spry_jinja_value filter_wordcount(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value text = spry_jinja_to_string(run, v);
    int64_t words = 0;
    bool inside = false;
    uint32_t character;
    (void)args;
    for (size_t at = 0; !run->status && at < text.string->size;) {
        at += spry_jinja_character(&character, spry_jinja_view(text), at);
        words += !inside && !spry_jinja_is_space(character);
        inside = !spry_jinja_is_space(character);
    }
    return SPRY_JINJA_INTEGER(words);
}

static spry_jinja_value filter_tojson(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value indent = spry_jinja_arg(args, 1, "indent", SPRY_JINJA_NULL);
    spry_jinja_value separators = spry_jinja_arg(args, 2, "separators", SPRY_JINJA_NULL);
    spry_jinja_json_style style = {
        .ascii = spry_jinja_truth(spry_jinja_arg(args, 0, "ensure_ascii", SPRY_JINJA_NULL)),
        .sort = spry_jinja_truth(spry_jinja_arg(args, 3, "sort_keys", SPRY_JINJA_NULL)),
        .indent = -1,
    };
    if (indent.kind == SPRY_JINJA_INT && indent.integer >= 0)
        style.indent = indent.integer;
    if (spry_jinja_is_sequence(separators) && separators.list->count == 2 &&
        separators.list->items[0].kind == SPRY_JINJA_STRING && separators.list->items[1].kind == SPRY_JINJA_STRING) {
        style.item = spry_jinja_view(separators.list->items[0]);
        style.key = spry_jinja_view(separators.list->items[1]);
    }
    return spry_jinja_to_json(run, v, &style);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Conversion to a number fails only for undefined values. */
static bool need_defined(spry_jinja_run *run, spry_jinja_value v)
{
    if (v.kind == SPRY_JINJA_UNDEFINED)
        spry_jinja_fail(run, "'%.*s' is undefined and no number", SPRY_VIEW_ARG(v.name ? *v.name : SPRY_VIEW("it")));
    return !run->status;
}

static spry_jinja_value filter_int(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_value fallback = spry_jinja_arg(args, 0, "default", SPRY_JINJA_INTEGER(0));
    double real = 0;
    int64_t whole;
    uint64_t digits;
    if (!need_defined(run, v))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_to_int(v, &whole))
        return SPRY_JINJA_INTEGER(whole);
    if (v.kind == SPRY_JINJA_FLOAT) {
        real = v.real;
    } else if (v.kind == SPRY_JINJA_STRING) {
        spry_jinja_value stripped = spry_jinja_strip(run, v, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (run->status)
            return SPRY_JINJA_NOTHING;
        spry_view text = spry_jinja_view(stripped);
        bool minus = text.size && text.data[0] == '-';
        size_t skip = text.size && (minus || text.data[0] == '+');
        if (spry_number_u64(&digits, (spry_view){text.data + skip, text.size - skip}) && digits <= INT64_MAX)
            return SPRY_JINJA_INTEGER(minus ? -(int64_t)digits : (int64_t)digits);
        if (!spry_number_double(&real, text))
            return fallback;
    } else {
        return fallback;
    }
    return fabs(real) < 9e18 ? SPRY_JINJA_INTEGER((int64_t)real) : fallback;
}

static spry_jinja_value filter_float(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    double real;
    if (!need_defined(run, v))
        return SPRY_JINJA_NOTHING;
    if (spry_jinja_is_number(v))
        return SPRY_JINJA_REAL(spry_jinja_to_real(v));
    if (v.kind == SPRY_JINJA_STRING) {
        v = spry_jinja_strip(run, v, NULL, SPRY_JINJA_LEFT | SPRY_JINJA_RIGHT);
        if (!run->status && spry_number_double(&real, spry_jinja_view(v)))
            return SPRY_JINJA_REAL(real);
    }
    return spry_jinja_arg(args, 0, "default", SPRY_JINJA_REAL(0));
}

static spry_jinja_value filter_abs(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    int64_t whole;
    (void)args;
    if (v.kind == SPRY_JINJA_FLOAT)
        return SPRY_JINJA_REAL(fabs(v.real));
    if (spry_jinja_to_int(v, &whole) && whole >= 0)
        return SPRY_JINJA_INTEGER(whole);
    return spry_jinja_arithmetic(run, SPRY_JINJA_SUB, SPRY_JINJA_INTEGER(0), v);
}

static spry_jinja_value filter_round(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    int64_t digits = 0;
    spry_jinja_value method = spry_jinja_arg(args, 1, "method", SPRY_JINJA_NULL);
    spry_jinja_to_int(spry_jinja_arg(args, 0, "precision", SPRY_JINJA_NULL), &digits);
    if (!spry_jinja_is_number(v)) {
        spry_jinja_fail(run, "a %s cannot be rounded", spry_jinja_kind_name(v));
        return SPRY_JINJA_NOTHING;
    }
    if (v.kind != SPRY_JINJA_FLOAT && method.kind != SPRY_JINJA_STRING && digits >= 0)
        return v; /* an integer stays one */
    double scale = pow(10, (double)(digits > 300 ? 300 : digits < -300 ? -300 : digits));
    double scaled = spry_jinja_to_real(v) * scale;
    if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "ceil"))
        scaled = ceil(scaled);
    else if (method.kind == SPRY_JINJA_STRING && spry_view_is(spry_jinja_view(method), "floor"))
        scaled = floor(scaled);
    else
        scaled = nearbyint(scaled); /* to even, like Python */
    return SPRY_JINJA_REAL(scaled / scale);
}

/* ---- any value --------------------------------------------------------------------------------------------------- */

static spry_jinja_value filter_default(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    static const spry_jinja_string empty = {.data = ""};
    const spry_jinja_value nothing = {.kind = SPRY_JINJA_STRING, .string = &empty};
    bool falsy = spry_jinja_truth(spry_jinja_arg(args, 1, "boolean", SPRY_JINJA_BOOLEAN(false)));
    (void)run;
    if (v.kind == SPRY_JINJA_UNDEFINED || (falsy && !spry_jinja_truth(v)))
        return spry_jinja_arg(args, 0, "default_value", nothing);
    return v;
}

static spry_jinja_value filter_length(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    (void)args;
    return SPRY_JINJA_INTEGER((int64_t)spry_jinja_length(run, v));
}

static spry_jinja_value filter_attr(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_args *args)
{
    return spry_jinja_attribute_path(run, v, spry_jinja_arg(args, 0, "name", SPRY_JINJA_NOTHING));
}

static const spry_jinja_filter_entry filters[] = {
    {"trim", filter_trim},          {"upper", filter_upper},
    {"lower", filter_lower},        {"capitalize", filter_capitalize},
    {"title", filter_title},        {"string", filter_string},
    {"replace", filter_replace},    {"indent", filter_indent},
    {"escape", filter_escape},      {"e", filter_escape},
    {"forceescape", filter_escape}, {"safe", filter_safe},
    {"format", filter_format},      {"wordcount", filter_wordcount},
    {"tojson", filter_tojson},      {"int", filter_int},
    {"float", filter_float},        {"abs", filter_abs},
    {"round", filter_round},        {"default", filter_default},
    {"d", filter_default},          {"length", filter_length},
    {"count", filter_length},       {"attr", filter_attr},
};

static spry_jinja_filter_call *find_filter(spry_view name)
{
    for (size_t i = 0; i < SPRY_COUNT(filters); i++)
        if (spry_view_is(name, filters[i].name))
            return filters[i].call;
    return spry_jinja_find_sequence_filter(name);
}

bool spry_jinja_has_filter(spry_view name)
{
    return find_filter(name) != NULL;
}

spry_jinja_value spry_jinja_filter(spry_jinja_run *run, spry_view name, spry_jinja_value v, const spry_jinja_args *args)
{
    spry_jinja_filter_call *call = find_filter(name);
    if (run->status)
        return SPRY_JINJA_NOTHING;
    if (call)
        return call(run, v, args);
    spry_jinja_fail(run, "there is no filter '%.*s'", SPRY_VIEW_ARG(name));
    return SPRY_JINJA_NOTHING;
}
