/* Calls whose parameters stand between marks. Values are plain text: a closing mark inside a value ends it only where
 * another parameter or the end of the call follows. */
#include <stdio.h>

#include "template/call_reader.h"

enum { MAX_KEY_BYTES = 1024, MAX_DEPTH = 64, MAX_VALUE_BYTES = 64 << 20 };

static const char raw_open[] = "<![CDATA[", raw_close[] = "]]>";

static spry_view part(spry_view text, size_t begin, size_t end)
{
    return (spry_view){text.data + begin, end - begin};
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* Whether what follows a closing mark is the next parameter or the end of the call. */
static spry_mark_match goes_on(const spry_call_reader *r, spry_view text, size_t at, bool final)
{
    size_t end;
    at = spry_space_skip(text, at);
    if (at == text.size)
        return final ? SPRY_MARK_YES : SPRY_MARK_PERHAPS;
    spry_mark_match key = spry_mark_at(&end, text, at, r->style->parameter.key_open, final);
    spry_mark_match close = spry_mark_at(&end, text, at, r->style->close, final);
    return key > close ? key : close;
}

/* Finds the mark that closes the value which begins at `at`. */
static spry_call_state find_close(spry_call_reader *r, size_t *close, spry_view text, size_t at, bool final)
{
    const char *mark = r->style->parameter.value_close;
    if (r->search < at)
        r->search = at;
    for (;; r->search = *close + 1) {
        *close = spry_mark_find(text, r->search, mark);
        if (*close == text.size) {
            size_t keep = text.size > strlen(mark) ? text.size - strlen(mark) : 0;
            r->search = keep > r->search ? keep : r->search;
            return SPRY_CALL_MORE;
        }
        spry_mark_match follows = goes_on(r, text, *close + strlen(mark), final);
        if (follows == SPRY_MARK_PERHAPS)
            return SPRY_CALL_MORE;
        if (follows == SPRY_MARK_YES)
            return SPRY_CALL_ON;
    }
}

/* A value as JSON. `attributes` stand behind the key in its mark, and may tell the type. */
static bool append_value(spry_buffer *out, const spry_call_reader *r, spry_view value, spry_view attributes,
                         spry_argument_schema of)
{
    bool told = attributes.size > 1;
    bool string = spry_mark_find(attributes, 0, "string=\"true\"") < attributes.size ||
                  spry_mark_find(attributes, 0, "type=\"string\"") < attributes.size;
    size_t open = strlen(raw_open), close = strlen(raw_close);
    if (spry_view_starts(value, spry_view_of(raw_open)) && spry_view_ends(value, spry_view_of(raw_close)) &&
        value.size >= open + close)
        return spry_argument_string(out, part(value, open, value.size - close));
    if (r->style->lines && value.size && value.data[0] == '\n')
        value = part(value, 1, value.size);
    if (r->style->lines && value.size && value.data[value.size - 1] == '\n')
        value.size--;
    if (told)
        of = (spry_argument_schema){NULL, NULL};
    return string ? spry_argument_string(out, value) : spry_argument_text(out, value, of);
}

static spry_call_state read_parameter(spry_call_reader *r, spry_view text, size_t key, bool final)
{
    const spry_parameter_marks *m = &r->style->parameter;
    size_t key_end = spry_mark_find(text, key, m->key_close), value = key_end + strlen(m->key_close), close;
    if (key_end - key > MAX_KEY_BYTES)
        return SPRY_CALL_WRONG;
    if (key_end == text.size)
        return SPRY_CALL_MORE;
    if (m->value_open) {
        value = spry_space_skip(text, value);
        spry_mark_match open = spry_mark_at(&value, text, value, m->value_open, final);
        if (open != SPRY_MARK_YES)
            return open == SPRY_MARK_NO ? SPRY_CALL_WRONG : SPRY_CALL_MORE;
    }
    spry_call_state state = find_close(r, &close, text, value, final);
    if (state != SPRY_CALL_ON)
        return state;
    size_t name_end = spry_mark_find(part(text, 0, key_end), key, "\"");
    spry_view name = part(text, key, name_end);
    spry_argument_schema of =
        spry_argument_member(spry_argument_schema_of(spry_tool_find(r->tools, spry_buffer_view(&r->name))), name);
    spry_buffer json;
    spry_buffer_init(&json, MAX_VALUE_BYTES);
    bool done = append_value(&json, r, part(text, value, close), part(text, name_end, key_end), of) &&
                spry_call_argument(r, name, spry_buffer_view(&json));
    spry_buffer_deinit(&json);
    r->at = r->search = close + strlen(m->value_close);
    return done ? SPRY_CALL_ON : SPRY_CALL_WRONG;
}

/* The mark that ends the call, or another argument. */
static spry_call_state end_or_argument(spry_call_reader *r, spry_view text, const char *mark, size_t *argument,
                                       bool final)
{
    size_t end;
    r->at = spry_space_skip(text, r->at);
    spry_mark_match close = spry_mark_at(&end, text, r->at, r->style->close, final);
    if (close == SPRY_MARK_YES) {
        r->at = end;
        r->stage = SPRY_CALL_CLOSE;
        return spry_call_end(r) ? SPRY_CALL_WHOLE : SPRY_CALL_WRONG;
    }
    spry_mark_match open = spry_mark_at(argument, text, r->at, mark, final);
    if (open == SPRY_MARK_YES && close == SPRY_MARK_NO)
        return SPRY_CALL_ON;
    return close == SPRY_MARK_PERHAPS || open == SPRY_MARK_PERHAPS || r->at == text.size ? SPRY_CALL_MORE
                                                                                         : SPRY_CALL_WRONG;
}

spry_call_state spry_call_read_tagged(spry_call_reader *r, spry_view text, bool final)
{
    spry_call_state state = SPRY_CALL_ON;
    while (state == SPRY_CALL_ON) {
        size_t key;
        state = end_or_argument(r, text, r->style->parameter.key_open, &key, final);
        if (state == SPRY_CALL_ON)
            state = read_parameter(r, text, key, final);
    }
    return state;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

/* The element whose tag's name begins at `name`: *inner begins behind the tag, *close at its closing tag. */
static spry_call_state find_element(spry_call_reader *r, spry_view text, size_t name, size_t *inner, size_t *close)
{
    char open_tag[MAX_KEY_BYTES + 64], close_tag[MAX_KEY_BYTES + 64];
    size_t name_end = spry_mark_find(text, name, ">");
    if (name_end - name > MAX_KEY_BYTES || name_end == name)
        return SPRY_CALL_WRONG;
    if (name_end == text.size)
        return SPRY_CALL_MORE;
    const char *quote = r->style->quote;
    int size = (int)(name_end - name);
    snprintf(open_tag, sizeof open_tag, "%s<%.*s>", quote, size, text.data + name);
    snprintf(close_tag, sizeof close_tag, "%s</%.*s>", quote, size, text.data + name);
    *inner = name_end + 1;
    size_t depth = 1, at = *inner;
    while (depth) {
        *close = spry_mark_find(text, at, close_tag);
        size_t open = spry_mark_find(text, at, open_tag);
        if (*close == text.size)
            return SPRY_CALL_MORE;
        depth += open < *close ? 1 : (size_t)-1;
        at = open < *close ? open + strlen(open_tag) : *close + strlen(close_tag);
    }
    return SPRY_CALL_ON;
}

static bool append_element(spry_buffer *out, spry_call_reader *r, spry_view inner, spry_argument_schema of, int depth);

/* Elements within an element: items of a list, or members. */
static bool append_children(spry_buffer *out, spry_call_reader *r, spry_view inner, spry_argument_schema of, int depth)
{
    size_t tag = strlen(r->style->quote) + 1, count = 0;
    bool list = spry_view_starts(part(inner, tag, inner.size), SPRY_VIEW("item>")) &&
                (spry_argument_types(of) & SPRY_ARGUMENT_ARRAY);
    spry_buffer_text(out, list ? "[" : "{");
    for (size_t at = 0; at < inner.size; count++) {
        size_t begin, close, end;
        if (spry_mark_at(&end, inner, at, r->style->quote, true) != SPRY_MARK_YES ||
            find_element(r, inner, at + tag, &begin, &close) != SPRY_CALL_ON)
            return false;
        spry_view name = part(inner, at + tag, begin - 1);
        spry_buffer_text(out, count ? ", " : "");
        if (!list && (!spry_argument_string(out, name) || !spry_buffer_text(out, ": ")))
            return false;
        if (!append_element(out, r, part(inner, begin, close),
                            list ? spry_argument_item(of) : spry_argument_member(of, name), depth + 1))
            return false;
        at = spry_space_skip(inner, close + tag + name.size + 2);
    }
    return spry_buffer_text(out, list ? "]" : "}");
}

static bool append_element(spry_buffer *out, spry_call_reader *r, spry_view inner, spry_argument_schema of, int depth)
{
    size_t first = spry_space_skip(inner, 0);
    unsigned types = spry_argument_types(of);
    spry_view rest = part(inner, first, inner.size);
    if (depth == MAX_DEPTH)
        return false;
    if (spry_view_starts(rest, spry_view_of(r->style->quote)) && rest.size > strlen(r->style->quote) + 1)
        return append_children(out, r, rest, of, depth);
    if (rest.size == 0 && !(types & SPRY_ARGUMENT_STRING))
        return spry_buffer_text(out, types & SPRY_ARGUMENT_ARRAY ? "[]" : types & SPRY_ARGUMENT_OBJECT ? "{}" : "null");
    return spry_argument_text(out, inner, of);
}

spry_call_state spry_call_read_tree(spry_call_reader *r, spry_view text, bool final)
{
    char mark[64];
    spry_call_state state = SPRY_CALL_ON;
    snprintf(mark, sizeof mark, "%s<", r->style->quote);
    while (state == SPRY_CALL_ON) {
        size_t name, inner, close;
        state = end_or_argument(r, text, mark, &name, final);
        if (state == SPRY_CALL_ON)
            state = find_element(r, text, name, &inner, &close);
        if (state != SPRY_CALL_ON)
            break;
        spry_view key = part(text, name, inner - 1);
        spry_argument_schema of =
            spry_argument_member(spry_argument_schema_of(spry_tool_find(r->tools, spry_buffer_view(&r->name))), key);
        spry_buffer json;
        spry_buffer_init(&json, MAX_VALUE_BYTES);
        if (!append_element(&json, r, part(text, inner, close), of, 0) ||
            !spry_call_argument(r, key, spry_buffer_view(&json)))
            state = SPRY_CALL_WRONG;
        spry_buffer_deinit(&json);
        r->at = close + strlen(r->style->quote) + key.size + 3;
    }
    return state;
}
