/* Parts of tokenizer.json that several loaders read. */
#ifndef SPRY_TOKENIZER_TOKENIZER_JSON_H
#define SPRY_TOKENIZER_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer/tokenizer_impl.h"

/* Parses bounded text; on failure NULL, with line and column in the message. */
json_t *spry_json_parse(spry_view text, spry_error *error);

/* A member; NULL when `object` is not an object, or the member is missing or null. */
const json_t *spry_json_member(const json_t *object, const char *key);

/* The bytes of a string; size 0 for other values. */
spry_view spry_json_view(const json_t *value);

/* A boolean member; `otherwise` when it is missing. */
bool spry_json_flag(const json_t *object, const char *key, bool otherwise);

/* Reads an element of "added_tokens", except its id. */
spry_added_token spry_json_added_token(const json_t *entry);

/* Sets normalizer, pre-tokenizer, post-processor, decoder and the model's flags from a tokenizer.json; its vocabulary
 * and merges are ignored. The tokenizer's vocabulary must be set. */
spry_status spry_json_pipeline(spry_tokenizer *tokenizer, const json_t *root, spry_error *error);

#endif
