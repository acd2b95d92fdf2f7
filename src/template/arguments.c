/* Arguments of tool calls: the types that tools declare, and values that a model did not write as JSON. */
#include "template/arguments.h"

#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/json.h"

/* ---- declared types ---------------------------------------------------------------------------------------------- */

/* Finds out which types a tool declares. References and alternatives are followed for a limited number of visits;
 * beyond it all types are allowed. */

enum { MAX_REFERENCES = 16, MAX_VISITS = 256 };

static spry_view string_view(const json_t *string)
{
    return string ? (spry_view){json_string_value(string), json_string_length(string)} : (spry_view){"", 0};
}

const json_t *spry_tool_function(const json_t *tool)
{
    const json_t *function = json_object_get(tool, "function");
    return json_is_object(function) ? function : tool;
}

const json_t *spry_tool_find(const json_t *tools, spry_view name)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *function = spry_tool_function(json_array_get(tools, i)), *own = json_object_get(function, "name");
        if (json_is_string(own) && spry_view_equal(string_view(own), name))
            return function;
    }
    return NULL;
}

spry_argument_schema spry_argument_schema_of(const json_t *function)
{
    const json_t *parameters = json_object_get(function, "parameters");
    return (spry_argument_schema){parameters, parameters};
}

/* Follows a JSON pointer "#/a/b" in the document. */
static const json_t *follow(const json_t *root, const char *pointer)
{
    const json_t *at = *pointer == '#' ? root : NULL;
    for (pointer++; at && *pointer == '/';) {
        size_t size = strcspn(++pointer, "/");
        at = json_is_array(at) ? json_array_get(at, strtoul(pointer, NULL, 10)) : json_object_getn(at, pointer, size);
        pointer += size;
    }
    return at;
}

/* The schema itself, or the schema to which it refers. */
static spry_argument_schema resolve(spry_argument_schema of)
{
    for (int i = 0; i < MAX_REFERENCES; i++) {
        const char *to = json_string_value(json_object_get(of.schema, "$ref"));
        if (!to)
            return of;
        of.schema = follow(of.root, to);
    }
    return (spry_argument_schema){of.root, NULL};
}

static const char *const branches[] = {"anyOf", "oneOf", "allOf"};

/* Searches a schema and its branches for the first one with the member `key`; with `name`, for the first whose `key`
 * contains that member. */
static const json_t *find_in(spry_argument_schema of, const char *key, const spry_view *name, unsigned *visits)
{
    if (++*visits > MAX_VISITS)
        return NULL;
    of = resolve(of);
    const json_t *found = json_object_get(of.schema, key);
    if (found && name)
        found = json_object_getn(found, name->data, name->size);
    for (size_t i = 0; !found && i < SPRY_COUNT(branches); i++) {
        const json_t *list = json_object_get(of.schema, branches[i]);
        for (size_t k = 0; !found && k < json_array_size(list) && *visits <= MAX_VISITS; k++)
            found = find_in((spry_argument_schema){of.root, json_array_get(list, k)}, key, name, visits);
    }
    return found;
}

spry_argument_schema spry_argument_member(spry_argument_schema of, spry_view name)
{
    unsigned visits = 0;
    const json_t *found = find_in(of, "properties", &name, &visits);
    if (!found)
        found = find_in(of, "additionalProperties", NULL, &visits);
    return (spry_argument_schema){of.root, found};
}

spry_argument_schema spry_argument_item(spry_argument_schema of)
{
    unsigned visits = 0;
    return (spry_argument_schema){of.root, find_in(of, "items", NULL, &visits)};
}

static unsigned named_type(const json_t *name)
{
    static const char *const names[] = {"string", "integer", "number", "boolean", "null", "array", "object"};
    for (size_t i = 0; json_is_string(name) && i < SPRY_COUNT(names); i++)
        if (spry_view_is(string_view(name), names[i]))
            return 1u << i | (i == 2 ? SPRY_ARGUMENT_INTEGER : 0u);
    return SPRY_ARGUMENT_ANY;
}

