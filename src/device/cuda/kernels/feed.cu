/* Tokens from the draws of one step to the rows of the next. */
#include "device/cuda/feed_args.h"
#include "device/cuda/kernels/primitives.cuh"

SPRY_KERNEL(spry_feed_tokens, spry_feed_args, SPRY_FEED_THREADS)
{
    uint32_t row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= a.n_rows)
        return;
    const spry_draw_result *result = a.results + a.drawn[row];
    uint32_t token = (uint32_t)result->token;
    a.rows[row].token = result->fault == SPRY_DRAW_OK && token < a.n_vocab ? (int32_t)token : 0;
}
