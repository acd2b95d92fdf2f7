/* GEMM with mma on tensor cores, compute capability 8.0 and later, all weight types:
 *   out[row][o] = norm[row] * sum over i of weight[o][i] * act[row][i] + bias[o], or += with `add`.
 * Weights are mma operand A (weight_tiles.cuh), activations in the mma layout are operand B (activations.cuh).
 *
 * One order of summation for every number of rows: K is cut into SPRY_SPLIT_K = 16 splits; each split is summed in
 * order, then the splits are summed in order. Columns of an mma do not affect each other. So the bits of a row do not
 * depend on the other rows or on the kernel.
 *
 *   kernel       grid                          block      a block owns
 *   splitk       (tiles / TILES, row groups)   16 warps   TILES tiles x GROUPS * 8 rows; a warp sums splits of one tile
 *   plain        (tiles / 8, rows / 64)        8 warps    8 tiles x 64 rows; a warp sums all splits of one tile; F32
 *   tiles        (tiles / 8, rows / 8)         8 warps    8 tiles x 8 rows; as plain; rows of many experts
 *   wide         (tiles / 4 TILES, rows / 128) 8 warps    4 TILES tiles x 128 rows through shared memory; quants
 *   multistage   see gemm_mma.cu                          16-bit floats
 *
 * splitk prefetches weights into dynamic shared memory, [warp, AHEAD units], before pdl_wait; the splits' sums are
 * static shared memory. wide has two stages of activations in static shared memory, which all threads fill with
 * cp.async. */
#pragma once

#include "device/cuda/kernels/activations.cuh"
#include "device/cuda/kernels/weight_tiles.cuh"
#include "device/cuda/smem_sizes.h"

/* The tile of weights and the GROUPS groups of 8 rows that a warp multiplies. */
struct gemm_tile {
    spry_tiles weight; /* the expert's weights if there are experts */
    uint32_t tile;     /* index in the matrix */
    uint32_t group;    /* first group of rows */
    uint32_t n_rows;
    int lane;
};

/* ---- a unit of weights ------------------------------------------------------------------------------------------ */

/* A lane's weights of a unit. */
template <class Q> struct quant_unit {
    unit_words<Q> words;
    scale_words<Q> raw[2];

    SPRY_METHOD void load(const gemm_tile &p, uint32_t unit)
    {
        load_unit<Q>(words, p.weight, tile_unit(p.weight, p.tile, unit), super_plane<Q>(p.weight, p.tile, unit),
                     p.lane);
        load_scales<Q>(raw[0], p.weight, p.tile, unit, p.lane / 4);
        load_scales<Q>(raw[1], p.weight, p.tile, unit, p.lane / 4 + 8);
    }

    /* With scales as the fragments need them. */
    struct decoded {
        unit_words<Q> words;
        bf16_scales<Q> scales[2];

        SPRY_METHOD void fragment(weight_fragment<Q> &to, int step) const
        {
            SPRY_UNROLL
            for (int pair = 0; pair < 4; pair++) {
                const bf16_scales<Q> &s = scales[pair % 2];
                to.words[0][pair] = fma_bf16x2(quant_pair<Q>(words, step, pair), s.scale[step * 16 / Q::GROUP],
                                               s.min[step * 16 / Q::GROUP]);
            }
        }
    };

    SPRY_METHOD decoded decode() const
    {
        decoded to;
        to.words = words;
        to.scales[0].decode(raw[0]);
        to.scales[1].decode(raw[1]);
        return to;
    }
};

/* A lane's weights of a unit. */
template <class F> struct float_unit {
    typedef float_unit decoded;
    float_bits<F> steps[4];

    SPRY_METHOD void load(const gemm_tile &p, uint32_t unit)
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++)
            load_floats(steps[step], p.weight, tile_unit(p.weight, p.tile, unit), step, p.lane);
    }

    SPRY_METHOD const decoded &decode() const
    {
        return *this;
    }

    SPRY_METHOD void fragment(weight_fragment<F> &to, int step) const
    {
        split_floats(to, steps[step]);
    }
};

