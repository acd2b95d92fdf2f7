/* A rolling hash of the tokens of one page: the text behind it, one token further, is hashed in a few operations. Equal
 * hashes are no proof: tokens are compared. */
#ifndef SPRY_KV_KV_CONTENT_H
#define SPRY_KV_KV_CONTENT_H

#include <stdint.h>

#include "kernels/ops.h"

#define SPRY_KV_CONTENT_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* odd; its powers spread over all bits */

static inline uint64_t spry_kv_content(const int32_t *tokens)
{
    uint64_t hash = 0;
    for (int i = 0; i < SPRY_PAGE_TOKENS; i++)
        hash = hash * SPRY_KV_CONTENT_FACTOR + (uint32_t)tokens[i] + 1;
    return hash;
}

/* The hash of tokens[1] to tokens[SPRY_PAGE_TOKENS], from that of tokens[0] to the one before. */
static inline uint64_t spry_kv_content_roll(uint64_t hash, const int32_t *tokens)
{
    uint64_t power = SPRY_KV_CONTENT_FACTOR; /* FACTOR to the power of SPRY_PAGE_TOKENS */
    for (int n = 1; n < SPRY_PAGE_TOKENS; n *= 2)
        power *= power;
    return hash * SPRY_KV_CONTENT_FACTOR + (uint32_t)tokens[SPRY_PAGE_TOKENS] + 1 -
           ((uint64_t)(uint32_t)tokens[0] + 1) * power;
}

#endif
