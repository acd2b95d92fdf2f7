/* The table for AVX-512 without VNNI (Skylake-X, the first Xeon Scalable). Integer products have the bits of the
 * AVX-512 table. Scores of Q8_0 keys are computed in floats: without dpbusd a quad of keys takes four instructions per
 * query, and in floats it takes two. */
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_avx512.h"
#include "kernels/x86/x86.h"

#define OP(name) avx512bw_##name

#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_vector.h"
#include "kernels/x86/matmul_avx512.h"
#include "kernels/x86/matmul_floats.h"
#include "kernels/x86/matmul_grids.h"

#include "kernels/simd/simd_integers.h"
#include "kernels/simd/simd_table.h"

const spry_ops spry_ops_avx512bw = {.name = "avx512bw", SPRY_REF_OPS, SIMD_OPS(avx512bw), GRID_OPS};
