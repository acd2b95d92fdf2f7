/* Converts grammar nodes to nondeterministic automata. */
#ifndef SPRY_GRAMMAR_AUTOMATON_IR_AUTOMATON_H
#define SPRY_GRAMMAR_AUTOMATON_IR_AUTOMATON_H

#include "grammar/ir/ir_nodes.h"

/* Gives the automaton of a called node; false when memory is short. */
typedef bool (*spry_ir_callee)(void *user, spry_ir_node node, uint32_t *callee);

typedef struct spry_ir_nfa {
    spry_nfa *nfa;
    const spry_ir *ir;
    const spry_ir_facts *facts; /* NULL: there are no calls, every rule is copied */
    spry_ir_callee callee;
    void *user;
} spry_ir_nfa;

/* Writes a node between two states. With facts, nodes that match nothing are left out, and a call of a nullable node
 * can be skipped. `inside`: the node itself is written, even if it is a node that would otherwise be called. */
void spry_ir_nfa_write(const spry_ir_nfa *build, spry_ir_node node, uint32_t from, uint32_t to, bool inside);

/* ---- functions of ir_automaton.c --------------------------------------------------------------------------------- */

/* Operations whose results are kept for one or two nodes, so that each is computed once for a grammar. */
typedef enum spry_ir_making {
    SPRY_IR_MADE_WHOLE,   /* result: the number of the automaton of node `a` */
    SPRY_IR_MADE_MARKED,  /* result: the number of the automaton of text `a` with tags after units `b` */
    SPRY_IR_MADE_BOTH,    /* result: the node of the intersection */
    SPRY_IR_MADE_WITHOUT, /* result: the node of the difference */
} spry_ir_making;

/* Makes the builder fail because an automaton could not be constructed; `what` names it. */
spry_ir_node spry_ir_too_large(spry_ir *ir, spry_automaton_result result, const char *what);

#endif
