/* The fused decode attention of attention_decode.cuh as kernels. Grid: (blocks of a cluster, KV heads, rows); block:
 * at most WARPS warps. The blocks of a cluster share the pages of a row and KV head. */
#include "device/cuda/kernels/attention_decode.cuh"

/* Grid: (blocks of a cluster, KV heads, rows). Heads longer than 128 are split over PARTS blocks. */
template <class S> SPRY_DEVICE void attend_decode(const spry_decode_args &d)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    decode_smem<S> &smem = *(decode_smem<S> *)memory;
    static_assert(sizeof smem == spry_smem_decode(S::BLOCKS, S::WARPS), "as launched");
    pair_partials<S> partials;
    decode_job<S> job;
    const decode_work work = {blockIdx.z,         blockIdx.y,        blockIdx.x / S::PARTS, gridDim.x / S::PARTS,
                              threadIdx.x / WARP, blockDim.x / WARP, blockIdx.x % S::PARTS};
    job.start(d, work);
    partials.locate((float *)(memory + sizeof smem), d.attend, blockIdx.z, blockIdx.y, job.row.n_entries,
                    gridDim.x == 1);
    pdl_wait();
    job.work(smem, partials, d);
    if (gridDim.x > 1)
        cluster_sync();
    else
        syncthreads();
    job.combine(partials, d.attend, blockIdx.x * blockDim.x + threadIdx.x, gridDim.x * blockDim.x);
}

#define ATTEND(blocks)                                                                                                 \
    SPRY_KERNEL_PDL(spry_attend_decode_##blocks, spry_decode_args, 2)                                                  \
    {                                                                                                                  \
        attend_decode<decode_config<blocks>>(a);                                                                       \
    }
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(8)
