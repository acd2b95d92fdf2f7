/* The dotprod table with integer products of many rows by i8mm, and the table that adds products in bfloat16. */
#include "kernels/arm/arm.h"
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_neon.h"

#define OP(name) i8mm_##name

#include "kernels/arm/matmul_neon.h"
#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_floats.h"
#include "kernels/simd/simd_vector.h"

#include "kernels/simd/simd_integers.h"

#include "kernels/arm/matmul_i8mm.h"

#include "kernels/arm/matmul_bfmmla.h"

#include "kernels/simd/simd_table.h"

const spry_ops spry_ops_i8mm = {.name = "i8mm", SPRY_REF_OPS, SIMD_OPS(i8mm), TILED_OPS};
const spry_ops spry_ops_bf16 = {.name = "bf16", SPRY_REF_OPS, SIMD_OPS(i8mm), TILED_OPS BF16_OPS};
