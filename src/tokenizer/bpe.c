/* The merge algorithm. A heap entry is (rank << 32 | position), which is the order of merging. Entries are never
 * removed; an entry is stale when the pair at its position no longer has that rank. */
#include "tokenizer/bpe.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/interrupt.h"
#include "base/number.h"

enum { SHORT_WORD = 32 };

#define NO_RANK UINT32_MAX
#define NO_LINK UINT32_MAX

/* A symbol of a long word, in a linked list. `rank` and `merged` belong to the pair it forms with the next one. */
struct spry_merge_link {
    int32_t symbol, merged;
    uint32_t rank, previous, next;
};

static size_t slot_of(const spry_merges *merges, int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) ^ merges->seed;
    x *= 0x9E3779B97F4A7C15u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    return (size_t)(x >> 32) & (merges->capacity - 1);
}

bool spry_merges_init(spry_merges *merges, spry_arena *arena, size_t count)
{
    size_t capacity = 64;
    while (capacity / 2 < count) {
        if (capacity > SIZE_MAX / 2)
            return false;
        capacity *= 2;
    }
    *merges = (spry_merges){.capacity = capacity, .seed = (uint64_t)(uintptr_t)merges};
    merges->slots = spry_arena_alloc(arena, capacity, sizeof *merges->slots);
    for (size_t i = 0; merges->slots && i < capacity; i++)
        merges->slots[i].left = -1;
    return merges->slots != NULL;
}

void spry_merges_add(spry_merges *merges, spry_merge merge)
{
    size_t i = slot_of(merges, merge.left, merge.right);
    for (; merges->slots[i].left >= 0; i = (i + 1) & (merges->capacity - 1)) {
        if (merges->slots[i].left == merge.left && merges->slots[i].right == merge.right)
            return;
    }
    merges->slots[i] = merge;
    merges->count++;
}

const spry_merge *spry_merges_find(const spry_merges *merges, int32_t left, int32_t right)
{
    if (!merges->capacity)
        return NULL;
    size_t i = slot_of(merges, left, right);
    for (; merges->slots[i].left >= 0; i = (i + 1) & (merges->capacity - 1)) {
        if (merges->slots[i].left == left && merges->slots[i].right == right)
            return &merges->slots[i];
    }
    return NULL;
}

void spry_merge_scratch_deinit(spry_merge_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->links);
    free(scratch->heap);
    *scratch = (spry_merge_scratch){0};
}

bool spry_merge_push(spry_merge_scratch *scratch, int32_t symbol)
{
    if (scratch->count == scratch->capacity) {
        size_t capacity = scratch->capacity ? scratch->capacity * 2 : 64, bytes;
        if (!spry_checked_mul(&bytes, capacity, sizeof *scratch->symbols))
            return false;
        int32_t *symbols = realloc(scratch->symbols, bytes);
        if (!symbols)
            return false;
        scratch->symbols = symbols;
        scratch->capacity = capacity;
    }
    scratch->symbols[scratch->count++] = symbol;
    return true;
}

static size_t merge_short(const spry_merges *merges, int32_t *symbols, size_t count)
{
    const spry_merge *pairs[SHORT_WORD]; /* pairs[i]: the merge of symbols i and i + 1 */
    for (size_t i = 0; i + 1 < count; i++)
        pairs[i] = spry_merges_find(merges, symbols[i], symbols[i + 1]);
    while (count > 1) {
        size_t best = 0;
        uint32_t rank = NO_RANK;
        for (size_t i = 0; i + 1 < count; i++) {
            if (pairs[i] && pairs[i]->rank < rank) {
                rank = pairs[i]->rank;
                best = i;
            }
        }
        if (rank == NO_RANK)
            break;
        symbols[best] = pairs[best]->merged;
        count--;
        for (size_t i = best + 1; i < count; i++) {
            symbols[i] = symbols[i + 1];
            pairs[i - 1] = pairs[i];
        }
        if (best > 0)
            pairs[best - 1] = spry_merges_find(merges, symbols[best - 1], symbols[best]);
        if (best + 1 < count)
            pairs[best] = spry_merges_find(merges, symbols[best], symbols[best + 1]);
    }
    return count;
}

