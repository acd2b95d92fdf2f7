/* Finite automata over bytes and calls. A call stands for a text of another automaton (or of nothing at all, where the
 * automaton is to be walked without any).
 *
 * Edges of a state are sorted by their first byte. They do not overlap when the automaton is deterministic; one that
 * could not be made so in bounded space has overlapping edges, and whoever walks it keeps a set of states. */
#ifndef SPRY_GRAMMAR_AUTOMATON_H
#define SPRY_GRAMMAR_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How making an automaton can end. */
typedef enum spry_automaton_result {
    SPRY_AUTOMATON_OK,
    SPRY_AUTOMATON_TOO_LARGE,
    SPRY_AUTOMATON_NO_MEMORY,
} spry_automaton_result;

typedef struct spry_edge {
    uint32_t target;
    unsigned char first, last; /* bytes, both included */
} spry_edge;

typedef struct spry_call {
    uint32_t callee, target; /* the state behind what is called */
} spry_call;

typedef struct spry_automaton {
    uint32_t n_states; /* 0: it matches nothing; the first state is where it starts */
    bool deterministic;
    uint32_t *first_edge, *first_call; /* [n_states + 1] */
    spry_edge *edges;
    spry_call *calls;
    uint32_t *tags; /* [n_states] 0: not accepting */
} spry_automaton;

void spry_automaton_deinit(spry_automaton *automaton);

/* ---- in the making ----------------------------------------------------------------------------------------------- */

/* A nondeterministic automaton that grows: states have lists of edges. */
typedef struct spry_nfa_edge {
    uint32_t target, next; /* next edge of the same state */
    uint32_t callee;       /* of a call */
    unsigned char kind;    /* spry_nfa_edge_kind */
    unsigned char first, last;
} spry_nfa_edge;

typedef enum spry_nfa_edge_kind { SPRY_NFA_SILENT, SPRY_NFA_BYTES, SPRY_NFA_CALL } spry_nfa_edge_kind;

#define SPRY_NFA_NO_EDGE UINT32_MAX

typedef struct spry_nfa_state {
    uint32_t edge; /* the first, or SPRY_NFA_NO_EDGE */
    uint32_t tag;
} spry_nfa_state;

typedef struct spry_nfa {
    spry_nfa_state *states;
    spry_nfa_edge *edges;
    size_t n_states, n_edges, states_room, edges_room;
    size_t limit; /* of states, and of edges */
    spry_automaton_result result;
} spry_nfa;

void spry_nfa_init(spry_nfa *nfa, size_t limit);
void spry_nfa_deinit(spry_nfa *nfa);

/* These fail once and stay failed (nfa->result). */
uint32_t spry_nfa_state_add(spry_nfa *nfa);
void spry_nfa_silent(spry_nfa *nfa, uint32_t from, uint32_t to);
void spry_nfa_bytes(spry_nfa *nfa, uint32_t from, uint32_t to, unsigned char first, unsigned char last);
void spry_nfa_call(spry_nfa *nfa, uint32_t from, uint32_t to, uint32_t callee);
/* A copy of an automaton without calls between two states. */
void spry_nfa_insert(spry_nfa *nfa, uint32_t from, uint32_t to, const spry_automaton *automaton);

/* ---- making ------------------------------------------------------------------------------------------------------ */

enum { SPRY_DFA_STATES_MAX = 1 << 15 };

/* A small deterministic automaton for an NFA that starts in state 0. Where several tags meet, the smallest counts.
 * SPRY_AUTOMATON_TOO_LARGE when it has more than `max_states` or takes too long. */
spry_automaton_result spry_automaton_determinize(spry_automaton *out, const spry_nfa *nfa, size_t max_states);

/* The same automaton without silent edges, not made deterministic. */
spry_automaton_result spry_automaton_without_silent(spry_automaton *out, const spry_nfa *nfa);

/* Drops states from which no accepting state is reached and, when the automaton is deterministic, joins states that
 * match the same texts. Numbers the rest in the order of a breadth-first walk, so that equal languages give equal
 * automata. */
spry_automaton_result spry_automaton_minimize(spry_automaton *automaton);

/* Texts that both match, or with `subtract` those that `a` matches and `b` does not. Both are deterministic and without
 * calls. */
spry_automaton_result spry_automaton_product(spry_automaton *out, const spry_automaton *a, const spry_automaton *b,
                                             bool subtract, size_t max_states);

#endif
