/* The layout of keys and values in a page, for one layer and one head.
 *
 * Values: token after token, each [head_dim] in the page's type.
 * Keys: transposed, so that one vector holds one coordinate of many tokens and scores need no horizontal sums:
 *   floats:   [head_dim, SPRY_PAGE_TOKENS]
 *   Q8_0:     int8 [head_dim, SPRY_PAGE_TOKENS], then f16 scales [head_dim / 32, SPRY_PAGE_TOKENS]
 *   Q4_0:     pairs of nibbles [head_dim / 2, SPRY_PAGE_TOKENS], of coordinates i and i + 16 of 32, then scales as Q8_0
 * With Q4_0, keys and values are rotated before they are stored, so that no coordinate is much larger than the others;
 * kernels rotate queries and results.
 * All take SPRY_PAGE_TOKENS times the size of [head_dim] in the type. */
#ifndef SPRY_KERNELS_KV_LAYOUT_H
#define SPRY_KERNELS_KV_LAYOUT_H

#include "kernels/ops.h"

/* Writes one token's key into its head's block. */
void spry_kv_store_key(const spry_ops *ops, spry_dtype type, unsigned char *head, size_t token, const float *key,
                       size_t head_dim);

/* Reads one token's key back as floats. */
void spry_kv_load_key(spry_dtype type, float *key, const unsigned char *head, size_t token, size_t head_dim);

/* Rotates a vector by a Hadamard matrix, scaled so that lengths stay: for blocks of the largest power of two that
 * divides n. Twice gives the vector again. */
void spry_kv_rotate(float *x, size_t n);

/* Rotates a vector and encodes it as Q4_0. Rounding with the least error makes vectors shorter; scales make up for that,
 * so that products with other vectors stay as large as they were. */
void spry_kv_encode_rotated(const spry_ops *ops, void *out, float *x, size_t n);

/* Writes and reads one token's value. */
void spry_kv_store_value(const spry_ops *ops, spry_dtype type, unsigned char *out, const float *value, size_t head_dim);
void spry_kv_load_value(spry_dtype type, float *value, const unsigned char *in, size_t head_dim);

#endif
