/* Converts text to token ids and back. A tokenizer is immutable once created and may be used by many threads. Special
 * tokens: `encode` converts their spelling to their id only where SPRY_ENCODE_SPECIAL is set and the spelling is
 * outside every literal range. User input is passed as literal, so it never becomes a control token. */
#ifndef SPRY_TOKENIZER_TOKENIZER_H
#define SPRY_TOKENIZER_TOKENIZER_H

#include <stdbool.h>

#include "base/buffer.h"
#include "base/error.h"
#include "base/view.h"
#include "formats/gguf.h"

typedef struct spry_tokenizer spry_tokenizer;

typedef enum spry_token_kind {
    SPRY_TOKEN_NORMAL, /* ordinary text */
    SPRY_TOKEN_UNKNOWN,
    SPRY_TOKEN_CONTROL, /* special: decodes to nothing unless requested */
    SPRY_TOKEN_ADDED,   /* user-defined: matched before the pattern, decodes to its text */
    SPRY_TOKEN_UNUSED,
    SPRY_TOKEN_BYTE, /* a single byte, <0xNN> */
} spry_token_kind;

enum {
    SPRY_ENCODE_SPECIAL = 1, /* spellings of control tokens become those tokens */
    SPRY_ENCODE_BOS_EOS = 2, /* add the tokens of the model's post-processor at beginning and end */
};

/* Creates a tokenizer. `name` (a path) is prepended to messages. The input may be freed afterwards. */
spry_status spry_tokenizer_from_gguf(spry_tokenizer **out, const spry_gguf *gguf, spry_error *error);
/* Opens a Hugging Face folder (tokenizer.json, otherwise tokenizer.model; tokenizer_config.json for begin and end
 * tokens), or one such file. */
spry_status spry_tokenizer_open(spry_tokenizer **out, const char *path, spry_error *error);
void spry_tokenizer_destroy(spry_tokenizer *tokenizer);

/* Appends the ids of `text` (any bytes; invalid UTF-8 is encoded as bytes if the vocabulary has them, otherwise as
 * U+FFFD). `literal` ranges, ascending, never become control tokens. Takes O(n log n) time. */
spry_status spry_tokenizer_encode(const spry_tokenizer *tokenizer, spry_tokens *out, spry_view text,
                                  const spry_text_range *literal, size_t n_literal, unsigned flags, spry_error *error);

/* Converts ids to the whole text that the tokenizer's own decoder gives (without a leading space that the encoder
 * added). Control tokens are omitted unless `special`. An id out of range is an error. */
spry_status spry_tokenizer_decode(const spry_tokenizer *tokenizer, spry_buffer *out, const int32_t *ids, size_t count,
                                  bool special, spry_error *error);

size_t spry_tokenizer_size(const spry_tokenizer *tokenizer);
spry_token_kind spry_tokenizer_kind(const spry_tokenizer *tokenizer, int32_t id);
spry_view spry_tokenizer_bytes(const spry_tokenizer *tokenizer, int32_t id); /* the text that the token has inside a
                                                                              * text */
spry_view spry_tokenizer_name(const spry_tokenizer *tokenizer, int32_t id);  /* spelling of a token in the vocabulary */
int32_t spry_tokenizer_bos(const spry_tokenizer *tokenizer);                 /* -1: none */
int32_t spry_tokenizer_eos(const spry_tokenizer *tokenizer);                 /* -1: none */
/* True if the id ends an answer: eos, and end-of-turn tokens known by their spelling (<|im_end|>, <|eot_id|>,
 * <end_of_turn>, ...). */
bool spry_tokenizer_is_end(const spry_tokenizer *tokenizer, int32_t id);
const char *spry_tokenizer_algorithm(const spry_tokenizer *tokenizer); /* "BPE (qwen2 pattern)", "SentencePiece BPE" */

/* Writes the metadata from which spry_tokenizer_from_gguf creates an equal tokenizer. Other programs expect one token
 * per embedding row (`n_rows`), which may be more than the tokenizer has: the rest become unused tokens. False when
 * memory is short; the writer reports other failures when the file is begun. */
struct spry_gguf_writer;
bool spry_tokenizer_to_gguf(const spry_tokenizer *tokenizer, struct spry_gguf_writer *writer, size_t n_rows);

/* Decodes ids one after the other, for streaming. Never outputs an incomplete UTF-8 character; invalid bytes become
 * U+FFFD. The total output equals that of spry_tokenizer_decode, with ill-formed bytes replaced. */
typedef struct spry_decoder {
    const spry_tokenizer *tokenizer;
    bool special, started;
    char pending[4];
    size_t n_pending;
} spry_decoder;

void spry_decoder_init(spry_decoder *decoder, const spry_tokenizer *tokenizer, bool special);
/* The text continues earlier tokens, so a leading space is kept. */
void spry_decoder_continue(spry_decoder *decoder);
spry_status spry_decoder_push(spry_decoder *decoder, spry_buffer *out, int32_t id, spry_error *error);
void spry_decoder_finish(spry_decoder *decoder, spry_buffer *out);

#endif
