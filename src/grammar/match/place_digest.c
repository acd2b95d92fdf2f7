/* Digests of sets by content: equal in all matchers of a grammar, while numbers of stacks and records differ. */
#include "base/map.h"
#include "grammar/ir/grow.h"
#include "grammar/match/stacks.h"

typedef struct hashed_return {
    uint64_t state, data[2], below[2];
} hashed_return;

static spry_digest digest_of(const void *data, size_t size)
{
    return (spry_digest){{spry_hash_bytes(data, size, 11) | 1, spry_hash_bytes(data, size, 12)}};
}

static bool is_known(const spry_places *places, uint32_t stack)
{
    return places->digests[stack].words[0] != 0;
}

static void digest_stack(spry_places *places, uint32_t stack)
{
    spry_slice span = places->stacks[stack];
    spry_digest sum = {{1, span.count}};
    for (uint32_t i = 0; i < span.count; i++) {
        spry_return back = places->returns[span.first + i];
        hashed_return part = {back.state, {back.data, 0}, {0, 0}};
        memcpy(part.below, places->digests[back.below].words, sizeof part.below);
        if (spry_places_holds_record(places, back.state)) {
            spry_view words = spry_places_record_bytes(places, back.data);
            memcpy(part.data, digest_of(words.data, words.size).words, sizeof part.data);
        }
        spry_digest one = digest_of(&part, sizeof part);
        /* The order of returns depends on numbers, so the sum must not depend on it. */
        sum.words[0] += one.words[0];
        sum.words[1] += one.words[1];
    }
    places->digests[stack] = digest_of(&sum, sizeof sum);
}

/* Digests a stack and all below it that have none; nested stacks use no C stack. */
static bool digest_all(spry_places *places, uint32_t stack)
{
    size_t count = 1;
    if (!spry_grow(&places->undigested, &places->undigested_room, 1, sizeof *places->undigested))
        return false;
    places->undigested[0] = stack;
    while (count) {
        uint32_t top = places->undigested[count - 1];
        spry_slice span = places->stacks[top];
        size_t before = count;
        for (uint32_t i = 0; i < span.count && !is_known(places, top); i++) {
            uint32_t below = places->returns[span.first + i].below;
            if (is_known(places, below))
                continue;
            if (!spry_grow(&places->undigested, &places->undigested_room, count + 1, sizeof *places->undigested))
                return false;
            places->undigested[count++] = below;
        }
        if (count > before)
            continue;
        if (!is_known(places, top))
            digest_stack(places, top);
        count--;
    }
    return true;
}

bool spry_places_digest(spry_places *places, spry_digest *out, uint32_t set)
{
    size_t known = places->n_digests;
    spry_slice positions = places->sets[set].positions;
    if (known < places->n_stacks) {
        if (!spry_grow(&places->digests, &places->digests_room, places->n_stacks, sizeof *places->digests))
            return false;
        memset(places->digests + known, 0, (places->n_stacks - known) * sizeof *places->digests);
        places->n_digests = places->n_stacks;
    }
    *out = (spry_digest){{positions.count, places->sets[set].may_end}};
    for (uint32_t i = 0; i < positions.count; i++) {
        spry_position position = places->positions[positions.first + i];
        if (!digest_all(places, position.stack))
            return false;
        uint64_t part[5] = {out->words[0], out->words[1], position.state, places->digests[position.stack].words[0],
                            places->digests[position.stack].words[1]};
        *out = digest_of(part, sizeof part);
    }
    return true;
}
