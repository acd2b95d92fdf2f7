/* The distances by which pages are used away from where they were computed. Few differ at a time: a table entry names
 * one by its number, and the pass keeps cos and sin of each. Number 0 is distance 0, always, and not counted. */
#ifndef SPRY_KV_KV_TURNS_H
#define SPRY_KV_KV_TURNS_H

#include <stdbool.h>
#include <stdint.h>

enum { SPRY_KV_TURNS_MAX = 1024 };

typedef struct spry_kv_turns {
    int32_t deltas[SPRY_KV_TURNS_MAX];
    uint32_t references[SPRY_KV_TURNS_MAX];
    uint32_t end; /* no number from here on was ever used */
} spry_kv_turns;

void spry_kv_turns_init(spry_kv_turns *turns);

/* The number of a distance, with one more reference; false when too many differ at once. */
bool spry_kv_turn_take(spry_kv_turns *turns, uint32_t *number, int32_t delta);
void spry_kv_turn_release(spry_kv_turns *turns, uint32_t number);

#endif
