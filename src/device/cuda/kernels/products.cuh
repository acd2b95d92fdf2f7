/* Matrix products of placed weights (tiles.cuh) and encoded rows (acts.cuh) with matrix instructions.
 *
 * One sum for every number of rows: the inputs are cut into 16 splits, each added up in order, then the splits in order.
 * For few rows the warps of a block take a split each; for many rows a warp goes through all of them (here, and for
 * floats of 16 bits in products_many.cu). Columns of a matrix instruction do not touch each other, so a row's bits do not
 * depend on what other rows there are. */
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

/* ---- few rows, and the plain way for many ------------------------------------------------------------------------------------------------ */

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

/* ---- many rows through shared memory ----------------------------------------------------------------------------- */

/* A block works on 4 * TILES tiles and 128 rows, which its warps share: they are copied ahead to shared memory, a stage
 * at a time, while the stage before is used. Warps stand 4 along the tiles and 2 along the rows. */
enum { WIDE_WARPS = 8, WIDE_GROUPS = 8, WIDE_ROWS = 2 * WIDE_GROUPS * SPRY_ACT_ROWS };

/* A stage of rows and weights: of quantised weights a unit. */
template <class Q> struct wide_bytes {
    enum { STAGES = 1, GROUP_BYTES = 512, GROUP_SCALES = 128 };
    typedef unit_quants<Q> weights;

    static SPRY_METHOD void load(weights &w, const product_place &p, uint32_t unit, int)
    {
        w.load(p, unit);
    }

    template <int TILES>
    static SPRY_METHOD void add(float acc[TILES][WIDE_GROUPS][4], const weights w[TILES], const unsigned char *values,
                                const unsigned char *scales, int lane)
    {
        unit_scales<Q> s[TILES][2];
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++) {
            decode_scales<Q>(s[tile][0], w[tile].raw[0]);
            decode_scales<Q>(s[tile][1], w[tile].raw[1]);
        }
        SPRY_UNROLL
        for (int block = 0; block < 2; block++) {
            SPRY_UNROLL
            for (int g = 0; g < WIDE_GROUPS; g++) {
                uint2 row = ((const uint2 *)(values + g * GROUP_BYTES))[block * WARP + lane];
                const float2 *columns = (const float2 *)(scales + g * GROUP_SCALES) + block * 8 + lane % 4 * 2;
                const float2 both[2] = {columns[0], columns[1]};
                SPRY_UNROLL
                for (int tile = 0; tile < TILES; tile++) {
                    const unit_words<Q> &q = w[tile].words;
                    const uint32_t words[4] = {quant_word<Q>(q, block * 4), quant_word<Q>(q, block * 4 + 2),
                                               quant_word<Q>(q, block * 4 + 1), quant_word<Q>(q, block * 4 + 3)};
                    add_block<Q>(acc[tile][g], words, s[tile], block, row, both);
                }
            }
        }
    }
};

/* Copies a stage of the block's rows ahead: of each group so many bytes that lie together. */
template <class W>
SPRY_DEVICE void copy_rows(unsigned char *values, unsigned char *scales, const spry_acts &act, uint32_t first_group,
                           uint32_t n_groups, uint32_t stage)
{
    enum { PIECES = W::GROUP_BYTES / 16, SCALE_PIECES = W::GROUP_SCALES / 16, SCALES = SCALE_PIECES > 0 ? SCALE_PIECES : 1 };
    uint32_t stages = act.n_units * W::STAGES, n_scales = 2 * WIDE_GROUPS * SCALE_PIECES;
    for (uint32_t i = threadIdx.x; i < 2 * WIDE_GROUPS * PIECES; i += WIDE_WARPS * WARP) {
        uint64_t group = first_group + i / PIECES;
        if (group < n_groups)
            copy_ahead(values + i * 16, act.values + (group * stages + stage) * W::GROUP_BYTES + i % PIECES * 16);
    }
    for (uint32_t i = threadIdx.x; i < n_scales; i += WIDE_WARPS * WARP) {
        uint64_t group = first_group + i / SCALES;
        if (group < n_groups)
            copy_ahead(scales + i * 16, (const unsigned char *)act.scales + (group * stages + stage) * W::GROUP_SCALES +
                                            i % SCALES * 16);
    }
}

