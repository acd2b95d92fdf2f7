/* SentencePiece BPE has no list of merges: two adjacent symbols merge when together they spell a token, the token with
 * the highest score first. This file builds an equivalent table of merges. */
#ifndef SPRY_TOKENIZER_SPM_H
#define SPRY_TOKENIZER_SPM_H

#include "tokenizer/symbols.h"

/* Every split of a NORMAL token into two symbols is a merge; its rank is the rank of the token's score, so tokens of
 * equal score have equal rank. */
spry_status spry_spm_merges(spry_merges *merges, spry_arena *arena, const spry_vocab *vocab,
                            const spry_symbols *symbols, spry_error *error);

#endif
