/* Parses untrusted JSON. Values are jansson's; its own parser is not used, because it crashes when an allocation fails.
 *
 * The whole text must be one value in strict UTF-8, of at most SPRY_JSON_DEPTH nested lists and objects. "\u0000" is
 * allowed in strings, not in keys. Checkpoints contain integers beyond 64 bits (a model_max_length of 10^30): those are
 * read as reals. Reading uses no recursion, and the memory of the values has a limit, since "{}," takes 80 times the
 * memory of its text. All JSON values count as memory of a request (base/meter.h). */
#ifndef SPRY_BASE_JSON_H
#define SPRY_BASE_JSON_H

#include <jansson.h>

#include "base/error.h"
#include "base/view.h"

enum {
    SPRY_JSON_DEPTH = 2048,
    SPRY_JSON_LAST_KEY = 1, /* the last of several equal keys counts; without this flag they are an error */
    SPRY_JSON_NO_ZERO = 2,  /* "\u0000" is an error, for strings that are used as C strings */
};

/* Any value. `max_bytes`: limit for the memory that the values take, about; 0: 64 MiB, and 32 times the size of the
 * text. The caller releases *out with json_decref. SPRY_ERR_FORMAT: with line and column, SPRY_ERR_INPUT: the limit,
 * SPRY_ERR_MEMORY, SPRY_ERR_CANCELLED (base/interrupt.h). The message names no file: add one with spry_fail_prefix. */
spry_status spry_json_read(json_t **out, spry_view text, unsigned flags, size_t max_bytes, spry_error *error);

/* A value of a text in which equal keys are possible, such as a model's answer; NULL: it is not JSON, or memory is
 * short. */
json_t *spry_json_value(spry_view text);

/* An object without equal keys. */
spry_status spry_json_object(json_t **out, spry_view text, spry_error *error);

/* The text of a value, with jansson's flags, to be freed; NULL: there is no value, or memory is short. (json_dumps
 * leaves a key out when memory is short for it.) */
char *spry_json_text(const json_t *value, size_t flags);

/* Values are built by many small calls whose failures are not checked one by one: a list without an item that should be
 * in it is what remains when memory is short. From spry_json_watch on, each thread notes that an allocation for a value
 * failed; spry_json_short returns it, until spry_json_forget. Values also count as memory of the thread's request
 * (base/meter.h); `size_of` says how much an allocation takes. For programs: it replaces jansson's allocator. */
void spry_json_watch(size_t (*size_of)(void *memory));
bool spry_json_short(void);
void spry_json_forget(void);

/* The bytes of a string; size 0 for other values. */
static inline spry_view spry_json_view(const json_t *value)
{
    return json_is_string(value) ? (spry_view){json_string_value(value), json_string_length(value)} : SPRY_VIEW("");
}

#endif
