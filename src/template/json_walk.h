/* Validates JSON byte by byte as it arrives, so that a call can be passed on before it is complete. */
#ifndef SPRY_TEMPLATE_JSON_WALK_H
#define SPRY_TEMPLATE_JSON_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPRY_JSON_WALK_DEPTH = 512 };

typedef enum spry_json_place {
    SPRY_JSON_VALUE,       /* a value must come; zeroed storage is here */
    SPRY_JSON_FIRST_VALUE, /* a value, or the end of an empty array */
    SPRY_JSON_FIRST_KEY,   /* a key, or the end of an empty object */
    SPRY_JSON_KEY,         /* a key must come */
    SPRY_JSON_COLON,       /* behind a key */
    SPRY_JSON_AFTER,       /* behind a value: a comma or the end of its container */
    SPRY_JSON_IN_KEY,      /* inside the string of a key */
    SPRY_JSON_IN_STRING,   /* inside a string */
    SPRY_JSON_IN_NUMBER,
    SPRY_JSON_IN_WORD, /* true, false, null */
} spry_json_place;

/* Starts zeroed. */
typedef struct spry_json_walk {
    spry_json_place place;
    uint32_t depth;
    uint8_t part;     /* of a number, a word or an escape */
    uint8_t escape;   /* 0: none; 1: behind a backslash; 2 to 5: hexadecimal digits left, plus 1 */
    const char *word; /* rest of a word */
    uint8_t is_array[SPRY_JSON_WALK_DEPTH / 8];
} spry_json_walk;

/* Takes one byte; false: the text is not JSON. The value is complete when the depth is 0 and the place is AFTER; a
 * number at depth 0 never is. */
bool spry_json_walk_byte(spry_json_walk *walk, char byte);

static inline bool spry_json_walk_done(const spry_json_walk *walk)
{
    return walk->depth == 0 && walk->place == SPRY_JSON_AFTER;
}

#endif
