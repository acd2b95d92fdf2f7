/* One rendering: its memory, its limits, and the first thing that went wrong. A failure sticks: whoever fails reports
 * once, everything after it does nothing and gives undefined values, and the top of the rendering asks for the status.
 * So expressions can be evaluated without a check after every step.
 *
 * Limits make every rendering end: `steps_left` counts evaluated nodes and bytes looked at, `memory_left` everything
 * that was ever allocated, `depth` how deep evaluation is nested. Nothing is freed before the end. */
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
    SPRY_JINJA_BASE_MEMORY = 64 << 20, /* and SPRY_JINJA_MEMORY_FACTOR for every byte of the conversation */
    SPRY_JINJA_MEMORY_FACTOR = 32,
};

typedef struct spry_jinja_run {
    spry_arena arena;
    size_t memory_left;
    size_t max_text; /* bytes of the longest string that may be made */
    uint64_t steps_left;
    uint32_t depth;
    uint32_t line; /* of the template, for messages */
    spry_status status;
    spry_error *error;              /* may be NULL */
    int64_t now;                    /* for strftime_now: seconds since 1970 on the local clock */
    struct spry_jinja_builder *out; /* where statements write */
    struct spry_jinja_scope *scope; /* variables in sight */
    bool parts_used, parts_printed; /* whether a list of content parts was gone through, or printed as a list */
} spry_jinja_run;

void spry_jinja_run_init(spry_jinja_run *run, size_t max_text, size_t input_bytes, spry_error *error);
void spry_jinja_run_deinit(spry_jinja_run *run);

/* Zeroed memory that lives as long as the run; NULL, and the run failed, when there is none left. */
void *spry_jinja_alloc(spry_jinja_run *run, size_t count, size_t size);

/* Pays for a step that looks at so many bytes. False once the run has failed. */
bool spry_jinja_spend(spry_jinja_run *run, size_t bytes);

/* One level deeper; false, and the run failed, when that is too deep. Each true is undone by `run->depth--`. */
bool spry_jinja_enter(spry_jinja_run *run);

/* Keeps the first failure: "line 12: sentence". */
void spry_jinja_fail(spry_jinja_run *run, const char *format, ...) SPRY_PRINTF(2, 3);

#endif
