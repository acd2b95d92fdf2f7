#include "base/json.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/interrupt.h"
#include "base/meter.h"
#include "base/number.h"
#include "base/utf8.h"

/* What jansson allocates for a value, about. */
enum {
    OBJECT_BYTES = 224,
    MEMBER_BYTES = 96,
    ARRAY_BYTES = 128,
    ITEM_BYTES = 16,
    STRING_BYTES = 64,
    NUMBER_BYTES = 32,
    FREE_BYTES = 64 << 20, /* every text may take these */
    BYTES_A_BYTE = 32,
};

typedef struct reader {
    const char *at, *begin, *end;
    json_t *open[SPRY_JSON_DEPTH]; /* lists and objects around the place; borrowed from the outermost */
    size_t depth;
    unsigned flags;
    size_t bytes, max_bytes; /* of values */
    spry_buffer text;        /* a string with escapes, decoded */
    spry_buffer key;
    spry_status status;
    const char *wrong; /* what is wrong at `at` */
} reader;

static bool fail(reader *r, const char *what)
{
    if (!r->status) {
        r->status = SPRY_ERR_FORMAT;
        r->wrong = what;
    }
    return false;
}

static bool stop(reader *r, spry_status status)
{
    if (!r->status)
        r->status = status;
    return false;
}

static bool charge(reader *r, size_t bytes)
{
    r->bytes += bytes;
    if (r->bytes > r->max_bytes)
        return stop(r, SPRY_ERR_INPUT);
    if (spry_interrupted(bytes / ITEM_BYTES))
        return stop(r, SPRY_ERR_CANCELLED);
    return !r->status;
}

static bool out_of_memory(reader *r)
{
    return stop(r, SPRY_ERR_MEMORY);
}

static void skip_space(reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t'))
        r->at++;
}

static int peek(const reader *r)
{
    return r->at < r->end ? (unsigned char)*r->at : -1;
}

/* ---- strings ----------------------------------------------------------------------------------------------------- */

static bool read_hex(reader *r, uint32_t *unit)
{
    *unit = 0;
    for (unsigned i = 0; i < 4; i++, r->at++) {
        int c = peek(r), digit = c >= '0' && c <= '9'                 ? c - '0'
                                 : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                                      : -1;
        if (c < 0 || digit < 0)
            return fail(r, "\\u must be followed by four hexadecimal digits");
        *unit = *unit << 4 | (uint32_t)digit;
    }
    return true;
}