static unsigned type_of_value(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_STRING: return SPRY_ARGUMENT_STRING;
    case JSON_INTEGER: return SPRY_ARGUMENT_INTEGER | SPRY_ARGUMENT_NUMBER;
    case JSON_REAL: return SPRY_ARGUMENT_NUMBER;
    case JSON_TRUE:
    case JSON_FALSE: return SPRY_ARGUMENT_BOOLEAN;
    case JSON_NULL: return SPRY_ARGUMENT_NULL;
    case JSON_ARRAY: return SPRY_ARGUMENT_ARRAY;
    default: return SPRY_ARGUMENT_OBJECT;
    }
}

static unsigned types_within(spry_argument_schema of, unsigned *visits);

/* The types that the branches under a key allow: types that all of them allow, or any of them. */
static unsigned types_of_branches(spry_argument_schema of, const char *key, bool all, unsigned *visits)
{
    const json_t *list = json_object_get(of.schema, key);
    unsigned types = all || !json_array_size(list) ? SPRY_ARGUMENT_ANY : 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        if (*visits > MAX_VISITS)
            return SPRY_ARGUMENT_ANY;
        unsigned one = types_within((spry_argument_schema){of.root, json_array_get(list, i)}, visits);
        types = all ? types & one : types | one;
    }
    return types;
}

static unsigned types_within(spry_argument_schema of, unsigned *visits)
{
    unsigned types = SPRY_ARGUMENT_ANY, of_values = 0;
    of = resolve(of);
    if (!json_is_object(of.schema) || ++*visits > MAX_VISITS)
        return types;
    const json_t *type = json_object_get(of.schema, "type"), *values = json_object_get(of.schema, "enum");
    const json_t *fixed = json_object_get(of.schema, "const");
    if (json_is_array(type)) {
        types = 0;
        for (size_t i = 0; i < json_array_size(type); i++)
            types |= named_type(json_array_get(type, i));
    } else if (type) {
        types = named_type(type);
    }
    for (size_t i = 0; i < json_array_size(values); i++)
        of_values |= type_of_value(json_array_get(values, i));
    types &= json_array_size(values) ? of_values : SPRY_ARGUMENT_ANY;
    types &= fixed ? type_of_value(fixed) : SPRY_ARGUMENT_ANY;
    for (size_t i = 0; i < SPRY_COUNT(branches); i++)
        types &= types_of_branches(of, branches[i], strcmp(branches[i], "allOf") == 0, visits);
    return types;
}

