/* The vocabulary: what each id is spelled like, of what kind it is, and its score where the file has one. Ids run from
 * 0 to size - 1; ids the file leaves out are of kind UNUSED, with an empty spelling. */
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
    char *text; /* where the spellings lie */
    size_t text_used, text_size;
} spry_vocab;

/* Room for ids below `size` whose spellings take `text_size` bytes in all. `named` is how many ids will be set: a size
 * far beyond it is refused as nonsense. */
spry_status spry_vocab_init(spry_vocab *vocab, spry_arena *arena, size_t size, size_t named, size_t text_size,
                            spry_error *error);
void spry_vocab_deinit(spry_vocab *vocab);

/* Spells an id below size. The first id of a spelling is the one that is found by it. False when memory is short. */
bool spry_vocab_set(spry_vocab *vocab, size_t id, spry_view name, spry_token_kind kind);

int32_t spry_vocab_find(const spry_vocab *vocab, spry_view name); /* -1: none */

/* The byte that `<0xNN>` spells; false when `name` is not of that form. */
bool spry_vocab_byte(spry_view name, unsigned char *byte);

#endif
