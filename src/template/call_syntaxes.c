/* The syntaxes of tool calls. */
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/json.h"
#include "template/call_reader.h"

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

/* Calls as JSON. Arguments are reported exactly as the model wrote them, as soon as the name is known. */

typedef enum field { OTHER, NAME, ID, ARGUMENTS, FUNCTION, CALLS } field;

/* Decodes a JSON string; false: the text is not one. */
static bool decode(spry_buffer *out, spry_view json)
{
    json_t *string = spry_json_value(json);
    spry_buffer_clear(out);
    bool done =
        json_is_string(string) && spry_buffer_append(out, json_string_value(string), json_string_length(string));
    json_decref(string);
    return done;
}

static bool is_object(spry_view text)
{
    json_t *json = spry_json_value(text);
    bool object = json_is_object(json);
    json_decref(json);
    return object;
}

/* Reports arguments up to `end`. */
static void send(spry_call_reader *r, spry_view text, size_t end)
{
    if (end > r->json.sent)
        r->on_arguments(r->user, (spry_view){text.data + r->json.sent, end - r->json.sent});
    r->json.sent = end > r->json.sent ? end : r->json.sent;
}

/* Reports arguments that are a string containing an object's text. */
static bool send_string(spry_call_reader *r, spry_view json)
{
    spry_buffer text;
    spry_buffer_init(&text, SIZE_MAX / 2);
    bool done = decode(&text, json) && is_object(spry_buffer_view(&text)) && (r->begun || spry_call_begin(r));
    if (done)
        r->on_arguments(r->user, spry_buffer_view(&text));
    spry_buffer_deinit(&text);
    return done;
}

/* Reports complete arguments: an object, a string or null. */
static bool send_held(spry_call_reader *r, spry_view json)
{
    if (json.data[0] == '"')
        return send_string(r, json);
    if (!r->begun && !spry_call_begin(r))
        return false;
    r->on_arguments(r->user, json.data[0] == '{' ? json : SPRY_VIEW("{}"));
    return true;
}

/* ---- an object after a header ------------------------------------------------------------------------------------ */

spry_call_state spry_call_read_object(spry_call_reader *r, spry_view text, bool final)
{
    spry_json_call *j = &r->json;
    (void) final;
    if (!r->begun && j->token == 0) {
        r->at = spry_space_skip(text, r->at);
        if (r->at == text.size)
            return SPRY_CALL_MORE;
        if ((text.data[r->at] != '{' && text.data[r->at] != '"') || (text.data[r->at] == '{' && !spry_call_begin(r)))
            return SPRY_CALL_WRONG;
        j->token = j->sent = r->at;
        j->walk = (spry_json_walk){0};
    }
    bool string = text.data[j->token] == '"', right = true;
    while (right && r->at < text.size && !spry_json_walk_done(&j->walk)) {
        right = spry_json_walk_byte(&j->walk, text.data[r->at]);
        r->at += right;
    }
    if (!string)
        send(r, text, r->at);
    if (!right)
        return SPRY_CALL_WRONG;
    if (!spry_json_walk_done(&j->walk))
        return SPRY_CALL_MORE;
    if (string && !send_string(r, (spry_view){text.data + j->token, r->at - j->token}))
        return SPRY_CALL_WRONG;
    r->on_end(r->user);
    r->begun = false;
    r->done = r->at;
    r->stage = SPRY_CALL_CLOSE;
    return SPRY_CALL_ON;
}

/* ---- objects that are calls -------------------------------------------------------------------------------------- */

static field field_of(const spry_call_reader *r, spry_view key)
{
    static const struct {
        const char *key;
        field field;
    } keys[] = {{"name", NAME},         {"tool_name", NAME}, {"arguments", ARGUMENTS}, {"parameters", ARGUMENTS},
                {"function", FUNCTION}, {"id", ID},          {"tool_call_id", ID},     {"tool_calls", CALLS}};
    for (size_t i = 0; i < SPRY_COUNT(keys) && !r->style->keyed; i++)
        if (spry_view_is(key, keys[i].key))
            return keys[i].field;
    return r->style->keyed ? ARGUMENTS : OTHER;
}

