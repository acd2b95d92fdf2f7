/* Calls as JSON: arguments are passed on exactly as the model wrote them, as soon as the name is known. */
#include <stdlib.h>

#include "base/compiler.h"
#include "template/call_reader.h"

typedef enum field { OTHER, NAME, ID, ARGUMENTS, FUNCTION, CALLS } field;

/* The string that a JSON text spells; false: it is no string. */
static bool decode(spry_buffer *out, spry_view json)
{
    json_t *string = json_loadb(json.data, json.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    spry_buffer_clear(out);
    bool done =
        json_is_string(string) && spry_buffer_append(out, json_string_value(string), json_string_length(string));
    json_decref(string);
    return done;
}

static bool is_object(spry_view text)
{
    json_t *json = json_loadb(text.data, text.size, JSON_ALLOW_NUL, NULL);
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

/* Arguments that are the text of an object in a string. */
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

/* Whole arguments: an object, a string or null. */
static bool send_held(spry_call_reader *r, spry_view json)
{
    if (json.data[0] == '"')
        return send_string(r, json);
    if (!r->begun && !spry_call_begin(r))
        return false;
    r->on_arguments(r->user, json.data[0] == '{' ? json : SPRY_VIEW("{}"));
    return true;
}

/* ---- an object behind a header ----------------------------------------------------------------------------------- */

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

/* A key within the call is complete. */
static bool on_key(spry_call_reader *r, spry_view json)
{
    spry_json_call *j = &r->json;
    j->field = (uint8_t)field_of(r, (spry_view){json.data + 1, json.size - 2});
    bool first = !j->first_key_seen;
    j->first_key_seen = true;
    if (r->style->keyed)
        return !r->begun && !j->has_arguments && decode(&r->name, json) && (r->named = true);
    /* Without a mark, JSON is a call only if its first key is one of a call's. */
    return r->marked || !first || j->field != OTHER || spry_view_is(json, "\"type\"");
}

/* A value begins, at `at`, where a call or a member of one may. */
static bool on_value(spry_call_reader *r, char c, size_t at)
{
    spry_json_call *j = &r->json;
    uint32_t within = j->walk.depth - (c == '{' || c == '['); /* the depth around the value */
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

/* A value within the call is complete. */
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

/* The object of a call is complete. */
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

/* Follows one byte, which is at r->at - 1 when this returns true. */
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
    if (waits && j->walk.depth > depth) /* an array within an array: the place is the same */
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

/* Behind a complete value: another one may follow. */
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
