/* A body is JSON, or a name and JSON, or tags. JSON is validated by jansson and then split by a scanner, so that
 * arguments are returned exactly as the model wrote them. */
#include "template/tool_call_body.h"

#include <stdlib.h>

#include "base/buffer.h"

enum { MAX_NAME_BYTES = 256, MAX_BODY_BYTES = 4 << 20 };

static size_t skip_space(spry_view text, size_t at)
{
    while (at < text.size && (text.data[at] == ' ' || (text.data[at] >= '\t' && text.data[at] <= '\r')))
        at++;
    return at;
}

static bool stands(spry_view text, size_t at, const char *part)
{
    return at <= text.size && spry_view_starts((spry_view){text.data + at, text.size - at}, spry_view_of(part));
}

/* Whether text[at..] is a proper prefix of `part`. */
static bool may_become(spry_view text, size_t at, const char *part)
{
    size_t left = text.size - at;
    return left < strlen(part) && memcmp(text.data + at, part, left) == 0;
}

static size_t find(spry_view text, size_t from, const char *part)
{
    const char *found = from < text.size ? memmem(text.data + from, text.size - from, part, strlen(part)) : NULL;
    return found ? (size_t)(found - text.data) : text.size;
}

/* ---- where it ends ----------------------------------------------------------------------------------------------- */

/* Continues scanning a JSON object or list; true once it is closed. */
static bool scan_json(spry_call_scan *scan, spry_view text)
{
    for (; scan->at < text.size && !scan->json_end; scan->at++) {
        char c = text.data[scan->at];
        if (scan->escaped) {
            scan->escaped = false;
        } else if (scan->in_string) {
            scan->escaped = c == '\\';
            scan->in_string = c != '"';
        } else if (c == '"') {
            scan->in_string = true;
        } else if (c == '{' || c == '[') {
            scan->depth++;
        } else if (c == '}' || c == ']') {
            scan->depth -= scan->depth > 0;
            scan->json_end = scan->depth ? 0 : scan->at + 1;
        }
    }
    return scan->json_end != 0;
}

/* Without an opening mark, JSON is a call only if its first key is one of a call's keys. */
static spry_call_state first_key(spry_view text, size_t at)
{
    static const char *const keys[] = {"name", "function", "type", "arguments", "parameters", "id", "tool_calls"};
    while (at < text.size && text.data[at] == '[')
        at = skip_space(text, at + 1);
    if (at >= text.size)
        return SPRY_CALL_MORE;
    if (text.data[at] != '{')
        return SPRY_CALL_WRONG;
    at = skip_space(text, at + 1);
    if (at >= text.size)
        return SPRY_CALL_MORE;
    if (text.data[at] != '"')
        return SPRY_CALL_WRONG;
    at++;
    size_t end = find(text, at, "\"");
    for (size_t i = 0; i < SPRY_COUNT(keys); i++) {
        size_t size = strlen(keys[i]);
        if (end < text.size ? end - at == size && memcmp(text.data + at, keys[i], size) == 0
                            : may_become(text, at, keys[i]) || (end - at == size && stands(text, at, keys[i])))
            return end < text.size ? SPRY_CALL_WHOLE : SPRY_CALL_MORE;
    }
    return SPRY_CALL_WRONG;
}

/* NAME[ARGS] or NAME[CALL_ID]ID[ARGS]; moves *at past it. */
static spry_call_state read_name(spry_view text, size_t *at)
{
    size_t args = find(text, *at, "[ARGS]");
    if (args < text.size && args - *at <= MAX_NAME_BYTES && args > *at) {
        *at = skip_space(text, args + strlen("[ARGS]"));
        return SPRY_CALL_WHOLE;
    }
    return args == text.size && text.size - *at <= MAX_NAME_BYTES ? SPRY_CALL_MORE : SPRY_CALL_WRONG;
}

/* After the JSON: the closing mark, if the style has one. */
static spry_call_state find_close(size_t *end, spry_view text, size_t at, const char *close, bool final)
{
    size_t next = skip_space(text, at);
    *end = at;
    if (!*close)
        return SPRY_CALL_WHOLE;
    if (stands(text, next, close)) {
        *end = next + strlen(close);
        return SPRY_CALL_WHOLE;
    }
    if (may_become(text, next, close))
        return final ? (*end = text.size, SPRY_CALL_WHOLE) : SPRY_CALL_MORE;
    return SPRY_CALL_WRONG;
}

