/* How models write thoughts, and which marks around their messages are no content. Recognised like tool styles. */
#ifndef SPRY_TEMPLATE_THOUGHT_STYLES_H
#define SPRY_TEMPLATE_THOUGHT_STYLES_H

#include "base/view.h"

enum { SPRY_THOUGHT_HIDDEN = 9 };

typedef struct spry_thought_style {
    const char *in_template;
    const char *open, *close;
    bool anywhere; /* thoughts may also follow content; otherwise they come first */
    /* Marks that are dropped from content; '*' stands for a word. NULL behind the last one. */
    const char *hidden[SPRY_THOUGHT_HIDDEN];
} spry_thought_style;

/* The style of a template's source; <think> if there is none. */
const spry_thought_style *spry_thought_style_find(spry_view source);
const spry_thought_style *spry_thought_style_default(void);

/* Marks that end a model's turn. The engine stops at them when they are tokens; a model that spells them out, or a
 * file that does not say which tokens end a turn, leaves them at the end of the answer. */
enum { SPRY_TURN_ENDS = 8 };
/* Writes those that a template's source contains, and returns how many. `eos`: the model's own, or NULL. */
size_t spry_turn_ends_find(const char *ends[SPRY_TURN_ENDS], spry_view source, const char *eos);

#endif
