/* A synthetic byte-level vocabulary of any size, for models with random weights: the 256 bytes, then words of letters,
 * shortest first, each merged from a shorter one and a letter, then three control tokens at the end. It can encode any
 * text. */
#ifndef SPRY_TOKENIZER_MADE_VOCAB_H
#define SPRY_TOKENIZER_MADE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/gguf_writer.h"

enum { SPRY_MADE_VOCAB_MIN = 256 + 3 };

/* Writes tokens, types, merges and ids of `size` tokens (at least the minimum); `pattern` is GGUF's name of the
 * pre-tokenizer ("qwen2"). The last three are <|endoftext|>, <|im_start|> and <|im_end|>, which ends an answer. False
 * when memory is short; other failures are recorded by the writer and reported by _begin. */
bool spry_made_vocab_write(spry_gguf_writer *writer, size_t size, const char *pattern);

#endif
