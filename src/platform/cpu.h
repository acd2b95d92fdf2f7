/* Processor features that kernels need. A feature that the operating system has to enable is reported only if it did.
 */
#ifndef SPRY_PLATFORM_CPU_H
#define SPRY_PLATFORM_CPU_H

#include <stdint.h>

typedef enum spry_cpu_feature {
    SPRY_CPU_AVX2 = 1 << 0,     /* with FMA and F16C */
    SPRY_CPU_AVX512 = 1 << 1,   /* F, BW, DQ and VL */
    SPRY_CPU_VNNI = 1 << 2,     /* of AVX-512 */
    SPRY_CPU_AMX = 1 << 3,      /* tiles, products of int8 and of bfloat16 */
    SPRY_CPU_BF16 = 1 << 5,     /* products of bfloat16, of AVX-512 */
    SPRY_CPU_AVXVNNI = 1 << 8,  /* VNNI without AVX-512 */
    SPRY_CPU_VBMI = 1 << 9,     /* permutations of bytes, of AVX-512, with GFNI */
    SPRY_CPU_DOTPROD = 1 << 4,  /* 64-bit ARM: dot products of bytes */
    SPRY_CPU_I8MM = 1 << 6,     /* products of matrices of bytes */
    SPRY_CPU_ARM_BF16 = 1 << 7, /* and of bfloat16 */
} spry_cpu_feature;

/* All features of this machine. Tiles (AMX) are requested of the operating system for the whole process. */
uint32_t spry_cpu_features(void);

#endif
