/* A byte-level vocabulary of any size, for models that have none: the 256 bytes, then words of letters, shortest first,
 * each merged from a shorter one and a letter, then three control tokens at the end. It reads any text and tells
 * nothing about language; it is there so that files with random weights are whole. */
#ifndef SPRY_TOKENIZER_MADE_VOCAB_H
#define SPRY_TOKENIZER_MADE_VOCAB_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/gguf_writer.h"

enum { SPRY_MADE_VOCAB_MIN = 256 + 3 };

/* Writes tokens, types, merges and ids of `size` tokens (at least the minimum); `pattern` is what GGUF calls the way
 * text is cut ("qwen2"). The last three are <|endoftext|>, <|im_start|> and <|im_end|>, which ends an answer. False
 * when memory is short; other failures are the writer's, kept until it begins. */
bool spry_made_vocab_write(spry_gguf_writer *writer, size_t size, const char *pattern);

#endif
