/* Instances of the kernels of gemv.cuh. */
#include "device/cuda/kernels/gemv.cuh"

SPRY_HALF_TYPES(GEMVS)
SPRY_QUANT_FORMS(GEMVS)
