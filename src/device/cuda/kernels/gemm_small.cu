/* Instances of the kernels of gemm_small.cuh. */
#include "device/cuda/kernels/gemm_small.cuh"

GEMMS_SMALL(f16)
GEMMS_SMALL(bf16)
GEMMS_SMALL(q4_0)
GEMMS_SMALL(q4_1)
GEMMS_SMALL(q5_0)
GEMMS_SMALL(q5_1)
GEMMS_SMALL(q8_0)
GEMMS_SMALL(q4_k)
GEMMS_SMALL(q5_k)
GEMMS_SMALL(q6_k)
GEMMS_SMALL(mxfp4)