/* Selects quant_unit or float_unit for a type. */
template <class T, bool QUANTS> struct unit_of {
    typedef quant_unit<T> weights;
};
template <class T> struct unit_of<T, false> {
    typedef float_unit<T> weights;
};
template <class T> struct unit_weights {
    typedef typename unit_of<T, T::QUANTS>::weights type;
};

/* Multiplies term i of the weights by term j of the activations for i + j < ACTS; smaller products do not matter. */
template <class T> SPRY_DEVICE void add_step(float acc[4], const weight_fragment<T> &w, const uint2 *from, bool valid)
{
    SPRY_UNROLL
    for (int j = 0; j < T::ACTS; j++) {
        uint2 values = {0, 0};
        if (valid)
            values = from[j * WARP];
        SPRY_UNROLL
        for (int i = 0; i < T::TERMS && i + j < T::ACTS; i++)
            mma_bf16(acc, w.words[i], values.x, values.y);
    }
}

/* Adds the product of a unit and GROUPS groups of rows. */
template <class T, int GROUPS>
SPRY_DEVICE void add_unit_rows(float acc[GROUPS][4], const typename unit_weights<T>::type &unit, const gemm_tile &p,
                               const spry_activations &act, uint32_t number)
{
    const typename unit_weights<T>::type::decoded weights = unit.decode();
    SPRY_UNROLL
    for (int step = 0; step < 4; step++) {
        weight_fragment<T> w;
        weights.fragment(w, step);
        SPRY_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            uint32_t group = p.group + (uint32_t)g;
            bool valid = group * SPRY_ACT_ROWS + (uint32_t)(p.lane / 4) < p.n_rows;
            add_step<T>(acc[g], w, mma_terms<T::ACTS>(act, group, number * 4 + (uint32_t)step) + p.lane, valid);
        }
    }
}

SPRY_DEVICE uint32_t split_begin(const gemm_tile &p, uint32_t split)
{
    return split_begin(p.weight.n_units, split);
}

/* Ring of prefetched units in shared memory, filled with cp.async; in registers they would reduce occupancy to one
 * block per SM. A lane copies the values that it needs itself; the other planes of quants are shared by the warp. */
template <class T, int AHEAD, bool QUANTS> struct smem_units {
    typedef quant_unit<T> unit;
    enum { VALUES = T::LANE * WARP, HIGH = T::HIGH * 4 * WARP, SCALES = T::SCALE * SPRY_TILE_ROWS };
    enum {
        SUPER_AT = VALUES + HIGH + SCALES,
        UNIT = SUPER_AT + (T::SUPER ? 4 * SPRY_TILE_ROWS : 0),
        ROOM = AHEAD * UNIT
    };
    unsigned char *smem;
    int lane;

    /* Binds this ring to its memory: ring `number` of the rings that begin at `all`. */
    SPRY_METHOD void bind(unsigned char *all, uint32_t number, int its)
    {
        smem = all + number * ROOM;
        lane = its;
    }

    SPRY_METHOD void load(const gemm_tile &p, uint32_t i, uint32_t number)
    {
        uint64_t at = tile_unit(p.weight, p.tile, number);
        const unsigned char *values = tile_plane(p.weight, 0, at, VALUES) + lane * T::LANE;
        unsigned char *to = smem + i * UNIT;
        uint32_t rest = VALUES + (uint32_t)lane * 16;
        const unsigned char *from = rest < VALUES + HIGH ? tile_plane(p.weight, p.weight.high, at, HIGH) - VALUES
                                    : rest < SUPER_AT ? tile_plane(p.weight, p.weight.scale, at, SCALES) - VALUES - HIGH
                                                      : super_plane<T>(p.weight, p.tile, number) - SUPER_AT;
        syncwarp(); /* other lanes may still read the slot */
        SPRY_UNROLL
        for (int k = 0; k < T::LANE; k += 16)
            cp_async(to + lane * T::LANE + k, values + k);
        if (rest < UNIT)
            cp_async(to + rest, from + rest);
    }

    SPRY_METHOD void wait() const
    {
        cp_async_wait_all();
    }

    /* Reads the unit at `from`, of which other lanes have copied a part. */
    static SPRY_METHOD void read(unit &u, const unsigned char *from, int lane)
    {
        load_words(u.words.words, from + lane * T::LANE, T::LANE / 4);
        SPRY_UNROLL
        for (int k = 0; k < T::HIGH; k++)
            u.words.high[k] = ((const uint32_t *)(from + VALUES))[lane * T::HIGH + k];
        SPRY_UNROLL
        for (int upper = 0; upper < 2; upper++) {
            int output = lane / 4 + upper * 8;
            SPRY_UNROLL
            for (int k = 0; k < T::SCALE / 4; k++)
                u.raw[upper].scale[k] = ((const uint32_t *)(from + VALUES + HIGH))[output * (T::SCALE / 4) + k];
            u.raw[upper].super = T::SUPER ? super_word<T>(from + SUPER_AT, output) : 0;
        }
        if (T::LEVELS)
            load_words(u.words.high, from + SUPER_AT + LEVELS_AT, 4);
    }

    SPRY_METHOD unit get(uint32_t i) const
    {
        unit u;
        syncwarp();
        read(u, smem + i * UNIT, lane);
        return u;
    }
};

