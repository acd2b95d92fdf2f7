/* Values as text: as Python prints them, as JSON; and operations on strings. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#include "base/utf8.h"
#include "template/jinja_value.h"

/* ---- Python's str() and repr() ----------------------------------------------------------------------------------- */

/* Prints values like Python's str() and repr(). */

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

enum { MAX_DIGITS = 17, SCIENTIFIC_FROM = 16, SCIENTIFIC_BELOW = -4 };

/* Finds the fewest digits that identify the number, without the point, and the decimal exponent. printf depends on the
 * locale, so only digits of its output are used. */
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

/* Writes the number with the fewest digits that identify it; "nan", "inf". */
static void print_real(char out[SPRY_JINJA_NUMBER_TEXT], double value)
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
        print_real(text, v.real);
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

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* JSON as json.dumps writes it: ", " and ": " as separators, keys in insertion order, floats as repr() prints them. */

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static spry_jinja_value from_array(spry_jinja_run *run, const json_t *json)
{
    spry_jinja_list *list = spry_jinja_list_create(run, json_array_size(json));
    for (size_t i = 0; i < json_array_size(json) && !run->status; i++)
        spry_jinja_list_push(run, list, spry_jinja_from_json(run, json_array_get(json, i)));
    return SPRY_JINJA_SEQUENCE(list);
}

/* Keys are unique, so entries are appended without a lookup. */
static spry_jinja_value from_object(spry_jinja_run *run, const json_t *json)
{
    spry_jinja_dict *dict = spry_jinja_dict_create(run, json_object_size(json));
    json_t *object = (json_t *)(uintptr_t)json; /* jansson's iterator is not const */
    for (void *at = json_object_iter(object); at && dict->count < dict->capacity && !run->status;
         at = json_object_iter_next(object, at)) {
        const char *key = json_object_iter_key(at);
        dict->entries[dict->count++] =
            (spry_jinja_entry){spry_jinja_text(run, (spry_view){key, json_object_iter_key_len(at)}, true),
                               spry_jinja_from_json(run, json_object_iter_value(at))};
    }
    return SPRY_JINJA_DICT_OF(dict);
}

spry_jinja_value spry_jinja_from_json(spry_jinja_run *run, const json_t *json)
{
    spry_jinja_value v = SPRY_JINJA_NULL;
    if (!spry_jinja_enter(run))
        return v;
    switch (json_typeof(json)) {
    case JSON_OBJECT: v = from_object(run, json); break;
    case JSON_ARRAY: v = from_array(run, json); break;
    case JSON_STRING:
        v = spry_jinja_text(run, (spry_view){json_string_value(json), json_string_length(json)}, true);
        break;
    case JSON_INTEGER: v = SPRY_JINJA_INTEGER(json_integer_value(json)); break;
    case JSON_REAL: v = SPRY_JINJA_REAL(json_real_value(json)); break;
    case JSON_TRUE:
    case JSON_FALSE: v = SPRY_JINJA_BOOLEAN(json_is_true(json)); break;
    case JSON_NULL: break;
    }
    run->depth--;
    return v;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

typedef struct writer {
    spry_jinja_builder b;
    const spry_jinja_json_style *style;
} writer;

static void write_value(writer *w, spry_jinja_value v, int64_t level);

static void write_unicode(writer *w, uint32_t character, bool marked)
{
    char text[16];
    if (character >= 0x10000)
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xd7c0 + (character >> 10), 0xdc00 + (character & 0x3ff));
    else
        snprintf(text, sizeof text, "\\u%04x", character);
    spry_jinja_append(&w->b, spry_view_of(text), marked);
}

