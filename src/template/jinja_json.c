/* JSON as json.dumps writes it: ", " and ": " as separators, keys in insertion order, floats as repr() prints them. */
#include "template/jinja_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "template/jinja_builder.h"
#include "template/jinja_print.h"

/* ---- in ---------------------------------------------------------------------------------------------------------- */

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

/* ---- out --------------------------------------------------------------------------------------------------------- */

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

/* Keys that are not strings are converted as json.dumps does. */
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

/* The entries sorted by key, in memory of the run. */
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
        spry_jinja_print_real(text, v.real);
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