unsigned spry_argument_types(spry_argument_schema of)
{
    unsigned visits = 0, types = types_within(of, &visits);
    return types ? types : SPRY_ARGUMENT_ANY;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A recursive reader of literals, with bounded depth; it writes JSON while it reads. */

enum { MAX_DEPTH = 64, MAX_TEXT_BYTES = 64 << 20 };

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static spry_view trim(spry_view text)
{
    while (text.size && is_space(text.data[0]))
        text = (spry_view){text.data + 1, text.size - 1};
    while (text.size && is_space(text.data[text.size - 1]))
        text.size--;
    return text;
}

bool spry_argument_string(spry_buffer *out, spry_view text)
{
    json_t *string = json_stringn(text.data, text.size);
    char *spelled = string ? spry_json_text(string, JSON_ENCODE_ANY) : NULL;
    bool done = spelled && spry_buffer_text(out, spelled);
    free(spelled);
    json_decref(string);
    return done;
}

/* ---- the end of a literal ---------------------------------------------------------------------------------------- */

/* True if a delimiter follows; *known: the text so far is enough to decide. */
static bool delimiter_follows(spry_view text, size_t at, bool final, bool *known)
{
    while (at < text.size && is_space(text.data[at]))
        at++;
    *known = at < text.size || final;
    return at == text.size ? final : strchr(",)]}:", text.data[at]) != NULL;
}

static bool is_at(spry_view text, size_t at, const char *part)
{
    return at <= text.size && spry_view_starts((spry_view){text.data + at, text.size - at}, spry_view_of(part));
}

/* Moves to the end of a string; false: more text is needed. */
static bool scan_string(spry_literal_scan *s, spry_view text, const char *quote, bool final)
{
    for (; s->at < text.size; s->at++) {
        char c = text.data[s->at];
        bool known;
        if (s->quote == 1) {
            if (c != quote[0])
                continue;
            if (!final && text.size - s->at < strlen(quote))
                return false;
            if (!is_at(text, s->at, quote))
                continue;
            s->at += strlen(quote);
            s->quote = 0;
            return true;
        }
        if (s->escaped) {
            s->escaped = false;
        } else if (c == '\\') {
            s->escaped = true;
        } else if (c == s->quote) {
            bool ends = delimiter_follows(text, s->at + 1, final, &known);
            if (!known)
                return false;
            if (ends) {
                s->at++;
                s->quote = 0;
                return true;
            }
        }
    }
    return false;
}

bool spry_argument_literal_end(spry_literal_scan *s, spry_view text, const char *quote, bool final)
{
    while (s->at < text.size) {
        if (s->quote) {
            if (!scan_string(s, text, quote, final))
                return false;
            continue;
        }
        char c = text.data[s->at];
        if (quote && c == quote[0]) {
            if (!final && text.size - s->at < strlen(quote))
                return false;
            if (is_at(text, s->at, quote)) {
                s->quote = 1;
                s->at += strlen(quote);
                continue;
            }
        }
        if (!quote && (c == '"' || c == '\'')) {
            s->quote = c;
        } else if (c == '{' || c == '[' || c == '(') {
            s->depth++;
        } else if (s->depth == 0 && strchr(",)]}", c) && c) {
            return true;
        } else if (c == '}' || c == ']' || c == ')') {
            s->depth--;
        }
        s->at++;
    }
    return false;
}

/* ---- literals ---------------------------------------------------------------------------------------------------- */

typedef struct literal_reader {
    spry_view text;
    size_t at;
    const char *quote;
    spry_buffer *out;
} literal_reader;

static void skip_space(literal_reader *r)
{
    while (r->at < r->text.size && is_space(r->text.data[r->at]))
        r->at++;
}

static char peek(const literal_reader *r)
{
    return r->at < r->text.size ? r->text.data[r->at] : 0;
}

static bool append_utf8(spry_buffer *out, unsigned long code)
{
    unsigned char bytes[4];
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; code >>= 6)
        bytes[i] = (unsigned char)(0x80 | (code & 0x3f));
    bytes[0] = (unsigned char)(lead[n] | code);
    return spry_buffer_append(out, bytes, n);
}

/* The code of an escape with `digits` hexadecimal digits; false: it is none. */
static bool hex_code(const literal_reader *r, size_t at, size_t digits, unsigned long *code)
{
    *code = 0;
    for (size_t i = 0; i < digits; i++, at++) {
        char c = at < r->text.size ? r->text.data[at] : 0;
        int value = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (value < 0)
            return false;
        *code = *code * 16 + (unsigned long)value;
    }
    return true;
}

/* Reads an escape; starts after the backslash. */
static bool read_escape(literal_reader *r, spry_buffer *string)
{
    static const char from[] = "ntrbf0\"'\\/", to[] = "\n\t\r\b\f\0\"'\\/";
    char c = peek(r);
    const char *found = c ? strchr(from, c) : NULL;
    unsigned long code, low;
    if (c == 'u' && hex_code(r, r->at + 1, 4, &code)) {
        r->at += 5;
        if (code >= 0xd800 && code < 0xdc00 && is_at(r->text, r->at, "\\u") && hex_code(r, r->at + 2, 4, &low) &&
            low >= 0xdc00 && low < 0xe000) {
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            r->at += 6;
        }
        return append_utf8(string, code >= 0xd800 && code < 0xe000 ? 0xfffd : code);
    }
    if (c == 'x' && hex_code(r, r->at + 1, 2, &code)) {
        r->at += 3;
        return append_utf8(string, code);
    }
    r->at += found != NULL;
    return spry_buffer_append(string, found ? &to[found - from] : "\\", 1);
}

