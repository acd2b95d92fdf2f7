/* Tokenizers as GGUF metadata: the keys, and synthetic vocabularies for models with random weights. */
#ifndef SPRY_TOKENIZER_TOKENIZER_GGUF_H
#define SPRY_TOKENIZER_TOKENIZER_GGUF_H

#include <stdbool.h>
#include <stddef.h>

#include "formats/gguf_writer.h"

#define SPRY_KEY_MODEL                                                                                                 \
    "tokenizer.ggml.model" /* "gpt2": byte-level BPE, "llama": SentencePiece                                           \
                            * BPE, "bert": WordPiece, "t5": Unigram */
#define SPRY_KEY_PATTERN   "tokenizer.ggml.pre"
#define SPRY_KEY_TOKENS    "tokenizer.ggml.tokens"
#define SPRY_KEY_SCORES    "tokenizer.ggml.scores"
#define SPRY_KEY_TYPES     "tokenizer.ggml.token_type"
#define SPRY_KEY_MERGES    "tokenizer.ggml.merges"
#define SPRY_KEY_BOS       "tokenizer.ggml.bos_token_id"
#define SPRY_KEY_EOS       "tokenizer.ggml.eos_token_id"
#define SPRY_KEY_EOT       "tokenizer.ggml.eot_token_id"
#define SPRY_KEY_UNKNOWN   "tokenizer.ggml.unknown_token_id"
#define SPRY_KEY_PADDING   "tokenizer.ggml.padding_token_id"
#define SPRY_KEY_CLS       "tokenizer.ggml.cls_token_id"
#define SPRY_KEY_SEPARATOR "tokenizer.ggml.seperator_token_id" /* GGUF spells it this way */
#define SPRY_KEY_CHARSMAP  "tokenizer.ggml.precompiled_charsmap"
#define SPRY_KEY_ADD_BOS   "tokenizer.ggml.add_bos_token"
#define SPRY_KEY_ADD_EOS   "tokenizer.ggml.add_eos_token"
#define SPRY_KEY_ADD_SPACE "tokenizer.ggml.add_space_prefix"
#define SPRY_KEY_SQUEEZE   "tokenizer.ggml.remove_extra_whitespaces"
#define SPRY_KEY_SETTINGS  "spry.tokenizer.settings" /* tokenizer.json without its vocabulary */
#define SPRY_KEY_ESCAPE    "spry.tokenizer.escape_whitespaces"

/* Values of SPRY_KEY_TYPES, from 1. */
enum { SPRY_GGUF_NORMAL = 1, SPRY_GGUF_UNKNOWN, SPRY_GGUF_CONTROL, SPRY_GGUF_USER, SPRY_GGUF_UNUSED, SPRY_GGUF_BYTE };

/* A synthetic byte-level vocabulary of any size, for models with random weights: the 256 bytes, then words of letters,
 * shortest first, each merged from a shorter one and a letter, then three control tokens at the end. It can encode any
 * text. */

enum { SPRY_MADE_VOCAB_MIN = 256 + 3 };

/* Writes tokens, types, merges and ids of `size` tokens (at least the minimum); `pattern` is GGUF's name of the
 * pre-tokenizer ("qwen2"). The last three are <|endoftext|>, <|im_start|> and <|im_end|>, which ends an answer. False
 * when memory is short; other failures are recorded by the writer and reported by _begin. */
bool spry_made_vocab_write(spry_gguf_writer *writer, size_t size, const char *pattern);

#endif
