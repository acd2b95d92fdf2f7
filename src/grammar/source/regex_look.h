/* Look-around and word boundaries of regular expressions. Where one stands, the pattern has a *mark*: a byte that does
 * not occur in texts. Texts with a mark where its condition does not hold are removed; spry_ir_anchored then removes
 * the marks. So conditions are exact anywhere in a pattern, also in repetitions. */
#ifndef SPRY_GRAMMAR_REGEX_LOOK_H
#define SPRY_GRAMMAR_REGEX_LOOK_H

#include "grammar/ir/ir_nodes.h"

enum {
    SPRY_LOOKS_MAX = SPRY_IR_END - SPRY_IR_MARKS - 3, /* look-arounds of one pattern that are in force together */
    SPRY_MARK_BOUNDARY = SPRY_IR_BEGIN - 2,
    SPRY_MARK_NO_BOUNDARY,
};

typedef struct spry_regex_look {
    bool behind, negated;
    spry_ir_node language; /* whole texts behind the mark, or before it */
} spry_regex_look;

typedef struct spry_regex_looks {
    spry_regex_look items[SPRY_LOOKS_MAX]; /* the mark of each is SPRY_IR_MARKS + its index */
    size_t count;
    bool boundaries; /* \b or \B occur */
} spry_regex_looks;

/* Any text. */
spry_ir_node spry_regex_anything(spry_ir *ir);
spry_ir_node spry_regex_mark(spry_ir *ir, unsigned mark);
/* The texts of `node` in which the marks from look `first` on stand only where their conditions hold. */
spry_ir_node spry_regex_looks_apply(spry_ir *ir, const spry_regex_looks *looks, size_t first, spry_ir_node node);

#endif
