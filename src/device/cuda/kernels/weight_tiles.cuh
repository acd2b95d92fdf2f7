/* Layout of weights on the GPU: tiles that a warp reads as mma operand A with whole cache lines and no shuffles. A tile
 * is 16 outputs; a unit is 64 inputs of a tile. Four tiles, one per warp of a warpgroup, are stored side by side, unit
 * after unit. Used by all GEMM and GEMV kernels and by the embedding; written by repack.cu.
 *
 * A unit has four steps of 16 inputs, each an operand A of mma_bf16: with lane = 4 g + t a lane holds four pairs,
 * outputs g and g + 8 of inputs 2t and 2t + 1, then both outputs of inputs 2t + 8 and 2t + 9. F32 stores the first two
 * pairs of all lanes before the last two. A quantised type has planes, one after the other:
 *   values  4 to 6 bits: a word for each step; pair p is in the nibbles 4p and 4p + 16. 8 bits: two words of bytes for
 *           each step, outputs g and g + 8
 *   high    fifth bits: bit 4 step + p of both halves of a word; sixth bits: a word for two steps, two bits a value
 *   scale   the scales, or scales and minima, of a unit, for each output
 *   super   the scales that 256 inputs share, for each output; of level_k and level_h a half for each output, the 16
 *           levels as bytes, and the factor of the halves, a half
 * The value of a quant is scale * (quant - ZERO) + min. Products use it rounded to bf16, as they use activations: scale
 * and min are rounded first, then the value. That adds at most a few percent to the rounding that made the quants. The
 * embedding uses the exact value. */
#pragma once

#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/primitives.cuh"

/* BITS of a quant; ZERO: the quant that means 0, or with minima the middle one (0: half of 2^BITS); GROUP: inputs that
 * share a scale; SCALE: bytes of the scale plane per output and unit; MIN: there are minima; SUPER: there is a super
 * plane; FLOATS: quants are 4-bit floats, scales are exponents; LEVELS: quants are codes of levels. */
template <int BITS_, int ZERO_, int GROUP_, int SCALE_, bool MIN_, bool SUPER_, int KIND> struct quants {
    enum { BITS = BITS_, ZERO = ZERO_, GROUP = GROUP_, SCALE = SCALE_, MIN = MIN_, SUPER = SUPER_ };
    enum { FLOATS = KIND == 1, LEVELS = KIND == 2 };
    enum { QUANTS = 1, FORMAT = SPRY_ACT_BF16, TERMS = 1, ACTS = 1 };
    enum { HIGH = BITS < 8 ? BITS - 4 : 0, LANE = BITS < 8 ? 16 : 32 };
    enum { CENTRE = MIN && ZERO == 0 ? 1 << (BITS - 1) : ZERO }; /* what unpacking subtracts */
};
#define QUANT_TYPE(name, dtype, bits, zero, group, scale, min, super, kind)                                            \
    struct type_##name : quants<bits, zero, group, scale, min, super, kind> {                                          \
    };
SPRY_QUANT_FORMS(QUANT_TYPE)

/* TERMS and ACTS: number of bf16 terms whose sum is a weight, or an activation (FORMAT). LANE: bytes of a lane for 16
 * inputs. */
#define FLOAT_TYPE(name, dtype, terms, format, lane)                                                                   \
    struct type_##name {                                                                                               \
        enum { QUANTS = 0, TERMS = terms, ACTS = terms, FORMAT = format, LANE = lane };                                \
    };
SPRY_FLOAT_TYPES(FLOAT_TYPE)

SPRY_DEVICE const unsigned char *tile_plane(const spry_tiles &w, uint64_t plane, uint64_t unit, uint32_t bytes)
{
    return w.base + plane + unit * bytes;
}

/* Index of a unit in the matrix, and of a group of 256 inputs in the super plane. The next unit of a tile is
 * SPRY_TILE_GROUP further. */
SPRY_DEVICE uint64_t tile_unit(const spry_tiles &w, uint32_t tile, uint32_t unit)
{
    return ((uint64_t)(tile / SPRY_TILE_GROUP) * w.n_units + unit) * SPRY_TILE_GROUP + tile % SPRY_TILE_GROUP;
}

template <class Q> SPRY_DEVICE uint64_t tile_super(const spry_tiles &w, uint32_t tile, uint32_t unit)
{
    uint32_t each =
        Q::LEVELS ? (w.n_units + 3) / 4 : w.n_units / 4; /* blocks of levels may have fewer than 256 values */
    return ((uint64_t)(tile / SPRY_TILE_GROUP) * each + unit / 4) * SPRY_TILE_GROUP + tile % SPRY_TILE_GROUP;
}

