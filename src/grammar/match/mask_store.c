#include "grammar/match/mask_store.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/match/mask_share.h"

enum {
    STORE_BYTES_MAX = 1 << 26, /* a store that exceeds this is cleared */
    WIDE_BYTES = 80,           /* a state that allows this many bytes has an expensive mask */
    PREPARED_MAX = 12,
};

static void forget(spry_mask_store *store)
{
    for (uint32_t i = 0; i < store->places.grammar->n_states; i++) {
        if (store->masks)
            spry_state_mask_unref(store->masks[i]);
        if (store->rounds)
            spry_state_mask_unref(store->rounds[i]);
    }
    size_t bytes = store->places.grammar->n_states * sizeof(spry_state_mask *);
    if (store->masks)
        memset(store->masks, 0, bytes);
    if (store->rounds)
        memset(store->rounds, 0, bytes);
    if (store->bases)
        memset(store->bases, 0, store->places.grammar->n_machines * sizeof *store->bases);
    store->bytes = 0;
}

void spry_mask_stores_destroy(spry_mask_store *first)
{
    while (first) {
        spry_mask_store *next = first->next;
        if (first->places.grammar)
            forget(first);
        free(first->masks);
        free(first->rounds);
        free(first->bases);
        spry_places_deinit(&first->places);
        free(first);
        first = next;
    }
}

spry_status spry_mask_store_find(spry_mask_store **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
                                 spry_error *error)
{
    for (*out = grammar->stores; *out; *out = (*out)->next)
        if ((*out)->serial == vocabulary->serial)
            return SPRY_OK;
    spry_mask_store *made = calloc(1, sizeof *made);
    if (!made)
        return spry_fail_memory(error, "a grammar's masks", sizeof *made);
    spry_status status = spry_places_init(&made->places, grammar, error);
    if (!status) {
        made->masks = calloc(grammar->n_states, sizeof(spry_state_mask *));
        made->rounds = calloc(grammar->n_states, sizeof(spry_state_mask *));
        made->bases = calloc(grammar->n_machines, sizeof *made->bases);
        if (!made->masks || !made->rounds || !made->bases)
            status = spry_fail_memory(error, "a grammar's masks", grammar->n_states * sizeof(spry_state_mask *));
    }
    if (status) {
        spry_mask_stores_destroy(made);
        return status;
    }
    made->serial = vocabulary->serial;
    made->next = grammar->stores;
    *out = grammar->stores = made;
    return SPRY_OK;
}

/* Clears the store when it is too large: its contents affect speed only. */
static spry_status keep_bounded(spry_mask_store *store, spry_error *error)
{
    if (!store->places.failed && store->bytes + spry_places_bytes(&store->places) < STORE_BYTES_MAX)
        return SPRY_OK;
    const spry_grammar *grammar = store->places.grammar;
    forget(store);
    spry_places_deinit(&store->places);
    return spry_places_init(&store->places, grammar, error);
}

/* The key of a state's language: equal in grammars with the same machine. False when the machine calls others. */
static bool state_key(const spry_grammar *grammar, uint32_t state, bool rounds, spry_mask_key *key)
{
    const spry_machine *machine = &grammar->machines[grammar->states[state].owner];
    *key = (spry_mask_key){{machine->digest[0], machine->digest[1], (uint64_t)(state - machine->index) << 1 | rounds}};
    return machine->digest[0] != 0;
}

static unsigned bytes_taken(const spry_grammar *grammar, const spry_state *state)
{
    unsigned count = 0;
    for (uint32_t i = state->first_edge; i < state[1].first_edge; i++)
        count += (unsigned)grammar->edges[i].last - grammar->edges[i].first + 1;
    return count;
}

/* A state that allows many bytes often has nearly the same mask as another state of its machine. */
static spry_state_mask *find_mask(spry_mask_store *store, const spry_vocabulary *vocabulary, uint32_t state)
{
    const spry_grammar *grammar = store->places.grammar;
    uint32_t base = store->bases[grammar->states[state].owner];
    if (!base || bytes_taken(grammar, &grammar->states[state]) < WIDE_BYTES)
        return spry_state_mask_find(&store->places, vocabulary, state, NULL, 0);
    return spry_state_mask_find(&store->places, vocabulary, state, store->masks[base - 1], base - 1);
}

spry_status spry_mask_store_state(spry_mask_store *store, const spry_state_mask **out, uint32_t state, bool rounds,
                                  const spry_vocabulary *vocabulary, spry_error *error)
{
    const spry_grammar *grammar = store->places.grammar;
    *out = rounds ? store->rounds[state] : store->masks[state];
    if (*out)
        return SPRY_OK;
    spry_status status = keep_bounded(store, error);
    if (status)
        return status;
    spry_mask_key key;
    bool shared = state_key(grammar, state, rounds, &key);
    spry_state_mask *made = shared ? spry_mask_share_get(vocabulary->share, &key) : NULL;
    if (!made) {
        made = rounds ? spry_state_mask_rounds(grammar, vocabulary, state) : find_mask(store, vocabulary, state);
        if (made && shared && made->bits)
            spry_mask_share_put(vocabulary->share, &key, made);
    }
    if (!made)
        return store->places.failed ? spry_places_fail(&store->places, error)
                                    : spry_fail_memory(error, "a grammar's masks", vocabulary->n_words * 4);
    store->bytes += made->bytes;
    if (rounds)
        store->rounds[state] = made;
    else
        store->masks[state] = made;
    if (!rounds && made->bits)
        store->bases[grammar->states[state].owner] = state + 1;
    *out = made;
    return SPRY_OK;
}

spry_status spry_mask_store_prepare(spry_grammar *grammar, const spry_vocabulary *vocabulary, spry_error *error)
{
    pthread_mutex_lock(&grammar->lock);
    spry_mask_store *store = grammar->stores;
    while (store && store->serial != vocabulary->serial)
        store = store->next;
    spry_status status = SPRY_OK;
    if (!store) {
        status = spry_mask_store_find(&store, grammar, vocabulary, error);
        unsigned prepared = 0;
        for (uint32_t i = 0; i < grammar->n_states && prepared < PREPARED_MAX && !status; i++) {
            const spry_state *state = &grammar->states[i];
            const spry_state_mask *mask;
            if (state->kind != SPRY_STATE_PLAIN || bytes_taken(grammar, state) < WIDE_BYTES)
                continue;
            status = spry_mask_store_state(store, &mask, i, grammar->machines[state->owner].counted, vocabulary, error);
            prepared++;
        }
        if (status && status != SPRY_ERR_MEMORY)
            status = SPRY_OK; /* reported again when the mask is needed */
    }
    pthread_mutex_unlock(&grammar->lock);
    return status;
}