static spry_call_state find_tags(spry_call_scan *scan, spry_view *body, size_t *end, spry_view text, bool final)
{
    static const char close[] = "</tool_call>", inner[] = "</function>";
    size_t found = find(text, scan->at, close), last = find(text, 0, inner);
    if (found < text.size) {
        *body = (spry_view){text.data, found};
        *end = found + strlen(close);
        return SPRY_CALL_WHOLE;
    }
    scan->at = text.size > sizeof close ? text.size - sizeof close : 0;
    if (!final)
        return SPRY_CALL_MORE;
    *body = text;
    *end = text.size;
    return last < text.size ? SPRY_CALL_WHOLE : SPRY_CALL_WRONG;
}

/* Finds the start of the JSON and checks the text before it. */
static spry_call_state find_json(size_t *at, spry_view text, spry_tool_style style, bool marked)
{
    spry_call_state state = SPRY_CALL_WHOLE;
    *at = skip_space(text, 0);
    if (*at >= text.size)
        return SPRY_CALL_MORE;
    bool json = text.data[*at] == '{' || text.data[*at] == '[';
    bool mistral = style == SPRY_TOOLS_MISTRAL || style == SPRY_TOOLS_MISTRAL_ARGS;
    if (!json && mistral) {
        state = read_name(text, at);
        if (state == SPRY_CALL_WHOLE && *at >= text.size)
            return SPRY_CALL_MORE;
        json = state == SPRY_CALL_WHOLE && text.data[*at] == '{';
        return state == SPRY_CALL_WHOLE && !json ? SPRY_CALL_WRONG : state;
    }
    if (!json)
        return SPRY_CALL_WRONG;
    return marked ? SPRY_CALL_WHOLE : first_key(text, *at);
}

static spry_call_state find_body(spry_call_scan *scan, spry_view *body, size_t *end, spry_view text,
                                 spry_tool_style style, bool marked, bool final)
{
    const char *close = spry_tool_style_marks(style)->close;
    size_t at = skip_space(text, 0);
    if (*close && stands(text, at, "<function="))
        return find_tags(scan, body, end, text, final);
    if (*close && may_become(text, at, "<function="))
        return SPRY_CALL_MORE;
    if (!scan->in_json) {
        spry_call_state state = find_json(&at, text, style, marked);
        if (state != SPRY_CALL_WHOLE)
            return state;
        scan->in_json = true;
        scan->at = at;
    }
    if (!scan_json(scan, text))
        return SPRY_CALL_MORE;
    *body = (spry_view){text.data, scan->json_end};
    return find_close(end, text, scan->json_end, close, final);
}