/* The bytes of a tile in the super plane. */
template <class Q> SPRY_DEVICE const unsigned char *super_plane(const spry_tiles &w, uint32_t tile, uint32_t unit)
{
    return tile_plane(w, w.super, tile_super<Q>(w, tile, unit), 4 * SPRY_TILE_ROWS);
}

/* mma operand A of a lane for 16 inputs: bf16 terms whose sum is the weight. */
template <class T> struct weight_fragment {
    uint32_t words[T::TERMS][4];
};

/* Position of a weight in a unit: step, lane, pair of the lane, and half of the pair. */
struct weight_coord {
    int step, lane, pair, upper;
};

SPRY_DEVICE weight_coord weight_coord_of(uint32_t output, uint32_t input)
{
    int in_step = (int)(input % 16);
    weight_coord p = {(int)(input % 64 / 16), (int)(output % 8 * 4) + in_step % 8 / 2,
                      (int)(output % 16 / 8) + in_step / 8 * 2, in_step % 2};
    return p;
}

/* ---- quants ------------------------------------------------------------------------------------------------------ */

/* high: with LEVELS the levels. */
template <class Q> struct unit_words {
    uint32_t words[Q::LANE / 4];
    uint32_t high[Q::LEVELS ? 4 : Q::HIGH > 1 ? Q::HIGH : 1];
};

SPRY_DEVICE void load_words(uint32_t *to, const unsigned char *from, int n)
{
    SPRY_UNROLL
    for (int i = 0; i < n; i += 4) {
        uint4 v = *(const uint4 *)(from + i * 4);
        to[i] = v.x;
        to[i + 1] = v.y;
        to[i + 2] = v.z;
        to[i + 3] = v.w;
    }
}

/* Where the levels and their factor are in a tile's bytes of the super plane. */
enum { LEVELS_AT = 2 * SPRY_TILE_ROWS, FACTOR_AT = LEVELS_AT + 16 };

/* `super`: the tile's bytes of the super plane, which only LEVELS need. */
template <class Q>
SPRY_DEVICE void load_unit(unit_words<Q> &u, const spry_tiles &w, uint64_t unit, const unsigned char *super, int lane)
{
    load_words(u.words, tile_plane(w, 0, unit, Q::LANE * WARP) + lane * Q::LANE, Q::LANE / 4);
    const uint32_t *high = (const uint32_t *)tile_plane(w, w.high, unit, Q::HIGH * 4 * WARP) + lane * Q::HIGH;
    SPRY_UNROLL
    for (int i = 0; i < Q::HIGH; i++)
        u.high[i] = high[i];
    if (Q::LEVELS)
        load_words(u.high, super + LEVELS_AT, 4);
}

#define BF16_128      0x43004300u /* two bf16 of value 128: an integer below 128 in the lowest bits is added to it */
#define BF16_1        0x3f803f80u
#define BF16_MINUS_1  0xbf80bf80u
#define BF16_2_TO_126 0x7e807e80u
#define BF16_MINUS_0  0x80008000u /* adding it changes nothing */

/* Bits from bit `at` of both halves of a word, moved to bit 4. */
SPRY_DEVICE uint32_t moved_to_4(uint32_t word, int at)
{
    return at < 4 ? word << (4 - at) : word >> (at - 4);
}

/* The signed bytes at the bottom of both halves of a word as two bf16. */
SPRY_DEVICE uint32_t bf16_of_bytes(uint32_t bytes)
{
    return fma_bf16x2(and_or<0x00800080>(bytes, BF16_128), BF16_MINUS_1, and_or<0x007f007f>(bytes, BF16_128));
}

/* The levels of the four codes in the lower half of a word, as bytes. */
SPRY_DEVICE uint32_t levels_of(const uint32_t *levels, uint32_t codes)
{
    uint32_t in_half = codes & 0x7777;
    return byte_perm(byte_perm(levels[0], levels[1], in_half), byte_perm(levels[2], levels[3], in_half),
                     0x3210 | (codes & 0x8888) >> 1);
}

