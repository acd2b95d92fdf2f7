/* Shared parts of the decoders of blocked types. */
#ifndef SPRY_KERNELS_DECODE_BLOCKS_H
#define SPRY_KERNELS_DECODE_BLOCKS_H

#include <string.h>

#include "kernels/blocks.h"
#include "kernels/grids.h"
#include "kernels/half.h"
#include "kernels/ref/ref.h"

/* Defines spry_ref_decode_TYPE from block_TYPE(out, block), a function for one block of `values`. */
#define SPRY_DECODE_BLOCKS(type, values)                                                                               \
    void spry_ref_decode_##type(float *out, const void *in, size_t n)                                                  \
    {                                                                                                                  \
        const unsigned char *bytes = in;                                                                               \
        for (size_t i = 0; i < n / (values); i++) {                                                                    \
            spry_block_##type block;                                                                                   \
            memcpy(&block, bytes + i * sizeof block, sizeof block);                                                    \
            block_##type(out + i * (values), &block);                                                                  \
        }                                                                                                              \
    }

#endif
