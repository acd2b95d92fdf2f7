/* Persistent kernel: all layers of a decode step of one row in one launch. Grid: one block per SM, all resident
 * (cooperative launch), 16 warps. The blocks go through a list of stages; each stage is the body of a kernel that is
 * otherwise launched alone: a GEMV (gemv.cuh) or attention (attention_decode.cuh). The sums, and so the bits, are
 * the same. Compute capability 9.0 and later; F16, BF16 and quantised weights except MXFP4; heads of 32, 64 and 128.
 *
 * In place of pdl_wait a block waits until all blocks have finished the previous stage; loads that do not depend on
 * it are requested before that. Each stage has a counter of finished blocks. The warps that store the outputs of a
 * GEMV count themselves; the other warps of the block are in the next stage by then and only touch the weight ring,
 * which is no longer read. A block without work in a stage counts itself at once. Each counter therefore covers all
 * earlier stages.
 *
 * Dynamic shared memory: sums of splits | sums of squares | one word | arguments of two stages | smem of the GEMV or
 * of attention. The arguments of the next stage are copied with cp.async during the current one. */
#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/attention_decode.cuh"
#include "device/cuda/kernels/gemv.cuh"

static_assert(sizeof(spry_stage) % 16 == 0 && sizeof(spry_stage) <= SPRY_STAGE_ARGS_BYTES,
              "stages are copied in pieces");

/* Progress of a block through the stages. */
struct stage_state {
    const spry_stage *next; /* the next stage's arguments; NULL after the last */
    uint32_t *counter;      /* of this stage */
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

    /* All blocks are already resident. */
    SPRY_METHOD void release() const
    {
    }

    /* Waits until all blocks have finished the previous stage. */
    SPRY_METHOD void wait() const
    {
        SPRY_SMEM_DYNAMIC(memory, 16);
        if (number)
            counter_wait(counter - SPRY_STAGE_COUNTER, base, gridDim.x * SPRY_STAGE_BLOCK);
        syncthreads();
        fetch(memory, next, (number + 1) % 2);
    }

    /* A block without work in a GEMV only fetches the next arguments. */
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

    /* The last barrier of the stage; the next arguments are in shared memory after it. */
    SPRY_METHOD void last_wait(bool is_last) const
    {
        if (is_last)
            fetched();
        syncthreads();
    }

    /* Called after `threads` threads, at most 64, have stored outputs. */
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

/* A warp has a smaller part of a head than in attention_decode.cu, so that 16 warps have enough registers. */
template <int N> struct stage_attention_config {
    enum { BLOCKS = N, PART = 1, PARTS = N / PART, WARPS = SPRY_STAGE_WARPS };
    enum {
        KEYS = N > 1 ? 2 : 1,
        STEPS = KEYS * 2,
        WORDS = PART % 2 ? 2 : 4,
        LOADS = PART * 2 / WORDS,
        TILES = PART * 2
    };
    enum { STRIDE = BLOCKS * 32 + SPRY_DECODE_PAD, WEIGHTS_STRIDE = SPRY_PROBS_STRIDE };
};

/* The last block that stores its partial results of a head combines all of them. */
template <int N> SPRY_DEVICE void stage_attend(const stage_state &state)
{
    typedef stage_attention_config<N> config;
    SPRY_SMEM_DYNAMIC(memory, 16);
    const spry_stage &stage =
        *(const spry_stage *)(memory + SPRY_STAGE_ARGS + state.number % 2 * SPRY_STAGE_ARGS_BYTES);
    const spry_decode_args &d = stage.of.decode;
    uint32_t *word = (uint32_t *)(memory + SPRY_STAGE_WORD);
    decode_smem<config> &smem = *(decode_smem<config> *)(memory + SPRY_STAGE_SMEM);
    static_assert(sizeof smem == spry_smem_decode(N, SPRY_STAGE_WARPS), "as launched");
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

/* Stores the counters' base for the next launch. */
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

/* One kernel for some weight types, given as STAGE_CASES, and one head size. */
#define PERSISTENT_KERNEL(name, blocks, ...)                                                                           \
    SPRY_KERNEL_PDL(spry_persistent_##name##_##blocks, spry_persistent_args, 1)                                        \
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

/* weights in 16-bit floats */
PERSISTENT_KERNELS(floats, STAGE_CASES(type_bf16, BF16) STAGE_CASES(type_f16, F16))

/* weights in blocks of 32 */
PERSISTENT_KERNELS(blocks, STAGE_CASES(type_q4_0, Q4_0) STAGE_CASES(type_q4_1, Q4_1) STAGE_CASES(type_q5_0, Q5_0)
                               STAGE_CASES(type_q5_1, Q5_1) STAGE_CASES(type_q8_0, Q8_0))

/* weights in blocks of 256, and Q8_0, which files mix with them */
PERSISTENT_KERNELS(kquants, STAGE_CASES(type_q4_k, Q4_K) STAGE_CASES(type_q5_k, Q5_K) STAGE_CASES(type_q6_k, Q6_K)
                                STAGE_CASES(type_q8_0, Q8_0))
