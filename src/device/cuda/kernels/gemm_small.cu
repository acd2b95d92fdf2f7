/* Instances of the kernels of gemm_small.cuh. */
#include "device/cuda/kernels/gemm_small.cuh"

SPRY_HALF_TYPES(GEMMS_SMALL)
SPRY_QUANT_FORMS(GEMMS_SMALL)
