/* Converts nodes to a nondeterministic automaton. */
#ifndef SPRY_GRAMMAR_IR_NFA_H
#define SPRY_GRAMMAR_IR_NFA_H

#include "grammar/ir/ir_facts.h"

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

/* ---- ir_regular.c ------------------------------------------------------------------------------------------------ */

/* The deterministic automaton of a regular node: *out is `made`, which the caller frees, or one that the node has. */
spry_automaton_result spry_ir_find_automaton(const spry_ir *ir, spry_ir_node node, spry_automaton *made,
                                             const spry_automaton **out);

/* Makes the builder fail because an automaton could not be made; `what` names it. */
spry_ir_node spry_ir_too_large(spry_ir *ir, spry_automaton_result result, const char *what);

#endif
