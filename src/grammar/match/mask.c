/* The mask of a matcher. For every position of its set: the tokens that the state alone allows; and, at trie nodes
 * after which the state's machine may be complete, the tokens that the stack allows. Object keys depend on the members
 * seen, so they are walked each time. Masks with such walked parts are stored whole, by the content of the set. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "grammar/match/stacks.h"
#include "grammar/match/state_mask.h"
#include "grammar/match/vocabulary.h"

/* Whole masks of sets, found by the content of the set: its states and everything on the stacks below them, such as the
 * members seen in an object. So the keys of an object are walked once for a grammar, not once for an answer. */

enum { SPRY_WHOLE_MASKS = 256 }; /* a power of two */

typedef struct spry_whole_mask {
    spry_digest key;
    uint32_t *words; /* bits, or ids if there are few; NULL: free */
    uint32_t n_words;
    bool sparse;
} spry_whole_mask;

/* A part of a mask store, protected by the same lock. */
typedef struct spry_whole_masks {
    spry_whole_mask slots[SPRY_WHOLE_MASKS];
    size_t bytes;
} spry_whole_masks;

/* Cached state masks, found by grammar and vocabulary; expensive ones are also found by the language of the state, so
 * that another grammar with the same kind of string reuses them. */

/* One for each vocabulary a grammar is used with. Owned by the grammar and protected by its lock. */
typedef struct spry_mask_store {
    struct spry_mask_store *next;
    uint64_t serial; /* serial number of the vocabulary */
    spry_places places;
    spry_state_mask **masks, **rounds; /* [n_states] NULL: not computed yet */
    spry_slice_facts facts;
    spry_whole_masks whole;
    size_t bytes; /* used by masks */
} spry_mask_store;

/* ---- masks by language ------------------------------------------------------------------------------------------- */

enum {
    SLOTS = 1024,        /* a power of two */
    BYTES_MAX = 1 << 25, /* maximum bytes of all masks; when exceeded all are removed */
};

/* A mask has one possible slot, which its key determines; a newer mask replaces it. */
struct spry_mask_share {
    pthread_mutex_t lock;
    spry_mask_key keys[SLOTS];
    spry_state_mask *masks[SLOTS];
    size_t bytes;
};

spry_mask_share *spry_mask_share_create(void)
{
    spry_mask_share *share = calloc(1, sizeof *share);
    if (share)
        pthread_mutex_init(&share->lock, NULL);
    return share;
}

static void clear(spry_mask_share *share, size_t slot)
{
    if (share->masks[slot])
        share->bytes -= share->masks[slot]->bytes;
    spry_state_mask_unref(share->masks[slot]);
    share->masks[slot] = NULL;
}

void spry_mask_share_destroy(spry_mask_share *share)
{
    if (!share)
        return;
    for (size_t i = 0; i < SLOTS; i++)
        clear(share, i);
    pthread_mutex_destroy(&share->lock);
    free(share);
}

static size_t slot_of(const spry_mask_key *key)
{
    return (size_t)((key->words[0] ^ key->words[2]) * 0x9E3779B97F4A7C15u >> 32) & (SLOTS - 1);
}

/* A reference to a mask, or NULL. */
static spry_state_mask *share_get(spry_mask_share *share, const spry_mask_key *key)
{
    size_t slot = slot_of(key);
    pthread_mutex_lock(&share->lock);
    spry_state_mask *found = share->masks[slot];
    if (found && memcmp(&share->keys[slot], key, sizeof *key) != 0)
        found = NULL;
    if (found)
        atomic_fetch_add(&found->references, 1);
    pthread_mutex_unlock(&share->lock);
    return found;
}

/* Stores a reference; may replace other masks. */
static void share_put(spry_mask_share *share, const spry_mask_key *key, spry_state_mask *mask)
{
    size_t slot = slot_of(key);
    pthread_mutex_lock(&share->lock);
    clear(share, slot);
    for (size_t i = 0; share->bytes + mask->bytes > BYTES_MAX && i < SLOTS; i++)
        clear(share, i);
    atomic_fetch_add(&mask->references, 1);
    share->masks[slot] = mask;
    share->keys[slot] = *key;
    share->bytes += mask->bytes;
    pthread_mutex_unlock(&share->lock);
}

/* ---- whole masks ------------------------------------------------------------------------------------------------- */

enum {
    IDS_MAX = 1024,            /* a mask with at most this many tokens is stored as their ids */
    WHOLE_BYTES_MAX = 4 << 20, /* maximum bytes of one store; when exceeded all are removed */
};

