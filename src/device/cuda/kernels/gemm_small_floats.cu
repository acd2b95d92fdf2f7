/* Products of weights in floats of 16 bits with rows that are normalised on the way. */
#include "device/cuda/kernels/gemm_small.cuh"

GEMMS_SMALL(f16)
GEMMS_SMALL(bf16)
