/* Pieces of tokenizer.json that more than one loader reads. */
#ifndef SPRY_TOKENIZER_TOKENIZER_JSON_H
#define SPRY_TOKENIZER_TOKENIZER_JSON_H

#include <jansson.h>

#include "tokenizer/tokenizer_impl.h"

/* Parses bounded text; NULL with a sentence that gives line and column. */
json_t *spry_json_parse(spry_view text, spry_error *error);

/* A member, NULL when `object` is no object or has none or null. */
const json_t *spry_json_member(const json_t *object, const char *key);

/* The bytes of a string; size 0 for anything else. */
spry_view spry_json_view(const json_t *value);

/* A boolean member; `otherwise` when there is none. */
bool spry_json_flag(const json_t *object, const char *key, bool otherwise);

/* Reads an element of "added_tokens" (id apart). */
spry_added_token spry_json_added_token(const json_t *entry);

/* Fills in normalizer, pre-tokenizer, post-processor, decoder and the model's switches from a tokenizer.json, whose
 * vocabulary and merges are not looked at. The tokenizer's vocabulary is set already. */
spry_status spry_json_pipeline(spry_tokenizer *tokenizer, const json_t *root, spry_error *error);

#endif
