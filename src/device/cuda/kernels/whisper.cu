/* What Whisper models have besides the block of language models: learned positions, which the encoder adds behind the
 * activation of its second convolution. */
#include "device/cuda/kernels/activations.cuh"
#include "device/cuda/whisper_args.h"

SPRY_KERNEL(spry_positions, spry_positions_args, ROW_THREADS)
{
    float *x = a.x + (uint64_t)blockIdx.x * a.n;
    uint32_t position = a.rows ? a.rows[blockIdx.x].position : blockIdx.x;
    const float *add = a.positions + (uint64_t)position * a.n;
    for (uint32_t i = threadIdx.x; i < a.n; i += blockDim.x)
        x[i] = (a.activated ? gated(x[i], 1, a.gate) : x[i]) + add[i];
}
