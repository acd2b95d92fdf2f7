/* Prints values like Python's str() and repr(). */
#include "template/jinja_print.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "template/jinja_builder.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

enum { MAX_DIGITS = 17, SCIENTIFIC_FROM = 16, SCIENTIFIC_BELOW = -4 };

/* The fewest digits that identify the number, without the point, and its decimal exponent. printf depends on the
 * locale, so only digits are read from its output. */
static int shortest_digits(char digits[MAX_DIGITS + 1], double value)
{
    char text[64];
    int exponent = 0;
    for (int precision = 0; precision < MAX_DIGITS; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    size_t n = 0;
    const char *at = text;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9' && n < MAX_DIGITS)
            digits[n++] = *at;
    digits[n] = 0;
    if (*at)
        exponent = (int)strtol(at + 1, NULL, 10);
    return exponent;
}

static void print_finite(char out[SPRY_JINJA_NUMBER_TEXT], double value)
{
    char digits[MAX_DIGITS + 1];
    const char *minus = signbit(value) ? "-" : "";
    int exponent = shortest_digits(digits, fabs(value)), n = (int)strlen(digits);
    if (exponent < SCIENTIFIC_BELOW || exponent >= SCIENTIFIC_FROM)
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "%s%c%s%se%c%02d", minus, digits[0], n > 1 ? "." : "", digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "%s0.%.*s%s", minus, -exponent - 1, "000", digits);
    else if (exponent + 1 >= n)
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "%s%s%.*s.0", minus, digits, exponent + 1 - n, "0000000000000000");
    else
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "%s%.*s.%s", minus, exponent + 1, digits, digits + exponent + 1);
}

void spry_jinja_print_real(char out[SPRY_JINJA_NUMBER_TEXT], double value)
{
    if (isnan(value))
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "nan");
    else if (isinf(value))
        snprintf(out, SPRY_JINJA_NUMBER_TEXT, "%sinf", value < 0 ? "-" : "");
    else
        print_finite(out, value);
}

/* ---- repr -------------------------------------------------------------------------------------------------------- */

static bool is_printable(uint32_t character)
{
    if (character < 0x80)
        return character >= 0x20 && character != 0x7f;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
    return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

static void append_repr_character(spry_jinja_builder *b, const spry_jinja_string *string, size_t at, size_t size,
                                  uint32_t character, char quote)
{
    static const char escaped[] = "\n\r\t\\", letters[] = "nrt\\";
    const char *found = character && character < 0x80 ? strchr(escaped, (char)character) : NULL;
    char text[16];
    if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - escaped]);
    else if (character == (uint32_t)quote)
        snprintf(text, sizeof text, "\\%c", quote);
    else if (is_printable(character)) {
        spry_jinja_append_part(b, string, at, at + size);
        return;
    } else
        snprintf(text, sizeof text,
                 character < 0x100     ? "\\x%02x"
                 : character < 0x10000 ? "\\u%04x"
                                       : "\\U%08x",
                 character);
    spry_jinja_append(b, spry_view_of(text), spry_jinja_is_marked(string, at));
}

static void append_repr_string(spry_jinja_builder *b, const spry_jinja_string *string)
{
    spry_view text = {string->data, string->size};
    uint32_t character;
    bool single = text.size && memchr(text.data, '\'', text.size);
    bool both = single && memchr(text.data, '"', text.size);
    char quote = single && !both ? '"' : '\'';
    spry_jinja_append(b, (spry_view){&quote, 1}, false);
    for (size_t at = 0, size; at < text.size && !b->run->status; at += size) {
        size = spry_jinja_character(&character, text, at);
        append_repr_character(b, string, at, size, character, quote);
    }
    spry_jinja_append(b, (spry_view){&quote, 1}, false);
}

static void append_list(spry_jinja_builder *b, spry_jinja_value v)
{
    const spry_jinja_list *list = v.list;
    bool tuple = v.kind == SPRY_JINJA_TUPLE;
    b->run->parts_printed |= list->parts;
    spry_jinja_append_text(b, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count && !b->run->status; i++) {
        spry_jinja_append_text(b, i ? ", " : "");
        spry_jinja_append_repr(b, list->items[i]);
    }
    spry_jinja_append_text(b, tuple ? list->count == 1 ? ",)" : ")" : "]");
}

static void append_dict(spry_jinja_builder *b, const spry_jinja_dict *dict)
{
    spry_jinja_append_text(b, "{");
    for (size_t i = 0; i < dict->count && !b->run->status; i++) {
        spry_jinja_append_text(b, i ? ", " : "");
        spry_jinja_append_repr(b, dict->entries[i].key);
        spry_jinja_append_text(b, ": ");
        spry_jinja_append_repr(b, dict->entries[i].value);
    }
    spry_jinja_append_text(b, "}");
}

void spry_jinja_append_repr(spry_jinja_builder *b, spry_jinja_value v)
{
    char text[SPRY_JINJA_NUMBER_TEXT];
    if (!spry_jinja_enter(b->run))
        return;
    switch (v.kind) {
    case SPRY_JINJA_UNDEFINED: spry_jinja_append_text(b, "Undefined"); break;
    case SPRY_JINJA_NONE: spry_jinja_append_text(b, "None"); break;
    case SPRY_JINJA_BOOL: spry_jinja_append_text(b, v.boolean ? "True" : "False"); break;
    case SPRY_JINJA_INT:
        snprintf(text, sizeof text, "%" PRId64, v.integer);
        spry_jinja_append_text(b, text);
        break;
    case SPRY_JINJA_FLOAT:
        spry_jinja_print_real(text, v.real);
        spry_jinja_append_text(b, text);
        break;
    case SPRY_JINJA_STRING: append_repr_string(b, v.string); break;
    case SPRY_JINJA_LIST:
    case SPRY_JINJA_TUPLE: append_list(b, v); break;
    case SPRY_JINJA_DICT: append_dict(b, v.dict); break;
    case SPRY_JINJA_NAMESPACE:
        spry_jinja_append_text(b, "<Namespace ");
        append_dict(b, v.dict);
        spry_jinja_append_text(b, ">");
        break;
    case SPRY_JINJA_LOOP: spry_jinja_append_text(b, "<LoopContext>"); break;
    case SPRY_JINJA_CALLABLE: spry_jinja_append_text(b, "<function>"); break;
    }
    b->run->depth--;
}

void spry_jinja_append_value(spry_jinja_builder *b, spry_jinja_value v)
{
    if (v.kind == SPRY_JINJA_STRING)
        spry_jinja_append_string(b, v.string);
    else if (v.kind != SPRY_JINJA_UNDEFINED)
        spry_jinja_append_repr(b, v);
}
