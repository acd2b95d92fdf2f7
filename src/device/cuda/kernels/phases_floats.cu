/* The layers of a decode step as one kernel: weights in floats of 16 bits. */
#include "device/cuda/kernels/phases.cuh"

PHASES(floats, PHASES_OF(type_bf16, BF16) PHASES_OF(type_f16, F16))