/* Reads a string without its quotes. */
static bool read_string(literal_reader *r, spry_buffer *string)
{
    const char *mark = r->quote;
    if (mark) {
        r->at += strlen(mark);
        const char *end = memmem(r->text.data + r->at, r->text.size - r->at, mark, strlen(mark));
        if (!end)
            return false;
        size_t size = (size_t)(end - (r->text.data + r->at));
        bool done = spry_buffer_append(string, r->text.data + r->at, size);
        r->at += size + strlen(mark);
        return done;
    }
    for (char quote = r->text.data[r->at++]; r->at < r->text.size;) {
        char c = r->text.data[r->at++];
        bool known;
        if (c == '\\') {
            if (!read_escape(r, string))
                return false;
        } else if (c == quote && delimiter_follows(r->text, r->at, true, &known)) {
            return true;
        } else if (!spry_buffer_append(string, &c, 1)) {
            return false;
        }
    }
    return false;
}

static bool at_string(const literal_reader *r)
{
    return r->quote ? is_at(r->text, r->at, r->quote) : peek(r) == '"' || peek(r) == '\'';
}

static bool read_literal(literal_reader *r, spry_argument_schema of, int depth);

/* Writes a string; if no string is declared, the value that its text means. */
static bool write_string(literal_reader *r, spry_argument_schema of)
{
    spry_buffer string;
    spry_buffer_init(&string, MAX_TEXT_BYTES);
    bool done = read_string(r, &string);
    if (done)
        done = spry_argument_types(of) & SPRY_ARGUMENT_STRING
                   ? spry_argument_string(r->out, spry_buffer_view(&string))
                   : spry_argument_text(r->out, spry_buffer_view(&string), of);
    spry_buffer_deinit(&string);
    return done;
}

/* Reads the key of a member into `key`. */
static bool read_key(literal_reader *r, spry_buffer *key)
{
    if (at_string(r))
        return read_string(r, key);
    size_t begin = r->at;
    while (r->at < r->text.size && !strchr(":,{}[]()", r->text.data[r->at]))
        r->at++;
    spry_view bare = trim((spry_view){r->text.data + begin, r->at - begin});
    return bare.size && spry_buffer_append(key, bare.data, bare.size);
}

static bool read_member(literal_reader *r, spry_argument_schema of, int depth)
{
    spry_buffer key;
    spry_buffer_init(&key, MAX_TEXT_BYTES);
    bool done = read_key(r, &key) && spry_argument_string(r->out, spry_buffer_view(&key));
    skip_space(r);
    done = done && peek(r) == ':' && spry_buffer_text(r->out, ": ");
    r->at++;
    done = done && read_literal(r, spry_argument_member(of, spry_buffer_view(&key)), depth + 1);
    spry_buffer_deinit(&key);
    return done;
}

static bool read_container(literal_reader *r, spry_argument_schema of, int depth)
{
    bool object = peek(r) == '{';
    char close = object ? '}' : peek(r) == '[' ? ']' : ')';
    r->at++;
    spry_buffer_text(r->out, object ? "{" : "[");
    for (size_t count = 0;; count++) {
        skip_space(r);
        if (peek(r) == close) {
            r->at++;
            return spry_buffer_text(r->out, object ? "}" : "]");
        }
        if (count)
            spry_buffer_text(r->out, ", ");
        if (!(object ? read_member(r, of, depth) : read_literal(r, spry_argument_item(of), depth + 1)))
            return false;
        skip_space(r);
        if (peek(r) == ',')
            r->at++;
        else if (peek(r) != close)
            return false;
    }
}