template <class T, int AHEAD> struct smem_units<T, AHEAD, false> {
    typedef float_unit<T> unit;
    enum { PIECES = T::LANE / 16, UNIT = 4 * PIECES * WARP * 16, ROOM = AHEAD * UNIT };
    unsigned char *smem;

    /* Binds this ring to its memory: ring `number` of the rings that begin at `all`. */
    SPRY_METHOD void bind(unsigned char *all, uint32_t number, int lane)
    {
        smem = all + number * ROOM + lane * 16;
    }

    SPRY_METHOD void load(const gemm_tile &p, uint32_t i, uint32_t number)
    {
        const unsigned char *from = tile_plane(p.weight, 0, tile_unit(p.weight, p.tile, number), UNIT) + p.lane * 16;
        SPRY_UNROLL
        for (int k = 0; k < 4 * PIECES; k++)
            cp_async(smem + i * UNIT + k * WARP * 16, from + k * WARP * 16);
    }

    SPRY_METHOD void wait() const
    {
        cp_async_wait_all();
    }

    static SPRY_METHOD void read(unit &u, const unsigned char *from, int lane)
    {
        SPRY_UNROLL
        for (int k = 0; k < 4 * PIECES; k++)
            load_words(u.steps[k / PIECES].words + k % PIECES * 4, from + k * WARP * 16 + lane * 16, 4);
    }

    SPRY_METHOD unit get(uint32_t i) const
    {
        unit u;
        read(u, smem + i * UNIT, 0); /* bind has added the lane */
        return u;
    }
};

template <class T, int AHEAD> struct prefetched_units {
    typedef smem_units<T, AHEAD, T::QUANTS> ring_units;
    ring_units units;
    uint32_t begin, end;

    SPRY_METHOD void load(const gemm_tile &p, uint32_t split)
    {
        begin = split_begin(p, split);
        end = split_begin(p, split + 1);
        SPRY_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++)
            if (begin + i < end)
                units.load(p, i, begin + i);
    }

    /* Sums the split. After the first AHEAD units, one unit is loaded into registers while the previous one is
     * multiplied. */
    template <int GROUPS> SPRY_METHOD void add(float acc[GROUPS][4], const gemm_tile &p, const spry_activations &act)
    {
        typename unit_weights<T>::type next = {};
        if (begin + AHEAD < end)
            next.load(p, begin + AHEAD);
        units.wait();
        SPRY_UNROLL
        for (uint32_t i = 0; i < AHEAD; i++)
            if (begin + i < end)
                add_unit_rows<T, GROUPS>(acc, units.get(i), p, act, begin + i);
        for (uint32_t unit = begin + AHEAD; unit < end; unit++) {
            typename unit_weights<T>::type now = next;
            if (unit + 1 < end)
                next.load(p, unit + 1);
            add_unit_rows<T, GROUPS>(acc, now, p, act, unit);
        }
    }
};

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