static void write_string(writer *w, const spry_jinja_string *string)
{
    static const char escaped[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf";
    spry_view text = {string->data, string->size};
    size_t begin = 0;
    uint32_t character;
    spry_jinja_append_text(&w->b, "\"");
    for (size_t at = 0, size; at < text.size && !w->b.run->status; at += size) {
        size = spry_jinja_character(&character, text, at);
        const char *found = character && character < 0x80 ? strchr(escaped, (char)character) : NULL;
        if (!found && character >= 0x20 && (character < 0x7f || !w->style->ascii))
            continue;
        bool marked = spry_jinja_is_marked(string, at);
        spry_jinja_append_part(&w->b, string, begin, at);
        begin = at + size;
        if (found)
            spry_jinja_append(&w->b, (spry_view){(char[]){'\\', letters[found - escaped]}, 2}, marked);
        else
            write_unicode(w, character, marked);
    }
    spry_jinja_append_part(&w->b, string, begin, text.size);
    spry_jinja_append_text(&w->b, "\"");
}

static void write_break(writer *w, int64_t level)
{
    if (w->style->indent < 0)
        return;
    spry_jinja_append_text(&w->b, "\n");
    for (int64_t i = 0; i < level && !w->b.run->status; i++)
        for (int64_t k = 0; k < w->style->indent && !w->b.run->status; k++)
            spry_jinja_append_text(&w->b, " ");
}

static void write_comma(writer *w, size_t index, int64_t level)
{
    if (index)
        spry_jinja_append(&w->b,
                          w->style->item.data    ? w->style->item
                          : w->style->indent < 0 ? SPRY_VIEW(", ")
                                                 : SPRY_VIEW(","),
                          false);
    write_break(w, level + 1);
}

static void write_list(writer *w, const spry_jinja_list *list, int64_t level)
{
    spry_jinja_append_text(&w->b, "[");
    for (size_t i = 0; i < list->count && !w->b.run->status; i++) {
        write_comma(w, i, level);
        write_value(w, list->items[i], level + 1);
    }
    if (list->count)
        write_break(w, level);
    spry_jinja_append_text(&w->b, "]");
}

/* Writes a key; keys that are not strings are converted like json.dumps does. */
static void write_key(writer *w, spry_jinja_value key)
{
    bool quoted = key.kind != SPRY_JINJA_STRING;
    if (key.kind != SPRY_JINJA_STRING && key.kind != SPRY_JINJA_NONE && !spry_jinja_is_number(key))
        spry_jinja_fail(w->b.run, "a %s cannot be a key in JSON", spry_jinja_kind_name(key));
    spry_jinja_append_text(&w->b, quoted ? "\"" : "");
    write_value(w, key, 0);
    spry_jinja_append_text(&w->b, quoted ? "\"" : "");
    spry_jinja_append(&w->b, w->style->key.data ? w->style->key : SPRY_VIEW(": "), false);
}

/* The entries sorted by key; the memory belongs to the run. */
static const spry_jinja_entry *sorted(spry_jinja_run *run, const spry_jinja_dict *dict)
{
    spry_jinja_entry *out = spry_jinja_alloc(run, dict->count ? dict->count : 1, sizeof *out);
    for (size_t i = 0; out && i < dict->count; i++) {
        size_t k = i;
        for (; k && spry_jinja_order(run, out[k - 1].key, dict->entries[i].key, false) > 0; k--)
            out[k] = out[k - 1];
        out[k] = dict->entries[i];
    }
    return out;
}

static void write_dict(writer *w, const spry_jinja_dict *dict, int64_t level)
{
    const spry_jinja_entry *entries = w->style->sort ? sorted(w->b.run, dict) : dict->entries;
    spry_jinja_append_text(&w->b, "{");
    for (size_t i = 0; i < dict->count && !w->b.run->status; i++) {
        write_comma(w, i, level);
        write_key(w, entries[i].key);
        write_value(w, entries[i].value, level + 1);
    }
    if (dict->count)
        write_break(w, level);
    spry_jinja_append_text(&w->b, "}");
}

static void write_number(writer *w, spry_jinja_value v)
{
    char text[SPRY_JINJA_NUMBER_TEXT];
    if (v.kind == SPRY_JINJA_INT)
        snprintf(text, sizeof text, "%" PRId64, v.integer);
    else if (isfinite(v.real))
        print_real(text, v.real);
    else
        snprintf(text, sizeof text, "%s", isnan(v.real) ? "NaN" : v.real > 0 ? "Infinity" : "-Infinity");
    spry_jinja_append_text(&w->b, text);
}

static void write_value(writer *w, spry_jinja_value v, int64_t level)
{
    if (!spry_jinja_enter(w->b.run))
        return;
    switch (v.kind) {
    case SPRY_JINJA_NONE: spry_jinja_append_text(&w->b, "null"); break;
    case SPRY_JINJA_BOOL: spry_jinja_append_text(&w->b, v.boolean ? "true" : "false"); break;
    case SPRY_JINJA_INT:
    case SPRY_JINJA_FLOAT: write_number(w, v); break;
    case SPRY_JINJA_STRING: write_string(w, v.string); break;
    case SPRY_JINJA_DICT: write_dict(w, v.dict, level); break;
    case SPRY_JINJA_LIST:
    case SPRY_JINJA_TUPLE: write_list(w, v.list, level); break;
    default: spry_jinja_fail(w->b.run, "a %s has no form in JSON", spry_jinja_kind_name(v));
    }
    w->b.run->depth--;
}

spry_jinja_value spry_jinja_to_json(spry_jinja_run *run, spry_jinja_value v, const spry_jinja_json_style *style)
{
    writer w = {.style = style};
    spry_jinja_builder_init(&w.b, run);
    write_value(&w, v, 0);
    return spry_jinja_builder_string(&w.b);
}

/* ---- operations on strings --------------------------------------------------------------------------------------- */

/* String operations. Python counts characters; these functions count bytes of UTF-8 and never split a character. */

spry_jinja_value spry_jinja_to_string(spry_jinja_run *run, spry_jinja_value v)
{
    spry_jinja_builder b;
    if (v.kind == SPRY_JINJA_STRING)
        return v;
    spry_jinja_builder_init(&b, run);
    spry_jinja_append_value(&b, v);
    return spry_jinja_builder_string(&b);
}

spry_jinja_value spry_jinja_substring(spry_jinja_run *run, spry_jinja_value string, size_t begin, size_t end)
{
    const spry_jinja_string *from = string.string;
    if (begin == 0 && end == from->size)
        return string;
    spry_jinja_string *part = spry_jinja_alloc(run, 1, sizeof *part);
    if (!part)
        return SPRY_JINJA_NOTHING;
    *part = (spry_jinja_string){.data = from->data + begin, .size = end - begin, .escaped = from->escaped};
    if (from->n_marks == 1 && from->marks->begin <= begin && from->marks->end >= end) {
        part->whole.end = part->size;
        part->marks = &part->whole;
        part->n_marks = part->size != 0;
    } else if (from->n_marks) {
        spry_jinja_builder b;
        spry_jinja_builder_init(&b, run);
        spry_jinja_append_part(&b, from, begin, end);
        part->marks = b.marks;
        part->n_marks = b.n_marks;
    }
    return (spry_jinja_value){.kind = SPRY_JINJA_STRING, .string = part};
}

size_t spry_jinja_character(uint32_t *character, spry_view text, size_t at)
{
    size_t size = spry_utf8_decode(character, text.data + at, text.size - at);
    if (size)
        return size;
    *character = 0xfffd;
    return 1;
}

size_t spry_jinja_count_characters(spry_jinja_run *run, spry_view text)
{
    size_t count = 0;
    uint32_t character;
    if (!spry_jinja_spend(run, SPRY_JINJA_DECODED * text.size))
        return 0;
    for (size_t i = 0; i < text.size; i += spry_jinja_character(&character, text, i))
        count++;
    return count;
}

bool spry_jinja_is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
    if (c == 0x85)
        return true;
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)c);
    return category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

