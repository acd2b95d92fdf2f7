/* Layout of weights on the GPU: tiles that a warp reads as mma operand A with whole cache lines and no shuffles. A tile
 * is 16 outputs; a unit is 64 inputs of a tile. Four tiles, one per warp of a warpgroup, are stored side by side, unit
 * after unit. Used by all GEMM and GEMV kernels and by the embedding; written by repack.cu.
 *
 * With lane = 4 g + t a lane holds outputs g and g + 8 of its tile. A unit of a quantised type has eight words of four
 * values per lane; word number (block of 32 * 2 + upper output) * 2 + upper half of the block holds values 4t .. 4t + 3
 * of that half. The planes of a matrix are stored one after the other:
 *   values  4 to 6 bits: two words share a word of the plane, the lower half of a block in the low nibbles and the
 *           upper half in the high nibbles; 8 bits: one byte a value
 *   high    fifth bits: bit i of byte j belongs to value j of word i; sixth bits: two words, two bits a value
 *   scale   the scales, or scales and minima, of a unit, for each output
 *   super   the scales that 256 inputs share, for each output
 * The value of a quant is scale * (quant - ZERO) + min.
 *
 * A unit of floats has four steps of 16 inputs, each an operand A of mma_bf16. F32 stores the first two words of all
 * lanes before the last two. */
#pragma once

#include "device/cuda/kernel_args.h"
#include "device/cuda/kernels/primitives.cuh"

/* BITS of a quant; ZERO: the quant that means 0; GROUP: inputs that share a scale; SCALE: bytes of the scale plane per
 * output and unit; MIN: there are minima; SUPER: there is a super plane; FLOATS: quants are 4-bit floats, scales are
 * exponents. */
template <int BITS_, int ZERO_, int GROUP_, int SCALE_, bool MIN_, bool SUPER_, bool FLOATS_> struct quants {
    enum { BITS = BITS_, ZERO = ZERO_, GROUP = GROUP_, SCALE = SCALE_, MIN = MIN_, SUPER = SUPER_, FLOATS = FLOATS_ };
    enum { QUANTS = 1, FORMAT = SPRY_ACT_Q8, ACTS = 0, HIGH = BITS < 8 ? BITS - 4 : 0, LANE = BITS < 8 ? 16 : 32 };
};
#define QUANT_TYPE(name, dtype, bits, zero, group, scale, min, super, floats)                                          \
    struct type_##name : quants<bits, zero, group, scale, min, super, floats> {                                        \
    };
SPRY_QUANT_TYPES(QUANT_TYPE)

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

SPRY_DEVICE uint64_t tile_super(const spry_tiles &w, uint32_t tile, uint32_t unit)
{
    return ((uint64_t)(tile / SPRY_TILE_GROUP) * (w.n_units / 4) + unit / 4) * SPRY_TILE_GROUP + tile % SPRY_TILE_GROUP;
}

/* ---- quants ------------------------------------------------------------------------------------------------------ */

