/* The code tables of the IQ1, IQ2 and IQ3 formats, and levels of other types. An entry holds the magnitudes of 8 (IQ2)
 * or 4 (IQ3) weights as indexes of levels, the first in the lowest bits: 2 bits each for IQ2, 3 for IQ3. For IQ1 it
 * holds 8 weights plus 1, of 2 bits each. */
#ifndef SPRY_KERNELS_GRIDS_H
#define SPRY_KERNELS_GRIDS_H

#include <stdint.h>

/* Where the tables are, if not with the CPU's code: device/cuda/kernels/repack.cu compiles them for GPUs. */
#ifndef SPRY_GRIDS_PLACE
#define SPRY_GRIDS_PLACE
extern const uint16_t spry_grid_iq2_xxs[256], spry_grid_iq2_xs[512], spry_grid_iq2_s[1024];
extern const uint16_t spry_grid_iq3_xxs[256], spry_grid_iq3_s[512];
extern const uint16_t spry_grid_iq1[2048];
#endif

/* Levels of IQ2 and of IQ3_XXS; the levels of IQ3_S are 2 * index + 1. */
static SPRY_GRIDS_PLACE const uint8_t spry_levels_iq2[4] = {8, 25, 43, 0};
static SPRY_GRIDS_PLACE const uint8_t spry_levels_iq3_xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
static SPRY_GRIDS_PLACE const uint8_t spry_levels_iq3_s[8] = {1, 3, 5, 7, 9, 11, 13, 15};

/* Levels of four-bit types whose levels are not evenly spaced. iq4: IQ4_NL and IQ4_XS. e2m1: MXFP4, a float of one
 * sign, two exponent and one mantissa bit; these levels are twice the values. */
static SPRY_GRIDS_PLACE const int8_t spry_levels_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                            1,    13,   25,  38,  53,  69,  89,  113};
static SPRY_GRIDS_PLACE const int8_t spry_levels_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* The bits of MXFP4's scale for the doubled levels, 2^(exponent - 128); the two smallest scales are subnormal. */
static inline uint32_t spry_half_e8m0_bits(uint32_t exponent)
{
    return exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23;
}

/* Signs of 8 weights from 7 bits: a set bit is a minus. The eighth sign makes the number of minus signs even. */
static SPRY_GRIDS_PLACE inline unsigned spry_even_signs(unsigned seven)
{
    unsigned odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    return seven | ((odd ^ odd >> 1) & 1) << 7;
}

#endif
