/* Matrix products of placed weights (tiles.cuh) and encoded rows (acts.cuh) with matrix instructions.
 *
 * One sum for every number of rows: the inputs are cut into 16 splits, each added up in order, then the splits in order.
 * For few rows the warps of a block take a split each; for many rows a warp goes through all of them. Columns of a matrix
 * instruction do not touch each other, so a row's bits do not depend on what other rows there are. */
#pragma once

#include "device/cuda/kernels/acts.cuh"
#include "device/cuda/kernels/tiles.cuh"

/* What a warp works on: one tile of weights and GROUPS groups of 8 rows. */
struct product_place {
    spry_tiles weight; /* of the expert, where there are experts */
    uint32_t tile;     /* in the matrix */
    uint32_t group;    /* first group of rows */
    uint32_t n_rows;
    int lane;
};

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* As integers these bits are a number, as a float 1.5 * 2^23: integers added to it are added to that float. */
#define ROUND_BITS 0x4b400000
#define ROUND_FLOAT 12582912.0f

/* Four quants less 32 as signed bytes. */
SPRY_DEVICE uint32_t centre_32(uint32_t word)
{
    return ((word | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
}

/* acc += scale * quants * acts for 32 inputs, or for each 16 of them. */
template <class Q>
SPRY_DEVICE void add_block(float acc[4], const uint32_t q[4], const unit_scales<Q> s[2], int block, uint2 act,
                           const float2 col[2])
{
    if (Q::GROUP == 32) {
        int32_t dots[4] = {ROUND_BITS, ROUND_BITS, ROUND_BITS, ROUND_BITS};
        multiply_bytes(dots, q, act.x, act.y);
        SPRY_UNROLL
        for (int i = 0; i < 4; i++) {
            const float2 &c = col[i % 2];
            float dot = float_of_bits((uint32_t)dots[i]) - fmaf((float)Q::ZERO, c.y, ROUND_FLOAT);
            acc[i] = fmaf(dot, s[i / 2].scale[block] * c.x, acc[i]);
            if (Q::MIN)
                acc[i] = fmaf(s[i / 2].min[block], c.x * c.y, acc[i]);
        }
        return;
    }
    SPRY_UNROLL
    for (int half = 0; half < 2; half++) {
        int32_t dots[4] = {ROUND_BITS, ROUND_BITS, ROUND_BITS, ROUND_BITS};
        multiply_bytes_16(dots, centre_32(q[half * 2]), centre_32(q[half * 2 + 1]), half ? act.y : act.x);
        SPRY_UNROLL
        for (int i = 0; i < 4; i++) {
            float dot = float_of_bits((uint32_t)dots[i]) - ROUND_FLOAT;
            acc[i] = fmaf(dot, s[i / 2].scale[(block * 2 + half) % (64 / Q::GROUP)] * col[i % 2].x, acc[i]);
        }
    }
}

/* A lane's weights of a unit. */
template <class Q> struct unit_quants {
    unit_words<Q> words;
    scale_words<Q> raw[2];

    SPRY_METHOD void load(const product_place &p, uint32_t unit)
    {
        load_unit<Q>(words, p.weight, tile_unit(p.weight, p.tile, unit), p.lane);
        load_scales<Q>(raw[0], p.weight, p.tile, unit, p.lane / 4);
        load_scales<Q>(raw[1], p.weight, p.tile, unit, p.lane / 4 + 8);
    }

    template <int GROUPS>
    SPRY_METHOD void add(float acc[GROUPS][4], const product_place &p, const spry_acts &act, uint32_t unit) const
    {
        unit_scales<Q> scales[2];
        decode_scales<Q>(scales[0], raw[0]);
        decode_scales<Q>(scales[1], raw[1]);
        SPRY_UNROLL
        for (int block = 0; block < 2; block++) {
            const uint32_t q[4] = {quant_word<Q>(words, block * 4), quant_word<Q>(words, block * 4 + 2),
                                   quant_word<Q>(words, block * 4 + 1), quant_word<Q>(words, block * 4 + 3)};
            SPRY_UNROLL
            for (int g = 0; g < GROUPS; g++) {
                uint32_t group = p.group + (uint32_t)g, number = unit * 2 + (uint32_t)block;
                uint2 values = {0, 0};
                float2 columns[2] = {{0, 0}, {0, 0}};
                const float2 *from = act_scales(act, group, number) + p.lane % 4 * 2;
                uint32_t column = group * SPRY_ACT_ROWS + (uint32_t)(p.lane % 4) * 2;
                if (group * SPRY_ACT_ROWS + (uint32_t)(p.lane / 4) < p.n_rows)
                    values = act_bytes(act, group, number)[p.lane];
                if (column < p.n_rows)
                    columns[0] = from[0];
                if (column + 1 < p.n_rows)
                    columns[1] = from[1];
                add_block<Q>(acc[g], q, scales, block, values, columns);
            }
        }
    }
};

/* ---- floats ------------------------------------------------------------------------------------------------------ */

/* A lane's weights of a unit. */
template <class F> struct unit_floats {
    enum { ACT_TERMS = (int)F::FORM == (int)SPRY_ACT_THREE ? 3 : 2 };
    float_bits<F> steps[4];

    SPRY_METHOD void load(const product_place &p, uint32_t unit)
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++)
            load_floats(steps[step], p.weight, tile_unit(p.weight, p.tile, unit), step, p.lane);
    }

    /* Products of terms that matter: their numbers add up to less than the number of an activation's terms. */
    SPRY_METHOD static void add_step(float acc[4], const float_words<F> &w, const uint2 *from, bool there)
    {
        SPRY_UNROLL
        for (int j = 0; j < ACT_TERMS; j++) {
            uint2 values = {0, 0};
            if (there)
                values = from[j * WARP];
            SPRY_UNROLL
            for (int i = 0; i < F::TERMS && i + j < ACT_TERMS; i++)
                multiply_bf16(acc, w.words[i], values.x, values.y);
        }
    }

    template <int GROUPS>
    SPRY_METHOD void add(float acc[GROUPS][4], const product_place &p, const spry_acts &act, uint32_t unit) const
    {
        SPRY_UNROLL
        for (int step = 0; step < 4; step++) {
            float_words<F> w;
            split_floats(w, steps[step]);
            SPRY_UNROLL
            for (int g = 0; g < GROUPS; g++) {
                uint32_t group = p.group + (uint32_t)g;
                bool there = group * SPRY_ACT_ROWS + (uint32_t)(p.lane / 4) < p.n_rows;
                add_step(acc[g], w, act_terms<ACT_TERMS>(act, group, unit * 4 + (uint32_t)step) + p.lane, there);
            }
        }
    }
};

