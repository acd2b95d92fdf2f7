/* The AVX-512 table, the table that adds products in bfloat16, and the table that adds AMX to both. */
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/x86/x86.h"

#define OP(name) avx512_##name

#include "kernels/simd/simd_attend.h"

#include "kernels/x86/attend_bytes.h"

#include "kernels/x86/attend_bf16.h"

#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_vector.h"
#include "kernels/x86/matmul_avx512.h"
#include "kernels/x86/matmul_floats.h"

#include "kernels/x86/matmul_bf16.h"

#include "kernels/x86/matmul_grids.h"

#include "kernels/simd/simd_integers.h"

#include "kernels/x86/matmul_amx.h"

#include "kernels/x86/matmul_amx_bf16.h"

#include "kernels/simd/simd_table.h"

#define BYTES_ATTEND .attend = avx512_attend_bytes, .attend_bytes = true,
const spry_ops spry_ops_avx512 = {.name = "avx512", SPRY_REF_OPS, SIMD_OPS(avx512), GRID_OPS BYTES_ATTEND};
#define CODES_ENTRY(NAME, name, ...)                                                                                   \
    .matmul[SPRY_##NAME] = {.integer = true, .group = GROUP, .run = spry_avx512_matmul_##name},
#define CODES_OPS     SPRY_DTYPES_GRID(CODES_ENTRY)
#define NARROW_HALVES .matmul[SPRY_F16].narrow = SPRY_BF16,
#define BF16_ATTEND   .attend = avx512_attend_bf16, .attend_bytes = true, .attend_halves = true,
const spry_ops spry_ops_avx512bf16 = {
    .name = "avx512bf16", SPRY_REF_OPS, SIMD_OPS(avx512), CODES_OPS BF16_ATTEND BF16_OPS NARROW_HALVES};
#ifndef AMX_NAME /* tests define another name when they emulate AMX tiles */
#define AMX_NAME "amx"
#endif
const spry_ops spry_ops_amx = {
    .name = AMX_NAME, SPRY_REF_OPS, SIMD_OPS(avx512), CODES_OPS TILED_OPS BF16_ATTEND TILED_BF16_OPS NARROW_HALVES};
