/* Instances of the kernels of gemv.cuh. */
#include "device/cuda/kernels/gemv.cuh"

GEMVS(f16)
GEMVS(bf16)
GEMVS(q4_0)
GEMVS(q4_1)
GEMVS(q5_0)
GEMVS(q5_1)
GEMVS(q8_0)
GEMVS(q4_k)
GEMVS(q5_k)
GEMVS(q6_k)
GEMVS(mxfp4)
