/* The tables for x86-64. AVX2 requires FMA and F16C; AVX-VNNI adds one instruction to it, and gives the same bits;
 * avx512bw requires AVX-512's F, BW, DQ and VL, avx512 VNNI, too, which adds scores of Q8_0 keys in integers; their
 * integer products give the same bits. AVX512_BF16 adds attention over
 * F16 pages by products of bfloat16, and products of BF16 weights with activations that are rounded to it; it requires
 * VBMI and GFNI, too, with which IQ2 and IQ3 are multiplied, with the same bits. AMX adds
 * integer products of many rows by tiles, which give the same bits, and all BF16 products by tiles, which do not. */
#ifndef SPRY_KERNELS_X86_H
#define SPRY_KERNELS_X86_H

#include "kernels/ops.h"

extern const spry_ops spry_ops_avx2, spry_ops_avxvnni, spry_ops_avx512bw, spry_ops_avx512, spry_ops_avx512bf16,
    spry_ops_amx;

/* Products of the IQ2 and IQ3 types with AVX-512's VNNI and VBMI, and GFNI (matmul_codes.c). */
#define SPRY_CODES_DECLARE(NAME, name, ...)                                                                            \
    void spry_avx512_matmul_##name(const spry_matmul *m, size_t out_begin, size_t out_end);
SPRY_DTYPES_GRID(SPRY_CODES_DECLARE)
#undef SPRY_CODES_DECLARE

#endif
