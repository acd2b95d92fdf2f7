/* The element types of tensors: GGUF ids, block sizes in values and in bytes. Every layer uses this one list. */
#ifndef SPRY_BASE_DTYPE_H
#define SPRY_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/view.h"

/* Every type, one line each: X(NAME, name, GGUF's id, values in a block, bytes of a block, bytes of a block per row in
 * packed weights (kernels/packed.h), 0: not packed). All that depends on the type is made of these lists: the enum, the
 * tables of names, sizes, decoders, encoders, packed layouts and products. */
#define SPRY_DTYPES_FLOAT(X)                                                                                           \
    X(F32, f32, 0, 1, 4, 4)                                                                                            \
    X(F16, f16, 1, 1, 2, 2)                                                                                            \
    X(BF16, bf16, 30, 1, 2, 2)
/* Blocks that are also written. */
#define SPRY_DTYPES_WRITTEN(X)                                                                                         \
    X(Q4_0, q4_0, 2, 32, 18, 18)                                                                                       \
    X(Q4_1, q4_1, 3, 32, 20, 20)                                                                                       \
    X(Q5_0, q5_0, 6, 32, 22, 22)                                                                                       \
    X(Q5_1, q5_1, 7, 32, 24, 24)                                                                                       \
    X(Q8_0, q8_0, 8, 32, 34, 34)                                                                                       \
    X(Q4_K, q4_k, 12, 256, 144, 148)                                                                                   \
    X(Q5_K, q5_k, 13, 256, 176, 180)                                                                                   \
    X(Q6_K, q6_k, 14, 256, 210, 210)                                                                                   \
    X(MXFP4, mxfp4, 39, 32, 17, 17)
/* Blocks that are only read. */
#define SPRY_DTYPES_READ(X)                                                                                            \
    X(Q2_K, q2_k, 10, 256, 84, 84)                                                                                     \
    X(Q3_K, q3_k, 11, 256, 110, 114)                                                                                   \
    X(IQ4_NL, iq4_nl, 20, 32, 18, 18)                                                                                  \
    X(IQ4_XS, iq4_xs, 23, 256, 136, 138)                                                                               \
    X(TQ1_0, tq1_0, 34, 256, 54, 66)                                                                                   \
    X(TQ2_0, tq2_0, 35, 256, 66, 66)
/* Blocks of codes (kernels/grids.h), only read. */
#define SPRY_DTYPES_GRID(X)                                                                                            \
    X(IQ2_XXS, iq2_xxs, 16, 256, 66, 66)                                                                               \
    X(IQ2_XS, iq2_xs, 17, 256, 74, 74)                                                                                 \
    X(IQ2_S, iq2_s, 22, 256, 82, 82)                                                                                   \
    X(IQ3_XXS, iq3_xxs, 18, 256, 98, 98)                                                                               \
    X(IQ3_S, iq3_s, 21, 256, 110, 110)
/* Blocks without packed layouts, only read. */
#define SPRY_DTYPES_PLAIN(X)                                                                                           \
    X(IQ1_S, iq1_s, 19, 256, 50, 0)                                                                                    \
    X(IQ1_M, iq1_m, 29, 256, 56, 0)                                                                                    \
    X(NVFP4, nvfp4, 40, 64, 36, 0)                                                                                     \
    X(Q1_0, q1_0, 41, 128, 18, 0)                                                                                      \
    X(Q2_0, q2_0, 42, 64, 18, 0)
/* A type of spry, in no GGUF file: 8-bit floats of safetensors in blocks with a scale. */
#define SPRY_DTYPES_OWN(X) X(F8, f8, 47, 32, 36, 0)
/* Without arithmetic: whole numbers of tables, parts of weights in safetensors: 8-bit numbers without their scales,
 * words that hold several small numbers, bytes, 8-bit floats without their scales. */
#define SPRY_DTYPES_PART(X)                                                                                            \
    X(I64, i64, 27, 1, 8, 0)                                                                                           \
    X(I8, i8, 43, 1, 1, 0)                                                                                             \
    X(I32, i32, 26, 1, 4, 0)                                                                                           \
    X(U8, u8, 45, 1, 1, 0)                                                                                             \
    X(F8_E4M3, f8_e4m3, 46, 1, 1, 0)

#define SPRY_DTYPES_BLOCK(X)                                                                                           \
    SPRY_DTYPES_WRITTEN(X)                                                                                             \
    SPRY_DTYPES_READ(X) /* all for integer products with packed rows                                                   \
                         */
#define SPRY_DTYPES_GGUF(X)  SPRY_DTYPES_FLOAT(X) SPRY_DTYPES_BLOCK(X) SPRY_DTYPES_GRID(X) SPRY_DTYPES_PLAIN(X)
#define SPRY_DTYPES_KNOWN(X) SPRY_DTYPES_GGUF(X) SPRY_DTYPES_OWN(X) /* there is arithmetic for them */

/* Values are GGUF's type ids; gaps are types that GGUF has retired or spry does not read. */
#define SPRY_DTYPE_ID(NAME, name, id, ...) SPRY_##NAME = id,
typedef enum spry_dtype {
    SPRY_DTYPES_KNOWN(SPRY_DTYPE_ID) SPRY_DTYPES_PART(SPRY_DTYPE_ID) SPRY_DTYPE_COUNT = 48
} spry_dtype;
#undef SPRY_DTYPE_ID

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