static size_t whole_slot_of(spry_digest key)
{
    return (size_t)key.words[0] & (SPRY_WHOLE_MASKS - 1);
}

/* Copies a mask of n_words to `bits`; false if it is not stored. */
static bool whole_masks_get(const spry_whole_masks *masks, uint32_t *bits, size_t n_words, spry_digest key)
{
    const spry_whole_mask *there = &masks->slots[whole_slot_of(key)];
    if (!there->words || there->key.words[0] != key.words[0] || there->key.words[1] != key.words[1])
        return false;
    if (!there->sparse) {
        memcpy(bits, there->words, n_words * sizeof *bits);
        return true;
    }
    memset(bits, 0, n_words * sizeof *bits);
    for (uint32_t i = 0; i < there->n_words; i++)
        spry_bit_set(bits, there->words[i]);
    return true;
}

static void whole_clear(spry_whole_masks *masks, spry_whole_mask *slot)
{
    masks->bytes -= slot->n_words * sizeof *slot->words;
    free(slot->words);
    *slot = (spry_whole_mask){0};
}

static void whole_masks_clear(spry_whole_masks *masks)
{
    for (size_t i = 0; i < SPRY_WHOLE_MASKS; i++)
        whole_clear(masks, &masks->slots[i]);
}

/* Lists the set bits; returns their number, or IDS_MAX + 1 when there are more. */
static uint32_t list_ids(uint32_t ids[IDS_MAX], const uint32_t *bits, size_t n_words)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < n_words; i++)
        for (uint32_t bit = 0; bit < 32 && bits[i] >> bit; bit++)
            if (bits[i] >> bit & 1) {
                if (count == IDS_MAX)
                    return IDS_MAX + 1;
                ids[count++] = i * 32 + bit;
            }
    return count;
}

/* Stores a copy if there is memory; it may replace others. */
static void whole_masks_put(spry_whole_masks *masks, const uint32_t *bits, size_t n_words, spry_digest key)
{
    uint32_t ids[IDS_MAX], count = list_ids(ids, bits, n_words);
    bool sparse = count <= IDS_MAX && count < n_words;
    spry_whole_mask made = {.key = key, .n_words = sparse ? count : (uint32_t)n_words, .sparse = sparse};
    size_t bytes = made.n_words * sizeof *made.words;
    made.words = malloc(bytes + 1);
    if (!made.words)
        return;
    memcpy(made.words, sparse ? ids : bits, bytes);
    if (masks->bytes + bytes > WHOLE_BYTES_MAX)
        whole_masks_clear(masks);
    spry_whole_mask *slot = &masks->slots[whole_slot_of(key)];
    whole_clear(masks, slot);
    *slot = made;
    masks->bytes += bytes;
}

/* ---- the store of a grammar -------------------------------------------------------------------------------------- */

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
        whole_masks_clear(&first->whole);
        spry_places_deinit(&first->places);
        free(first);
        first = next;
    }
}

