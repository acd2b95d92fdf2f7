/* One rendering: its memory, its limits, and its first error. After an error, all operations do nothing and return
 * undefined values, and the caller of the rendering checks the status at the end. So expressions are evaluated without
 * a check after every step.
 *
 * Limits bound every rendering: `steps_left` counts evaluated nodes and processed bytes, `memory_left` all allocations,
 * `depth` the nesting of evaluation. Nothing is freed before the end. */
#ifndef SPRY_TEMPLATE_JINJA_RUN_H
#define SPRY_TEMPLATE_JINJA_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

struct spry_jinja_builder;
struct spry_jinja_scope;

enum {
    SPRY_JINJA_MAX_STEPS = 20 * 1000 * 1000,
    SPRY_JINJA_MAX_DEPTH = 400,
    SPRY_JINJA_BASE_MEMORY = 64 << 20, /* plus SPRY_JINJA_MEMORY_FACTOR for every byte of the conversation */
    SPRY_JINJA_MEMORY_FACTOR = 32,
};

typedef struct spry_jinja_run {
    spry_arena arena;
    size_t memory_left;
    size_t max_text; /* maximum length of a string in bytes */
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /* current template line, for messages */
    spry_status status;
    spry_error *error;              /* may be NULL */
    int64_t now;                    /* for strftime_now: seconds since 1970, local time */
    struct spry_jinja_builder *out; /* output of statements */
    struct spry_jinja_scope *scope; /* current scope */
    bool parts_used, parts_printed; /* whether a list of content parts was iterated, or printed as a list */
} spry_jinja_run;

void spry_jinja_run_init(spry_jinja_run *run, size_t max_text, size_t input_bytes, spry_error *error);
void spry_jinja_run_deinit(spry_jinja_run *run);

/* Zeroed memory that lives as long as the run; when none is left, the run fails and NULL is returned. */
void *spry_jinja_alloc(spry_jinja_run *run, size_t count, size_t size);

/* Counts a step that processes this many bytes. False once the run has failed. */
bool spry_jinja_spend(spry_jinja_run *run, size_t bytes);

/* Increments the depth; when that is too deep, the run fails and false is returned. The caller undoes each success by
 * `run->depth--`. */
bool spry_jinja_enter(spry_jinja_run *run);

/* Records the first failure: "line 12: message". */
void spry_jinja_fail(spry_jinja_run *run, const char *format, ...) SPRY_PRINTF(2, 3);

#endif
