/* Finite automata over bytes and calls. A call edge matches any text of another automaton.
 *
 * The edges of a state are sorted by their first byte. In a deterministic automaton they do not overlap. An automaton
 * that could not be determinised in bounded space has overlapping edges, and a walk through it needs a set of
 * states. */
#ifndef SPRY_GRAMMAR_AUTOMATON_AUTOMATON_H
#define SPRY_GRAMMAR_AUTOMATON_AUTOMATON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The result of building an automaton. */
typedef enum spry_automaton_result {
    SPRY_AUTOMATON_OK,
    SPRY_AUTOMATON_TOO_LARGE,
    SPRY_AUTOMATON_NO_MEMORY,
} spry_automaton_result;

typedef struct spry_edge {
    uint32_t target;
    unsigned char first, last; /* inclusive byte range */
} spry_edge;

typedef struct spry_call {
    uint32_t callee, target; /* the state after the call */
} spry_call;

typedef struct spry_automaton {
    uint32_t n_states; /* 0: the automaton matches no text; state 0 is the start */
    bool deterministic;
    uint32_t *first_edge, *first_call; /* [n_states + 1] */
    spry_edge *edges;
    spry_call *calls;
    uint32_t *tags; /* [n_states] 0: not accepting */
} spry_automaton;

void spry_automaton_deinit(spry_automaton *automaton);

/* ---- nondeterministic automata under construction ---------------------------------------------------------------- */

/* A growing nondeterministic automaton: states have linked lists of edges. */
typedef struct spry_nfa_edge {
    uint32_t target, next; /* next edge of the same state */
    uint32_t callee;       /* for a call edge: the called machine */
    unsigned char kind;    /* spry_nfa_edge_kind */
    unsigned char first, last;
} spry_nfa_edge;

typedef enum spry_nfa_edge_kind { SPRY_NFA_SILENT, SPRY_NFA_BYTES, SPRY_NFA_CALL } spry_nfa_edge_kind;

#define SPRY_NFA_NO_EDGE UINT32_MAX

typedef struct spry_nfa_state {
    uint32_t edge; /* the first edge, or SPRY_NFA_NO_EDGE */
    uint32_t tag;
} spry_nfa_state;

typedef struct spry_nfa {
    spry_nfa_state *states;
    spry_nfa_edge *edges;
    size_t n_states, n_edges, states_room, edges_room;
    size_t limit;    /* maximum number of states, and of edges */
    uint64_t *spent; /* work of determinising all automata of a grammar so far; NULL: not counted */
    spry_automaton_result result;
} spry_nfa;

void spry_nfa_init(spry_nfa *nfa, size_t limit);
void spry_nfa_deinit(spry_nfa *nfa);

/* After the first failure (nfa->result) all calls fail. */
uint32_t spry_nfa_state_add(spry_nfa *nfa);
void spry_nfa_silent(spry_nfa *nfa, uint32_t from, uint32_t to);
void spry_nfa_bytes(spry_nfa *nfa, uint32_t from, uint32_t to, unsigned char first, unsigned char last);
void spry_nfa_call(spry_nfa *nfa, uint32_t from, uint32_t to, uint32_t callee);
/* Inserts a copy of an automaton, which has no calls, between two states. */
void spry_nfa_insert(spry_nfa *nfa, uint32_t from, uint32_t to, const spry_automaton *automaton);

/* ---- deterministic automata -------------------------------------------------------------------------------------- */

enum { SPRY_DFA_STATES_MAX = 1 << 15 };

/* Builds a deterministic automaton, which is small but not minimal, for an NFA that starts in state 0. Where several
 * tags meet, the smallest wins. SPRY_AUTOMATON_TOO_LARGE when it has more than `max_states` states or takes too
 * long. */
spry_automaton_result spry_automaton_determinize(spry_automaton *out, const spry_nfa *nfa, size_t max_states);

/* The work that may be spent on one grammar. A unit of work is a visited edge, or something that takes as long (1 to 4
 * ns). It bounds the time of compiling, and does not depend on the machine or on what is cached. */
#define SPRY_AUTOMATON_WORK_MAX ((uint64_t)1 << 26)

/* Determinises and minimises; a cache of the whole process keeps the results (automaton.c). */
spry_automaton_result spry_automaton_make(spry_automaton *out, const spry_nfa *nfa, size_t max_states);

/* Removes the epsilon edges without determinising. */
spry_automaton_result spry_automaton_without_silent(spry_automaton *out, const spry_nfa *nfa);

/* Removes states that reach no accepting state and, in a deterministic automaton, merges equivalent states. Numbers the
 * rest in breadth-first order, so that equal languages give equal automata. */
spry_automaton_result spry_automaton_minimize(spry_automaton *automaton);

typedef enum spry_product {
    SPRY_PRODUCT_BOTH,    /* texts that both match */
    SPRY_PRODUCT_WITHOUT, /* texts that `a` matches and `b` does not */
    SPRY_PRODUCT_MARKED,  /* texts that `a` matches; the tag of a state is 1 where `b` matches the text so far, 2 where
                           * `a` does, too */
} spry_product;

/* The product of two deterministic automata without calls. A product with marks is not minimised. Adds the work to
 * *spent. */
spry_automaton_result spry_automaton_product(spry_automaton *out, const spry_automaton *a, const spry_automaton *b,
                                             spry_product kind, size_t max_states, uint64_t *spent);

/* Writes an automaton state by state. */

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

/* Shortest paths to the end of an automaton whose texts are sequences of units, such as characters. The automaton has
 * the tags of SPRY_PRODUCT_MARKED: 1 after a unit, 2 after a unit at which the text is complete. */

#define SPRY_NO_WAY UINT32_MAX

enum { SPRY_TAG_UNIT = 1, SPRY_TAG_COMPLETE = 2 };

/* For each state, and each number `least` up to the minimum: among the paths from the state to the end of a text that
 * have at least `least` units, the fewest units, and the fewest bytes of a path with that many; SPRY_NO_WAY: there is
 * none. A unit that has begun counts. */
typedef struct spry_unit_ways {
    uint32_t n_states;
    uint32_t *units, *bytes; /* [minimum + 1][n_states] */
} spry_unit_ways;

/* Finds all of them. Adds the edges visited to *spent; SPRY_AUTOMATON_TOO_LARGE when the table or the work exceeds its
 * limit. */
spry_automaton_result spry_unit_ways_find(spry_unit_ways *out, const spry_automaton *automaton, uint32_t minimum,
                                          uint64_t *spent);
void spry_unit_ways_deinit(spry_unit_ways *ways);

/* True if every text can be made longer, so that the fewest units that are at least n are max(n, fewest). Needs a
 * minimum of 1. */
bool spry_unit_ways_extend(const spry_unit_ways *ways);

#endif
