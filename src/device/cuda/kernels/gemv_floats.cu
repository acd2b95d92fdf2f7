/* Products of weights in floats of 16 bits with one row. */
#include "device/cuda/kernels/gemv.cuh"

GEMVS(f16)
GEMVS(bf16)
