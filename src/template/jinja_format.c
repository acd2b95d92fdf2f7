/* "%5.2f" % value and "{:>5}".format(value). Both format a value with type, width, precision and alignment. */
#include <inttypes.h>
#include <stdio.h>

#include "template/jinja_eval.h"

enum { MAX_WIDTH = 10000, MAX_PRECISION = 60 };

typedef struct field {
    char type; /* s r d f e g x o; 0: depends on the kind of the value */
    char side; /* '<', '>' or '^'; 0: numbers at the right, texts at the left */
    char plus; /* '+' or ' ' before positive numbers, or 0 */
    bool zeros, commas;
    bool marked;              /* the padding is marked as literal */
    int64_t width, precision; /* precision -1: none */
    spry_view fill;
} field;

static int64_t read_digits(spry_view text, size_t *at, int64_t max)
{
    int64_t value = 0;
    for (; *at < text.size && text.data[*at] >= '0' && text.data[*at] <= '9'; (*at)++)
        value = value < max ? value * 10 + (text.data[*at] - '0') : max;
    return value < max ? value : max;
}

/* Inserts commas between groups of three digits. */
static void group_digits(char *text, size_t capacity)
{
    char *digits = text + (*text == '-' || *text == '+' || *text == ' ');
    size_t n = strspn(digits, "0123456789"), size = strlen(text);
    for (size_t i = 3; i < n && size + 1 < capacity; i += 3, size++) {
        char *at = digits + n - i;
        memmove(at + 1, at, strlen(at) + 1);
        *at = ',';
    }
}

static void print_real(char *out, size_t size, const field *f, double value)
{
    int precision = f->precision < 0 ? 6 : (int)f->precision;
    switch (f->type) {
    case 'e': snprintf(out, size, "%.*e", precision, value); break;
    case 'g': snprintf(out, size, "%.*g", precision, value); break;
    default: snprintf(out, size, "%.*f", precision, value); break;
    }
    for (char *c = out; *c; c++) /* some locales use a comma as the decimal point */
        *c = *c == ',' ? '.' : *c;
}

/* Writes the number as text; false when the value is not a number of this type. */
static bool print_number(char *out, size_t size, const field *f, spry_jinja_value v)
{
    int64_t whole;
    bool real_type = f->type == 'f' || f->type == 'e' || f->type == 'g';
    if (real_type || (f->type == 0 && v.kind == SPRY_JINJA_FLOAT && f->precision >= 0)) {
        if (!spry_jinja_is_number(v))
            return false;
        print_real(out, size, f, spry_jinja_to_real(v));
    } else {
        if (v.kind == SPRY_JINJA_FLOAT && v.real > -9e18 && v.real < 9e18)
            whole = (int64_t)v.real;
        else if (!spry_jinja_to_int(v, &whole))
            return false;
        if (f->type == 'x' || f->type == 'o')
            snprintf(out, size, f->type == 'x' ? "%" PRIx64 : "%" PRIo64, (uint64_t)whole);
        else
            snprintf(out, size, "%" PRId64, whole);
    }
    if (f->plus && *out != '-') {
        memmove(out + 1, out, strlen(out) + 1);
        *out = f->plus;
    }
    if (f->commas)
        group_digits(out, size);
    return true;
}

static void append_fill(spry_jinja_builder *b, const field *f, spry_view fill, size_t count)
{
    for (size_t i = 0; i < count && !b->run->status; i++)
        spry_jinja_append(b, fill, f->marked);
}

/* Appends the text, padded to the field's width. */
static void append_field(spry_jinja_builder *b, const field *f, const spry_jinja_string *text, bool number)
{
    size_t size = spry_jinja_count_characters(b->run, (spry_view){text->data, text->size});
    size_t room = (uint64_t)f->width > size ? (size_t)f->width - size : 0;
    char side = f->side ? f->side : number ? '>' : '<';
    size_t left = side == '>' ? room : side == '^' ? room / 2 : 0;
    size_t sign = number && f->zeros && text->size && strchr("+- ", text->data[0]) ? 1 : 0;
    spry_jinja_append_part(b, text, 0, sign); /* zeros come after the sign */
    append_fill(b, f, f->zeros && number ? SPRY_VIEW("0") : f->fill, left);
    spry_jinja_append_part(b, text, sign, text->size);
    append_fill(b, f, f->fill, room - left);
}

