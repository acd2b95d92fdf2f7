/* The layers of a decode step of one row as one kernel: as many blocks as there are multiprocessors, all of them running at
 * once, go through a list of phases, each the body of a kernel that is otherwise launched. In place of the wait for the kernels
 * before, a block waits until all blocks are done with the phase before; what a body loads before that wait is on its way
 * meanwhile. Sums are those of the bodies, so bits are, too.
 *
 * A phase's counter says how many blocks are done with it. The warps of a block that write the results of a product say so
 * themselves; the others are in the next phase by then. What they touch there before the wait, the rooms of weights in
 * shared memory, nothing reads any more: all warps of the block were behind the last barrier of the phase before. A block
 * without work in a phase says at once that it is done. So every counter stands for all phases before: some block had work.
 *
 * The arguments of the next phase are copied to shared memory while this one runs: in memory they would be read by every block,
 * line by line. */
#pragma once

#include "device/cuda/kernels/attention_decode.cuh"
#include "device/cuda/kernels/products_one.cuh"
#include "device/cuda/phase_args.h"

static_assert(sizeof(spry_phase) % 16 == 0 && sizeof(spry_phase) <= SPRY_PHASE_ARGS_BYTES, "phases are copied in pieces");

/* Where a block stands. */
struct phase_place {
    const spry_phase *next; /* whose arguments follow; NULL: this one is the last */
    uint32_t *counter;      /* of this phase */
    uint32_t *heads;
    uint32_t base, number;

    SPRY_METHOD void fetch(unsigned char *memory, const spry_phase *from, uint32_t to) const
    {
        if (from && threadIdx.x < sizeof(spry_phase) / 16)
            copy_ahead(memory + SPRY_PHASE_ARGS + to * SPRY_PHASE_ARGS_BYTES + threadIdx.x * 16,
                       (const unsigned char *)from + threadIdx.x * 16);
    }

    SPRY_METHOD void fetched() const
    {
        if (threadIdx.x / WARP * WARP < sizeof(spry_phase) / 16)
            copy_wait();
    }

    /* All blocks run already. */
    SPRY_METHOD void release() const
    {
    }

    /* Until all blocks are done with the phase before. */
    SPRY_METHOD void wait() const
    {
        SPRY_SHARED_ASKED(memory, 16);
        if (number)
            counter_wait(counter - SPRY_PHASE_COUNTER, base, gridDim.x * SPRY_PHASE_BLOCK);
        block_wait();
        fetch(memory, next, (number + 1) % 2);
    }

    /* Of a product: a block without work has only to fetch what follows. */
    SPRY_METHOD bool skip(bool idle) const
    {
        SPRY_SHARED_ASKED(memory, 16);
        if (!idle)
            return false;
        block_wait();
        fetch(memory, next, (number + 1) % 2);
        if (threadIdx.x == 0)
            counter_add(counter, SPRY_PHASE_BLOCK);
        fetched();
        block_wait();
        return true;
    }

    /* The last barrier of the phase, where the arguments of the next are there. */
    SPRY_METHOD void last_wait(bool is_last) const
    {
        if (is_last)
            fetched();
        block_wait();
    }

    /* So many threads, 64 at most, have written something. */
    SPRY_METHOD void end(uint32_t threads) const
    {
        warp_wait();
        if (threadIdx.x < threads && threadIdx.x % WARP == 0)
            counter_add(counter, threads > WARP ? SPRY_PHASE_BLOCK / 2 : SPRY_PHASE_BLOCK);
    }
};

template <class T, int TILES, row_kind KIND> SPRY_APART void phase_product(const phase_place place)
{
    SPRY_SHARED_ASKED(memory, 16);
    const spry_phase &phase = *(const spry_phase *)(memory + SPRY_PHASE_ARGS + place.number % 2 * SPRY_PHASE_ARGS_BYTES);
    multiply_one<T, TILES, KIND>(phase.of.product, (float (*)[TILES * SPRY_TILE_ROWS])(memory + SPRY_PHASE_SPLITS),
                                 (float *)(memory + SPRY_PHASE_SQUARES), memory + SPRY_PHASE_ROOMS, place);
}

/* A warp takes less of a head than in attention_decode.cu, so that there are registers for 16 warps. */
template <int N> struct phase_shape {
    enum { BLOCKS = N, PART = 1, PARTS = N / PART, WARPS = SPRY_PHASE_WARPS };
    enum { KEYS = N > 1 ? 2 : 1, STEPS = KEYS * 2, WORDS = PART % 2 ? 2 : 4, LOADS = PART * 2 / WORDS, TILES = PART * 2 };
    enum { STRIDE = BLOCKS * 32 + 8, WEIGHTS_STRIDE = 20 };
};

