/* Shortest ways to the end of an automaton whose texts are sequences of units, such as characters. Its tags are those
 * of SPRY_PRODUCT_MARKED: 1 behind a unit, 2 behind a unit where the text is complete. */
#ifndef SPRY_GRAMMAR_UNIT_WAYS_H
#define SPRY_GRAMMAR_UNIT_WAYS_H

#include "grammar/automaton/automaton.h"

#define SPRY_NO_WAY UINT32_MAX

enum { SPRY_TAG_UNIT = 1, SPRY_TAG_COMPLETE = 2 };

/* For each state, and each `least` up to the minimum: the fewest units from the state to a complete text of which there
 * are at least `least`, and the fewest bytes of them; SPRY_NO_WAY: there is none. A unit that has begun counts. */
typedef struct spry_unit_ways {
    uint32_t n_states;
    uint32_t *units, *bytes; /* [minimum + 1][n_states] */
} spry_unit_ways;

/* Adds the edges visited to *spent; SPRY_AUTOMATON_TOO_LARGE when the table or the work is. */
spry_automaton_result spry_unit_ways_find(spry_unit_ways *out, const spry_automaton *automaton, uint32_t minimum,
                                          uint64_t *spent);
void spry_unit_ways_deinit(spry_unit_ways *ways);

/* Whether every text can be made longer: at least n units are then max(n, fewest). Needs a minimum of 1. */
bool spry_unit_ways_extend(const spry_unit_ways *ways);

#endif
