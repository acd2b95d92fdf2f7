/* Recurrent states beside the pages. A state belongs to all tokens before it, so it is large and there are few: a table
 * has one, and some are saved at pages, so that a text with the same beginning goes on from there. What is between a
 * saved state and the end of the cached pages is computed again, with the same bits.
 *
 * A state is kept for the beginning of a page, with the inputs of up to SPRY_PAGE_TOKENS tokens from there on: a table
 * can go back to any token after `state_from`, and a text can go on after any token that a saved state has.
 *
 * The states of a pool are a pool themselves, whose pages are states: numbers, references, and a mover of their bytes.
 * A table holds one reference, and so does a page at which a state is saved. */
#ifndef SPRY_KV_KV_STATES_H
#define SPRY_KV_KV_STATES_H

#include "kv/kv_table.h"

/* Tokens between states that are saved within a text. */
enum { SPRY_KV_STATE_TOKENS = 1024 };

typedef struct spry_kv_saved {
    uint32_t page;     /* page at whose end the state is saved */
    uint32_t count;    /* tokens of that page whose inputs it has */
    uint32_t position; /* position of the page's first token */
    uint64_t text;     /* equal for states of texts with the same first page */
    uint64_t used;     /* clock at the last use */
    bool ends;         /* the state is from the end of a prompt or a turn */
    bool saved;
} spry_kv_saved;

typedef struct spry_kv_states {
    spry_kv_pool pool;    /* numbers and reference counts of the states */
    uint32_t *of_page;    /* [pages of the KV pool]: 1 + the state saved there; 0: none */
    spry_kv_saved *saved; /* [states] */
    uint64_t clock;       /* counts uses */
} spry_kv_states;

/* Gives a pool the states of its shape. */
spry_status spry_kv_states_create(spry_kv_pool *pool, spry_error *error);
void spry_kv_states_destroy(spry_kv_pool *pool);

/* Whether a table that has no state can have one. */
bool spry_kv_state_room(const spry_kv_pool *pool);

/* Gives a table a state, if it has none and the model needs one. What is saved may be dropped for it. False: all states
 * are in use. */
bool spry_kv_state_take(spry_kv_pool *pool, spry_kv_table *table);

/* Copies the state of a table with the same tokens, where both have one. */
void spry_kv_state_copy(spry_kv_pool *pool, spry_kv_table *to, const spry_kv_table *from);

/* Releases the table's state. */
void spry_kv_state_give(spry_kv_pool *pool, spry_kv_table *table);

/* Saves the state of a table whose first `n_tokens` are computed at its page with the last of them. `ends`: these are a
 * prompt or a turn. Returns whether it did. */
bool spry_kv_state_save(spry_kv_pool *pool, const spry_kv_table *table, size_t n_tokens, bool ends);

/* Saves the state of a table that is computed to its end, for its last page; the table has none afterwards, unless its
 * state is for another page. */
void spry_kv_state_leave(spry_kv_pool *pool, spry_kv_table *table);

/* Takes back what is saved for the table's last page; false: nothing is, or others use it. */
bool spry_kv_state_return(spry_kv_pool *pool, spry_kv_table *table);

/* A table that has no state takes that saved at a page, whose first token has this position in the table. False: all
 * states are in use. */
bool spry_kv_state_load(spry_kv_pool *pool, spry_kv_table *table, uint32_t page, size_t position);

/* The tokens of a page after which a text can go on with the state saved there; false: none is saved. */
bool spry_kv_state_find(const spry_kv_pool *pool, size_t *count, uint32_t page);

/* Saves what is saved at `from` at `to` instead, a page with the same tokens or more, unless `to` has as much. */
void spry_kv_state_move(spry_kv_pool *pool, uint32_t to, uint32_t from);

/* Forgets inputs that are saved at a page after its first `count` tokens, before others take their place. */
void spry_kv_state_clip(spry_kv_pool *pool, uint32_t page, size_t count);

/* Forgets what is saved at a page. */
void spry_kv_state_drop(spry_kv_pool *pool, uint32_t page);

#endif
