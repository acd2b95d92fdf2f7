/* Growable arrays. */
#ifndef SPRY_GRAMMAR_GROW_H
#define SPRY_GRAMMAR_GROW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Reserves room for `needed` items of `size` bytes in the array whose pointer `array` points to. The capacity doubles.
 * False when memory is short; then nothing changes. */
static inline bool spry_grow(void *array, size_t *capacity, size_t needed, size_t size)
{
    if (needed <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity * 2 : 16;
    if (wanted < needed)
        wanted = needed;
    if (wanted > SIZE_MAX / 2 / size)
        return false;
    void *items;
    memcpy(&items, array, sizeof items);
    items = realloc(items, wanted * size);
    if (!items)
        return false;
    memcpy(array, &items, sizeof items);
    *capacity = wanted;
    return true;
}

#endif
