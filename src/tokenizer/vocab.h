/* The vocabulary: spelling, kind and score (if any) of each id. Ids run from 0 to size - 1; ids that the file omits
 * have kind UNUSED and an empty spelling. */
#ifndef SPRY_TOKENIZER_VOCAB_H
#define SPRY_TOKENIZER_VOCAB_H

#include "base/arena.h"
#include "base/map.h"
#include "tokenizer/tokenizer.h"

enum { SPRY_VOCAB_MAX = 1 << 22 }; /* ids; the largest published vocabularies have about 2^18 */

typedef struct spry_vocab {
    spry_view *names;     /* [size] */
    unsigned char *kinds; /* [size], spry_token_kind */
    float *scores;        /* [size], zero where the file has none */
    size_t size;
    spry_map by_name;
    char *text; /* memory of the spellings */
    size_t text_used, text_size;
} spry_vocab;

/* Allocates room for ids below `size` with `text_size` bytes of spellings. `named` is the number of ids that will be
 * set: a much larger size is refused. */
spry_status spry_vocab_init(spry_vocab *vocab, spry_arena *arena, size_t size, size_t named, size_t text_size,
                            spry_error *error);
void spry_vocab_deinit(spry_vocab *vocab);

/* Sets an id below size. If several ids have one spelling, lookups return the first. False when memory is short. */
bool spry_vocab_set(spry_vocab *vocab, size_t id, spry_view name, spry_token_kind kind);

int32_t spry_vocab_find(const spry_vocab *vocab, spry_view name); /* -1: none */

/* The byte in `<0xNN>`; false when `name` has another form. */
bool spry_vocab_byte(spry_view name, unsigned char *byte);

#endif
