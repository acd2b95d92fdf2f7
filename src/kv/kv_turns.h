/* The position offsets of pages that are used at other positions than computed. Few differ at a time: a table entry
 * refers to one by number, and the device holds cos and sin of each. Number 0 is always offset 0 and is not counted. */
#ifndef SPRY_KV_KV_TURNS_H
#define SPRY_KV_KV_TURNS_H

#include <stdbool.h>
#include <stdint.h>

enum { SPRY_KV_TURNS_MAX = 1024 };

typedef struct spry_kv_turns {
    int32_t deltas[SPRY_KV_TURNS_MAX];
    uint32_t references[SPRY_KV_TURNS_MAX];
    uint32_t end; /* numbers from here on were never used */
} spry_kv_turns;

void spry_kv_turns_init(spry_kv_turns *turns);

/* The number of an offset, with one more reference; false when there are too many. */
bool spry_kv_turn_take(spry_kv_turns *turns, uint32_t *number, int32_t delta);
void spry_kv_turn_release(spry_kv_turns *turns, uint32_t number);

#endif
