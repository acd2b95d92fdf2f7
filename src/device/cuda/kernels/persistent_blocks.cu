/* The layers of a decode step as one kernel: weights in blocks of 32. */
#include "device/cuda/kernels/persistent.cuh"

PERSISTENT_KERNELS(blocks, STAGE_CASES(type_q4_0, Q4_0) STAGE_CASES(type_q4_1, Q4_1) STAGE_CASES(type_q5_0, Q5_0)
                               STAGE_CASES(type_q5_1, Q5_1) STAGE_CASES(type_q8_0, Q8_0))
