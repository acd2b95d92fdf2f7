/* Converts nodes to a nondeterministic automaton. */
#ifndef SPRY_GRAMMAR_AUTOMATON_IR_AUTOMATON_H
#define SPRY_GRAMMAR_AUTOMATON_IR_AUTOMATON_H

#include "grammar/ir/ir_nodes.h"

/* Gives the automaton of a called node; false when memory is short. */
typedef bool (*spry_ir_callee)(void *user, spry_ir_node node, uint32_t *callee);

typedef struct spry_ir_nfa {
    spry_nfa *nfa;
    const spry_ir *ir;
    const spry_ir_facts *facts; /* NULL: no calls, every rule is copied */
    spry_ir_callee callee;
    void *user;
} spry_ir_nfa;

/* Writes a node between two states. With facts, nodes that match nothing are left out, and a call of a nullable node
 * can be skipped. `inside`: the node itself is expanded even if it is one that is called. */
void spry_ir_nfa_write(const spry_ir_nfa *build, spry_ir_node node, uint32_t from, uint32_t to, bool inside);

/* ---- ir_automaton.c ---------------------------------------------------------------------------------------------- */

/* What is made of one or two nodes, once for a grammar. */
typedef enum spry_ir_making {
    SPRY_IR_MADE_WHOLE,   /* the number of the automaton of node `a` */
    SPRY_IR_MADE_MARKED,  /* the number of the automaton of a text `a` with marks after units `b` */
    SPRY_IR_MADE_BOTH,    /* the node of their intersection */
    SPRY_IR_MADE_WITHOUT, /* the node of their difference */
} spry_ir_making;

/* Makes the builder fail because an automaton could not be made; `what` names it. */
spry_ir_node spry_ir_too_large(spry_ir *ir, spry_automaton_result result, const char *what);

#endif