/* Which of the two a type needs. */
template <class T, bool BYTES> struct unit_of {
    typedef unit_quants<T> weights;
};
template <class T> struct unit_of<T, false> {
    typedef unit_floats<T> weights;
};
template <class T> struct unit_weights {
    typedef typename unit_of<T, (int)T::FORM == (int)SPRY_ACT_BYTES>::weights type;
};

SPRY_DEVICE uint32_t split_begin(const product_place &p, uint32_t split)
{
    return p.weight.n_units * split / SPRY_PRODUCT_SPLITS;
}

/* Adds up one split; the weights of its first unit are there. The next unit's are on their way while one is used. */
template <class T, int GROUPS>
SPRY_DEVICE void add_split(float acc[GROUPS][4], typename unit_weights<T>::type &first, const product_place &p,
                           const spry_acts &act, uint32_t split)
{
    uint32_t end = split_begin(p, split + 1);
    typename unit_weights<T>::type now = first;
    for (uint32_t unit = split_begin(p, split); unit < end; unit++) {
        typename unit_weights<T>::type next = now;
        if (unit + 1 < end)
            next.load(p, unit + 1);
        now.template add<GROUPS>(acc, p, act, unit);
        now = next;
    }
}

/* The weights of a split's first unit, if it has one. */
template <class T> SPRY_DEVICE void load_first(typename unit_weights<T>::type &first, const product_place &p, uint32_t split)
{
    if (split_begin(p, split) < split_begin(p, split + 1))
        first.load(p, split_begin(p, split));
}

/* ---- in and out -------------------------------------------------------------------------------------------------- */

SPRY_DEVICE uint32_t product_part(const spry_product_args &a, uint32_t tile)
{
    uint32_t part = 0;
    while (part + 1 < a.n_parts && tile >= a.parts[part + 1].first_tile)
        part++;
    return part;
}

/* The expert of the rows from `group` on: 0 where there are none, negative where the rows are not used. */
SPRY_DEVICE int32_t product_expert(const spry_product_args &a, uint32_t group)
{
    return a.experts ? a.experts[group * SPRY_ACT_ROWS / a.expert_rows] : 0;
}

SPRY_DEVICE product_place place_product(const spry_product_args &a, const spry_product_part &part, uint32_t tile,
                                        uint32_t group, int32_t expert)
{
    product_place p = {part.weight, tile - part.first_tile, group, a.n_rows, (int)(threadIdx.x % WARP)};
    p.weight.base += (uint64_t)expert * part.weight.matrix_bytes;
    return p;
}

