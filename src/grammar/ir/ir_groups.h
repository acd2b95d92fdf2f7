/* Nested alternatives of sequences, built by the parsers of GBNF and regular expressions. Nesting uses no C stack. */
#ifndef SPRY_GRAMMAR_IR_GROUPS_H
#define SPRY_GRAMMAR_IR_GROUPS_H

#include "grammar/ir/grammar_ir.h"

typedef struct spry_ir_group {
    size_t first_item, first_alternative;
} spry_ir_group;

typedef struct spry_ir_groups {
    spry_ir *ir;
    spry_ir_node *items;        /* items of the open sequences, the innermost last */
    spry_ir_node *alternatives; /* complete ones */
    spry_ir_group *open;
    size_t n_items, n_alternatives, n_open, items_room, alternatives_room, open_room;
} spry_ir_groups;

/* All functions report failures through the builder. */
void spry_ir_groups_init(spry_ir_groups *groups, spry_ir *ir);
void spry_ir_groups_deinit(spry_ir_groups *groups);
void spry_ir_groups_open(spry_ir_groups *groups);
void spry_ir_groups_item(spry_ir_groups *groups, spry_ir_node node);
void spry_ir_groups_alternative(spry_ir_groups *groups); /* "|" */
spry_ir_node spry_ir_groups_close(spry_ir_groups *groups);

/* The last item of the innermost sequence, for a repetition; NULL when there is none. */
spry_ir_node *spry_ir_groups_last(spry_ir_groups *groups);

#endif
