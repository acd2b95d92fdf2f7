/* Internals of a compiled grammar: automata that call each other, in one array of states.
 *
 * Besides the states of automata there are *return states*, which exist only on the stack: they define what follows
 * when a called machine is complete. They have a number, `data`: the count of a counted part, or the record of the
 * members seen in an object (stacks.h). */
#ifndef SPRY_GRAMMAR_PROGRAM_H
#define SPRY_GRAMMAR_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/buffer.h"
#include "grammar/automaton/automaton.h"
#include "grammar/grammar.h"

#define SPRY_NO_STATE UINT32_MAX

typedef enum spry_state_kind {
    SPRY_STATE_PLAIN,       /* of an automaton */
    SPRY_STATE_KEY,         /* of the automaton of an object's declared keys; the tag is the completed key */
    SPRY_STATE_LIMITED,     /* of an automaton whose units are counted; the tag is one of automaton.h */
    SPRY_STATE_END,         /* return: the whole text is complete */
    SPRY_STATE_KEYS,        /* return: a declared key is complete */
    SPRY_STATE_MANY,        /* return: a repeatable key is complete */
    SPRY_STATE_AFTER_VALUE, /* return: a member is complete */
    SPRY_STATE_AFTER_COMMA, /* return: another member begins */
    SPRY_STATE_COUNT,       /* return: a counted part is complete */
    SPRY_STATE_LIMIT,       /* return: below the states of a limited text; `data` is the number of its units */
} spry_state_kind;

typedef struct spry_state {
    uint32_t first_edge, first_call; /* up to the first edge and call of the next state */
    uint32_t tag;                    /* 0: not accepting */
    uint32_t owner;                  /* the machine; of KEY and return states object, many-member or counter */
    unsigned char kind;
    bool last; /* accepting, without edges or calls */
    bool deterministic;
} spry_state;

typedef enum spry_machine_kind {
    SPRY_MACHINE_PLAIN,
    SPRY_MACHINE_OBJECT,
    SPRY_MACHINE_COUNTER,
    SPRY_MACHINE_LIMITED,
} spry_machine_kind;

/* The target of a call. */
typedef struct spry_machine {
    spry_machine_kind kind;
    uint32_t index; /* the first state, or number of the object or counter */
    uint32_t n_states;
    uint32_t limit; /* number of the limit of a limited machine */
    bool nullable;
    bool counted;       /* is the body of a simple counter */
    uint64_t digest[2]; /* of its automaton, comparable between grammars; 0: it calls machines */
    spry_view name;     /* of the source rule; may be empty */
} spry_machine;

/* A member whose key may occur any number of times. */
typedef struct spry_many_member {
    uint32_t key, value;   /* machines */
    uint32_t return_state; /* after the key */
    uint32_t object;
} spry_many_member;

typedef struct spry_object {
    uint32_t key_start; /* SPRY_NO_STATE: no declared keys */
    uint32_t keys_state, after_value, after_comma;
    uint32_t comma; /* machine; SPRY_NO_STATE: there is no second member */
    uint32_t min, max;
    uint32_t n_declared, n_required, n_words;
    bool ordered;       /* declared keys come in their order, repeatable ones last */
    uint32_t *values;   /* [n_declared] machines */
    uint64_t *required; /* [n_words] */
    uint32_t first_many, n_many;
    uint32_t first_reach;  /* index into the grammar's `reach`: for each state of the key automaton the set of reachable
                            * keys */
    uint64_t *reach_words; /* [sets][n_words] */
    uint32_t n_key_states;
    uint32_t *key_before; /* [n_key_states] the previous state on a shortest path from key_start */
    uint32_t *key_ends;   /* [n_declared] where the shortest text of a key ends; SPRY_NO_STATE: it has none */
} spry_object;

typedef struct spry_counter {
    uint32_t body; /* machine */
    uint32_t min, max;
    uint32_t return_state;
    bool simple; /* the body has no calls, is never empty, and its accepting states have no edges */
} spry_counter;

/* A text of `min` to `max` units. Limits of the same text share its states. */
typedef struct spry_limit {
    uint32_t first_state; /* of the text's automaton */
    uint32_t min, max;
    uint32_t return_state;
    uint32_t farthest;   /* the most units that the shortest way from a state has */
    bool extends;        /* every text can be made longer */
    spry_unit_ways ways; /* from each state, relative to the first */
} spry_limit;

/* Instead of a number of units: they are not counted, and the text may be of any length. */
#define SPRY_UNCOUNTED UINT32_MAX

struct spry_grammar {
    atomic_uint references;
    spry_arena arena;   /* memory of names and objects */
    spry_state *states; /* [n_states + 1] */
    spry_edge *edges;   /* targets are states of the grammar */
    spry_call *calls;   /* callees are machines */
    spry_machine *machines;
    uint32_t *order; /* [n_machines] sorted so that a machine comes before those it may begin with */
    uint32_t *rank;  /* [n_machines] position in `order` */
    spry_object *objects;
    spry_many_member *many;
    spry_counter *counters;
    spry_limit *limits;
    uint32_t *reach;   /* [n_states of key automata] number of a set of keys */
    uint32_t *to_end;  /* [n_states] shortest.h */
    uint32_t *lengths; /* [n_machines] shortest.h; allocated together with to_end */
    uint32_t n_states, n_machines, n_objects, n_many, n_counters, n_limits;
    uint32_t root;                  /* machine */
    const char *warnings;           /* one per line; in the arena */
    pthread_mutex_t lock;           /* protects the stores */
    struct spry_mask_store *stores; /* masks, one store per vocabulary */
};

/* mask.c */
void spry_mask_stores_destroy(struct spry_mask_store *first);

enum { SPRY_END_STATE = 0 };

#endif
