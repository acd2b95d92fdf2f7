/* Attention of rows that are alone in their sequences, for what most models have, as kernels. */
#include "device/cuda/kernels/attention_decode_fast.cuh"

/* A grid of (blocks of a cluster, key heads, rows), of at most WARPS warps. */
template <class S> SPRY_DEVICE void attend_decode_fast(const spry_decode_args &d)
{
    SPRY_SMEM_DYNAMIC(memory, 1024);
    fast_smem<S> &smem = *(fast_smem<S> *)memory;
    float *left = (float *)(memory + sizeof smem);
    pair_partials<S> partials = {left, S::WARPS};
    fast_job<S> job;
    job.start(d);
    if (!S::SHORT)
        partials.locate(left, d.attend, blockIdx.z, blockIdx.y, job.row.n_entries, gridDim.x == 1);
    pdl_wait();
    job.work(smem, partials, d);
    if (!S::SHORT && gridDim.x > 1)
        cluster_sync();
    else
        syncthreads();
    job.merge(smem, partials, d.attend);
}

/* Named by heads, the form of results, and pages. */
#define ATTEND(blocks, heads, HEADS, format, FORMAT, pages, PAGES)                                                     \
    SPRY_KERNEL_PDL(spry_attend_decode_##heads##_##format##_##pages##_##blocks, spry_decode_args,                      \
                    decode_config<blocks>::WARPS *WARP, 2)                                                             \
    {                                                                                                                  \
        attend_decode_fast<fast_config<blocks, HEADS, FORMAT, PAGES>>(a);                                              \
    }
#define ATTEND_FORM(blocks, heads, HEADS, format, FORMAT)                                                              \
    ATTEND(blocks, heads, HEADS, format, FORMAT, short, PAGES_SHORT)                                                   \
    ATTEND(blocks, heads, HEADS, format, FORMAT, single, PAGES_SINGLE)                                                 \
    ATTEND(blocks, heads, HEADS, format, FORMAT, long, PAGES_LONG)
#define ATTEND_HEADS(blocks, heads, HEADS)                                                                             \
    ATTEND_FORM(blocks, heads, HEADS, q8, SPRY_ACT_Q8) ATTEND_FORM(blocks, heads, HEADS, bf16, SPRY_ACT_BF16)
#define ATTEND_BLOCKS(blocks)                                                                                          \
    ATTEND_HEADS(blocks, norm, HEADS_NORM) ATTEND_HEADS(blocks, raw, HEADS_RAW) ATTEND_HEADS(blocks, pairs, HEADS_PAIRS)
ATTEND_BLOCKS(2)
ATTEND_BLOCKS(4)
