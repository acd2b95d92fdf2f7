/* A compiled grammar from the inside: automata that call each other, side by side in one array of states.
 *
 * Besides the states of automata there are *return states*, which only ever lie on the stack: they say what happens
 * when what was called is complete. They carry a number, `data`: how often a counted part came, or which members of an
 * object were seen (stacks.h). */
#ifndef SPRY_GRAMMAR_PROGRAM_H
#define SPRY_GRAMMAR_PROGRAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "grammar/automaton/automaton.h"
#include "grammar/grammar.h"

#define SPRY_NO_STATE UINT32_MAX

typedef enum spry_state_kind {
    SPRY_STATE_PLAIN,       /* of an automaton */
    SPRY_STATE_KEY,         /* of the automaton of an object's declared keys; the tag says which key is complete */
    SPRY_STATE_END,         /* return: the whole text is complete */
    SPRY_STATE_KEYS,        /* return: a declared key is complete */
    SPRY_STATE_MANY,        /* return: a key that may come often is complete */
    SPRY_STATE_AFTER_VALUE, /* return: a member is complete */
    SPRY_STATE_AFTER_COMMA, /* return: another member begins */
    SPRY_STATE_COUNT,       /* return: a counted part is complete */
} spry_state_kind;

typedef struct spry_state {
    uint32_t first_edge, first_call; /* up to those of the next state */
    uint32_t tag;                    /* 0: not accepting */
    uint32_t owner;                  /* the machine; of KEY and return states object, many-member or counter */
    unsigned char kind;
    bool last; /* accepting, and nothing goes on from here */
    bool deterministic;
} spry_state;

typedef enum spry_machine_kind { SPRY_MACHINE_PLAIN, SPRY_MACHINE_OBJECT, SPRY_MACHINE_COUNTER } spry_machine_kind;

/* What a call leads to. */
typedef struct spry_machine {
    spry_machine_kind kind;
    uint32_t index; /* the first state, or number of the object or counter */
    uint32_t n_states;
    bool nullable;
    bool counted;       /* the body of a simple counter */
    uint64_t digest[2]; /* of its automaton, equal in other grammars; 0: it calls machines */
    spry_view name;     /* of the rule it was made from; may be empty */
} spry_machine;

/* A member whose key may come any number of times. */
typedef struct spry_many_member {
    uint32_t key, value;   /* machines */
    uint32_t return_state; /* behind the key */
    uint32_t object;
} spry_many_member;

typedef struct spry_object {
    uint32_t key_start; /* SPRY_NO_STATE: no declared keys */
    uint32_t keys_state, after_value, after_comma;
    uint32_t comma; /* machine; SPRY_NO_STATE: a second member cannot come */
    uint32_t min, max;
    uint32_t n_declared, n_required, n_words;
    uint32_t *values;   /* [n_declared] machines */
    uint64_t *required; /* [n_words] */
    uint32_t first_many, n_many;
    uint32_t first_reach;  /* of the grammar's `reach`: for each state of the key automaton the set of keys ahead */
    uint64_t *reach_words; /* [sets][n_words] */
    uint32_t n_key_states;
    uint32_t *key_before; /* [n_key_states] the state before it on a shortest way from key_start */
    uint32_t *key_ends;   /* [n_declared] where the shortest text of a key ends; SPRY_NO_STATE: it has none */
} spry_object;

typedef struct spry_counter {
    uint32_t body; /* machine */
    uint32_t min, max;
    uint32_t return_state;
    bool simple; /* the body calls nothing, is never empty, and where it is complete it cannot go on */
} spry_counter;

struct spry_grammar {
    atomic_uint references;
    spry_arena arena;   /* names, and what objects point to */
    spry_state *states; /* [n_states + 1] */
    spry_edge *edges;   /* targets are states of the grammar */
    spry_call *calls;   /* callees are machines */
    spry_machine *machines;
    uint32_t *order; /* [n_machines] so that what a machine may begin with comes behind it */
    uint32_t *rank;  /* [n_machines] the place in `order` */
    spry_object *objects;
    spry_many_member *many;
    spry_counter *counters;
    uint32_t *reach;   /* [n_states of key automata] number of a set of keys */
    uint32_t *to_end;  /* [n_states] shortest.h */
    uint32_t *lengths; /* [n_machines] shortest.h; behind to_end in the same memory */
    uint32_t n_states, n_machines, n_objects, n_many, n_counters;
    uint32_t root;                  /* machine */
    pthread_mutex_t lock;           /* of what follows */
    struct spry_mask_store *stores; /* what was found out for vocabularies, one each */
};

/* mask_store.c */
void spry_mask_stores_destroy(struct spry_mask_store *first);

enum { SPRY_END_STATE = 0 };

#endif