/* Reads a number or a word. */
static bool read_plain(literal_reader *r)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                           {"true", "true"}, {"false", "false"}, {"null", "null"}};
    size_t begin = r->at;
    while (r->at < r->text.size && !is_space(r->text.data[r->at]) && !strchr(",]})", r->text.data[r->at]))
        r->at++;
    spry_view plain = {r->text.data + begin, r->at - begin};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (spry_view_is(plain, words[i][0]))
            return spry_buffer_text(r->out, words[i][1]);
    json_t *number = spry_json_value(plain);
    bool done = json_is_number(number) && spry_buffer_append(r->out, plain.data, plain.size);
    json_decref(number);
    return done;
}

static bool read_literal(literal_reader *r, spry_argument_schema of, int depth)
{
    skip_space(r);
    if (depth == MAX_DEPTH || r->at == r->text.size)
        return false;
    if (at_string(r))
        return write_string(r, of);
    if (strchr("{[(", peek(r)))
        return read_container(r, of, depth);
    return read_plain(r);
}

bool spry_argument_literal(spry_buffer *out, spry_view text, const char *quote, spry_argument_schema of)
{
    literal_reader r = {text, 0, quote, out};
    size_t before = out->size;
    bool done = read_literal(&r, of, 0);
    skip_space(&r);
    if (done && r.at == text.size)
        return true;
    out->size = before < out->size ? before : out->size;
    return false;
}

/* ---- text without quotes ----------------------------------------------------------------------------------------- */

/* The type of a JSON text, as a bit; 0: a string, or not JSON. */
static unsigned type_of(spry_view json)
{
    char c = json.size ? json.data[0] : '"';
    if (c == '{' || c == '[')
        return c == '{' ? SPRY_ARGUMENT_OBJECT : SPRY_ARGUMENT_ARRAY;
    if (c == 't' || c == 'f' || c == 'n')
        return c == 'n' ? SPRY_ARGUMENT_NULL : SPRY_ARGUMENT_BOOLEAN;
    if (c == '"')
        return 0;
    for (size_t i = 0; i < json.size; i++)
        if (strchr(".eE", json.data[i]))
            return SPRY_ARGUMENT_NUMBER;
    return SPRY_ARGUMENT_NUMBER | SPRY_ARGUMENT_INTEGER;
}

/* Appends a number such as 3.0 as an integer, if only integers are declared. */
static bool append_integer(spry_buffer *out, spry_view number)
{
    char text[32];
    if (number.size >= sizeof text)
        return false;
    memcpy(text, number.data, number.size);
    text[number.size] = 0;
    double value = strtod(text, NULL);
    return value == rint(value) && fabs(value) < 9e15 && spry_buffer_format(out, "%.0f", value);
}

bool spry_argument_text(spry_buffer *out, spry_view text, spry_argument_schema of)
{
    unsigned types = spry_argument_types(of);
    spry_view plain = trim(text);
    spry_buffer value;
    spry_buffer_init(&value, MAX_TEXT_BYTES);
    bool string = types == SPRY_ARGUMENT_STRING || plain.size == 0 || plain.data[0] == '"' || plain.data[0] == '\'' ||
                  !spry_argument_literal(&value, plain, NULL, (spry_argument_schema){NULL, NULL});
    spry_view json = spry_buffer_view(&value);
    unsigned type = string ? 0 : type_of(json);
    bool done;
    if (type & types)
        done = spry_buffer_append(out, json.data, json.size);
    else if ((types & SPRY_ARGUMENT_STRING) || !type)
        done = spry_argument_string(out, text);
    else
        done = (type == SPRY_ARGUMENT_NUMBER && (types & SPRY_ARGUMENT_INTEGER) && append_integer(out, json)) ||
               spry_buffer_append(out, json.data, json.size);
    spry_buffer_deinit(&value);
    return done;
}
