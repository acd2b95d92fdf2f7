/* The lengths of shortest texts, for every state and machine of a grammar, found when it is compiled:
 *
 *   to_end[state]     bytes from a state to the end of its machine; of a key automaton those from its start
 *   lengths[machine]  bytes of the machine's shortest text
 *
 * Both count calls with what is called. What takes more than SPRY_COMPLETION_MAX is SPRY_TOO_LONG. */
#ifndef SPRY_GRAMMAR_SHORTEST_H
#define SPRY_GRAMMAR_SHORTEST_H

#include "grammar/match/stacks.h"

#define SPRY_TOO_LONG UINT32_MAX

static inline uint32_t spry_length_sum(uint32_t a, uint32_t b)
{
    uint64_t sum = (uint64_t)a + b;
    return sum > SPRY_COMPLETION_MAX ? SPRY_TOO_LONG : (uint32_t)sum;
}

static inline uint32_t spry_length_times(uint32_t length, uint32_t times)
{
    uint64_t product = (uint64_t)length * times;
    return product > SPRY_COMPLETION_MAX ? SPRY_TOO_LONG : (uint32_t)product;
}

/* Fills grammar->to_end and ->lengths and what objects know of their keys. */
spry_status spry_shortest_find(spry_grammar *grammar, spry_error *error);

/* The ways from a state of an object's key automaton to the others: their lengths and, on a shortest way, the state
 * before each. Arrays of n_key_states, the last one to work with. */
void spry_shortest_key_ways(const spry_grammar *grammar, const spry_object *object, uint32_t from, uint32_t *lengths,
                            uint32_t *before, uint32_t *queue);

/* ---- shortest_members.c: the members an object still needs ------------------------------------------------------- */

typedef struct spry_needed {
    uint32_t member; /* a declared one, or n_declared + the number of one that may come often */
    uint32_t length; /* of key and value */
    uint32_t times;
} spry_needed;

typedef struct spry_needed_list {
    spry_needed *items;
    size_t count, room;
    uint32_t length;    /* of all, without commas */
    uint32_t n_members; /* the sum of times */
    uint32_t extra;     /* of these: how many of them are not required */
    uint32_t longest;   /* of the extra ones */
    bool failed;        /* memory was short */
} spry_needed_list;

/* The shortest members that make an object whole which has those of `record` (of which only `object`, `count` and
 * `seen` are looked at) and the declared one `also` (or SPRY_NO_STATE). At least one if `one_more`. The length is
 * SPRY_TOO_LONG when there are none. */
void spry_shortest_members(spry_needed_list *list, const spry_grammar *grammar, const spry_record *record,
                           uint32_t also, bool one_more);

/* Bytes of a list; a comma stands between members, and with `comma_first` before the first. */
uint32_t spry_needed_length(const spry_needed_list *list, const spry_grammar *grammar, const spry_object *object,
                            bool comma_first);

/* The record of an object that has no members. */
spry_record spry_record_empty(const spry_object *object);

/* Bytes of a member's key and value (numbered as in spry_needed). */
uint32_t spry_member_length(const spry_grammar *grammar, const spry_object *object, uint32_t member);

#endif