/* After the backslash. */
static bool read_escape(reader *r)
{
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    int c = peek(r);
    const char *name = c > 0 ? strchr(names, c) : NULL;
    if (name) {
        r->at++;
        return spry_buffer_append(&r->text, bytes + (name - names), 1) || out_of_memory(r);
    }
    if (c != 'u')
        return fail(r, "this is not an escape of JSON");
    uint32_t unit, low;
    char utf8[4];
    r->at++;
    if (!read_hex(r, &unit))
        return false;
    if (!unit && r->flags & SPRY_JSON_NO_ZERO)
        return fail(r, "a string contains the character 0");
    if (unit >= 0xDC00 && unit < 0xE000)
        return fail(r, "the second half of a surrogate pair has no first half");
    if (unit >= 0xD800 && unit < 0xDC00) {
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail(r, "the first half of a surrogate pair has no second half");
        r->at += 2;
        if (!read_hex(r, &low))
            return false;
        if (low < 0xDC00 || low >= 0xE000)
            return fail(r, "the first half of a surrogate pair has no second half");
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    return spry_buffer_append(&r->text, utf8, spry_utf8_encode(utf8, unit)) || out_of_memory(r);
}

/* The bytes up to a quote, a backslash or a control character; whole characters. */
static bool skip_plain(reader *r)
{
    while (r->at < r->end) {
        unsigned char c = (unsigned char)*r->at;
        uint32_t character;
        size_t size = c < 0x80 ? 1 : spry_utf8_decode(&character, r->at, (size_t)(r->end - r->at));
        if (c < 0x20 || c == '"' || c == '\\')
            break;
        if (!size)
            return fail(r, "a string is not valid UTF-8");
        r->at += size;
    }
    return true;
}

/* At the opening quote. *out is valid until the next string. */
static bool read_string(reader *r, spry_view *out)
{
    const char *from = ++r->at;
    bool escaped = false;
    spry_buffer_clear(&r->text);
    while (skip_plain(r)) {
        if (r->at == r->end)
            return fail(r, "a string has no end");
        if ((unsigned char)*r->at < 0x20)
            return fail(r, "a control character is in a string; write it as an escape");
        bool end = *r->at == '"';
        escaped |= !end;
        if (escaped && !spry_buffer_append(&r->text, from, (size_t)(r->at - from)))
            return out_of_memory(r);
        *out = escaped ? spry_buffer_view(&r->text) : (spry_view){from, (size_t)(r->at - from)};
        r->at++;
        if (end)
            return true;
        if (!read_escape(r))
            return false;
        from = r->at;
    }
    return false;
}

/* ---- numbers and words ------------------------------------------------------------------------------------------- */

static size_t skip_digits(reader *r)
{
    const char *from = r->at;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->at++;
    return (size_t)(r->at - from);
}

static json_t *read_number(reader *r)
{
    const char *from = r->at;
    bool minus = *from == '-', whole = true;
    r->at += minus;
    bool zero = peek(r) == '0', fine = zero ? r->at++, true : skip_digits(r) > 0;
    if (fine && peek(r) == '.') {
        whole = false;
        r->at++;
        fine = skip_digits(r) > 0;
    }
    if (fine && (peek(r) | 32) == 'e' && r->at < r->end) {
        whole = false;
        r->at++;
        r->at += peek(r) == '+' || peek(r) == '-';
        fine = skip_digits(r) > 0;
    }
    if (!fine || (peek(r) >= '0' && peek(r) <= '9')) {
        fail(r, "this is not a number of JSON");
        return NULL;
    }
    spry_view text = {from, (size_t)(r->at - from)};
    uint64_t value;
    double real;
    if (whole && spry_number_u64(&value, (spry_view){from + minus, text.size - minus}) && value <= INT64_MAX)
        return json_integer(minus ? -(json_int_t)value : (json_int_t)value);
    if (spry_number_double(&real, text))
        return json_real(real);
    r->at = from;
    fail(r, "a number is too large, or has too many digits");
    return NULL;
}

static json_t *read_word(reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < SPRY_COUNT(words); i++) {
        size_t size = strlen(words[i]);
        if ((size_t)(r->end - r->at) >= size && memcmp(r->at, words[i], size) == 0) {
            r->at += size;
            return i == 0 ? json_true() : i == 1 ? json_false() : json_null();
        }
    }
    fail(r, r->at == r->end ? "the text ends inside a value" : "a value is expected");
    return NULL;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A value, of a list or an object only its beginning; NULL: r->status says why. */
static json_t *read_value(reader *r)
{
    spry_view text;
    json_t *made = NULL;
    int c = peek(r);
    if (c == '{' || c == '[') {
        if (r->depth == SPRY_JSON_DEPTH) {
            fail(r, "lists and objects are nested too deeply");
        } else if (charge(r, c == '{' ? OBJECT_BYTES : ARRAY_BYTES)) {
            r->at++;
            made = c == '{' ? json_object() : json_array();
        }
    } else if (c == '"') {
        if (read_string(r, &text) && charge(r, STRING_BYTES + text.size))
            made = json_stringn_nocheck(text.data, text.size);
    } else if (c == '-' || (c >= '0' && c <= '9')) {
        if (charge(r, NUMBER_BYTES))
            made = read_number(r);
    } else {
        made = read_word(r);
    }
    if (!made)
        out_of_memory(r);
    return made;
}

/* The key and the colon of a member. */
static bool read_key(reader *r)
{
    spry_view text;
    if (peek(r) != '"')
        return fail(r, "a key in quotes is expected");
    if (!read_string(r, &text))
        return false;
    if (text.size && memchr(text.data, 0, text.size))
        return fail(r, "a key contains the character 0");
    spry_buffer_clear(&r->key);
    if (!spry_buffer_append(&r->key, text.data, text.size))
        return out_of_memory(r);
    skip_space(r);
    if (peek(r) != ':')
        return fail(r, "':' is expected after a key");
    r->at++;
    skip_space(r);
    return charge(r, MEMBER_BYTES + text.size);
}

/* Adds the next member or item to the innermost container and opens it if it is one itself. */
static bool read_item(reader *r)
{
    json_t *inside = r->open[r->depth - 1];
    bool object = json_is_object(inside);
    if (object && !read_key(r))
        return false;
    const char *from = r->at;
    json_t *value = charge(r, ITEM_BYTES) ? read_value(r) : NULL;
    if (!value)
        return false;
    size_t before = json_object_size(inside);
    spry_view key = spry_buffer_view(&r->key);
    /* Both release the value when they fail. */
    if (object ? json_object_setn_new_nocheck(inside, key.data, key.size, value) : json_array_append_new(inside, value))
        return out_of_memory(r);
    if (object && json_object_size(inside) == before && !(r->flags & SPRY_JSON_LAST_KEY)) {
        r->at = from;
        return fail(r, "an object has a duplicate key");
    }
    if (json_is_object(value) || json_is_array(value))
        r->open[r->depth++] = value;
    return true;
}

/* Goes on in the innermost container: its end, or another item. `fresh`: it has just been opened. */
static bool read_inside(reader *r, bool fresh)
{
    bool object = json_is_object(r->open[r->depth - 1]);
    skip_space(r);
    if (peek(r) == (object ? '}' : ']')) {
        r->at++;
        r->depth--;
        return true;
    }
    if (!fresh) {
        if (peek(r) != ',')
            return fail(r, r->at == r->end ? "the text ends inside a list or an object"
                           : object        ? "',' or '}' is expected"
                                           : "',' or ']' is expected");
        r->at++;
        skip_space(r);
    }
    return read_item(r);
}

static json_t *read_all(reader *r)
{
    skip_space(r);
    json_t *root = read_value(r);
    if (json_is_object(root) || json_is_array(root))
        r->open[r->depth++] = root;
    bool fresh = true;
    while (r->depth && !r->status) {
        size_t before = r->depth;
        read_inside(r, fresh);
        fresh = r->depth > before;
    }
    skip_space(r);
    if (!r->status && r->at != r->end)
        fail(r, "the text goes on after its value");
    if (!r->status)
        return root;
    json_decref(root);
    return NULL;
}

static spry_status explain(const reader *r, spry_error *error)
{
    unsigned line = 1;
    const char *begin = r->begin;
    if (r->status == SPRY_ERR_MEMORY)
        return spry_fail_memory(error, "JSON", r->bytes);
    if (r->status == SPRY_ERR_INPUT)
        return spry_fail(error, SPRY_ERR_INPUT, "the values of the JSON text take more than %zu MiB of memory",
                         r->max_bytes >> 20);
    if (r->status == SPRY_ERR_CANCELLED)
        return spry_fail(error, SPRY_ERR_CANCELLED, "the JSON text was not read to its end: cancelled");
    for (const char *c = begin; c < r->at; c++) {
        line += *c == '\n';
        begin = *c == '\n' ? c + 1 : begin;
    }
    return spry_fail(error, SPRY_ERR_FORMAT, "not valid JSON at line %u, column %zu: %s", line,
                     (size_t)(r->at - begin) + 1, r->wrong);
}

spry_status spry_json_read(json_t **out, spry_view text, unsigned flags, size_t max_bytes, spry_error *error)
{
    *out = NULL;
    reader *r = malloc(sizeof *r);
    if (!r)
        return spry_fail_memory(error, "JSON", sizeof *r);
    r->at = r->begin = text.data;
    r->end = text.data + text.size;
    r->depth = 0;
    r->flags = flags;
    r->bytes = 0;
    size_t own = FREE_BYTES + (text.size < SIZE_MAX / 64 ? BYTES_A_BYTE * text.size : 0);
    r->max_bytes = max_bytes ? max_bytes : own;
    r->status = SPRY_OK;
    spry_buffer_init(&r->text, SIZE_MAX / 2);
    spry_buffer_init(&r->key, SIZE_MAX / 2);
    *out = read_all(r);
    spry_status status = *out ? SPRY_OK : explain(r, error);
    spry_buffer_deinit(&r->text);
    spry_buffer_deinit(&r->key);
    free(r);
    return status;
}

json_t *spry_json_value(spry_view text)
{
    json_t *json;
    return spry_json_read(&json, text, SPRY_JSON_LAST_KEY, 0, NULL) ? NULL : json;
}

spry_status spry_json_object(json_t **out, spry_view text, spry_error *error)
{
    spry_status status = spry_json_read(out, text, 0, 0, error);
    if (status || json_is_object(*out))
        return status;
    json_decref(*out);
    *out = NULL;
    return spry_fail(error, SPRY_ERR_FORMAT, "not a JSON object");
}

/* ---- short memory ------------------------------------------------------------------------------------------------ */

static _Thread_local bool is_short;
static size_t (*size_of_memory)(void *memory);

static void *watched_malloc(size_t size)
{
    void *memory = malloc(size);
    if (memory && !spry_meter_take(size_of_memory(memory))) {
        free(memory);
        memory = NULL;
    }
    is_short |= !memory;
    return memory;
}

static void watched_free(void *memory)
{
    if (memory)
        spry_meter_give(size_of_memory(memory));
    free(memory);
}

void spry_json_watch(size_t (*size_of)(void *memory))
{
    size_of_memory = size_of;
    json_set_alloc_funcs(watched_malloc, watched_free);
}

bool spry_json_short(void)
{
    return is_short;
}

void spry_json_forget(void)
{
    is_short = false;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* A buffer that has failed once refuses all that follows: jansson goes on when a key could not be appended. */
static int append_text(const char *text, size_t size, void *out)
{
    return spry_buffer_append(out, text, size) ? 0 : -1;
}

char *spry_json_text(const json_t *value, size_t flags)
{
    spry_buffer text;
    spry_buffer_init(&text, SIZE_MAX / 2);
    if (value && !json_dump_callback(value, append_text, &text, flags) && !text.failed)
        return text.data;
    is_short |= value != NULL;
    spry_buffer_deinit(&text);
    return NULL;
}