/* Number i of lane's four sums of a group of rows. */
SPRY_DEVICE void write_sum(const spry_product_args &a, const spry_product_part &part, const product_place &p,
                           uint32_t group, int lane, int i, float sum, int32_t expert)
{
    uint32_t output = p.tile * SPRY_TILE_ROWS + (uint32_t)(lane / 4 + i / 2 * 8);
    uint32_t row = group * SPRY_ACT_ROWS + (uint32_t)(lane % 4 * 2 + i % 2);
    if (output >= part.weight.n_out || row >= a.n_rows)
        return;
    float *out = part.out + (uint64_t)row * part.stride + output;
    if (part.bias)
        sum += part.bias[(uint64_t)expert * part.weight.n_out + output];
    *out = a.add ? *out + sum : sum;
}

/* ---- the two ways ------------------------------------------------------------------------------------------------ */

enum { FEW_THREADS = SPRY_PRODUCT_SPLITS * WARP, MANY_WARPS = 8, MANY_GROUPS = 8 };

/* A block for (tile, groups of rows); a warp for a split. */
template <class T, int GROUPS> SPRY_DEVICE void multiply_few(const spry_product_args &a)
{
    SPRY_SHARED float sums[SPRY_PRODUCT_SPLITS][GROUPS * 4 * WARP];
    const spry_product_part &part = a.parts[product_part(a, blockIdx.x)];
    uint32_t group = blockIdx.y * GROUPS, split = threadIdx.x / WARP;
    if (a.experts) /* which weights is known only now */
        grid_wait();
    int32_t expert = product_expert(a, group);
    if (expert < 0)
        return;
    product_place p = place_product(a, part, blockIdx.x, group, expert);
    typename unit_weights<T>::type first = {};
    load_first<T>(first, p, split);
    if (!a.experts)
        grid_wait();
    float acc[GROUPS][4] = {};
    add_split<T, GROUPS>(acc, first, p, a.act, split);
    SPRY_UNROLL
    for (int i = 0; i < GROUPS * 4; i++)
        sums[split][i * WARP + p.lane] = acc[i / 4][i % 4];
    block_wait();
    for (int i = (int)threadIdx.x; i < GROUPS * 4 * WARP; i += FEW_THREADS) {
        float sum = 0;
        SPRY_UNROLL
        for (int s = 0; s < SPRY_PRODUCT_SPLITS; s++)
            sum += sums[s][i];
        write_sum(a, part, p, group + (uint32_t)(i / (4 * WARP)), i % WARP, i / WARP % 4, sum, expert);
    }
}

/* A warp for (tile, groups of rows): warps of a block share rows. */
template <class T, int GROUPS> SPRY_DEVICE void multiply_many(const spry_product_args &a)
{
    uint32_t tile = blockIdx.x * MANY_WARPS + threadIdx.x / WARP, group = blockIdx.y * GROUPS;
    int32_t expert = product_expert(a, group);
    if (expert < 0 || tile >= a.n_tiles)
        return;
    const spry_product_part &part = a.parts[product_part(a, tile)];
    product_place p = place_product(a, part, tile, group, expert);
    float total[GROUPS][4] = {};
    for (uint32_t split = 0; split < SPRY_PRODUCT_SPLITS; split++) {
        float acc[GROUPS][4] = {};
        typename unit_weights<T>::type first = {};
        load_first<T>(first, p, split);
        add_split<T, GROUPS>(acc, first, p, a.act, split);
        SPRY_UNROLL
        for (int i = 0; i < GROUPS * 4; i++)
            total[i / 4][i % 4] += acc[i / 4][i % 4];
    }
    SPRY_UNROLL
    for (int i = 0; i < GROUPS * 4; i++)
        write_sum(a, part, p, group + (uint32_t)(i / 4), p.lane, i % 4, total[i / 4][i % 4], expert);
}

#define PRODUCTS(name)                                                                                                 \
    SPRY_KERNEL_EARLY(spry_product_##name##_1, spry_product_args, FEW_THREADS)                                               \
    {                                                                                                                  \
        multiply_few<type_##name, 1>(a);                                                                               \
    }                                                                                                                  \
    SPRY_KERNEL_EARLY(spry_product_##name##_4, spry_product_args, FEW_THREADS)                                               \
    {                                                                                                                  \
        multiply_few<type_##name, 4>(a);                                                                               \
    }                                                                                                                  \
    SPRY_KERNEL(spry_product_##name##_8, spry_product_args, MANY_WARPS *WARP)                                          \
    {                                                                                                                  \
        multiply_many<type_##name, MANY_GROUPS>(a);                                                                    \
    }
