#include "grammar/source/code_ranges.h"

#include <stdlib.h>

#include "base/utf8.h"

enum { SURROGATE_FIRST = 0xD800, SURROGATE_LAST = 0xDFFF };

static int compare_ranges(const void *left, const void *right)
{
    const spry_code_range *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

size_t spry_code_ranges_normalize(spry_code_range *ranges, size_t count)
{
    if (count)
        qsort(ranges, count, sizeof *ranges, compare_ranges);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        spry_code_range range = ranges[i];
        if (range.last > SPRY_CODE_LAST)
            range.last = SPRY_CODE_LAST;
        if (range.first > range.last)
            continue;
        if (kept && range.first <= ranges[kept - 1].last + 1) {
            if (range.last > ranges[kept - 1].last)
                ranges[kept - 1].last = range.last;
        } else {
            ranges[kept++] = range;
        }
    }
    return kept;
}

size_t spry_code_ranges_invert(spry_code_range *out, const spry_code_range *ranges, size_t count)
{
    size_t written = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < count; i++) {
        if (ranges[i].first > next)
            out[written++] = (spry_code_range){next, ranges[i].first - 1};
        next = ranges[i].last + 1;
    }
    if (next <= SPRY_CODE_LAST)
        out[written++] = (spry_code_range){next, SPRY_CODE_LAST};
    return written;
}

size_t spry_code_ranges_drop_surrogates(spry_code_range *ranges, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        spry_code_range *range = &ranges[i];
        if (range->last < SURROGATE_FIRST || range->first > SURROGATE_LAST)
            continue;
        bool before = range->first<SURROGATE_FIRST, behind = range->last> SURROGATE_LAST;
        if (before && behind) {
            for (size_t j = count; j > i; j--)
                ranges[j] = ranges[j - 1];
            ranges[i].last = SURROGATE_FIRST - 1;
            ranges[i + 1].first = SURROGATE_LAST + 1;
            return count + 1;
        }
        if (before) {
            range->last = SURROGATE_FIRST - 1;
        } else if (behind) {
            range->first = SURROGATE_LAST + 1;
        } else {
            for (size_t j = i; j + 1 < count; j++)
                ranges[j] = ranges[j + 1];
            return spry_code_ranges_drop_surrogates(ranges, count - 1);
        }
    }
    return count;
}

/* The first place after range.first where the range must be split to become products; range.last when it need not. */
static uint32_t cut(spry_code_range range)
{
    static const uint32_t lengths[] = {0x7F, 0x7FF, 0xFFFF};
    for (size_t i = 0; i < SPRY_COUNT(lengths); i++)
        if (range.first <= lengths[i] && range.last > lengths[i])
            return lengths[i];
    if (range.last <= 0x7F)
        return range.last;
    for (unsigned bits = 6; bits < 24; bits += 6) {
        uint32_t low = ((uint32_t)1 << bits) - 1;
        if ((range.first & ~low) == (range.last & ~low))
            break;
        if (range.first & low)
            return range.first | low;
        if ((range.last & low) != low)
            return (range.last & ~low) - 1;
    }
    return range.last;
}

size_t spry_utf8_products(spry_utf8_product out[SPRY_UTF8_PRODUCTS_MAX], spry_code_range range)
{
    size_t count = 0;
    while (range.first <= range.last) {
        spry_code_range part = {range.first, range.last};
        for (uint32_t last = cut(part); last != part.last; last = cut(part))
            part.last = last;
        spry_utf8_product *product = &out[count++];
        product->size = (unsigned)spry_utf8_encode((char *)product->first, part.first);
        spry_utf8_encode((char *)product->last, part.last);
        range.first = part.last + 1;
    }
    return count;
}
