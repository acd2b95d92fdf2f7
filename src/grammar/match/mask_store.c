#include "grammar/match/mask_store.h"

#include <stdlib.h>
#include <string.h>

#include "grammar/match/mask_share.h"

enum {
    STORE_BYTES_MAX = 1 << 26, /* a store that exceeds this is cleared */
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
        spry_slice_facts_deinit(&first->facts);
        spry_whole_masks_clear(&first->whole);
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
        if (!made->masks || !made->rounds || !spry_slice_facts_init(&made->facts, grammar))
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
    if (!store->places.failed &&
        store->bytes + store->facts.bytes + spry_places_bytes(&store->places) < STORE_BYTES_MAX)
        return SPRY_OK;
    const spry_grammar *grammar = store->places.grammar;
    forget(store);
    spry_slice_facts_deinit(&store->facts);
    spry_places_deinit(&store->places);
    if (!spry_slice_facts_init(&store->facts, grammar))
        return spry_fail_memory(error, "a grammar's masks", grammar->n_machines * sizeof(void *));
    return spry_places_init(&store->places, grammar, error);
}

/* The key of a state's language: equal in grammars with the same machine. False when the machine calls others. */
static bool state_key(const spry_grammar *grammar, uint32_t state, bool rounds, spry_mask_key *key)
{
    const spry_machine *machine = &grammar->machines[grammar->states[state].owner];
    *key = (spry_mask_key){{machine->digest[0], machine->digest[1], (uint64_t)(state - machine->index) << 1 | rounds}};
    return machine->digest[0] != 0;
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
        made = rounds ? spry_state_mask_rounds(grammar, vocabulary, state)
                      : spry_state_mask_find(&store->places, &store->facts, vocabulary, state);
        if (made && shared)
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
    *out = made;
    return SPRY_OK;
}