/* The block that is the last to leave what its pages give folds all of them. */
template <int N> SPRY_DEVICE void phase_attend(const phase_place &place)
{
    typedef phase_shape<N> shape;
    SPRY_SHARED_ASKED(memory, 16);
    const spry_phase &phase = *(const spry_phase *)(memory + SPRY_PHASE_ARGS + place.number % 2 * SPRY_PHASE_ARGS_BYTES);
    const spry_decode_args &d = phase.of.decode;
    uint32_t *word = (uint32_t *)(memory + SPRY_PHASE_WORD);
    decode_room<shape> &room = *(decode_room<shape> *)(memory + SPRY_PHASE_ROOMS);
    uint32_t jobs = phase.ranks * d.attend.kv.n_kv_heads, warp = threadIdx.x / WARP;
    if (place.skip(blockIdx.x >= jobs))
        return;
    SPRY_UNROLL_BY(1)
    for (uint32_t number = blockIdx.x; number < jobs; number += gridDim.x) {
        pair_partials<shape> partials;
        decode_job<shape> job;
        const decode_place at = {0, number / phase.ranks, number % phase.ranks, phase.ranks, warp / shape::PARTS,
                                 shape::WARPS / shape::PARTS, warp % shape::PARTS};
        job.start(d, at);
        partials.place((float *)0, d.attend, 0, at.kv_head, job.row.n_entries, false);
        if (number == blockIdx.x)
            place.wait();
        job.work(room, partials, d);
        block_wait();
        if (threadIdx.x == 0)
            *word = counter_next(place.heads + at.kv_head * SPRY_PHASE_COUNTER);
        block_wait();
        if (*word % phase.ranks == phase.ranks - 1)
            job.fold(partials, d.attend, threadIdx.x, SPRY_PHASE_WARPS * WARP);
        place.last_wait(number + gridDim.x >= jobs);
    }
    if (threadIdx.x == 0)
        counter_add(place.counter, SPRY_PHASE_BLOCK);
}

/* The next launch counts from where all counters are then. */
SPRY_DEVICE void end_phases(const spry_phases_args &a, const phase_place &place)
{
    if (blockIdx.x)
        return;
    counter_wait(place.counter - SPRY_PHASE_COUNTER, place.base, gridDim.x * SPRY_PHASE_BLOCK);
    if (threadIdx.x == 0)
        *a.base = place.base + gridDim.x * SPRY_PHASE_BLOCK;
}

#define PHASES_OF(type, number)                                                                                        \
    case SPRY_PHASE_##number * SPRY_PHASE_PRODUCTS + SPRY_PHASE_NORM_2: phase_product<type, 2, ROWS_NORM>(place); break; \
    case SPRY_PHASE_##number * SPRY_PHASE_PRODUCTS + SPRY_PHASE_NORM_4: phase_product<type, 4, ROWS_NORM>(place); break; \
    case SPRY_PHASE_##number * SPRY_PHASE_PRODUCTS + SPRY_PHASE_GATE_4: phase_product<type, 4, ROWS_GATE>(place); break; \
    case SPRY_PHASE_##number * SPRY_PHASE_PRODUCTS + SPRY_PHASE_OUT_1: phase_product<type, 1, ROWS_OUT>(place); break;

/* A kernel for some types, with PHASES_OF of each, and a size of heads. */
#define PHASES_ONE(name, blocks, ...)                                                                                  \
    SPRY_KERNEL_EARLY(spry_phases_##name##_##blocks, spry_phases_args, SPRY_PHASE_WARPS *WARP, 1)                                               \
    {                                                                                                                  \
        SPRY_SHARED_ASKED(memory, 16);                                                                                 \
        phase_place place = {a.phases, a.counters, a.heads, *a.base, 0};                                               \
        place.fetch(memory, a.phases, 0);                                                                              \
        copy_wait();                                                                                                   \
        block_wait();                                                                                                  \
        SPRY_UNROLL_BY(1)                                                                                              \
        for (; place.number < a.n_phases; place.number++, place.counter += SPRY_PHASE_COUNTER) {                       \
            const unsigned char *args = memory + SPRY_PHASE_ARGS + place.number % 2 * SPRY_PHASE_ARGS_BYTES;           \
            place.next = place.number + 1 < a.n_phases ? a.phases + place.number + 1 : (const spry_phase *)0;          \
            switch (((const spry_phase *)args)->kind) {                                                                \
                __VA_ARGS__                                                                                            \
            case SPRY_PHASE_ATTEND: phase_attend<blocks>(place); break;                                                \
            }                                                                                                          \
        }                                                                                                              \
        end_phases(a, place);                                                                                          \
    }

#define PHASES(name, ...) PHASES_ONE(name, 1, __VA_ARGS__) PHASES_ONE(name, 2, __VA_ARGS__) PHASES_ONE(name, 4, __VA_ARGS__)
