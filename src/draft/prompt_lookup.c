/* For every length from min_match to max_match one hash table maps the n-grams of that length to the place where they
 * last ended. When an n-gram occurs again its slot is set to the new place, and the old place is stored in the new
 * place's row of links: a proposal follows that link, and truncating restores the slot from it.
 *
 * Truncating removes in the reverse order of appending, so a slot can simply be emptied: everything placed past it has
 * already been removed. Open addressing therefore needs no tombstones here.
 *
 * A place is the number of tokens before the end of the n-gram, so 0 means none. A table has at least twice as many
 * slots as tokens, and the search for a slot stops after PROBES: adversarial tokens can cause a missed match, not a
 * slow search. */
#include "draft/prompt_lookup.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"

enum { PROBES = 32 };

static const size_t capacity_most = (size_t)1 << 30;

struct spry_prompt_lookup {
    size_t capacity, count;
    uint32_t min_match, n_lengths;
    size_t n_slots;  /* slots of one table, a power of two */
    int32_t *tokens; /* [capacity] */
    uint32_t *links; /* [capacity, n_lengths] the previous place of the n-grams that end with this token */
    uint32_t *slots; /* [n_lengths, n_slots] places */
};

static size_t slots_for(size_t capacity)
{
    size_t n = 2;
    while (n < 2 * capacity)
        n *= 2;
    return n;
}

bool spry_prompt_lookup_bytes(size_t *bytes, const spry_lookup_limits *limits)
{
    if (!limits->capacity || limits->capacity > capacity_most || !limits->min_match ||
        limits->min_match > limits->max_match || limits->max_match > SPRY_LOOKUP_MATCH_MOST)
        return false;
    size_t lengths = limits->max_match - limits->min_match + 1, words;
    return spry_checked_mul(&words, limits->capacity + slots_for(limits->capacity), lengths) &&
           spry_checked_add(&words, words, limits->capacity) && spry_checked_mul(bytes, words, sizeof(uint32_t)) &&
           spry_checked_add(bytes, *bytes, sizeof(spry_prompt_lookup));
}

spry_status spry_prompt_lookup_create(spry_prompt_lookup **out, const spry_lookup_limits *limits, spry_error *error)
{
    size_t bytes;
    *out = NULL;
    if (!spry_prompt_lookup_bytes(&bytes, limits))
        return spry_fail(
            error, SPRY_ERR_INPUT,
            "a prompt lookup of %zu tokens and matches of %u to %u cannot be made: it holds 1 to %zu tokens "
            "and matches 1 to %d",
            limits->capacity, limits->min_match, limits->max_match, capacity_most, SPRY_LOOKUP_MATCH_MOST);
    spry_prompt_lookup *lookup = calloc(1, sizeof *lookup);
    if (!lookup)
        return spry_fail_memory(error, "the prompt lookup", bytes);
    lookup->capacity = limits->capacity;
    lookup->min_match = limits->min_match;
    lookup->n_lengths = limits->max_match - limits->min_match + 1;
    lookup->n_slots = slots_for(limits->capacity);
    lookup->tokens = calloc(lookup->capacity, sizeof *lookup->tokens);
    lookup->links = calloc(lookup->capacity, lookup->n_lengths * sizeof *lookup->links);
    lookup->slots = calloc(lookup->n_slots, lookup->n_lengths * sizeof *lookup->slots);
    if (!lookup->tokens || !lookup->links || !lookup->slots) {
        spry_prompt_lookup_destroy(lookup);
        return spry_fail_memory(error, "the prompt lookup", bytes);
    }
    *out = lookup;
    return SPRY_OK;
}

void spry_prompt_lookup_destroy(spry_prompt_lookup *lookup)
{
    if (!lookup)
        return;
    free(lookup->tokens);
    free(lookup->links);
    free(lookup->slots);
    free(lookup);
}

