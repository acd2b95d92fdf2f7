/* The lengths of shortest texts, for every state and machine of a grammar, computed when it is compiled:
 *
 *   to_end[state]     bytes from a state to the end of its machine; in a key automaton, from its start
 *   lengths[machine]  bytes of the machine's shortest text
 *
 * Both include the texts of called machines. Lengths above SPRY_COMPLETION_MAX are SPRY_TOO_LONG. */
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

/* Fills grammar->to_end and ->lengths, and the shortest paths of object keys. */
spry_status spry_shortest_find(spry_grammar *grammar, spry_error *error);

/* Finds shortest paths from a state of an object's key automaton to its other states: their lengths, and the previous
 * state of each on the path. All arrays have n_key_states entries; the last array is scratch memory. */
void spry_shortest_key_ways(const spry_grammar *grammar, const spry_object *object, uint32_t from, uint32_t *lengths,
                            uint32_t *before, uint32_t *queue);

/* ---- the members an object still needs --------------------------------------------------------------------------- */

typedef struct spry_needed {
    uint32_t member; /* a declared member, or n_declared + the index of a repeatable one */
    uint32_t length; /* bytes of key and value */
    uint32_t times;
} spry_needed;

typedef struct spry_needed_list {
    spry_needed *items;
    size_t count, room;
    uint32_t length;    /* bytes of all members, without commas */
    uint32_t n_members; /* number of members: the sum of times */
    uint32_t extra;     /* number of members that are not required */
    uint32_t longest;   /* length of the longest of them */
    bool failed;        /* memory was short */
} spry_needed_list;

/* Finds the shortest members that complete an object with the members of `record` (only `object`, `count` and `seen`
 * are read) and the declared member `also` (or SPRY_NO_STATE). `one_more`: at least one member follows. The length is
 * SPRY_TOO_LONG when the object cannot be completed. */
void spry_shortest_members(spry_needed_list *list, const spry_grammar *grammar, const spry_record *record,
                           uint32_t also, bool one_more);

/* Bytes of the members in a list with the commas between them and, with `comma_first`, one before the first. */
uint32_t spry_needed_length(const spry_needed_list *list, const spry_grammar *grammar, const spry_object *object,
                            bool comma_first);

/* The record of an object without members. */
spry_record spry_record_empty(const spry_object *object);

/* Bytes of a member's key and value (numbered as in spry_needed). */
uint32_t spry_member_length(const spry_grammar *grammar, const spry_object *object, uint32_t member);

#endif
