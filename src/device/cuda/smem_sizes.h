/* Shared memory of attention kernels and GEMMs, for host and device. The kernels assert that these are the sizes of
 * the structs they use. `blocks`: head size / 32. */
#ifndef SPRY_DEVICE_CUDA_SMEM_SIZES_H
#define SPRY_DEVICE_CUDA_SMEM_SIZES_H

#include <stddef.h>

#include "device/cuda/kernel_args.h"

#ifdef __CUDACC__
#define SPRY_SMEM_SIZE static constexpr inline __host__ __device__ size_t
#elif defined(__cplusplus)
#define SPRY_SMEM_SIZE static constexpr inline size_t
#else
#define SPRY_SMEM_SIZE static inline size_t
#endif

/* Strides and counts of arrays, padded against bank conflicts. */
enum {
    SPRY_DECODE_PAD = 8,        /* floats after a query of attention_decode.cuh */
    SPRY_FAST_PAD = 16,         /* words after a head of attention_decode_fast.cu */
    SPRY_PROBS_STRIDE = 20,     /* words of the probabilities of a query */
    SPRY_FAST_SCALES = 32 + 2,  /* scales of pages and of a chunk, four floats each */
    SPRY_PREFILL_STAGES = 5,    /* pairs of pages in the ring of attention_wgmma.cu */
    SPRY_PREFILL_CONSUMERS = 8, /* consumer warps of attention_wgmma.cu */
};

/* ---- gemm -------------------------------------------------------------------------------------------------------- */

/* Static shared memory of a GEMM: the sums of all splits. gemv.cuh and gemm_small.cuh also store sums of squares
 * there. */
SPRY_SMEM_SIZE spry_smem_splitk_sums(size_t groups)
{
    return SPRY_SPLIT_K * groups * SPRY_ACT_ROWS * SPRY_TILE_ROWS * sizeof(float);
}

/* A GEMV stores sums of COLUMNS tiles of one or two matrices in two buffers, and 16 sums of squares. DEPTH: slots
 * in the ring of a warp; AT_ONCE: units in a slot; `lane`: bytes of a lane for 64 inputs. With quantised weights two
 * blocks of 16 warps fit on an SM. */
enum { SPRY_GEMV_COLUMNS = 4 };
#define SPRY_GEMV_DEPTH(lane)   ((lane) <= 16 ? 3 : (lane) <= 32 ? 2 : 3)
#define SPRY_GEMV_AT_ONCE(lane) ((lane) <= 32 ? 2 : 1)

SPRY_SMEM_SIZE spry_smem_gemv_sums(size_t matrices)
{
    return SPRY_SPLIT_K * (2 * matrices * SPRY_GEMV_COLUMNS * SPRY_TILE_ROWS + 1) * sizeof(float);
}

/* Static shared memory of gemm_small.cuh: split_sums for four tiles at a time, and the values of a gate and up
 * product. */
SPRY_SMEM_SIZE spry_smem_small_sums(size_t tiles)
{
    return ((SPRY_SPLIT_K * (tiles < 4 ? tiles : 4) + tiles) * SPRY_TILE_ROWS + SPRY_SPLIT_K) * SPRY_ACT_ROWS *
           sizeof(float);
}

/* Dynamic shared memory that a GEMV needs for each unit (64 inputs) of its row: row_fragment of gemv.cuh. */
SPRY_SMEM_SIZE spry_smem_row_unit(size_t terms)
{
    return terms * 128;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* page_copy of attention_mma.cuh: the keys of a page, and `kept` blocks (32 coordinates) of its values in rows of 128
 * to 512 bytes. */
SPRY_SMEM_SIZE spry_smem_page(size_t blocks, size_t kept)
{
    return blocks * 2048 + 32 * (size_t)(kept <= 2 ? 128 : kept <= 4 ? 256 : 512);
}

/* split_kv_smem of attention_mma.cu: queries and a page of each warp. */
SPRY_SMEM_SIZE spry_smem_split_kv(size_t blocks)
{
    return (size_t)SPRY_HEAD_WARPS(blocks) * (blocks * 1024 + spry_smem_page(blocks, blocks < 4 ? blocks : 4));
}

/* prefill_smem of attention_mma.cu: queries of each warp, two pages, totals of each thread. */
SPRY_SMEM_SIZE spry_smem_prefill_mma(size_t blocks)
{
    return (size_t)SPRY_HEAD_WARPS(blocks) * (blocks * 1024 + SPRY_WARP * 4 * sizeof(float)) +
           2 * spry_smem_page(blocks, blocks);
}

/* prefill_smem of attention_wgmma.cu: the ring of pages with entries and mbarriers; totals and statistics of 256
 * threads; queries of each warp. */
SPRY_SMEM_SIZE spry_smem_prefill_wgmma(size_t blocks)
{
    return 2 * SPRY_PREFILL_STAGES * (blocks * 4096 + sizeof(spry_step_entry) + sizeof(uint64_t)) +
           (blocks * 16 + 1) * SPRY_PREFILL_CONSUMERS * SPRY_WARP * sizeof(float) + SPRY_PREFILL_CONSUMERS * 40;
}

/* decode_smem of attention_decode.cuh: queries, and for each warp rotated queries and probabilities; key and value. */
SPRY_SMEM_SIZE spry_smem_decode(size_t blocks, size_t warps)
{
    return (1 + warps) * SPRY_DECODE_GQA_MAX * (blocks * 32 + SPRY_DECODE_PAD) * sizeof(float) +
           warps * SPRY_DECODE_GQA_MAX * SPRY_PROBS_STRIDE * sizeof(uint32_t) + 2 * blocks * 32 * sizeof(float);
}

/* fast_smem of attention_decode_fast.cu: queries, key and value as halves; scales and probabilities of each warp. */
SPRY_SMEM_SIZE spry_smem_decode_fast(size_t blocks, size_t warps)
{
    return (SPRY_DECODE_GQA_MAX + 1) * (blocks * 16 + SPRY_FAST_PAD) * sizeof(uint32_t) +
           blocks * 16 * sizeof(uint32_t) +
           warps * (SPRY_FAST_SCALES * 4 * sizeof(float) + SPRY_DECODE_GQA_MAX * SPRY_PROBS_STRIDE * sizeof(uint32_t));
}

/* pair_partials of attention_decode.cuh, stored after either of these structs: one partial result per warp, for `group`
 * queries. */
SPRY_SMEM_SIZE spry_smem_partials(size_t blocks, size_t warps, size_t group)
{
    return (group + 1) / 2 * warps * (SPRY_PARTIAL_HEADER + 2 * blocks * 32) * sizeof(float);
}

#endif
