/* Reading of calls: the parts that all syntaxes share (marks, headers, events). */
#include "template/call_reader.h"

#include <string.h>

#include "base/compiler.h"

/* ---- JSON byte by byte ------------------------------------------------------------------------------------------- */

/* The state machine for JSON; open containers are a stack of bits. */

enum { SIGN, ZERO, WHOLE, POINT, FRACTION, LETTER_E, EXPONENT_SIGN, EXPONENT };

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool in_array(const spry_json_walk *w)
{
    return w->is_array[(w->depth - 1) / 8] >> (w->depth - 1) % 8 & 1;
}

static bool open_container(spry_json_walk *w, bool array)
{
    if (w->depth == SPRY_JSON_WALK_DEPTH)
        return false;
    uint8_t bit = (uint8_t)(1u << w->depth % 8), *byte = &w->is_array[w->depth / 8];
    *byte = (uint8_t)(array ? *byte | bit : *byte & ~bit);
    w->depth++;
    w->place = array ? SPRY_JSON_FIRST_VALUE : SPRY_JSON_FIRST_KEY;
    return true;
}

static bool close_container(spry_json_walk *w, bool array)
{
    if (w->depth == 0 || in_array(w) != array)
        return false;
    w->depth--;
    w->place = SPRY_JSON_AFTER;
    return true;
}