size_t spry_jinja_find(spry_jinja_run *run, spry_view text, spry_view part, size_t from)
{
    if (run->status)
        return text.size;
    const char *found = memmem(text.data + from, text.size - from, part.data, part.size);
    size_t at = found ? (size_t)(found - text.data) : text.size;
    return spry_jinja_spend(run, SPRY_JINJA_SEARCHED * (at - from)) ? at : text.size;
}

static bool is_stripped(spry_jinja_run *run, uint32_t character, const spry_view *set)
{
    uint32_t other;
    if (!spry_jinja_spend(run, set ? SPRY_JINJA_DECODED * set->size : 0))
        return false;
    if (!set)
        return spry_jinja_is_space(character);
    for (size_t i = 0; i < set->size;) {
        i += spry_jinja_character(&other, *set, i);
        if (other == character)
            return true;
    }
    return false;
}

spry_jinja_value spry_jinja_strip(spry_jinja_run *run, spry_jinja_value string, const spry_view *set, int sides)
{
    spry_view text = spry_jinja_view(string);
    size_t begin = 0, end = text.size;
    uint32_t character;
    while ((sides & SPRY_JINJA_LEFT) && begin < end) {
        size_t size = spry_jinja_character(&character, text, begin);
        if (!is_stripped(run, character, set))
            break;
        begin += size;
    }
    while ((sides & SPRY_JINJA_RIGHT) && begin < end) {
        size_t last = end - 1;
        while (last > begin && end - last < 4 && (text.data[last] & 0xc0) == 0x80)
            last--;
        if (last + spry_jinja_character(&character, text, last) != end) {
            last = end - 1; /* invalid UTF-8 */
            character = 0xfffd;
        }
        if (!is_stripped(run, character, set))
            break;
        end = last;
    }
    return run->status ? SPRY_JINJA_NOTHING : spry_jinja_substring(run, string, begin, end);
}