SPRY_DEVICE uint32_t part_of_tile(const spry_gemm_args &a, uint32_t tile)
{
    uint32_t part = 0;
    while (part + 1 < a.n_parts && tile >= a.parts[part + 1].first_tile)
        part++;
    return part;
}

/* The expert of the rows from `group` on: 0 without experts, negative if the rows are unused. */
SPRY_DEVICE int32_t expert_of_group(const spry_gemm_args &a, uint32_t group)
{
    return a.experts ? a.experts[group * SPRY_ACT_ROWS / a.expert_rows] : 0;
}

SPRY_DEVICE gemm_tile gemm_tile_at(const spry_gemm_args &a, const spry_gemm_part &part, uint32_t tile, uint32_t group,
                                   int32_t expert)
{
    gemm_tile p = {part.weight, tile - part.first_tile, group, a.n_rows, (int)(threadIdx.x % WARP)};
    p.weight.base += (uint64_t)expert * part.weight.matrix_bytes;
    return p;
}

/* Address of element i of a lane's four sums of a group of rows, and the value there with `add`. */
struct output_slot {
    float *out; /* NULL: outside of the matrix */
    float base;
};

SPRY_DEVICE output_slot find_output(const spry_gemm_args &a, const spry_gemm_part &part, const gemm_tile &p,
                                    uint32_t group, int lane, int i)
{
    uint32_t output = p.tile * SPRY_TILE_ROWS + (uint32_t)(lane / 4 + i / 2 * 8);
    uint32_t row = group * SPRY_ACT_ROWS + (uint32_t)(lane % 4 * 2 + i % 2);
    output_slot at = {(float *)0, 0};
    if (output >= part.weight.n_out || row >= a.n_rows)
        return at;
    at.out = part.out + (uint64_t)row * part.stride + output;
    at.base = a.add ? *at.out : 0;
    return at;
}

/* 1 / rms of a row, which is applied to its sums. */
SPRY_DEVICE float row_scale_of(const spry_gemm_args &a, uint32_t row)
{
    return a.act.norms && row < a.n_rows ? a.act.norms[row] : 1;
}

/* Bias of the output of element i, 0 without a bias. */
SPRY_DEVICE float output_bias(const spry_gemm_part &part, const gemm_tile &p, int lane, int i, int32_t expert)
{
    uint32_t output = p.tile * SPRY_TILE_ROWS + (uint32_t)(lane / 4 + i / 2 * 8);
    return part.bias && output < part.weight.n_out ? part.bias[(uint64_t)expert * part.weight.n_out + output] : 0;
}

/* Stores a sum to which 1 / rms has been applied. */
SPRY_DEVICE void store_scaled(const spry_gemm_args &a, const spry_gemm_part &part, const gemm_tile &p, uint32_t group,
                              int lane, int i, float sum, int32_t expert)
{
    output_slot at = find_output(a, part, p, group, lane, i);
    if (!at.out)
        return;
    if (part.bias)
        sum += output_bias(part, p, lane, i, expert);
    *at.out = a.add ? at.base + sum : sum;
}

SPRY_DEVICE void store_sum(const spry_gemm_args &a, const spry_gemm_part &part, const gemm_tile &p, uint32_t group,
                           int lane, int i, float sum, int32_t expert)
{
    float norm = row_scale_of(a, group * SPRY_ACT_ROWS + (uint32_t)(lane % 4 * 2 + i % 2));
    store_scaled(a, part, p, group, lane, i, sum * norm, expert);
}