/* A pair of quants minus CENTRE, or of 4-bit floats, as two bf16; the conversion is exact. */
template <class Q> SPRY_DEVICE uint32_t quant_pair(const unit_words<Q> &u, int step, int pair)
{
    if (Q::BITS == 8) {
        uint32_t bytes = byte_perm(u.words[Q::BITS == 8 ? step * 2 + pair % 2 : 0], 0, pair / 2 ? 0x4342 : 0x4140);
        return bf16_of_bytes(bytes);
    }
    if (Q::LEVELS) {
        uint32_t lower = levels_of(u.high, u.words[step]), upper = levels_of(u.high, u.words[step] >> 16);
        return bf16_of_bytes(byte_perm(lower, upper, (uint32_t)(pair | (4 + pair) << 8)));
    }
    if (Q::FLOATS) { /* sign, exponent and mantissa where bf16 has them: 2^-126 times the value */
        uint32_t top = u.words[step] << (12 - 4 * pair);
        return fma_bf16x2(and_or<0x01c001c0>(top >> 6, top & 0x80008000), BF16_2_TO_126, BF16_MINUS_0);
    }
    uint32_t bits = and_or<0x000f000f>(u.words[step] >> 4 * pair, BF16_128);
    if (Q::BITS == 5)
        bits = and_or<0x00100010>(moved_to_4(u.high[0], step * 4 + pair), bits);
    if (Q::BITS == 6)
        bits = and_or<0x00300030>(moved_to_4(u.high[Q::HIGH > 1 ? step / 2 : 0], step % 2 * 8 + pair * 2), bits);
    return fma_bf16x2(bits, BF16_1, (0xc300u + Q::CENTRE) * 0x10001);
}

/* Scales and minima of one output in a unit. */
template <class Q> struct unit_scales {
    float scale[64 / Q::GROUP], min[64 / Q::GROUP];
};

/* The packed bytes of unit_scales. */
template <class Q> struct scale_words {
    uint32_t scale[Q::SCALE / 4], super;
};

SPRY_DEVICE uint32_t byte_at(const uint32_t *words, int i)
{
    return words[i / 4] >> i % 4 * 8 & 255;
}

/* factor * byte i of a word: added to the bits of the float 2^23 a byte is added to the float. That is faster than a
 * conversion, and as exact. `shifted`: -2^23 * factor. */
SPRY_DEVICE float times_byte(float factor, float shifted, uint32_t word, int i)
{
    return fmaf(factor, float_of_bits(byte_perm(word, 0x4b000000, 0x7440u | (uint32_t)i)), shifted);
}

SPRY_DEVICE float half_at(const uint32_t *words, int i)
{
    return float_of_half((uint16_t)(words[i / 2] >> i % 2 * 16));
}

/* 2^(exponent - 127), MXFP4's scale. */
SPRY_DEVICE float mxfp4_scale(uint32_t exponent)
{
    return float_of_bits(exponent ? exponent << 23 : 0x00400000u);
}

/* The word of an output in the super plane of a tile; with LEVELS the half and its factor. */
template <class Q> SPRY_DEVICE uint32_t super_word(const unsigned char *plane, int output)
{
    if (Q::LEVELS)
        return ((const uint16_t *)plane)[output] | (uint32_t) * (const uint16_t *)(plane + FACTOR_AT) << 16;
    return ((const uint32_t *)plane)[output];
}

template <class Q>
SPRY_DEVICE void load_scales(scale_words<Q> &s, const spry_tiles &w, uint32_t tile, uint32_t unit, int output)
{
    const uint32_t *scale = (const uint32_t *)tile_plane(
        w, w.scale, tile_unit(w, tile, unit) * SPRY_TILE_ROWS + (uint32_t)output, Q::SCALE);
    SPRY_UNROLL
    for (int i = 0; i < Q::SCALE / 4; i++)
        s.scale[i] = scale[i];
    s.super = Q::SUPER ? super_word<Q>(super_plane<Q>(w, tile, unit), output) : 0;
}

template <class Q> SPRY_DEVICE void decode_scales(unit_scales<Q> &s, const scale_words<Q> &w)
{
    const float first = half_at(&w.super, 0), second = half_at(&w.super, 1), shift = -8388608.0f;
    SPRY_UNROLL
    for (int i = 0; i < 64 / Q::GROUP; i++) {
        s.min[i] = 0;
        if (Q::FLOATS) {
            s.scale[i] = mxfp4_scale(byte_at(w.scale, i));
        } else if (Q::SUPER && Q::MIN) {
            s.scale[i] = times_byte(first, first * shift, w.scale[i / 2], i % 2 * 2);
            s.min[i] = times_byte(-second, -second * shift, w.scale[i / 2], i % 2 * 2 + 1);
        } else if (Q::SUPER && Q::SCALE == 4) {
            s.scale[i] = (Q::LEVELS ? first * second : first) * (float)(int8_t)byte_at(w.scale, i);
        } else {
            s.scale[i] = half_at(w.scale, Q::MIN ? 2 * i : i);
            if (Q::MIN)
                s.min[i] = half_at(w.scale, 2 * i + 1);
        }
    }
}

