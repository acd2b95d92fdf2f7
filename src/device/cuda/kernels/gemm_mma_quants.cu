/* Products of quantised weights; rows are bytes. */
#include "device/cuda/kernels/gemm_mma.cuh"

GEMMS_MMA(q4_0)
GEMMS_MMA(q4_1)
GEMMS_MMA(q5_0)
GEMMS_MMA(q5_1)
GEMMS_MMA(q8_0)
GEMMS_MMA(q4_k)
GEMMS_MMA(q5_k)
GEMMS_MMA(q6_k)
GEMMS_MMA(mxfp4)
