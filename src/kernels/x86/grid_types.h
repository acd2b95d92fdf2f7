/* What products with the IQ2 and IQ3 types share: how packed blocks of these types differ. With constant types all of
 * it is constant. */
#ifndef SPRY_KERNELS_GRID_TYPES_H
#define SPRY_KERNELS_GRID_TYPES_H

#include <stdbool.h>

#include "base/compiler.h"
#include "base/dtype.h"
#include "kernels/grids.h"

enum { SPRY_GRID_PARTS = 8, SPRY_GRID_ZERO = 64 /* what is added to weights */ };

/* Codes of four values; else of eight. */
SPRY_INLINE bool spry_grid_fours(spry_dtype type)
{
    return type == SPRY_IQ3_XXS || type == SPRY_IQ3_S;
}

/* A scale for every 16 values; else for 32. */
SPRY_INLINE bool spry_grid_sixteens(spry_dtype type)
{
    return type == SPRY_IQ2_XS || type == SPRY_IQ2_S;
}

/* Signs and scale of a part in a word. */
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

/* Quads between a block's scale and part s. */
SPRY_INLINE int spry_grid_part(spry_dtype type, int s)
{
    int before = type == SPRY_IQ2_XS ? 2 : type == SPRY_IQ2_S ? 4 : type == SPRY_IQ3_S ? 3 : 0;
    return before + s * (spry_grid_fours(type) ? 3 : 2);
}

/* A part's scale is that of the block times step times (nibble + 1/2). */
SPRY_INLINE float spry_grid_step(spry_dtype type)
{
    return type == SPRY_IQ3_S ? 2 : type == SPRY_IQ3_XXS ? 0.5f : 0.25f;
}

/* Weights plus SPRY_GRID_ZERO by nibble: a level in the lower bits, a sign in the topmost; IQ2 has a bit between them
 * that means nothing. */
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
