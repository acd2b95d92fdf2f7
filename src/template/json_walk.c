/* A state machine; containers are a stack of bits. */
#include "template/json_walk.h"

#include <string.h>

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

/* The number goes on, or it has ended and the byte follows it. */
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
