/* The AVX-512 table. */
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/x86/x86.h"

#define OP(name) avx512_##name

#include "kernels/x86/attend_bytes.h"

#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_floats.h"
#include "kernels/simd/simd_vector.h"
#include "kernels/x86/matmul_avx512.h"
#include "kernels/x86/matmul_grids.h"

#include "kernels/simd/simd_integers.h"
#include "kernels/simd/simd_table.h"

const spry_ops spry_ops_avx512 = {.name = "avx512", SPRY_REF_OPS, SIMD_OPS(avx512), GRID_OPS(avx512)};
