/* The layers of a decode step of one row as one kernel: as many blocks as there are multiprocessors, all of them
 * running at once, go through a list of phases, each the body of a kernel that is otherwise launched. In place of the
 * wait for the kernels before, a block waits until all blocks are done with the phase before; what a body loads before
 * that wait is on its way meanwhile. Sums are those of the bodies, so bits are, too.
 *
 * A phase's counter says how many blocks are done with it. The warps of a block that write the results of a product say
 * so themselves; the others are in the next phase by then. What they touch there before the wait, the rooms of weights
 * in shared memory, nothing reads any more: all warps of the block were behind the last barrier of the phase before. A
 * block without work in a phase says at once that it is done. So every counter stands for all phases before: some block
 * had work.
 *
 * The arguments of the next phase are copied to shared memory while this one runs: in memory they would be read by
 * every block, line by line. */
#pragma once

#include "device/cuda/kernels/attention_decode.cuh"
#include "device/cuda/kernels/gemv.cuh"
#include "device/cuda/persistent_args.h"

static_assert(sizeof(spry_stage) % 16 == 0 && sizeof(spry_stage) <= SPRY_STAGE_ARGS_BYTES,
              "phases are copied in pieces");

/* Where a block stands. */
struct stage_state {
    const spry_stage *next; /* whose arguments follow; NULL: this one is the last */
    uint32_t *counter;      /* of this phase */
    uint32_t *heads;
    uint32_t base, number;

    SPRY_METHOD void fetch(unsigned char *memory, const spry_stage *from, uint32_t to) const
    {
        if (from && threadIdx.x < sizeof(spry_stage) / 16)
            cp_async(memory + SPRY_STAGE_ARGS + to * SPRY_STAGE_ARGS_BYTES + threadIdx.x * 16,
                     (const unsigned char *)from + threadIdx.x * 16);
    }

    SPRY_METHOD void fetched() const
    {
        if (threadIdx.x / WARP * WARP < sizeof(spry_stage) / 16)
            cp_async_wait_all();
    }

    /* All blocks run already. */
    SPRY_METHOD void release() const
    {
    }

    /* Until all blocks are done with the phase before. */
    SPRY_METHOD void wait() const
    {
        SPRY_SMEM_DYNAMIC(memory, 16);
        if (number)
            counter_wait(counter - SPRY_STAGE_COUNTER, base, gridDim.x * SPRY_STAGE_BLOCK);
        syncthreads();
        fetch(memory, next, (number + 1) % 2);
    }

    /* Of a product: a block without work has only to fetch what follows. */
    SPRY_METHOD bool skip(bool idle) const
    {
        SPRY_SMEM_DYNAMIC(memory, 16);
        if (!idle)
            return false;
        syncthreads();
        fetch(memory, next, (number + 1) % 2);
        if (threadIdx.x == 0)
            counter_add(counter, SPRY_STAGE_BLOCK);
        fetched();
        syncthreads();
        return true;
    }

    /* The last barrier of the phase, where the arguments of the next are there. */
    SPRY_METHOD void last_wait(bool is_last) const
    {
        if (is_last)
            fetched();
        syncthreads();
    }

    /* So many threads, 64 at most, have written something. */
    SPRY_METHOD void end(uint32_t threads) const
    {
        syncwarp();
        if (threadIdx.x < threads && threadIdx.x % WARP == 0)
            counter_add(counter, threads > WARP ? SPRY_STAGE_BLOCK / 2 : SPRY_STAGE_BLOCK);
    }
};

template <class T, int TILES, gemm_fusion FUSION> SPRY_NOINLINE void stage_gemv(const stage_state state)
{
    SPRY_SMEM_DYNAMIC(memory, 16);
    const spry_stage &stage =
        *(const spry_stage *)(memory + SPRY_STAGE_ARGS + state.number % 2 * SPRY_STAGE_ARGS_BYTES);
    gemv<T, TILES, FUSION>(stage.of.product, (float(*)[TILES * SPRY_TILE_ROWS])(memory + SPRY_STAGE_SPLITS),
                           (float *)(memory + SPRY_STAGE_SQUARES), memory + SPRY_STAGE_SMEM, state);
}

/* A warp takes less of a head than in attention_decode.cu, so that there are registers for 16 warps. */
template <int N> struct stage_attention_config {
    enum { BLOCKS = N, PART = 1, PARTS = N / PART, WARPS = SPRY_STAGE_WARPS };
    enum {
        KEYS = N > 1 ? 2 : 1,
        STEPS = KEYS * 2,
        WORDS = PART % 2 ? 2 : 4,
        LOADS = PART * 2 / WORDS,
        TILES = PART * 2
    };
    enum { STRIDE = BLOCKS * 32 + 8, WEIGHTS_STRIDE = 20 };
};