/* Called when a key of the call is complete. */
static bool on_key(spry_call_reader *r, spry_view json)
{
    spry_json_call *j = &r->json;
    j->field = (uint8_t)field_of(r, (spry_view){json.data + 1, json.size - 2});
    bool first = !j->first_key_seen;
    j->first_key_seen = true;
    if (r->style->keyed)
        return !r->begun && !j->has_arguments && decode(&r->name, json) && (r->named = true);
    /* without a mark, JSON is a call only if its first key is one that calls have */
    return r->marked || !first || j->field != OTHER || spry_view_is(json, "\"type\"");
}

/* Called when a value begins, at `at`, that may be a call or a member of one. */
static bool on_value(spry_call_reader *r, char c, size_t at)
{
    spry_json_call *j = &r->json;
    uint32_t within = j->walk.depth - (c == '{' || c == '['); /* the depth outside of this value */
    if (j->call_depth == 0) {
        if (within != j->list_depth || (within == 0 && c != '{' && c != '['))
            return within != j->list_depth;
        if (c == '[' && within == 0) {
            j->list_depth = 1;
            return true;
        }
        j->call_depth = j->walk.depth;
        j->field = OTHER;
        j->has_arguments = j->streams = j->first_key_seen = false;
        r->named = false;
        spry_buffer_clear(&r->name);
        spry_buffer_clear(&r->id);
        return c == '{';
    }
    if (within != j->call_depth)
        return true;
    j->token = at;
    if (j->field == FUNCTION && c == '{') {
        j->call_depth = j->walk.depth;
    } else if (j->field == CALLS) {
        j->list_depth = j->walk.depth;
        j->call_depth = 0;
        return c == '[' && !r->begun;
    } else if (j->field == ARGUMENTS) {
        if (c == '{' && r->named && !j->has_arguments) {
            j->sent = at;
            j->streams = spry_call_begin(r);
            return j->streams;
        }
        return c == '{' || c == '"' || c == 'n';
    }
    return j->field != NAME || c == '"';
}

/* Called when a value of the call is complete. */
static bool on_value_end(spry_call_reader *r, spry_view text, size_t end)
{
    spry_json_call *j = &r->json;
    field was = (field)j->field;
    spry_view json = {text.data + j->token, end - j->token};
    j->field = OTHER;
    if (was == ARGUMENTS && !j->has_arguments) {
        j->has_arguments = true;
        j->held = (spry_text_range){j->token, end};
        if (j->streams)
            send(r, text, end);
        else if (r->named)
            return send_held(r, json);
        j->streams = false;
    } else if ((was == NAME || (was == FUNCTION && json.data[0] == '"')) && !r->named) {
        r->named = decode(&r->name, json);
        if (r->named && j->has_arguments)
            return send_held(r, (spry_view){text.data + j->held.begin, j->held.end - j->held.begin});
        return r->named;
    } else if (was == ID && json.data[0] == '"') {
        return decode(&r->id, json);
    }
    return true;
}

/* Called when the object of a call is complete. */
static bool on_call_end(spry_call_reader *r)
{
    spry_json_call *j = &r->json;
    if (!r->named || (!r->marked && !j->has_arguments) || (!r->begun && !spry_call_begin(r)))
        return false;
    if (!j->has_arguments)
        r->on_arguments(r->user, SPRY_VIEW("{}"));
    r->on_end(r->user);
    r->begun = r->named = false;
    j->call_depth = 0;
    j->n_calls++;
    r->done = r->at;
    return true;
}

/* Processes one byte; when it returns true, the byte is at r->at - 1. */
static bool read_byte(spry_call_reader *r, spry_view text)
{
    spry_json_call *j = &r->json;
    size_t at = r->at;
    spry_json_place before = j->walk.place;
    uint32_t depth = j->walk.depth;
    bool waits = before == SPRY_JSON_VALUE || before == SPRY_JSON_FIRST_VALUE;
    if (!spry_json_walk_byte(&j->walk, text.data[at]))
        return false;
    r->at++;
    spry_json_place now = j->walk.place;
    if (waits && now != before && j->walk.depth >= depth && !(now == SPRY_JSON_AFTER))
        return on_value(r, text.data[at], at);
    if (waits && j->walk.depth > depth) /* an array inside an array, where the place does not change */
        return on_value(r, text.data[at], at);
    if (j->call_depth == 0)
        return true;
    if (before != SPRY_JSON_IN_KEY && now == SPRY_JSON_IN_KEY && depth == j->call_depth)
        j->token = at;
    if (before == SPRY_JSON_IN_KEY && now == SPRY_JSON_COLON && depth == j->call_depth)
        return on_key(r, (spry_view){text.data + j->token, r->at - j->token});
    if (j->walk.depth < j->call_depth)
        return on_call_end(r);
    bool ended = now == SPRY_JSON_AFTER && j->walk.depth == j->call_depth &&
                 (depth > j->call_depth || before == SPRY_JSON_IN_STRING || before == SPRY_JSON_IN_WORD);
    return !ended || on_value_end(r, text, r->at);
}

