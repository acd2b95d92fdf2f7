/* Calls as expressions: NAME(key=value, ...) and NAME{key:value, ...}. */
#include "template/call_reader.h"

enum { MAX_NAME_BYTES = 256, MAX_VALUE_BYTES = 64 << 20 };

/* The text up to one of the bytes `ends`; MORE: it is not there yet. */
static spry_call_state read_word(spry_view *word, const spry_call_reader *r, spry_view text, const char *ends)
{
    size_t begin = spry_space_skip(text, r->at), end = begin;
    while (end < text.size && end - begin <= MAX_NAME_BYTES && !strchr(ends, text.data[end]))
        end++;
    if (end - begin > MAX_NAME_BYTES)
        return SPRY_CALL_WRONG;
    *word = (spry_view){text.data + begin, end - begin};
    while (word->size && spry_space_skip(*word, word->size - 1) == word->size)
        word->size--;
    return end == text.size ? SPRY_CALL_MORE : SPRY_CALL_ON;
}

/* Arguments up to `close`, each a key, `separator` and a literal. */
static spry_call_state read_arguments(spry_call_reader *r, spry_view text, char separator, char close, bool final)
{
    const char ends[] = {separator, '\n', '(', ')', '{', '}', ',', 0};
    for (;;) {
        spry_view key;
        r->at = spry_space_skip(text, r->at);
        if (r->at == text.size)
            return SPRY_CALL_MORE;
        if (text.data[r->at] == close) {
            r->at++;
            return spry_call_end(r) ? SPRY_CALL_ON : SPRY_CALL_WRONG;
        }
        spry_call_state state = read_word(&key, r, text, ends);
        if (state != SPRY_CALL_ON)
            return state;
        size_t sign = spry_space_skip(text, (size_t)(key.data + key.size - text.data));
        if (key.size == 0 || text.data[sign] != separator)
            return SPRY_CALL_WRONG;
        size_t begin = sign + 1;
        if (r->scan.at < begin)
            r->scan = (spry_literal_scan){.at = begin};
        if (!spry_argument_literal_end(&r->scan, text, r->style->quote, final))
            return SPRY_CALL_MORE;
        size_t end = r->scan.at;
        const json_t *function = spry_tool_find(r->tools, spry_buffer_view(&r->name));
        spry_buffer json;
        spry_buffer_init(&json, MAX_VALUE_BYTES);
        bool done = spry_argument_literal(&json, (spry_view){text.data + begin, end - begin}, r->style->quote,
                                          spry_argument_member(spry_argument_schema_of(function), key)) &&
                    spry_call_argument(r, key, spry_buffer_view(&json));
        spry_buffer_deinit(&json);
        r->at = end + (text.data[end] == ',');
        if (!done || (text.data[end] != ',' && text.data[end] != close))
            return SPRY_CALL_WRONG;
    }
}

spry_call_state spry_call_read_braced(spry_call_reader *r, spry_view text, bool final)
{
    spry_call_state state = read_arguments(r, text, ':', '}', final);
    if (state == SPRY_CALL_ON)
        r->stage = SPRY_CALL_CLOSE;
    return state;
}

/* The name and its parenthesis. */
static spry_call_state read_name(spry_call_reader *r, spry_view text)
{
    static const char call[] = ".call";
    spry_view name;
    spry_call_state state = read_word(&name, r, text, "([]{}=\"'\n,;<");
    if (state != SPRY_CALL_ON)
        return state;
    size_t next = spry_space_skip(text, (size_t)(name.data + name.size - text.data));
    if (name.size == 0 || text.data[next] != '(' || memchr(name.data, ' ', name.size))
        return SPRY_CALL_WRONG;
    if (r->style->bare && spry_view_ends(name, spry_view_of(call)))
        name.size -= strlen(call);
    r->at = next + 1;
    r->named = true;
    r->expects_name = false;
    spry_buffer_clear(&r->name);
    return spry_buffer_append(&r->name, name.data, name.size) ? SPRY_CALL_ON : SPRY_CALL_WRONG;
}

/* Before a name: "[" before the first, "," between two, "]" behind the last. WHOLE: there is no other call. */
static spry_call_state read_separator(spry_call_reader *r, spry_view text, bool final)
{
    size_t at = spry_space_skip(text, r->at);
    bool first = r->done == 0;
    if (at == text.size && !final)
        return SPRY_CALL_MORE;
    char c = at < text.size ? text.data[at] : 0;
    if (first ? c == '[' : r->in_list && (c == ',' || c == ']'))
        r->at = at + 1;
    r->in_list = first ? c == '[' : r->in_list;
    r->expects_name = first || (r->in_list && c == ',');
    return r->expects_name ? SPRY_CALL_ON : SPRY_CALL_WHOLE;
}

spry_call_state spry_call_read_python(spry_call_reader *r, spry_view text, bool final)
{
    for (;;) {
        spry_call_state state = SPRY_CALL_ON;
        if (!r->named && !r->expects_name)
            state = read_separator(r, text, final);
        if (state == SPRY_CALL_WHOLE) {
            r->stage = SPRY_CALL_CLOSE;
            return SPRY_CALL_ON;
        }
        if (state == SPRY_CALL_ON && !r->named)
            state = read_name(r, text);
        if (state == SPRY_CALL_ON)
            state = read_arguments(r, text, '=', ')', final);
        if (state != SPRY_CALL_ON)
            return state;
    }
}
