/* The element types of tensors: GGUF ids, block sizes in values and in bytes. Every layer uses this one table. */
#ifndef SPRY_BASE_DTYPE_H
#define SPRY_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/view.h"

/* Values are GGUF's type ids; gaps are types that GGUF has retired or spry does not read. */
typedef enum spry_dtype {
    SPRY_F32 = 0,
    SPRY_F16 = 1,
    SPRY_Q4_0 = 2,
    SPRY_Q4_1 = 3,
    SPRY_Q5_0 = 6,
    SPRY_Q5_1 = 7,
    SPRY_Q8_0 = 8,
    SPRY_Q2_K = 10,
    SPRY_Q3_K = 11,
    SPRY_Q4_K = 12,
    SPRY_Q5_K = 13,
    SPRY_Q6_K = 14,
    SPRY_IQ2_XXS = 16,
    SPRY_IQ2_XS = 17,
    SPRY_IQ3_XXS = 18,
    SPRY_IQ4_NL = 20,
    SPRY_IQ3_S = 21,
    SPRY_IQ2_S = 22,
    SPRY_IQ4_XS = 23,
    SPRY_BF16 = 30,
    SPRY_TQ1_0 = 34,
    SPRY_TQ2_0 = 35,
    SPRY_MXFP4 = 39,
    /* Types of our own, in no GGUF file: parts of weights in safetensors, and what is made of them. */
    SPRY_I32 = 44,     /* a part: words that hold several small numbers */
    SPRY_U8 = 45,      /* a part: bytes */
    SPRY_F8_E4M3 = 46, /* a part: floats of 8 bits, without their scales */
    SPRY_F8 = 47,      /* such floats in blocks with a scale */
    SPRY_DTYPE_COUNT = 48
} spry_dtype;

/* Whether there is arithmetic for type `id`. */
bool spry_dtype_known(uint32_t id);

/* Whether `id` (any number from a GGUF file) is one of its types, and known. */
bool spry_dtype_in_gguf(uint32_t id);

const char *spry_dtype_name(spry_dtype type); /* "Q4_0" */
size_t spry_dtype_block(spry_dtype type);     /* values in a block */
size_t spry_dtype_bytes(spry_dtype type);     /* bytes of a block */

/* Bytes of `count` values; false when `count` is not a multiple of the block size or the result does not fit. */
bool spry_dtype_size(size_t *bytes, spry_dtype type, size_t count);

/* Finds a type by name, upper or lower case. */
bool spry_dtype_find(spry_dtype *type, spry_view name);

/* All names, separated by ", ", for messages. */
const char *spry_dtype_names(void);

#endif
