/* The AVX2 table with integer products by AVX-VNNI, for processors that have it and lack AVX-512. Results have the same
 * bits as AVX2's. */
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_avx2.h"
#include "kernels/x86/x86.h"

#define OP(name) avxvnni_##name
#ifndef DOT_FOUR /* tests without AVX-VNNI define it as the AVX-512 form of the instruction */
#define DOT_FOUR(sum, weights, values) _mm256_dpbusd_avx_epi32(sum, weights, values)
#define AVXVNNI_NAME                   "avxvnni"
#define AVXVNNI_TABLE                  spry_ops_avxvnni
#endif

#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_floats.h"
#include "kernels/simd/simd_vector.h"
#include "kernels/x86/matmul_avx2.h"
#include "kernels/x86/matmul_grids.h"

#include "kernels/simd/simd_integers.h"
#include "kernels/simd/simd_table.h"

const spry_ops AVXVNNI_TABLE = {.name = AVXVNNI_NAME, SPRY_REF_OPS, SIMD_OPS(avxvnni), GRID_OPS};