/* ---- n-grams and their slots ----------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, int32_t token)
{
    hash = (hash ^ (uint32_t)token) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

/* The slot of the n-gram that ends at `place`, or the free slot for it. NULL when neither is found within PROBES. */
static uint32_t *find_slot(const spry_prompt_lookup *lookup, uint32_t length_index, uint64_t hash, size_t place)
{
    const int32_t *tokens = lookup->tokens;
    uint32_t *table = lookup->slots + length_index * lookup->n_slots;
    size_t length = lookup->min_match + length_index, stride = (hash >> 32) | 1, at = hash ^ (hash >> 47);
    for (size_t probe = 0; probe < PROBES; probe++, at += stride) {
        uint32_t *slot = &table[at & (lookup->n_slots - 1)];
        if (*slot == 0 || !memcmp(tokens + *slot - length, tokens + place - length, length * sizeof *tokens))
            return slot;
    }
    return NULL;
}

/* Adds the n-grams that end at the last token to the tables, or with `leave` removes them. */
static void enter_last(spry_prompt_lookup *lookup, bool leave)
{
    size_t place = lookup->count;
    uint32_t *links = lookup->links + (place - 1) * lookup->n_lengths;
    uint64_t hash = 0;
    for (size_t length = 1; length < lookup->min_match + lookup->n_lengths && length <= place; length++) {
        hash = mix(hash, lookup->tokens[place - length]);
        if (length < lookup->min_match)
            continue;
        uint32_t index = (uint32_t)length - lookup->min_match;
        uint32_t *slot = find_slot(lookup, index, hash, place);
        if (!leave)
            links[index] = slot ? *slot : 0;
        if (slot)
            *slot = leave ? links[index] : (uint32_t)place;
    }
}

/* ---- the sequence ---------------------------------------------------------------------------------------------- */

spry_status spry_prompt_lookup_append(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error)
{
    if (count > lookup->capacity - lookup->count)
        return spry_fail(error, SPRY_ERR_CONTEXT, "the prompt lookup holds %zu of %zu tokens, no room for %zu more",
                         lookup->count, lookup->capacity, count);
    for (size_t i = 0; i < count; i++) {
        lookup->tokens[lookup->count++] = tokens[i];
        enter_last(lookup, false);
    }
    return SPRY_OK;
}

void spry_prompt_lookup_truncate(spry_prompt_lookup *lookup, size_t count)
{
    if (count == 0 && lookup->count > lookup->n_slots / 4) { /* clearing all slots is cheaper than removing tokens one
                                                              * by one */
        memset(lookup->slots, 0, lookup->n_lengths * lookup->n_slots * sizeof *lookup->slots);
        lookup->count = 0;
    }
    for (; lookup->count > count; lookup->count--)
        enter_last(lookup, true);
}

spry_status spry_prompt_lookup_follow(spry_prompt_lookup *lookup, const int32_t *tokens, size_t count,
                                      spry_error *error)
{
    size_t same = 0;
    while (same < lookup->count && same < count && lookup->tokens[same] == tokens[same])
        same++;
    spry_prompt_lookup_truncate(lookup, same);
    return same < count ? spry_prompt_lookup_append(lookup, tokens + same, count - same, error) : SPRY_OK;
}

size_t spry_prompt_lookup_propose(const spry_prompt_lookup *lookup, int32_t *draft, uint32_t *match, size_t most)
{
    *match = 0;
    if (!lookup->count || !most)
        return 0;
    const uint32_t *links = lookup->links + (lookup->count - 1) * lookup->n_lengths;
    uint32_t longer = lookup->n_lengths; /* index of the next longer match length */
    while (longer && !links[longer - 1])
        longer--;
    if (!longer)
        return 0;
    size_t place = links[longer - 1];
    for (size_t i = 0; i < most; i++, place++)
        draft[i] = place < lookup->count ? lookup->tokens[place] : draft[place - lookup->count];
    *match = lookup->min_match + longer - 1;
    return most;
}