/* The block that is the last to leave what its pages give folds all of them. */
template <int N> SPRY_DEVICE void stage_attend(const stage_state &state)
{
    typedef stage_attention_config<N> config;
    SPRY_SMEM_DYNAMIC(memory, 16);
    const spry_stage &stage =
        *(const spry_stage *)(memory + SPRY_STAGE_ARGS + state.number % 2 * SPRY_STAGE_ARGS_BYTES);
    const spry_decode_args &d = stage.of.decode;
    uint32_t *word = (uint32_t *)(memory + SPRY_STAGE_WORD);
    decode_smem<config> &smem = *(decode_smem<config> *)(memory + SPRY_STAGE_SMEM);
    uint32_t jobs = stage.ranks * d.attend.kv.n_kv_heads, warp = threadIdx.x / WARP;
    if (state.skip(blockIdx.x >= jobs))
        return;
    SPRY_UNROLL_BY(1)
    for (uint32_t number = blockIdx.x; number < jobs; number += gridDim.x) {
        pair_partials<config> partials;
        decode_job<config> job;
        const decode_work at = {0,
                                number / stage.ranks,
                                number % stage.ranks,
                                stage.ranks,
                                warp / config::PARTS,
                                config::WARPS / config::PARTS,
                                warp % config::PARTS};
        job.start(d, at);
        partials.locate((float *)0, d.attend, 0, at.kv_head, job.row.n_entries, false);
        if (number == blockIdx.x)
            state.wait();
        job.work(smem, partials, d);
        syncthreads();
        if (threadIdx.x == 0)
            *word = counter_fetch_increment(state.heads + at.kv_head * SPRY_STAGE_COUNTER);
        syncthreads();
        if (*word % stage.ranks == stage.ranks - 1)
            job.combine(partials, d.attend, threadIdx.x, SPRY_STAGE_WARPS * WARP);
        state.last_wait(number + gridDim.x >= jobs);
    }
    if (threadIdx.x == 0)
        counter_add(state.counter, SPRY_STAGE_BLOCK);
}

/* The next launch counts from where all counters are then. */
SPRY_DEVICE void end_stages(const spry_persistent_args &a, const stage_state &state)
{
    if (blockIdx.x)
        return;
    counter_wait(state.counter - SPRY_STAGE_COUNTER, state.base, gridDim.x * SPRY_STAGE_BLOCK);
    if (threadIdx.x == 0)
        *a.base = state.base + gridDim.x * SPRY_STAGE_BLOCK;
}

#define STAGE_CASES(type, number)                                                                                      \
    case SPRY_STAGE_##number *SPRY_STAGE_GEMVS + SPRY_STAGE_NORM_2: stage_gemv<type, 2, FUSE_NORM>(state); break;      \
    case SPRY_STAGE_##number *SPRY_STAGE_GEMVS + SPRY_STAGE_NORM_4: stage_gemv<type, 4, FUSE_NORM>(state); break;      \
    case SPRY_STAGE_##number *SPRY_STAGE_GEMVS + SPRY_STAGE_GATE_4: stage_gemv<type, 4, FUSE_GATE>(state); break;      \
    case SPRY_STAGE_##number *SPRY_STAGE_GEMVS + SPRY_STAGE_OUT_1: stage_gemv<type, 1, FUSE_NONE>(state); break;

/* A kernel for some types, with STAGE_CASES of each, and a size of heads. */
#define PERSISTENT_KERNEL(name, blocks, ...)                                                                           \
    SPRY_KERNEL_PDL(spry_persistent_##name##_##blocks, spry_persistent_args, SPRY_STAGE_WARPS *WARP, 1)                \
    {                                                                                                                  \
        SPRY_SMEM_DYNAMIC(memory, 16);                                                                                 \
        stage_state state = {a.stages, a.counters, a.heads, *a.base, 0};                                               \
        state.fetch(memory, a.stages, 0);                                                                              \
        cp_async_wait_all();                                                                                           \
        syncthreads();                                                                                                 \
        SPRY_UNROLL_BY(1)                                                                                              \
        for (; state.number < a.n_stages; state.number++, state.counter += SPRY_STAGE_COUNTER) {                       \
            const unsigned char *args = memory + SPRY_STAGE_ARGS + state.number % 2 * SPRY_STAGE_ARGS_BYTES;           \
            state.next = state.number + 1 < a.n_stages ? a.stages + state.number + 1 : (const spry_stage *)0;          \
            switch (((const spry_stage *)args)->kind) {                                                                \
                __VA_ARGS__                                                                                            \
            case SPRY_STAGE_ATTEND: stage_attend<blocks>(state); break;                                                \
            }                                                                                                          \
        }                                                                                                              \
        end_stages(a, state);                                                                                          \
    }

#define PERSISTENT_KERNELS(name, ...)                                                                                  \
    PERSISTENT_KERNEL(name, 1, __VA_ARGS__)                                                                            \
    PERSISTENT_KERNEL(name, 2, __VA_ARGS__) PERSISTENT_KERNEL(name, 4, __VA_ARGS__)
