/* The layers of a decode step as one kernel: weights in floats of 16 bits. */
#include "device/cuda/kernels/persistent.cuh"

PERSISTENT_KERNELS(floats, STAGE_CASES(type_bf16, BF16) STAGE_CASES(type_f16, F16))
