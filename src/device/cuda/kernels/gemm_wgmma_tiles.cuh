/* Parts of gemm_wgmma.cu: weights of a unit in shared memory and in registers, the tile config, the layout of shared
 * memory, the pipeline state and the tile scheduler. */
#pragma once

#include "device/cuda/kernels/gemm_mma.cuh"

enum {
    WARPGROUP_WARPS = 4,
    WARPGROUP_THREADS = SPRY_WARPGROUP_THREADS,
    WARPGROUP_TILES = SPRY_TILE_GROUP,
    WARPGROUP_OUTPUTS = WARPGROUP_TILES * SPRY_TILE_ROWS
};

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* The weights of a unit in registers: mma operand A of one warp. The next unit is unpacked while this one is
 * multiplied.
 */
template <class T> struct wgmma_operand {
    enum { GROUP_BYTES = SPRY_ACT_TERM_BYTES * T::ACTS };
    weight_fragment<T> steps[4];

    /* acc += product of the unit, or = with `fresh`. `begin` issues the wgmmas, so that the next unit can be loaded
     * before `end` waits for them. */
    template <int GROUPS> SPRY_METHOD void begin(float (*acc)[4], const unsigned char *rows, bool fresh) const
    {
        wgmma_fence();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            SPRY_UNROLL
            for (int j = 0; j < T::ACTS; j++) {
                SPRY_UNROLL
                for (int i = 0; i < T::TERMS && i + j < T::ACTS; i++) {
                    wgmma_bf16<GROUPS>(acc, steps[step].words[i], rows + j * SPRY_ACT_TERM_BYTES + step * 256,
                                       GROUP_BYTES, fresh);
                    fresh = false;
                }
            }
        }
        wgmma_commit();
    }

    template <int GROUPS> SPRY_METHOD void end(float (*acc)[4]) const
    {
        wgmma_wait_all<GROUPS>(acc);
        SPRY_UNROLL
        for (int i = 0; i < 4 * T::TERMS * 4; i++)
            fence_operand(steps[i / (T::TERMS * 4)].words[i / 4 % T::TERMS][i % 4]);
    }
};

/* The weights of a unit in shared memory, BYTES for the tiles of a warpgroup. `source`: where the producer's lane 0
 * finds N tiles of a warpgroup, from slot SLOT on, unit after unit. */
template <class F> struct wgmma_floats : wgmma_operand<F> {
    enum { TILE = F::LANE * 4 * WARP, BYTES = WARPGROUP_TILES * TILE };

    template <int N, int SLOT> struct source {
        const unsigned char *values;

        SPRY_METHOD void start(const spry_tiles &w, uint32_t tile, uint32_t unit)
        {
            values = tile_plane(w, 0, tile_unit(w, tile, unit), TILE);
        }

        SPRY_METHOD void copy(unsigned char *warpgroup, mbarrier *full)
        {
            cp_async_bulk(warpgroup + SLOT * TILE, values, N * TILE, full);
            values += WARPGROUP_TILES * TILE;
        }
    };

    SPRY_METHOD void load(const unsigned char *warpgroup, int slot, int lane)
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            float_bits<F> bits;
            load_words(bits.words, warpgroup + slot * TILE + (step * WARP + lane) * 16, 4);
            split_floats(this->steps[step], bits);
        }
    }
};