spry_call_state spry_call_body_find(spry_call_scan *scan, spry_view *body, size_t *end, spry_view text,
                                    spry_tool_style style, bool marked, bool final)
{
    spry_call_state state = find_body(scan, body, end, text, style, marked, final);
    size_t seen = state == SPRY_CALL_WHOLE ? *end : text.size;
    return seen > MAX_BODY_BYTES || (final && state == SPRY_CALL_MORE) ? SPRY_CALL_WRONG : state;
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

typedef struct reader {
    bool marked;
    const json_t *tools;
    void (*on_call)(void *user, const spry_call *call); /* NULL: only validate */
    void *user;
} reader;

/* The position after the value at `at`; the JSON is valid. */
static size_t skip_value(spry_view text, size_t at)
{
    spry_call_scan scan = {.at = at};
    if (text.data[at] == '{' || text.data[at] == '[') {
        scan_json(&scan, text);
        return scan.json_end;
    }
    if (text.data[at] == '"') {
        for (at++; at < text.size && text.data[at] != '"'; at++)
            at += text.data[at] == '\\';
        return at + 1;
    }
    while (at < text.size && !strchr(",}] \t\r\n", text.data[at]))
        at++;
    return at;
}

/* The text of an object's member; false when there is none of that name. */
static bool member(spry_view object, const char *name, spry_view *value)
{
    for (size_t at = skip_space(object, 1); at < object.size && object.data[at] == '"';) {
        spry_view key = {object.data + at + 1, skip_value(object, at) - at - 2};
        at = skip_space(object, skip_space(object, skip_value(object, at)) + 1);
        size_t end = skip_value(object, at);
        if (spry_view_is(key, name)) {
            *value = (spry_view){object.data + at, end - at};
            return true;
        }
        at = skip_space(object, end);
        at = skip_space(object, at + (at < object.size && object.data[at] == ','));
    }
    return false;
}

/* The string in a JSON value; NULL when it is not a string. The caller releases it with json_decref. */
static json_t *string_of(spry_view value)
{
    json_t *json = json_loadb(value.data, value.size, JSON_DECODE_ANY, NULL);
    if (json_is_string(json))
        return json;
    json_decref(json);
    return NULL;
}

static bool is_object(spry_view value)
{
    json_t *json = json_loadb(value.data, value.size, JSON_ALLOW_NUL, NULL);
    bool object = json_is_object(json);
    json_decref(json);
    return object;
}

static spry_view string_view(const json_t *string)
{
    return string ? (spry_view){json_string_value(string), json_string_length(string)} : (spry_view){"", 0};
}

static const json_t *function_of(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return function ? function : tool;
}

/* The declaration of a tool; NULL when there is none. */
static const json_t *find_tool(const json_t *tools, spry_view name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = function_of(json_array_get(tools, i));
        if (spry_view_equal(string_view(json_object_get(function, "name")), name))
            return function;
    }
    return NULL;
}

/* {"name": ..., "arguments": ...} and its variants. */
static bool read_call(const reader *r, spry_view object)
{
    spry_view value, function = object, arguments = SPRY_VIEW("{}");
    json_t *name = NULL, *id = NULL, *text = NULL;
    if (object.data[0] != '{')
        return false;
    if (member(object, "function", &value)) {
        function = value.data[0] == '{' ? value : object;
        name = value.data[0] == '"' ? string_of(value) : NULL;
    }
    if (!name && member(function, "name", &value))
        name = string_of(value);
    if (member(object, "id", &value))
        id = string_of(value);
    bool given = member(function, "arguments", &arguments) || member(function, "parameters", &arguments);
    if (given && arguments.data[0] == '"') { /* JSON encoded as a string: decode it */
        text = string_of(arguments);
        arguments = string_view(text);
    }
    bool right = name && json_string_length(name) && is_object(arguments) &&
                 (r->marked || (given && (!r->tools || find_tool(r->tools, string_view(name)))));
    if (right && r->on_call)
        r->on_call(r->user, &(spry_call){string_view(id), string_view(name), arguments});
    json_decref(name);
    json_decref(id);
    json_decref(text);
    return right;
}

static bool read_calls(const reader *r, spry_view json)
{
    spry_view list;
    size_t count = 0;
    if (json.data[0] == '{' && !member(json, "tool_calls", &list))
        return read_call(r, json);
    if (json.data[0] == '[')
        list = json;
    if (list.data[0] != '[')
        return false;
    for (size_t at = skip_space(list, 1); at < list.size && list.data[at] != ']'; count++) {
        size_t end = skip_value(list, at);
        if (!read_call(r, (spry_view){list.data + at, end - at}))
            return false;
        at = skip_space(list, end);
        at = skip_space(list, at + (at < list.size && list.data[at] == ','));
    }
    return count > 0;
}

/* NAME[ARGS]{...} or NAME[CALL_ID]ID[ARGS]{...} */
static bool read_named(const reader *r, spry_view body)
{
    size_t args = find(body, 0, "[ARGS]"), mark = find(body, 0, "[CALL_ID]");
    size_t begin = skip_space(body, 0), end = mark < args ? mark : args, json = skip_space(body, args + 6);
    while (end > begin && (body.data[end - 1] == ' ' || body.data[end - 1] == '\n'))
        end--;
    spry_call call = {{"", 0}, {body.data + begin, end - begin}, {body.data + json, body.size - json}};
    if (mark < args)
        call.id = (spry_view){body.data + mark + 9, args - mark - 9};
    if (call.name.size == 0 || !is_object(call.arguments))
        return false;
    if (r->on_call)
        r->on_call(r->user, &call);
    return true;
}