static void heap_push(uint64_t *heap, size_t *count, uint64_t entry)
{
    size_t i = (*count)++;
    while (i > 0 && heap[(i - 1) / 2] > entry) {
        heap[i] = heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    heap[i] = entry;
}

static uint64_t heap_pop(uint64_t *heap, size_t *count)
{
    uint64_t top = heap[0], last = heap[--*count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < *count) {
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (heap[child] >= last)
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return top;
}

/* Looks up the merge of the pair at `at` again and adds it to the heap. */
static void renew_pair(const spry_merges *merges, struct spry_merge_link *links, uint32_t at, uint64_t *heap,
                       size_t *n_heap)
{
    struct spry_merge_link *link = &links[at];
    const spry_merge *pair =
        link->next == NO_LINK ? NULL : spry_merges_find(merges, link->symbol, links[link->next].symbol);
    link->rank = pair ? pair->rank : NO_RANK;
    link->merged = pair ? pair->merged : -1;
    if (pair)
        heap_push(heap, n_heap, (uint64_t)pair->rank << 32 | at);
}

static bool reserve_long(spry_merge_scratch *scratch)
{
    if (scratch->count <= scratch->long_capacity)
        return true;
    size_t links, heap;
    if (scratch->count >= NO_LINK || !spry_checked_mul(&links, scratch->capacity, sizeof *scratch->links) ||
        !spry_checked_mul(&heap, scratch->capacity, 3 * sizeof *scratch->heap))
        return false;
    free(scratch->links);
    free(scratch->heap);
    scratch->links = malloc(links);
    scratch->heap = malloc(heap);
    scratch->long_capacity = scratch->links && scratch->heap ? scratch->capacity : 0;
    return scratch->long_capacity != 0;
}

/* Each merge adds at most two pairs, and there are fewer than `count` merges, so 3 * count entries suffice. */
static bool merge_long(const spry_merges *merges, spry_merge_scratch *scratch)
{
    if (!reserve_long(scratch))
        return false;
    struct spry_merge_link *links = scratch->links;
    uint64_t *heap = scratch->heap;
    size_t n_heap = 0;
    uint32_t count = (uint32_t)scratch->count;
    for (uint32_t i = 0; i < count; i++)
        links[i] = (struct spry_merge_link){
            .symbol = scratch->symbols[i], .previous = i ? i - 1 : NO_LINK, .next = i + 1 < count ? i + 1 : NO_LINK};
    for (uint32_t i = 0; i < count; i++) {
        renew_pair(merges, links, i, heap, &n_heap);
        if (spry_interrupted(1))
            return false;
    }
    while (n_heap) {
        if (spry_interrupted(1))
            return false;
        uint64_t top = heap_pop(heap, &n_heap);
        uint32_t at = (uint32_t)top;
        struct spry_merge_link *link = &links[at];
        if (link->rank != (uint32_t)(top >> 32))
            continue;
        struct spry_merge_link *gone = &links[link->next];
        link->symbol = link->merged;
        link->next = gone->next;
        gone->rank = NO_RANK;
        if (link->next != NO_LINK)
            links[link->next].previous = at;
        renew_pair(merges, links, at, heap, &n_heap);
        if (link->previous != NO_LINK)
            renew_pair(merges, links, link->previous, heap, &n_heap);
    }
    size_t kept = 0;
    for (uint32_t i = 0; i != NO_LINK; i = links[i].next)
        scratch->symbols[kept++] = links[i].symbol;
    scratch->count = kept;
    return true;
}

bool spry_merge_word(const spry_merges *merges, spry_merge_scratch *scratch)
{
    if (scratch->count > SHORT_WORD)
        return merge_long(merges, scratch);
    scratch->count = merge_short(merges, scratch->symbols, scratch->count);
    return true;
}