/* The sums of a block's warp: splits in order, each added up alone. */
template <class T, int TILES>
SPRY_DEVICE void add_wide(float total[TILES][WIDE_GROUPS][4], product_place p[TILES], const spry_product_args &a,
                          uint32_t first_group, int row_warp)
{
    typedef wide_bytes<T> W;
    SPRY_SHARED uint4 values[2][2 * WIDE_GROUPS * W::GROUP_BYTES / 16];
    SPRY_SHARED uint4 scales[2][W::GROUP_SCALES > 0 ? 2 * WIDE_GROUPS * W::GROUP_SCALES / 16 : 1];
    uint32_t n_groups = (a.n_rows + SPRY_ACT_ROWS - 1) / SPRY_ACT_ROWS, n = p[0].weight.n_units * W::STAGES, split = 0;
    typename W::weights now[TILES], next[TILES];
    float acc[TILES][WIDE_GROUPS][4] = {};
    copy_rows<W>((unsigned char *)values[0], (unsigned char *)scales[0], a.act, first_group, n_groups, 0);
    SPRY_UNROLL
    for (int tile = 0; tile < TILES; tile++)
        W::load(now[tile], p[tile], 0, 0);
    for (uint32_t stage = 0; stage < n; stage++) {
        uint32_t unit = stage / W::STAGES, following = stage + 1 < n ? stage + 1 : stage;
        copy_wait();
        block_wait();
        if (stage + 1 < n)
            copy_rows<W>((unsigned char *)values[following % 2], (unsigned char *)scales[following % 2], a.act,
                         first_group, n_groups, following);
        SPRY_UNROLL
        for (int tile = 0; tile < TILES; tile++)
            W::load(next[tile], p[tile], following / W::STAGES, (int)(following % W::STAGES));
        const unsigned char *rows = (const unsigned char *)values[stage % 2] + row_warp * WIDE_GROUPS * W::GROUP_BYTES;
        W::template add<TILES>(acc, now, rows,
                               (const unsigned char *)scales[stage % 2] + row_warp * WIDE_GROUPS * W::GROUP_SCALES,
                               p[0].lane);
        while (split < SPRY_PRODUCT_SPLITS && stage % W::STAGES == W::STAGES - 1 && split_begin(p[0], split + 1) <= unit + 1) {
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

/* A grid of (tiles by 4 * TILES, rows by WIDE_ROWS). */
template <class T, int TILES> SPRY_DEVICE void multiply_wide(const spry_product_args &a)
{
    uint32_t first_group = blockIdx.y * 2 * WIDE_GROUPS;
    int warp = (int)threadIdx.x / WARP, row_warp = warp / 4;
    int32_t expert = product_expert(a, first_group);
    if (expert < 0)
        return;
    uint32_t first = (blockIdx.x * 4 + (uint32_t)(warp % 4)) * TILES, parts[TILES];
    product_place p[TILES];
    float total[TILES][WIDE_GROUPS][4] = {};
    SPRY_UNROLL
    for (int tile = 0; tile < TILES; tile++) { /* beyond the last tile: the last again, and nothing is written */
        uint32_t number = first + (uint32_t)tile < a.n_tiles ? first + (uint32_t)tile : a.n_tiles - 1;
        parts[tile] = product_part(a, number);
        p[tile] = place_product(a, a.parts[parts[tile]], number, first_group + (uint32_t)(row_warp * WIDE_GROUPS), expert);
    }
    add_wide<T, TILES>(total, p, a, first_group, row_warp);
    SPRY_UNROLL
    for (int i = 0; i < TILES * WIDE_GROUPS * 4; i++) {
        int tile = i / (WIDE_GROUPS * 4), g = i / 4 % WIDE_GROUPS;
        if (first + (uint32_t)tile < a.n_tiles)
            write_sum(a, a.parts[parts[tile]], p[tile], p[tile].group + (uint32_t)g, p[tile].lane, i % 4,
                      total[tile][g][i % 4], expert);
    }
}

/* ---- one row, encoded on the way --------------------------------------------------------------------------------- */

/* Each warp encodes what it multiplies: the same values that spry_encode writes, without a kernel and a wait between. All
 * that does not depend on kernels before is loaded before they are waited for; the rest at once behind that. A block of
 * WARPS takes 16 / WARPS splits a warp. */
enum { FROM_UNITS = 4 }; /* of a split, at most, whose values are loaded at once */

template <class T> struct local_acts {
    enum { BYTES = (int)T::FORM == (int)SPRY_ACT_BYTES, VALUES = BYTES ? 512 : 2048, SCALES = BYTES ? 128 : 16 };
    uint4 values[VALUES / 16], scales[SCALES / 16];
};

/* A lane's two values of a unit: as they are, and what they are multiplied by. */
struct raw_unit {
    float in[2], other[2];
};

/* The norm's weights, which are there from the beginning, or the `up` of a gate. */
SPRY_DEVICE void load_other(raw_unit &r, const spry_encode_args &from, const float *other, uint32_t unit, int lane)
{
    SPRY_UNROLL
    for (int block = 0; block < 2; block++) {
        uint32_t i = unit * SPRY_TILE_UNIT + (uint32_t)(block * ACT_BLOCK + lane);
        r.other[block] = other && i < from.n ? other[i] : 0;
    }
}

SPRY_DEVICE void load_in(raw_unit &r, const spry_encode_args &from, uint32_t unit, int lane)
{
    SPRY_UNROLL
    for (int block = 0; block < 2; block++) {
        uint32_t i = unit * SPRY_TILE_UNIT + (uint32_t)(block * ACT_BLOCK + lane);
        r.in[block] = i < from.n ? from.in[i] : 0;
    }
}

template <class T>
SPRY_DEVICE spry_acts encode_unit(local_acts<T> &room, const spry_encode_args &from, const raw_unit &r, float scale,
                                  int lane)
{
    spry_acts to = {(unsigned char *)room.values, (float *)room.scales, 1};
    warp_wait();
    SPRY_UNROLL
    for (int block = 0; block < 2; block++) {
        float value = from.up       ? gated(r.in[block], r.other[block], from.gate)
                      : from.weight ? r.in[block] * scale * r.other[block]
                                    : r.in[block];
        if (local_acts<T>::BYTES)
            write_bytes(to, 0, (uint32_t)block, lane, value);
        else
            write_terms<2>(to, 0, (uint32_t)block, lane, value);
    }
    warp_wait();
    return to;
}

/* What a warp brings along of one split. */
template <class T> struct from_split {
    typename unit_weights<T>::type weights; /* of the first unit */
    raw_unit raw[FROM_UNITS];
    uint32_t begin, end;
};

template <class T>
SPRY_DEVICE void add_from(float acc[1][4], from_split<T> &f, local_acts<T> &room, const product_place &p,
                          const spry_encode_args &from, float scale)
{
    typename unit_weights<T>::type now = f.weights;
    SPRY_UNROLL
    for (uint32_t i = 0; i < FROM_UNITS; i++) {
        if (f.begin + i >= f.end)
            break;
        typename unit_weights<T>::type next = now;
        if (f.begin + i + 1 < f.end)
            next.load(p, f.begin + i + 1);
        now.template add<1>(acc, p, encode_unit<T>(room, from, f.raw[i], scale, p.lane), 0);
        now = next;
    }
    for (uint32_t unit = f.begin + FROM_UNITS; unit < f.end; unit++) {
        raw_unit raw;
        typename unit_weights<T>::type next = now;
        if (unit + 1 < f.end)
            next.load(p, unit + 1);
        load_other(raw, from, from.up ? from.up : from.weight, unit, p.lane);
        load_in(raw, from, unit, p.lane);
        now.template add<1>(acc, p, encode_unit<T>(room, from, raw, scale, p.lane), 0);
        now = next;
    }
}

template <class T, int WARPS> SPRY_DEVICE void multiply_from(const spry_product_args &a)
{
    enum { EACH = SPRY_PRODUCT_SPLITS / WARPS };
    SPRY_SHARED float sums[SPRY_PRODUCT_SPLITS][4 * WARP];
    SPRY_SHARED local_acts<T> rooms[WARPS];
    const spry_product_part &part = a.parts[product_part(a, blockIdx.x)];
    uint32_t warp = threadIdx.x / WARP;
    product_place p = place_product(a, part, blockIdx.x, 0, 0);
    from_split<T> splits[EACH];
    SPRY_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        splits[i].begin = split_begin(p, warp * EACH + i);
        splits[i].end = split_begin(p, warp * EACH + i + 1);
        if (splits[i].begin < splits[i].end)
            splits[i].weights.load(p, splits[i].begin);
        SPRY_UNROLL
        for (uint32_t unit = 0; unit < FROM_UNITS; unit++)
            load_other(splits[i].raw[unit], a.from, a.from.weight, splits[i].begin + unit, p.lane);
    }
    grid_wait();
    SPRY_UNROLL
    for (uint32_t i = 0; i < EACH * FROM_UNITS; i++) {
        raw_unit &raw = splits[i / FROM_UNITS].raw[i % FROM_UNITS];
        uint32_t unit = splits[i / FROM_UNITS].begin + i % FROM_UNITS;
        load_in(raw, a.from, unit, p.lane);
        if (a.from.up)
            load_other(raw, a.from, a.from.up, unit, p.lane);
    }
    float scale = a.from.weight ? inverse_rms(a.from.in, a.from.n, a.from.eps) : 1;
    SPRY_UNROLL
    for (uint32_t i = 0; i < EACH; i++) {
        float acc[1][4] = {};
        add_from<T>(acc, splits[i], rooms[warp], p, a.from, scale);
        SPRY_UNROLL
        for (int j = 0; j < 4; j++)
            sums[warp * EACH + i][j * WARP + p.lane] = acc[0][j];
    }
    block_wait();
    if (threadIdx.x >= 4 * WARP)
        return;
    float sum = 0;
    SPRY_UNROLL
    for (int s = 0; s < SPRY_PRODUCT_SPLITS; s++)
        sum += sums[s][threadIdx.x];
    write_sum(a, part, p, 0, p.lane, (int)warp, sum, 0);
}

#define PRODUCT_FEW(name, groups)                                                                                      \
    SPRY_KERNEL_EARLY(spry_product_##name##_##groups, spry_product_args, FEW_THREADS)                                  \
    {                                                                                                                  \
        multiply_few<type_##name, groups>(a);                                                                          \
    }
#define PRODUCTS_FEW(name) PRODUCT_FEW(name, 1) PRODUCT_FEW(name, 2) PRODUCT_FEW(name, 4)
#define PRODUCTS_MANY(name)                                                                                            \
    SPRY_KERNEL(spry_product_##name##_8, spry_product_args, MANY_WARPS *WARP)                                          \
    {                                                                                                                  \
        multiply_many<type_##name, MANY_GROUPS>(a);                                                                    \
    }
#define PRODUCTS_WIDE(name)                                                                                            \
    SPRY_KERNEL(spry_product_##name##_wide_1, spry_product_args, WIDE_WARPS *WARP)                                     \
    {                                                                                                                  \
        multiply_wide<type_##name, 1>(a);                                                                              \
    }                                                                                                                  \
    SPRY_KERNEL(spry_product_##name##_wide_2, spry_product_args, WIDE_WARPS *WARP)                                     \
    {                                                                                                                  \
        multiply_wide<type_##name, 2>(a);                                                                              \
    }
#define PRODUCTS_FROM(name)                                                                                            \
    SPRY_KERNEL_EARLY(spry_product_##name##_from_16, spry_product_args, 16 * WARP)                                     \
    {                                                                                                                  \
        multiply_from<type_##name, 16>(a);                                                                             \
    }                                                                                                                  \
    SPRY_KERNEL_EARLY(spry_product_##name##_from_8, spry_product_args, 8 * WARP)                                       \
    {                                                                                                                  \
        multiply_from<type_##name, 8>(a);                                                                              \
    }
#define PRODUCTS(name) PRODUCTS_FEW(name) PRODUCTS_FROM(name) PRODUCTS_WIDE(name)
