/* The NEON table with integer products by the dot product instructions; it gives the same bits. */
#include "kernels/arm/arm.h"
#include "kernels/ref/ref.h"
#include "kernels/simd/simd_neon.h"

#define OP(name) dotprod_##name

#include "kernels/arm/matmul_neon.h"
#include "kernels/simd/simd_attend.h"
#include "kernels/simd/simd_f8.h"
#include "kernels/simd/simd_floats.h"
#include "kernels/simd/simd_vector.h"

#include "kernels/simd/simd_integers.h"
#include "kernels/simd/simd_table.h"

const spry_ops spry_ops_dotprod = {.name = "dotprod", SPRY_REF_OPS, SIMD_OPS(dotprod)};
