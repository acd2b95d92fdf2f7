/* A growable array of token ids, bounded like a buffer. */
#ifndef SPRY_BASE_TOKENS_H
#define SPRY_BASE_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct spry_tokens {
    int32_t *ids;
    size_t count, capacity;
} spry_tokens;

void spry_tokens_deinit(spry_tokens *tokens);
bool spry_tokens_push(spry_tokens *tokens, int32_t id);

#endif