template <class Q> struct unit_words {
    uint32_t words[Q::LANE / 4];
    uint32_t high[Q::HIGH > 1 ? Q::HIGH : 1];
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

template <class Q> SPRY_DEVICE void load_unit(unit_words<Q> &u, const spry_tiles &w, uint64_t unit, int lane)
{
    load_words(u.words, tile_plane(w, 0, unit, Q::LANE * WARP) + lane * Q::LANE, Q::LANE / 4);
    const uint32_t *high = (const uint32_t *)tile_plane(w, w.high, unit, Q::HIGH * 4 * WARP) + lane * Q::HIGH;
    SPRY_UNROLL
    for (int i = 0; i < Q::HIGH; i++)
        u.high[i] = high[i];
}

/* Four 4-bit floats to integers: twice their value plus 16. */
SPRY_DEVICE uint32_t mxfp4_quants(uint32_t q)
{
    uint32_t b0 = q & 0x01010101, b1 = q >> 1 & 0x01010101, b2 = q >> 2 & 0x01010101, sign = q >> 3 & 0x01010101;
    uint32_t size =
        (b0 & ~b2) | (b1 & ~b2) << 1 | (b2 & ~b1 & b0) << 1 | (b2 & ~b1) << 2 | (b2 & b1 & b0) << 2 | (b2 & b1) << 3;
    return 0x10101010 + size - 2 * (size & sign * 255);
}

/* Word i of a unit: four quants, one per byte. */
template <class Q> SPRY_DEVICE uint32_t quant_word(const unit_words<Q> &u, int i)
{
    if (Q::BITS == 8)
        return u.words[i];
    uint32_t word = u.words[i / 2] >> i % 2 * 4 & 0x0f0f0f0f;
    if (Q::FLOATS)
        return mxfp4_quants(word);
    if (Q::BITS == 5)
        word |= (u.high[0] >> i & 0x01010101) << 4;
    if (Q::BITS == 6)
        word |= (u.high[Q::HIGH > 1 ? i / 4 : 0] >> i % 4 * 2 & 0x03030303) << 4;
    return word;
}

#define BF16_128 0x43004300u /* two bf16 of value 128: an integer below 128 in the lowest bits is added to it */

/* Two of the four quants of a word, minus ZERO, as bf16; the conversion is exact. */
template <class Q> SPRY_DEVICE uint32_t quant_pair(uint32_t word, int which)
{
    if (Q::BITS < 8)
        return fma_bf16x2(byte_perm(word, BF16_128, which ? 0x5352 : 0x5150), 0x3f803f80,
                          (0xc300u + Q::ZERO) * 0x10001);
    uint32_t pair = byte_perm(word, 0, which ? 0x4342 : 0x4140);
    return fma_bf16x2((pair & 0x00800080) | BF16_128, 0xbf80bf80, (pair & 0x007f007f) | BF16_128);
}

/* The quants of 16 inputs as operand A of mma_bf16, except that inputs 2t, 2t + 1, 2t + 8 and 2t + 9 are 4t .. 4t +
 * 3. */
template <class Q> SPRY_DEVICE void quant_fragment(uint32_t to[4], const unit_words<Q> &u, int step)
{
    SPRY_UNROLL
    for (int upper = 0; upper < 2; upper++) {
        uint32_t word = quant_word<Q>(u, (step / 2 * 2 + upper) * 2 + step % 2);
        to[upper] = quant_pair<Q>(word, 0);
        to[upper + 2] = quant_pair<Q>(word, 1);
    }
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

SPRY_DEVICE float half_at(const uint32_t *words, int i)
{
    return float_of_half((uint16_t)(words[i / 2] >> i % 2 * 16));
}

/* 2^(exponent - 128): half of MXFP4's scale, because mxfp4_quants doubles the values. */
SPRY_DEVICE float mxfp4_scale(uint32_t exponent)
{
    return float_of_bits(exponent > 1 ? (exponent - 1) << 23 : 0x00200000u << exponent);
}

template <class Q>
SPRY_DEVICE void load_scales(scale_words<Q> &s, const spry_tiles &w, uint32_t tile, uint32_t unit, int output)
{
    const uint32_t *scale = (const uint32_t *)tile_plane(
        w, w.scale, tile_unit(w, tile, unit) * SPRY_TILE_ROWS + (uint32_t)output, Q::SCALE);
    SPRY_UNROLL
    for (int i = 0; i < Q::SCALE / 4; i++)
        s.scale[i] = scale[i];
    uint64_t super = tile_super(w, tile, unit) * SPRY_TILE_ROWS + (uint32_t)output;
    s.super = Q::SUPER ? *(const uint32_t *)tile_plane(w, w.super, super, 4) : 0;
}

template <class Q> SPRY_DEVICE void decode_scales(unit_scales<Q> &s, const scale_words<Q> &w)
{
    SPRY_UNROLL
    for (int i = 0; i < 64 / Q::GROUP; i++) {
        s.min[i] = 0;
        if (Q::FLOATS) {
            s.scale[i] = mxfp4_scale(byte_at(w.scale, i));
        } else if (Q::SUPER && Q::MIN) {
            s.scale[i] = half_at(&w.super, 0) * (float)byte_at(w.scale, 2 * i);
            s.min[i] = -(half_at(&w.super, 1) * (float)byte_at(w.scale, 2 * i + 1));
        } else if (Q::SUPER) {
            s.scale[i] = half_at(&w.super, 0) * (float)(int8_t)byte_at(w.scale, i);
        } else {
            s.scale[i] = half_at(w.scale, Q::MIN ? 2 * i : i);
            if (Q::MIN)
                s.min[i] = half_at(w.scale, 2 * i + 1);
        }
    }
}

/* One weight as a float. */
template <class Q> SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const Q *)
{
    uint32_t tile = output / 16, unit = input / 64, in_unit = input % 64, in_half = in_unit % 16;
    int lane = (int)(output % 8 * 4 + in_half / 4);
    int word = (int)((in_unit / 32 * 2 + output % 16 / 8) * 2 + in_unit % 32 / 16);
    unit_words<Q> u;
    scale_words<Q> raw;
    unit_scales<Q> s;
    load_unit<Q>(u, w, tile_unit(w, tile, unit), lane);
    load_scales<Q>(raw, w, tile, unit, (int)(output % 16));
    decode_scales<Q>(s, raw);
    uint32_t quant = quant_word<Q>(u, word) >> in_half % 4 * 8 & 255;
    int level = Q::BITS == 8 ? (int)(int8_t)quant : (int)quant - Q::ZERO;
    uint32_t group = in_unit / Q::GROUP;
    return s.scale[group] * (float)level + s.min[group];
}

/* ---- floats ------------------------------------------------------------------------------------------------------ */

SPRY_DEVICE const unsigned char *float_step(const spry_tiles &w, uint64_t unit, int step, uint32_t lane_bytes)
{
    return tile_plane(w, 0, unit * 4 + step, lane_bytes * WARP);
}

/* A lane's part of 16 inputs as stored, and split into bf16 terms. */
template <class F> struct float_bits {
    uint32_t words[F::LANE / 4];
};
template <class F> struct float_words {
    uint32_t words[F::TERMS][4];
};

template <class F>
SPRY_DEVICE void load_floats(float_bits<F> &f, const spry_tiles &w, uint64_t unit, int step, int lane)
{
    const unsigned char *from = float_step(w, unit, step, F::LANE) + lane * 16;
    SPRY_UNROLL
    for (int i = 0; i < F::LANE / 16; i++)
        load_words(f.words + i * 4, from + i * WARP * 16, 4);
}

SPRY_DEVICE void split_floats(float_words<type_bf16> &f, const float_bits<type_bf16> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++)
        f.words[0][i] = bits.words[i];
}

