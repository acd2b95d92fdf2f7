/* Removes objects that no root set needs: needed objects are marked from newest to oldest, since objects refer only to
 * older ones, and rebuilt from oldest to newest. */
#include "grammar/ir/grow.h"
#include "grammar/match/stacks.h"

typedef struct marks {
    bool *stacks, *records;         /* whether it is needed */
    uint32_t *stack_to, *record_to; /* the new numbers */
    spry_return *returns;
    spry_position *positions;
    size_t returns_room, positions_room;
} marks;

static void mark_all(const spry_places *places, marks *needed, const uint32_t *roots, size_t n_roots)
{
    for (size_t i = 0; i < n_roots; i++) {
        spry_slice positions = places->sets[roots[i]].positions;
        for (uint32_t j = 0; j < positions.count; j++)
            needed->stacks[places->positions[positions.first + j].stack] = true;
    }
    for (size_t i = places->n_stacks; i-- > 0;) {
        spry_slice returns = places->stacks[i];
        for (uint32_t j = 0; needed->stacks[i] && j < returns.count; j++) {
            spry_return back = places->returns[returns.first + j];
            needed->stacks[back.below] = true;
            if (spry_places_holds_record(places, back.state))
                needed->records[back.data] = true;
        }
    }
}

static bool copy_record(spry_places *to, const spry_places *from, uint32_t record, uint32_t *number)
{
    const uint64_t *words = from->words + from->records[record];
    uint32_t n_words = 2 + from->grammar->objects[words[0] >> 32].n_words;
    if (!spry_grow(&to->words, &to->words_room, to->n_words + n_words, sizeof *to->words))
        return false;
    memcpy(to->words + to->n_words, words, n_words * sizeof *words);
    *number = spry_places_intern_record(to, n_words);
    return !to->failed;
}

static bool copy_stack(spry_places *to, const spry_places *from, marks *needed, uint32_t stack)
{
    spry_slice returns = from->stacks[stack];
    if (!spry_grow(&needed->returns, &needed->returns_room, returns.count, sizeof *needed->returns))
        return false;
    for (uint32_t i = 0; i < returns.count; i++) {
        spry_return back = from->returns[returns.first + i];
        back.below = needed->stack_to[back.below];
        if (spry_places_holds_record(from, back.state))
            back.data = needed->record_to[back.data];
        needed->returns[i] = back;
    }
    needed->stack_to[stack] = spry_places_stack(to, needed->returns, returns.count);
    return !to->failed;
}

static bool copy_set(spry_places *to, const spry_places *from, marks *needed, uint32_t *set)
{
    const spry_set *old = &from->sets[*set];
    uint32_t count = old->positions.count;
    if (!spry_grow(&needed->positions, &needed->positions_room, count, sizeof *needed->positions))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        spry_position position = from->positions[old->positions.first + i];
        needed->positions[i] = (spry_position){position.state, needed->stack_to[position.stack]};
    }
    *set = spry_places_set(to, needed->positions, count, old->may_end);
    return !to->failed;
}

static bool copy_all(spry_places *to, const spry_places *from, marks *needed, uint32_t *roots, size_t n_roots)
{
    for (uint32_t i = 0; i < from->n_records; i++)
        if (needed->records[i] && !copy_record(to, from, i, &needed->record_to[i]))
            return false;
    for (uint32_t i = 0; i < from->n_stacks; i++)
        if (needed->stacks[i] && !copy_stack(to, from, needed, i))
            return false;
    for (size_t i = 0; i < n_roots; i++)
        if (!copy_set(to, from, needed, &roots[i]))
            return false;
    return true;
}

bool spry_places_collect(spry_places *places, uint32_t *roots, size_t n_roots)
{
    spry_places made;
    if (spry_places_init(&made, places->grammar, NULL))
        return false;
    marks needed = {0};
    needed.stacks = calloc(places->n_stacks + 1, sizeof *needed.stacks);
    needed.records = calloc(places->n_records + 1, sizeof *needed.records);
    needed.stack_to = calloc(places->n_stacks + 1, sizeof *needed.stack_to);
    needed.record_to = calloc(places->n_records + 1, sizeof *needed.record_to);
    uint32_t *copied = malloc((n_roots + 1) * sizeof *copied);
    bool ok = needed.stacks && needed.records && needed.stack_to && needed.record_to && copied;
    if (ok) {
        mark_all(places, &needed, roots, n_roots);
        memcpy(copied, roots, n_roots * sizeof *copied);
        ok = copy_all(&made, places, &needed, copied, n_roots);
    }
    if (ok)
        memcpy(roots, copied, n_roots * sizeof *roots);
    free(needed.stacks);
    free(needed.records);
    free(needed.stack_to);
    free(needed.record_to);
    free(needed.returns);
    free(needed.positions);
    free(copied);
    spry_places_deinit(ok ? places : &made);
    if (ok)
        *places = made;
    return ok;
}
