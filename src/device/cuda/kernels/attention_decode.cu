/* Attention of rows that are alone in their sequences, as kernels: the blocks of a cluster share the pages of a row and key head. */
#include "device/cuda/kernels/attention_decode.cuh"

/* A grid of (blocks of a cluster, key heads, rows), of at most WARPS warps. Long heads are split over PARTS blocks. */
template <class S> SPRY_DEVICE void attend_decode(const spry_decode_args &d)
{
    SPRY_SHARED_ASKED(memory, 1024);
    decode_room<S> &room = *(decode_room<S> *)memory;
    pair_partials<S> partials;
    decode_job<S> job;
    const decode_place place = {blockIdx.z,          blockIdx.y, blockIdx.x / S::PARTS, gridDim.x / S::PARTS,
                                threadIdx.x / WARP, blockDim.x / WARP, blockIdx.x % S::PARTS};
    job.start(d, place);
    partials.place((float *)(memory + sizeof room), d.attend, blockIdx.z, blockIdx.y, job.row.n_entries, gridDim.x == 1);
    grid_wait();
    job.work(room, partials, d);
    if (gridDim.x > 1)
        cluster_wait();
    else
        block_wait();
    job.fold(partials, d.attend, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL_EARLY(spry_attend_decode_##blocks, spry_decode_args, decode_shape<blocks>::WARPS *WARP, 2)             \
    {                                                                                                                  \
        attend_decode<decode_shape<blocks>>(a);                                                                        \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
