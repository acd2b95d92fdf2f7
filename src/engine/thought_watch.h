/* Counts the tokens of the thought with which an answer begins, so that it can be closed when its budget is spent. */
#ifndef SPRY_ENGINE_THOUGHT_WATCH_H
#define SPRY_ENGINE_THOUGHT_WATCH_H

#include <stdint.h>

#include "base/view.h"
#include "template/tool_styles.h"

enum { SPRY_THOUGHT_TAIL = 64 };

typedef struct spry_thought_watch {
    const spry_thought_style *style; /* NULL: nothing is watched */
    uint32_t left;                   /* tokens that the thought can still have */
    bool inside, decided;            /* decided: it is known whether the answer begins with a thought */
    char tail[SPRY_THOUGHT_TAIL];    /* the last bytes, in which marks are looked for */
    size_t n_tail;
} spry_thought_watch;

/* `prompt`: the end of the prompt, which may open the thought. `budget` 0: nothing is watched. */
void spry_thought_watch_begin(spry_thought_watch *watch, const spry_thought_style *style, spry_view prompt,
                              uint32_t budget);

/* A token was emitted whose text is `text`. */
void spry_thought_watch_token(spry_thought_watch *watch, spry_view text);

/* Whether the thought must be closed now, and whether the next token may make it so. */
bool spry_thought_watch_due(const spry_thought_watch *watch);
bool spry_thought_watch_near(const spry_thought_watch *watch);

#endif
