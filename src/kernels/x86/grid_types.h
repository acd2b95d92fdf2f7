/* How packed blocks of the IQ2 and IQ3 types differ, for all products with them. Callers pass constant types, so that
 * the compiler evaluates these functions. */
#ifndef SPRY_KERNELS_GRID_TYPES_H
#define SPRY_KERNELS_GRID_TYPES_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "kernels/grids.h"

enum { SPRY_GRID_PARTS = 8, SPRY_GRID_ZERO = 64 /* added to weights to make them unsigned */ };

/* True if codes have four values, otherwise eight. */
SPRY_INLINE bool spry_grid_fours(spry_dtype type)
{
    return type == SPRY_IQ3_XXS || type == SPRY_IQ3_S;
}

/* True if every 16 values have a scale, otherwise every 32. */
SPRY_INLINE bool spry_grid_sixteens(spry_dtype type)
{
    return type == SPRY_IQ2_XS || type == SPRY_IQ2_S;
}

/* True if the signs and the scale of a part are together in a word. */
SPRY_INLINE bool spry_grid_words(spry_dtype type)
{
    return type == SPRY_IQ2_XXS || type == SPRY_IQ3_XXS;
}

SPRY_INLINE int spry_grid_codes(spry_dtype type)
{
    return type == SPRY_IQ2_S ? 1024 : type == SPRY_IQ2_XS || type == SPRY_IQ3_S ? 512 : 256;
}

SPRY_INLINE const uint16_t *spry_grid_of(spry_dtype type)
{
    return type == SPRY_IQ2_XXS   ? spry_grid_iq2_xxs
           : type == SPRY_IQ2_XS  ? spry_grid_iq2_xs
           : type == SPRY_IQ2_S   ? spry_grid_iq2_s
           : type == SPRY_IQ3_XXS ? spry_grid_iq3_xxs
                                  : spry_grid_iq3_s;
}

/* Number of quads (4 bytes per row) between a block's scale and part s. */
SPRY_INLINE int spry_grid_part(spry_dtype type, int s)
{
    int before = type == SPRY_IQ2_XS ? 2 : type == SPRY_IQ2_S ? 4 : type == SPRY_IQ3_S ? 3 : 0;
    return before + s * (spry_grid_fours(type) ? 3 : 2);
}

/* The scale of a part is the block's scale, times this, times (nibble + 1/2). */
SPRY_INLINE float spry_grid_step(spry_dtype type)
{
    return type == SPRY_IQ3_S ? 2 : type == SPRY_IQ3_XXS ? 0.5f : 0.25f;
}

/* The weight plus SPRY_GRID_ZERO for each nibble. The lower bits of a nibble select the level, the top bit is the sign;
 * IQ2 has an unused bit between them. */
SPRY_INLINE void spry_grid_levels(uint8_t levels[16], spry_dtype type)
{
    for (int i = 0; i < 16; i++) {
        int level = type == SPRY_IQ3_XXS ? spry_levels_iq3_xxs[i % 8]
                    : type == SPRY_IQ3_S ? spry_levels_iq3_s[i % 8]
                                         : spry_levels_iq2[i % 4];
        levels[i] = (uint8_t)(i < 8 ? SPRY_GRID_ZERO + level : SPRY_GRID_ZERO - level);
    }
}

#endif