template <class Q> struct wgmma_quants : wgmma_operand<Q> {
    enum { VALUES = Q::LANE * WARP, HIGH = Q::HIGH * 4 * WARP, SCALES = Q::SCALE * SPRY_TILE_ROWS };
    enum { SUPER = Q::SUPER ? 4 * SPRY_TILE_ROWS : 0 };
    enum {
        HIGH_AT = WARPGROUP_TILES * VALUES,
        SCALES_AT = HIGH_AT + WARPGROUP_TILES * HIGH,
        SUPER_AT = SCALES_AT + WARPGROUP_TILES * SCALES,
        BYTES = SUPER_AT + WARPGROUP_TILES * SUPER
    };

    template <int N, int SLOT> struct source {
        const unsigned char *values, *high, *scales, *super;
        uint32_t unit;

        SPRY_METHOD void start(const spry_tiles &w, uint32_t tile, uint32_t first)
        {
            uint64_t number = tile_unit(w, tile, first);
            unit = first;
            values = tile_plane(w, 0, number, VALUES);
            high = tile_plane(w, w.high, number, HIGH);
            scales = tile_plane(w, w.scale, number, SCALES);
            super = tile_plane(w, w.super, tile_super<Q>(w, tile, first), SUPER);
        }

        SPRY_METHOD void copy(unsigned char *warpgroup, mbarrier *full)
        {
            cp_async_bulk(warpgroup + SLOT * VALUES, values, N * VALUES, full);
            cp_async_bulk(warpgroup + SCALES_AT + SLOT * SCALES, scales, N * SCALES, full);
            if (HIGH > 0)
                cp_async_bulk(warpgroup + HIGH_AT + SLOT * HIGH, high, N * HIGH, full);
            if (SUPER > 0)
                cp_async_bulk(warpgroup + SUPER_AT + SLOT * SUPER, super, N * SUPER, full);
            values += WARPGROUP_TILES * VALUES;
            high += WARPGROUP_TILES * HIGH;
            scales += WARPGROUP_TILES * SCALES;
            super += ++unit % 4 ? 0 : WARPGROUP_TILES * SUPER; /* the super plane has one entry for four units */
        }
    };

    SPRY_METHOD void load(const unsigned char *warpgroup, int slot, int lane)
    {
        quant_unit<Q> unit;
        load_words(unit.words.words, warpgroup + slot * VALUES + lane * Q::LANE, Q::LANE / 4);
        SPRY_UNROLL
        for (int k = 0; k < Q::HIGH; k++)
            unit.words.high[k] = ((const uint32_t *)(warpgroup + HIGH_AT + slot * HIGH))[lane * Q::HIGH + k];
        SPRY_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            int output = lane / 4 + upper * 8;
            SPRY_UNROLL
            for (int k = 0; k < Q::SCALE / 4; k++)
                unit.raw[upper].scale[k] =
                    ((const uint32_t *)(warpgroup + SCALES_AT + slot * SCALES))[output * (Q::SCALE / 4) + k];
            unit.raw[upper].super = Q::SUPER ? super_word<Q>(warpgroup + SUPER_AT + slot * SUPER, output) : 0;
        }
        if (Q::LEVELS)
            load_words(unit.words.high, warpgroup + SUPER_AT + slot * SUPER + LEVELS_AT, 4);
        const typename quant_unit<Q>::decoded weights = unit.decode();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++)
            weights.fragment(this->steps[step], step);
    }
};

template <class T, bool QUANTS = T::QUANTS> struct wgmma_weights {
    typedef wgmma_quants<T> type;
};
template <class T> struct wgmma_weights<T, false> {
    typedef wgmma_floats<T> type;
};

/* ---- tile config and work tiles ---------------------------------------------------------------------------------- */

/* The tiles and rows that a block computes at a time; work tiles of one column have the same weights. */
struct work_tile {
    uint32_t column, first_group;
};

/* Four tiles of one of the launch's matrices (a part). */
struct tile_source {
    uint32_t part, tile;
    bool valid; /* false: past the last tile; the warpgroup computes the last tiles again and stores nothing */
};

template <class T, int GROUPS_, int WARPGROUPS_, bool GATE_> struct wgmma_config {
    typedef typename wgmma_weights<T>::type weights;
    enum {
        GROUPS = GROUPS_,
        WARPGROUPS = WARPGROUPS_,
        GATE = GATE_,
        THREADS = WARPGROUPS * WARPGROUP_THREADS,
        FORMAT = T::FORMAT
    };
    enum { ROWS = GROUPS * weights::GROUP_BYTES, STAGE = ROWS + WARPGROUPS * weights::BYTES };
    enum {
        STAGES = GROUPS == 8    ? SPRY_WGMMA_STAGES_64
                 : T::ACTS == 2 ? SPRY_WGMMA_STAGES_128_X2
                                : SPRY_WGMMA_STAGES_128
    };
    enum {
        WIDTH = WARPGROUPS * WARPGROUP_OUTPUTS + 4
    };                                         /* floats in a row of sums: the padding avoids bank conflicts */
    enum { HALVES = GATE && WARPGROUPS == 1 }; /* a warpgroup has two tiles of each matrix */

    static SPRY_METHOD uint32_t columns(const spry_gemm_args &a)
    {
        uint32_t n = 0;
        if (GATE)
            return a.parts[0].weight.n_tiles / (WARPGROUPS * 2);
        for (uint32_t part = 0; part < a.n_parts; part++)
            n += (a.parts[part].weight.n_tiles + WARPGROUP_TILES - 1) / WARPGROUP_TILES;
        return (n + WARPGROUPS - 1) / WARPGROUPS;
    }

    /* The tiles of a warpgroup, or of one `half` of it. */
    static SPRY_METHOD tile_source find(const spry_gemm_args &a, uint32_t column, uint32_t warpgroup, uint32_t half)
    {
        if (GATE) {
            tile_source t = {WARPGROUPS == 1 ? half : warpgroup, column * WARPGROUPS * 2, true};
            return t;
        }
        uint32_t number = column * WARPGROUPS + warpgroup, part = 0;
        for (;; part++) {
            uint32_t n = (a.parts[part].weight.n_tiles + WARPGROUP_TILES - 1) / WARPGROUP_TILES;
            if (number < n || part + 1 == a.n_parts) {
                tile_source t = {part, (number < n ? number : n - 1) * WARPGROUP_TILES, number < n};
                return t;
            }
            number -= n;
        }
    }
};

