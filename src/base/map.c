/* Open addressing, linear probing. */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

struct spry_map_slot {
    spry_view key; /* data NULL: empty */
    uint32_t hash, value;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

uint64_t spry_hash_bytes(const void *data, size_t size, uint64_t seed)
{
    const unsigned char *bytes = data;
    uint64_t hash = mix(seed ^ (uint64_t)size);
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = mix(hash ^ word);
        bytes += 8;
        size -= 8;
    }
    uint64_t tail = 0;
    for (size_t i = 0; i < size; i++)
        tail |= (uint64_t)bytes[i] << (8 * i);
    return mix(hash ^ tail);
}

void spry_map_init(spry_map *map)
{
    *map = (spry_map){.seed = mix((uint64_t)(uintptr_t)map)};
}

void spry_map_deinit(spry_map *map)
{
    free(map->slots);
    *map = (spry_map){0};
}

static struct spry_map_slot *slot_for(struct spry_map_slot *slots, size_t capacity, spry_view key, uint32_t hash)
{
    size_t i = hash & (capacity - 1);
    while (slots[i].key.data && !(slots[i].hash == hash && spry_view_equal(slots[i].key, key)))
        i = (i + 1) & (capacity - 1);
    return &slots[i];
}

static bool grow(spry_map *map)
{
    size_t capacity = map->capacity ? map->capacity * 2 : 64;
    struct spry_map_slot *slots = calloc(capacity, sizeof *slots);
    if (!slots)
        return false;
    for (size_t i = 0; i < map->capacity; i++)
        if (map->slots[i].key.data)
            *slot_for(slots, capacity, map->slots[i].key, map->slots[i].hash) = map->slots[i];
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    return true;
}

bool spry_map_add(spry_map *map, spry_view key, uint32_t value, bool *added)
{
    if (map->count >= map->capacity / 4 * 3 && !grow(map))
        return false;
    if (!key.data)
        key.data = "";
    uint32_t hash = (uint32_t)spry_hash_bytes(key.data, key.size, map->seed);
    struct spry_map_slot *slot = slot_for(map->slots, map->capacity, key, hash);
    bool fresh = !slot->key.data;
    if (fresh) {
        *slot = (struct spry_map_slot){key, hash, value};
        map->count++;
    }
    if (added)
        *added = fresh;
    return true;
}

bool spry_map_find(const spry_map *map, spry_view key, uint32_t *value)
{
    if (!map->count)
        return false;
    if (!key.data)
        key.data = "";
    uint32_t hash = (uint32_t)spry_hash_bytes(key.data, key.size, map->seed);
    const struct spry_map_slot *slot = slot_for(map->slots, map->capacity, key, hash);
    if (!slot->key.data)
        return false;
    *value = slot->value;
    return true;
}
