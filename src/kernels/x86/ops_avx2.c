/* The AVX2 table. */
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/x86/x86.h"

#define OP(name) avx2_##name

#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_floats.h"
#include "kernels/simd/simd_vector.h"
#include "kernels/x86/matmul_avx2.h"
#include "kernels/x86/matmul_grids.h"

#include "kernels/simd/simd_integers.h"
#include "kernels/simd/simd_table.h"

const spry_ops spry_ops_avx2 = {.name = "avx2", SPRY_REF_OPS, SIMD_OPS(avx2), GRID_OPS};
