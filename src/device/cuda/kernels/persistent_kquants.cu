/* The layers of a decode step as one kernel: weights in blocks of 256, and Q8_0, which files mix with them. */
#include "device/cuda/kernels/persistent.cuh"

PERSISTENT_KERNELS(kquants, STAGE_CASES(type_q4_k, Q4_K) STAGE_CASES(type_q5_k, Q5_K) STAGE_CASES(type_q6_k, Q6_K)
                                STAGE_CASES(type_q8_0, Q8_0))
