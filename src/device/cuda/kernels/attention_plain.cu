/* Attention of rows that are alone in their sequences, for what most models have, as kernels. */
#include "device/cuda/kernels/attention_plain.cuh"

/* A grid of (blocks of a cluster, key heads, rows), of at most WARPS warps. */
template <class S> SPRY_DEVICE void attend_plain(const spry_decode_args &d)
{
    SPRY_SHARED_ASKED(memory, 1024);
    plain_room<S> &room = *(plain_room<S> *)memory;
    float *left = (float *)(memory + sizeof room);
    pair_partials<S> partials = {left, S::WARPS};
    plain_job<S> job;
    job.start(d);
    if (!S::SHORT)
        partials.place(left, d.attend, blockIdx.z, blockIdx.y, job.row.n_entries, gridDim.x == 1);
    grid_wait();
    job.work(room, partials, d);
    if (!S::SHORT && gridDim.x > 1)
        cluster_wait();
    else
        block_wait();
    job.fold(room, partials, d.attend);
}

/* Named by heads, the form of results, and pages. */
#define ATTEND(blocks, heads, HEADS, form, FORM, pages, PAGES)                                                         \
    SPRY_KERNEL_EARLY(spry_attend_decode_##heads##_##form##_##pages##_##blocks, spry_decode_args,                      \
                      decode_shape<blocks>::WARPS *WARP, 2)                                                            \
    {                                                                                                                  \
        attend_plain<plain_shape<blocks, HEADS, FORM, PAGES>>(a);                                                      \
    }
#define ATTEND_FORM(blocks, heads, HEADS, form, FORM)                                                                  \
    ATTEND(blocks, heads, HEADS, form, FORM, short, PAGES_SHORT)                                                       \
    ATTEND(blocks, heads, HEADS, form, FORM, single, PAGES_SINGLE)                                                     \
    ATTEND(blocks, heads, HEADS, form, FORM, long, PAGES_LONG)
#define ATTEND_HEADS(blocks, heads, HEADS)                                                                             \
    ATTEND_FORM(blocks, heads, HEADS, bytes, SPRY_ACT_BYTES) ATTEND_FORM(blocks, heads, HEADS, one, SPRY_ACT_ONE)
#define ATTEND_BLOCKS(blocks)                                                                                          \
    ATTEND_HEADS(blocks, norm, HEADS_NORM) ATTEND_HEADS(blocks, raw, HEADS_RAW) ATTEND_HEADS(blocks, pairs, HEADS_PAIRS)
ATTEND_BLOCKS(2)
ATTEND_BLOCKS(4)