/* ---- split-K, and the plain kernel ------------------------------------------------------------------------------- */

enum { PLAIN_WARPS = SPRY_PLAIN_THREADS / WARP, PLAIN_GROUPS = 8 };
static_assert(SPRY_SPLITK_THREADS == SPRY_SPLIT_K * WARP, "a warp for each split");

/* A block computes TILES tiles and GROUPS groups of rows. Each warp has a tile and one split per round; there are TILES
 * rounds. Warps of the same split read the same rows at about the same time. Old outputs are loaded as soon as the
 * earlier kernels have finished. */
template <class T, int GROUPS, int TILES, int AHEAD> struct splitk_block {
    enum { SPLITS = SPRY_SPLIT_K / TILES, N = GROUPS * 4 * WARP, ALL = TILES * N };
    enum { EACH = (ALL + SPRY_SPLITK_THREADS - 1) / SPRY_SPLITK_THREADS };
    typedef prefetched_units<T, AHEAD> weights;
    uint32_t part, group;
    int32_t expert;
    output_slot to[EACH];
    float total[EACH];

    /* Index of the thread's sum k among all sums of the block. */
    static SPRY_METHOD int number(int k)
    {
        return (int)threadIdx.x + k * SPRY_SPLITK_THREADS;
    }

    SPRY_METHOD const spry_gemm_part &find(gemm_tile &at, const spry_gemm_args &a, uint32_t tile) const
    {
        uint32_t last = blockIdx.x * TILES + tile, which = last < a.n_tiles ? last : a.n_tiles - 1;
        const spry_gemm_part &its = a.parts[TILES > 1 ? part_of_tile(a, which) : part];
        at = gemm_tile_at(a, its, which, group, expert);
        return its;
    }

    SPRY_METHOD void find_sums(const spry_gemm_args &a)
    {
        SPRY_UNROLL
        for (int k = 0; k < EACH; k++) {
            int i = number(k) % N;
            gemm_tile at;
            to[k].out = (float *)0;
            to[k].base = total[k] = 0;
            if (number(k) >= ALL || blockIdx.x * TILES + (uint32_t)(number(k) / N) >= a.n_tiles)
                continue;
            const spry_gemm_part &its = find(at, a, (uint32_t)(number(k) / N));
            to[k] = find_output(a, its, at, group + (uint32_t)(i / (4 * WARP)), i % WARP, i / WARP % 4);
        }
    }

    /* Adds the splits of a round to the sums, in order. */
    SPRY_METHOD void add_round(const float (*sums)[ALL])
    {
        SPRY_UNROLL
        for (int k = 0; k < EACH; k++) {
            SPRY_UNROLL
            for (int s = 0; s < SPLITS; s++)
                if (number(k) < ALL)
                    total[k] += sums[s][number(k)];
        }
    }

    SPRY_METHOD void write(const spry_gemm_args &a)
    {
        SPRY_UNROLL
        for (int k = 0; k < EACH; k++) {
            int i = number(k) % N;
            gemm_tile at;
            if (!to[k].out)
                continue;
            const spry_gemm_part &its = find(at, a, (uint32_t)(number(k) / N));
            uint32_t row = (group + (uint32_t)(i / (4 * WARP))) * SPRY_ACT_ROWS + (uint32_t)(i % 4 * 2 + i / WARP % 2);
            float sum = total[k] * row_scale_of(a, row);
            sum = its.bias ? sum + output_bias(its, at, i % WARP, i / WARP % 4, expert) : sum;
            *to[k].out = a.add ? to[k].base + sum : sum;
        }
    }
};