/* The store of a grammar for a vocabulary, created if it is new. Call with the grammar locked. */
static spry_status store_find(spry_mask_store **out, spry_grammar *grammar, const spry_vocabulary *vocabulary,
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

/* Clears the store when it is too large; its contents affect speed only. */
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

/* The mask of a state (with `rounds`: of a simple counter's body), computed if it is not cached. Valid until the next
 * call. */
static spry_status store_state(spry_mask_store *store, const spry_state_mask **out, uint32_t state, bool rounds,
                               spry_matcher *matcher, spry_error *error)
{
    const spry_grammar *grammar = store->places.grammar;
    const spry_vocabulary *vocabulary = matcher->vocabulary;
    *out = rounds ? store->rounds[state] : store->masks[state];
    if (*out)
        return SPRY_OK;
    spry_status status = keep_bounded(store, error);
    if (status)
        return status;
    spry_mask_key key;
    bool shared = state_key(grammar, state, rounds, &key);
    store->places.work = 0;
    store->places.work_max = matcher->places.work_max - matcher->places.work;
    spry_state_mask *made = shared ? share_get(vocabulary->share, &key) : NULL;
    if (!made) {
        made = rounds ? spry_state_mask_rounds(grammar, vocabulary, state)
                      : spry_state_mask_find(&store->places, &store->facts, vocabulary, state);
        if (made && shared)
            share_put(vocabulary->share, &key, made);
        spry_places_charge(&matcher->places, store->places.work);
        if (rounds)
            spry_places_charge(&matcher->places, vocabulary->n_nodes / SPRY_NODES_A_WORK);
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

/* ---- the mask of a matcher --------------------------------------------------------------------------------------- */

/* Walks the trie from each exit with at least `least` and at most `most` rounds, starting with the set that follows
 * there. */
static void walk_exits(spry_matcher *matcher, const spry_state_mask *mask, uint32_t set, uint64_t least, uint64_t most)
{
    spry_places *places = &matcher->places;
    const spry_trie_node *nodes = matcher->vocabulary->nodes;
    for (uint32_t i = 0; i < mask->n_exits && !places->failed; i = mask->exits[i].next) {
        uint32_t after = spry_places_step(places, set, mask->exits[i].byte);
        spry_places_charge(places, after == SPRY_NO_SET ? 1 : (mask->exits[i].next - i) / SPRY_NODES_A_WORK + 1);
        for (uint32_t j = i; after != SPRY_NO_SET && j < mask->exits[i].next; j++) {
            const spry_exit *exit = &mask->exits[j];
            const spry_trie_node *node = &nodes[exit->node];
            if (exit->rounds < least || exit->rounds > most)
                continue;
            for (uint32_t t = node->first_token; t < node[1].first_token; t++)
                spry_bit_set(matcher->mask, (uint32_t)matcher->vocabulary->order[t]);
            if (node->skip != exit->node + 1)
                spry_walk_trie(places, matcher->vocabulary, matcher->mask, matcher->path, after, exit->node + 1,
                               node->skip, node->depth);
        }
    }
}

/* Adds a state whose mask is known; `returns` is what may follow its machine. */
static spry_status add_plain(spry_matcher *matcher, const spry_state_mask *mask, spry_slice returns)
{
    spry_places *places = &matcher->places;
    spry_state_mask_add(mask, matcher->mask, matcher->vocabulary);
    if (!mask->n_exits)
        return SPRY_OK;
    uint32_t set = spry_places_resume(places, returns);
    matcher->walked = true;
    if (set != SPRY_NO_SET)
        walk_exits(matcher, mask, set, 0, UINT16_MAX);
    return SPRY_OK;
}

/* Adds a state of a counted part, of which `least` to `left` rounds may still come. *done stays false where masks with
 * rounds are not sufficient: near the maximum, if the text that follows the part may begin like another round. */
static spry_status add_counted(spry_matcher *matcher, spry_mask_store *store, spry_position position, uint32_t least,
                               uint32_t left, spry_return back, bool *done, spry_error *error)
{
    spry_places *places = &matcher->places;
    const spry_state_mask *mask;
    spry_status status = store_state(store, &mask, position.state, true, matcher, error);
    if (status)
        return status;
    uint32_t set = spry_places_resume(places, places->stacks[back.below]);
    if (places->failed)
        return SPRY_OK;
    bool alike = false;
    for (unsigned i = 0; i < 4; i++)
        alike |= (places->sets[set].bytes[i] & mask->starts[i]) != 0;
    if (alike && left < mask->most)
        return SPRY_OK;
    *done = true;
    spry_state_mask_add_rounds(mask, matcher->mask, matcher->scratch, matcher->vocabulary->n_words, left);
    walk_exits(matcher, mask, set, least, left);
    return SPRY_OK;
}

static void add_walked(spry_matcher *matcher, spry_position position)
{
    uint32_t set = spry_places_set(&matcher->places, &position, 1, false);
    matcher->walked = true;
    spry_walk_tries(&matcher->places, matcher->vocabulary, matcher->mask, matcher->path, set);
}

/* Adds a state of a limited text. Far from the limits the number of units in a token does not matter. */
static spry_status add_limited(spry_matcher *matcher, spry_mask_store *store, spry_position position, spry_error *error)
{
    spry_places *places = &matcher->places;
    spry_slice returns = places->stacks[position.stack];
    spry_return back = places->returns[returns.first];
    const spry_limit *limit = spry_places_limit(places, &back);
    uint32_t least = back.data < limit->min ? limit->min - back.data : 0, left = limit->max - back.data;
    bool done = false;
    spry_status status = SPRY_OK;
    if (returns.count == 1 && !least) {
        const spry_state_mask *mask;
        status = store_state(store, &mask, position.state, false, matcher, error);
        if (!status && left >= (uint64_t)mask->longest + limit->farthest)
            return add_plain(matcher, mask, places->stacks[back.below]);
    }
    if (returns.count == 1 && !status && (!least || limit->extends))
        status = add_counted(matcher, store, position, least, left, back, &done, error);
    if (!status && !done && !places->failed)
        add_walked(matcher, position);
    return status;
}

static spry_status add_position(spry_matcher *matcher, spry_mask_store *store, spry_position position,
                                spry_error *error)
{
    spry_places *places = &matcher->places;
    const spry_grammar *grammar = matcher->grammar;
    const spry_state *state = &grammar->states[position.state];
    if (state->kind == SPRY_STATE_LIMITED)
        return add_limited(matcher, store, position, error);
    if (state->kind == SPRY_STATE_KEY) {
        add_walked(matcher, position);
        return SPRY_OK;
    }
    spry_slice returns = places->stacks[position.stack];
    spry_return back = places->returns[returns.first];
    const spry_state *below = &grammar->states[back.state];
    if (returns.count == 1 && below->kind == SPRY_STATE_COUNT && grammar->counters[below->owner].simple &&
        grammar->counters[below->owner].body == state->owner) {
        const spry_counter *counter = &grammar->counters[below->owner];
        uint32_t before = back.data - 1, least = counter->min > before ? counter->min - before : 0;
        bool done = false;
        spry_status status = add_counted(matcher, store, position, least, counter->max - before, back, &done, error);
        if (status || done || places->failed)
            return status;
    }
    const spry_state_mask *mask;
    spry_status status = store_state(store, &mask, position.state, false, matcher, error);
    return status ? status : add_plain(matcher, mask, returns);
}

static spry_status add_positions(spry_matcher *matcher, spry_mask_store *store, spry_error *error)
{
    spry_places *places = &matcher->places;
    spry_slice positions = places->sets[matcher->set].positions;
    spry_status status = SPRY_OK;
    for (uint32_t i = 0; i < positions.count && !status; i++) {
        status = add_position(matcher, store, places->positions[positions.first + i], error);
        if (places->failed)
            status = spry_places_fail(places, error);
    }
    return status;
}

/* Call with the grammar locked. */
static spry_status find_mask(spry_matcher *matcher, spry_error *error)
{
    size_t n_words = matcher->vocabulary->n_words;
    spry_mask_store *store;
    spry_digest key;
    spry_status status = store_find(&store, matcher->grammar, matcher->vocabulary, error);
    if (status)
        return status;
    bool known = spry_places_digest(&matcher->places, &key, matcher->set);
    if (known && whole_masks_get(&store->whole, matcher->mask, n_words, key))
        return SPRY_OK;
    matcher->walked = false;
    status = add_positions(matcher, store, error);
    if (!status && known && matcher->walked)
        whole_masks_put(&store->whole, matcher->mask, n_words, key);
    return status;
}

static bool prepare(spry_matcher *matcher)
{
    const spry_vocabulary *vocabulary = matcher->vocabulary;
    if (!matcher->mask)
        matcher->mask = malloc((vocabulary->n_words + 1) * sizeof *matcher->mask);
    if (!matcher->path)
        matcher->path = malloc((vocabulary->longest + 1) * sizeof *matcher->path);
    if (!matcher->scratch)
        matcher->scratch = malloc((vocabulary->n_words + 1) * sizeof *matcher->scratch);
    if (!matcher->mask || !matcher->path || !matcher->scratch)
        return false;
    memset(matcher->mask, 0, vocabulary->n_words * sizeof *matcher->mask);
    return true;
}

static bool is_empty(const uint32_t *bits, size_t n_words)
{
    for (size_t i = 0; i < n_words; i++)
        if (bits[i])
            return false;
    return true;
}

spry_status spry_matcher_mask(spry_matcher *matcher, const uint32_t **mask, spry_error *error)
{
    const spry_vocabulary *vocabulary = matcher->vocabulary;
    spry_status status = spry_matcher_keep_bounded(matcher, error);
    if (status)
        return status;
    if (!prepare(matcher))
        return spry_fail_memory(error, "a mask", vocabulary->n_words * sizeof *matcher->mask);
    pthread_mutex_lock(&matcher->grammar->lock);
    status = find_mask(matcher, error);
    pthread_mutex_unlock(&matcher->grammar->lock);
    if (status)
        return status;
    bool may_end = spry_matcher_may_end(matcher);
    for (size_t i = 0; may_end && i < vocabulary->n_words; i++)
        matcher->mask[i] |= vocabulary->ends[i];
    if (!may_end && is_empty(matcher->mask, vocabulary->n_words))
        return spry_fail(error, SPRY_ERR_INPUT, "the model's vocabulary cannot spell what the grammar requires next");
    *mask = matcher->mask;
    return SPRY_OK;
}