SPRY_DEVICE void split_floats(float_words<type_f16> &f, const float_bits<type_f16> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++) {
        float low = float_of_half((uint16_t)bits.words[i]), high = float_of_half((uint16_t)(bits.words[i] >> 16));
        f.words[0][i] = split_bf16x2(&low, &high);
        f.words[1][i] = split_bf16x2(&low, &high);
    }
}

SPRY_DEVICE void split_floats(float_words<type_f32> &f, const float_bits<type_f32> &bits)
{
    SPRY_UNROLL
    for (int i = 0; i < 4; i++) {
        float low = float_of_bits(bits.words[2 * i]), high = float_of_bits(bits.words[2 * i + 1]);
        SPRY_UNROLL
        for (int term = 0; term < 3; term++)
            f.words[term][i] = split_bf16x2(&low, &high);
    }
}

/* Position of a float in a unit: step, lane, word of the lane, and half of the word. */
struct float_coord {
    int step, lane, word, upper;
};

SPRY_DEVICE float_coord float_coord_of(uint32_t output, uint32_t input)
{
    int in_step = (int)(input % 16);
    float_coord p = {(int)(input % 64 / 16), (int)(output % 8 * 4) + in_step % 8 / 2,
                     (int)(output % 16 / 8) + in_step / 8 * 2, in_step % 2};
    return p;
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_bf16 *)
{
    float_coord p = float_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 16);
    return float_of_bf16(((const uint16_t *)from)[p.lane * 8 + p.word * 2 + p.upper]);
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_f16 *)
{
    float_coord p = float_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 16);
    return float_of_half(((const uint16_t *)from)[p.lane * 8 + p.word * 2 + p.upper]);
}

SPRY_DEVICE float tile_value(const spry_tiles &w, uint32_t output, uint32_t input, const type_f32 *)
{
    float_coord p = float_coord_of(output, input);
    const unsigned char *from = float_step(w, tile_unit(w, output / 16, input / 64), p.step, 32);
    return ((const float *)from)[p.word / 2 * WARP * 4 + p.lane * 4 + p.word % 2 * 2 + p.upper];
}
