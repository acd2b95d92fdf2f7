/* States are numbered from the start, so ways to the end are found in few passes from the last state to the first. */
#include "grammar/automaton/unit_ways.h"

#include <stdlib.h>

enum { ENTRIES_MAX = 1 << 20 };

/* Improves the way of a state by its edges; `less` has the ways behind a unit. */
static bool improve(uint32_t *units, uint32_t *bytes, const spry_unit_ways *less, const spry_automaton *automaton,
                    uint32_t state)
{
    bool better = false;
    for (uint32_t i = automaton->first_edge[state]; i < automaton->first_edge[state + 1]; i++) {
        uint32_t target = automaton->edges[i].target, unit = automaton->tags[target] != 0;
        uint32_t to_go = unit ? less->units[target] : units[target];
        uint32_t length = unit ? less->bytes[target] : bytes[target];
        if (to_go == SPRY_NO_WAY || to_go + unit > units[state] ||
            (to_go + unit == units[state] && length + 1 >= bytes[state]))
            continue;
        units[state] = to_go + unit;
        bytes[state] = length + 1;
        better = true;
    }
    return better;
}

static void find_level(spry_unit_ways *ways, const spry_automaton *automaton, uint32_t least, uint64_t *spent)
{
    uint32_t n = ways->n_states;
    uint32_t *units = ways->units + (size_t)least * n, *bytes = ways->bytes + (size_t)least * n;
    spry_unit_ways less = {n, least ? units - n : units, least ? bytes - n : bytes};
    for (uint32_t i = 0; i < n; i++) {
        bool complete = least == 0 && automaton->tags[i] == SPRY_TAG_COMPLETE;
        units[i] = bytes[i] = complete ? 0 : SPRY_NO_WAY;
    }
    for (bool better = true; better && *spent < SPRY_AUTOMATON_WORK_MAX;) {
        better = false;
        for (uint32_t i = n; i-- > 0;)
            better |= improve(units, bytes, &less, automaton, i);
        *spent += automaton->first_edge[n];
    }
}

spry_automaton_result spry_unit_ways_find(spry_unit_ways *out, const spry_automaton *automaton, uint32_t minimum,
                                          uint64_t *spent)
{
    uint32_t n = automaton->n_states;
    *out = (spry_unit_ways){.n_states = n};
    if (n == 0 || minimum >= ENTRIES_MAX / n)
        return SPRY_AUTOMATON_TOO_LARGE;
    size_t entries = (size_t)(minimum + 1) * n;
    out->units = malloc(entries * sizeof *out->units);
    out->bytes = malloc(entries * sizeof *out->bytes);
    spry_automaton_result result = out->units && out->bytes ? SPRY_AUTOMATON_OK : SPRY_AUTOMATON_NO_MEMORY;
    for (uint32_t least = 0; least <= minimum && !result; least++) {
        find_level(out, automaton, least, spent);
        if (*spent >= SPRY_AUTOMATON_WORK_MAX)
            result = SPRY_AUTOMATON_TOO_LARGE;
    }
    if (result)
        spry_unit_ways_deinit(out);
    return result;
}

void spry_unit_ways_deinit(spry_unit_ways *ways)
{
    free(ways->units);
    free(ways->bytes);
    *ways = (spry_unit_ways){0};
}

bool spry_unit_ways_extend(const spry_unit_ways *ways)
{
    for (uint32_t i = 0; i < ways->n_states; i++) {
        uint32_t fewest = ways->units[i], one = ways->units[ways->n_states + i];
        if (one != (fewest > 1 ? fewest : 1))
            return false;
    }
    return true;
}
