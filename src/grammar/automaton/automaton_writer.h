/* Writes an automaton state by state. */
#ifndef SPRY_GRAMMAR_AUTOMATON_WRITER_H
#define SPRY_GRAMMAR_AUTOMATON_WRITER_H

#include "grammar/automaton/automaton.h"

typedef struct spry_automaton_writer {
    spry_automaton made;
    size_t n_edges, n_calls, n_states;
    size_t edges_room, calls_room, tags_room, first_edge_room, first_call_room;
    bool failed; /* memory was short */
} spry_automaton_writer;

/* Begins the next state; its edges (by first byte, ascending) and calls follow. */
void spry_automaton_begin_state(spry_automaton_writer *writer, uint32_t tag);
/* Adds an edge. It is merged with the previous edge of the state when both are adjacent and have the same target. */
void spry_automaton_add_edge(spry_automaton_writer *writer, spry_edge edge);
void spry_automaton_add_call(spry_automaton_writer *writer, spry_call call);
/* Moves the result to `out`; frees it on failure. */
spry_automaton_result spry_automaton_finish(spry_automaton_writer *writer, spry_automaton *out, bool deterministic);

#endif
