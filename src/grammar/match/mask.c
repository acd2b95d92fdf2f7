/* The mask of a matcher: for every position of its set, the tokens that the state allows by itself, and behind trie
 * nodes where the state's machine may be complete, those that the stack allows. Object keys depend on the members seen;
 * they are walked. Masks with walked parts are stored whole, by the content of the place. */
#include <stdlib.h>

#include "grammar/match/mask_store.h"
#include "grammar/match/matcher.h"

/* Walks the exits with at least `least` and at most `most` rounds from the set that follows there. */
static void walk_exits(spry_matcher *matcher, const spry_state_mask *mask, uint32_t set, uint64_t least, uint64_t most)
{
    spry_places *places = &matcher->places;
    const spry_trie_node *nodes = matcher->vocabulary->nodes;
    for (uint32_t i = 0; i < mask->n_exits && !places->failed; i = mask->exits[i].next) {
        uint32_t behind = spry_places_step(places, set, mask->exits[i].byte);
        for (uint32_t j = i; behind != SPRY_NO_SET && j < mask->exits[i].next; j++) {
            const spry_exit *exit = &mask->exits[j];
            const spry_trie_node *node = &nodes[exit->node];
            if (exit->rounds < least || exit->rounds > most)
                continue;
            for (uint32_t t = node->first_token; t < node[1].first_token; t++)
                spry_bit_set(matcher->mask, (uint32_t)matcher->vocabulary->order[t]);
            if (node->skip != exit->node + 1)
                spry_walk_trie(places, matcher->vocabulary, matcher->mask, matcher->path, behind, exit->node + 1,
                               node->skip, node->depth);
        }
    }
}

/* A state whose mask is known; `returns` is what follows its machine. */
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

/* A state that is counted: `least` to `left` rounds may still come. *done stays false where masks with rounds are not
 * sufficient: near the maximum, if the text behind may begin like another round. */
static spry_status add_counted(spry_matcher *matcher, spry_mask_store *store, spry_position position, uint32_t least,
                               uint32_t left, spry_return back, bool *done, spry_error *error)
{
    spry_places *places = &matcher->places;
    const spry_state_mask *mask;
    spry_status status = spry_mask_store_state(store, &mask, position.state, true, matcher->vocabulary, error);
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

/* A state of a limited text. Far from the limits the units of a token do not matter. */
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
        status = spry_mask_store_state(store, &mask, position.state, false, matcher->vocabulary, error);
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
    spry_status status = spry_mask_store_state(store, &mask, position.state, false, matcher->vocabulary, error);
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
    spry_status status = spry_mask_store_find(&store, matcher->grammar, matcher->vocabulary, error);
    if (status)
        return status;
    bool known = spry_places_digest(&matcher->places, &key, matcher->set);
    if (known && spry_whole_masks_get(&store->whole, matcher->mask, n_words, key))
        return SPRY_OK;
    matcher->walked = false;
    status = add_positions(matcher, store, error);
    if (!status && known && matcher->walked)
        spry_whole_masks_put(&store->whole, matcher->mask, n_words, key);
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