/* unit_scales as pairs of equal bf16; min belongs to a quant of CENTRE, so that it is small and its rounding, too. */
template <class Q> struct bf16_scales {
    uint32_t scale[64 / Q::GROUP], min[64 / Q::GROUP];

    SPRY_METHOD void decode(const scale_words<Q> &raw)
    {
        unit_scales<Q> s;
        decode_scales<Q>(s, raw);
        SPRY_UNROLL
        for (int i = 0; i < 64 / Q::GROUP; i++) {
            float centre = fmaf(s.scale[i], Q::CENTRE, s.min[i]);
            scale[i] = pack_bf16x2(s.scale[i], s.scale[i]);
            min[i] = Q::MIN ? pack_bf16x2(centre, centre) : BF16_MINUS_0;
        }
    }
};

/* One weight as a float, exact. */
template <class Q> SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const Q *)
{
    weight_coord p = weight_coord_of(output, input);
    uint32_t group = input % 64 / Q::GROUP;
    unit_words<Q> u;
    scale_words<Q> raw;
    unit_scales<Q> s;
    load_unit<Q>(u, w, tile_unit(w, output / 16, input / 64), super_plane<Q>(w, output / 16, input / 64), p.lane);
    load_scales<Q>(raw, w, output / 16, input / 64, (int)(output % 16));
    decode_scales<Q>(s, raw);
    float quant = float_of_bf16(quant_pair<Q>(u, p.step, p.pair) >> p.upper * 16 & 0xffff);
    return s.scale[group] * (quant + (Q::MIN ? Q::CENTRE : 0)) + s.min[group];
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

SPRY_DEVICE const unsigned char *float_step(const spry_tiles &w, uint64_t unit, int step, uint32_t lane_bytes)
{
    return tile_plane(w, 0, unit * 4 + step, lane_bytes * WARP);
}

/* A lane's part of 16 inputs as stored. */
template <class F> struct float_bits {
    uint32_t words[F::LANE / 4];
};
template <class F>
SPRY_DEVICE void load_floats(float_bits<F> &f, const spry_tiles &w, uint64_t unit, int step, int lane)
{
    const unsigned char *from = float_step(w, unit, step, F::LANE) + lane * 16;
    SPRY_UNROLL
    for (int i = 0; i < F::LANE / 16; i++)
        load_words(f.words + i * 4, from + i * WARP * 16, 4);
}

SPRY_DEVICE void split_floats(weight_fragment<type_bf16> &f, const float_bits<type_bf16> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++)
        f.words[0][i] = bits.words[i];
}

SPRY_DEVICE void split_floats(weight_fragment<type_f16> &f, const float_bits<type_f16> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++) {
        float low = float_of_half((uint16_t)bits.words[i]), high = float_of_half((uint16_t)(bits.words[i] >> 16));
        f.words[0][i] = split_bf16x2(&low, &high);
        f.words[1][i] = split_bf16x2(&low, &high);
    }
}

SPRY_DEVICE void split_floats(weight_fragment<type_f32> &f, const float_bits<type_f32> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++) {
        float low = float_of_bits(bits.words[2 * i]), high = float_of_bits(bits.words[2 * i + 1]);
        SPRY_UNROLL
        for (int term = 0; term < 3; term++)
            f.words[term][i] = split_bf16x2(&low, &high);
    }
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_bf16 *)
{
    weight_coord p = weight_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 16);
    return float_of_bf16(((const uint16_t *)from)[p.lane * 8 + p.pair * 2 + p.upper]);
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_f16 *)
{
    weight_coord p = weight_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 16);
    return float_of_half(((const uint16_t *)from)[p.lane * 8 + p.pair * 2 + p.upper]);
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_f32 *)
{
    weight_coord p = weight_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 32);
    return ((const float *)from)[p.pair / 2 * WARP * 4 + p.lane * 4 + p.pair % 2 * 2 + p.upper];
}