/* AHEAD: units of weights that each warp prefetches. */
template <class T, int GROUPS, int TILES, int AHEAD> SPRY_DEVICE void gemm_splitk(const spry_gemm_args &a)
{
    typedef splitk_block<T, GROUPS, TILES, AHEAD> block;
    SPRY_SMEM float sums[block::SPLITS][block::ALL];
    static_assert(sizeof sums == spry_smem_splitk_sums(GROUPS), "as chosen");
    smem_check(sizeof sums);
    uint32_t warp = threadIdx.x / WARP, tile = warp % TILES, slot = warp / TILES;
    block b;
    b.part = part_of_tile(a, blockIdx.x);
    b.group = blockIdx.y * GROUPS;
    if (a.experts) /* the expert, and with it the weights, is known only after earlier kernels */
        pdl_wait();
    b.expert = expert_of_group(a, b.group);
    if (b.expert < 0)
        return;
    gemm_tile p;
    b.find(p, a, tile);
    SPRY_SMEM_DYNAMIC(smem, 1024);
    typename block::weights ahead;
    ahead.units.bind(smem, warp, p.lane);
    ahead.load(p, slot);
    if (!a.experts)
        pdl_wait();
    b.find_sums(a);
    SPRY_UNROLL
    for (uint32_t round = 0; round < TILES; round++) {
        float acc[GROUPS][4] = {};
        ahead.template add<GROUPS>(acc, p, a.act);
        if (round + 1 < TILES)
            ahead.load(p, (round + 1) * block::SPLITS + slot);
        if (round)
            syncthreads();
        SPRY_UNROLL
        for (int i = 0; i < GROUPS * 4; i++)
            sums[slot][tile * block::N + (uint32_t)(i * WARP + p.lane)] = acc[i / 4][i % 4];
        syncthreads();
        b.add_round(sums);
    }
    b.write(a);
}

/* A warp computes one tile and GROUPS groups of rows; the warps of a block share the rows. A unit is loaded while the
 * previous one is multiplied. */
template <class T, int GROUPS> SPRY_DEVICE void gemm_plain(const spry_gemm_args &a)
{
    uint32_t tile = blockIdx.x * PLAIN_WARPS + threadIdx.x / WARP, group = blockIdx.y * GROUPS;
    int32_t expert = expert_of_group(a, group);
    if (expert < 0 || tile >= a.n_tiles)
        return;
    const spry_gemm_part &part = a.parts[part_of_tile(a, tile)];
    gemm_tile p = gemm_tile_at(a, part, tile, group, expert);
    float total[GROUPS][4] = {};
    typename unit_weights<T>::type now, next;
    next.load(p, 0);
    for (uint32_t split = 0; split < SPRY_SPLIT_K; split++) {
        float acc[GROUPS][4] = {};
        uint32_t end = split_begin(p, split + 1);
        for (uint32_t unit = split_begin(p, split); unit < end; unit++) {
            now = next;
            if (unit + 1 < p.weight.n_units)
                next.load(p, unit + 1);
            add_unit_rows<T, GROUPS>(acc, now, p, a.act, unit);
        }
        SPRY_UNROLL
        for (int i = 0; i < GROUPS * 4; i++)
            total[i / 4][i % 4] += acc[i / 4][i % 4];
    }
    SPRY_UNROLL
    for (int i = 0; i < GROUPS * 4; i++)
        store_sum(a, part, p, group + (uint32_t)(i / 4), p.lane, i % 4, total[i / 4][i % 4], expert);
}

/* ---- wide: activations through shared memory --------------------------------------------------------------------- */

/* A block computes 4 * TILES tiles and 128 rows; its 8 warps are 4 along the tiles by 2 along the rows. The activations
 * of the next unit are copied with cp.async while the current unit is multiplied. */
enum { WIDE_WARPS = SPRY_WIDE_THREADS / WARP, WIDE_GROUPS = 8, WIDE_ROWS = 2 * WIDE_GROUPS * SPRY_ACT_ROWS };