/* Continues after a complete value; another one may follow. */
static spry_call_state next_value(spry_call_reader *r, spry_view text, bool final)
{
    if (!r->json.n_calls)
        return SPRY_CALL_WRONG;
    r->done = r->at;
    size_t at = spry_space_skip(text, r->at);
    while (at < text.size && (text.data[at] == ',' || text.data[at] == ';'))
        at = spry_space_skip(text, at + 1);
    if (at < text.size && (text.data[at] == '{' || text.data[at] == '[')) {
        r->at = at;
        r->json = (spry_json_call){0};
        return SPRY_CALL_ON;
    }
    if (at == text.size && !final)
        return SPRY_CALL_MORE;
    r->stage = SPRY_CALL_CLOSE;
    return r->marked ? SPRY_CALL_ON : SPRY_CALL_WHOLE;
}

spry_call_state spry_call_read_json(spry_call_reader *r, spry_view text, bool final)
{
    spry_json_call *j = &r->json;
    if (j->walk.place == SPRY_JSON_VALUE && j->walk.depth == 0) {
        r->at = spry_space_skip(text, r->at);
        if (r->at == text.size)
            return SPRY_CALL_MORE;
        if (text.data[r->at] != '{' && text.data[r->at] != '[' && r->marked && r->style->bare) {
            r->syntax = SPRY_CALL_PYTHON;
            return SPRY_CALL_ON;
        }
    }
    bool right = true;
    while (right && r->at < text.size && !spry_json_walk_done(&j->walk))
        right = read_byte(r, text);
    if (j->streams)
        send(r, text, r->at);
    if (!right)
        return SPRY_CALL_WRONG;
    return spry_json_walk_done(&j->walk) ? next_value(r, text, final) : SPRY_CALL_MORE;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

/* Calls as expressions: NAME(key=value, ...) and NAME{key:value, ...}. */

enum { MAX_NAME_BYTES = 256, MAX_VALUE_BYTES = 64 << 20 };

/* Reads the text up to one of the bytes in `ends`; MORE: none has arrived yet. */
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

/* Reads arguments up to `close`; each is a key, `separator` and a literal. */
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
        if (sign == text.size)
            return SPRY_CALL_MORE;
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

/* Reads the name and its opening parenthesis. */
static spry_call_state read_name(spry_call_reader *r, spry_view text)
{
    static const char call[] = ".call";
    spry_view name;
    spry_call_state state = read_word(&name, r, text, "([]{}=\"'\n,;<");
    if (state != SPRY_CALL_ON)
        return state;
    size_t next = spry_space_skip(text, (size_t)(name.data + name.size - text.data));
    if (next == text.size)
        return SPRY_CALL_MORE;
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

/* Reads what precedes a name: "[" before the first, "," between two; or "]" after the last. WHOLE: no other call
 * follows. */
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

/* ---- parameters between marks ------------------------------------------------------------------------------------ */

/* Calls whose parameters are between marks. Values are plain text, which may contain the closing mark: it ends a value
 * only if another parameter or the end of the call follows. */

enum { MAX_KEY_BYTES = 1024, MAX_DEPTH = 64 };

static const char raw_open[] = "<![CDATA[", raw_close[] = "]]>";

static spry_view part(spry_view text, size_t begin, size_t end)
{
    return (spry_view){text.data + begin, end - begin};
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* Whether the text after a closing mark is another parameter or the end of the call. */
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

/* Finds the mark that closes the value beginning at `at`. */
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

/* Appends a value as JSON. `attributes` is the text after the key in its mark, which may tell the type. */
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

/* Finds the mark that ends the call, or the beginning of another argument. */
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

/* Finds the element whose tag name begins at `name`: *inner is the offset after its tag, *close that of its closing
 * tag. */
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

/* Appends the elements inside an element as a list, or as an object. */
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
