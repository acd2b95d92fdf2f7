/* A small reference-counted set with linear search: tables are edited rarely. */
#include "kv/kv_turns.h"

#include <string.h>

void spry_kv_turns_init(spry_kv_turns *turns)
{
    memset(turns, 0, sizeof *turns);
    turns->end = 1;
}

bool spry_kv_turn_take(spry_kv_turns *turns, uint32_t *number, int32_t delta)
{
    uint32_t free = SPRY_KV_TURNS_MAX;
    *number = 0;
    if (!delta)
        return true;
    for (uint32_t i = 1; i < turns->end; i++) {
        if (turns->references[i] && turns->deltas[i] == delta) {
            turns->references[ *number = i]++;
            return true;
        }
        if (!turns->references[i] && free == SPRY_KV_TURNS_MAX)
            free = i;
    }
    if (free == SPRY_KV_TURNS_MAX && turns->end < SPRY_KV_TURNS_MAX)
        free = turns->end++;
    if (free == SPRY_KV_TURNS_MAX)
        return false;
    turns->deltas[free] = delta;
    turns->references[free] = 1;
    *number = free;
    return true;
}

void spry_kv_turn_release(spry_kv_turns *turns, uint32_t number)
{
    if (number)
        turns->references[number]--;
}