/* Starts the copies of a unit of the block's activations; a group's bytes are contiguous. */
SPRY_DEVICE void copy_rows(unsigned char *to, const spry_activations &act, uint32_t first_group, uint32_t n_groups,
                           uint32_t unit)
{
    enum { PIECES = SPRY_ACT_TERM_BYTES / 16 };
    for (uint32_t i = threadIdx.x; i < 2 * WIDE_GROUPS * PIECES; i += WIDE_WARPS * WARP) {
        uint64_t group = first_group + i / PIECES;
        if (group < n_groups)
            cp_async(to + i * 16, act.values + (group * act.n_units + unit) * SPRY_ACT_TERM_BYTES + i % PIECES * 16);
    }
}

/* Multiplies a unit by the rows of a warp. */
template <class T, int TILES>
SPRY_DEVICE void add_wide_unit(float acc[TILES][WIDE_GROUPS][4], const typename unit_weights<T>::type w[TILES],
                               const unsigned char *rows, int lane)
{
    SPRY_UNROLL
    for (int tile = 0; tile < TILES; tile++) {
        const typename unit_weights<T>::type::decoded weights = w[tile].decode();
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            weight_fragment<T> fragment;
            weights.fragment(fragment, step);
            SPRY_UNROLL
            for (int g = 0; g < WIDE_GROUPS; g++)
                add_step<T>(acc[tile][g], fragment,
                            (const uint2 *)(rows + g * SPRY_ACT_TERM_BYTES) + step * WARP + lane, true);
        }
    }
}

