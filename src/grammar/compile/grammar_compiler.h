/* Compiles a grammar: machines are built one after the other, each with the numbers of the machines it calls. */
#ifndef SPRY_GRAMMAR_GRAMMAR_COMPILER_H
#define SPRY_GRAMMAR_GRAMMAR_COMPILER_H

#include "grammar/automaton/ir_nfa.h"
#include "grammar/compile/program.h"

typedef struct spry_compiler {
    const spry_ir *ir;
    spry_ir_facts facts;
    spry_grammar *grammar;
    uint32_t *machine_of;  /* [n_nodes] machine + 1 */
    uint32_t *limited_of;  /* [n_automata] machine + 1, which has the states of a limited text */
    spry_ir_node *node_of; /* [n_machines] */
    size_t node_of_room;
    size_t states_room, edges_room, calls_room, machines_room, objects_room, many_room, counters_room, limits_room,
        reach_room;
    size_t n_edges, n_calls, n_reach;
    spry_error *error;
} spry_compiler;

enum {
    SPRY_PROGRAM_STATES_MAX = 1 << 22,
    SPRY_MACHINE_NFA_MAX = 1 << 21, /* states of one machine before it is determinised */
};

/* The machine of a node; a new one is built later. SPRY_NO_STATE when memory is short. */
uint32_t spry_compiler_machine(spry_compiler *compiler, spry_ir_node node);

/* Adds a return state; SPRY_NO_STATE on failure. */
uint32_t spry_compiler_return_state(spry_compiler *compiler, spry_state_kind kind, uint32_t owner);

/* Appends the states of an automaton. *first becomes the number of its first state. */
spry_status spry_compiler_append(spry_compiler *compiler, const spry_automaton *automaton, spry_state_kind kind,
                                 uint32_t owner, uint32_t *first);

/* The error for an automaton that could not be built. */
spry_status spry_compiler_failed(spry_compiler *compiler, spry_automaton_result result, spry_view name);

/* compile_limited.c: the machine of a limited node. */
spry_status spry_compiler_limited(spry_compiler *compiler, spry_ir_node node, uint32_t machine);

/* Fills in the digest of a machine by its automaton, unless that calls others. */
void spry_compiler_digest(spry_machine *machine, const spry_automaton *automaton, uint64_t seed);

/* compile_object.c: the object of a members node. */
spry_status spry_compiler_object(spry_compiler *compiler, spry_ir_node node, uint32_t *index);

#endif