static void append_formatted(spry_jinja_builder *b, const field *f, spry_jinja_value v)
{
    char text[512];
    spry_jinja_value string = v;
    bool texts = f->type == 's' || f->type == 'r' ||
                 (f->type == 0 && !(spry_jinja_is_number(v) && v.kind != SPRY_JINJA_BOOL)) ||
                 (f->type == 0 && v.kind == SPRY_JINJA_FLOAT && f->precision < 0);
    bool number = spry_jinja_is_number(v) && v.kind != SPRY_JINJA_BOOL && f->type != 's';
    if (f->type == 'r') {
        spry_jinja_builder inner;
        spry_jinja_builder_init(&inner, b->run);
        spry_jinja_append_repr(&inner, v);
        string = spry_jinja_builder_string(&inner);
    } else if (texts) {
        string = spry_jinja_to_string(b->run, v);
        if (!b->run->status && f->precision >= 0)
            string = spry_jinja_slice(
                b->run, string,
                (spry_jinja_value[]){SPRY_JINJA_NULL, SPRY_JINJA_INTEGER(f->precision), SPRY_JINJA_NULL});
    } else if (print_number(text, sizeof text, f, v)) {
        spry_view copy = spry_view_of(text);
        char *kept = spry_jinja_alloc(b->run, copy.size + 1, 1);
        if (kept)
            memcpy(kept, copy.data, copy.size);
        string = spry_jinja_text(b->run, (spry_view){kept, copy.size}, false);
    } else {
        spry_jinja_fail(b->run, "a %s cannot be formatted as '%c'", spry_jinja_kind_name(v), f->type);
    }
    if (!b->run->status)
        append_field(b, f, string.string, number);
}

/* ---- percent ----------------------------------------------------------------------------------------------------- */

/* Parses a conversion after a percent sign; *at becomes the offset after its letter. */
static bool read_percent(field *f, spry_view text, size_t *at)
{
    *f = (field){.precision = -1, .fill = SPRY_VIEW(" "), .side = '>'};
    for (; *at < text.size && strchr("-+ 0#", text.data[*at]); (*at)++) {
        f->side = text.data[*at] == '-' ? '<' : f->side;
        f->plus = text.data[*at] == '+' || text.data[*at] == ' ' ? text.data[*at] : f->plus;
        f->zeros |= text.data[*at] == '0';
    }
    f->width = read_digits(text, at, MAX_WIDTH);
    if (*at < text.size && text.data[*at] == '.') {
        (*at)++;
        f->precision = read_digits(text, at, MAX_PRECISION);
    }
    if (*at >= text.size || !text.data[*at] || !strchr("srdifegxo", text.data[*at]))
        return false;
    f->type = text.data[*at] == 'i' ? 'd' : text.data[*at];
    (*at)++;
    return true;
}

spry_jinja_value spry_jinja_format_percent(spry_jinja_run *run, spry_jinja_value format, const spry_jinja_list *values)
{
    spry_view text = spry_jinja_view(format);
    spry_jinja_builder b;
    size_t used = 0;
    spry_jinja_builder_init(&b, run);
    for (size_t at = 0; at < text.size && !run->status;) {
        const char *percent = memchr(text.data + at, '%', text.size - at);
        size_t end = percent ? (size_t)(percent - text.data) : text.size;
        field f;
        spry_jinja_append_part(&b, format.string, at, end);
        at = end + 1;
        if (!percent)
            break;
        if (at < text.size && text.data[at] == '%') {
            spry_jinja_append_part(&b, format.string, at, at + 1);
            at++;
        } else if (!read_percent(&f, text, &at) || used >= values->count) {
            spry_jinja_fail(run, "a format has a %% that is not understood, or too few values");
        } else {
            append_formatted(&b, &f, values->items[used++]);
        }
    }
    if (used < values->count)
        spry_jinja_fail(run, "a format uses %zu of %zu values", used, values->count);
    return spry_jinja_builder_string(&b);
}

/* ---- braces ------------------------------------------------------------------------------------------------------ */

/* Parses the format after the colon. */
static bool read_spec(field *f, spry_view text)
{
    size_t at = 0;
    uint32_t character;
    *f = (field){.precision = -1, .fill = SPRY_VIEW(" ")};
    size_t first = text.size ? spry_jinja_character(&character, text, 0) : 0;
    if (first && first < text.size && strchr("<>^", text.data[first])) {
        f->fill = (spry_view){text.data, first};
        at = first;
    }
    if (at < text.size && strchr("<>^", text.data[at]))
        f->side = text.data[at++];
    if (at < text.size && strchr("+- ", text.data[at])) {
        f->plus = text.data[at] == '-' ? 0 : text.data[at];
        at++;
    }
    f->zeros = at < text.size && text.data[at] == '0';
    f->width = read_digits(text, &at, MAX_WIDTH);
    f->commas = at < text.size && text.data[at] == ',';
    at += f->commas;
    if (at < text.size && text.data[at] == '.') {
        at++;
        f->precision = read_digits(text, &at, MAX_PRECISION);
    }
    if (at < text.size && text.data[at] && strchr("sdfegxo", text.data[at]))
        f->type = text.data[at++];
    return at == text.size;
}

