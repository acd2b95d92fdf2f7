/* A hash map from byte strings to 32-bit values. Keys are borrowed: they must outlive the map. No removal. The hash is
 * seeded per map, so a hostile file cannot contain prepared collisions. */
#ifndef SPRY_BASE_MAP_H
#define SPRY_BASE_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/view.h"

typedef struct spry_map {
    struct spry_map_slot *slots; /* power of two, at most 3/4 full */
    size_t capacity, count;
    uint64_t seed;
} spry_map;

void spry_map_init(spry_map *map);
void spry_map_deinit(spry_map *map);

/* Adds a key; an existing key keeps its value and *added is false. False when memory is short. */
bool spry_map_add(spry_map *map, spry_view key, uint32_t value, bool *added);

bool spry_map_find(const spry_map *map, spry_view key, uint32_t *value);

/* A 64-bit hash of bytes: good spread, not cryptographic. */
uint64_t spry_hash_bytes(const void *data, size_t size, uint64_t seed);

#endif