/* The sums of a warp: each split is summed alone, then the splits in order. */
template <class T, int TILES>
SPRY_DEVICE void add_wide(float total[TILES][WIDE_GROUPS][4], gemm_tile p[TILES], const spry_gemm_args &a,
                          uint32_t first_group, int row_warp)
{
    SPRY_SMEM uint4 values[2][2 * WIDE_GROUPS * SPRY_ACT_TERM_BYTES / 16];
    uint32_t n_groups = (a.n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS, n = p[0].weight.n_units, split = 0;
    typename unit_weights<T>::type now[TILES], next[TILES];
    float acc[TILES][WIDE_GROUPS][4] = {};
    copy_rows((unsigned char *)values[0], a.act, first_group, n_groups, 0);
    SPRY_UNROLL
    for (int tile = 0; tile < TILES; tile++)
        now[tile].load(p[tile], 0);
    for (uint32_t unit = 0; unit < n; unit++) {
        uint32_t following = unit + 1 < n ? unit + 1 : unit;
        cp_async_wait_all();
        syncthreads();
        if (unit + 1 < n)
            copy_rows((unsigned char *)values[following % 2], a.act, first_group, n_groups, following);
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            next[tile].load(p[tile], following);
        add_wide_unit<T, TILES>(acc, now,
                                (const unsigned char *)values[unit % 2] + row_warp * WIDE_GROUPS * SPRY_ACT_TERM_BYTES,
                                p[0].lane);
        while (split < SPRY_SPLIT_K && split_begin(p[0], split + 1) <= unit + 1) {
            SPRY_UNROLL
            for (int i = 0; i < TILES * WIDE_GROUPS * 4; i++) {
                float *sum = &acc[i / (WIDE_GROUPS * 4)][i / 4 % WIDE_GROUPS][i % 4];
                total[i / (WIDE_GROUPS * 4)][i / 4 % WIDE_GROUPS][i % 4] += *sum;
                *sum = 0;
            }
            split++;
        }
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            now[tile] = next[tile];
    }
}

/* Grid: (tiles / 4 TILES, rows / WIDE_ROWS). */
template <class T, int TILES> SPRY_DEVICE void gemm_wide(const spry_gemm_args &a)
{
    uint32_t first_group = blockIdx.y * 2 * WIDE_GROUPS;
    int warp = (int)threadIdx.x / WARP, row_warp = warp / 4;
    int32_t expert = expert_of_group(a, first_group);
    if (expert < 0)
        return;
    uint32_t first = (blockIdx.x * 4 + (uint32_t)(warp % 4)) * TILES, parts[TILES];
    gemm_tile p[TILES];
    float total[TILES][WIDE_GROUPS][4] = {};
    SPRY_UNROLL
    for (int tile = 0; tile < TILES; tile++) { /* past the last tile: compute the last one again and store nothing */
        uint32_t number = first + (uint32_t)tile < a.n_tiles ? first + (uint32_t)tile : a.n_tiles - 1;
        parts[tile] = part_of_tile(a, number);
        p[tile] =
            gemm_tile_at(a, a.parts[parts[tile]], number, first_group + (uint32_t)(row_warp * WIDE_GROUPS), expert);
    }
    add_wide<T, TILES>(total, p, a, first_group, row_warp);
    SPRY_UNROLL
    for (int i = 0; i < TILES * WIDE_GROUPS * 4; i++) {
        int tile = i / (WIDE_GROUPS * 4), g = i / 4 % WIDE_GROUPS;
        if (first + (uint32_t)tile < a.n_tiles)
            store_sum(a, a.parts[parts[tile]], p[tile], p[tile].group + (uint32_t)g, p[tile].lane, i % 4,
                      total[tile][g][i % 4], expert);
    }
}

#define GEMM_SPLITK(name, groups, tiles)                                                                               \
    SPRY_KERNEL_PDL(spry_gemm_splitk_##name##_##groups##_##tiles, spry_gemm_args, groups > 1 ? 1 : 2)                  \
    {                                                                                                                  \
        const int ahead = groups * tiles > 1 || (int)type_##name::ACTS > 2 ? 1 : SPRY_GEMM_PREFETCH;                   \
        gemm_splitk<type_##name, groups, tiles, ahead>(a);                                                             \
    }
/* A variant that prefetches fewer units, for GPUs with less shared memory per block. */
#define GEMM_SPLITK_SMALL(name, ...)                                                                                   \
    SPRY_KERNEL_PDL(spry_gemm_splitk_##name##_1_1_small, spry_gemm_args, 2)                                            \
    {                                                                                                                  \
        gemm_splitk<type_##name, 1, 1, SPRY_GEMM_PREFETCH_SMALL>(a);                                                   \
    }
#define GEMMS_SPLITK(name, ...)                                                                                        \
    GEMM_SPLITK(name, 1, 1)                                                                                            \
    GEMM_SPLITK(name, 2, 1) GEMM_SPLITK(name, 4, 1) GEMM_SPLITK(name, 2, 2) GEMM_SPLITK(name, 4, 4)
#define GEMM_PLAIN(name)                                                                                               \
    SPRY_KERNEL(spry_gemm_plain_##name, spry_gemm_args)                                                                \
    {                                                                                                                  \
        gemm_plain<type_##name, PLAIN_GROUPS>(a);                                                                      \
    }
#define GEMM_TILES(name)                                                                                               \
    SPRY_KERNEL(spry_gemm_tiles_##name, spry_gemm_args, 3)                                                             \
    {                                                                                                                  \
        gemm_plain<type_##name, 1>(a);                                                                                 \
    }
#define GEMMS_WIDE(name)                                                                                               \
    SPRY_KERNEL(spry_gemm_wide_##name##_1, spry_gemm_args)                                                             \
    {                                                                                                                  \
        gemm_wide<type_##name, 1>(a);                                                                                  \
    }                                                                                                                  \
    SPRY_KERNEL(spry_gemm_wide_##name##_2, spry_gemm_args)                                                             \
    {                                                                                                                  \
        gemm_wide<type_##name, 2>(a);                                                                                  \
    }
#define GEMMS_MMA(name, ...)  GEMMS_SPLITK(name) GEMM_TILES(name) GEMMS_WIDE(name)
#define GEMMS_HALF(name, ...) GEMM_SPLITK_SMALL(name) GEMM_TILES(name)
