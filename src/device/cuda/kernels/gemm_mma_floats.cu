/* Products of weights in floats of 16 and 32 bits; rows are sums of bf16. */
#include "device/cuda/kernels/gemm_mma.cuh"

GEMMS_SPLITK(f16)
GEMMS_SPLITK(bf16)
GEMM_SPLITK_SMALL(f16)
GEMM_SPLITK_SMALL(bf16)
/* F32 is rare: no faster way for many rows. */
GEMMS_SPLITK(f32)
GEMM_PLAIN(f32)