static bool begin_value(spry_json_walk *w, char c)
{
    static const char *const words[] = {"true", "false", "null"};
    if (c == '{' || c == '[')
        return open_container(w, c == '[');
    if (c == '"') {
        w->place = SPRY_JSON_IN_STRING;
        return true;
    }
    if (c == '-' || is_digit(c)) {
        w->place = SPRY_JSON_IN_NUMBER;
        w->part = c == '-' ? SIGN : c == '0' ? ZERO : WHOLE;
        return true;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (c == words[i][0]) {
            w->place = SPRY_JSON_IN_WORD;
            w->word = words[i] + 1;
            return true;
        }
    return false;
}

static bool in_string(spry_json_walk *w, char c)
{
    if (w->escape == 1) {
        w->escape = c == 'u' ? 5 : 0;
        return strchr("\"\\/bfnrtu", c) && c;
    }
    if (w->escape) {
        w->escape = w->escape == 2 ? 0 : (uint8_t)(w->escape - 1);
        return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    }
    if (c == '\\')
        w->escape = 1;
    else if (c == '"')
        w->place = w->place == SPRY_JSON_IN_KEY ? SPRY_JSON_COLON : SPRY_JSON_AFTER;
    return (unsigned char)c >= 0x20;
}

static bool after_value(spry_json_walk *w, char c)
{
    if (c == ',' && w->depth) {
        w->place = in_array(w) ? SPRY_JSON_VALUE : SPRY_JSON_KEY;
        return true;
    }
    return (c == ']' || c == '}') && close_container(w, c == ']');
}

/* Continues a number; false if neither the number can continue with the byte, nor a value end before it. */
static bool in_number(spry_json_walk *w, char c)
{
    bool digit = is_digit(c);
    bool complete = w->part == ZERO || w->part == WHOLE || w->part == FRACTION || w->part == EXPONENT;
    if (digit && w->part != ZERO) {
        static const uint8_t next[] = {[SIGN] = WHOLE,        [WHOLE] = WHOLE,       [POINT] = FRACTION,
                                       [FRACTION] = FRACTION, [LETTER_E] = EXPONENT, [EXPONENT_SIGN] = EXPONENT,
                                       [EXPONENT] = EXPONENT};
        w->part = w->part == SIGN && c == '0' ? ZERO : next[w->part];
        return true;
    }
    if (c == '.' && (w->part == ZERO || w->part == WHOLE)) {
        w->part = POINT;
        return true;
    }
    if ((c == 'e' || c == 'E') && complete && w->part != EXPONENT) {
        w->part = LETTER_E;
        return true;
    }
    if ((c == '+' || c == '-') && w->part == LETTER_E) {
        w->part = EXPONENT_SIGN;
        return true;
    }
    w->place = SPRY_JSON_AFTER;
    return complete && (is_space(c) || after_value(w, c));
}

bool spry_json_walk_byte(spry_json_walk *w, char c)
{
    switch (w->place) {
    case SPRY_JSON_IN_KEY:
    case SPRY_JSON_IN_STRING: return in_string(w, c);
    case SPRY_JSON_IN_NUMBER: return in_number(w, c);
    case SPRY_JSON_IN_WORD:
        if (c != *w->word++)
            return false;
        w->place = *w->word ? SPRY_JSON_IN_WORD : SPRY_JSON_AFTER;
        return true;
    default: break;
    }
    if (is_space(c))
        return true;
    switch (w->place) {
    case SPRY_JSON_FIRST_VALUE:
        if (c == ']')
            return close_container(w, true);
        return begin_value(w, c);
    case SPRY_JSON_FIRST_KEY:
        if (c == '}')
            return close_container(w, false);
        /* fall through */
    case SPRY_JSON_KEY: w->place = SPRY_JSON_IN_KEY; return c == '"';
    case SPRY_JSON_COLON: w->place = SPRY_JSON_VALUE; return c == ':';
    case SPRY_JSON_AFTER: return after_value(w, c);
    default: return begin_value(w, c);
    }
}

/* ---- marks, headers, events -------------------------------------------------------------------------------------- */

enum { MAX_HEADER_BYTES = 320, MAX_NAME_BYTES = 256, MAX_WORD_BYTES = 64, MAX_CALL_BYTES = 32 << 20 };

/* ---- searching for marks ----------------------------------------------------------------------------------------- */

static size_t mark_size(const char *mark)
{
    return mark ? strlen(mark) : 0;
}

size_t spry_space_skip(spry_view text, size_t at)
{
    while (at < text.size && (text.data[at] == ' ' || (text.data[at] >= '\t' && text.data[at] <= '\r')))
        at++;
    return at;
}

size_t spry_mark_find(spry_view text, size_t at, const char *mark)
{
    const char *found = mark && at < text.size ? memmem(text.data + at, text.size - at, mark, strlen(mark)) : NULL;
    return found ? (size_t)(found - text.data) : text.size;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_-.:", c));
}

spry_mark_match spry_mark_at(size_t *end, spry_view text, size_t at, const char *mark, bool final)
{
    if (!mark || !*mark)
        return SPRY_MARK_NO;
    for (; *mark; mark++) {
        size_t word = at;
        if (*mark == '*') {
            while (at < text.size && at - word <= MAX_WORD_BYTES && is_word(text.data[at]))
                at++;
            if (at - word > MAX_WORD_BYTES || (at == word && at < text.size))
                return SPRY_MARK_NO;
            if (at == text.size)
                return final ? SPRY_MARK_NO : SPRY_MARK_PERHAPS;
            continue;
        }
        if (at == text.size)
            return final ? SPRY_MARK_NO : SPRY_MARK_PERHAPS;
        if (text.data[at++] != *mark)
            return SPRY_MARK_NO;
    }
    *end = at;
    return SPRY_MARK_YES;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

bool spry_call_begin(spry_call_reader *r)
{
    spry_view name = spry_buffer_view(&r->name);
    r->function = spry_tool_find(r->tools, name);
    if (name.size == 0 || name.size > MAX_NAME_BYTES || (!r->marked && r->tools && !r->function))
        return false;
    r->begun = true;
    r->on_begin(r->user, name, spry_buffer_view(&r->id));
    return true;
}

bool spry_call_argument(spry_call_reader *r, spry_view key, spry_view json)
{
    spry_buffer text;
    if (!r->begun && !spry_call_begin(r))
        return false;
    spry_buffer_init(&text, SIZE_MAX / 2);
    spry_buffer_text(&text, r->n_arguments++ ? ", " : "{");
    bool done = spry_argument_string(&text, key) && spry_buffer_text(&text, ": ") &&
                spry_buffer_append(&text, json.data, json.size);
    if (done)
        r->on_arguments(r->user, spry_buffer_view(&text));
    spry_buffer_deinit(&text);
    return done;
}

bool spry_call_end(spry_call_reader *r)
{
    if (!r->begun && !spry_call_begin(r))
        return false;
    r->on_arguments(r->user, r->n_arguments ? SPRY_VIEW("}") : SPRY_VIEW("{}"));
    r->on_end(r->user);
    r->begun = r->named = false;
    r->n_arguments = 0;
    r->done = r->at;
    return true;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static spry_view cut_space(spry_view text)
{
    size_t begin = spry_space_skip(text, 0);
    text = (spry_view){text.data + begin, text.size - begin};
    while (text.size && spry_space_skip(text, text.size - 1) == text.size)
        text.size--;
    return text;
}

/* Removes ":0" from the end of a name. */
static spry_view cut_number(spry_view name)
{
    size_t end = name.size;
    while (end && name.data[end - 1] >= '0' && name.data[end - 1] <= '9')
        end--;
    if (end < name.size && end && name.data[end - 1] == ':')
        name.size = end - 1;
    return name;
}

/* Finds the name and the id in a header. */
static bool read_name(spry_call_reader *r, spry_view header)
{
    const spry_tool_style *s = r->style;
    spry_view name = header, id = {"", 0};
    size_t mark = spry_mark_find(header, 0, s->name_mark);
    if (s->name_mark && mark < header.size) {
        id = s->id_first ? cut_space((spry_view){header.data, mark}) : id;
        size_t begin = mark + strlen(s->name_mark);
        name = (spry_view){header.data + begin, header.size - begin};
    }
    mark = spry_mark_find(name, 0, s->id_mark);
    if (s->id_mark && mark < name.size) {
        size_t begin = mark + strlen(s->id_mark);
        id = cut_space((spry_view){name.data + begin, name.size - begin});
        name.size = mark;
    }
    name = cut_space(name);
    id = s->numbered ? name : id;
    for (size_t i = 0; i < name.size; i++)
        if (strchr(" \t\r\n\"<>", name.data[i]))
            name.size = i;
    if (s->name_prefix && spry_view_starts(name, spry_view_of(s->name_prefix)))
        name = (spry_view){name.data + strlen(s->name_prefix), name.size - strlen(s->name_prefix)};
    name = s->numbered ? cut_number(name) : name;
    spry_buffer_clear(&r->name);
    spry_buffer_clear(&r->id);
    spry_buffer_append(&r->id, id.data, id.size);
    return name.size && spry_buffer_append(&r->name, name.data, name.size);
}

static spry_call_state read_header(spry_call_reader *r, spry_view text)
{
    const spry_tool_style *s = r->style;
    size_t first = spry_space_skip(text, r->at);
    if (first < text.size && (text.data[first] == '{' || text.data[first] == '[')) {
        r->syntax = SPRY_CALL_JSON; /* some models use an older form of the style */
        r->stage = SPRY_CALL_ARGUMENTS;
        return SPRY_CALL_ON;
    }
    size_t end = spry_mark_find(text, first, s->arguments_open), next = end + mark_size(s->arguments_open);
    if (!s->arguments_open) {
        size_t key = spry_mark_find(text, r->at, s->parameter.key_open), close = spry_mark_find(text, r->at, s->close);
        end = next = key < close ? key : close;
    }
    if (end - r->at > MAX_HEADER_BYTES)
        return SPRY_CALL_WRONG;
    if (end == text.size)
        return SPRY_CALL_MORE;
    if (!read_name(r, (spry_view){text.data + first, end - first}))
        return SPRY_CALL_WRONG;
    r->at = next;
    r->stage = SPRY_CALL_ARGUMENTS;
    return SPRY_CALL_ON;
}

/* Continues after the mark of a section. */
static spry_call_state enter(spry_call_reader *r, spry_view text, bool final)
{
    size_t at = spry_space_skip(text, r->at), end;
    spry_mark_match open = spry_mark_at(&end, text, at, r->style->open, final);
    if (at == text.size || open == SPRY_MARK_PERHAPS)
        return SPRY_CALL_MORE;
    if (open == SPRY_MARK_YES)
        r->at = end;
    else if (text.data[at] != '{' && text.data[at] != '[')
        return SPRY_CALL_WRONG;
    r->stage = SPRY_CALL_HEADER;
    return SPRY_CALL_ON;
}

/* Continues after the arguments. A missing mark is tolerated. */
static spry_call_state read_close(spry_call_reader *r, spry_view text, bool final)
{
    const char *const marks[] = {r->style->arguments_close, r->style->close};
    for (size_t i = 0; i < SPRY_COUNT(marks); i++) {
        size_t end = 0, at = spry_space_skip(text, r->at);
        if (!marks[i])
            continue;
        if (spry_mark_at(&end, text, at, marks[i], false) == SPRY_MARK_PERHAPS) {
            if (!final)
                return SPRY_CALL_MORE;
            end = text.size;
        }
        r->at = end ? end : r->at;
    }
    r->done = r->at;
    return SPRY_CALL_WHOLE;
}

/* ---- functions for other files ----------------------------------------------------------------------------------- */

void spry_call_reader_init(spry_call_reader *r, const spry_tool_style *style, const json_t *tools)
{
    *r = (spry_call_reader){.style = style, .tools = tools};
    spry_buffer_init(&r->name, MAX_CALL_BYTES);
    spry_buffer_init(&r->id, MAX_CALL_BYTES);
}

void spry_call_reader_deinit(spry_call_reader *r)
{
    spry_buffer_deinit(&r->name);
    spry_buffer_deinit(&r->id);
}

void spry_call_reader_start(spry_call_reader *r, size_t mark, bool section)
{
    r->syntax = r->style->syntax;
    r->stage = section                                                        ? SPRY_CALL_ENTER
               : r->syntax == SPRY_CALL_JSON || r->syntax == SPRY_CALL_PYTHON ? SPRY_CALL_ARGUMENTS
                                                                              : SPRY_CALL_HEADER;
    r->marked = mark > 0;
    r->at = mark;
    r->done = 0;
    r->begun = r->named = r->in_list = r->expects_name = false;
    r->scan = (spry_literal_scan){0};
    r->n_arguments = r->search = 0;
    r->function = NULL;
    r->json = (spry_json_call){0};
    spry_buffer_clear(&r->name);
    spry_buffer_clear(&r->id);
}

static spry_call_state read_arguments(spry_call_reader *r, spry_view text, bool final)
{
    static spry_call_state (*const syntaxes[])(spry_call_reader *, spry_view, bool) = {
        [SPRY_CALL_JSON] = spry_call_read_json,     [SPRY_CALL_NAMED] = spry_call_read_object,
        [SPRY_CALL_TAGGED] = spry_call_read_tagged, [SPRY_CALL_TREE] = spry_call_read_tree,
        [SPRY_CALL_PYTHON] = spry_call_read_python, [SPRY_CALL_BRACED] = spry_call_read_braced,
    };
    return syntaxes[r->syntax](r, text, final);
}

spry_call_state spry_call_read(spry_call_reader *r, spry_view text, bool final)
{
    spry_call_state state = SPRY_CALL_ON;
    while (state == SPRY_CALL_ON) {
        switch (r->stage) {
        case SPRY_CALL_ENTER: state = enter(r, text, final); break;
        case SPRY_CALL_HEADER: state = read_header(r, text); break;
        case SPRY_CALL_ARGUMENTS: state = read_arguments(r, text, final); break;
        case SPRY_CALL_CLOSE: state = read_close(r, text, final); break;
        }
    }
    return state == SPRY_CALL_MORE && (final || text.size > MAX_CALL_BYTES) ? SPRY_CALL_WRONG : state;
}
