/* The merge algorithm of all tokenizers: which two adjacent symbols become one, and in which order.
 *
 * Symbols are numbers: vocabulary ids first, then intermediate symbols (see symbols.h). A word is merged by repeatedly
 * merging the pair of lowest rank, the leftmost of equals, until no pair is in the table. Short words use a scan, long
 * ones a heap, so a word of n symbols never takes more than n log n steps. */
#ifndef SPRY_TOKENIZER_BPE_H
#define SPRY_TOKENIZER_BPE_H

#include <stdint.h>

#include "base/buffer.h"

typedef struct spry_merge {
    int32_t left, right; /* left is -1 if the slot is empty */
    uint32_t rank;
    int32_t merged;
} spry_merge;

/* A hash table of merges, found by (left, right), with open addressing. */
typedef struct spry_merges {
    spry_merge *slots;
    size_t capacity, count;
    uint64_t seed;
} spry_merges;

/* Allocates memory for `count` merges; false when memory is short. */
bool spry_merges_init(spry_merges *merges, spry_arena *arena, size_t count);

/* Adds a merge, at most `count` in total; an existing pair keeps its rank. */
void spry_merges_add(spry_merges *merges, spry_merge merge);

/* The merge of two symbols; NULL: they do not merge. */
const spry_merge *spry_merges_find(const spry_merges *merges, int32_t left, int32_t right);

/* Scratch memory for merging, one per thread. Starts zeroed. */
typedef struct spry_merge_scratch {
    int32_t *symbols; /* the word: filled by the caller, merged in place */
    size_t count, capacity;
    struct spry_merge_link *links; /* [capacity], for long words */
    uint64_t *heap;                /* [3 * capacity], for long words */
    size_t long_capacity;
} spry_merge_scratch;

void spry_merge_scratch_deinit(spry_merge_scratch *scratch);

/* Appends a symbol to the word; false when memory is short. */
bool spry_merge_push(spry_merge_scratch *scratch, int32_t symbol);

/* Merges the word in scratch->symbols; false when memory is short, or interrupted (base/interrupt.h). */
bool spry_merge_word(const spry_merges *merges, spry_merge_scratch *scratch);

#endif
