/* Internals of a compiled grammar: automata that call each other, in one array of states.
 *
 * Besides the states of automata there are *return states*, which exist only on the stack: they define what follows
 * when a called machine is complete. A return state on the stack has a number, `data`: the count of a counted part, or
 * the record of the members seen in an object (stacks.h). */
#ifndef SPRY_GRAMMAR_PROGRAM_H
#define SPRY_GRAMMAR_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "grammar/automaton/automaton.h"
#include "grammar/grammar.h"

#define SPRY_NO_STATE UINT32_MAX

typedef enum spry_state_kind {
    SPRY_STATE_PLAIN,       /* a state of an automaton */
    SPRY_STATE_KEY,         /* a state of the automaton of an object's declared keys; its tag is the key that is
                             * complete there */
    SPRY_STATE_LIMITED,     /* a state of an automaton whose units are counted; its tag is as in automaton.h */
    SPRY_STATE_END,         /* return: the whole text is complete */
    SPRY_STATE_KEYS,        /* return: a declared key is complete */
    SPRY_STATE_MANY,        /* return: a repeatable key is complete */
    SPRY_STATE_AFTER_VALUE, /* return: a member is complete */
    SPRY_STATE_AFTER_COMMA, /* return: another member begins */
    SPRY_STATE_COUNT,       /* return: a counted part is complete */
    SPRY_STATE_LIMIT,       /* return: below the states of a limited text; `data` is the number of its units */
} spry_state_kind;

typedef struct spry_state {
    uint32_t first_edge, first_call; /* its edges and calls end where those of the next state begin */
    uint32_t tag;                    /* 0: not accepting */
    uint32_t owner;                  /* number of its machine; of KEY and return states the number of the object,
                                      * many-member or counter */
    unsigned char kind;
    bool last; /* an accepting state without edges or calls */
    bool deterministic;
} spry_state;

typedef enum spry_machine_kind {
    SPRY_MACHINE_PLAIN,
    SPRY_MACHINE_OBJECT,
    SPRY_MACHINE_COUNTER,
    SPRY_MACHINE_LIMITED,
} spry_machine_kind;

/* An automaton that can be called. */
typedef struct spry_machine {
    spry_machine_kind kind;
    uint32_t index; /* number of its first state, or of its object or counter */
    uint32_t n_states;
    uint32_t limit; /* number of the limit of a limited machine */
    bool nullable;
    bool counted;       /* the machine is the body of a simple counter */
    uint64_t digest[2]; /* digest of its automaton, comparable between grammars; 0: it calls machines, so it has none */
    spry_view name;     /* name of the rule in the source; may be empty */
} spry_machine;

/* A member whose key may occur any number of times. */
typedef struct spry_many_member {
    uint32_t key, value;   /* numbers of machines */
    uint32_t return_state; /* the return state after the key */
    uint32_t object;
} spry_many_member;

typedef struct spry_object {
    uint32_t key_start; /* SPRY_NO_STATE: no declared keys */
    uint32_t keys_state, after_value, after_comma;
    uint32_t comma; /* number of a machine; SPRY_NO_STATE: there is never a second member */
    uint32_t min, max;
    uint32_t n_declared, n_required, n_words;
    bool ordered;       /* declared keys come in the order of declaration, repeatable ones last */
    uint32_t *values;   /* [n_declared] machines */
    uint64_t *required; /* [n_words] */
    uint32_t first_many, n_many;
    uint32_t first_reach;  /* index into the grammar's `reach`: for each state of the key automaton the set of reachable
                            * keys */
    uint64_t *reach_words; /* [sets][n_words] */
    uint32_t n_key_states;
    uint32_t *key_before; /* [n_key_states] the previous state on a shortest path from key_start */
    uint32_t *key_ends;   /* [n_declared] the state where the shortest text of a key ends; SPRY_NO_STATE: the key has no
                           * text */
} spry_object;

typedef struct spry_counter {
    uint32_t body; /* number of a machine */
    uint32_t min, max;
    uint32_t return_state;
    bool simple; /* the body has no calls, is never empty, and its accepting states have no edges */
} spry_counter;

/* A text of `min` to `max` units. Limits of the same text use the same states. */
typedef struct spry_limit {
    uint32_t first_state; /* first state of the text's automaton */
    uint32_t min, max;
    uint32_t return_state;
    uint32_t farthest;   /* the largest number of units on a shortest path to the end, over all states */
    bool extends;        /* every text can be made longer */
    spry_unit_ways ways; /* shortest paths to the end from each state, numbered from first_state */
} spry_limit;

/* In place of a number of units: units are not counted, and the text may have any length. */
#define SPRY_UNCOUNTED UINT32_MAX

struct spry_grammar {
    atomic_uint references;
    spry_arena arena;   /* memory of names and objects */
    spry_state *states; /* [n_states + 1] */
    spry_edge *edges;   /* targets are states of the grammar */
    spry_call *calls;   /* callees are machines */
    spry_machine *machines;
    uint32_t *order; /* [n_machines] a machine comes before the machines that it may begin with */
    uint32_t *rank;  /* [n_machines] position in `order` */
    spry_object *objects;
    spry_many_member *many;
    spry_counter *counters;
    spry_limit *limits;
    uint32_t *reach;   /* [n_states of key automata] number of a set of keys */
    uint32_t *to_end;  /* [n_states] bytes to the end (shortest.h) */
    uint32_t *lengths; /* [n_machines] shortest.h; allocated together with to_end */
    uint32_t n_states, n_machines, n_objects, n_many, n_counters, n_limits;
    uint32_t root;                  /* number of the machine of the whole grammar */
    const char *warnings;           /* one per line; in the arena */
    pthread_mutex_t lock;           /* protects the stores */
    struct spry_mask_store *stores; /* masks, one store per vocabulary */
};

/* Implemented in mask.c. */
void spry_mask_stores_destroy(struct spry_mask_store *first);

enum { SPRY_END_STATE = 0 };

#endif