/* ---- tags -------------------------------------------------------------------------------------------------------- */

/* Whether the tool's declaration says that an argument is a string. */
static bool is_string_argument(const json_t *tools, spry_view function, spry_view argument)
{
    const json_t *parameters = json_object_get(find_tool(tools, function), "parameters");
    const json_t *property = json_object_getn(json_object_get(parameters, "properties"), argument.data, argument.size);
    return spry_view_is(string_view(json_object_get(property, "type")), "string");
}

/* A value between tags is JSON if valid, else a string; a newline at each end belongs to the tags. */
static bool append_value(spry_buffer *out, spry_view value, bool string)
{
    if (value.size && value.data[0] == '\n')
        value = (spry_view){value.data + 1, value.size - 1};
    if (value.size && value.data[value.size - 1] == '\n')
        value.size--;
    json_t *json = string ? NULL : json_loadb(value.data, value.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool as_is = json && !json_is_string(json);
    if (!as_is) {
        json_decref(json);
        json = json_stringn(value.data, value.size);
    }
    char *text = as_is || !json ? NULL : json_dumps(json, JSON_ENCODE_ANY);
    bool done = as_is ? spry_buffer_append(out, value.data, value.size) : text && spry_buffer_text(out, text);
    free(text);
    json_decref(json);
    return done;
}

/* One <parameter=KEY>value</parameter>; moves *at past it. */
static bool read_parameter(spry_buffer *out, const reader *r, spry_view function, spry_view body, size_t *at)
{
    static const char open[] = "<parameter=", close[] = "</parameter>";
    size_t key = *at + strlen(open), key_end = find(body, key, ">"), end = find(body, key_end, close);
    if (!stands(body, *at, open) || key_end == body.size || end == body.size)
        return false;
    spry_view name = {body.data + key, key_end - key};
    if (out->size > 1)
        spry_buffer_text(out, ", ");
    if (!append_value(out, name, true) || !spry_buffer_text(out, ": ") ||
        !append_value(out, (spry_view){body.data + key_end + 1, end - key_end - 1},
                      is_string_argument(r->tools, function, name)))
        return false;
    *at = skip_space(body, end + strlen(close));
    return true;
}

static bool read_tags(const reader *r, spry_view body)
{
    static const char open[] = "<function=", close[] = "</function>";
    size_t at = skip_space(body, 0) + strlen(open), end = find(body, at, ">");
    spry_buffer out;
    if (end == body.size || end == at)
        return false;
    spry_call call = {{"", 0}, {body.data + at, end - at}, {"", 0}};
    at = skip_space(body, end + 1);
    spry_buffer_init(&out, 2 * MAX_BODY_BYTES);
    spry_buffer_text(&out, "{");
    bool right = true;
    while (right && at < body.size && !stands(body, at, close))
        right = read_parameter(&out, r, call.name, body, &at);
    right = right && stands(body, at, close) && skip_space(body, at + strlen(close)) == body.size &&
            spry_buffer_text(&out, "}");
    call.arguments = spry_buffer_view(&out);
    if (right && r->on_call)
        r->on_call(r->user, &call);
    spry_buffer_deinit(&out);
    return right;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static bool read_body(const reader *r, spry_view body)
{
    size_t at = skip_space(body, 0);
    spry_view json = {body.data + at, body.size - at};
    if (stands(body, at, "<function="))
        return read_tags(r, body);
    if (json.size == 0 || (json.data[0] != '{' && json.data[0] != '['))
        return read_named(r, body);
    json_t *valid = json_loadb(json.data, json.size, JSON_ALLOW_NUL, NULL);
    bool right = valid && read_calls(r, json);
    json_decref(valid);
    return right;
}

bool spry_call_body_read(spry_view body, bool marked, const json_t *tools,
                         void (*on_call)(void *user, const spry_call *call), void *user)
{
    return read_body(&(reader){marked, tools, NULL, NULL}, body) &&
           read_body(&(reader){marked, tools, on_call, user}, body);
}
