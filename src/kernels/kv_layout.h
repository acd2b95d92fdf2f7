/* The layout of keys and values in a page, for one layer and one head.
 *
 * Values: token after token, each [head_dim] in the page's type.
 * Keys: transposed, so that one vector holds one coordinate of many tokens and scores need no horizontal sums:
 *   floats:   [head_dim, SPRY_PAGE_TOKENS]
 *   Q8_0:     int8 [head_dim, SPRY_PAGE_TOKENS], then f16 scales [head_dim / 32, SPRY_PAGE_TOKENS]
 * Both take SPRY_PAGE_TOKENS times the size of [head_dim] in the type. */
#ifndef SPRY_KERNELS_KV_LAYOUT_H
#define SPRY_KERNELS_KV_LAYOUT_H

#include "kernels/ops.h"

/* Writes one token's key into its head's block. */
void spry_kv_store_key(const spry_ops *ops, spry_dtype type, unsigned char *head, size_t token, const float *key,
                       size_t head_dim);

/* Reads one token's key back as floats. */
void spry_kv_load_key(spry_dtype type, float *key, const unsigned char *head, size_t token, size_t head_dim);

#endif