/* The value of a field name, which is empty (the next argument), a number or a name, and then any .attributes and
 * [indexes]. */
static spry_jinja_value field_value(spry_jinja_run *run, spry_view name, const spry_jinja_args *args, size_t *next)
{
    size_t at = 0;
    int64_t index = name.size && name.data[0] >= '0' && name.data[0] <= '9' ? read_digits(name, &at, INT32_MAX) : -1;
    spry_jinja_value v = SPRY_JINJA_NOTHING;
    while (index < 0 && at < name.size && name.data[at] != '.' && name.data[at] != '[')
        at++;
    if (index < 0 && at == 0)
        index = (int64_t)(*next)++;
    const spry_jinja_value *named = spry_jinja_dict_find_text(args->named, (spry_view){name.data, at});
    if (index >= 0 && index < (int64_t)args->count)
        v = args->items[index];
    else if (index < 0 && named)
        v = *named;
    else
        spry_jinja_fail(run, "format() has no value for {%.*s}", SPRY_VIEW_ARG(name));
    while (at < name.size && !run->status) {
        bool bracket = name.data[at] == '[';
        size_t begin = ++at;
        while (at < name.size && (bracket ? name.data[at] != ']' : name.data[at] != '.' && name.data[at] != '['))
            at++;
        spry_jinja_value key = spry_jinja_text(run, (spry_view){name.data + begin, at - begin}, false);
        size_t digits = begin;
        int64_t place = read_digits(name, &digits, INT32_MAX);
        v = spry_jinja_index(run, v, digits == at && at > begin ? SPRY_JINJA_INTEGER(place) : key);
        at += bracket && at < name.size;
    }
    return v;
}

static void append_braces(spry_jinja_builder *b, spry_view inside, bool marked, const spry_jinja_args *args,
                          size_t *next)
{
    size_t colon = 0;
    field f;
    while (colon < inside.size && inside.data[colon] != ':' && inside.data[colon] != '!')
        colon++;
    spry_view name = {inside.data, colon};
    bool repr = colon + 1 < inside.size && inside.data[colon] == '!' && inside.data[colon + 1] == 'r';
    if (colon < inside.size && inside.data[colon] == '!')
        colon = colon + 2 < inside.size ? colon + 2 : inside.size;
    spry_view spec =
        colon < inside.size ? (spry_view){inside.data + colon + 1, inside.size - colon - 1} : (spry_view){"", 0};
    spry_jinja_value v = field_value(b->run, name, args, next);
    if (!read_spec(&f, spec))
        spry_jinja_fail(b->run, "format() does not understand {%.*s}", SPRY_VIEW_ARG(inside));
    f.type = repr ? 'r' : f.type;
    f.marked = marked;
    append_formatted(b, &f, v);
}

spry_jinja_value spry_jinja_format_braces(const spry_jinja_frame *f)
{
    spry_view text = spry_jinja_view(f->self);
    spry_jinja_builder b;
    size_t next = 0, begin = 0;
    spry_jinja_builder_init(&b, f->run);
    for (size_t at = 0; at < text.size && !f->run->status; at++) {
        char c = text.data[at];
        if (c != '{' && c != '}')
            continue;
        bool doubled = at + 1 < text.size && text.data[at + 1] == c;
        spry_jinja_append_part(&b, f->self.string, begin, at + doubled);
        size_t close = at + 1;
        if (!doubled) {
            while (close < text.size && text.data[close] != '}')
                close++;
            if (c == '}' || close >= text.size)
                spry_jinja_fail(f->run, "format() meets a single '%c'", c);
            else
                append_braces(&b, (spry_view){text.data + at + 1, close - at - 1}, f->self.string->n_marks != 0,
                              f->args, &next);
        }
        at = close;
        begin = close + 1 < text.size ? close + 1 : text.size;
    }
    if (!f->run->status)
        spry_jinja_append_part(&b, f->self.string, begin, text.size);
    return spry_jinja_builder_string(&b);
}