/* Dynamic shared memory of a block: mbarriers, 1 / rms of the rows of two work tiles, the ring of stages, then [rows,
 * WIDTH] sums, once or for several splits. */
template <class S> struct gemm_smem {
    unsigned char *memory;

    SPRY_METHOD mbarrier *full(uint32_t stage) const
    {
        return (mbarrier *)memory + stage;
    }

    SPRY_METHOD mbarrier *empty(uint32_t stage) const
    {
        return (mbarrier *)memory + S::STAGES + stage;
    }

    SPRY_METHOD mbarrier *norms_full(uint32_t item) const
    {
        return (mbarrier *)memory + 2 * S::STAGES + item;
    }

    SPRY_METHOD mbarrier *norms_empty(uint32_t item) const
    {
        return (mbarrier *)memory + 2 * S::STAGES + 2 + item;
    }

    SPRY_METHOD float *norms(uint32_t item) const
    {
        return (float *)(memory + SPRY_WGMMA_BARRIER_BYTES) + item * SPRY_WGMMA_ROWS;
    }

    SPRY_METHOD unsigned char *at(uint32_t stage) const
    {
        return memory + SPRY_WGMMA_HEAD_BYTES + stage * S::STAGE;
    }

    /* The sums of the work tile, or of split `number` that the block leaves to its cluster. */
    SPRY_METHOD float *sums(uint32_t number = 0) const
    {
        return (float *)(memory + SPRY_WGMMA_HEAD_BYTES + S::STAGES * S::STAGE) +
               number * S::GROUPS * SPRY_ACT_ROWS * S::WIDTH;
    }

    SPRY_METHOD void make() const
    {
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < S::STAGES; i++) {
                mbarrier_init(full(i), 1);
                mbarrier_init(empty(i), S::WARPGROUPS * WARPGROUP_WARPS);
            }
            for (uint32_t i = 0; i < 2; i++) {
                mbarrier_init(norms_full(i), 1);
                mbarrier_init(norms_empty(i), S::WARPGROUPS * WARPGROUP_WARPS);
            }
            fence_mbarrier_init();
        }
        syncthreads();
    }
};

/* A position in a ring of N stages, and the parity of its mbarriers' phase. */
template <int N> struct pipeline_state {
    uint32_t stage, phase;

    SPRY_METHOD pipeline_state() : stage(0), phase(0)
    {
    }

    SPRY_METHOD void next()
    {
        stage = stage + 1 < N ? stage + 1 : 0;
        phase ^= stage == 0;
    }
};

/* Split-K in a cluster: the splits that this block sums, and later the groups of rows that it stores. */
struct cluster_split {
    uint32_t rank, blocks, splits, first_split, first_unit, end_unit; /* blocks: 1, 2, 4 or 8 */

    SPRY_METHOD cluster_split(uint32_t n_units)
        : rank(blockIdx.x), blocks(gridDim.x), splits(blocks == 1   ? ACT_SPLITS
                                                      : blocks == 2 ? ACT_SPLITS / 2
                                                      : blocks == 4 ? ACT_SPLITS / 4
                                                                    : ACT_SPLITS / 8),
          first_split(rank * splits), first_unit(split_begin(n_units, first_split)),
          end_unit(split_begin(n_units, first_split + splits))
    {
    }

    /* Keeps the cluster barriers complete for a warp that takes no part in the epilogue. */
    SPRY_METHOD void leave() const
    {
        if (blocks > 1) {
            cluster_sync_smem();
            cluster_sync_smem();
        }
    }
};

/* Gives out the work tiles of a cluster, every gridDim.y-th; work tiles with the same weights follow each other. */
template <class S> struct tile_scheduler {
    uint32_t row_blocks, n, number;

    SPRY_METHOD tile_scheduler(const spry_gemm_args &a)
        : row_blocks((a.n_rows + S::GROUPS * SPRY_ACT_ROWS - 1) / (S::GROUPS * SPRY_ACT_ROWS)),
          n(S::columns(a) * row_blocks), number(blockIdx.y)
    {
    }

    SPRY_METHOD bool next(work_tile *item)
    {
        if (number >= n)
            return false;
        item->column = SPRY_UNLIKELY(row_blocks > 1) ? number / row_blocks : number;
        item->first_group = (number - item->column * row_blocks) * S::GROUPS;
        number += gridDim.y;
        return true;
    }
};