/* Replaces an empty pattern: Python inserts `with` between all characters and at both ends. */
static void replace_nothing(spry_jinja_builder *b, const spry_jinja_string *from, const spry_jinja_string *with,
                            int64_t limit)
{
    size_t at = 0;
    uint32_t character;
    for (; !b->run->status && limit != 0; limit--) {
        spry_jinja_append_string(b, with);
        if (at == from->size)
            return;
        size_t size = spry_jinja_character(&character, (spry_view){from->data, from->size}, at);
        spry_jinja_append_part(b, from, at, at + size);
        at += size;
    }
    spry_jinja_append_part(b, from, at, from->size);
}

spry_jinja_value spry_jinja_replace(spry_jinja_run *run, spry_jinja_value string, spry_jinja_value old,
                                    spry_jinja_value with, int64_t limit)
{
    spry_view text = spry_jinja_view(string), part = spry_jinja_view(old);
    spry_jinja_builder b;
    size_t at = 0;
    spry_jinja_builder_init(&b, run);
    if (part.size == 0) {
        replace_nothing(&b, string.string, with.string, limit);
        return spry_jinja_builder_string(&b);
    }
    for (; limit != 0 && !run->status; limit--) {
        size_t found = spry_jinja_find(run, text, part, at);
        if (found == text.size)
            break;
        spry_jinja_append_part(&b, string.string, at, found);
        spry_jinja_append_string(&b, with.string);
        at = found + part.size;
    }
    if (at == 0)
        return string;
    spry_jinja_append_part(&b, string.string, at, text.size);
    return spry_jinja_builder_string(&b);
}

static bool is_letter(uint32_t character)
{
    utf8proc_category_t category = utf8proc_category((utf8proc_int32_t)character);
    return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool opens_word(uint32_t character)
{
    return spry_jinja_is_space(character) || (character < 0x80 && character && strchr("-({[<", (char)character));
}

spry_jinja_value spry_jinja_change_case(spry_jinja_run *run, spry_jinja_value string, spry_jinja_case how)
{
    spry_view text = spry_jinja_view(string);
    spry_jinja_builder b;
    bool first = true;
    uint32_t character;
    spry_jinja_builder_init(&b, run);
    for (size_t at = 0, size; at < text.size && !run->status; at += size) {
        char out[4];
        size = spry_jinja_character(&character, text, at);
        bool large = how == SPRY_JINJA_UPPER || (how != SPRY_JINJA_LOWER && first);
        int32_t changed =
            large ? utf8proc_toupper((utf8proc_int32_t)character) : utf8proc_tolower((utf8proc_int32_t)character);
        first = how == SPRY_JINJA_TITLE ? !is_letter(character) : how == SPRY_JINJA_WORDS && opens_word(character);
        if (character == 0xfffd || changed < 0)
            spry_jinja_append_part(&b, string.string, at, at + size);
        else
            spry_jinja_append(&b, (spry_view){out, spry_utf8_encode(out, (uint32_t)changed)},
                              spry_jinja_is_marked(string.string, at));
    }
    return spry_jinja_builder_string(&b);
}
