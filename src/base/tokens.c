/* Arrays of token ids. */
#include "base/tokens.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/compiler.h"

void spry_tokens_deinit(spry_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (spry_tokens){0};
}

bool spry_tokens_push(spry_tokens *tokens, int32_t id)
{
    if (SPRY_UNLIKELY(tokens->count == tokens->capacity)) {
        size_t capacity = tokens->capacity ? tokens->capacity * 2 : 256, bytes;
        if (tokens->capacity > SIZE_MAX / 2 || !spry_checked_mul(&bytes, capacity, sizeof *tokens->ids))
            return false;
        int32_t *ids = realloc(tokens->ids, bytes);
        if (!ids)
            return false;
        tokens->ids = ids;
        tokens->capacity = capacity;
    }
    tokens->ids[tokens->count++] = id;
    return true;
}
